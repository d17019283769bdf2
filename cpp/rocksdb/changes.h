// The changes that make a base out of its parent: copied into an arena as they come, given out once, sorted by key, the
// latest of each key. Not thread-safe.
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
      const Change change = Read(index_[i].record);
      if (i + 1 < index_.size() && Read(index_[i + 1].record).key == change.key) continue;
      auto status = visit(change);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  // What sorting compares, so that it touches no record: eight bytes of the key from some depth on, big-endian, zeros
  // past the end; how many bytes there are from that depth on, 9 for more than eight; the order of Add.
  struct Entry {
    uint64_t bytes;
    uint32_t remaining;
    uint32_t order;
    const char* record;
  };

  static Change Read(const char* record);
  static void LoadBytes(Entry* entry, size_t depth);
  static bool ComesBefore(const Entry& a, const Entry& b);
  static void SortFew(std::span<Entry> entries, size_t depth);
  char* Allocate(size_t size);
  void Sort();

  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // within the last chunk
  size_t free_size_ = 0;
  std::vector<Entry> index_;
};

}  // namespace holdfast::rocks
