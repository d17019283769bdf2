// The live state of one slot at one version: typed states over an overlay over a base. See docs/rfcs/0001 for why,
// docs/formats/value.md for the bytes, python/holdfast/_core.pyi for the same interface in Python.
//
// A batch: Begin, operations, TakeDelta (any number of times: each gives the changes since the last), Commit. There is
// no undo. A call that fails and may have changed something poisons the Store: it refuses everything from then on, with
// an error of the first one's kind that holds its text. So does a call that changes states and fails for any reason,
// and within a batch a read that fails for what is stored: whoever catches the error, nothing of the batch can be
// prepared.
//
// Thread-safety: one thread at a time. Two at once is InvalidRequest for the later one, never a corrupted Store.
// Figures may be asked for by any thread at any time: they are those of the last call that ended.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/array.h"
#include "holdfast/base.h"
#include "holdfast/expiry.h"
#include "holdfast/status.h"
#include "holdfast/value_schemas.h"

namespace holdfast {

struct StoreOptions {
  int32_t max_parallelism = 0;
  int32_t first_key_group = 0;
  int32_t end_key_group = 0;  // one past the last
  bool null_keys = false;     // key columns may be null
  bool complete = false;      // the overlay is everything: the base is never read after Load
  // Keys, and values, of one piece of a delta: a column of it must stay below the 2 GiB that Arrow's 32-bit offsets
  // reach, with a last value as large as there are any.
  static constexpr int64_t kDeltaBytesMax = int64_t{1} << 30;
  int64_t delta_bytes_max = 64 << 20;
};

// In all tables `keys` are as for KeyCodec (one key column may come alone), one row an operation, applied in order of
// the rows. InvalidRequest, naming row and key group, for a key whose key group is not of the slot. Results have one
// row a key. Lists and maps with an id from 0x4000 to 0x7FFF are operator states: the slot has one of each, and keys
// are an array of type null.

class ValueTable {
 public:
  virtual ~ValueTable() = default;
  virtual Result<OwnedArray> Get(const OwnedArray& keys) = 0;  // null where there is none
  virtual Result<OwnedArray> Contains(const OwnedArray& keys) = 0;
  virtual Status Put(const OwnedArray& keys, const OwnedArray& values) = 0;  // null clears. Reads nothing
  virtual Status Clear(const OwnedArray& keys) = 0;                          // reads nothing
};

// What reducing and aggregating states have alike.
class FoldTable {
 public:
  virtual ~FoldTable() = default;
  virtual Result<OwnedArray> Add(const OwnedArray& keys, const OwnedArray& values) = 0;  // the result after each row
  virtual Status AddOnly(const OwnedArray& keys, const OwnedArray& values) = 0;
  virtual Result<OwnedArray> Get(const OwnedArray& keys) = 0;
  virtual Status Clear(const OwnedArray& keys) = 0;
};
class ReducingTable : public FoldTable {};
class AggregatingTable : public FoldTable {};

class ListTable {
 public:
  virtual ~ListTable() = default;
  virtual Status Append(const OwnedArray& keys, const OwnedArray& values) = 0;  // reads nothing
  virtual Result<OwnedArray> Get(const OwnedArray& keys) = 0;  // list<element>, empty where there is none
  virtual Status Clear(const OwnedArray& keys) = 0;
};

class MapTable {
 public:
  virtual ~MapTable() = default;
  virtual Result<OwnedArray> Get(const OwnedArray& keys, const OwnedArray& map_keys) = 0;
  virtual Result<OwnedArray> Contains(const OwnedArray& keys, const OwnedArray& map_keys) = 0;
  virtual Status Put(const OwnedArray& keys, const OwnedArray& map_keys, const OwnedArray& map_values) = 0;
  virtual Status Remove(const OwnedArray& keys, const OwnedArray& map_keys) = 0;
  virtual Result<OwnedArray> Entries(const OwnedArray& keys) = 0;  // map<key, value>, in map key order
  virtual Result<OwnedArray> Count(const OwnedArray& keys) = 0;    // int64
  virtual Status Clear(const OwnedArray& keys) = 0;
};

// (key, time, namespace), each at most once. `times`: int64 of whatever unit the caller keeps to, `namespaces`:
// strings; without nulls.
class TimerTable {
 public:
  virtual ~TimerTable() = default;
  // Both read nothing.
  virtual Status Register(const OwnedArray& keys, const OwnedArray& times, const OwnedArray& namespaces) = 0;
  virtual Status Delete(const OwnedArray& keys, const OwnedArray& times, const OwnedArray& namespaces) = 0;
  // struct<key, time, namespace>: of the slot's timers of time <= until the first `limit`, in order of time, encoded
  // key, namespace. They are removed. Fewer than `limit`: no other is due.
  virtual Result<OwnedArray> TakeDue(int64_t until, int64_t limit) = 0;
  // Time of the slot's first timer. Known without a look at the base, but for a key group's first time in a Store.
  virtual Result<std::optional<int64_t>> NextDue() = 0;
  // list<struct<time, namespace>>, in their order. Reads all timers of the keys' key groups.
  virtual Result<OwnedArray> List(const OwnedArray& keys) = 0;
};

class Store {
 public:
  virtual ~Store() = default;
  // `key_type`: a struct of the key columns.
  static Result<std::unique_ptr<Store>> Make(Type key_type, const StoreOptions& options);

  // Declares a state, or finds it when it was declared alike before; Incompatible when it was declared otherwise.
  // The tables belong to the Store. Functions of reducing states: sum, product, min, max, first, last, bool_and,
  // bool_or; of aggregating states: count, avg, variance, stddev (both of the sample).
  virtual Result<ValueTable*> ValueState(int64_t state_id, const Type& value) = 0;
  virtual Result<ListTable*> ListState(int64_t state_id, const Type& element) = 0;
  virtual Result<MapTable*> MapState(int64_t state_id, const Type& map_key, const Type& map_value) = 0;
  virtual Result<ReducingTable*> ReducingState(int64_t state_id, const Type& value, const std::string& function) = 0;
  virtual Result<AggregatingTable*> AggregatingState(int64_t state_id, const Type& value,
                                                     const std::string& function) = 0;
  // Ids from 0x8000 on are those of timers, and of nothing else: what is stored is read before it is declared.
  virtual Result<TimerTable*> Timers(int64_t state_id) = 0;

  // Moves to a base that holds the state at `sequence` (null: the empty state, or backend hashmap). What is pending
  // from later sequences stays pending, the rest becomes clean. An empty overlay moves to any sequence. In a batch, the
  // batch's own sequence means a base with all that TakeDelta has given so far.
  virtual Status SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) = 0;
  // complete: reads the slot's key groups of the base into the empty overlay.
  // SetBase says its sequence, before or after.
  virtual Status Load(std::shared_ptr<BaseReader> base) = 0;
  // Sequences ascend; the pieces of one delta may come one by one with the same sequence.
  virtual Status ApplyDelta(const OwnedArray& delta, int64_t sequence) = 0;

  virtual Status Begin(int64_t sequence) = 0;
  // Of a state that had others before, right after Make: what was written with them is read as the newest has it, and
  // what is written bears the newest's version. Without it a state has one schema. Whoever declares the state declares
  // what is stored as in `schemas.newest`, whose fields may have other names. InvalidRequest where earlier values
  // cannot be values of the newest.
  virtual Status SetSchemas(int64_t state_id, const ValueSchemas& schemas) = 0;
  // What becomes of a state's entries with time, from here on: of the version at hand, or, after Begin, in the batch.
  // InvalidRequest for a cutoff before the one that was set last, or a stamp that is not above it:
  // what is expired would come back, what is written be gone.
  virtual Status SetExpiry(int64_t state_id, const BatchExpiry& expiry) = 0;
  // As many changes as fit into one piece; dirty_bytes() is 0 when none is left.
  virtual Result<OwnedArray> TakeDelta() = 0;
  virtual Status Commit() = 0;

  // Forgets the whole overlay, between TakeDelta and SetBase to a base that holds it. Declared states stay.
  virtual Status Reset() = 0;
  // Forgets what is not pending.
  virtual Status EvictClean() = 0;

  // Ok, or what a poisoned Store answers.
  virtual Status Check() const = 0;

  virtual int64_t sequence() const = 0;
  virtual int64_t memory_bytes() const = 0;   // taken from the system
  virtual int64_t pending_bytes() const = 0;  // keys, values and records of what the base does not hold
  virtual int64_t dirty_bytes() const = 0;    // the same, of what was changed since the last TakeDelta

  struct Distinct {
    OwnedArray codes;  // int32, one a row, by first appearance
    OwnedArray rows;   // int32, the first row of each distinct key
  };
  virtual Result<Distinct> DistinctKeys(const OwnedArray& keys) = 0;

  // Since the Store was made: lookups (rows of all operations), base_reads, base_hits, base_scans, expired (entries
  // that operations met, and were gone), written and removed (rows of deltas); now: entries.
  virtual std::map<std::string, int64_t> Counters() const = 0;
};

}  // namespace holdfast
