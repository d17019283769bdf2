// Eviction: what must stay moves to a new arena, the old one goes away as a whole.
#include <algorithm>
#include <span>
#include <utility>

#include "overlay/table.h"

namespace holdfast {

namespace {

// Set in the flags of an entry that was copied; its first bytes then point to the copy.
constexpr uint16_t kMoved = 64;

Entry* Moved(const Entry* entry) {
  Entry* copy;
  std::memcpy(&copy, reinterpret_cast<const char*>(entry), sizeof(void*));
  return copy;
}

}  // namespace

// A key that is absent must be known to be as long as the base has it. A complete table says so by not having it, once
// the delta does.
bool Table::IsGarbage(const Entry& entry) const {
  if (entry.present()) return false;
  return complete_ ? entry.mark != versions_->mark() : !versions_->IsPending(entry.mark);
}

void Table::EvictClean() {
  // Entries changed since the last take_delta bear the mark at hand, which is always above the base's.
  const auto is_clean = [this](const Entry& entry) {
    return complete_ ? IsGarbage(entry) : !versions_->IsPending(entry.mark);
  };
  size_t clean = 0;
  size_t kept_bytes = 0;
  entries_.ForEach([&](uint64_t, const Entry* entry) {
    if (is_clean(*entry)) {
      ++clean;
    } else {
      kept_bytes += AccountedBytes(*entry);
    }
  });
  // A table of which all stays is not copied for it: in a batch that changes much, others are evicted again and again.
  // But one that is mostly room of values which have become shorter is.
  const bool is_loose = arena_.memory_bytes() > 2 * kept_bytes + kFewFreeBytes;
  if (clean > 0 || heads_.size() > 0 || is_loose) Rebuild(is_clean, entries_.size() - clean);
  changed_.shrink_to_fit();
}

void Table::ForgetAbsent() {
  const size_t records = entries_.size() + heads_.size();
  // A head that is of use has an entry with a value.
  const size_t absent = entries_.size() - present_ + (heads_.size() > present_ ? heads_.size() - present_ : 0);
  const bool fragmented = arena_.free_bytes() > std::max(kFewFreeBytes, arena_.memory_bytes() / 2);
  if ((records <= kFewRecords || absent <= records / 2) && !fragmented) return;
  size_t garbage = 0;
  size_t idle_heads = 0;
  entries_.ForEach([&](uint64_t, const Entry* entry) { garbage += IsGarbage(*entry) ? 1 : 0; });
  heads_.ForEach([&](uint64_t, const Head* head) { idle_heads += head->count == 0 ? 1 : 0; });
  if (garbage + idle_heads <= records / 4 && !fragmented) return;
  Rebuild([this](const Entry& entry) { return IsGarbage(entry); }, entries_.size() - garbage);
}

void Table::ExpireSome() {
  if (!expiry_.expiry.any() || entries_.size() == 0) return;
  if (!complete_ && !expiring_ && !IsExpiringDue()) return;
  expiring_ = true;
  const size_t places = std::max(kExpirePlacesMin, kExpirePlacesPerChange * changed_.size());
  expire_from_ = entries_.ForSome(expire_from_, places, [this](Entry* entry) { Settle(entry, /*refresh=*/false); });
  expiring_ = expire_from_ != 0;
}

// Half a lifetime after the last round began: what nobody touches is there for one and a half at most, and a table of
// which nothing can have expired is not gone through with every batch. A lifetime is what lies between the stamp and
// the cutoff.
bool Table::IsExpiringDue() {
  const int64_t cutoff_ms = expiry_.expiry.cutoff_ms;
  const auto since = [](int64_t later, int64_t earlier) {
    return static_cast<uint64_t>(later) - static_cast<uint64_t>(earlier);
  };
  const uint64_t lifetime_ms = expiry_.stamp_ms > cutoff_ms ? since(expiry_.stamp_ms, cutoff_ms) : 0;
  if (expired_to_ms_ != kNoCutoff && since(cutoff_ms, expired_to_ms_) < lifetime_ms / 2) return false;
  expired_to_ms_ = cutoff_ms;
  return true;
}

template <typename Forgotten>
void Table::Rebuild(Forgotten forgotten, size_t kept_count) {
  Table kept(state_id_, versions_, complete_, order_.has_value() ? order_->groups() : KeyGroupRange());
  expire_from_ = 0;
  kept.value_bytes_hint_ = value_bytes_hint_;
  kept.entries_.Reserve(kept_count);
  MoveKept(&kept, forgotten);
  MoveHeads(&kept);
  arena_ = std::move(kept.arena_);
  entries_ = std::move(kept.entries_);
  heads_ = std::move(kept.heads_);
  present_ = kept.present_;
  if (order_.has_value()) order_->TakeEntries(&*kept.order_);
}

void Table::Clear() {
  arena_ = Arena();
  entries_ = {};
  heads_ = {};
  has_elements_ = false;
  present_ = 0;
  changed_ = {};
  if (!order_.has_value()) return;
  order_->DropEntries();
  if (complete_) order_->Forget();
}

Entry* Table::CopyInto(Table* target, Entry* entry) {
  Entry* copy = target->NewEntry(entry->key(), {}, entry->key_group);
  if (!MoveLargeValue(target, entry, copy)) {
    const size_t bytes = entry->present() ? entry->stored_length() : 0;
    if (bytes > copy->value_capacity) target->GrowValue(copy, bytes);
    std::memcpy(copy->value_bytes(), entry->value_bytes(), bytes);
  }
  copy->value_length = entry->value_length;
  copy->mark = entry->mark;
  if (entry->present()) ++target->present_;
  const uint16_t outlined = copy->flags & Entry::kOutlined;
  copy->flags = static_cast<uint16_t>((entry->flags & ~(Entry::kOutlined | Entry::kLinked)) | outlined);
  std::memcpy(reinterpret_cast<char*>(entry), &copy, sizeof(void*));
  entry->flags |= kMoved;
  return copy;
}

// A value with a block of its own: the block changes hands. A copy would take the memory of the largest ones twice.
bool Table::MoveLargeValue(Table* target, Entry* entry, Entry* copy) {
  if ((entry->flags & Entry::kOutlined) == 0) return false;
  char* const block = entry->value_bytes();
  if (!target->arena_.TakeLarge(block, entry->value_capacity, &arena_)) return false;
  std::memcpy(copy->key_bytes() + copy->key_length, &block, sizeof(block));
  copy->value_capacity = entry->value_capacity;
  copy->flags |= Entry::kOutlined;
  return true;
}

template <typename Forgotten>
void Table::MoveKept(Table* target, Forgotten forgotten) {
  entries_.ForEach([&](uint64_t hash, Entry* entry) {
    if (forgotten(*entry)) {
      versions_->Account(entry->mark, AccountedBytes(*entry), 0);
      return;
    }
    target->entries_.InsertNew(hash, CopyInto(target, entry));
  });
  for (Entry*& entry : changed_) entry = Moved(entry);
}

void Table::MoveHeads(Table* target) {
  size_t kept = 0;
  heads_.ForEach([&](uint64_t, const Head* head) {
    const std::span<Entry* const> items(head->items, head->count);
    kept += std::any_of(items.begin(), items.end(), [](const Entry* item) { return (item->flags & kMoved) != 0; });
  });
  target->heads_.Reserve(kept);
  heads_.ForEach([&](uint64_t hash, Head* head) {
    Head* copy = nullptr;
    bool loaded = head->loaded;
    for (uint32_t i = 0; i < head->count; ++i) {
      const Entry* entry = head->items[i];
      if ((entry->flags & kMoved) == 0) {
        loaded = loaded && !entry->present();
        continue;
      }
      if (copy == nullptr) copy = target->InternHead({head->key(), hash, head->key_group});
      target->Link(copy, Moved(entry));
    }
    if (copy != nullptr) copy->loaded = loaded || complete_;
  });
}

}  // namespace holdfast
