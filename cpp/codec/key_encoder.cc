#include "codec/key_encoder.h"

#include <algorithm>

#include "codec/key_format.h"
#include "codec/type_match.h"

namespace holdfast {

namespace {

using key_format::kEscape;
using key_format::kEscapedZero;
using key_format::kNullMarker;
using key_format::kTerminator;
using key_format::kValueMarker;

constexpr int64_t kBlockRows = 1024;

// Bytes and their terminator, without the extra byte of each zero.
size_t BytesSize(Slice bytes) { return bytes.size() + 2; }
size_t CountZeros(Slice bytes) { return static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\0')); }

char* PutTerminator(char* out) {
  out[0] = kEscape;
  out[1] = kTerminator;
  return out + 2;
}

char* PutPlainBytes(Slice bytes, char* out) {
  std::memcpy(out, bytes.data(), bytes.size());
  return PutTerminator(out + bytes.size());
}

char* PutBytes(Slice bytes, char* out) {
  for (;;) {
    const size_t zero = bytes.find('\0');
    if (zero == Slice::npos) return PutPlainBytes(bytes, out);
    std::memcpy(out, bytes.data(), zero);
    out += zero;
    *out++ = kEscape;
    *out++ = kEscapedZero;
    bytes.remove_prefix(zero + 1);
  }
}

// Whether rows [begin, begin + count) lie end to end and hold no zero byte: then nothing needs an escape.
bool NoZeros(const ArrayView& column, int64_t begin, int64_t count) {
  const Slice all = column.ContiguousBytes(begin, begin + count);
  return all.data() != nullptr && all.find('\0') == Slice::npos;
}

bool IsBytes(const Type& type) { return type.id == TypeId::kString || type.id == TypeId::kBinary; }

}  // namespace

Result<KeyEncoder> KeyEncoder::Make(const Type& type, bool allow_null, const ArrowSchema& schema,
                                    const ArrowArray& keys) {
  HOLDFAST_ASSIGN_OR_RETURN(const Type found, ImportType(schema));
  const bool alone = type.id == TypeId::kStruct && type.children.size() == 1 && SameType(type.children[0], found);
  const Type& expected = alone ? type.children[0] : type;
  if (!SameType(expected, found)) {
    return Status::Incompatible("expected keys of " + type.ToString() + ", found " + found.ToString() +
                                "; give exactly the key columns, in the declared order and types");
  }
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView view, ArrayView::Make(expected, schema, keys));
  KeyEncoder encoder;
  encoder.view_ = std::make_unique<ArrayView>(std::move(view));
  encoder.allow_null_ = allow_null;
  if (type.id != TypeId::kStruct || alone) {
    encoder.columns_.push_back(encoder.view_.get());
  } else {
    const int64_t null = encoder.view_->FirstNull();
    if (null < encoder.length()) {
      return Status::InvalidRequest("the key at row " + std::to_string(null) +
                                    " is a null struct; with null_keys=True its columns may be null, it may not");
    }
    for (size_t i = 0; i < encoder.view_->children(); ++i) encoder.columns_.push_back(&encoder.view_->child(i));
  }
  bool fixed = true;
  for (const ArrayView* column : encoder.columns_) {
    const std::string name = alone ? type.children[0].name : column->type().name;
    HOLDFAST_RETURN_IF_ERROR(encoder.CheckNulls(*column, name));
    const size_t width = encoder.FixedWidth(*column);
    fixed = fixed && width > 0;
    encoder.fixed_width_ += width;
  }
  if (!fixed) encoder.fixed_width_ = 0;
  return encoder;
}

Status KeyEncoder::CheckNulls(const ArrayView& column, const std::string& path) const {
  if (allow_null_) return Status::Ok();
  const int64_t row = column.FirstNull();
  if (row < column.length()) {
    return Status::InvalidRequest((path.empty() ? "the key" : "key column '" + path + "'") + " is null at row " +
                                  std::to_string(row) + "; filter such rows out, or allow them with null_keys=True");
  }
  for (size_t i = 0; i < column.children(); ++i) {
    HOLDFAST_RETURN_IF_ERROR(CheckNulls(column.child(i), path + "." + column.child(i).type().name));
  }
  return Status::Ok();
}

size_t KeyEncoder::FixedWidth(const ArrayView& column) const {
  if (column.has_nulls() || IsBytes(column.type())) return 0;
  size_t width = static_cast<size_t>(column.type().byte_width) + (allow_null_ ? 1 : 0);
  for (size_t i = 0; i < column.children(); ++i) {
    const size_t child = FixedWidth(column.child(i));
    if (child == 0) return 0;
    width += child;
  }
  return width;
}

void KeyEncoder::Append(int64_t begin, int64_t end, ByteColumn* out) const {
  if (fixed_width_ == 0) {
    AppendVariable(begin, end, out);
    return;
  }
  const auto rows = static_cast<size_t>(end - begin);
  const size_t first = out->offsets.size();
  const auto start = static_cast<size_t>(out->offsets.back());
  out->offsets.resize(first + rows);
  int64_t* offsets = out->offsets.data() + first;
  for (size_t i = 0; i < rows; ++i) offsets[i] = static_cast<int64_t>(start + (i + 1) * fixed_width_);
  out->bytes.resize(start + rows * fixed_width_);
  char* key = out->bytes.data() + start;
  for (const ArrayView* column : columns_) key = WriteStrided(*column, begin, end - begin, key);
}

char* KeyEncoder::WriteStrided(const ArrayView& column, int64_t begin, int64_t count, char* out) const {
  const size_t stride = fixed_width_;
  const Type& type = column.type();
  char* key = out;
  if (allow_null_) {
    for (int64_t i = 0; i < count; ++i, key += stride) *key = kValueMarker;
    key = ++out;
  }
  if (type.id == TypeId::kStruct) {
    for (size_t c = 0; c < column.children(); ++c) out = WriteStrided(column.child(c), begin, count, out);
    return out;
  }
  if (type.id == TypeId::kBool) {
    for (int64_t i = 0; i < count; ++i, key += stride) *key = column.Bool(begin + i) ? 1 : 0;
  } else if (type.id == TypeId::kFixedSizeBinary) {
    const auto width = static_cast<size_t>(type.byte_width);
    const char* value = column.fixed() + begin * type.byte_width;
    for (int64_t i = 0; i < count; ++i, key += stride, value += width) std::memcpy(key, value, width);
  } else {
    key_format::VisitFixed(type, [&](auto format) {
      const char* value = column.fixed() + begin * static_cast<int64_t>(format.kWidth);
      for (int64_t i = 0; i < count; ++i, key += stride, value += format.kWidth) format.Put(value, key);
    });
  }
  return out + type.byte_width;
}

void KeyEncoder::AppendVariable(int64_t begin, int64_t end, ByteColumn* out) const {
  const auto rows = static_cast<size_t>(end - begin);
  const size_t first = out->offsets.size();
  const int64_t start = out->offsets.back();
  out->offsets.resize(first + rows, 0);
  int64_t* offsets = out->offsets.data() + first;
  for (const ArrayView* column : columns_) {
    for (int64_t row = begin; row < end; row += kBlockRows) {
      AddSizes(*column, row, std::min(kBlockRows, end - row), offsets + (row - begin));
    }
  }
  int64_t total = start;
  for (size_t i = 0; i < rows; ++i) offsets[i] = total += offsets[i];
  out->bytes.resize(static_cast<size_t>(total));
  char* cursors[kBlockRows];
  for (int64_t row = begin; row < end; row += kBlockRows) {
    const int64_t count = std::min(kBlockRows, end - row);
    const int64_t* starts = offsets - 1 + (row - begin);
    for (int64_t i = 0; i < count; ++i) cursors[i] = out->bytes.data() + starts[i];
    for (const ArrayView* column : columns_) Write(*column, row, count, cursors);
  }
}

void KeyEncoder::AddSizes(const ArrayView& column, int64_t begin, int64_t count, int64_t* sizes) const {
  const int64_t marker = allow_null_ ? 1 : 0;
  const Type& type = column.type();
  if (column.has_nulls()) {
    for (int64_t i = 0; i < count; ++i) sizes[i] += static_cast<int64_t>(RowSize(column, begin + i));
  } else if (type.id == TypeId::kStruct) {
    for (int64_t i = 0; i < count && marker > 0; ++i) sizes[i] += marker;
    for (size_t c = 0; c < column.children(); ++c) AddSizes(column.child(c), begin, count, sizes);
  } else if (IsBytes(type)) {
    const bool plain = NoZeros(column, begin, count);
    for (int64_t i = 0; i < count; ++i) {
      const Slice bytes = column.Bytes(begin + i);
      sizes[i] += static_cast<int64_t>(BytesSize(bytes) + (plain ? 0 : CountZeros(bytes))) + marker;
    }
  } else {
    for (int64_t i = 0; i < count; ++i) sizes[i] += type.byte_width + marker;
  }
}

void KeyEncoder::Write(const ArrayView& column, int64_t begin, int64_t count, char** cursors) const {
  const Type& type = column.type();
  if (column.has_nulls()) {
    for (int64_t i = 0; i < count; ++i) cursors[i] = WriteRow(column, begin + i, cursors[i]);
    return;
  }
  if (allow_null_) {
    for (int64_t i = 0; i < count; ++i) *cursors[i]++ = kValueMarker;
  }
  if (type.id == TypeId::kStruct) {
    for (size_t c = 0; c < column.children(); ++c) Write(column.child(c), begin, count, cursors);
  } else if (IsBytes(type)) {
    if (NoZeros(column, begin, count)) {
      for (int64_t i = 0; i < count; ++i) cursors[i] = PutPlainBytes(column.Bytes(begin + i), cursors[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) cursors[i] = PutBytes(column.Bytes(begin + i), cursors[i]);
    }
  } else if (type.id == TypeId::kBool) {
    for (int64_t i = 0; i < count; ++i) *cursors[i]++ = column.Bool(begin + i) ? 1 : 0;
  } else if (type.id == TypeId::kFixedSizeBinary) {
    const char* value = column.fixed() + begin * type.byte_width;
    for (int64_t i = 0; i < count; ++i, value += type.byte_width) {
      std::memcpy(cursors[i], value, static_cast<size_t>(type.byte_width));
      cursors[i] += type.byte_width;
    }
  } else {
    key_format::VisitFixed(type, [&](auto format) {
      const char* value = column.fixed() + begin * static_cast<int64_t>(format.kWidth);
      for (int64_t i = 0; i < count; ++i, value += format.kWidth) {
        format.Put(value, cursors[i]);
        cursors[i] += format.kWidth;
      }
    });
  }
}

size_t KeyEncoder::RowSize(const ArrayView& column, int64_t row) const {
  const size_t marker = allow_null_ ? 1 : 0;
  if (column.IsNull(row)) return marker;
  if (IsBytes(column.type())) {
    const Slice bytes = column.Bytes(row);
    return marker + BytesSize(bytes) + CountZeros(bytes);
  }
  size_t size = marker + static_cast<size_t>(column.type().byte_width);
  for (size_t i = 0; i < column.children(); ++i) size += RowSize(column.child(i), row);
  return size;
}

char* KeyEncoder::WriteRow(const ArrayView& column, int64_t row, char* out) const {
  const Type& type = column.type();
  if (allow_null_) *out++ = column.IsNull(row) ? kNullMarker : kValueMarker;
  if (column.IsNull(row)) return out;
  if (IsBytes(type)) return PutBytes(column.Bytes(row), out);
  if (type.id == TypeId::kBool) {
    *out = column.Bool(row) ? 1 : 0;
  } else if (type.id == TypeId::kFixedSizeBinary) {
    std::memcpy(out, column.fixed() + row * type.byte_width, static_cast<size_t>(type.byte_width));
  } else {
    key_format::VisitFixed(type, [&](auto format) { format.Put(column.fixed() + row * type.byte_width, out); });
  }
  out += type.byte_width;
  for (size_t i = 0; i < column.children(); ++i) out = WriteRow(column.child(i), row, out);
  return out;
}

}  // namespace holdfast
