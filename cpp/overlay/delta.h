// What a batch changed, as bytes. Format of the files they go to: docs/formats/delta.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/bytes.h"
#include "overlay/table.h"

namespace holdfast {

// One piece of a delta: a change a row, a later one of a key wins over an earlier one.
struct DeltaPiece {
  std::vector<uint16_t> key_groups;
  std::vector<uint16_t> states;
  ByteColumn keys;             // store keys without their prefix
  ByteColumn values;           // with their headers; empty for a tombstone
  std::vector<uint8_t> valid;  // a bit a row, the lowest first: whether there is a value
  int64_t tombstones = 0;

  int64_t rows() const { return static_cast<int64_t>(key_groups.size()); }
  bool has_value(int64_t i) const { return ((valid[static_cast<size_t>(i) >> 3] >> (i & 7)) & 1) != 0; }
};

// The changed entries of these tables, table after table, each in the order of their first change since the last delta:
// as many as fit into `bytes_max` of keys and of values, but one at least. Forgets that those were changed.
DeltaPiece TakeChanged(std::span<Table* const> tables, size_t bytes_max);

}  // namespace holdfast
