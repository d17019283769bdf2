// Sixteen bytes of a store key in the order of the keys, beside the entry, so that most comparisons touch no entry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

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

  // Key groups spread evenly: one pass by key group, then each group's few keys are sorted in the processor's cache.
  static void Sort(std::vector<SortKey>* items) {
    constexpr size_t kFewItems = 4096;
    if (items->size() <= kFewItems || items->size() > UINT32_MAX) {
      std::sort(items->begin(), items->end());
      return;
    }
    std::vector<uint32_t> ends(size_t{1} << 16, 0);
    for (const SortKey& item : *items) ++ends[item.key_group()];
    uint32_t total = 0;
    for (uint32_t& end : ends) {
      const uint32_t count = end;
      end = total;
      total += count;
    }
    std::vector<SortKey> grouped(items->size());
    for (const SortKey& item : *items) grouped[ends[item.key_group()]++] = item;
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      if (end > begin) std::sort(grouped.begin() + begin, grouped.begin() + end);
      begin = end;
    }
    *items = std::move(grouped);
  }

  uint16_t key_group() const { return static_cast<uint16_t>(high >> 48); }

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
