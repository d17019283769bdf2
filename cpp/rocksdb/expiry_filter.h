// What leaves a base because its time to live is over: as changes are written, and as RocksDB merges tables. And the
// record of when all tables were last merged for it, a file of the base: docs/formats/base.md.
// A filter is constant once made, but for its count; RocksDB asks it from several threads.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <string>

#include "holdfast/expiry.h"
#include "rocksdb/handles.h"

namespace holdfast::rocks {

// Not a name that RocksDB gives a file.
inline constexpr const char* kExpiryName = "EXPIRY";

class ExpiryFilter {
 public:
  explicit ExpiryFilter(std::span<const StateExpiry> states);
  ExpiryFilter(const ExpiryFilter&) = delete;
  ExpiryFilter& operator=(const ExpiryFilter&) = delete;

  bool any() const { return !states_.empty(); }
  // Of a store key and a stored value. One that cannot be read stays, for whoever reads it to say so.
  bool IsExpired(Slice key, Slice value) const;
  // For the options of a database that is closed before this goes.
  Handle<CCompactionFilter> ForCompaction(const CApi& api) const;
  // The same answer, for an entry that leaves for it.
  bool Drops(Slice key, Slice value) const {
    const bool expired = IsExpired(key, value);
    if (expired) dropped_.fetch_add(1, std::memory_order_relaxed);
    return expired;
  }
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::map<uint16_t, Expiry> states_;
  mutable std::atomic<int64_t> dropped_ = 0;
};

// By state, the cutoff up to which all tables are known to be free of expired entries; empty where no file says so.
// Corrupt for a file that is none of ours.
Result<std::map<uint16_t, int64_t>> ReadMerged(const std::string& directory);
Status WriteMerged(const std::string& directory, const std::map<uint16_t, int64_t>& merged);
// Takes states in that were not there: nothing of theirs is expired yet. Whether a state's cutoff has moved by its step
// since: then all of them are set to their cutoffs, for the merge that is due.
bool MoveMerged(std::span<const StateExpiry> states, std::map<uint16_t, int64_t>* merged);

}  // namespace holdfast::rocks
