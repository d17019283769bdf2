// Bases kept in RocksDB: the only door to cpp/rocksdb. See docs/rfcs/0001 and docs/formats/snapshot.md.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base.h"
#include "holdfast/expiry.h"

namespace holdfast {

// Loads RocksDB's C API from `path` (a shared library), once a process. A second call with the same path is a no-op,
// with another path InvalidRequest. If the library is already loaded in this process (a JVM), that copy is used
// (RTLD_NOLOAD). Unavailable when the library or one of the functions is missing: says which, where it was looked for,
// and what to set.
Status LoadRocksDb(const std::string& path);

struct BaseOptions {
  size_t block_cache_bytes = 8 << 20;  // reads go through mmap: the page cache is the cache, shared by all processes
  std::string compression = "none";    // "none", "lz4", "zstd" …: mmap reads are zero-copy only without compression
  int compaction_threads = 1;
  int max_runs = 8;  // universal compaction's trigger
};

// Opens the base in `directory` read-only. Corrupt when RocksDB refuses it. Reads verify block checksums: Corrupt,
// never wrong values.
Result<std::unique_ptr<BaseReader>> OpenBase(const std::string& directory, const BaseOptions& options);

// One change of a store key: its new value, or a tombstone.
struct Change {
  Slice key;
  Slice value;
  bool deleted;
};

// Makes the next base: the old one's SSTs hard-linked into a new folder, plus changes, later ones winning.
// Usage: Make, Add in order of versions, Finish (or destroy to abandon; the folder is left for the caller to delete).
class BaseWriter {
 public:
  virtual ~BaseWriter() = default;
  // `parent` empty: starts from nothing. `directory` must not exist yet. `expiry`: as of the version that the base will
  // be of; what is expired leaves as tables are merged.
  static Result<std::unique_ptr<BaseWriter>> Make(const std::string& parent, const std::string& directory,
                                                  const BaseOptions& options, std::vector<StateExpiry> expiry = {});
  // Copies; later ones win. Dozens at a time are faster than one by one. InvalidRequest, and then none is added, for a
  // key that is empty, or a key or value of more than 2 GiB.
  virtual Status Add(std::span<const Change> changes) = 0;
  // What the changes so far take. Sorting them in Finish takes hardly more: the hash table goes first.
  virtual size_t memory_bytes() const = 0;
  // Sorts, merges by key, writes one SST, ingests, compacts, closes. Keys that came in order over no parent are in SSTs
  // by then. Returns the file names in the folder.
  virtual Result<std::vector<std::string>> Finish() = 0;
  // Entries that Finish left out because they are expired.
  virtual int64_t expired() const = 0;
};

}  // namespace holdfast
