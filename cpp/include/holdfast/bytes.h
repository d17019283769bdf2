// Slice and ByteColumn: borrowed bytes, and many byte strings laid end to end (as in an Arrow large_binary array).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace holdfast {

// Borrowed bytes. Ordered as RocksDB's default comparator orders them: as unsigned bytes, then by length.
// (std::string_view compares as char_traits<char>, which is memcmp: the same order.)
using Slice = std::string_view;

// n byte strings in one buffer. offsets has n + 1 entries; string i is bytes[offsets[i], offsets[i + 1]).
struct ByteColumn {
  std::vector<char> bytes;
  std::vector<int64_t> offsets = {0};

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  Slice operator[](int64_t i) const {
    return {bytes.data() + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
  void Clear() {
    bytes.clear();
    offsets.assign(1, 0);
  }
};

inline size_t TotalBytes(std::span<const Slice> slices) {
  size_t total = 0;
  for (const Slice slice : slices) total += slice.size();
  return total;
}

}  // namespace holdfast
