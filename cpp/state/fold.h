// Folds: what reducing and aggregating states share. A Fold is the state's function over its type; a FoldCall is one
// call of add or get, which sees the rows block by block. FoldState (fold_state.cc) drives both.
#pragma once

#include <memory>
#include <span>

#include "holdfast/array.h"
#include "state/slot_store.h"

namespace holdfast {

class FoldCall {
 public:
  virtual ~FoldCall() = default;
  // Folds rows [begin, begin + entries.size()) into the entries in order, noting the result after each row.
  virtual Status Add(std::span<Entry* const> entries, int64_t begin) = 0;
  // The results as they are.
  virtual Status Get(std::span<Entry* const> entries) = 0;
  virtual Result<OwnedArray> Finish() = 0;
};

struct FoldRequest {
  const KeyCodec* key_codec;
  Table* table;
  const OwnedArray* values;  // null: a call of get
  int64_t rows;
  bool with_results;
};

class Fold {
 public:
  virtual ~Fold() = default;
  virtual Result<std::unique_ptr<FoldCall>> Start(const FoldRequest& request) const = 0;
};

// The fold that keeps the first value, for types of 1, 2, 4, 8 or 16 bytes but bool; null for others.
std::unique_ptr<Fold> MakeFixedKeep(const Type& type);

std::unique_ptr<ReducingTable> MakeReducingTable(SlotStore* store, Table* table, std::unique_ptr<Fold> fold);
std::unique_ptr<AggregatingTable> MakeAggregatingTable(SlotStore* store, Table* table, std::unique_ptr<Fold> fold);

// InvalidRequest for a row that cannot be folded, naming the row and its key.
Status FoldFailed(const FoldRequest& request, int64_t row, const Entry& entry, const std::string& reason);
// Corrupt: a stored value is not of the width that the state's type has.
Status WrongAccumulator(const Table& table, const Entry& entry, size_t expected_bytes);

}  // namespace holdfast
