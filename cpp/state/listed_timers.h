// The timers of the keys that are asked for, by key: filled while the timers of all keys of their key groups are read.
// Hashed with the process's secret, as tables are: whoever chose the keys of a stream chose those that timers are set
// for too. Thread-safety: none; belongs to one call.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "container/hash_index.h"
#include "holdfast/bytes.h"

namespace holdfast {

class ListedTimers {
 public:
  struct Timer {
    int64_t time;
    std::string name;  // its namespace
  };
  struct Asked {
    std::string key;
    std::vector<Timer> timers;
  };

  // The place of a key, one however often it is asked for; it stays where it is. `hash`: IndexHash of the key.
  Asked* Ask(Slice key, uint64_t hash) {
    return index_.FindOrInsert(
        hash, [&](const Asked& other) { return other.key == key; },
        [&] { return &asked_.emplace_back(Asked{std::string(key), {}}); });
  }
  // The place of a key that was asked for, or null.
  Asked* Find(Slice key, uint64_t hash) const {
    return index_.Find(hash, [&](const Asked& other) { return other.key == key; });
  }

  size_t LongestProbe() const { return index_.LongestProbe(); }

 private:
  HashIndex<Asked> index_;
  std::deque<Asked> asked_;
};

}  // namespace holdfast
