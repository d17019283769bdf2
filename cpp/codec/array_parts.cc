// The release callbacks behind every array of the core.
#include "codec/array_builder.h"

namespace holdfast {

namespace {

struct ArrayStorage {
  ArrayParts parts;
  std::vector<ArrowArray*> child_pointers;
};

void ReleaseArray(ArrowArray* array) {
  auto* storage = static_cast<ArrayStorage*>(array->private_data);
  for (ArrowArray& child : storage->parts.children) {
    if (child.release != nullptr) child.release(&child);
  }
  delete storage;
  array->release = nullptr;
}

}  // namespace

void ExportParts(ArrayParts parts, ArrowArray* out) {
  auto storage = std::make_unique<ArrayStorage>();
  storage->parts = std::move(parts);
  for (ArrowArray& child : storage->parts.children) storage->child_pointers.push_back(&child);
  *out = {};
  out->length = storage->parts.length;
  out->null_count = storage->parts.null_count;
  out->n_buffers = static_cast<int64_t>(storage->parts.buffers.size());
  out->buffers = storage->parts.buffers.data();
  out->n_children = static_cast<int64_t>(storage->parts.children.size());
  out->children = storage->child_pointers.empty() ? nullptr : storage->child_pointers.data();
  out->release = ReleaseArray;
  out->private_data = storage.release();
}

OwnedArray ExportParts(const Type& type, ArrayParts parts) {
  ArrowSchema schema{};
  ArrowArray array{};
  ExportParts(std::move(parts), &array);
  OwnedArray owned(&schema, &array);
  const Status exported = ExportType(type, owned.schema());
  static_cast<void>(exported);  // types that were imported can be exported
  return owned;
}

void AddValidity(Validity validity, ArrayParts* parts) {
  parts->null_count = validity.null_count;
  if (validity.null_count == 0) {
    parts->buffers.push_back(nullptr);
    return;
  }
  AddBuffer(std::move(validity.bits), parts);
}

Validity ValidityOf(const std::vector<bool>& nulls) {
  Validity validity;
  for (const bool null : nulls) validity.null_count += null ? 1 : 0;
  if (validity.null_count == 0) return validity;
  validity.bits.assign((nulls.size() + 7) / 8, 0);
  for (size_t i = 0; i < nulls.size(); ++i) {
    if (!nulls[i]) validity.bits[i >> 3] |= static_cast<uint8_t>(1U << (i & 7));
  }
  return validity;
}

}  // namespace holdfast
