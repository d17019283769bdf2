// Deltas: the entries that a batch changed, as a record batch (key_group: uint16, state: uint16, key: binary,
// value: binary, null for a tombstone). The key is a store key without its prefix; the value has its header.
#pragma once

#include <span>

#include "codec/array_view.h"
#include "holdfast/array.h"
#include "overlay/table.h"

namespace holdfast {

const Type& DeltaType();

// The changed entries of these tables, table after table, each in the order of their first change since the last delta:
// as many as fit into `bytes_max` of keys and of values, but one at least. Forgets that those were changed.
OwnedArray TakeChanged(std::span<Table* const> tables, size_t bytes_max);

// The columns of a delta that somebody else keeps alive.
class DeltaView {
 public:
  static Result<DeltaView> Make(const OwnedArray& delta);

  int64_t length() const { return view_.length(); }
  uint16_t key_group(int64_t i) const { return view_.child(0).Value<uint16_t>(i); }
  uint16_t state_id(int64_t i) const { return view_.child(1).Value<uint16_t>(i); }
  Slice key(int64_t i) const { return view_.child(2).Bytes(i); }
  bool has_value(int64_t i) const { return !view_.child(3).IsNull(i); }
  Slice value(int64_t i) const { return view_.child(3).Bytes(i); }

 private:
  explicit DeltaView(ArrayView view) : view_(std::move(view)) {}
  ArrayView view_;
};

}  // namespace holdfast
