// The heads of one call's keys, for lists and maps.
#pragma once

#include <vector>

#include "state/key_reader.h"

namespace holdfast {

// One row's key in a list or map: its bytes are those of the head.
struct HeadKey {
  Head* head;
  uint64_t hash;
  HashedKey hashed() const { return {head->key(), hash, head->key_group}; }
};

// The head of each row's key, made when new.
Result<std::vector<HeadKey>> InternHeads(SlotStore* store, Table* table, const OwnedArray& keys);
// The same, with every element known.
Result<std::vector<HeadKey>> LoadElements(SlotStore* store, Table* table, const OwnedArray& keys, ScanFor scan_for);
// Removes every element of each row's key.
Status ClearElements(SlotStore* store, Table* table, const OwnedArray& keys);

// The present elements of each row's key in key order, end to end: those of row i are [offsets[i], offsets[i + 1]).
struct Elements {
  std::vector<const Entry*> entries;
  std::vector<int64_t> offsets = {0};
};
Elements CollectElements(Table* table, const std::vector<HeadKey>& heads);

}  // namespace holdfast
