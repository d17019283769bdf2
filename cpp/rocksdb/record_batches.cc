#include "rocksdb/record_batches.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "codec/store_key.h"

namespace holdfast::rocks {

namespace {

// Past this a batch ends early, so that many large values do not fill the memory.
constexpr size_t kBatchBytes = 64 << 20;
constexpr size_t kBlockChanges = 64;
constexpr size_t kColumnBytesMax = std::numeric_limits<int32_t>::max();  // 32-bit offsets
constexpr std::array<const char*, 4> kDeltaColumns = {"key_group", "state", "key", "value"};

bool IsNull(const ArrowArray& array, int64_t row) {
  if (array.null_count == 0 || array.buffers[0] == nullptr) return false;
  const auto* bits = static_cast<const uint8_t*>(array.buffers[0]);
  const int64_t bit = array.offset + row;
  return (bits[bit / 8] >> (bit % 8) & 1) == 0;
}

// The first null of rows [first, first + count), or -1.
int64_t FirstNull(const ArrowArray& array, int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; ++row) {
    if (IsNull(array, row)) return row - first;
  }
  return -1;
}

template <typename Offset>
Slice BinaryAt(const ArrowArray& array, int64_t row) {
  std::array<Offset, 2> offsets;  // copied: a file that was not written by Arrow may have them anywhere
  std::memcpy(offsets.data(), static_cast<const char*>(array.buffers[1]) + (array.offset + row) * sizeof(Offset),
              sizeof(offsets));
  return {static_cast<const char*>(array.buffers[2]) + offsets[0], static_cast<size_t>(offsets[1] - offsets[0])};
}

uint16_t NumberAt(const ArrowArray& array, int64_t row) {
  uint16_t number;
  std::memcpy(&number, static_cast<const char*>(array.buffers[1]) + (array.offset + row) * sizeof(number),
              sizeof(number));
  return number;
}

using BinaryReader = Slice (*)(const ArrowArray&, int64_t row);

// Null when the format is not binary.
BinaryReader ReaderOf(Slice format) {
  if (format == "z") return BinaryAt<int32_t>;
  if (format == "Z") return BinaryAt<int64_t>;
  return nullptr;
}

std::string Found(const ArrowSchema& schema) {
  std::string found = "'";
  found += schema.format;
  found += "' of (";
  for (int64_t i = 0; i < schema.n_children; ++i) {
    if (i > 0) found += ", ";
    found += schema.children[i]->name;
    found += " '";
    found += schema.children[i]->format;
    found += "'";
  }
  return found + ")";
}

Status CheckSchema(const ArrowSchema& schema) {
  bool right = Slice(schema.format) == "+s" && schema.n_children == static_cast<int64_t>(kDeltaColumns.size());
  for (size_t i = 0; right && i < kDeltaColumns.size(); ++i) {
    const Slice format = schema.children[i]->format;
    right = Slice(schema.children[i]->name) == kDeltaColumns[i] && schema.children[i]->dictionary == nullptr &&
            (i < 2 ? format == "S" : ReaderOf(format) != nullptr);
  }
  if (right) return Status::Ok();
  return Status::InvalidRequest(
      "expected a delta batch (key_group: uint16, state: uint16, key: binary, value: binary), found the Arrow format " +
      Found(schema) + "; see docs/formats/delta.md");
}

Status CheckNulls(const ArrowArray& delta) {
  if (FirstNull(delta, 0, delta.length) >= 0) {
    return Status::InvalidRequest("expected a delta batch, found a struct array with null rows");
  }
  for (size_t i = 0; i < 3; ++i) {
    const int64_t row = FirstNull(*delta.children[i], delta.offset, delta.length);
    if (row >= 0) {
      return Status::InvalidRequest(std::string("expected no nulls in the delta's column ") + kDeltaColumns[i] +
                                    ", found one in row " + std::to_string(row) + "; only a value may be null");
    }
  }
  return Status::Ok();
}

// Everything that the arrays of one batch own; the parent's release frees it, as the children point into it.
struct BatchBuffers {
  std::array<std::vector<int32_t>, 2> offsets{std::vector<int32_t>{0}, std::vector<int32_t>{0}};
  std::array<std::vector<char>, 2> bytes;
  std::array<std::array<const void*, 3>, 2> child_buffers{};
  std::array<ArrowArray, 2> children{};
  std::array<ArrowArray*, 2> child_pointers{};
  std::array<const void*, 1> struct_buffers{};

  bool Fits(size_t column, size_t size) const { return bytes[column].size() + size <= kColumnBytesMax; }
  void Append(size_t column, Slice value) {
    bytes[column].insert(bytes[column].end(), value.begin(), value.end());
    offsets[column].push_back(static_cast<int32_t>(bytes[column].size()));
  }
};

struct BatchSchema {
  std::array<ArrowSchema, 2> children{};
  std::array<ArrowSchema*, 2> child_pointers{};
};

// Children live in the parent's private data, but a consumer may move one out of it and release it alone: so each child
// holds a share of what it points into.
template <typename Node, typename Owned>
void ReleaseNode(Node* node) {
  if (node->children != nullptr) {
    for (int64_t i = 0; i < node->n_children; ++i) {
      if (node->children[i]->release != nullptr) node->children[i]->release(node->children[i]);
    }
  }
  auto* owned = static_cast<std::shared_ptr<Owned>*>(node->private_data);
  node->release = nullptr;
  delete owned;
}

ArrowSchema ExportEntrySchema() {
  auto owned = std::make_shared<BatchSchema>();
  constexpr std::array<const char*, 2> kNames = {"key", "value"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    ArrowSchema& child = owned->children[i];
    child.format = "z";
    child.name = kNames[i];
    child.release = ReleaseNode<ArrowSchema, BatchSchema>;
    child.private_data = new std::shared_ptr<BatchSchema>(owned);
    owned->child_pointers[i] = &child;
  }
  ArrowSchema schema{};
  schema.format = "+s";
  schema.name = "";
  schema.n_children = 2;
  schema.children = owned->child_pointers.data();
  schema.release = ReleaseNode<ArrowSchema, BatchSchema>;
  schema.private_data = new std::shared_ptr<BatchSchema>(std::move(owned));
  return schema;
}

ArrowArray ExportEntries(std::shared_ptr<BatchBuffers> owned, int64_t rows) {
  for (size_t i = 0; i < owned->children.size(); ++i) {
    owned->child_buffers[i] = {nullptr, owned->offsets[i].data(), owned->bytes[i].data()};
    ArrowArray& child = owned->children[i];
    child.length = rows;
    child.n_buffers = 3;
    child.buffers = owned->child_buffers[i].data();
    child.release = ReleaseNode<ArrowArray, BatchBuffers>;
    child.private_data = new std::shared_ptr<BatchBuffers>(owned);
    owned->child_pointers[i] = &child;
  }
  ArrowArray array{};
  array.length = rows;
  array.n_buffers = 1;
  array.buffers = owned->struct_buffers.data();
  array.n_children = 2;
  array.children = owned->child_pointers.data();
  array.release = ReleaseNode<ArrowArray, BatchBuffers>;
  array.private_data = new std::shared_ptr<BatchBuffers>(std::move(owned));
  return array;
}

}  // namespace

Status AddDelta(const ArrowSchema& schema, const ArrowArray& delta, BaseWriter& writer) {
  HOLDFAST_RETURN_IF_ERROR(CheckSchema(schema));
  if (delta.length == 0) return Status::Ok();
  HOLDFAST_RETURN_IF_ERROR(CheckNulls(delta));
  const BinaryReader key_at = ReaderOf(schema.children[2]->format);
  const BinaryReader value_at = ReaderOf(schema.children[3]->format);
  std::array<std::string, kBlockChanges> keys;
  std::array<Change, kBlockChanges> changes;
  for (int64_t begin = 0; begin < delta.length; begin += kBlockChanges) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kBlockChanges, delta.length - begin));
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = delta.offset + begin + static_cast<int64_t>(i);
      keys[i].resize(store_key::kPrefixBytes);
      store_key::PutPrefix(NumberAt(*delta.children[0], row), NumberAt(*delta.children[1], row), keys[i].data());
      keys[i] += key_at(*delta.children[2], row);
      const bool deleted = IsNull(*delta.children[3], row);
      changes[i] = {keys[i], deleted ? Slice() : value_at(*delta.children[3], row), deleted};
    }
    HOLDFAST_RETURN_IF_ERROR(writer.Add(std::span(changes).first(count)));
  }
  return Status::Ok();
}

Result<OwnedArray> NextBatch(BaseIterator& entries, int64_t rows) {
  auto owned = std::make_shared<BatchBuffers>();
  int64_t count = 0;
  for (; count < rows && entries.Valid(); ++count, entries.Next()) {
    const Slice key = entries.key();
    const Slice value = entries.value();
    const bool full = owned->bytes[0].size() + owned->bytes[1].size() >= kBatchBytes;
    if (full || !owned->Fits(0, key.size()) || !owned->Fits(1, value.size())) break;
    owned->Append(0, key);
    owned->Append(1, value);
  }
  HOLDFAST_RETURN_IF_ERROR(entries.status());
  if (count == 0 && rows > 0 && entries.Valid()) {
    return Status::InvalidRequest("expected entries of less than 2 GiB, found one of " +
                                  std::to_string(entries.value().size()) + " bytes, which fits no Arrow binary array");
  }
  ArrowSchema schema = ExportEntrySchema();
  ArrowArray array = ExportEntries(std::move(owned), count);
  return OwnedArray(&schema, &array);
}

}  // namespace holdfast::rocks
