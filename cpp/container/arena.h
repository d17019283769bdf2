// Memory of one table. Allocations live until the arena does. Blocks can also be given back: small ones are reused,
// large ones go back to the system at once. Thread-safety: none; belongs to its table.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <utility>
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

  // Blocks, which FreeBlock gives back, have sizes of their own: BlockBytes says which one holds so many bytes.
  static constexpr size_t kMinBlockBytes = 16;
  static constexpr size_t kLargeBlockBytes = size_t{1} << 20;
  static size_t BlockBytes(size_t bytes) {
    if (bytes > kLargeBlockBytes) return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    return std::bit_ceil(bytes < kMinBlockBytes ? kMinBlockBytes : bytes);
  }
  char* AllocateBlock(size_t block_bytes) {
    if (block_bytes > kLargeBlockBytes) return AllocateLarge(block_bytes);
    char*& head = free_[static_cast<size_t>(std::countr_zero(block_bytes))];
    if (head == nullptr) return Allocate(block_bytes);
    char* out = head;
    std::memcpy(&head, out, sizeof(head));
    free_bytes_ -= block_bytes;
    return out;
  }
  void FreeBlock(char* block, size_t block_bytes) {
    if (block_bytes > kLargeBlockBytes) {
      large_.erase(block);
      memory_bytes_ -= block_bytes;
      return;
    }
    char*& head = free_[static_cast<size_t>(std::countr_zero(block_bytes))];
    std::memcpy(block, &head, sizeof(head));
    head = block;
    free_bytes_ += block_bytes;
  }

  // Takes over a large block of another arena: it stays where it is. Whether it is one: others are copied.
  bool TakeLarge(char* block, size_t block_bytes, Arena* from) {
    if (block_bytes <= kLargeBlockBytes) return false;
    large_.insert(from->large_.extract(block));
    from->memory_bytes_ -= block_bytes;
    memory_bytes_ += block_bytes;
    return true;
  }

  // What was taken from the system.
  size_t memory_bytes() const { return memory_bytes_; }
  // Of these, in blocks that were given back and wait for another of their size.
  size_t free_bytes() const { return free_bytes_; }

 private:
  static constexpr size_t kPageBytes = 1 << 12;
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

  char* AllocateLarge(size_t bytes) {
    Pages<char> block = AllocatePages<char>(bytes);
    char* const out = block.get();
    large_.emplace(out, std::move(block));
    memory_bytes_ += bytes;
    return out;
  }

  std::vector<Pages<char>> chunks_;
  std::unordered_map<char*, Pages<char>> large_;  // by where they begin
  char* next_ = nullptr;
  size_t left_ = 0;
  size_t chunk_bytes_ = kFirstChunkBytes;
  size_t memory_bytes_ = 0;
  size_t free_bytes_ = 0;
  std::array<char*, 21> free_{};  // heads of linked lists of free blocks, by log2 of their size
};

}  // namespace holdfast
