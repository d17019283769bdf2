// The changes that make a base out of its parent: copied into an arena as they come, given out once, sorted by key, the
// latest of each key. A key that every batch changes comes once a delta, so most are never given out: sorting and
// leaving out touch an index only. (A hash table of the keys instead waits for memory three times a change: twice as
// slow.) Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "holdfast/bytes.h"

namespace holdfast::rocks {

// One change. Points into the arena: valid as long as the Changes.
struct Change {
  Slice key;
  Slice value;
  bool deleted;
};

class Changes {
 public:
  // Copies both.
  void Add(Slice key, Slice value, bool deleted);
  bool empty() const { return index_.empty(); }

  // Sorts, then calls `visit(const Change&)`, which returns a Status, for the last change of each key in key order;
  // stops at the first error.
  template <typename Visitor>
  auto ForEachLatest(Visitor visit) -> decltype(visit(std::declval<const Change&>())) {
    Sort();
    for (size_t i = 0; i < index_.size(); ++i) {
      if (i + 1 < index_.size() && SameKey(index_[i], index_[i + 1])) continue;
      const Change change = Read(index_[i].record);
      auto status = visit(change);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  // What sorting compares, so that it touches no record: sixteen bytes of the key from some depth on, big-endian, zeros
  // past the end; the size of the key; the order of Add. The depth is 0 until keys turn out to be alike for longer.
  struct Entry {
    uint64_t first;
    uint64_t second;
    uint32_t key_size;
    uint32_t order;
    const char* record;
  };
  static constexpr size_t kEntryBytes = 2 * sizeof(uint64_t);

  // Entries of which the first `depth` bytes are the same.
  struct Range {
    size_t begin, end, depth;
  };

  static Change Read(const char* record);
  static void LoadBytes(Slice key, size_t depth, Entry* entry);
  static bool SameKey(const Entry& a, const Entry& b);
  static void SortFew(std::span<Entry> entries, size_t depth);
  char* Allocate(size_t size);
  std::vector<size_t> SplitByFirstBytes();
  void Sort();
  void SortRange(const Range& range, std::vector<Range>* open);

  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // within the last chunk
  size_t free_size_ = 0;
  std::vector<Entry> index_;
};

}  // namespace holdfast::rocks
