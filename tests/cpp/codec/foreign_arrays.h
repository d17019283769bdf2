// Arrays as another library may hand them over: every storage variant that Arrow has, each buffer a block of its own
// and no larger than it must be, so that the address sanitizer sees a reader that leaves it;
// and open to be made to lie.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/array.h"

namespace holdfast::testing_codec {

struct ForeignArray {
  using Bytes = std::vector<char>;

  std::string format;
  int64_t length = 0;
  std::vector<Bytes> buffers;
  std::vector<bool> is_null_buffer;
  std::vector<ForeignArray> children;
  std::vector<ForeignArray> dictionary;  // none or one
  int64_t offset = 0;
  int64_t null_count = -1;

  ForeignArray(std::string arrow_format, int64_t rows, std::vector<Bytes> data, std::vector<ForeignArray> below = {})
      : format(std::move(arrow_format)),
        length(rows),
        buffers(std::move(data)),
        is_null_buffer(buffers.size()),
        children(std::move(below)) {}
};

template <typename T>
ForeignArray::Bytes BytesOf(const std::vector<T>& values) {
  ForeignArray::Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
inline ForeignArray::Bytes BytesOf(const std::string& text) { return {text.begin(), text.end()}; }

// The C structs of a ForeignArray, for as long as this lives. What is changed in them is a lie of the exporter's.
class Handed {
 public:
  explicit Handed(const ForeignArray& array) : root_(Add(array, "")) {}

  ArrowSchema& schema() { return root_->schema; }
  ArrowArray& array() { return root_->array; }
  // All arrays of the tree, dictionaries too.
  struct Node {
    ArrowSchema schema{};
    ArrowArray array{};
    std::string format;
    std::string name;
    std::vector<std::unique_ptr<char[]>> blocks;
    std::vector<size_t> block_bytes;
    std::vector<const void*> buffers;
    std::vector<ArrowSchema*> child_schemas;
    std::vector<ArrowArray*> child_arrays;
  };
  std::deque<Node>& nodes() { return nodes_; }

 private:
  Node* Add(const ForeignArray& from, const std::string& name) {
    Node* const node = &nodes_.emplace_back();
    node->format = from.format;
    node->name = name;
    for (size_t i = 0; i < from.buffers.size(); ++i) {
      node->blocks.push_back(std::make_unique<char[]>(from.buffers[i].size()));
      node->block_bytes.push_back(from.buffers[i].size());
      if (!from.buffers[i].empty()) std::memcpy(node->blocks[i].get(), from.buffers[i].data(), from.buffers[i].size());
      node->buffers.push_back(from.is_null_buffer[i] ? nullptr : node->blocks[i].get());
    }
    for (size_t i = 0; i < from.children.size(); ++i) {
      Node* const child = Add(from.children[i], std::string(1, static_cast<char>('a' + i)));
      node->child_schemas.push_back(&child->schema);
      node->child_arrays.push_back(&child->array);
    }
    Node* const dictionary = from.dictionary.empty() ? nullptr : Add(from.dictionary[0], "");
    const auto count = static_cast<int64_t>(from.children.size());
    node->schema = {node->format.c_str(),
                    node->name.c_str(),
                    nullptr,
                    ARROW_FLAG_NULLABLE,
                    count,
                    node->child_schemas.data(),
                    dictionary == nullptr ? nullptr : &dictionary->schema,
                    [](ArrowSchema*) {},
                    nullptr};
    node->array = {from.length,
                   from.null_count,
                   from.offset,
                   static_cast<int64_t>(from.buffers.size()),
                   count,
                   node->buffers.data(),
                   node->child_arrays.data(),
                   dictionary == nullptr ? nullptr : &dictionary->array,
                   [](ArrowArray*) {},
                   nullptr};
    return node;
  }

  std::deque<Node> nodes_;
  Node* root_;
};

}  // namespace holdfast::testing_codec
