// The hash of the tables in memory, keyed with a secret of the process: whoever chooses the keys of a stream cannot
// make them meet in a table. It is no part of any format, and nothing that is stored or given out goes by it: key
// groups have XXH64 without a secret, which anybody can compute and turn around (docs/rfcs/0008 says why a seed would
// not help it).
//
// Sixteen bytes at a time are multiplied to 128 bits under the secret and folded, as in wyhash
// (https://github.com/wangyi-fudan/wyhash). Cheaper than XXH64 for keys of a few bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "holdfast/bytes.h"

namespace holdfast {

namespace index_hash_detail {

// Drawn when the core is loaded.
extern const std::array<uint64_t, 4> kSecret;

inline uint64_t Fold(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
template <typename T>
inline uint64_t Word(const char* from) {
  T word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

}  // namespace index_hash_detail

// `above`: the hash of what stands before these bytes, for keys that are hashed in two parts.
inline uint64_t IndexHash(Slice bytes, uint64_t above = 0) {
  using namespace index_hash_detail;
  const char* data = bytes.data();
  const size_t length = bytes.size();
  uint64_t state = kSecret[0] ^ above;
  uint64_t first = 0;
  uint64_t last = 0;
  if (length >= 8) [[likely]] {
    size_t left = length;
    for (; left > 16; data += 16, left -= 16) {
      state = Fold(Word<uint64_t>(data) ^ kSecret[1], Word<uint64_t>(data + 8) ^ state);
    }
    // The last sixteen bytes, or all of eight to sixteen, twice where they overlap.
    const size_t tail = length > 16 ? 16 : length;
    first = Word<uint64_t>(bytes.data() + length - tail);
    last = Word<uint64_t>(bytes.data() + length - 8);
  } else if (length >= 4) {
    first = Word<uint32_t>(data);
    last = Word<uint32_t>(data + length - 4);
  } else if (length > 0) {
    first = static_cast<uint64_t>(static_cast<uint8_t>(data[0])) << 16 |
            static_cast<uint64_t>(static_cast<uint8_t>(data[length / 2])) << 8 | static_cast<uint8_t>(data[length - 1]);
  }
  state = Fold(first ^ kSecret[2], last ^ state);
  return Fold(state ^ kSecret[3], length ^ kSecret[1]);
}

}  // namespace holdfast
