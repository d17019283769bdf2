#include "rocksdb/changes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <tuple>
#include <utility>

#include "codec/index_hash.h"

namespace holdfast::rocks {

namespace {

constexpr size_t kBlockChanges = 64;
constexpr size_t kCacheLineBytes = 64;
constexpr size_t kFew = 24;
constexpr size_t kMany = 1 << 16;              // from here on it pays to split by the first bytes
constexpr size_t kBytesMax = size_t{1} << 31;  // so that a block of a value's size fits 32 bits

uint64_t BigEndian(uint64_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}

Status CheckOne(const Change& change) {
  if (change.key.empty()) return Status::InvalidRequest("expected a store key, found an empty one");
  if (change.key.size() <= kBytesMax && change.value.size() <= kBytesMax) return Status::Ok();
  return Status::InvalidRequest("expected a key and a value of at most 2 GiB each, found " +
                                std::to_string(change.key.size()) + " and " + std::to_string(change.value.size()) +
                                " bytes; a list or map state keeps large values in parts");
}

}  // namespace

Status Changes::Check(std::span<const Change> changes) {
  for (const Change& change : changes) HOLDFAST_RETURN_IF_ERROR(CheckOne(change));
  return Status::Ok();
}

Status Changes::Add(std::span<const Change> changes) {
  HOLDFAST_RETURN_IF_ERROR(Check(changes));
  for (size_t begin = AddInOrder(changes); begin < changes.size(); begin += kBlockChanges) {
    AddBlock(changes.subspan(begin, std::min(kBlockChanges, changes.size() - begin)));
  }
  return Status::Ok();
}

// Takes changes for as long as their keys ascend; how many.
size_t Changes::AddInOrder(std::span<const Change> changes) {
  if (!in_order_) return 0;
  Slice last = records_.empty() ? Slice() : records_.back()->key();  // no key is empty
  for (size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].key <= last) {
      in_order_ = false;
      IndexAll();
      return i;
    }
    Record* const record = MakeRecord(changes[i].key, changes[i].value.size());
    SetValue(changes[i], record);
    last = record->key();
  }
  return changes.size();
}

void Changes::IndexAll() {
  index_.Reserve(records_.size());
  for (size_t begin = 0; begin < records_.size(); begin += kBlockChanges) {
    const size_t end = std::min(begin + kBlockChanges, records_.size());
    std::array<uint64_t, kBlockChanges> hashes;
    for (size_t i = begin; i < end; ++i) {
      hashes[i - begin] = IndexHash(records_[i]->key());
      index_.Prefetch(hashes[i - begin]);
    }
    for (size_t i = begin; i < end; ++i) index_.InsertNew(hashes[i - begin], records_[i]);
  }
}

size_t Changes::memory_bytes() const {
  return arena_.memory_bytes() + index_.memory_bytes() + records_.capacity() * sizeof(Record*);
}

void Changes::AddBlock(std::span<const Change> block) {
  std::array<uint64_t, kBlockChanges> hashes;
  for (size_t i = 0; i < block.size(); ++i) {
    hashes[i] = IndexHash(block[i].key);
    index_.Prefetch(hashes[i]);
  }
  for (size_t i = 0; i < block.size(); ++i) {
    const Record* guess = index_.Guess(hashes[i]);
    if (guess == nullptr) continue;
    __builtin_prefetch(guess);
    __builtin_prefetch(reinterpret_cast<const char*>(guess) + kCacheLineBytes);  // a record begins anywhere
  }
  for (size_t i = 0; i < block.size(); ++i) {
    const Change& change = block[i];
    Record* const record = index_.FindOrInsert(
        hashes[i], [&change](const Record& there) { return there.key() == change.key; },
        [this, &change] { return MakeRecord(change.key, change.value.size()); });
    SetValue(change, record);
  }
}

// With room for a value, which is next to the key as long as no larger one comes.
Changes::Record* Changes::MakeRecord(Slice key, size_t value_size) {
  char* const bytes = arena_.Allocate(sizeof(Record) + key.size() + value_size);
  char* const key_bytes = bytes + sizeof(Record);
  std::copy(key.begin(), key.end(), key_bytes);
  auto* const record = new (bytes)
      Record{key_bytes + key.size(), 0, static_cast<uint32_t>(value_size), static_cast<uint32_t>(key.size()), false};
  records_.push_back(record);
  return record;
}

void Changes::SetValue(const Change& change, Record* record) {
  const size_t size = change.value.size();
  if (size > record->value_capacity) {
    // Blocks go back to the arena; the first value's room, which is not a block, stays unused.
    if (record->value != record->key().data() + record->key_size)
      arena_.FreeBlock(record->value, record->value_capacity);
    record->value = arena_.AllocateBlock(Arena::BlockBytes(size));
    record->value_capacity = static_cast<uint32_t>(Arena::BlockBytes(size));
  }
  std::copy(change.value.begin(), change.value.end(), record->value);
  record->value_size = static_cast<uint32_t>(size);
  record->deleted = change.deleted;
}

// Sixteen bytes at a time: comparing whole keys would miss the cache each time, and keys may have long beginnings in
// common. A stack of our own: keys may be megabytes long.
std::vector<Changes::Entry> Changes::Sort() {
  index_ = {};  // before the entries, which want memory too
  const std::vector<Record*> records = std::exchange(records_, {});
  std::vector<Entry> entries;
  entries.reserve(records.size());
  for (const Record* record : records) {
    entries.push_back({0, 0, record, record->key_size});
    LoadBytes(0, &entries.back());
  }
  std::vector<Range> open;
  if (entries.size() < kMany) {
    open.push_back({0, entries.size(), 0});
  } else {
    size_t begin = 0;
    for (const size_t end : SplitByFirstBytes(entries)) {
      if (end - begin > 1) open.push_back({begin, end, 0});
      begin = end;
    }
  }
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    SortRange(range, entries, &open);
  }
  return entries;
}

// Puts entries in order of their first two bytes, the key group, by counting; where each of the ranges ends. What is
// sorted afterwards fits into the processor's cache.
std::vector<size_t> Changes::SplitByFirstBytes(std::span<Entry> entries) {
  const auto bucket = [](const Entry& entry) { return static_cast<size_t>(entry.first >> 48); };
  std::vector<size_t> next(size_t{1} << 16, 0);
  for (const Entry& entry : entries) ++next[bucket(entry)];
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
      Entry entry = entries[next[i]];
      for (size_t to = bucket(entry); to != i; to = bucket(entry)) std::swap(entry, entries[next[to]++]);
      entries[next[i]++] = entry;
    }
  }
  return ends;
}

// What stays undecided goes to `open`.
void Changes::SortRange(const Range& range, std::span<Entry> entries, std::vector<Range>* open) {
  const std::span<Entry> part = entries.subspan(range.begin, range.end - range.begin);
  if (range.depth > 0) {
    if (part.size() <= kFew) {
      SortFew(part, range.depth);
      return;
    }
    for (Entry& entry : part) LoadBytes(range.depth, &entry);
  }
  // What is known so far of where a key belongs: keys that go on beyond the words are alike.
  const size_t decided = range.depth + kEntryBytes;
  const auto known = [decided](const Entry& entry) {
    return std::tuple(entry.first, entry.second, std::min<size_t>(entry.key_size, decided + 1));
  };
  std::sort(part.begin(), part.end(), [&known](const Entry& a, const Entry& b) { return known(a) < known(b); });
  for (size_t begin = range.begin; begin < range.end;) {
    size_t end = begin + 1;
    while (end < range.end && known(entries[end]) == known(entries[begin])) ++end;
    if (end - begin > 1) open->push_back({begin, end, decided});  // keys differ: they go on
    begin = end;
  }
}

void Changes::SortFew(std::span<Entry> entries, size_t depth) {
  std::sort(entries.begin(), entries.end(), [depth](const Entry& a, const Entry& b) {
    return a.record->key().substr(depth) < b.record->key().substr(depth);
  });
}

void Changes::LoadBytes(size_t depth, Entry* entry) {
  const Slice key = entry->record->key();
  uint64_t words[2] = {0, 0};
  std::memcpy(words, key.data() + depth, std::min(key.size() - depth, sizeof(words)));
  entry->first = BigEndian(words[0]);
  entry->second = BigEndian(words[1]);
}

}  // namespace holdfast::rocks
