// Records of the overlay. Each lies in one piece of an arena, its key right behind the header and its value right
// behind the key, so that a fold of a small value touches one or two cache lines.
// Records never move while their table lives.
#pragma once

#include <cstdint>
#include <cstring>

#include "codec/value_header.h"
#include "holdfast/bytes.h"

namespace holdfast {

// Equality of short byte strings without a call: keys are mostly of 4 to 16 bytes.
inline bool SameBytes(const char* a, const char* b, size_t length) {
  if (length > 16) return std::memcmp(a, b, length) == 0;
  const auto load = [](const char* from, auto* word) { std::memcpy(word, from, sizeof(*word)); };
  if (length >= 8) {
    uint64_t words[4];
    load(a, &words[0]);
    load(b, &words[1]);
    load(a + length - 8, &words[2]);
    load(b + length - 8, &words[3]);
    return ((words[0] ^ words[1]) | (words[2] ^ words[3])) == 0;
  }
  if (length >= 4) {
    uint32_t words[4];
    load(a, &words[0]);
    load(b, &words[1]);
    load(a + length - 4, &words[2]);
    load(b + length - 4, &words[3]);
    return ((words[0] ^ words[1]) | (words[2] ^ words[3])) == 0;
  }
  for (size_t i = 0; i < length; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}
inline bool SameBytes(Slice a, Slice b) { return a.size() == b.size() && SameBytes(a.data(), b.data(), a.size()); }

// One store key (without its four-byte prefix) and what is known of its value.
struct Entry {
  // Whether the value at the Store's version is known here; if not, the base must be asked.
  static constexpr uint16_t kKnown = 1;
  // Known, and there is a value. A known entry that is not present is a key known to be absent.
  static constexpr uint16_t kPresent = 2;
  // When the entry was first changed since the last take_delta, the key was known to be absent.
  static constexpr uint16_t kWasAbsent = 4;
  // In the list of entries that the base is about to be asked for.
  static constexpr uint16_t kAsked = 8;
  // In the items of its head (lists and maps).
  static constexpr uint16_t kLinked = 16;
  // The value did not fit behind the key: a pointer to it stands there.
  static constexpr uint16_t kOutlined = 32;
  // Of an entry that is present: its stamp follows the value. (64: table_evict.cc)
  static constexpr uint16_t kStamped = 128;

  uint32_t key_length;      // with the map key or list index
  uint32_t value_length;    // with the value header, without the stamp; 0 when absent
  uint32_t value_capacity;  // of where the value is; behind the key there are at least kInlineMin bytes
  uint32_t mark;            // Versions::mark() of the last change; 0: as it was read
  uint16_t key_group;
  uint16_t flags;

  static constexpr uint32_t kInlineMin = sizeof(char*);

  bool known() const { return (flags & kKnown) != 0; }
  bool present() const { return (flags & kPresent) != 0; }

  char* key_bytes() { return reinterpret_cast<char*>(this) + sizeof(Entry); }
  const char* key_bytes() const { return reinterpret_cast<const char*>(this) + sizeof(Entry); }
  Slice key() const { return {key_bytes(), key_length}; }
  char* value_bytes() {
    char* const inlined = key_bytes() + key_length;
    if ((flags & kOutlined) == 0) return inlined;
    char* outlined;
    std::memcpy(&outlined, inlined, sizeof(char*));
    return outlined;
  }
  const char* value_bytes() const { return const_cast<Entry*>(this)->value_bytes(); }
  Slice value() const { return {value_bytes(), value_length}; }

  bool stamped() const { return (flags & kStamped) != 0; }
  int64_t stamp() const { return value_header::GetStamp(value_bytes() + value_length); }
  // Of the value as deltas and bases have it.
  size_t stored_length() const { return value_length + (stamped() ? value_header::kStampBytes : 0); }
};
static_assert(sizeof(Entry) == 20);

// One key of a list or map state: where its elements' entries are.
struct Head {
  Entry** items;
  uint32_t count;
  uint32_t capacity;
  uint32_t key_length;
  uint16_t key_group;
  bool loaded;  // every element that the base has is among the items, or known otherwise
  bool sorted;  // items are in key order

  char* key_bytes() { return reinterpret_cast<char*>(this) + sizeof(Head); }
  const char* key_bytes() const { return reinterpret_cast<const char*>(this) + sizeof(Head); }
  Slice key() const { return {key_bytes(), key_length}; }
};

}  // namespace holdfast
