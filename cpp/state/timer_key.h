// What a timer is in the store: [time i64, sign bit flipped, big-endian][encoded key][namespace], so that timers of a
// key group lie in order of time. Format: docs/formats/value.md.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "holdfast/bytes.h"
#include "overlay/layout.h"

namespace holdfast::timer_key {

inline constexpr uint64_t kSignBit = uint64_t{1} << 63;

inline void PutTime(int64_t time, char* out) {
  const uint64_t ordered = __builtin_bswap64(static_cast<uint64_t>(time) ^ kSignBit);
  std::memcpy(out, &ordered, sizeof(ordered));
}
// The time as a number whose order is that of the keys.
inline uint64_t Ordered(Slice key) {
  uint64_t ordered;
  std::memcpy(&ordered, key.data(), sizeof(ordered));
  return __builtin_bswap64(ordered);
}
inline int64_t Time(Slice key) { return static_cast<int64_t>(Ordered(key) ^ kSignBit); }
// The least key of all timers after this time; empty when no time is later.
inline std::string After(int64_t time) {
  if (time == INT64_MAX) return {};
  std::string key(layout::kTimeBytes, '\0');
  PutTime(time + 1, key.data());
  return key;
}

}  // namespace holdfast::timer_key
