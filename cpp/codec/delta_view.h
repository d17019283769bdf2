// The columns of a delta: a record batch (key_group: uint16, state: uint16, key: binary, value: binary, null for a
// tombstone). The key is a store key without its prefix; the value has its header. Format: docs/formats/delta.md.
// Thread-safety: immutable after Make. The array must outlive the view.
#pragma once

#include <utility>

#include "codec/array_view.h"

namespace holdfast {

const Type& DeltaType();

class DeltaView {
 public:
  // Incompatible for other columns, InvalidRequest for a malformed array, Corrupt for nulls where there must be none.
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
