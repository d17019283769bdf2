// The present entries of a table, without those that have expired, in the order of their store keys: what the overlay
// knows, and the base beneath it. For ordered states and for scans; reads nothing into the overlay. A table that keeps
// no order is sorted for the cursor.
// A cursor stays good while entries are added, put and removed (it may or may not meet what was added); it ends with
// the next cursor of its table, and when the table is rebuilt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "holdfast/base.h"
#include "overlay/table.h"

namespace holdfast {

// Of each key group of [first_group, end_group), the keys (without their four-byte prefix) lower <= key < upper.
struct ScanRange {
  uint16_t first_group;
  uint16_t end_group;
  Slice lower = {};
  Slice upper = {};  // empty: to the end of the key group
};

class OrderedCursor {
 public:
  // `base` null: there is none, or the table is complete. Corrupt or Incompatible for a stored value that cannot be
  // read, and what the base says when it cannot go on, here and in Next.
  static Result<OrderedCursor> Make(Table* table, BaseReader* base, const ScanRange& range);

  bool Valid() const { return valid_; }
  Status Next();
  uint16_t key_group() const { return key_group_; }
  Slice key() const { return key_; }  // without its prefix; until Next()
  Slice row() const { return row_; }  // of the value, null data() for a null; until Next()
  // In the overlay; null when only the base has it.
  Entry* entry() const { return entry_; }

 private:
  struct Run {
    const SortKey* next;
    const SortKey* end;
  };

  OrderedCursor(Table* table, BaseReader* base, const ScanRange& range);
  // To the range's begin in the key group at hand.
  Status Enter();
  // The entries of a run that are in the range, in the key group at hand.
  Run PartOf(std::span<const SortKey> run) const;
  // The run that stands at the least entry, or null.
  Run* LeastRun();
  // To the next present key at or after where the runs and the base stand.
  Status Settle();
  Status SettleInGroup();
  Status CheckStored(Slice value) const;

  Table* table_;
  BaseReader* reader_;
  uint16_t key_group_;
  uint16_t end_group_;
  std::string lower_;
  std::string upper_;
  std::vector<SortKey> sorted_;  // of a table that keeps no order
  std::vector<Run> runs_;
  std::unique_ptr<BaseIterator> base_;  // null: none, or at its end in the key group at hand
  bool valid_ = false;
  Slice key_;
  Slice row_;
  Entry* entry_ = nullptr;
  bool from_base_ = false;  // the key at hand is where base_ stands
  Run* from_run_ = nullptr;
};

}  // namespace holdfast
