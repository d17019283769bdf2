// Rows: one value of any supported type as bytes, compact and not ordered. Format: docs/formats/row.md.
// A top-level null has no row: Encode reports it, Decode makes a null of an absent slice (data() == nullptr).
#pragma once

#include <span>
#include <vector>

#include "holdfast/array.h"

namespace holdfast {

class RowCodec {
 public:
  static Result<RowCodec> Make(Type type);

  // Appends one row a value (an empty string for a null, with (*nulls)[i] = true). Each row is prefixed by `prefix`.
  Status Encode(const ArrowSchema& schema, const ArrowArray& values, Slice prefix, ByteColumn* out,
                std::vector<bool>* nulls) const;
  // rows[i] without any prefix; data() == nullptr makes a null.
  // Corrupt when bytes do not parse (never reads past a row).
  Result<OwnedArray> Decode(std::span<const Slice> rows) const;

  // Width in bytes of every row, when all rows of this type are equally wide (primitive types); 0 otherwise.
  size_t fixed_width() const { return type_.children.empty() ? static_cast<size_t>(type_.byte_width) : 0; }
  const Type& type() const { return type_; }

 private:
  explicit RowCodec(Type type) : type_(std::move(type)) {}
  Type type_;
};

}  // namespace holdfast
