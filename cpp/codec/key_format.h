// The bytes of one key value of a fixed-width type, both ways. Format: docs/formats/key.md.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "holdfast/type.h"

namespace holdfast::key_format {

inline constexpr char kNullMarker = 0x00;
inline constexpr char kValueMarker = 0x01;
inline constexpr char kEscape = 0x00;  // in strings and binaries, followed by one of the next two
inline constexpr char kEscapedZero = '\xFF';
inline constexpr char kTerminator = 0x01;

template <typename T>
inline T SwapBytes(T value) {
  if constexpr (sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

// Integers: big-endian, the sign bit flipped if there is one. T is the unsigned type of that width.
template <typename T, bool kIsSigned>
struct Integer {
  static constexpr size_t kWidth = sizeof(T);
  static constexpr T kFlip = kIsSigned ? static_cast<T>(T{1} << (sizeof(T) * 8 - 1)) : T{0};
  static void Put(const char* value, char* key) {
    T bits;
    std::memcpy(&bits, value, sizeof(bits));
    bits = SwapBytes(static_cast<T>(bits ^ kFlip));
    std::memcpy(key, &bits, sizeof(bits));
  }
  static bool Get(const char* key, char* value) {
    T bits;
    std::memcpy(&bits, key, sizeof(bits));
    bits = static_cast<T>(SwapBytes(bits) ^ kFlip);
    std::memcpy(value, &bits, sizeof(bits));
    return true;
  }
};

// IEEE floats: -0.0 becomes 0.0, every NaN the canonical quiet one; then all bits flip below zero, the sign bit above.
template <typename T, typename F>
struct Floating {
  static constexpr size_t kWidth = sizeof(T);
  static constexpr T kSign = T{1} << (sizeof(T) * 8 - 1);
  static T Canonical(T bits) {
    const F number = std::bit_cast<F>(bits);
    if (std::isnan(number)) return sizeof(T) == 8 ? static_cast<T>(0x7FF8000000000000ULL) : static_cast<T>(0x7FC00000U);
    return number == F{0} ? T{0} : bits;
  }
  static void Put(const char* value, char* key) {
    T bits;
    std::memcpy(&bits, value, sizeof(bits));
    bits = Canonical(bits);
    bits = SwapBytes(static_cast<T>((bits & kSign) != 0 ? ~bits : bits | kSign));
    std::memcpy(key, &bits, sizeof(bits));
  }
  static bool Get(const char* key, char* value) {
    T bits;
    std::memcpy(&bits, key, sizeof(bits));
    bits = SwapBytes(bits);
    bits = (bits & kSign) != 0 ? bits ^ kSign : ~bits;
    std::memcpy(value, &bits, sizeof(bits));
    return bits == Canonical(bits);
  }
};

// 128-bit two's complement, as one big-endian integer with the sign bit flipped.
struct Decimal {
  static constexpr size_t kWidth = 16;
  static void Put(const char* value, char* key) {
    Integer<uint64_t, true>::Put(value + 8, key);
    Integer<uint64_t, false>::Put(value, key + 8);
  }
  static bool Get(const char* key, char* value) {
    Integer<uint64_t, true>::Get(key, value + 8);
    return Integer<uint64_t, false>::Get(key + 8, value);
  }
};

// Calls visitor(Format{}) for the fixed-width types but bool and fixed-size binary; returns false for the others.
template <typename Visitor>
bool VisitFixed(const Type& type, Visitor&& visitor) {
  switch (type.id) {
    case TypeId::kInt8:
      visitor(Integer<uint8_t, true>{});
      return true;
    case TypeId::kInt16:
      visitor(Integer<uint16_t, true>{});
      return true;
    case TypeId::kInt32:
    case TypeId::kDate32:
    case TypeId::kTime32:
      visitor(Integer<uint32_t, true>{});
      return true;
    case TypeId::kInt64:
    case TypeId::kDate64:
    case TypeId::kTime64:
    case TypeId::kTimestamp:
    case TypeId::kDuration:
      visitor(Integer<uint64_t, true>{});
      return true;
    case TypeId::kUInt8:
      visitor(Integer<uint8_t, false>{});
      return true;
    case TypeId::kUInt16:
      visitor(Integer<uint16_t, false>{});
      return true;
    case TypeId::kUInt32:
      visitor(Integer<uint32_t, false>{});
      return true;
    case TypeId::kUInt64:
      visitor(Integer<uint64_t, false>{});
      return true;
    case TypeId::kFloat:
      visitor(Floating<uint32_t, float>{});
      return true;
    case TypeId::kDouble:
      visitor(Floating<uint64_t, double>{});
      return true;
    case TypeId::kDecimal128:
      visitor(Decimal{});
      return true;
    default:
      return false;
  }
}

}  // namespace holdfast::key_format
