// When the entries of a state with time to live (TTL) are gone. See docs/rfcs/0009.
//
// An entry has a stamp: the time of its last write, or of the last read that refreshed it. The state has a cutoff,
// which only grows along the history of a slot: an entry whose stamp is not above it is expired, for every reader of
// this version and of all that follow from it. Times are the batches', in milliseconds since 1970; no clock is asked.
#pragma once

#include <cstdint>
#include <limits>

namespace holdfast {

inline constexpr int64_t kNoCutoff = std::numeric_limits<int64_t>::min();

struct Expiry {
  int64_t cutoff_ms = kNoCutoff;
  int64_t since_ms = std::numeric_limits<int64_t>::max();  // the stamp of entries that have none

  bool any() const { return cutoff_ms != kNoCutoff; }
  bool IsExpired(bool stamped, int64_t stamp_ms) const { return (stamped ? stamp_ms : since_ms) <= cutoff_ms; }
};

// What a batch does with a state's entries.
struct BatchExpiry {
  Expiry expiry;
  bool stamps = false;           // writes stamp
  int64_t stamp_ms = 0;          // with this, which is above the cutoff
  bool refresh_on_read = false;  // reads stamp too
};

// What is left out of a base that is made. A state that was dropped has the greatest cutoff that there is.
struct StateExpiry {
  uint16_t state_id;
  Expiry expiry;
  // All tables are merged once the cutoff has moved so far since they were last, 0: not for this state's sake.
  int64_t merge_step_ms;
};

}  // namespace holdfast
