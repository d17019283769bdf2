#include "overlay/restorer.h"

#include <utility>

#include "codec/index_hash.h"
#include "codec/xxh64.h"
#include "overlay/base_read.h"
#include "overlay/slot_engine.h"

namespace holdfast {

namespace {

Status NotRestored(const StoredEntry& stored, const std::string& reason) {
  return Status::Corrupt("state " + std::to_string(stored.state_id) + ", key group " +
                         std::to_string(stored.key_group) + ": a stored key cannot be read: " + reason +
                         "; restore from another version");
}

Status NotOfSlot(const StoredEntry& stored, uint16_t key_group, const SlotKeyGroups& groups) {
  return NotRestored(stored, "the key's group is " + std::to_string(key_group) + ", and this slot has key groups " +
                                 std::to_string(groups.first()) + " to " + std::to_string(groups.end() - 1));
}

Status NotOfNoKey(const StoredEntry& stored) {
  return NotRestored(stored, stored.key.empty() ? "an operator state has an entry without an element"
                                                : "operator states, and nothing else, are of key group " +
                                                      std::to_string(layout::kNoKeyGroup));
}

}  // namespace

Restorer::Restorer(SlotEngine* engine, uint32_t mark)
    : engine_(engine), mark_(mark), is_raw_(engine->key_length() == nullptr) {}

Status Restorer::Add(const StoredEntry& stored) {
  HOLDFAST_RETURN_IF_ERROR(Read(stored, &items_[count_]));
  return ++count_ == kBlockEntries ? Finish() : Status::Ok();
}

Status Restorer::AddCopy(const StoredEntry& stored) {
  std::string& copy = copies_[count_];
  copy.assign(stored.key).append(stored.value);
  StoredEntry copied = stored;
  copied.key = Slice(copy).substr(0, stored.key.size());
  copied.value = Slice(copy).substr(stored.key.size());
  copied_bytes_ += copy.size();
  HOLDFAST_RETURN_IF_ERROR(Add(copied));
  if (copied_bytes_ <= kCopiedBytesMax) return Status::Ok();
  HOLDFAST_RETURN_IF_ERROR(Finish());
  copied_bytes_ = 0;
  for (std::string& done : copies_) {
    if (done.capacity() > kCopiedBytesMax / kBlockEntries) std::string().swap(done);
  }
  return Status::Ok();
}

Status Restorer::Finish() {
  const size_t count = std::exchange(count_, 0);
  for (size_t i = 0; i < count; ++i) {
    items_[i].guess = items_[i].table->PrefetchEntry(items_[i].entry_hash);
    if (items_[i].is_element()) items_[i].table->PrefetchHead(items_[i].key.hash);
  }
  for (size_t i = 0; i < count; ++i) HOLDFAST_RETURN_IF_ERROR(Put(items_[i]));
  return Status::Ok();
}

void Restorer::EnterState(uint16_t state_id) {
  table_ = engine_->TableOf(state_id);
  before_key_bytes_ = layout::BeforeKeyBytes(state_id);
  is_operator_ = layout::IsOperatorId(state_id);
  is_whole_ = engine_->IsWhole(state_id);
}

// On the way of each entry: a Status is made where one fails.
Status Restorer::Read(const StoredEntry& stored, Item* item) {
  if (table_ == nullptr || table_->state_id() != stored.state_id) EnterState(stored.state_id);
  if (stored.present) table_->ExpectValueBytes(stored.value.size());
  HashedKey key;
  if (is_raw_) {
    if (!engine_->key_groups().Contains(stored.key_group)) [[unlikely]]
      return NotRestored(stored, "its key group is not of this slot");
    key = RawKey(stored.key, stored.key_group);
  } else if (is_operator_ || stored.key_group == layout::kNoKeyGroup) {
    if (!is_operator_ || stored.key_group != layout::kNoKeyGroup || stored.key.empty()) [[unlikely]]
      return NotOfNoKey(stored);
    key.bytes = stored.key.substr(0, 0);
    key.hash = IndexHash(key.bytes);
    key.key_group = layout::kNoKeyGroup;
  } else {
    if (stored.key.size() < before_key_bytes_) [[unlikely]]
      return NotRestored(stored, "it is too short for what stands before the key");
    Slice encoded = stored.key.substr(before_key_bytes_);
    if (!is_whole_) {  // declared otherwise, or not yet: the key itself says where a suffix begins
      const Result<size_t> length = engine_->key_length()(encoded);
      if (!length.ok()) return NotRestored(stored, length.status().message());
      encoded = encoded.substr(0, length.value());
    }
    const SlotKeyGroups& groups = engine_->key_groups();
    const uint16_t key_group = groups.Of(Xxh64Inline(encoded.data(), encoded.size()));
    if (key_group != stored.key_group || !groups.Contains(key_group)) [[unlikely]]
      return NotOfSlot(stored, key_group, groups);
    key.bytes = before_key_bytes_ > 0 ? stored.key : encoded;
    key.hash = IndexHash(key.bytes);
    key.key_group = key_group;
  }
  *item = {stored, table_, key, key.hash, nullptr};
  if (item->is_element()) {
    item->entry_hash = Table::ElementHash(key.hash, item->suffix());
    table_->PrefetchHeadIndex(key.hash);
  }
  table_->PrefetchIndex(item->entry_hash);
  return Status::Ok();
}

Status Restorer::Put(const Item& item) {
  Table* const table = item.table;
  if (item.is_element() != table->has_elements() && table->entry_count() > 0) {
    return NotRestored(item.stored, "keys of values and of list or map elements are mixed");
  }
  Entry* const entry = item.is_element()                   ? table->InternElement(item.key, item.suffix())
                       : Table::IsOf(item.guess, item.key) ? item.guess
                                                           : table->Intern(item.key);
  if (item.stored.present) return table->SetStored(entry, item.stored.value, mark_);
  table->SetRead(entry, {}, /*present=*/false, mark_);
  return Status::Ok();
}

}  // namespace holdfast
