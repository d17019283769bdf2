// The byte in front of every stored value, and the stamp that may follow it. Format: docs/formats/value.md.
// In the overlay a value is its header without the stamp bit, and its row: states never meet a stamp. Nor do they meet
// versions: there all rows are of the newest schema, and have the first version.
#pragma once

#include <cstdint>
#include <cstring>

#include "holdfast/bytes.h"

namespace holdfast::value_header {

inline constexpr size_t kBytes = 1;  // in front of the row, where there is no stamp: always, in the overlay
inline constexpr uint8_t kFirstVersion = 1;
inline constexpr uint8_t kVersionMax = 0x3F;  // and the bits that a version has
inline constexpr uint8_t kNullBit = 0x40;     // a null list element or map value: no row follows
inline constexpr uint8_t kStampBit = 0x80;  // the stamp follows: when the entry was last written, or read to refresh it
inline constexpr size_t kStampBytes = 8;

inline constexpr char kRow = static_cast<char>(kFirstVersion);
inline constexpr char kNull = static_cast<char>(kFirstVersion | kNullBit);
inline constexpr Slice kRowPrefix{&kRow, kBytes};
inline constexpr Slice kNullValue{&kNull, kBytes};

inline bool IsStamped(Slice stored) { return !stored.empty() && (static_cast<uint8_t>(stored[0]) & kStampBit) != 0; }
// The header as the overlay has it.
inline char PlainHeader(Slice stored) {
  return static_cast<char>((static_cast<uint8_t>(stored[0]) & kNullBit) | kFirstVersion);
}
inline char StampedHeader(char plain) { return static_cast<char>(static_cast<uint8_t>(plain) | kStampBit); }
// The same header of a row that another schema wrote.
inline char WithVersion(char header, uint8_t version) {
  return static_cast<char>((static_cast<uint8_t>(header) & ~kVersionMax) | version);
}
// Of a stored value that is not empty.
inline uint8_t VersionOf(Slice stored) { return static_cast<uint8_t>(stored[0]) & kVersionMax; }
// Bytes of a stored value before its row.
inline size_t HeaderBytes(Slice stored) { return IsStamped(stored) ? kBytes + kStampBytes : kBytes; }

// Whether the header is one of a schema of this version, and all there.
inline bool IsReadable(Slice stored, uint8_t version) {
  if (stored.empty() || stored.size() < HeaderBytes(stored)) return false;
  const auto header = static_cast<uint8_t>(static_cast<uint8_t>(stored[0]) & ~kStampBit);
  return header == version || (header == (version | kNullBit) && stored.size() == HeaderBytes(stored));
}
// The same of any version.
inline bool IsWhole(Slice stored) {
  return !stored.empty() && VersionOf(stored) >= kFirstVersion && IsReadable(stored, VersionOf(stored));
}
// Of a value in the overlay: its row, or a slice with null data().
inline Slice Row(Slice value) { return value[0] == kRow ? value.substr(kBytes) : Slice(); }

// Of a stored value that IsWhole: the same.
inline Slice StoredRow(Slice stored) {
  return PlainHeader(stored) == kRow ? stored.substr(HeaderBytes(stored)) : Slice();
}

inline int64_t GetStamp(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return static_cast<int64_t>(__builtin_bswap64(word));
}
// Of a stored value that IsStamped.
inline int64_t StampOf(Slice stored) { return GetStamp(stored.data() + kBytes); }
inline void PutStamp(int64_t stamp_ms, char* bytes) {
  const uint64_t word = __builtin_bswap64(static_cast<uint64_t>(stamp_ms));
  std::memcpy(bytes, &word, sizeof(word));
}

}  // namespace holdfast::value_header
