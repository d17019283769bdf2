#include "rocksdb/changes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

namespace holdfast::rocks {

namespace {

constexpr size_t kChunkBytes = 4 << 20;
constexpr size_t kFew = 24;
constexpr size_t kMany = 1 << 16;  // from here on it pays to split by the first bytes

// A record is this header, the key, the value.
struct Header {
  uint64_t value_size;
  uint32_t key_size;
  uint32_t deleted;
};

uint64_t BigEndian(uint64_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}

}  // namespace

char* Changes::Allocate(size_t size) {
  if (size > free_size_) {
    free_size_ = std::max(size, kChunkBytes);
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(free_size_));
    free_ = chunks_.back().get();
  }
  char* allocated = free_;
  free_ += size;
  free_size_ -= size;
  return allocated;
}

void Changes::Add(Slice key, Slice value, bool deleted) {
  const Header header{value.size(), static_cast<uint32_t>(key.size()), deleted ? 1U : 0U};
  char* record = Allocate(sizeof(Header) + key.size() + value.size());
  std::memcpy(record, &header, sizeof(Header));
  std::copy(key.begin(), key.end(), record + sizeof(Header));
  std::copy(value.begin(), value.end(), record + sizeof(Header) + key.size());
  Entry& entry = index_.emplace_back();
  LoadBytes(key, 0, &entry);
  entry.key_size = header.key_size;
  entry.order = static_cast<uint32_t>(index_.size() - 1);
  entry.record = record;
}

Change Changes::Read(const char* record) {
  Header header;
  std::memcpy(&header, record, sizeof(Header));
  const char* key = record + sizeof(Header);
  return {{key, header.key_size}, {key + header.key_size, header.value_size}, header.deleted != 0};
}

void Changes::LoadBytes(Slice key, size_t depth, Entry* entry) {
  uint64_t words[2] = {0, 0};
  std::memcpy(words, key.data() + depth, std::min(key.size() - depth, sizeof(words)));
  entry->first = BigEndian(words[0]);
  entry->second = BigEndian(words[1]);
}

// Of neighbours after Sort. Equal keys were compared at the same depth, so that words that differ decide; words that
// are the same decide for keys of which they are all.
bool Changes::SameKey(const Entry& a, const Entry& b) {
  if (a.first != b.first || a.second != b.second || a.key_size != b.key_size) return false;
  return a.key_size <= kEntryBytes || Read(a.record).key == Read(b.record).key;
}

void Changes::SortFew(std::span<Entry> entries, size_t depth) {
  std::sort(entries.begin(), entries.end(), [depth](const Entry& a, const Entry& b) {
    const int compared = Read(a.record).key.substr(depth).compare(Read(b.record).key.substr(depth));
    return compared != 0 ? compared < 0 : a.order < b.order;
  });
}

// Puts entries in order of their first two bytes, the key group, by counting; where each of the ranges ends. What is
// sorted afterwards fits into the processor's cache.
std::vector<size_t> Changes::SplitByFirstBytes() {
  const auto bucket = [](const Entry& entry) { return static_cast<size_t>(entry.first >> 48); };
  std::vector<size_t> next(size_t{1} << 16, 0);
  for (const Entry& entry : index_) ++next[bucket(entry)];
  std::vector<size_t> ends(next.size());
  size_t sum = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    sum += next[i];
    ends[i] = sum;
    next[i] = sum - next[i];
  }
  // In place, cycle by cycle: an entry goes where it belongs, and takes what was there on to where that belongs.
  for (size_t i = 0; i < next.size(); ++i) {
    while (next[i] < ends[i]) {
      Entry entry = index_[next[i]];
      for (size_t to = bucket(entry); to != i; to = bucket(entry)) std::swap(entry, index_[next[to]++]);
      index_[next[i]++] = entry;
    }
  }
  return ends;
}

// Sixteen bytes at a time: comparing whole keys would miss the cache each time, and keys may have long beginnings in
// common. A stack of our own: keys may be megabytes long.
void Changes::Sort() {
  std::vector<Range> open;
  if (index_.size() < kMany) {
    open.push_back({0, index_.size(), 0});
  } else {
    size_t begin = 0;
    for (const size_t end : SplitByFirstBytes()) {
      if (end - begin > 1) open.push_back({begin, end, 0});
      begin = end;
    }
  }
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    SortRange(range, &open);
  }
}

// What stays undecided goes to `open`.
void Changes::SortRange(const Range& range, std::vector<Range>* open) {
  const std::span<Entry> entries(index_.data() + range.begin, range.end - range.begin);
  if (range.depth > 0) {
    if (entries.size() <= kFew) {
      SortFew(entries, range.depth);
      return;
    }
    for (Entry& entry : entries) LoadBytes(Read(entry.record).key, range.depth, &entry);
  }
  // What is known so far of where a key belongs: keys that go on beyond the words are alike.
  const size_t decided = range.depth + kEntryBytes;
  const auto known = [decided](const Entry& entry) {
    return std::tuple(entry.first, entry.second, std::min<size_t>(entry.key_size, decided + 1));
  };
  std::sort(entries.begin(), entries.end(), [&known](const Entry& a, const Entry& b) {
    return std::pair(known(a), a.order) < std::pair(known(b), b.order);
  });
  for (size_t begin = range.begin; begin < range.end;) {
    size_t end = begin + 1;
    while (end < range.end && known(index_[end]) == known(index_[begin])) ++end;
    if (end - begin > 1 && index_[begin].key_size > decided) open->push_back({begin, end, decided});
    begin = end;
  }
}

}  // namespace holdfast::rocks
