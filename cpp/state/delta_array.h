// Deltas at the edge of the core: a record batch (key_group: uint16, state: uint16, key: binary, value: binary, null
// for a tombstone). Format: docs/formats/delta.md.
#pragma once

#include "codec/array_view.h"
#include "holdfast/array.h"
#include "overlay/delta.h"
#include "overlay/restorer.h"

namespace holdfast {

const Type& DeltaType();

OwnedArray DeltaArray(DeltaPiece piece);

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
  StoredEntry entry(int64_t i) const {
    const bool present = has_value(i);
    return {key_group(i), state_id(i), key(i), present ? value(i) : Slice(), present};
  }

 private:
  explicit DeltaView(ArrayView view) : view_(std::move(view)) {}
  ArrayView view_;
};

}  // namespace holdfast
