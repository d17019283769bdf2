#include "codec/index_hash.h"

#include <random>

namespace holdfast::index_hash_detail {

namespace {

std::array<uint64_t, 4> Draw() {
  std::random_device device;
  std::array<uint64_t, 4> secret;
  for (uint64_t& word : secret) word = static_cast<uint64_t>(device()) << 32 | device();
  return secret;
}

}  // namespace

const std::array<uint64_t, 4> kSecret = Draw();

}  // namespace holdfast::index_hash_detail
