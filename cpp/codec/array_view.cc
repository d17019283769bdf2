#include "codec/array_view.h"

#include <algorithm>
#include <string_view>

#include "codec/type_match.h"

namespace holdfast {

namespace {

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

// Of the storage variant that the schema says.
int64_t BufferCount(const Type& type, const ArrowSchema& schema) {
  const std::string_view format = schema.format;
  if (schema.dictionary != nullptr) return 2;
  if (type.id == TypeId::kNull) return 0;
  if (type.id == TypeId::kStruct || format.starts_with("+w:")) return 1;
  const bool has_two = (type.id == TypeId::kList && !format.starts_with("+v")) || type.id == TypeId::kMap;
  return has_two || type.byte_width > 0 || type.id == TypeId::kFixedSizeBinary ? 2 : 3;
}

int64_t ChildCount(const Type& type, const ArrowSchema& schema) {
  if (schema.dictionary != nullptr) return 0;
  return type.id == TypeId::kMap ? 1 : static_cast<int64_t>(type.children.size());
}

}  // namespace

Status ArrayView::Malformed(const Type& type, const std::string& what) {
  return Status::InvalidRequest("malformed Arrow array of " + type.ToString() + ": " + what);
}

Result<ArrayView> ArrayView::Make(const Type& type, const ArrowSchema& schema, const ArrowArray& array) {
  HOLDFAST_ASSIGN_OR_RETURN(const Type found, ImportType(schema));
  if (!SameType(type, found)) {
    return Status::Incompatible("expected an array of " + type.ToString() + ", found " + found.ToString() +
                                "; cast or select the columns before the call, or migrate what is stored");
  }
  return Build(type, {schema, array, 0, array.length});
}

Status ArrayView::CheckArray(const Type& type, const Source& source, int64_t buffers, int64_t children) {
  const ArrowArray& array = source.array;
  if (array.release == nullptr) return Malformed(type, "it was released already; export it again");
  // So many that places in buffers can be computed.
  const int64_t rows_max = INT64_MAX / 32 / std::max(1, type.byte_width);
  if (array.length < 0 || array.offset < 0 || array.length > rows_max - array.offset) {
    return Malformed(type,
                     "its length is " + std::to_string(array.length) + ", its offset " + std::to_string(array.offset));
  }
  if (source.length > array.length - source.skip) return Malformed(type, "a child is shorter than its parent says");
  if (array.n_buffers < buffers || (buffers > 0 && array.buffers == nullptr)) {
    return Malformed(type, "buffers are missing");
  }
  if (array.n_children != children || (children > 0 && array.children == nullptr)) {
    return Malformed(type,
                     "it has " + std::to_string(array.n_children) + " children, expected " + std::to_string(children));
  }
  for (int64_t i = 0; i < children; ++i) {
    if (array.children[i] == nullptr) return Malformed(type, "a child is missing");
  }
  const bool has_bitmap = buffers > 0 && array.buffers[0] != nullptr;
  const bool counts = array.null_count >= -1 && array.null_count <= array.length;
  if (!counts || (array.null_count > 0 && buffers > 0 && !has_bitmap)) {
    return Malformed(type, "its null count is " + std::to_string(array.null_count) + " of " +
                               std::to_string(array.length) + " rows" + (has_bitmap ? "" : ", without a bitmap"));
  }
  return Status::Ok();
}

Result<ArrayView> ArrayView::Build(const Type& type, const Source& source) {
  HOLDFAST_RETURN_IF_ERROR(CheckArray(type, source, BufferCount(type, source.schema), ChildCount(type, source.schema)));
  if (source.schema.dictionary != nullptr) return BuildDictionary(type, source);
  ArrayView view;
  view.type_ = &type;
  view.length_ = source.length;
  view.BuildValidity(source);
  HOLDFAST_RETURN_IF_ERROR(view.BuildValues(source));
  return view;
}

// By the bitmap, whatever the null count says of it.
void ArrayView::BuildValidity(const Source& source) {
  if (type_->id == TypeId::kNull) {
    has_nulls_ = length_ > 0;
    return;
  }
  if (source.array.buffers[0] == nullptr) return;
  validity_ = static_cast<const uint8_t*>(source.array.buffers[0]);
  validity_offset_ = source.offset();
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
        HOLDFAST_RETURN_IF_ERROR(AddChild(source, i, source.offset(), source.length));
      }
      return Status::Ok();
    default:
      break;
  }
  const auto* values = static_cast<const char*>(source.array.buffers[1]);
  if (values == nullptr && length_ > 0 && type_->byte_width > 0) return Malformed(*type_, "the value buffer is null");
  const bool is_bool = type_->id == TypeId::kBool;
  bit_offset_ = source.offset();
  values_ = is_bool || values == nullptr ? values : values + source.offset() * type_->byte_width;
  return Status::Ok();
}

Status ArrayView::BuildBytes(const Source& source) {
  if (length_ == 0) return Status::Ok();
  const void* const* const buffers = source.array.buffers;
  if (buffers[1] == nullptr) return Malformed(*type_, "the offsets buffer is null");
  wide_offsets_ = source.schema.format[0] == 'U' || source.schema.format[0] == 'Z';
  const bool ascends = wide_offsets_ ? Ascends<int64_t>(buffers[1], source.offset(), length_)
                                     : Ascends<int32_t>(buffers[1], source.offset(), length_);
  if (!ascends) return Malformed(*type_, "its offsets are negative or descend");
  const size_t width = wide_offsets_ ? sizeof(int64_t) : sizeof(int32_t);
  offsets_ = static_cast<const char*>(buffers[1]) + source.offset() * static_cast<int64_t>(width);
  if (buffers[2] == nullptr && Offset(length_) > 0) return Malformed(*type_, "the data buffer is null");
  values_ = buffers[2] == nullptr ? "" : static_cast<const char*>(buffers[2]);
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
  const void* const* const buffers = source.array.buffers;
  if (buffers[1] == nullptr && length_ > 0) return Malformed(*type_, "the views buffer is null");
  const int64_t count = source.array.n_buffers - 3;
  const void* const sizes = buffers[source.array.n_buffers - 1];  // of the buffers between
  slices_.resize(static_cast<size_t>(length_));
  for (int64_t i = 0; i < length_; ++i) {
    if (IsNull(i)) continue;
    const int64_t at = source.offset() + i;
    const auto view = Load<View>(buffers[1], at);
    const char* bytes = static_cast<const char*>(buffers[1]) + at * static_cast<int64_t>(sizeof(View)) + 4;
    if (view.length > kInlineMax) {
      const bool exists = view.buffer >= 0 && view.buffer < count && sizes != nullptr;
      const char* data = exists ? static_cast<const char*>(buffers[2 + view.buffer]) : nullptr;
      if (data == nullptr || view.offset < 0 || view.length > Load<int64_t>(sizes, view.buffer) - view.offset) {
        return Malformed(*type_, "row " + std::to_string(i) + " points to bytes that do not exist");
      }
      bytes = data + view.offset;
    }
    if (view.length < 0) return Malformed(*type_, "row " + std::to_string(i) + " has a negative length");
    slices_[static_cast<size_t>(i)] = {bytes, static_cast<size_t>(view.length)};
  }
  return Status::Ok();
}

Status ArrayView::AddChild(const Source& parent, size_t i, int64_t skip, int64_t length) {
  HOLDFAST_ASSIGN_OR_RETURN(
      ArrayView view, Build(type_->children[i], {*parent.schema.children[i], *parent.array.children[i], skip, length}));
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

}  // namespace holdfast
