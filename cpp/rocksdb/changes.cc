#include "rocksdb/changes.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace holdfast::rocks {

namespace {

constexpr size_t kChunkBytes = 4 << 20;
constexpr size_t kFew = 24;
constexpr uint32_t kMoreThanEight = 9;

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
  index_.push_back({0, 0, static_cast<uint32_t>(index_.size()), record});
}

Change Changes::Read(const char* record) {
  Header header;
  std::memcpy(&header, record, sizeof(Header));
  const char* key = record + sizeof(Header);
  return {{key, header.key_size}, {key + header.key_size, header.value_size}, header.deleted != 0};
}

void Changes::LoadBytes(Entry* entry, size_t depth) {
  const Slice key = Read(entry->record).key;
  const size_t remaining = key.size() - depth;
  uint64_t bytes = 0;
  std::memcpy(&bytes, key.data() + depth, std::min(remaining, sizeof(bytes)));
  entry->bytes = BigEndian(bytes);
  entry->remaining = remaining > sizeof(bytes) ? kMoreThanEight : static_cast<uint32_t>(remaining);
}

bool Changes::ComesBefore(const Entry& a, const Entry& b) {
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.remaining != b.remaining) return a.remaining < b.remaining;
  return a.order < b.order;
}

void Changes::SortFew(std::span<Entry> entries, size_t depth) {
  std::sort(entries.begin(), entries.end(), [depth](const Entry& a, const Entry& b) {
    const int compared = Read(a.record).key.substr(depth).compare(Read(b.record).key.substr(depth));
    return compared != 0 ? compared < 0 : a.order < b.order;
  });
}

// Eight bytes at a time: store keys share their first bytes (key group, state), so that one look at eight bytes decides
// little, and comparing whole keys would miss the cache each time. A stack of our own: keys may be megabytes long.
void Changes::Sort() {
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> open = {{0, index_.size(), 0}};
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    const std::span<Entry> entries(index_.data() + range.begin, range.end - range.begin);
    if (entries.size() <= kFew) {
      SortFew(entries, range.depth);
      continue;
    }
    for (Entry& entry : entries) LoadBytes(&entry, range.depth);
    std::sort(entries.begin(), entries.end(), ComesBefore);
    for (size_t begin = range.begin; begin < range.end;) {
      size_t end = begin + 1;
      while (end < range.end && index_[end].bytes == index_[begin].bytes &&
             index_[end].remaining == index_[begin].remaining) {
        ++end;
      }
      const bool undecided = end - begin > 1 && index_[begin].remaining == kMoreThanEight;
      if (undecided) open.push_back({begin, end, range.depth + sizeof(uint64_t)});
      begin = end;
    }
  }
}

}  // namespace holdfast::rocks
