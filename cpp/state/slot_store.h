// The Store: declared states, their overlay tables, the base, the version. The states (value_state.cc …) work on it
// through this header; nothing else does.
// Thread-safety: one thread at a time; Operation notices two. Any thread may ask for figures: each call leaves them
// behind when it ends.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "holdfast/key_codec.h"
#include "holdfast/store.h"
#include "overlay/base_read.h"
#include "overlay/table.h"
#include "overlay/versions.h"
#include "state/key_groups.h"
#include "state/operation.h"

namespace holdfast {

class SlotStore final : public Store {
 public:
  SlotStore(KeyCodec key_codec, const StoreOptions& options);
  ~SlotStore() override;

  Result<ValueTable*> ValueState(int64_t state_id, const Type& value) override;
  Result<ListTable*> ListState(int64_t state_id, const Type& element) override;
  Result<MapTable*> MapState(int64_t state_id, const Type& map_key, const Type& map_value) override;
  Result<ReducingTable*> ReducingState(int64_t state_id, const Type& value, const std::string& function) override;
  Result<AggregatingTable*> AggregatingState(int64_t state_id, const Type& value, const std::string& function) override;

  Status SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) override;
  Status Load(std::shared_ptr<BaseReader> base) override;
  Status ApplyDelta(const OwnedArray& delta, int64_t sequence) override;
  Status Begin(int64_t sequence) override;
  Status SetExpiry(int64_t state_id, const BatchExpiry& expiry) override;
  Result<OwnedArray> TakeDelta() override;
  Status Commit() override;
  Status Reset() override;
  Status EvictClean() override;

  Status Check() const override { return poison_.Check(); }

  int64_t sequence() const override { return figures_.sequence; }
  int64_t memory_bytes() const override { return figures_.memory_bytes; }
  int64_t pending_bytes() const override { return figures_.pending_bytes; }
  int64_t dirty_bytes() const override { return figures_.dirty_bytes; }
  Result<Distinct> DistinctKeys(const OwnedArray& keys) override;
  std::map<std::string, int64_t> Counters() const override;

  // --- for the states and the Restorer
  // Runs a call that works on the Store: `work` returns a Status or a Result. A call that fails half-way poisons the
  // Store: one that changes states, or throws, in any case; others, when what is stored cannot be read.
  template <typename Work>
  std::invoke_result_t<Work> Run(const Call& call, Work&& work);
  const KeyCodec& key_codec() const { return key_codec_; }
  const SlotKeyGroups& key_groups() const { return key_groups_; }
  bool null_keys() const { return null_keys_; }
  BaseReader* base() const { return complete_ ? nullptr : base_.get(); }
  ReadCounters* read_counters() { return &read_counters_; }
  void CountRows(int64_t rows) { rows_ += rows; }
  void CountLookups(int64_t keys) { keys_looked_up_ += keys; }
  Table* TableOf(uint16_t state_id);
  // Whether the state was declared as one that keeps one entry a key. States may be restored before they are declared.
  bool HasValuesLayout(uint16_t state_id) const;
  // The next list index: (sequence << 32) | ordinal. InvalidRequest when a batch has used them all up.
  Result<uint64_t> NextListIndex();

 private:
  friend class Operation;

  enum class Layout { kValues, kElements };
  struct Declared {
    std::string description;  // kind, function and types, as errors name them
    Layout layout;
    std::variant<std::unique_ptr<ValueTable>, std::unique_ptr<ListTable>, std::unique_ptr<MapTable>,
                 std::unique_ptr<ReducingTable>, std::unique_ptr<AggregatingTable>>
        table;
  };

  // The state's table: the one declared alike before, or what `make_handle(Table*)` makes.
  template <typename Handle, typename MakeHandle>
  Result<Handle*> Declare(int64_t state_id, const std::string& description, Layout layout, MakeHandle make_handle);
  static Status CheckStateId(int64_t state_id);
  // Whether a call may begin, by what is known of the version.
  Status CheckReadable() const;
  Status CheckInBatch() const;
  void NoteFailure(const Call& call, const Status& failure);
  void ForgetAbsent();
  void ExpireSome();
  void LeaveFigures();
  bool Changed() const;
  bool Empty() const;

  const KeyCodec key_codec_;
  const SlotKeyGroups key_groups_;
  const bool null_keys_;
  const bool complete_;
  const size_t delta_bytes_max_;

  Versions versions_;
  std::shared_ptr<BaseReader> base_;
  bool loaded_ = false;      // complete: the overlay is what Load read, and nothing happened since
  bool needs_load_ = false;  // complete: the base holds what the overlay does not
  std::map<uint16_t, std::unique_ptr<Table>> tables_;
  std::map<uint16_t, Declared> declared_;
  uint32_t next_ordinal_ = 0;
  ReadCounters read_counters_;
  int64_t rows_ = 0;
  int64_t keys_looked_up_ = 0;

  // What the last call left behind for whoever asks.
  struct Figures {
    std::atomic<int64_t> sequence = 0;
    std::atomic<int64_t> memory_bytes = 0;
    std::atomic<int64_t> pending_bytes = 0;
    std::atomic<int64_t> dirty_bytes = 0;
    std::atomic<int64_t> entries = 0;
    std::atomic<int64_t> rows = 0;
    std::atomic<int64_t> keys_looked_up = 0;
    std::atomic<int64_t> base_reads = 0;
    std::atomic<int64_t> base_hits = 0;
    std::atomic<int64_t> base_scans = 0;
  };
  Figures figures_;
  Poison poison_;
  std::atomic<bool> busy_ = false;
};

// Open while a call works on the Store; its status says why the Store cannot be used so now.
class Operation {
 public:
  Operation(SlotStore* store, const Call& call);
  ~Operation() {
    if (!entered_) return;
    store_->LeaveFigures();
    store_->busy_.store(false, std::memory_order_release);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  const Status& status() const { return status_; }

 private:
  SlotStore* store_;
  bool entered_;
  Status status_;
};

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

template <typename Work>
std::invoke_result_t<Work> SlotStore::Run(const Call& call, Work&& work) {
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

}  // namespace holdfast
