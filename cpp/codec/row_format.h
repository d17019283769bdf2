// Pieces that the row encoder and decoder share. Format: docs/formats/row.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/type.h"

namespace holdfast::row_format {

inline constexpr char kNullMarker = 0x00;  // before a map's value
inline constexpr char kValueMarker = 0x01;

inline constexpr size_t BitmapBytes(size_t count) { return (count + 7) / 8; }

inline constexpr size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}
inline char* PutVarint(uint64_t value, char* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}
// Reads a varint in its shortest form; null when it is cut off, too long or padded.
inline const char* GetVarint(const char* next, const char* end, uint64_t* value) {
  *value = 0;
  for (int shift = 0; next < end && shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(*next++);
    if (shift == 63 && byte > 1) return nullptr;
    *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return byte == 0 && shift > 0 ? nullptr : next;
  }
  return nullptr;
}

inline bool IsBytes(const Type& type) { return type.id == TypeId::kString || type.id == TypeId::kBinary; }

}  // namespace holdfast::row_format
