// ArrayView: a typed, read-only view of an Arrow array that somebody else keeps alive. Whatever the storage variant
// (slices, dictionaries, string views, large offsets, fixed-size lists, list views), a view answers the same questions:
// is row i null, what is its value. Row numbers are of the slice: 0 is the first row that the exporter meant.
// Thread-safety: immutable after Make. The Type, the ArrowSchema and the ArrowArray must outlive the view.
#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "holdfast/array.h"

namespace holdfast {

static_assert(std::endian::native == std::endian::little, "Arrow arrays and rows are read in place as little-endian");

class ArrayView {
 public:
  ArrayView() = default;
  ArrayView(ArrayView&&) = default;
  ArrayView& operator=(ArrayView&&) = default;
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  // Incompatible when the array is not of `type` (see type_match.h); InvalidRequest when it is malformed.
  static Result<ArrayView> Make(const Type& type, const ArrowSchema& schema, const ArrowArray& array);

  const Type& type() const { return *type_; }
  int64_t length() const { return length_; }

  bool has_nulls() const { return has_nulls_; }
  bool IsNull(int64_t i) const {
    if (!has_nulls_) return false;
    return validity_ == nullptr || !Bit(validity_, validity_offset_ + i);
  }
  int64_t FirstNull() const;  // length() when there is none

  // Fixed-width types but bool: value i is the byte_width bytes at fixed() + i * byte_width.
  const char* fixed() const { return values_; }
  template <typename T>
  T Value(int64_t i) const {
    T value;
    std::memcpy(&value, values_ + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  bool Bool(int64_t i) const { return Bit(reinterpret_cast<const uint8_t*>(values_), bit_offset_ + i); }

  // String and binary. Never a null data() for a row that is not null.
  Slice Bytes(int64_t i) const {
    if (offsets_ == nullptr) return slices_[static_cast<size_t>(i)];
    const int64_t begin = Offset(i);
    return {values_ + begin, static_cast<size_t>(Offset(i + 1) - begin)};
  }
  // When rows [begin, end) lie end to end in memory: all their bytes. An empty slice with null data() otherwise.
  Slice ContiguousBytes(int64_t begin, int64_t end) const;

  // Lists and maps: the elements of row i are rows [begin, end) of child(0) (maps: and of child(1)).
  struct Range {
    int64_t begin;
    int64_t end;
  };
  Range List(int64_t i) const { return ranges_[static_cast<size_t>(i)]; }

  const ArrayView& child(size_t i) const { return children_[i]; }
  size_t children() const { return children_.size(); }

 private:
  // A slice of an array as it came: rows [offset, offset + length) counted from its buffers' start.
  struct Source {
    const ArrowSchema& schema;
    const ArrowArray& array;
    int64_t offset;
    int64_t length;
  };

  static bool Bit(const uint8_t* bits, int64_t i) { return ((bits[i >> 3] >> (i & 7)) & 1) != 0; }

  // Arrow asks for aligned buffers but does not promise them: offsets are copied out.
  int64_t Offset(int64_t i) const {
    if (wide_offsets_) {
      int64_t wide;
      std::memcpy(&wide, offsets_ + i * static_cast<int64_t>(sizeof(wide)), sizeof(wide));
      return wide;
    }
    int32_t narrow;
    std::memcpy(&narrow, offsets_ + i * static_cast<int64_t>(sizeof(narrow)), sizeof(narrow));
    return narrow;
  }

  static Result<ArrayView> Build(const Type& type, const Source& source);
  Status BuildValues(const Source& source);
  Status BuildBytes(const Source& source);
  Status BuildViews(const Source& source);
  Status BuildList(const Source& source);
  void BuildValidity(const Source& source);
  static Result<ArrayView> BuildDictionary(const Type& type, const Source& source);
  // Rows `rows` of this view, -1 making a null.
  ArrayView Take(const std::vector<int64_t>& rows) &&;
  Status AddChild(const Type& type, const ArrowSchema& schema, const ArrowArray& array, int64_t offset, int64_t length);

  const Type* type_ = nullptr;
  int64_t length_ = 0;
  bool has_nulls_ = false;
  const uint8_t* validity_ = nullptr;  // null with has_nulls_: every row is null
  int64_t validity_offset_ = 0;
  const char* values_ = nullptr;
  int64_t bit_offset_ = 0;
  const char* offsets_ = nullptr;  // null: slices_ has the strings
  bool wide_offsets_ = false;
  std::vector<Slice> slices_;
  std::vector<Range> ranges_;
  std::vector<ArrayView> children_;
  std::vector<uint8_t> owned_validity_;
  std::vector<char> owned_values_;
};

}  // namespace holdfast
