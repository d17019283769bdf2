// ArrayView: a typed, read-only view of an Arrow array that somebody else keeps alive. Whatever the storage variant
// (slices, dictionaries, string views, large offsets, fixed-size lists, list views), a view answers the same questions:
// is row i null, what is its value. Row numbers are of the slice: 0 is the first row that the exporter meant.
//
// The only reader of Arrow in the core. Make looks at all that the C data interface says of an array (counts, lengths,
// offsets, indices, null buffers), so that no row leads out of it later. How large buffers are it does not say: arrays
// from storage have been compared with the sizes of theirs in Python, where these are known.
// Thread-safety: immutable after Make. The Type, the ArrowSchema and the ArrowArray must outlive the view.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>
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
    return Load<T>(values_, i);
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
  // Rows [skip, skip + length) of an array as it came.
  struct Source {
    const ArrowSchema& schema;
    const ArrowArray& array;
    int64_t skip;
    int64_t length;

    int64_t offset() const { return array.offset + skip; }  // counted from its buffers' start; of one that was checked
  };

  static bool Bit(const uint8_t* bits, int64_t i) { return ((bits[i >> 3] >> (i & 7)) & 1) != 0; }

  // Arrow asks for aligned buffers but does not promise them: offsets are copied out.
  template <typename T>
  static T Load(const void* buffer, int64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(buffer) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  int64_t Offset(int64_t i) const {
    return wide_offsets_ ? Load<int64_t>(offsets_, i) : int64_t{Load<int32_t>(offsets_, i)};
  }
  // Whether offsets [first, first + count] begin at 0 or later and never descend: no value and no step has a sign.
  template <typename T>
  static bool Ascends(const void* offsets, int64_t first, int64_t count) {
    using Unsigned = std::make_unsigned_t<T>;
    Unsigned bits = Load<Unsigned>(offsets, first);
    for (int64_t i = first; i < first + count; ++i) {
      const auto next = Load<Unsigned>(offsets, i + 1);
      bits |= next | (next - Load<Unsigned>(offsets, i));
    }
    return static_cast<T>(bits) >= 0;
  }

  static Result<ArrayView> Build(const Type& type, const Source& source);
  // Counts and pointers, before anything is read through them.
  // `buffers`, `children`: that there must be, at least and exactly.
  static Status CheckArray(const Type& type, const Source& source, int64_t buffers, int64_t children);
  static Status Malformed(const Type& type, const std::string& what);
  Status BuildValues(const Source& source);
  Status BuildBytes(const Source& source);
  Status BuildViews(const Source& source);
  Status BuildList(const Source& source);
  template <typename T>
  Status BuildRanges(const Source& source, Range* window);
  template <typename T>
  Status BuildViewRanges(const Source& source);
  void BuildValidity(const Source& source);
  static Result<ArrayView> BuildDictionary(const Type& type, const Source& source);
  // Rows `rows` of this view, -1 making a null.
  ArrayView Take(const std::vector<int64_t>& rows) &&;
  // Child i of the source, as the next child of the view.
  Status AddChild(const Source& parent, size_t i, int64_t skip, int64_t length);

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
