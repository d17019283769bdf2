// The changes that make a base out of its parent: the last of each key, given out once, sorted by key. A key that every
// batch changes comes once a delta, so a hash table keeps the last one: memory and sorting go by keys, not by changes.
// In blocks: what a change will touch is asked for from memory while the others of its block are hashed, or each would
// wait for memory twice (docs/rfcs/0005). Keys that come in order, as those of a savepoint or of other slots do, are
// neither looked up nor sorted: the table is made when the first one comes that is not above the last. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "container/arena.h"
#include "container/hash_index.h"
#include "holdfast/rocksdb_base.h"

namespace holdfast::rocks {

class Changes {
 public:
  // Copies; a later change of a key wins. InvalidRequest, and then none is added, for a key that is empty, or a key or
  // value of more than 2 GiB.
  Status Add(std::span<const Change> changes);
  // What Add refuses.
  static Status Check(std::span<const Change> changes);
  bool empty() const { return records_.empty(); }
  // Whether each key came above the one before; then the last of them, if there is one.
  bool in_order() const { return in_order_; }
  Slice last_key() const { return records_.empty() ? Slice() : records_.back()->key(); }
  size_t memory_bytes() const;

  // Calls `visit(const Change&)`, which returns a Status, for each key in key order; stops at the first error. Once:
  // there are no changes afterwards.
  template <typename Visitor>
  Status Drain(Visitor visit) {
    if (in_order_) {
      const std::vector<Record*> records = std::exchange(records_, {});
      for (const Record* record : records) HOLDFAST_RETURN_IF_ERROR(visit(Read(*record)));
      return Status::Ok();
    }
    const std::vector<Entry> entries = Sort();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i + kPrefetchDistance < entries.size()) __builtin_prefetch(entries[i + kPrefetchDistance].record);
      HOLDFAST_RETURN_IF_ERROR(visit(Read(*entries[i].record)));
    }
    return Status::Ok();
  }

 private:
  // Of a key. The key's bytes follow.
  struct Record {
    char* value;
    uint32_t value_size;
    uint32_t value_capacity;
    uint32_t key_size;
    bool deleted;

    Slice key() const { return {reinterpret_cast<const char*>(this + 1), key_size}; }
  };

  // What sorting compares, so that it touches no record: sixteen bytes of the key from some depth on, big-endian, zeros
  // past the end; the size of the key. The depth is 0 until keys turn out to be alike for longer.
  struct Entry {
    uint64_t first;
    uint64_t second;
    const Record* record;
    uint32_t key_size;
  };
  static constexpr size_t kEntryBytes = 2 * sizeof(uint64_t);
  static constexpr size_t kPrefetchDistance = 16;

  // Entries of which the first `depth` bytes are the same.
  struct Range {
    size_t begin, end, depth;
  };

  size_t AddInOrder(std::span<const Change> changes);
  void IndexAll();
  void AddBlock(std::span<const Change> block);
  Record* MakeRecord(Slice key, size_t value_size);
  void SetValue(const Change& change, Record* record);
  std::vector<Entry> Sort();

  static Change Read(const Record& record) { return {record.key(), {record.value, record.value_size}, record.deleted}; }
  static void LoadBytes(size_t depth, Entry* entry);
  static void SortFew(std::span<Entry> entries, size_t depth);
  static void SortRange(const Range& range, std::span<Entry> entries, std::vector<Range>* open);
  static std::vector<size_t> SplitByFirstBytes(std::span<Entry> entries);

  bool in_order_ = true;  // each key so far was above the one before: the index is empty
  Arena arena_;
  HashIndex<Record> index_;
  std::vector<Record*> records_;  // in the order of the keys' first changes, which is that of the arena
};

}  // namespace holdfast::rocks
