// The parts of ArrayView that rearrange rows: ranges of lists, and dictionaries decoded by Take.
#include <string_view>

#include "codec/array_view.h"

namespace holdfast {

namespace {

template <typename Offset>
int64_t Load(const void* buffer, int64_t i) {
  Offset value;
  std::memcpy(&value, static_cast<const char*>(buffer) + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
  return value;
}

// Fills ranges from Arrow's list offsets, relative to the first; returns the window of the child that they span.
template <typename Offset>
ArrayView::Range OffsetRanges(const void* buffer, int64_t offset, std::vector<ArrayView::Range>* ranges) {
  const int64_t first = Load<Offset>(buffer, offset);
  int64_t begin = first;
  for (ArrayView::Range& range : *ranges) {
    const int64_t end = Load<Offset>(buffer, ++offset);
    range = {begin - first, end - first};
    begin = end;
  }
  return {first, begin};
}

template <typename Offset>
void ViewRanges(const void* starts_buffer, const void* sizes_buffer, int64_t offset,
                std::vector<ArrayView::Range>* ranges) {
  for (ArrayView::Range& range : *ranges) {
    const int64_t begin = Load<Offset>(starts_buffer, offset);
    range = {begin, begin + Load<Offset>(sizes_buffer, offset)};
    ++offset;
  }
}

}  // namespace

Status ArrayView::BuildList(const Source& source) {
  const std::string_view format = source.schema.format;
  if (source.array.n_children < 1) {
    return Status::InvalidRequest("malformed Arrow array of " + type_->ToString() + ": the child is missing");
  }
  const ArrowArray& child = *source.array.children[0];
  const void* const* buffers = source.array.buffers;
  ranges_.resize(static_cast<size_t>(length_));
  Range window = {0, 0};
  if (length_ > 0) {
    if (format.starts_with("+w:")) {
      const int64_t size = std::stoll(std::string(format.substr(3)));
      for (int64_t i = 0; i < length_; ++i) ranges_[static_cast<size_t>(i)] = {i * size, (i + 1) * size};
      window = {source.offset * size, (source.offset + length_) * size};
    } else if (format == "+vl") {
      ViewRanges<int32_t>(buffers[1], buffers[2], source.offset, &ranges_);
      window = {0, child.length};
    } else if (format == "+vL") {
      ViewRanges<int64_t>(buffers[1], buffers[2], source.offset, &ranges_);
      window = {0, child.length};
    } else if (format == "+L") {
      window = OffsetRanges<int64_t>(buffers[1], source.offset, &ranges_);
    } else {
      window = OffsetRanges<int32_t>(buffers[1], source.offset, &ranges_);
    }
  }
  const int64_t size = window.end - window.begin;
  const ArrowSchema& schema = *source.schema.children[0];
  if (type_->id == TypeId::kList) {
    return AddChild(type_->children[0], schema, child, child.offset + window.begin, size);
  }
  if (child.n_children != 2) {
    return Status::InvalidRequest("malformed Arrow array of " + type_->ToString() + ": its entries are not pairs");
  }
  for (size_t i = 0; i < 2; ++i) {
    const ArrowArray& part = *child.children[i];
    HOLDFAST_RETURN_IF_ERROR(
        AddChild(type_->children[i], *schema.children[i], part, part.offset + child.offset + window.begin, size));
  }
  return Status::Ok();
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
