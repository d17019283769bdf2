// The Store: states declared over the slot's engine, and the codec of their keys. The states (value_state.cc …) work on
// it through this header; nothing else does. Thread-safety: the engine's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>

#include "holdfast/key_codec.h"
#include "holdfast/store.h"
#include "overlay/layout.h"
#include "overlay/slot_engine.h"

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
  Result<TimerTable*> Timers(int64_t state_id) override;

  Status SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) override {
    return engine_.SetBase(std::move(base), sequence);
  }
  Status Load(std::shared_ptr<BaseReader> base) override { return engine_.Load(std::move(base)); }
  Status ApplyDelta(const OwnedArray& delta, int64_t sequence) override;
  Status Begin(int64_t sequence) override { return engine_.Begin(sequence); }
  Status SetSchemas(int64_t state_id, const ValueSchemas& schemas) override;
  Status SetExpiry(int64_t state_id, const BatchExpiry& expiry) override;
  Result<OwnedArray> TakeDelta() override;
  Status Commit() override { return engine_.Commit(); }
  Status Reset() override { return engine_.Reset(); }
  Status EvictClean() override { return engine_.EvictClean(); }
  Status Check() const override { return engine_.Check(); }

  int64_t sequence() const override { return engine_.figures().sequence; }
  int64_t memory_bytes() const override { return engine_.figures().memory_bytes; }
  int64_t pending_bytes() const override { return engine_.figures().pending_bytes; }
  int64_t dirty_bytes() const override { return engine_.figures().dirty_bytes; }
  Result<Distinct> DistinctKeys(const OwnedArray& keys) override;
  std::map<std::string, int64_t> Counters() const override;

  // --- for the states
  template <typename Work>
  std::invoke_result_t<Work> Run(const Call& call, Work&& work) {
    return engine_.Run(call, std::forward<Work>(work));
  }
  SlotEngine* engine() { return &engine_; }
  BaseReader* base() const { return engine_.base(); }
  ReadCounters* read_counters() { return engine_.read_counters(); }
  const KeyCodec& key_codec() const { return key_codec_; }
  const SlotKeyGroups& key_groups() const { return engine_.key_groups(); }

 private:
  struct Declared {
    std::string description;  // kind, function and types, as errors name them
    std::variant<std::unique_ptr<ValueTable>, std::unique_ptr<ListTable>, std::unique_ptr<MapTable>,
                 std::unique_ptr<ReducingTable>, std::unique_ptr<AggregatingTable>, std::unique_ptr<TimerTable>>
        table;
  };

  // The state's table: the one declared alike before, or what `make_handle(Table*)` makes.
  template <typename Handle, typename MakeHandle>
  Result<Handle*> Declare(int64_t state_id, const std::string& description, layout::Kind kind, MakeHandle make_handle);
  static Status CheckStateId(int64_t state_id);

  const KeyCodec key_codec_;
  SlotEngine engine_;
  std::map<uint16_t, Declared> declared_;
};

}  // namespace holdfast
