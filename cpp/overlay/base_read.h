// Reads from the base into the overlay: values of entries that are not known yet, and all elements of one key.
// What is read is clean: it bears the mark 0.
#pragma once

#include <vector>

#include "holdfast/base.h"
#include "overlay/table.h"

namespace holdfast {

struct ReadCounters {
  int64_t base_reads = 0;  // keys that the base was asked for
  int64_t base_hits = 0;   // of these, found
  int64_t base_scans = 0;  // keys whose elements were scanned
};

// Makes every one of these entries known, asking the base (null: there is none) in one call. Their order changes.
// Corrupt or Incompatible, naming state and key group, for a value with a header that this version does not read.
Status ReadEntries(BaseReader* base, Table* table, std::vector<Entry*>* entries, ReadCounters* counters);

enum class ScanFor {
  kValues,
  kTombstones,  // only that the elements exist matters: they are about to be removed
};
// Makes every one of these heads loaded. Their order changes; the same head may be given several times.
Status LoadHeads(BaseReader* base, Table* table, std::vector<Head*>* heads, ScanFor scan_for, ReadCounters* counters);

}  // namespace holdfast
