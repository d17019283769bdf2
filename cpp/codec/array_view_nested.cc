// The parts of ArrayView that rearrange rows: ranges of lists, and dictionaries decoded by Take.
#include <cstdlib>
#include <string_view>

#include "codec/array_view.h"
#include "codec/type_format.h"

namespace holdfast {

namespace {

// A dictionary's index, of the format that the schema says.
int64_t LoadIndex(const void* buffer, int64_t i, size_t width, bool is_signed) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(buffer) + i * static_cast<int64_t>(width), width);
  const auto unused = static_cast<int>(64 - 8 * width);
  return is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
}

}  // namespace

// From offsets, relative to the first; the window of the child that they span.
template <typename T>
Status ArrayView::BuildRanges(const Source& source, Range* window) {
  const void* const offsets = source.array.buffers[1];
  if (offsets == nullptr) return Malformed(*type_, "the offsets buffer is null");
  if (!Ascends<T>(offsets, source.offset(), length_)) return Malformed(*type_, "its offsets are negative or descend");
  *window = {Load<T>(offsets, source.offset()), Load<T>(offsets, source.offset() + length_)};
  for (int64_t i = 0; i < length_; ++i) {
    const int64_t at = source.offset() + i;
    ranges_[static_cast<size_t>(i)] = {Load<T>(offsets, at) - window->begin, Load<T>(offsets, at + 1) - window->begin};
  }
  return Status::Ok();
}

// From starts and sizes, anywhere in the child. What they are of a null row does not matter.
template <typename T>
Status ArrayView::BuildViewRanges(const Source& source) {
  const void* const* const buffers = source.array.buffers;
  if (buffers[1] == nullptr || buffers[2] == nullptr) return Malformed(*type_, "the offsets or sizes buffer is null");
  const int64_t elements = source.array.children[0]->length;  // the child was not looked at yet
  if (elements < 0) return Malformed(*type_, "its child has a negative length");
  for (int64_t i = 0; i < length_; ++i) {
    if (IsNull(i)) continue;
    const int64_t begin = Load<T>(buffers[1], source.offset() + i);
    const int64_t size = Load<T>(buffers[2], source.offset() + i);
    if (begin < 0 || size < 0 || size > elements - begin) {
      return Malformed(*type_, "row " + std::to_string(i) + " has elements that do not exist");
    }
    ranges_[static_cast<size_t>(i)] = {begin, begin + size};
  }
  return Status::Ok();
}

Status ArrayView::BuildList(const Source& source) {
  const std::string_view format = source.schema.format;
  ranges_.resize(static_cast<size_t>(length_));
  Range window = {0, 0};
  if (format.starts_with("+w:")) {
    const int64_t size = std::strtol(format.data() + 3, nullptr, 10);  // the schema was looked at
    for (int64_t i = 0; i < length_; ++i) ranges_[static_cast<size_t>(i)] = {i * size, (i + 1) * size};
    if (__builtin_mul_overflow(source.offset(), size, &window.begin) ||
        __builtin_mul_overflow(source.offset() + length_, size, &window.end)) {
      return Malformed(*type_, "it has too many elements");
    }
  } else if (length_ > 0 && format.starts_with("+v")) {
    window.end = source.array.children[0]->length;
    HOLDFAST_RETURN_IF_ERROR(format == "+vL" ? BuildViewRanges<int64_t>(source) : BuildViewRanges<int32_t>(source));
  } else if (length_ > 0) {
    HOLDFAST_RETURN_IF_ERROR(format == "+L" ? BuildRanges<int64_t>(source, &window)
                                            : BuildRanges<int32_t>(source, &window));
  }
  const int64_t size = window.end - window.begin;
  if (type_->id == TypeId::kList) return AddChild(source, 0, window.begin, size);
  const Source entries = {*source.schema.children[0], *source.array.children[0], window.begin, size};
  HOLDFAST_RETURN_IF_ERROR(CheckArray(*type_, entries, /*buffers=*/1, /*children=*/2));
  for (size_t i = 0; i < 2; ++i) HOLDFAST_RETURN_IF_ERROR(AddChild(entries, i, entries.offset(), size));
  return Status::Ok();
}

Result<ArrayView> ArrayView::BuildDictionary(const Type& type, const Source& source) {
  const ArrowArray* const dictionary = source.array.dictionary;
  if (dictionary == nullptr) return Malformed(type, "the dictionary is missing");
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView values,
                            Build(type, {*source.schema.dictionary, *dictionary, 0, dictionary->length}));
  const void* const indices = source.array.buffers[1];
  if (indices == nullptr && source.length > 0) return Malformed(type, "the indices buffer is null");
  const size_t kind = std::string_view(kIndexFormats).find(source.schema.format[0]);
  const auto* validity = static_cast<const uint8_t*>(source.array.buffers[0]);
  std::vector<int64_t> rows(static_cast<size_t>(source.length), -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t at = source.offset() + static_cast<int64_t>(i);
    if (validity != nullptr && !Bit(validity, at)) continue;
    rows[i] = LoadIndex(indices, at, size_t{1} << kind / 2, /*is_signed=*/kind % 2 == 0);
    if (rows[i] < 0 || rows[i] >= values.length()) {
      return Malformed(type, "row " + std::to_string(i) + " points past its dictionary");
    }
  }
  return std::move(values).Take(rows);
}

ArrayView ArrayView::Take(const std::vector<int64_t>& rows) && {
  ArrayView out;
  out.type_ = type_;
  out.length_ = static_cast<int64_t>(rows.size());
  out.owned_validity_.assign((rows.size() + 7) / 8, 0);
  const auto width = static_cast<size_t>(type_->byte_width);
  const bool is_bool = type_->id == TypeId::kBool;
  const bool is_fixed = width > 0 && !is_bool;
  const bool is_bytes = type_->id == TypeId::kString || type_->id == TypeId::kBinary;
  if (is_fixed) out.owned_values_.assign(rows.size() * width, 0);
  if (is_bool) out.owned_values_.assign((rows.size() + 7) / 8, 0);
  if (is_bytes) out.slices_.resize(rows.size());
  if (!ranges_.empty() || type_->id == TypeId::kList || type_->id == TypeId::kMap) out.ranges_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    if (row < 0 || IsNull(row)) {
      out.has_nulls_ = true;
      continue;
    }
    const auto bit = static_cast<uint8_t>(1U << (i & 7));
    out.owned_validity_[i >> 3] |= bit;
    if (is_fixed) std::memcpy(out.owned_values_.data() + i * width, values_ + row * type_->byte_width, width);
    if (is_bool && Bool(row)) out.owned_values_[i >> 3] = static_cast<char>(out.owned_values_[i >> 3] | bit);
    if (is_bytes) out.slices_[i] = Bytes(row);
    if (!out.ranges_.empty()) out.ranges_[i] = List(row);
  }
  if (type_->id == TypeId::kStruct) {
    for (ArrayView& child : children_) out.children_.push_back(std::move(child).Take(rows));
  } else {
    // Lists share their elements: only the ranges move.
    out.children_ = std::move(children_);
  }
  out.validity_ = out.owned_validity_.data();
  out.values_ = out.owned_values_.data();
  return out;
}

}  // namespace holdfast
