// The byte in front of every stored value. Format: docs/formats/value.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/bytes.h"

namespace holdfast::value_header {

inline constexpr size_t kBytes = 1;  // without an expiry
inline constexpr uint8_t kSchemaVersion = 1;
inline constexpr uint8_t kSchemaVersionMask = 0x3F;
inline constexpr uint8_t kNullBit = 0x40;    // a null list element or map value: no row follows
inline constexpr uint8_t kExpiryBit = 0x80;  // eight bytes of expiry follow; reserved

inline constexpr char kRow = static_cast<char>(kSchemaVersion);
inline constexpr char kNull = static_cast<char>(kSchemaVersion | kNullBit);
inline constexpr Slice kRowPrefix{&kRow, 1};
inline constexpr Slice kNullValue{&kNull, 1};

inline bool IsRow(Slice value) { return !value.empty() && value[0] == kRow; }
inline bool IsReadable(Slice value) { return IsRow(value) || value == kNullValue; }
// Of a value that IsReadable: its row, or a slice with null data().
inline Slice Row(Slice value) { return value[0] == kRow ? value.substr(1) : Slice(); }

}  // namespace holdfast::value_header
