#include "overlay/table.h"

#include <algorithm>
#include <string>

namespace holdfast {

namespace {

constexpr uint32_t RoundUp8(size_t bytes) { return static_cast<uint32_t>((bytes + 7) & ~size_t{7}); }

}  // namespace

Entry* Table::NewEntry(Slice primary, Slice suffix, uint16_t key_group) {
  const size_t key_length = primary.size() + suffix.size();
  const size_t room = std::max(value_bytes_hint_, Entry::kInlineMin);
  const uint32_t bytes = RoundUp8(sizeof(Entry) + key_length + room);
  auto* entry = reinterpret_cast<Entry*>(arena_.Allocate(bytes));
  entry->key_length = static_cast<uint32_t>(key_length);
  entry->value_length = 0;
  entry->value_capacity = bytes - static_cast<uint32_t>(sizeof(Entry) + key_length);
  entry->mark = 0;
  entry->key_group = key_group;
  entry->flags = complete_ ? Entry::kKnown : 0;
  std::memcpy(entry->key_bytes(), primary.data(), primary.size());
  if (!suffix.empty()) std::memcpy(entry->key_bytes() + primary.size(), suffix.data(), suffix.size());
  if (order_.has_value()) order_->Add(entry);
  return entry;
}

Head* Table::InternHead(const HashedKey& key) {
  has_elements_ = true;
  return heads_.FindOrInsert(
      key.hash, [&key](const Head& head) { return SameBytes(head.key(), key.bytes); },
      [&] {
        auto* head = reinterpret_cast<Head*>(arena_.Allocate(sizeof(Head) + key.bytes.size()));
        *head = {nullptr, 0, 0, static_cast<uint32_t>(key.bytes.size()), key.key_group, complete_, true};
        std::memcpy(head->key_bytes(), key.bytes.data(), key.bytes.size());
        return head;
      });
}

namespace {

bool IsElement(const Entry& entry, Slice primary, Slice suffix) {
  if (entry.key_length != primary.size() + suffix.size()) return false;
  const char* bytes = entry.key_bytes();
  return SameBytes(bytes, primary.data(), primary.size()) &&
         SameBytes(bytes + primary.size(), suffix.data(), suffix.size());
}

}  // namespace

Entry* Table::InternElement(const HashedKey& key, Slice suffix) {
  Entry* entry = entries_.FindOrInsert(
      ElementHash(key.hash, suffix), [&](const Entry& other) { return IsElement(other, key.bytes, suffix); },
      [&] { return NewElement(InternHead(key), suffix); });
  if ((entry->flags & Entry::kLinked) == 0) Link(InternHead(key), entry);
  return entry;
}

Entry* Table::InternElementOf(Head* head, uint64_t key_hash, Slice suffix) {
  Entry* entry = entries_.FindOrInsert(
      ElementHash(key_hash, suffix), [&](const Entry& other) { return IsElement(other, head->key(), suffix); },
      [&] { return NewElement(head, suffix); });
  if ((entry->flags & Entry::kLinked) == 0) Link(head, entry);
  return entry;
}

Entry* Table::NewElement(Head* head, Slice suffix) {
  Entry* entry = NewEntry(head->key(), suffix, head->key_group);
  if (head->loaded) entry->flags |= Entry::kKnown;
  Link(head, entry);
  return entry;
}

void Table::Link(Head* head, Entry* entry) {
  if (head->count == head->capacity) {
    const size_t old_bytes = head->capacity * sizeof(Entry*);
    const size_t new_bytes = Arena::BlockBytes(old_bytes * 2);
    auto* items = reinterpret_cast<Entry**>(arena_.AllocateBlock(new_bytes));
    if (head->count > 0) std::memcpy(items, head->items, head->count * sizeof(Entry*));
    if (head->capacity > 0) arena_.FreeBlock(reinterpret_cast<char*>(head->items), old_bytes);
    head->items = items;
    head->capacity = static_cast<uint32_t>(new_bytes / sizeof(Entry*));
  }
  if (head->count > 0 && entry->key() < head->items[head->count - 1]->key()) head->sorted = false;
  head->items[head->count++] = entry;
  entry->flags |= Entry::kLinked;
}

void Table::Prune(Head* head) {
  SettleItems(head, /*refresh=*/false);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < head->count; ++i) {
    Entry* entry = head->items[i];
    if (entry->known() && !entry->present()) {
      entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kLinked);
    } else {
      head->items[kept++] = entry;
    }
  }
  head->count = kept;
}

void Table::Sort(Head* head) {
  Prune(head);
  if (head->sorted) return;
  std::sort(head->items, head->items + head->count, [](const Entry* a, const Entry* b) { return a->key() < b->key(); });
  head->sorted = true;
}

void Table::TouchFirst(Entry* entry) {
  const bool was_absent = entry->known() && !entry->present();
  entry->flags = static_cast<uint16_t>((entry->flags & ~Entry::kWasAbsent) | (was_absent ? Entry::kWasAbsent : 0));
  const size_t bytes = AccountedBytes(*entry);
  versions_->Account(entry->mark, bytes, bytes);
  entry->mark = versions_->mark();
  changed_.push_back(entry);
}

void Table::KeepChanged() {
  for (Entry* entry : changed_) {
    const size_t bytes = AccountedBytes(*entry);
    versions_->Account(entry->mark, bytes, bytes);
    entry->mark = versions_->mark();
  }
}

void Table::Remove(Entry* entry) {
  if (entry->known() && !entry->present()) return;
  Touch(entry);
  const size_t bytes = AccountedBytes(*entry);
  DropValue(entry);
  versions_->Account(entry->mark, bytes, AccountedBytes(*entry));
}

void Table::RemoveItems(Head* head) {
  for (uint32_t i = 0; i < head->count; ++i) {
    Remove(head->items[i]);
    head->items[i]->flags = static_cast<uint16_t>(head->items[i]->flags & ~Entry::kLinked);
  }
  head->count = 0;
  head->sorted = true;
}

// The key is absent from here on.
void Table::DropValue(Entry* entry) {
  if (entry->present()) --present_;
  if (order_.has_value()) order_->Left(*entry);
  entry->value_length = 0;
  entry->flags = static_cast<uint16_t>((entry->flags | Entry::kKnown) & ~(Entry::kPresent | Entry::kStamped));
  if ((entry->flags & Entry::kOutlined) == 0 || entry->value_capacity < kKeptBlockMax) return;
  arena_.FreeBlock(entry->value_bytes(), entry->value_capacity);
  entry->value_capacity = Entry::kInlineMin;
  entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kOutlined);
}

void Table::Put(Entry* entry, Slice value) {
  if (entry->mark != versions_->mark()) TouchFirst(entry);
  const size_t bytes = AccountedBytes(*entry);
  SetStamped(entry, expiry_.stamps);
  Write(entry, value[0], value.substr(value_header::kBytes), expiry_.stamp_ms);
  if (AccountedBytes(*entry) != bytes) versions_->Account(entry->mark, bytes, AccountedBytes(*entry));
}

void Table::Write(Entry* entry, char header, Slice row, int64_t stamp_ms) {
  const size_t length = value_header::kBytes + row.size();
  const size_t bytes = length + (entry->stamped() ? value_header::kStampBytes : 0);
  if (bytes > entry->value_capacity) GrowValue(entry, bytes);
  char* const to = entry->value_bytes();
  to[0] = header;
  if (!row.empty()) std::memcpy(to + value_header::kBytes, row.data(), row.size());
  if (entry->stamped()) value_header::PutStamp(stamp_ms, to + length);
  entry->value_length = static_cast<uint32_t>(length);
  if (!entry->present()) {
    ++present_;
    if (order_.has_value()) order_->Arrived(*entry);
  }
  entry->flags |= Entry::kKnown | Entry::kPresent;
}

// What is there stays, unless it has no room for a stamp: then it moves.
void Table::Stamp(Entry* entry) {
  if (!entry->present()) return;
  if (!entry->stamped()) {
    const size_t bytes = AccountedBytes(*entry);
    const size_t needed = entry->value_length + value_header::kStampBytes;
    if (needed > entry->value_capacity) {
      const std::string value(entry->value());
      GrowValue(entry, needed);
      std::memcpy(entry->value_bytes(), value.data(), value.size());
    }
    SetStamped(entry, true);
    versions_->Account(entry->mark, bytes, AccountedBytes(*entry));
  }
  value_header::PutStamp(expiry_.stamp_ms, entry->value_bytes() + entry->value_length);
}

// No change: whoever meets the value in a base or a delta finds it expired too. Its mark stays, so that an entry which
// the base may hold an older value of is known to be absent until the base has it.
void Table::Expire(Entry* entry) {
  CountExpired();
  const size_t bytes = AccountedBytes(*entry);
  DropValue(entry);
  versions_->Account(entry->mark, bytes - AccountedBytes(*entry), 0);
}

void Table::GrowValue(Entry* entry, size_t bytes) {
  if ((entry->flags & Entry::kOutlined) != 0) {
    arena_.FreeBlock(entry->value_bytes(), entry->value_capacity);
  } else {
    ExpectValueBytes(bytes);
  }
  const size_t block_bytes = Arena::BlockBytes(bytes);
  char* block = arena_.AllocateBlock(block_bytes);
  std::memcpy(entry->key_bytes() + entry->key_length, &block, sizeof(block));
  entry->value_capacity = static_cast<uint32_t>(block_bytes);
  entry->flags |= Entry::kOutlined;
}

void Table::SetRead(Entry* entry, Slice value, bool present, uint32_t mark) {
  versions_->Account(entry->mark, AccountedBytes(*entry), 0);
  entry->mark = mark;
  entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kAsked);
  if (present) {
    const bool stamped = value_header::IsStamped(value);
    SetStamped(entry, stamped);
    Write(entry, value_header::PlainHeader(value), value.substr(value_header::HeaderBytes(value)),
          stamped ? value_header::StampOf(value) : 0);
  } else {
    DropValue(entry);
  }
  if (mark != 0) versions_->Account(0, 0, AccountedBytes(*entry));
}

}  // namespace holdfast
