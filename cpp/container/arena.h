// Memory of one table. Allocations live until the arena does; value blocks can also be given back and reused.
// Thread-safety: none; belongs to its table.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "container/pages.h"

namespace holdfast {

class Arena {
 public:
  // 8-aligned, not initialised.
  char* Allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > left_) return AllocateSlow(bytes);
    char* out = next_;
    next_ += bytes;
    left_ -= bytes;
    return out;
  }

  // Blocks of a power of two bytes, at least kMinBlockBytes, which FreeBlock gives back.
  static constexpr size_t kMinBlockBytes = 16;
  static size_t BlockBytes(size_t bytes) { return std::bit_ceil(bytes < kMinBlockBytes ? kMinBlockBytes : bytes); }
  char* AllocateBlock(size_t block_bytes) {
    char*& head = free_[static_cast<size_t>(std::countr_zero(block_bytes))];
    if (head == nullptr) return Allocate(block_bytes);
    char* out = head;
    std::memcpy(&head, out, sizeof(head));
    return out;
  }
  void FreeBlock(char* block, size_t block_bytes) {
    char*& head = free_[static_cast<size_t>(std::countr_zero(block_bytes))];
    std::memcpy(block, &head, sizeof(head));
    head = block;
  }

  // What was taken from the system.
  size_t memory_bytes() const { return memory_bytes_; }

 private:
  static constexpr size_t kFirstChunkBytes = 1 << 12;
  static constexpr size_t kChunkBytesMax = kHugePageBytes;

  char* AllocateSlow(size_t bytes) {
    if (bytes > chunk_bytes_ / 4) return NewChunk(bytes);
    next_ = NewChunk(chunk_bytes_);
    left_ = chunk_bytes_;
    if (chunk_bytes_ < kChunkBytesMax) chunk_bytes_ *= 2;
    return Allocate(bytes);
  }
  char* NewChunk(size_t bytes) {
    chunks_.push_back(AllocatePages<char>(bytes));
    memory_bytes_ += bytes;
    return chunks_.back().get();
  }

  std::vector<Pages<char>> chunks_;
  char* next_ = nullptr;
  size_t left_ = 0;
  size_t chunk_bytes_ = kFirstChunkBytes;
  size_t memory_bytes_ = 0;
  std::array<char*, 64> free_{};  // heads of linked lists of free blocks, by log2 of their size
};

}  // namespace holdfast
