// Versions, bases and deltas of a Store; see slot_store_states.cc for how states are declared.
#include "state/slot_store.h"

#include <algorithm>

#include "codec/store_key.h"
#include "overlay/delta.h"
#include "state/restorer.h"

namespace holdfast {

Operation::Operation(SlotStore* store, const Call& call)
    : store_(store), entered_(!store->busy_.exchange(true, std::memory_order_acquire)) {
  if (!entered_) {
    status_ = Status::InvalidRequest("the Store is in use by another thread; a Store belongs to one thread at a time");
    // The batch lacks what this call should have changed.
    if (call.access == Access::kWrite) store->poison_.Set(call, status_);
    return;
  }
  status_ = store->poison_.Check();
  if (call.access == Access::kVersion) return;
  if (status_.ok()) status_ = store->CheckReadable();
  if (status_.ok() && call.access == Access::kWrite) status_ = store->CheckInBatch();
}

Status SlotStore::CheckReadable() const {
  HOLDFAST_RETURN_IF_ERROR(versions_.CheckReadable());
  if (!needs_load_) return Status::Ok();
  return Status::InvalidRequest("a complete Store was given a base that it has not read; load() it first");
}

Status SlotStore::CheckInBatch() const {
  if (versions_.in_batch()) return Status::Ok();
  return Status::InvalidRequest("states are changed within a batch only; begin(sequence) first");
}

void SlotStore::NoteFailure(const Call& call, const Status& failure) {
  const bool is_request = failure.code() == Code::kInvalidRequest;
  // A read that was asked wrongly has changed nothing. One that failed within a batch, whoever catches it, leaves a
  // batch that went on without knowing its state.
  const bool poisons =
      call.access == Access::kWrite || (!is_request && (call.access == Access::kVersion || versions_.in_batch()));
  if (poisons) poison_.Set(call, failure);
}

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
      key_groups_(options.max_parallelism, options.first_key_group, options.end_key_group),
      null_keys_(options.null_keys),
      complete_(options.complete),
      delta_bytes_max_(static_cast<size_t>(options.delta_bytes_max)) {
  LeaveFigures();
}

SlotStore::~SlotStore() = default;

bool SlotStore::Changed() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return !table.second->changed().empty(); });
}

bool SlotStore::Empty() const {
  return std::all_of(tables_.begin(), tables_.end(), [](const auto& table) { return table.second->empty(); });
}

Status SlotStore::SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) {
  return Run({"set_base", nullptr, Access::kVersion}, [&]() -> Status {
    const bool empty = Empty();
    // Not to an older base: a complete Store that is empty has read all there is.
    const bool jumps = sequence > versions_.sequence() && !versions_.in_batch();
    HOLDFAST_RETURN_IF_ERROR(versions_.SetBase(sequence, empty || loaded_, Changed()));
    if (complete_ && empty && !loaded_ && jumps) needs_load_ = base != nullptr;
    base_ = std::move(base);
    ForgetAbsent();
    return Status::Ok();
  });
}

// Keys come and go: what is long deleted must not pile up.
void SlotStore::ForgetAbsent() {
  for (const auto& [id, table] : tables_) table->ForgetAbsent();
}

// The base never leaves expired entries of a complete Store out while it runs.
void SlotStore::ExpireSome() {
  if (!complete_) return;
  for (const auto& [id, table] : tables_) table->ExpireSome();
}

Status SlotStore::Load(std::shared_ptr<BaseReader> base) {
  return Run({"load", nullptr, Access::kVersion}, [&]() -> Status {
    if (!complete_ || !Empty() || versions_.in_batch()) {
      return Status::InvalidRequest(
          "load() is for a complete Store that holds nothing yet and has no batch in progress");
    }
    if (base == nullptr) return Status::InvalidRequest("load() needs a base");
    const std::string lower = store_key::Make(key_groups_.first(), 0, {});
    const std::string upper = store_key::Make(static_cast<uint16_t>(key_groups_.end()), 0, {});
    HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<BaseIterator> iterator, base->Scan(lower, upper));
    Restorer restorer(this, /*mark=*/0);
    for (; iterator->Valid(); iterator->Next()) {
      const Slice key = iterator->key();
      if (key.size() < store_key::kPrefixBytes) {
        return Status::Corrupt("the base has a key of " + std::to_string(key.size()) + " bytes, expected at least " +
                               std::to_string(store_key::kPrefixBytes) + "; restore from another version");
      }
      HOLDFAST_RETURN_IF_ERROR(restorer.AddCopy({store_key::KeyGroup(key), store_key::StateId(key),
                                                 key.substr(store_key::kPrefixBytes), iterator->value(), true}));
    }
    HOLDFAST_RETURN_IF_ERROR(restorer.Finish());
    HOLDFAST_RETURN_IF_ERROR(iterator->status());
    loaded_ = true;
    needs_load_ = false;
    return Status::Ok();
  });
}

Status SlotStore::ApplyDelta(const OwnedArray& delta, int64_t sequence) {
  return Run({"apply_delta", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_ASSIGN_OR_RETURN(const DeltaView view, DeltaView::Make(delta));
    HOLDFAST_RETURN_IF_ERROR(versions_.BeginApply(sequence));
    loaded_ = false;
    Restorer restorer(this, versions_.mark());
    for (int64_t i = 0; i < view.length(); ++i) {
      const bool present = view.has_value(i);
      HOLDFAST_RETURN_IF_ERROR(
          restorer.Add({view.key_group(i), view.state_id(i), view.key(i), present ? view.value(i) : Slice(), present}));
    }
    return restorer.Finish();
  });
}

Status SlotStore::Begin(int64_t sequence) {
  return Run({"begin", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_RETURN_IF_ERROR(versions_.Begin(sequence));
    loaded_ = false;
    next_ordinal_ = 0;
    return Status::Ok();
  });
}

Status SlotStore::SetExpiry(int64_t state_id, const BatchExpiry& expiry) {
  return Run({"set_expiry", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckInBatch());
    HOLDFAST_RETURN_IF_ERROR(CheckStateId(state_id));
    Table* const table = TableOf(static_cast<uint16_t>(state_id));
    const int64_t cutoff_ms = table->expiry().expiry.cutoff_ms;
    const bool in_order = expiry.expiry.cutoff_ms >= cutoff_ms;
    if (in_order && (!expiry.stamps || expiry.stamp_ms > expiry.expiry.cutoff_ms)) {
      table->SetExpiry(expiry);
      return Status::Ok();
    }
    return Status::InvalidRequest("state " + std::to_string(state_id) + ": expected a cutoff from " +
                                  std::to_string(cutoff_ms) + " on and a stamp above it, found " +
                                  std::to_string(expiry.expiry.cutoff_ms) + " and " + std::to_string(expiry.stamp_ms));
  });
}

Result<OwnedArray> SlotStore::TakeDelta() {
  return Run({"take_delta", nullptr, Access::kVersion}, [&]() -> Result<OwnedArray> {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_RETURN_IF_ERROR(CheckInBatch());
    std::vector<Table*> tables;
    tables.reserve(tables_.size());
    for (const auto& [id, table] : tables_) tables.push_back(table.get());
    ExpireSome();
    OwnedArray delta = TakeChanged(tables, delta_bytes_max_);
    versions_.DeltaTaken();
    for (Table* table : tables) table->KeepChanged();
    return delta;
  });
}

Status SlotStore::Commit() {
  return Run({"commit", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_RETURN_IF_ERROR(CheckInBatch());
    if (Changed()) {
      return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                    " has changes that no delta holds; take_delta() before commit()");
    }
    versions_.Commit();
    if (complete_) ForgetAbsent();  // others may forget a key only once the base does not have it either: in SetBase
    return Status::Ok();
  });
}

Status SlotStore::Reset() {
  return Run({"reset", nullptr, Access::kVersion}, [&]() -> Status {
    if (Changed()) {
      return Status::InvalidRequest(
          "reset() would lose the changes since the last take_delta; take the delta first, or "
          "drop the Store to abort the batch");
    }
    needs_load_ = needs_load_ || (complete_ && !Empty());
    loaded_ = false;
    for (const auto& [id, table] : tables_) table->Clear();
    versions_.Reset();
    return Status::Ok();
  });
}

Status SlotStore::EvictClean() {
  return Run({"evict_clean", nullptr, Access::kVersion}, [&]() -> Status {
    for (const auto& [id, table] : tables_) table->EvictClean();
    return Status::Ok();
  });
}

Result<uint64_t> SlotStore::NextListIndex() {
  if (next_ordinal_ == UINT32_MAX) {
    return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                  " appends more than 4294967295 list elements in one slot; use smaller batches");
  }
  return static_cast<uint64_t>(versions_.batch_sequence()) << 32 | next_ordinal_++;
}

void SlotStore::LeaveFigures() {
  size_t memory_bytes = sizeof(*this);
  int64_t entries = 0;
  for (const auto& [id, table] : tables_) {
    memory_bytes += sizeof(Table) + table->memory_bytes();
    entries += static_cast<int64_t>(table->entry_count());
  }
  const auto leave = [](int64_t value, std::atomic<int64_t>* place) { place->store(value, std::memory_order_relaxed); };
  leave(versions_.sequence(), &figures_.sequence);
  leave(static_cast<int64_t>(memory_bytes), &figures_.memory_bytes);
  leave(versions_.pending_bytes(), &figures_.pending_bytes);
  leave(versions_.in_batch() ? versions_.changed_bytes() : 0, &figures_.dirty_bytes);
  leave(entries, &figures_.entries);
  leave(rows_, &figures_.rows);
  leave(keys_looked_up_, &figures_.keys_looked_up);
  leave(read_counters_.base_reads, &figures_.base_reads);
  leave(read_counters_.base_hits, &figures_.base_hits);
  leave(read_counters_.base_scans, &figures_.base_scans);
}

std::map<std::string, int64_t> SlotStore::Counters() const {
  return {{"rows", figures_.rows},
          {"keys_looked_up", figures_.keys_looked_up},
          {"base_reads", figures_.base_reads},
          {"base_hits", figures_.base_hits},
          {"base_scans", figures_.base_scans},
          {"entries", figures_.entries}};
}

}  // namespace holdfast
