// KeyEncoder: the keys of one array, ready to be encoded in any ranges of rows, so that a caller can hash a block of
// keys while it is still in the processor's cache. Everything that can fail, fails in Make.
// Thread-safety: immutable after Make. The KeyCodec's type, the schema and the array must outlive it.
#pragma once

#include <memory>

#include "codec/array_view.h"
#include "holdfast/key_codec.h"

namespace holdfast {

class KeyEncoder {
 public:
  // Errors as KeyCodec::Encode.
  static Result<KeyEncoder> Make(const Type& type, bool allow_null, const ArrowSchema& schema, const ArrowArray& keys);

  int64_t length() const { return view_->length(); }
  // Appends the keys of rows [begin, end).
  void Append(int64_t begin, int64_t end, ByteColumn* out) const;

 private:
  Status CheckNulls(const ArrayView& column, const std::string& path) const;
  // Width of a column's every key, 0 when it varies.
  size_t FixedWidth(const ArrayView& column) const;

  // Keys of one width: column by column, each value at its place in keys that lie fixed_width_ apart.
  char* WriteStrided(const ArrayView& column, int64_t begin, int64_t count, char* out) const;
  // Keys of any width: sizes first, then column by column at one cursor a row.
  void AppendVariable(int64_t begin, int64_t end, ByteColumn* out) const;
  void AddSizes(const ArrayView& column, int64_t begin, int64_t count, int64_t* sizes) const;
  void Write(const ArrayView& column, int64_t begin, int64_t count, char** cursors) const;
  size_t RowSize(const ArrayView& column, int64_t row) const;
  char* WriteRow(const ArrayView& column, int64_t row, char* out) const;

  std::unique_ptr<ArrayView> view_;
  std::vector<const ArrayView*> columns_;
  bool allow_null_ = false;
  size_t fixed_width_ = 0;  // of a whole key; 0 when it varies
};

}  // namespace holdfast
