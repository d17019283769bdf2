// The Store: declared states, their overlay tables, the base, the version. The states (value_state.cc …) work on it
// through this header; nothing else does.
// Thread-safety: one thread at a time; Operation notices two.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "holdfast/key_codec.h"
#include "holdfast/store.h"
#include "overlay/base_read.h"
#include "overlay/table.h"
#include "overlay/versions.h"
#include "state/key_groups.h"

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
  Result<OwnedArray> TakeDelta() override;
  Status Commit() override;
  Status Reset() override;
  Status EvictClean() override;

  int64_t sequence() const override { return versions_.sequence(); }
  int64_t memory_bytes() const override;
  int64_t pending_bytes() const override { return versions_.pending_bytes(); }
  int64_t dirty_bytes() const override { return versions_.in_batch() ? versions_.changed_bytes() : 0; }
  Result<Distinct> DistinctKeys(const OwnedArray& keys) override;
  std::map<std::string, int64_t> Counters() const override;

  // --- for the states and the Restorer
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
  void ForgetAbsent();
  bool Changed() const;
  bool Empty() const;

  const KeyCodec key_codec_;
  const SlotKeyGroups key_groups_;
  const bool null_keys_;
  const bool complete_;

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
  std::atomic<bool> busy_ = false;
};

enum class Access { kRead, kWrite };

// Open while a call works on the Store; its status is InvalidRequest when the Store cannot be used so now.
class Operation {
 public:
  Operation(SlotStore* store, Access access);
  // For calls about the version, which may come at any time.
  explicit Operation(SlotStore* store);
  ~Operation() {
    if (entered_) store_->busy_.store(false, std::memory_order_release);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  const Status& status() const { return status_; }

 private:
  SlotStore* store_;
  bool entered_;
  Status status_;
};

}  // namespace holdfast
