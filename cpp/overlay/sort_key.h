// Sixteen bytes of a store key in the order of the keys, beside the entry, so that most comparisons touch no entry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "overlay/entry.h"

namespace holdfast {

struct SortKey {
  uint64_t high;  // key group and the key's first six bytes
  uint64_t low;   // the key's next eight
  Entry* entry;

  static SortKey Of(Entry* entry) {
    SortKey key = Of(entry->key_group, entry->key());
    key.entry = entry;
    return key;
  }
  // Of a key without an entry: what comes before it is told by Before(item, sort key, key).
  static SortKey Of(uint16_t key_group, Slice key) {
    constexpr size_t kHighBytes = 6;
    const uint64_t high = static_cast<uint64_t>(key_group) << 48 | BigEndian(key.data(), key.size()) >> 16;
    const size_t rest = key.size() > kHighBytes ? key.size() - kHighBytes : 0;
    return {high, BigEndian(key.data() + (key.size() - rest), rest), nullptr};
  }

  friend bool operator<(const SortKey& a, const SortKey& b) { return Before(a, b, b.entry->key()); }
  // Whether the entry of `a` comes before `key`, of which `b` is the sort key.
  friend bool Before(const SortKey& a, const SortKey& b, Slice key) {
    if (a.high != b.high) return a.high < b.high;
    if (a.low != b.low) return a.low < b.low;
    return a.entry->key() < key;
  }

 private:
  static uint64_t BigEndian(const char* bytes, size_t length) {
    char padded[8] = {};
    if (length > 0) std::memcpy(padded, bytes, std::min(length, sizeof(padded)));
    uint64_t word;
    std::memcpy(&word, padded, sizeof(word));
    return __builtin_bswap64(word);
  }
};

}  // namespace holdfast
