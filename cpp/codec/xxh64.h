// XXH64, by its published specification (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
// Inline, because it runs once a row over keys of a few bytes; Xxh64() of key_codec.h is the same function out of line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "holdfast/status.h"

namespace holdfast {

namespace xxh64_detail {

static_assert(std::endian::native == std::endian::little, "XXH64 reads its input as little-endian words");

inline constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
inline constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
inline constexpr uint64_t kPrime3 = 0x165667B19E3779F9ULL;
inline constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
inline constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

template <typename T>
inline uint64_t Load(const char* p) {
  T word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
inline uint64_t Round(uint64_t accumulator, uint64_t lane) {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}
inline uint64_t MergeRound(uint64_t hash, uint64_t accumulator) {
  return (hash ^ Round(0, accumulator)) * kPrime1 + kPrime4;
}

// Four accumulators over stripes of 32 bytes.
struct Stripes {
  explicit Stripes(uint64_t seed) : a(seed + kPrime1 + kPrime2), b(seed + kPrime2), c(seed), d(seed - kPrime1) {}
  void Consume(const char* p) {
    a = Round(a, Load<uint64_t>(p));
    b = Round(b, Load<uint64_t>(p + 8));
    c = Round(c, Load<uint64_t>(p + 16));
    d = Round(d, Load<uint64_t>(p + 24));
  }
  uint64_t Merge() const {
    uint64_t hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    return MergeRound(MergeRound(MergeRound(MergeRound(hash, a), b), c), d);
  }
  uint64_t a, b, c, d;
};

// The last `length` < 32 bytes and the final mix.
inline uint64_t Finish(uint64_t hash, const char* p, size_t length) {
  for (; length >= 8; p += 8, length -= 8) {
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  }
  if (length >= 4) {
    hash = std::rotl(hash ^ (Load<uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
    length -= 4;
  }
  for (; length > 0; ++p, --length) hash = std::rotl(hash ^ (Load<uint8_t>(p) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace xxh64_detail

inline uint64_t Xxh64Inline(const void* data, size_t length, uint64_t seed = 0) {
  const char* p = static_cast<const char*>(data);
  if (length < 32) return xxh64_detail::Finish(seed + xxh64_detail::kPrime5 + length, p, length);
  xxh64_detail::Stripes stripes(seed);
  size_t left = length;
  for (; left >= 32; p += 32, left -= 32) stripes.Consume(p);
  return xxh64_detail::Finish(stripes.Merge() + length, p, left);
}

// The same over data that comes in pieces.
class Xxh64Stream {
 public:
  explicit Xxh64Stream(uint64_t seed = 0) : stripes_(seed), seed_(seed) {}
  void Update(const char* data, size_t length);
  uint64_t Digest() const;
  uint64_t length() const { return total_; }

 private:
  xxh64_detail::Stripes stripes_;
  uint64_t seed_;
  uint64_t total_ = 0;
  size_t pending_ = 0;  // bytes of `tail_` that are filled; < 32
  char tail_[32] = {};
};

// (XXH64 with seed 0, size in bytes) of a file.
// Unavailable, naming the file and the system's reason, when it cannot be read.
Result<std::pair<uint64_t, uint64_t>> Xxh64File(const std::string& path);

}  // namespace holdfast
