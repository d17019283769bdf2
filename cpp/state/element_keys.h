// The heads of one call's keys, for lists and maps.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "state/key_reader.h"

namespace holdfast {

// One row's key in a list or map: its bytes are those of the head.
struct HeadKey {
  Head* head;
  uint64_t hash;
  HashedKey hashed() const { return {head->key(), hash, head->key_group}; }
};

// Calls visit(first row, heads) for each block of rows in order; heads are made when new. visit returns a Status.
template <typename Visit>
Status ForEachHeadBlock(SlotStore* store, Table* table, const OwnedArray& keys, Visit&& visit) {
  HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store, *table, keys));
  store->engine()->CountLookups(reader.length());
  std::array<HeadKey, KeyReader::kBlockRows> heads;
  for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
    const int64_t rows = std::min(KeyReader::kBlockRows, reader.length() - begin);
    HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, begin + rows));
    HOLDFAST_RETURN_IF_ERROR(reader.FindGroups());
    for (int64_t i = 0; i < rows; ++i) table->PrefetchHeadIndex(reader.hash(i));
    for (int64_t i = 0; i < rows; ++i) table->PrefetchHead(reader.hash(i));
    for (int64_t i = 0; i < rows; ++i) {
      heads[static_cast<size_t>(i)] = {table->InternHead(reader[i]), reader.hash(i)};
    }
    HOLDFAST_RETURN_IF_ERROR(visit(begin, std::span<const HeadKey>(heads.data(), static_cast<size_t>(rows))));
  }
  return Status::Ok();
}

// The head of each row's key, with every element known.
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
