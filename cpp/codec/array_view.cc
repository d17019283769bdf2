#include "codec/array_view.h"

#include <string_view>

#include "codec/type_match.h"

namespace holdfast {

namespace {

Status Malformed(const Type& type, const std::string& what) {
  return Status::InvalidRequest("malformed Arrow array of " + type.ToString() + ": " + what);
}

int64_t CountValid(const uint8_t* bits, int64_t offset, int64_t length) {
  int64_t count = 0;
  int64_t i = 0;
  for (; i < length && ((offset + i) & 7) != 0; ++i) count += (bits[(offset + i) >> 3] >> ((offset + i) & 7)) & 1;
  for (; i + 64 <= length; i += 64) {
    uint64_t word;
    std::memcpy(&word, bits + ((offset + i) >> 3), sizeof(word));
    count += std::popcount(word);
  }
  for (; i < length; ++i) count += (bits[(offset + i) >> 3] >> ((offset + i) & 7)) & 1;
  return count;
}

int64_t BufferCount(const Type& type, std::string_view format) {
  if (type.id == TypeId::kNull) return 0;
  if (type.id == TypeId::kStruct || format.starts_with("+w:")) return 1;
  if (format == "+vl" || format == "+vL" || format == "vu" || format == "vz") return 3;
  if (type.id == TypeId::kString || type.id == TypeId::kBinary) return 3;
  return 2;
}

template <typename T>
void ReadIndices(const void* buffer, int64_t offset, std::vector<int64_t>* out) {
  const char* values = static_cast<const char*>(buffer) + offset * static_cast<int64_t>(sizeof(T));
  for (size_t i = 0; i < out->size(); ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    (*out)[i] = static_cast<int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): an int8 index is a number
  }
}

bool ReadIndicesOf(char format, const void* buffer, int64_t offset, std::vector<int64_t>* out) {
  switch (format) {
    case 'c':
      ReadIndices<int8_t>(buffer, offset, out);
      return true;
    case 'C':
      ReadIndices<uint8_t>(buffer, offset, out);
      return true;
    case 's':
      ReadIndices<int16_t>(buffer, offset, out);
      return true;
    case 'S':
      ReadIndices<uint16_t>(buffer, offset, out);
      return true;
    case 'i':
      ReadIndices<int32_t>(buffer, offset, out);
      return true;
    case 'I':
      ReadIndices<uint32_t>(buffer, offset, out);
      return true;
    case 'l':
      ReadIndices<int64_t>(buffer, offset, out);
      return true;
    case 'L':
      ReadIndices<uint64_t>(buffer, offset, out);
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<ArrayView> ArrayView::Make(const Type& type, const ArrowSchema& schema, const ArrowArray& array) {
  HOLDFAST_ASSIGN_OR_RETURN(const Type found, ImportType(schema));
  if (!SameType(type, found)) {
    return Status::Incompatible("expected an array of " + type.ToString() + ", found " + found.ToString() +
                                "; cast or select the columns before the call, or migrate what is stored");
  }
  if (array.release == nullptr) return Malformed(type, "it was released already; export it again");
  return Build(type, {schema, array, array.offset, array.length});
}

Result<ArrayView> ArrayView::Build(const Type& type, const Source& source) {
  if (source.schema.dictionary != nullptr) return BuildDictionary(type, source);
  if (source.array.n_buffers < BufferCount(type, source.schema.format)) return Malformed(type, "buffers are missing");
  if (source.offset + source.length > source.array.offset + source.array.length) {
    return Malformed(type, "a child is shorter than its parent says");
  }
  ArrayView view;
  view.type_ = &type;
  view.length_ = source.length;
  view.BuildValidity(source);
  HOLDFAST_RETURN_IF_ERROR(view.BuildValues(source));
  return view;
}

void ArrayView::BuildValidity(const Source& source) {
  if (type_->id == TypeId::kNull) {
    has_nulls_ = length_ > 0;
    return;
  }
  if (source.array.null_count == 0 || source.array.buffers[0] == nullptr) return;
  validity_ = static_cast<const uint8_t*>(source.array.buffers[0]);
  validity_offset_ = source.offset;
  has_nulls_ = CountValid(validity_, validity_offset_, length_) != length_;
}

Status ArrayView::BuildValues(const Source& source) {
  switch (type_->id) {
    case TypeId::kNull:
      return Status::Ok();
    case TypeId::kString:
    case TypeId::kBinary:
      return source.schema.format[0] == 'v' ? BuildViews(source) : BuildBytes(source);
    case TypeId::kList:
    case TypeId::kMap:
      return BuildList(source);
    case TypeId::kStruct:
      for (size_t i = 0; i < type_->children.size(); ++i) {
        if (static_cast<int64_t>(i) >= source.array.n_children) return Malformed(*type_, "children are missing");
        const ArrowArray& child = *source.array.children[i];
        HOLDFAST_RETURN_IF_ERROR(AddChild(type_->children[i], *source.schema.children[i], child,
                                          child.offset + source.offset, source.length));
      }
      return Status::Ok();
    case TypeId::kBool:
      values_ = static_cast<const char*>(source.array.buffers[1]);
      bit_offset_ = source.offset;
      break;
    default:
      values_ = static_cast<const char*>(source.array.buffers[1]);
      if (values_ != nullptr) values_ += source.offset * type_->byte_width;
      break;
  }
  if (values_ == nullptr && length_ > 0 && type_->byte_width > 0) return Malformed(*type_, "the value buffer is null");
  return Status::Ok();
}

Status ArrayView::BuildBytes(const Source& source) {
  if (length_ == 0) return Status::Ok();
  const void* offsets = source.array.buffers[1];
  if (offsets == nullptr) return Malformed(*type_, "the offsets buffer is null");
  const char format = source.schema.format[0];
  wide_offsets_ = format == 'U' || format == 'Z';
  const size_t width = wide_offsets_ ? sizeof(int64_t) : sizeof(int32_t);
  offsets_ = static_cast<const char*>(offsets) + source.offset * static_cast<int64_t>(width);
  values_ = source.array.buffers[2] == nullptr ? "" : static_cast<const char*>(source.array.buffers[2]);
  return Status::Ok();
}

Status ArrayView::BuildViews(const Source& source) {
  struct View {
    int32_t length;
    char prefix[4];
    int32_t buffer;
    int32_t offset;
  };
  constexpr int32_t kInlineMax = 12;
  const char* views = static_cast<const char*>(source.array.buffers[1]);
  if (views == nullptr && length_ > 0) return Malformed(*type_, "the views buffer is null");
  slices_.resize(static_cast<size_t>(length_));
  for (int64_t i = 0; i < length_; ++i) {
    if (IsNull(i)) continue;
    const char* start = views + (source.offset + i) * static_cast<int64_t>(sizeof(View));
    View view;
    std::memcpy(&view, start, sizeof(view));
    if (view.length <= kInlineMax) {
      slices_[static_cast<size_t>(i)] = {start + 4, static_cast<size_t>(view.length)};
      continue;
    }
    if (view.buffer < 0 || view.buffer >= source.array.n_buffers - 3) {
      return Malformed(*type_, "row " + std::to_string(i) + " points to a buffer that does not exist");
    }
    const char* data = static_cast<const char*>(source.array.buffers[2 + view.buffer]);
    slices_[static_cast<size_t>(i)] = {data + view.offset, static_cast<size_t>(view.length)};
  }
  return Status::Ok();
}

Status ArrayView::AddChild(const Type& type, const ArrowSchema& schema, const ArrowArray& array, int64_t offset,
                           int64_t length) {
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView view, Build(type, {schema, array, offset, length}));
  children_.push_back(std::move(view));
  return Status::Ok();
}

Slice ArrayView::ContiguousBytes(int64_t begin, int64_t end) const {
  if (offsets_ == nullptr) return {};
  return {values_ + Offset(begin), static_cast<size_t>(Offset(end) - Offset(begin))};
}

int64_t ArrayView::FirstNull() const {
  int64_t i = has_nulls_ ? 0 : length_;
  while (i < length_ && !IsNull(i)) ++i;
  return i;
}

Result<ArrayView> ArrayView::BuildDictionary(const Type& type, const Source& source) {
  if (source.array.dictionary == nullptr || source.array.n_buffers < 2) {
    return Malformed(type, "the dictionary is missing");
  }
  const ArrowArray& dictionary = *source.array.dictionary;
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView values,
                            Build(type, {*source.schema.dictionary, dictionary, dictionary.offset, dictionary.length}));
  std::vector<int64_t> rows(static_cast<size_t>(source.length));
  if (!rows.empty() && !ReadIndicesOf(source.schema.format[0], source.array.buffers[1], source.offset, &rows)) {
    return Malformed(type, "dictionary indices of format '" + std::string(source.schema.format) + "'");
  }
  const auto* validity = static_cast<const uint8_t*>(source.array.null_count == 0 ? nullptr : source.array.buffers[0]);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (validity != nullptr && !Bit(validity, source.offset + static_cast<int64_t>(i))) {
      rows[i] = -1;
    } else if (rows[i] < 0 || rows[i] >= values.length()) {
      return Malformed(type, "row " + std::to_string(i) + " points past its dictionary");
    }
  }
  return std::move(values).Take(rows);
}

}  // namespace holdfast
