// The timers of a slot that are due, in order of time over all its key groups, which lie one after the other in the
// store. The table's first keys (overlay/key_order.h) say which key groups have any, so that a slot where none is due
// is not read at all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "container/arena.h"
#include "overlay/ordered_cursor.h"
#include "overlay/table.h"

namespace holdfast {

class DueTimers {
 public:
  // Those of time <= until, at most `limit` of the first. Moves the first keys on, as if they had been removed: who
  // makes one removes them.
  static Result<DueTimers> Find(Table* table, BaseReader* base, int64_t until, size_t limit);

  // In order of time, key, namespace.
  struct Timer {
    Slice key;  // as it is stored
    uint16_t key_group;
    Entry* entry;  // null when only the base has it
  };
  const std::vector<Timer>& timers() const { return timers_; }

 private:
  explicit DueTimers(size_t limit) : limit_(limit) {}
  Status FindInGroup(Table* table, BaseReader* base, uint16_t key_group, Slice after_due);
  // Keeps the first `limit_`.
  void Cut();

  Arena keys_;
  std::vector<Timer> timers_;
  size_t limit_;
  Slice cut_at_;  // the last key that was kept when some were left out; null: all are here
  // Where the first key of a visited key group comes to stand.
  struct Visited {
    uint16_t key_group;
    FirstKey::State state;
    std::string bound;
  };
  std::vector<Visited> visited_;
};

// Time of the slot's first timer, exact; nothing when it has none. Asks the base where no first key is known.
Result<std::optional<int64_t>> NextDueTime(Table* table, BaseReader* base);

}  // namespace holdfast
