// How each kind of state lies in the store: the one table of it. Format: docs/formats/value.md; its bytes:
// tests/cpp/state/stored_bytes_test.cc.
//
// A store key is [key group][state id][before the key][encoded key][suffix]. A reader that knows no declarations (a
// restore, a fold, a scan) must find the encoded key all the same: what stands before it goes by bit 15 of the state's
// id, whether there is one at all by bit 14, and where it ends, the encoding says itself. The header in front of
// values, the same for all kinds, is said in codec/value_header.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace holdfast::layout {

enum class Kind : uint8_t { kValue, kReducing, kAggregating, kList, kMap, kTimers };

enum class Suffix : uint8_t {
  kNone,       // one entry a key
  kListIndex,  // u64 big-endian
  kMapKey,     // a key of its own
  kNamespace,  // text, to the end
};

struct Layout {
  Kind kind;
  const char* name;  // as errors name it
  size_t before_key_bytes;
  Suffix suffix;

  // A list's or map's entries are found by their key; others by all their bytes.
  constexpr bool has_elements() const { return suffix == Suffix::kListIndex || suffix == Suffix::kMapKey; }
  constexpr bool is_ordered() const { return before_key_bytes > 0; }
};

inline constexpr size_t kTimeBytes = sizeof(int64_t);

inline constexpr std::array<Layout, 6> kLayouts = {{
    {Kind::kValue, "value state", 0, Suffix::kNone},
    {Kind::kReducing, "reducing state", 0, Suffix::kNone},
    {Kind::kAggregating, "aggregating state", 0, Suffix::kNone},
    {Kind::kList, "list state", 0, Suffix::kListIndex},
    {Kind::kMap, "map state", 0, Suffix::kMapKey},
    {Kind::kTimers, "timers", kTimeBytes, Suffix::kNamespace},
}};
inline constexpr const Layout& Of(Kind kind) { return kLayouts[static_cast<size_t>(kind)]; }

// States that are ordered by time have the ids from here on.
inline constexpr uint16_t kFirstOrderedId = 0x8000;
inline constexpr bool IsOrderedId(uint16_t state_id) { return state_id >= kFirstOrderedId; }
inline constexpr size_t BeforeKeyBytes(uint16_t state_id) { return IsOrderedId(state_id) ? kTimeBytes : 0; }

// Operator states, which belong to the slot and to no key, have the ids from here to those of ordered states. They are
// lists and maps of one key that has no bytes, in a key group that no slot has: whoever divides a store by ranges of
// key groups meets them apart from all that he divides.
inline constexpr uint16_t kFirstOperatorId = 0x4000;
inline constexpr uint16_t kNoKeyGroup = 0xFFFF;
inline constexpr bool IsOperatorId(uint16_t state_id) {
  return state_id >= kFirstOperatorId && state_id < kFirstOrderedId;
}

}  // namespace holdfast::layout
