// The overlay of one state: a hash table of entries, and for lists and maps the heads that say which entries belong to
// one key. Knows bytes only; what they mean is the states' business.
//
// A store key without its four-byte prefix is a primary key (an encoded key of the operator) and a suffix: nothing for
// values, the encoded map key or the list index otherwise. Hash: IndexHash of the primary key; with a suffix, IndexHash
// of the suffix under that. Pointers to entries and heads stay good until EvictClean or Clear.
// The keys of an ordered state begin with what orders them (overlay/layout.h): there, all bytes are the primary key.
// Thread-safety: none; belongs to the Store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codec/index_hash.h"
#include "container/arena.h"
#include "container/hash_index.h"
#include "holdfast/expiry.h"
#include "overlay/earlier_rows.h"
#include "overlay/entry.h"
#include "overlay/key_order.h"
#include "overlay/layout.h"
#include "overlay/stored_value.h"
#include "overlay/versions.h"

namespace holdfast {

// A primary key with what was computed of it.
struct HashedKey {
  Slice bytes;
  uint64_t hash;
  uint16_t key_group;
};

// A raw key says nothing of its key group: equal bytes in two of them are two keys, and have two hashes.
inline HashedKey RawKey(Slice bytes, uint16_t key_group) {
  char group[sizeof(key_group)];
  std::memcpy(group, &key_group, sizeof(group));
  return {bytes, IndexHash(bytes, IndexHash({group, sizeof(group)})), key_group};
}

class Table {
 public:
  // Of one key, and of one value with its header.
  static constexpr size_t kBytesMax = kStoredBytesMax;

  // `complete`: the overlay is everything, a key that is not in it does not exist.
  Table(uint16_t state_id, Versions* versions, bool complete, KeyGroupRange groups)
      : state_id_(state_id), versions_(versions), complete_(complete) {
    if (layout::IsOrderedId(state_id)) order_.emplace(groups, complete);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  uint16_t state_id() const { return state_id_; }
  bool complete() const { return complete_; }

  // New entries get room for values of this size behind their keys, within reason.
  void ExpectValueBytes(size_t bytes) {
    value_bytes_hint_ = std::max(value_bytes_hint_, static_cast<uint32_t>(std::min(bytes, kInlineValueMax)));
  }

  // The same for values of one width, with their header and, where writes stamp, the stamp.
  void ExpectWidth(size_t width) {
    ExpectValueBytes(value_header::kBytes + width + (expiry_.stamps ? value_header::kStampBytes : 0));
  }

  // --- values: one entry a primary key
  void PrefetchIndex(uint64_t hash) const { entries_.Prefetch(hash); }
  // The entry that most likely has this hash, prefetched, or null. What a block of keys guesses is then confirmed.
  Entry* PrefetchEntry(uint64_t hash) const {
    Entry* guess = entries_.Guess(hash);
    if (guess != nullptr) Prefetch(guess);
    return guess;
  }
  // With the bytes of a short key and value.
  static void Prefetch(const Entry* entry) {
    const char* bytes = reinterpret_cast<const char*>(entry);
    __builtin_prefetch(bytes, 1);
    __builtin_prefetch(bytes + 40, 1);
  }
  // Of an encoded key, which says its key group itself.
  static bool IsOf(const Entry* guess, Slice key) { return guess != nullptr && SameBytes(guess->key(), key); }
  static bool IsOf(const Entry* guess, const HashedKey& key) {
    return IsOf(guess, key.bytes) && guess->key_group == key.key_group;
  }
  Entry* Intern(const HashedKey& key) {
    return entries_.FindOrInsert(
        key.hash, [&key](const Entry& entry) { return IsOf(&entry, key); },
        [&] { return NewEntry(key.bytes, {}, key.key_group); });
  }

  // --- lists and maps: a head a primary key, an entry an element
  void PrefetchHeadIndex(uint64_t hash) const { heads_.Prefetch(hash); }
  void PrefetchHead(uint64_t hash) const {
    if (const Head* guess = heads_.Guess(hash); guess != nullptr) __builtin_prefetch(guess, 1);
  }
  static void PrefetchItems(const Head& head) { __builtin_prefetch(head.items + head.count, 1); }
  Head* InternHead(const HashedKey& key);
  static uint64_t ElementHash(uint64_t key_hash, Slice suffix) { return IndexHash(suffix, key_hash); }
  // New elements of a head that is loaded are known to be absent.
  Entry* InternElement(const HashedKey& key, Slice suffix);
  Entry* InternElementOf(Head* head, uint64_t key_hash, Slice suffix);
  // The head's items in key order, without those known to be absent.
  void Sort(Head* head);

  // --- ordered states: an entry a store key, all of whose bytes are its key
  // Null for the others.
  KeyOrder* order() { return order_.has_value() ? &*order_ : nullptr; }

  template <typename Visit>
  void ForEachEntry(Visit&& visit) const {
    entries_.ForEach([&visit](uint64_t, Entry* entry) { visit(entry); });
  }

  // --- changes of the batch at hand
  void Put(Entry* entry, Slice value);
  // Whether it put: not where a value is known to be, unless it has expired.
  // Of an entry that is not known, the base is not asked.
  bool PutIfAbsent(Entry* entry, Slice value) {
    if (IsLive(*entry)) return false;
    Put(entry, value);
    return true;
  }
  void Remove(Entry* entry);
  // Every item of a head that is loaded. They leave its items, so that the next one does not meet them again.
  void RemoveItems(Head* head);
  // Marks a present entry as changed and stamps it; its value bytes may then be overwritten in place.
  // They may have moved.
  void Touch(Entry* entry) {
    if (entry->mark != versions_->mark()) TouchFirst(entry);
    if (expiry_.stamps) Stamp(entry);
  }

  // --- time to live
  // From here on. The cutoff never goes back.
  void SetExpiry(const BatchExpiry& expiry) { expiry_ = expiry; }
  const BatchExpiry& expiry() const { return expiry_; }
  // Whether the entry, which is known, has a value that has not expired.
  bool IsLive(const Entry& entry) const { return entry.present() && !IsExpired(entry); }
  // Whether entries must be settled before they are looked at.
  bool settles() const { return expiry_.expiry.any() || expiry_.refresh_on_read; }
  // An entry that is known and about to be looked at: absent once it is expired; else, with `refresh` and in a batch,
  // stamped anew where the state says so.
  void Settle(Entry* entry, bool refresh) {
    if (!entry->present()) return;
    if (IsExpired(*entry)) {
      Expire(entry);
    } else if (refresh && expiry_.refresh_on_read && versions_->in_batch()) {
      Touch(entry);
    }
  }
  void SettleItems(Head* head, bool refresh) {
    if (!settles()) return;
    for (uint32_t i = 0; i < head->count; ++i) Settle(head->items[i], refresh);
  }
  // A write that leaves the value as it is.
  void Refresh(Entry* entry) {
    if (expiry_.stamps) Touch(entry);
  }
  // Of a stored value that may be read.
  bool IsExpired(Slice stored) const {
    const bool stamped = value_header::IsStamped(stored);
    return expiry_.expiry.IsExpired(stamped, stamped ? value_header::StampOf(stored) : 0);
  }

  // --- schemas
  // That rows leave with. All that comes, of whatever schema, is in the overlay as the newest has it.
  uint8_t version() const { return version_; }
  // Before anything is read.
  void SetEarlier(std::unique_ptr<EarlierRows> earlier) {
    earlier_ = std::move(earlier);
    version_ = earlier_->version();
  }

  // --- what is read: from the base (mark 0) or from a delta (the mark at hand)
  // As it is stored. Corrupt or Incompatible, naming state and key group, for what cannot be read.
  Status SetStored(Entry* entry, Slice stored, uint32_t mark) {
    if (!IsStoredValue(stored, version_)) [[unlikely]]
      return SetStoredEarlier(entry, stored, mark);
    SetRead(entry, stored, /*present=*/true, mark);
    return Status::Ok();
  }
  // One that is known to be readable, of the newest schema; or that there is none.
  void SetRead(Entry* entry, Slice value, bool present, uint32_t mark);

  // Entries changed since the last take_delta, in the order of their first change.
  const std::vector<Entry*>& changed() const { return changed_; }
  // Whether the delta must carry the entry: not when its key was known to be absent and is so again.
  static bool MustEmit(const Entry& entry) { return entry.present() || (entry.flags & Entry::kWasAbsent) == 0; }
  // The first `count` of them are in a delta.
  void ForgetChanged(size_t count) {
    changed_.erase(changed_.begin(), changed_.begin() + static_cast<ptrdiff_t>(count));
  }
  // The others go on being changed under the mark at hand, which has moved on.
  void KeepChanged();

  // Forgets what is neither pending nor changed in the batch at hand (complete: only keys known to be absent).
  void EvictClean();
  // Forgets keys that are absent and need not be known to be, and heads without items, once they are most of the table:
  // what a slot holds goes by what is alive, not by how many keys came and went. Costs nothing in the mean.
  void ForgetAbsent();
  // Looks for expired entries in a part of the table that goes by how many were changed, from where it left off: nobody
  // else may ever touch them.
  void ExpireSome();
  void Clear();

  size_t LongestProbe() const { return std::max(entries_.LongestProbe(), heads_.LongestProbe()); }
  size_t entry_count() const { return entries_.size(); }
  // Entries that had a value and were found to be expired, since the table was made.
  int64_t expired_count() const { return expired_count_; }
  // One that is skipped where it stands in the base.
  void CountExpired() { ++expired_count_; }
  bool has_elements() const { return has_elements_; }
  bool empty() const { return entries_.size() == 0 && heads_.size() == 0; }
  size_t memory_bytes() const {
    return arena_.memory_bytes() + entries_.memory_bytes() + heads_.memory_bytes() +
           changed_.capacity() * sizeof(Entry*) + (order_.has_value() ? order_->memory_bytes() : 0);
  }

 private:
  static constexpr size_t kInlineValueMax = 64;
  static constexpr size_t kFewRecords = 1024;
  static constexpr size_t kFewFreeBytes = size_t{1} << 20;
  // Blocks of this size or more do not wait behind an absent key for its next value.
  static constexpr size_t kKeptBlockMax = 256;
  // Places of the index that ExpireSome looks at: at least, and for each entry that was changed.
  static constexpr size_t kExpirePlacesMin = 1024;
  static constexpr size_t kExpirePlacesPerChange = 8;

  // What an entry costs, to say how much is pending.
  static size_t AccountedBytes(const Entry& entry) { return sizeof(Entry) + entry.key_length + entry.stored_length(); }
  bool IsExpired(const Entry& entry) const {
    return expiry_.expiry.IsExpired(entry.stamped(), entry.stamped() ? entry.stamp() : 0);
  }

  Entry* NewEntry(Slice primary, Slice suffix, uint16_t key_group);
  Entry* NewElement(Head* head, Slice suffix);
  void Link(Head* head, Entry* entry);
  void TouchFirst(Entry* entry);
  void Stamp(Entry* entry);
  void Expire(Entry* entry);
  Status SetStoredEarlier(Entry* entry, Slice stored, uint32_t mark);
  // `value`: a plain header and a row, in two pieces. `stamp` is looked at with kStamped in the entry's flags.
  void Write(Entry* entry, char header, Slice row, int64_t stamp_ms);
  static void SetStamped(Entry* entry, bool stamped) {
    entry->flags = static_cast<uint16_t>((entry->flags & ~Entry::kStamped) | (stamped ? Entry::kStamped : 0));
  }
  void GrowValue(Entry* entry, size_t bytes);
  void Prune(Head* head);
  void DropValue(Entry* entry);
  // Moves the table to new memory, without the entries of which `forgotten(entry)`: `kept_count` stay.
  template <typename Forgotten>
  void Rebuild(Forgotten forgotten, size_t kept_count);
  template <typename Forgotten>
  void MoveKept(Table* target, Forgotten forgotten);
  void MoveHeads(Table* target);
  Entry* CopyInto(Table* target, Entry* entry);
  bool MoveLargeValue(Table* target, Entry* entry, Entry* copy);
  bool IsGarbage(const Entry& entry) const;
  bool IsExpiringDue();

  const uint16_t state_id_;
  Versions* const versions_;
  const bool complete_;
  uint32_t value_bytes_hint_ = 0;
  Arena arena_;
  HashIndex<Entry> entries_;
  HashIndex<Head> heads_;
  std::optional<KeyOrder> order_;
  bool has_elements_ = false;  // whether it is of a list or map; heads may all be gone while tombstones stay
  size_t present_ = 0;         // entries with a value
  std::vector<Entry*> changed_;
  std::unique_ptr<EarlierRows> earlier_;  // none: the state has one schema
  uint8_t version_ = value_header::kFirstVersion;
  BatchExpiry expiry_;
  size_t expire_from_ = 0;             // where ExpireSome left off
  bool expiring_ = false;              // in the middle of a round
  int64_t expired_to_ms_ = kNoCutoff;  // the cutoff when the last round began
  int64_t expired_count_ = 0;
};

}  // namespace holdfast
