#include "state/element_keys.h"

namespace holdfast {

namespace {

constexpr size_t kPrefetchDistance = 16;

}  // namespace

Result<std::vector<HeadKey>> LoadElements(SlotStore* store, Table* table, const OwnedArray& keys, ScanFor scan_for) {
  std::vector<HeadKey> heads;
  std::vector<Head*> missing;
  heads.reserve(static_cast<size_t>(keys.length()));
  HOLDFAST_RETURN_IF_ERROR(ForEachHeadBlock(store, table, keys, [&](int64_t /*begin*/, std::span<const HeadKey> block) {
    heads.insert(heads.end(), block.begin(), block.end());
    for (const HeadKey& key : block) {
      if (!key.head->loaded) missing.push_back(key.head);
    }
    return Status::Ok();
  }));
  HOLDFAST_RETURN_IF_ERROR(LoadHeads(store->base(), table, &missing, scan_for, store->read_counters()));
  return heads;
}

Status ClearElements(SlotStore* store, Table* table, const OwnedArray& keys) {
  return store->Run({"clear", table, Access::kWrite}, [&]() -> Status {
    HOLDFAST_ASSIGN_OR_RETURN(const std::vector<HeadKey> heads, LoadElements(store, table, keys, ScanFor::kTombstones));
    for (const HeadKey& key : heads) table->RemoveItems(key.head);
    return Status::Ok();
  });
}

Elements CollectElements(Table* table, const std::vector<HeadKey>& heads) {
  Elements elements;
  elements.offsets.reserve(heads.size() + 1);
  for (size_t i = 0; i < heads.size(); ++i) {
    const HeadKey& key = heads[i];
    if (i + kPrefetchDistance < heads.size()) Table::PrefetchItems(*heads[i + kPrefetchDistance].head);
    table->Sort(key.head);
    table->SettleItems(key.head, /*refresh=*/true);
    for (uint32_t j = 0; j < key.head->count; ++j) {
      if (key.head->items[j]->present()) elements.entries.push_back(key.head->items[j]);
    }
    elements.offsets.push_back(static_cast<int64_t>(elements.entries.size()));
  }
  return elements;
}

}  // namespace holdfast
