// The Store's edge: its options, deltas and figures; see slot_store_states.cc for how states are declared.
#include "state/slot_store.h"

#include "codec/delta_view.h"
#include "state/delta_array.h"
#include "state/resolved_rows.h"

namespace holdfast {

Result<std::unique_ptr<Store>> Store::Make(Type key_type, const StoreOptions& options) {
  const bool in_range = options.max_parallelism >= 1 && options.max_parallelism <= kMaxParallelismLimit &&
                        options.first_key_group >= 0 && options.first_key_group < options.end_key_group &&
                        options.end_key_group <= options.max_parallelism;
  if (!in_range) {
    return Status::InvalidRequest(
        "expected 0 <= first_key_group < end_key_group <= max_parallelism <= " + std::to_string(kMaxParallelismLimit) +
        ", found " + std::to_string(options.first_key_group) + ", " + std::to_string(options.end_key_group) + ", " +
        std::to_string(options.max_parallelism));
  }
  if (options.delta_bytes_max < 1 || options.delta_bytes_max > StoreOptions::kDeltaBytesMax) {
    return Status::InvalidRequest("delta_bytes_max: expected 1 to " + std::to_string(StoreOptions::kDeltaBytesMax) +
                                  ", found " + std::to_string(options.delta_bytes_max));
  }
  HOLDFAST_ASSIGN_OR_RETURN(KeyCodec codec, KeyCodec::Make(std::move(key_type), options.null_keys));
  return std::unique_ptr<Store>(std::make_unique<SlotStore>(std::move(codec), options));
}

SlotStore::SlotStore(KeyCodec key_codec, const StoreOptions& options)
    : key_codec_(std::move(key_codec)),
      engine_({{options.max_parallelism, options.first_key_group, options.end_key_group},
               options.complete,
               static_cast<size_t>(options.delta_bytes_max),
               [this](Slice bytes) { return key_codec_.EncodedLength(bytes); }}) {}

SlotStore::~SlotStore() = default;

Status SlotStore::ApplyDelta(const OwnedArray& delta, int64_t sequence) {
  return Run({"apply_delta", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(engine_.CheckReadable());
    HOLDFAST_ASSIGN_OR_RETURN(const DeltaView view, DeltaView::Make(delta));
    return engine_.ApplyEntries(sequence, view.length(), [&view](int64_t i) {
      const bool present = view.has_value(i);
      return StoredEntry{view.key_group(i), view.state_id(i), view.key(i), present ? view.value(i) : Slice(), present};
    });
  });
}

Status SlotStore::SetSchemas(int64_t state_id, const ValueSchemas& schemas) {
  HOLDFAST_RETURN_IF_ERROR(CheckStateId(state_id));
  HOLDFAST_ASSIGN_OR_RETURN(std::unique_ptr<EarlierRows> earlier, MakeResolvedRows(schemas));
  return engine_.SetEarlier(static_cast<uint16_t>(state_id), std::move(earlier));
}

Status SlotStore::SetExpiry(int64_t state_id, const BatchExpiry& expiry) {
  HOLDFAST_RETURN_IF_ERROR(CheckStateId(state_id));
  return engine_.SetExpiry(static_cast<uint16_t>(state_id), expiry);
}

Result<OwnedArray> SlotStore::TakeDelta() {
  return Run({"take_delta", nullptr, Access::kVersion}, [&]() -> Result<OwnedArray> {
    HOLDFAST_ASSIGN_OR_RETURN(DeltaPiece piece, engine_.TakeDelta());
    return DeltaArray(std::move(piece));
  });
}

std::map<std::string, int64_t> SlotStore::Counters() const {
  const EngineFigures& figures = engine_.figures();
  return {{"lookups", figures.lookups},       {"base_reads", figures.base_reads}, {"base_hits", figures.base_hits},
          {"base_scans", figures.base_scans}, {"expired", figures.expired},       {"written", figures.written},
          {"removed", figures.removed},       {"entries", figures.entries}};
}

}  // namespace holdfast
