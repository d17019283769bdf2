#include "codec/array_builder.h"

#include <limits>

namespace holdfast {

void ValidityBuilder::AppendNull() {
  if (bits_.empty()) {
    bits_.assign(static_cast<size_t>(length_ / 8 + 1), 0xFF);
    bits_.back() = static_cast<uint8_t>((1U << (length_ & 7)) - 1);
  }
  Push(false);
  ++length_;
  ++null_count_;
}

ArrayBuilder::ArrayBuilder(const Type& type) : type_(type) {
  for (const Type& child : type.children) children_.emplace_back(child);
  const bool has_offsets =
      type.id == TypeId::kString || type.id == TypeId::kBinary || type.id == TypeId::kList || type.id == TypeId::kMap;
  if (has_offsets) offsets_.push_back(0);
}

void ArrayBuilder::Reserve(int64_t rows) {
  values_.reserve(values_.size() + static_cast<size_t>(rows * type_.byte_width));
  if (!offsets_.empty()) offsets_.reserve(offsets_.size() + static_cast<size_t>(rows));
  if (type_.id == TypeId::kStruct) {
    for (ArrayBuilder& child : children_) child.Reserve(rows);
  }
}

void ArrayBuilder::ReserveBytes(size_t bytes) {
  const bool has_one = type_.id == TypeId::kStruct && children_.size() == 1;
  if (has_one) children_[0].ReserveBytes(bytes);
  if (type_.id == TypeId::kString || type_.id == TypeId::kBinary) values_.reserve(values_.size() + bytes);
}

void ArrayBuilder::AppendNull() {
  if (type_.byte_width > 0) values_.insert(values_.end(), static_cast<size_t>(type_.byte_width), 0);
  if (!offsets_.empty()) offsets_.push_back(offsets_.back());
  if (type_.id == TypeId::kStruct) {
    for (ArrayBuilder& child : children_) child.AppendNull();
  }
  validity_.AppendNull();
}

namespace {

std::vector<uint8_t> PackBits(const char* bytes, size_t count) {
  std::vector<uint8_t> bits((count + 7) / 8, 0);
  for (size_t i = 0; i < count; ++i) {
    bits[i >> 3] = static_cast<uint8_t>(bits[i >> 3] | (bytes[i] != 0 ? 1U << (i & 7) : 0U));
  }
  return bits;
}

Status AddOffsets(const Type& type, const std::vector<int64_t>& offsets, ArrayParts* parts) {
  if (offsets.back() > std::numeric_limits<int32_t>::max()) {
    return Status::InvalidRequest("one array of " + type.ToString() + " holds at most 2147483647 bytes or elements, " +
                                  std::to_string(offsets.back()) + " were asked for; ask for fewer rows at a time");
  }
  std::vector<int32_t, UninitializedAllocator<int32_t>> narrow(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) narrow[i] = static_cast<int32_t>(offsets[i]);
  AddBuffer(std::move(narrow), parts);
  return Status::Ok();
}

}  // namespace

Status ArrayBuilder::FinishArray(ArrowArray* out) {
  ArrayParts parts;
  parts.length = validity_.length();
  if (type_.id == TypeId::kNull) {
    parts.null_count = parts.length;
    ExportParts(std::move(parts), out);
    return Status::Ok();
  }
  const int64_t null_count = validity_.null_count();
  AddValidity({validity_.Finish(), null_count}, &parts);
  if (type_.id == TypeId::kBool) {
    AddBuffer(PackBits(values_.data(), values_.size()), &parts);
  } else if (type_.children.empty() && offsets_.empty() && type_.id != TypeId::kStruct) {
    AddBuffer(std::move(values_), &parts);
  } else if (!offsets_.empty()) {
    HOLDFAST_RETURN_IF_ERROR(AddOffsets(type_, offsets_, &parts));
    if (type_.children.empty()) AddBuffer(std::move(values_), &parts);
  }
  std::vector<ArrowArray> children(children_.size());
  Status status;
  for (size_t i = 0; i < children_.size() && status.ok(); ++i) status = children_[i].FinishArray(&children[i]);
  if (!status.ok()) {
    for (ArrowArray& child : children) {
      if (child.release != nullptr) child.release(&child);
    }
    return status;
  }
  if (type_.id == TypeId::kMap) {
    ArrayParts entries;
    entries.length = children[0].length;
    entries.buffers = {nullptr};
    entries.children = std::move(children);
    children.assign(1, {});
    ExportParts(std::move(entries), &children[0]);
  }
  parts.children = std::move(children);
  ExportParts(std::move(parts), out);
  return Status::Ok();
}

Result<OwnedArray> ArrayBuilder::Finish() {
  ArrowArray array{};
  HOLDFAST_RETURN_IF_ERROR(FinishArray(&array));
  ArrowSchema schema{};
  OwnedArray owned(&schema, &array);
  HOLDFAST_RETURN_IF_ERROR(ExportType(type_, owned.schema()));
  return owned;
}

OwnedArray MakeFixedWidth(const Type& type, Buffer values, int64_t length, Validity validity) {
  ArrayParts parts;
  parts.length = length;
  AddValidity(std::move(validity), &parts);
  AddBuffer(std::move(values), &parts);
  return ExportParts(type, std::move(parts));
}

OwnedArray MakeBool(const std::vector<uint8_t>& values, Validity validity) {
  static const Type kType = Type::Field(TypeId::kBool, "", 1, true);
  ArrayParts parts;
  parts.length = static_cast<int64_t>(values.size());
  AddValidity(std::move(validity), &parts);
  AddBuffer(PackBits(reinterpret_cast<const char*>(values.data()), values.size()), &parts);
  return ExportParts(kType, std::move(parts));
}

OwnedArray MakeBinary(ByteColumn bytes, Validity validity) {
  static const Type kType = Type::Field(TypeId::kBinary, "", 0, true);
  ArrayParts parts;
  parts.length = bytes.size();
  AddValidity(std::move(validity), &parts);
  const bool large = !AddOffsets(kType, bytes.offsets, &parts).ok();
  if (large) AddBuffer(std::move(bytes.offsets), &parts);
  AddBuffer(std::move(bytes.bytes), &parts);
  OwnedArray array = ExportParts(kType, std::move(parts));
  if (large) array.schema()->format = "Z";
  return array;
}

Result<OwnedArray> MakeList(const Type& list, const std::vector<int64_t>& offsets, OwnedArray elements,
                            Validity validity) {
  ArrayParts parts;
  parts.length = static_cast<int64_t>(offsets.size()) - 1;
  AddValidity(std::move(validity), &parts);
  HOLDFAST_RETURN_IF_ERROR(AddOffsets(list, offsets, &parts));
  parts.children.push_back(*elements.array());
  elements.array()->release = nullptr;
  return ExportParts(list, std::move(parts));
}

Result<OwnedArray> MakeMap(const Type& map, const std::vector<int64_t>& offsets, OwnedArray keys, OwnedArray values,
                           Validity validity) {
  ArrayParts parts;
  parts.length = static_cast<int64_t>(offsets.size()) - 1;
  AddValidity(std::move(validity), &parts);
  HOLDFAST_RETURN_IF_ERROR(AddOffsets(map, offsets, &parts));
  ArrayParts entries;
  entries.length = keys.length();
  entries.buffers = {nullptr};
  for (OwnedArray* part : {&keys, &values}) {
    entries.children.push_back(*part->array());
    part->array()->release = nullptr;
  }
  parts.children.emplace_back();
  ExportParts(std::move(entries), &parts.children[0]);
  return ExportParts(map, std::move(parts));
}

OwnedArray MakeStruct(const Type& type, int64_t length, std::vector<OwnedArray> fields, Validity validity) {
  ArrayParts parts;
  parts.length = length;
  AddValidity(std::move(validity), &parts);
  for (OwnedArray& field : fields) {
    parts.children.push_back(*field.array());
    field.array()->release = nullptr;
  }
  return ExportParts(type, std::move(parts));
}

}  // namespace holdfast
