// Open addressing over records that live elsewhere: a power of two of slots, linear probing, the whole hash beside the
// pointer, so that a probe touches one cache line and growing touches no record. Nothing is ever erased.
// Slots are chosen by the high bits of the hash, which is keyed (codec/index_hash.h):
// runs are short, whoever chose the keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "container/pages.h"

namespace holdfast {

template <typename Record>
class HashIndex {
 public:
  struct Slot {
    uint64_t hash;
    Record* record;  // null: empty
  };

  size_t size() const { return size_; }
  size_t memory_bytes() const { return slot_count_ * sizeof(Slot); }

  void Prefetch(uint64_t hash) const {
    if (slot_count_ > 0) __builtin_prefetch(&slots_[hash >> shift_]);
  }
  // The first record of the probe sequence whose hash is equal, or null: a guess, for prefetching.
  Record* Guess(uint64_t hash) const {
    return Find(hash, [](const Record&) { return true; });
  }

  // How far the farthest record lies from where its hash sends it: what finding it takes, beyond the first probe.
  size_t LongestProbe() const {
    size_t longest = 0;
    for (size_t i = 0; i < slot_count_; ++i) {
      if (slots_[i].record != nullptr) longest = std::max(longest, (i - (slots_[i].hash >> shift_)) & mask_);
    }
    return longest;
  }

  // Room for `count` records. Needed before records are inserted in the order of another index: without it they would
  // all crowd the lower end of a growing one, in runs as long as the index.
  void Reserve(size_t count) {
    size_t slots = kMinSlots;
    while (SizeMax(slots) < count) slots *= 2;
    if (slots > slot_count_) Grow(slots);
  }

  // Inserts a record that is known not to be there.
  void InsertNew(uint64_t hash, Record* record) {
    FindOrInsert(hash, [](const Record&) { return false; }, [record] { return record; });
  }

  // The record with this hash for which `equals(record)`; null when there is none.
  template <typename Equals>
  Record* Find(uint64_t hash, Equals&& equals) const {
    if (slot_count_ == 0) return nullptr;
    for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.record == nullptr) return nullptr;
      if (slot.hash == hash && equals(*slot.record)) return slot.record;
    }
  }

  // The same; when there is none, inserts what `make()` returns.
  template <typename Equals, typename Make>
  Record* FindOrInsert(uint64_t hash, Equals&& equals, Make&& make) {
    if (size_ >= size_max_) Grow(slot_count_ == 0 ? kMinSlots : slot_count_ * 2);
    for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.record == nullptr) {
        slot = {hash, make()};
        ++size_;
        return slot.record;
      }
      if (slot.hash == hash && equals(*slot.record)) return slot.record;
    }
  }

  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (size_t i = 0; i < slot_count_; ++i) {
      PrefetchRecordAfter(i);
      if (slots_[i].record != nullptr) visit(slots_[i].hash, slots_[i].record);
    }
  }
  // The same for `count` slots from `begin` on, or fewer at the end; where to go on, from 0 after the last.
  template <typename Visit>
  size_t ForSome(size_t begin, size_t count, Visit&& visit) const {
    if (begin >= slot_count_) begin = 0;
    const size_t end = count < slot_count_ - begin ? begin + count : slot_count_;
    for (size_t i = begin; i < end; ++i) {
      PrefetchRecordAfter(i);
      if (slots_[i].record != nullptr) visit(slots_[i].record);
    }
    return end == slot_count_ ? 0 : end;
  }

 private:
  static constexpr size_t kMinSlots = 16;
  static constexpr size_t kPrefetchSlots = 12;

  static size_t SizeMax(size_t slots) { return slots / 8 * 5; }

  // Records lie in no order of their hashes: who visits them all would wait for each.
  void PrefetchRecordAfter(size_t i) const {
    if (i + kPrefetchSlots < slot_count_) __builtin_prefetch(slots_[i + kPrefetchSlots].record);
  }

  void Grow(size_t count) {
    const Pages<Slot> old = std::exchange(slots_, AllocatePages<Slot>(count));
    const size_t old_count = std::exchange(slot_count_, count);
    for (size_t i = 0; i < count; ++i) slots_[i] = {0, nullptr};
    mask_ = count - 1;
    shift_ = 64 - std::countr_zero(count);
    size_max_ = SizeMax(count);
    // Slots are in the order of their hashes, but for runs: the new ones are written almost in sequence.
    for (size_t j = 0; j < old_count; ++j) {
      if (old[j].record == nullptr) continue;
      size_t i = old[j].hash >> shift_;
      while (slots_[i].record != nullptr) i = (i + 1) & mask_;
      slots_[i] = old[j];
    }
  }

  Pages<Slot> slots_;
  size_t slot_count_ = 0;
  size_t size_ = 0;
  size_t size_max_ = 0;
  size_t mask_ = 0;
  int shift_ = 63;
};

}  // namespace holdfast
