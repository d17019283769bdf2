// The engine of one slot: tables of bytes over a base, at one version. It knows keys, values, versions and key groups;
// not what the bytes mean, and no Arrow. Typed states and timers (cpp/state) are its clients.
//
// A batch: Begin, operations, TakeDelta (any number of times: each gives the changes since the last), Commit; to abort
// is to drop the engine. An operation runs within Run; one that failed poisons the batch. Within it a client finds the
// entries of a block of keys (Table::PrefetchEntry, Intern; ReadEntries for those that are not known), then puts and
// removes (Table::Put, PutIfAbsent, Remove) or reads on in order (OrderedCursor).
// Thread-safety: one thread at a time; Operation notices two. Any thread may ask for figures: each call leaves them
// behind when it ends.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>

#include "holdfast/base.h"
#include "holdfast/expiry.h"
#include "overlay/base_read.h"
#include "overlay/delta.h"
#include "overlay/key_groups.h"
#include "overlay/layout.h"
#include "overlay/operation.h"
#include "overlay/restorer.h"
#include "overlay/table.h"
#include "overlay/versions.h"

namespace holdfast {

struct EngineOptions {
  SlotKeyGroups key_groups;
  bool complete;           // the tables are everything: the base is never read after Load
  size_t delta_bytes_max;  // keys, and values, of one piece of a delta
  // The length of the encoded key that these bytes begin with, which says its key group. None: keys are raw,
  // all their bytes are the client's own, and so is the choice of their key group (RawKey):
  // equal bytes in two key groups are two keys.
  std::function<Result<size_t>(Slice)> key_length;
};

// What the last call left behind for whoever asks.
struct EngineFigures {
  std::atomic<int64_t> sequence = 0;
  std::atomic<int64_t> memory_bytes = 0;   // taken from the system
  std::atomic<int64_t> pending_bytes = 0;  // keys, values and records of what the base does not hold
  std::atomic<int64_t> dirty_bytes = 0;    // the same, of what was changed since the last TakeDelta
  std::atomic<int64_t> entries = 0;
  std::atomic<int64_t> expired = 0;
  std::atomic<int64_t> lookups = 0;
  std::atomic<int64_t> written = 0;
  std::atomic<int64_t> removed = 0;
  std::atomic<int64_t> base_reads = 0;
  std::atomic<int64_t> base_hits = 0;
  std::atomic<int64_t> base_scans = 0;
};

class SlotEngine {
 public:
  explicit SlotEngine(EngineOptions options);
  SlotEngine(const SlotEngine&) = delete;
  SlotEngine& operator=(const SlotEngine&) = delete;

  // --- versions: what each means is said at Store (holdfast/store.h)
  Status SetBase(std::shared_ptr<BaseReader> base, int64_t sequence);
  Status Load(std::shared_ptr<BaseReader> base);
  // The entries of one piece of a delta, entry_at(i) a StoredEntry for each i below `count`; their bytes stay for the
  // call. Within Run, once what they are read from has been checked, with CheckReadable before.
  template <typename EntryAt>
  Status ApplyEntries(int64_t sequence, int64_t count, EntryAt&& entry_at);
  Status Begin(int64_t sequence);
  // Before anything of the state is read; InvalidRequest afterwards.
  Status SetEarlier(uint16_t state_id, std::unique_ptr<EarlierRows> earlier);
  // InvalidRequest for an ordered state too: the first of its keys must not go by itself.
  Status SetExpiry(uint16_t state_id, const BatchExpiry& expiry);
  // Within Run: a piece that is lost on its way out must poison the batch.
  Result<DeltaPiece> TakeDelta();
  Status Commit();
  Status Reset();
  Status EvictClean();
  Status Check() const { return poison_.Check(); }
  const EngineFigures& figures() const { return figures_; }

  // --- operations
  // Runs a call that works on the engine: `work` returns a Status or a Result. A call that fails half-way poisons the
  // batch: one that changes states, or throws, in any case; others, when what is stored cannot be read.
  template <typename Work>
  std::invoke_result_t<Work> Run(const Call& call, Work&& work);
  // Made when new. States may be restored before they are declared.
  Table* TableOf(uint16_t state_id);
  // From here on the state's keys have nothing behind them.
  void DeclareWhole(uint16_t state_id) { whole_.insert(state_id); }
  bool IsWhole(uint16_t state_id) const { return whole_.contains(state_id); }
  // (sequence << 32) | ordinal, each once in a slot's history. InvalidRequest when a batch has used them all up.
  Result<uint64_t> NextOrdinal();

  const SlotKeyGroups& key_groups() const { return options_.key_groups; }
  const std::function<Result<size_t>(Slice)>& key_length() const { return options_.key_length; }
  BaseReader* base() const { return options_.complete ? nullptr : base_.get(); }
  ReadCounters* read_counters() { return &read_counters_; }
  void CountLookups(int64_t rows) { lookups_ += rows; }
  Status CheckReadable() const;

 private:
  friend class Operation;

  // The entries of keys in [lower, upper); an empty upper: to the end.
  Status LoadRange(BaseReader* base, Slice lower, Slice upper);
  Status CheckInBatch() const;
  void NoteFailure(const Call& call, const Status& failure);
  void ForgetAbsent();
  void ExpireSome();
  void ForgetOrder();
  void LeaveFigures();
  bool Changed() const;
  bool Empty() const;

  const EngineOptions options_;
  Versions versions_;
  std::shared_ptr<BaseReader> base_;
  bool loaded_ = false;      // complete: the overlay is what Load read, and nothing happened since
  bool needs_load_ = false;  // complete: the base holds what the overlay does not
  std::map<uint16_t, std::unique_ptr<Table>> tables_;
  std::set<uint16_t> whole_;
  uint32_t next_ordinal_ = 0;
  ReadCounters read_counters_;
  int64_t lookups_ = 0;
  int64_t written_ = 0;  // entries with a value in deltas that were taken
  int64_t removed_ = 0;  // tombstones there
  EngineFigures figures_;
  Poison poison_;
  std::atomic<bool> busy_ = false;
};

// Open while a call works on the engine; its status says why it cannot be used so now.
class Operation {
 public:
  Operation(SlotEngine* engine, const Call& call);
  ~Operation() {
    if (!entered_) return;
    engine_->LeaveFigures();
    engine_->busy_.store(false, std::memory_order_release);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  const Status& status() const { return status_; }

 private:
  SlotEngine* engine_;
  bool entered_;
  Status status_;
};

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

template <typename Work>
std::invoke_result_t<Work> SlotEngine::Run(const Call& call, Work&& work) {
  const Operation operation(this, call);
  if (!operation.status().ok()) return operation.status();
  try {
    std::invoke_result_t<Work> answer = std::forward<Work>(work)();
    if (!StatusOf(answer).ok()) NoteFailure(call, StatusOf(answer));
    return answer;
  } catch (...) {
    Status thrown = ThrownBy(call);
    poison_.Set(call, thrown);
    return thrown;
  }
}

template <typename EntryAt>
Status SlotEngine::ApplyEntries(int64_t sequence, int64_t count, EntryAt&& entry_at) {
  HOLDFAST_RETURN_IF_ERROR(versions_.BeginApply(sequence));
  loaded_ = false;
  Restorer restorer(this, versions_.mark());
  for (int64_t i = 0; i < count; ++i) HOLDFAST_RETURN_IF_ERROR(restorer.Add(entry_at(i)));
  return restorer.Finish();
}

}  // namespace holdfast
