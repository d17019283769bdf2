#include "state/restorer.h"

#include <utility>

#include "overlay/base_read.h"
#include "state/slot_store.h"

namespace holdfast {

namespace {

Status NotRestored(const StoredEntry& stored, const std::string& reason) {
  return Status::Corrupt("state " + std::to_string(stored.state_id) + ", key group " +
                         std::to_string(stored.key_group) + ": a stored key cannot be read: " + reason +
                         "; restore from another version");
}

}  // namespace

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
  return Add(copied);
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

Status Restorer::Read(const StoredEntry& stored, Item* item) {
  if (table_ == nullptr || table_->state_id() != stored.state_id) {
    table_ = store_->TableOf(stored.state_id);
    has_values_layout_ = store_->HasValuesLayout(stored.state_id);
  }
  if (stored.present) {
    HOLDFAST_RETURN_IF_ERROR(CheckStoredValue(stored.value, stored.state_id, stored.key_group));
    table_->ExpectValueBytes(stored.value.size());
  }
  size_t primary_length = stored.key.size();
  if (!has_values_layout_) {  // declared otherwise, or not yet: the key itself says where a suffix begins
    const Result<size_t> length = store_->key_codec().EncodedLength(stored.key);
    if (!length.ok()) return NotRestored(stored, length.status().message());
    primary_length = length.value();
  }
  const Slice primary = stored.key.substr(0, primary_length);
  const uint64_t hash = Xxh64Inline(primary.data(), primary.size());
  const SlotKeyGroups& groups = store_->key_groups();
  if (groups.Of(hash) != stored.key_group || !groups.Contains(stored.key_group)) {
    return NotRestored(stored, "the key's group is " + std::to_string(groups.Of(hash)) +
                                   ", and this slot has key groups " + std::to_string(groups.first()) + " to " +
                                   std::to_string(groups.end() - 1));
  }
  *item = {stored, table_, primary_length, {primary, hash, stored.key_group}, hash, nullptr};
  if (item->is_element()) {
    item->entry_hash = Table::ElementHash(hash, stored.key.substr(primary_length));
    table_->PrefetchHeadIndex(hash);
  }
  table_->PrefetchIndex(item->entry_hash);
  return Status::Ok();
}

Status Restorer::Put(const Item& item) {
  Table* const table = item.table;
  if (item.is_element() != table->has_elements() && table->entry_count() > 0) {
    return NotRestored(item.stored, "keys of values and of list or map elements are mixed");
  }
  Entry* const entry = item.is_element() ? table->InternElement(item.key, item.stored.key.substr(item.primary_length))
                                         : table->Confirm(item.guess, item.key);
  table->SetRead(entry, item.stored.value, item.stored.present, mark_);
  return Status::Ok();
}

}  // namespace holdfast
