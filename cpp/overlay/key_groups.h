// The key groups of one slot, and which of them a hash falls into. As KeyGroup of key_codec.h, without its division.
#pragma once

#include <cstdint>

#include "overlay/key_order.h"

namespace holdfast {

class SlotKeyGroups {
 public:
  SlotKeyGroups(int32_t max_parallelism, int32_t first, int32_t end)
      : first_(static_cast<uint64_t>(first)),
        count_(static_cast<uint64_t>(end - first)),
        groups_(static_cast<uint64_t>(max_parallelism)),
        reciprocal_(UINT64_MAX / groups_) {}

  uint16_t Of(uint64_t hash) const {
    // The quotient is exact or one too small: hash / groups exceeds hash * reciprocal / 2^64 by less than one.
    __extension__ typedef unsigned __int128 Wide;
    const auto quotient = static_cast<uint64_t>((static_cast<Wide>(hash) * reciprocal_) >> 64);
    const uint64_t rest = hash - quotient * groups_;
    return static_cast<uint16_t>(rest >= groups_ ? rest - groups_ : rest);
  }
  bool Contains(uint16_t key_group) const { return key_group - first_ < count_; }
  KeyGroupRange range() const { return {first(), static_cast<uint16_t>(count_)}; }
  uint16_t first() const { return static_cast<uint16_t>(first_); }
  int32_t end() const { return static_cast<int32_t>(first_ + count_); }

 private:
  uint64_t first_;
  uint64_t count_;
  uint64_t groups_;
  uint64_t reciprocal_;
};

}  // namespace holdfast
