// Rows from arrays. Two passes over blocks of rows, column by column: sizes, then bytes. Columns without nulls take
// vectorised paths; nested values with nulls are written row by row.
#include <algorithm>

#include "codec/array_view.h"
#include "codec/row_format.h"
#include "holdfast/row_codec.h"

namespace holdfast {

namespace {

using row_format::BitmapBytes;
using row_format::IsBytes;
using row_format::PutVarint;
using row_format::VarintSize;

constexpr int64_t kBlockRows = 1024;

size_t RowSize(const ArrayView& view, int64_t row);
char* WriteRow(const ArrayView& view, int64_t row, char* out);

size_t ListSize(const ArrayView& view, int64_t row) {
  const ArrayView::Range range = view.List(row);
  const auto count = static_cast<size_t>(range.end - range.begin);
  const ArrayView& elements = view.child(0);
  size_t size = VarintSize(count) + BitmapBytes(count);
  if (elements.type().byte_width > 0 && !elements.has_nulls()) {
    return size + count * static_cast<size_t>(elements.type().byte_width);
  }
  for (int64_t i = range.begin; i < range.end; ++i) size += elements.IsNull(i) ? 0 : RowSize(elements, i);
  return size;
}

size_t MapSize(const ArrayView& view, int64_t row) {
  const ArrayView::Range range = view.List(row);
  size_t size = VarintSize(static_cast<size_t>(range.end - range.begin));
  for (int64_t i = range.begin; i < range.end; ++i) {
    size += RowSize(view.child(0), i) + 1 + (view.child(1).IsNull(i) ? 0 : RowSize(view.child(1), i));
  }
  return size;
}

// Of a value that is not null.
size_t RowSize(const ArrayView& view, int64_t row) {
  const Type& type = view.type();
  if (IsBytes(type)) {
    const size_t size = view.Bytes(row).size();
    return VarintSize(size) + size;
  }
  if (type.id == TypeId::kList) return ListSize(view, row);
  if (type.id == TypeId::kMap) return MapSize(view, row);
  if (type.id != TypeId::kStruct) return static_cast<size_t>(type.byte_width);
  size_t size = BitmapBytes(view.children());
  for (size_t i = 0; i < view.children(); ++i) size += view.child(i).IsNull(row) ? 0 : RowSize(view.child(i), row);
  return size;
}

void SetBit(char* bitmap, size_t i) { bitmap[i >> 3] = static_cast<char>(bitmap[i >> 3] | (1 << (i & 7))); }

char* WriteList(const ArrayView& view, int64_t row, char* out) {
  const ArrayView::Range range = view.List(row);
  const auto count = static_cast<size_t>(range.end - range.begin);
  const ArrayView& elements = view.child(0);
  out = PutVarint(count, out);
  char* bitmap = out;
  std::memset(bitmap, 0, BitmapBytes(count));
  out += BitmapBytes(count);
  const Type& type = elements.type();
  if (type.byte_width > 0 && type.id != TypeId::kBool && !elements.has_nulls()) {
    const size_t size = count * static_cast<size_t>(type.byte_width);
    if (size > 0) std::memcpy(out, elements.fixed() + range.begin * type.byte_width, size);
    return out + size;
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t element = range.begin + static_cast<int64_t>(i);
    if (elements.IsNull(element)) {
      SetBit(bitmap, i);
    } else {
      out = WriteRow(elements, element, out);
    }
  }
  return out;
}

char* WriteMap(const ArrayView& view, int64_t row, char* out) {
  const ArrayView::Range range = view.List(row);
  out = PutVarint(static_cast<size_t>(range.end - range.begin), out);
  for (int64_t i = range.begin; i < range.end; ++i) {
    out = WriteRow(view.child(0), i, out);
    const bool null = view.child(1).IsNull(i);
    *out++ = null ? row_format::kNullMarker : row_format::kValueMarker;
    if (!null) out = WriteRow(view.child(1), i, out);
  }
  return out;
}

char* WriteStruct(const ArrayView& view, int64_t row, char* out) {
  char* bitmap = out;
  std::memset(bitmap, 0, BitmapBytes(view.children()));
  out += BitmapBytes(view.children());
  for (size_t i = 0; i < view.children(); ++i) {
    if (view.child(i).IsNull(row)) {
      SetBit(bitmap, i);
    } else {
      out = WriteRow(view.child(i), row, out);
    }
  }
  return out;
}

char* WriteBytes(Slice bytes, char* out) {
  out = PutVarint(bytes.size(), out);
  std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

char* WriteRow(const ArrayView& view, int64_t row, char* out) {
  const Type& type = view.type();
  if (IsBytes(type)) return WriteBytes(view.Bytes(row), out);
  switch (type.id) {
    case TypeId::kNull:
      return out;
    case TypeId::kBool:
      *out = view.Bool(row) ? 1 : 0;
      return out + 1;
    case TypeId::kList:
      return WriteList(view, row, out);
    case TypeId::kMap:
      return WriteMap(view, row, out);
    case TypeId::kStruct:
      return WriteStruct(view, row, out);
    default:
      if (type.byte_width > 0) {
        std::memcpy(out, view.fixed() + row * type.byte_width, static_cast<size_t>(type.byte_width));
      }
      return out + type.byte_width;
  }
}

// Adds the sizes of rows [begin, begin + count); nulls add nothing.
void AddSizes(const ArrayView& view, int64_t begin, int64_t count, int64_t* sizes) {
  const Type& type = view.type();
  if (type.id == TypeId::kStruct && !view.has_nulls()) {
    const auto bitmap = static_cast<int64_t>(BitmapBytes(view.children()));
    for (int64_t i = 0; i < count; ++i) sizes[i] += bitmap;
    for (size_t c = 0; c < view.children(); ++c) AddSizes(view.child(c), begin, count, sizes);
  } else if (type.byte_width > 0 && !view.has_nulls()) {
    for (int64_t i = 0; i < count; ++i) sizes[i] += type.byte_width;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      if (!view.IsNull(begin + i)) sizes[i] += static_cast<int64_t>(RowSize(view, begin + i));
    }
  }
}

template <size_t kWidth>
void WriteFixed(const char* value, int64_t count, char** cursors) {
  for (int64_t i = 0; i < count; ++i, value += kWidth) {
    std::memcpy(cursors[i], value, kWidth);
    cursors[i] += kWidth;
  }
}

// Whether the column's rows are values of 1, 2, 4, 8 or 16 bytes that can be copied as they are; then copies them.
bool WriteFixedColumn(const ArrayView& view, int64_t begin, int64_t count, char** cursors) {
  const Type& type = view.type();
  if (view.has_nulls() || type.id == TypeId::kBool || !type.children.empty()) return false;
  const char* value = view.fixed() == nullptr ? nullptr : view.fixed() + begin * type.byte_width;
  switch (type.byte_width) {
    case 1:
      WriteFixed<1>(value, count, cursors);
      return true;
    case 2:
      WriteFixed<2>(value, count, cursors);
      return true;
    case 4:
      WriteFixed<4>(value, count, cursors);
      return true;
    case 8:
      WriteFixed<8>(value, count, cursors);
      return true;
    case 16:
      WriteFixed<16>(value, count, cursors);
      return true;
    default:
      return false;
  }
}

// Writes rows [begin, begin + count) at the cursors and moves them on; nulls write nothing.
void Write(const ArrayView& view, int64_t begin, int64_t count, char** cursors) {
  if (WriteFixedColumn(view, begin, count, cursors)) return;
  if (view.type().id != TypeId::kStruct || view.has_nulls()) {
    for (int64_t i = 0; i < count; ++i) {
      if (!view.IsNull(begin + i)) cursors[i] = WriteRow(view, begin + i, cursors[i]);
    }
    return;
  }
  char* bitmaps[kBlockRows];
  const size_t bitmap_bytes = BitmapBytes(view.children());
  for (int64_t i = 0; i < count; ++i) {
    bitmaps[i] = cursors[i];
    std::memset(cursors[i], 0, bitmap_bytes);
    cursors[i] += bitmap_bytes;
  }
  for (size_t c = 0; c < view.children(); ++c) {
    const ArrayView& field = view.child(c);
    Write(field, begin, count, cursors);
    for (int64_t i = 0; field.has_nulls() && i < count; ++i) {
      if (field.IsNull(begin + i)) SetBit(bitmaps[i], c);
    }
  }
}

// A field that is declared "not null" may hide nulls only below a null parent.
bool MayBreakRequired(const ArrayView& view) {
  for (size_t i = 0; i < view.children(); ++i) {
    const ArrayView& child = view.child(i);
    if ((!child.type().nullable && child.has_nulls()) || MayBreakRequired(child)) return true;
  }
  return false;
}

Status CheckRequiredRow(const ArrayView& view, int64_t row, int64_t top_row, const std::string& path) {
  if (view.IsNull(row)) return Status::Ok();
  const bool is_struct = view.type().id == TypeId::kStruct;
  for (size_t c = 0; c < view.children(); ++c) {
    const ArrayView& child = view.child(c);
    const std::string child_path = path.empty() ? child.type().name : path + "." + child.type().name;
    const ArrayView::Range range = is_struct ? ArrayView::Range{row, row + 1} : view.List(row);
    for (int64_t i = range.begin; i < range.end; ++i) {
      if (!child.type().nullable && child.IsNull(i)) {
        return Status::InvalidRequest("'" + child_path + "' is declared not null but is null in row " +
                                      std::to_string(top_row) + "; fill it, or declare it nullable");
      }
      HOLDFAST_RETURN_IF_ERROR(CheckRequiredRow(child, i, top_row, child_path));
    }
  }
  return Status::Ok();
}

Status CheckRequired(const ArrayView& view) {
  if (!MayBreakRequired(view)) return Status::Ok();
  for (int64_t row = 0; row < view.length(); ++row) {
    HOLDFAST_RETURN_IF_ERROR(CheckRequiredRow(view, row, row, ""));
  }
  return Status::Ok();
}

// Rows of one width, end to end: offsets are arithmetic, and without a prefix the values are one copy.
void AppendFixed(const ArrayView& view, Slice prefix, ByteColumn* out) {
  const auto rows = static_cast<size_t>(view.length());
  const size_t width = static_cast<size_t>(view.type().byte_width);
  const size_t first = out->offsets.size();
  const auto start = static_cast<size_t>(out->offsets.back());
  out->offsets.resize(first + rows);
  for (size_t i = 0; i < rows; ++i) {
    out->offsets[first + i] = static_cast<int64_t>(start + (i + 1) * (prefix.size() + width));
  }
  out->bytes.resize(start);
  if (prefix.empty()) {
    out->bytes.insert(out->bytes.end(), view.fixed(), view.fixed() + rows * width);
    return;
  }
  out->bytes.resize(start + rows * (prefix.size() + width));
  char* row = out->bytes.data() + start;
  const char* value = view.fixed();
  for (size_t i = 0; i < rows; ++i, value += width, row += prefix.size() + width) {
    std::memcpy(row, prefix.data(), prefix.size());
    std::memcpy(row + prefix.size(), value, width);
  }
}

}  // namespace

Status RowCodec::Encode(const ArrowSchema& schema, const ArrowArray& values, Slice prefix, ByteColumn* out,
                        std::vector<bool>* nulls) const {
  HOLDFAST_ASSIGN_OR_RETURN(const ArrayView view, ArrayView::Make(type_, schema, values));
  HOLDFAST_RETURN_IF_ERROR(CheckRequired(view));
  const int64_t rows = view.length();
  if (nulls != nullptr) {
    nulls->assign(static_cast<size_t>(rows), false);
    for (int64_t i = 0; view.has_nulls() && i < rows; ++i) (*nulls)[static_cast<size_t>(i)] = view.IsNull(i);
  }
  if (rows == 0) return Status::Ok();
  if (fixed_width() > 0 && type_.id != TypeId::kBool && !view.has_nulls()) {
    AppendFixed(view, prefix, out);
    return Status::Ok();
  }
  const size_t first = out->offsets.size();
  const int64_t start = out->offsets.back();
  out->offsets.resize(first + static_cast<size_t>(rows), 0);
  int64_t* offsets = out->offsets.data() + first;
  for (int64_t row = 0; row < rows; row += kBlockRows) {
    AddSizes(view, row, std::min(kBlockRows, rows - row), offsets + row);
  }
  int64_t total = start;
  for (int64_t i = 0; i < rows; ++i) {
    total += offsets[i] + (view.IsNull(i) ? 0 : static_cast<int64_t>(prefix.size()));
    offsets[i] = total;
  }
  out->bytes.resize(static_cast<size_t>(total));
  if (total == start) return Status::Ok();  // nulls, or values without bytes
  char* cursors[kBlockRows];
  for (int64_t row = 0; row < rows; row += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - row);
    for (int64_t i = 0; i < count; ++i) {
      cursors[i] = out->bytes.data() + offsets[row + i - 1];
      if (prefix.empty() || view.IsNull(row + i)) continue;
      std::memcpy(cursors[i], prefix.data(), prefix.size());
      cursors[i] += prefix.size();
    }
    Write(view, row, count, cursors);
  }
  return Status::Ok();
}

}  // namespace holdfast
