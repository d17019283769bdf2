// The timers of a slot that are due, in order of time over all its key groups, which lie one after the other in the
// store. The table's first keys (overlay/key_order.h) say which key groups have any, so that a slot where none is due
// is not read at all.
//
// To read some of each key group costs a seek in each, so more are read than one call asks for, and wait here for the
// next one. The order keeps what is set and deleted among them in the mean. So what waits is what a reader would find
// now, across batches, deltas, spills and bases.
// Thread-safety: none; belongs to its table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "container/arena.h"
#include "overlay/ordered_cursor.h"
#include "overlay/table.h"

namespace holdfast {

class DueTimers {
 public:
  explicit DueTimers(Table* table) : table_(table), order_(table->order()) {}

  // In order of time, key, namespace.
  struct Timer {
    uint64_t time;  // as it is stored, as a number
    Slice key;      // as it is stored
    uint16_t key_group;
  };
  // The first `limit` of those of time <= until, or all of them; until the next call. They count as removed: who takes
  // them removes them.
  Result<std::span<const Timer>> Take(BaseReader* base, int64_t until, size_t limit);

  // Time of the slot's first timer, exact; nothing when it has none. Asks the base where no first key is known.
  Result<std::optional<int64_t>> NextTime(BaseReader* base);

  // No timer of the key group comes before it.
  Slice LowerBound(uint16_t key_group) const;

 private:
  // Where the first key of a key group that was read comes to stand.
  struct Visited {
    uint16_t key_group;
    FirstKey::State state;
    std::string bound;
  };
  // What one reading of the key groups finds.
  struct Found {
    std::string end;   // of what is read: keys before it; empty: all
    size_t limit;      // so many are kept in any case
    size_t count_max;  // … and at most so many, with so many bytes of keys
    size_t bytes_max;
    bool cut = false;  // whether some were left out, all from `end` on
    Arena keys = {};
    std::vector<Timer> timers = {};
    std::vector<Visited> visited = {};
  };

  // What waits, brought up to date; nothing when the order says that nothing is known any more.
  void Update();
  // Adds to what waits what comes behind it, up to `end`.
  Status ReadAhead(BaseReader* base, std::string end, size_t limit);
  Status ReadGroup(BaseReader* base, uint16_t key_group, const std::string& lower, Found* found);
  // Leaves out what comes last of too many.
  static void Cut(Found* found);
  // From here on these wait, and no others.
  void Keep(std::vector<Timer> timers, Arena keys);
  void CompactKeys();
  void Watch();
  bool any() const { return next_ < ahead_.size(); }

  Table* const table_;
  KeyOrder* const order_;
  std::vector<Arena> keys_;  // those that were read, and those that came since
  size_t keys_bytes_ = 0;
  size_t kept_bytes_ = 0;     // of the first
  std::vector<Timer> ahead_;  // in order; those from next_ on were not taken
  size_t next_ = 0;
  std::string end_;  // all that is present before it waits here; empty: all
};

}  // namespace holdfast
