// Store keys: [key group u16 BE][state id u16 BE][encoded key][suffix]. Format: docs/formats/value.md.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/bytes.h"

namespace holdfast::store_key {

inline constexpr size_t kPrefixBytes = 4;

inline void PutPrefix(uint16_t key_group, uint16_t state_id, char* out) {
  out[0] = static_cast<char>(key_group >> 8);
  out[1] = static_cast<char>(key_group);
  out[2] = static_cast<char>(state_id >> 8);
  out[3] = static_cast<char>(state_id);
}
inline uint16_t ReadU16(const char* bytes) {
  return static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) << 8 | static_cast<uint8_t>(bytes[1]));
}
inline uint16_t KeyGroup(Slice key) { return ReadU16(key.data()); }
inline uint16_t StateId(Slice key) { return ReadU16(key.data() + 2); }

inline std::string Make(uint16_t key_group, uint16_t state_id, Slice rest) {
  std::string key(kPrefixBytes, '\0');
  PutPrefix(key_group, state_id, key.data());
  return key.append(rest);
}

// The least key above every key that starts with `prefix`; empty when there is none.
inline std::string Successor(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xFF') prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

}  // namespace holdfast::store_key
