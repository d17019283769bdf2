// The order of an ordered table's entries, which its hash index does not have, and the first key of each key group.
//
// Entries are gathered as they come and sorted when somebody asks for them in order: into runs, each at least twice as
// long as the next, so that n entries are merged log n times and a cursor meets log n runs. Why not a skip list:
// entries come by batches of thousands, and sorted arrays of sort keys are read and merged without touching an entry.
//
// First keys: a bound below which a key group has no present entry, in the overlay or in the base. It is exact when an
// entry stands at it. It holds across batches, deltas, spills and bases, since none of these changes what is present;
// only a move to another version does (Forget). So the earliest of millions of entries is known without looking.
//
// Who has read ahead over all key groups, and keeps what it read over calls, watches: the first keys are those beyond,
// and the order keeps what arrives and leaves in what was read.
// Thread-safety: none; belongs to its table.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "container/arena.h"
#include "overlay/sort_key.h"

namespace holdfast {

// The key groups of a slot.
struct KeyGroupRange {
  uint16_t first = 0;
  uint16_t count = 0;
};

struct FirstKey {
  enum class State : uint8_t {
    kAtLeast,  // nothing before `bound`; whether something is at it is not known
    kExact,    // the first entry is at `bound`
    kNone,     // there is no entry
  };
  State state = State::kAtLeast;
  std::string bound;  // a key without its four-byte prefix; empty: before all
};

class KeyOrder {
 public:
  // `complete`: nothing is present but what Arrived.
  KeyOrder(KeyGroupRange groups, bool complete) : groups_(groups), complete_(complete) { Forget(); }

  // An entry was made. Whether it is present is told later, and may change.
  void Add(Entry* entry) { tail_.push_back(SortKey::Of(entry)); }
  void Arrived(const Entry& entry);
  void Left(const Entry& entry);

  // The sorted runs of all entries. They stay until the next call, even if entries are added.
  std::span<const std::vector<SortKey>> Runs();
  // Takes over the entries of an order of the same table, made when it was rebuilt; none: they are all gone.
  void TakeEntries(KeyOrder* other);
  void DropEntries();

  KeyGroupRange groups() const { return groups_; }
  const FirstKey& first(uint16_t key_group) const { return first_[key_group - groups_.first]; }
  void SetFirst(uint16_t key_group, FirstKey::State state, Slice bound);
  // What is present is not known any more, and nobody watches.
  void Forget();

  // --- what was read ahead: all keys before `end` (empty: all), of which those before `begin` are not asked for again
  struct Change {
    Slice key;
    uint16_t key_group;
    bool arrived;  // or it left
  };
  struct Changes {
    Arena keys;
    std::vector<Change> in_order;
  };
  // Keeps changes of what was read from here on. `bytes`: its memory, which counts as the table's.
  void Watch(Slice begin, Slice end, size_t bytes);
  void Unwatch() { watched_.reset(); }
  bool watches() const { return watched_.has_value(); }
  Changes TakeChanges() { return std::exchange(watched_->changes, {}); }

  size_t memory_bytes() const;

 private:
  struct Watched {
    std::string begin;
    std::string end;
    size_t bytes = 0;
    Changes changes;
  };
  void Keep(const Entry& entry, bool arrived);

  const KeyGroupRange groups_;
  const bool complete_;
  std::vector<FirstKey> first_;
  std::vector<std::vector<SortKey>> runs_;
  std::vector<SortKey> tail_;
  std::optional<Watched> watched_;
};

}  // namespace holdfast
