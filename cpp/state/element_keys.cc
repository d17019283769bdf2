#include "state/element_keys.h"

#include <algorithm>

namespace holdfast {

Result<std::vector<HeadKey>> InternHeads(SlotStore* store, Table* table, const OwnedArray& keys) {
  HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store, keys));
  store->CountRows(reader.length());
  store->CountLookups(reader.length());
  std::vector<HeadKey> heads(static_cast<size_t>(reader.length()));
  for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
    const int64_t rows = std::min(KeyReader::kBlockRows, reader.length() - begin);
    HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, begin + rows));
    for (int64_t i = 0; i < rows; ++i) table->PrefetchHead(reader.hash(i));
    for (int64_t i = 0; i < rows; ++i) {
      heads[static_cast<size_t>(begin + i)] = {table->InternHead(reader[i]), reader.hash(i)};
    }
  }
  return heads;
}

Result<std::vector<HeadKey>> LoadElements(SlotStore* store, Table* table, const OwnedArray& keys, ScanFor scan_for) {
  HOLDFAST_ASSIGN_OR_RETURN(std::vector<HeadKey> heads, InternHeads(store, table, keys));
  std::vector<Head*> missing;
  for (const HeadKey& key : heads) {
    if (!key.head->loaded) missing.push_back(key.head);
  }
  HOLDFAST_RETURN_IF_ERROR(LoadHeads(store->base(), table, &missing, scan_for, store->read_counters()));
  return heads;
}

Status ClearElements(SlotStore* store, Table* table, const OwnedArray& keys) {
  const Operation operation(store, Access::kWrite);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  HOLDFAST_ASSIGN_OR_RETURN(const std::vector<HeadKey> heads, LoadElements(store, table, keys, ScanFor::kTombstones));
  for (const HeadKey& key : heads) {
    for (uint32_t i = 0; i < key.head->count; ++i) table->Remove(key.head->items[i]);
  }
  return Status::Ok();
}

Elements CollectElements(Table* table, const std::vector<HeadKey>& heads) {
  Elements elements;
  elements.offsets.reserve(heads.size() + 1);
  for (const HeadKey& key : heads) {
    table->Sort(key.head);
    for (uint32_t i = 0; i < key.head->count; ++i) {
      if (key.head->items[i]->present()) elements.entries.push_back(key.head->items[i]);
    }
    elements.offsets.push_back(static_cast<int64_t>(elements.entries.size()));
  }
  return elements;
}

}  // namespace holdfast
