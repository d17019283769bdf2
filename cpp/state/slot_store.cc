// Versions, bases and deltas of a Store; see slot_store_states.cc for how states are declared.
#include "state/slot_store.h"

#include <algorithm>

#include "codec/store_key.h"
#include "overlay/delta.h"
#include "state/restorer.h"

namespace holdfast {

Operation::Operation(SlotStore* store)
    : store_(store), entered_(!store->busy_.exchange(true, std::memory_order_acquire)) {
  if (!entered_) {
    status_ = Status::InvalidRequest("the Store is in use by another thread; a Store belongs to one thread at a time");
  }
}

Operation::Operation(SlotStore* store, Access access) : Operation(store) {
  if (!entered_) return;
  status_ = store->versions_.CheckReadable();
  if (status_.ok() && store->needs_load_) {
    status_ = Status::InvalidRequest("a complete Store was given a base that it has not read; load() it first");
  }
  if (status_.ok() && access == Access::kWrite && !store->versions_.in_batch()) {
    status_ = Status::InvalidRequest("states are changed within a batch only; begin(sequence) first");
  }
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
  HOLDFAST_ASSIGN_OR_RETURN(KeyCodec codec, KeyCodec::Make(std::move(key_type), options.null_keys));
  return std::unique_ptr<Store>(std::make_unique<SlotStore>(std::move(codec), options));
}

SlotStore::SlotStore(KeyCodec key_codec, const StoreOptions& options)
    : key_codec_(std::move(key_codec)),
      key_groups_(options.max_parallelism, options.first_key_group, options.end_key_group),
      null_keys_(options.null_keys),
      complete_(options.complete) {}

SlotStore::~SlotStore() = default;

bool SlotStore::Changed() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return !table.second->changed().empty(); });
}

bool SlotStore::Empty() const {
  return std::all_of(tables_.begin(), tables_.end(), [](const auto& table) { return table.second->empty(); });
}

Status SlotStore::SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) {
  const Operation operation(this);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  const bool empty = Empty();
  const bool jumps = sequence != versions_.sequence() && !versions_.in_batch();
  HOLDFAST_RETURN_IF_ERROR(versions_.SetBase(sequence, empty || loaded_, Changed()));
  if (complete_ && empty && !loaded_ && jumps) needs_load_ = base != nullptr;
  base_ = std::move(base);
  if (complete_) ForgetAbsent();
  return Status::Ok();
}

// Nobody evicts from a complete Store for its size, and keys come and go: what is long deleted must not pile up.
void SlotStore::ForgetAbsent() {
  for (const auto& [id, table] : tables_) {
    if (table->mostly_absent()) table->EvictClean();
  }
}

Status SlotStore::Load(std::shared_ptr<BaseReader> base) {
  const Operation operation(this);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  if (!complete_ || !Empty() || versions_.in_batch()) {
    return Status::InvalidRequest("load() is for a complete Store that holds nothing yet and has no batch in progress");
  }
  if (base == nullptr) return Status::InvalidRequest("load() needs a base");
  const std::string lower = store_key::Make(key_groups_.first(), 0, {});
  const std::string upper = store_key::Make(static_cast<uint16_t>(key_groups_.end()), 0, {});
  HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<BaseIterator> iterator, base->Scan(lower, upper));
  Restorer restorer(this, /*mark=*/0);
  for (; iterator->Valid(); iterator->Next()) {
    const Slice key = iterator->key();
    HOLDFAST_RETURN_IF_ERROR(restorer.AddCopy({store_key::KeyGroup(key), store_key::StateId(key),
                                               key.substr(store_key::kPrefixBytes), iterator->value(), true}));
  }
  HOLDFAST_RETURN_IF_ERROR(restorer.Finish());
  HOLDFAST_RETURN_IF_ERROR(iterator->status());
  loaded_ = true;
  needs_load_ = false;
  return Status::Ok();
}

Status SlotStore::ApplyDelta(const OwnedArray& delta, int64_t sequence) {
  const Operation operation(this, Access::kRead);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
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
}

Status SlotStore::Begin(int64_t sequence) {
  const Operation operation(this, Access::kRead);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  HOLDFAST_RETURN_IF_ERROR(versions_.Begin(sequence));
  loaded_ = false;
  next_ordinal_ = 0;
  return Status::Ok();
}

Result<OwnedArray> SlotStore::TakeDelta() {
  const Operation operation(this, Access::kWrite);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  std::vector<Table*> tables;
  tables.reserve(tables_.size());
  for (const auto& [id, table] : tables_) tables.push_back(table.get());
  OwnedArray delta = BuildDelta(tables);
  for (Table* table : tables) table->ForgetChanged();
  versions_.DeltaTaken();
  return delta;
}

Status SlotStore::Commit() {
  const Operation operation(this, Access::kWrite);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  if (Changed()) {
    return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                  " has changes that no delta holds; take_delta() before commit()");
  }
  versions_.Commit();
  return Status::Ok();
}

Status SlotStore::Reset() {
  const Operation operation(this);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
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
}

Status SlotStore::EvictClean() {
  const Operation operation(this);
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  for (const auto& [id, table] : tables_) table->EvictClean();
  return Status::Ok();
}

Result<uint64_t> SlotStore::NextListIndex() {
  if (next_ordinal_ == UINT32_MAX) {
    return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                  " appends more than 4294967295 list elements in one slot; use smaller batches");
  }
  return static_cast<uint64_t>(versions_.batch_sequence()) << 32 | next_ordinal_++;
}

int64_t SlotStore::memory_bytes() const {
  size_t bytes = sizeof(*this);
  for (const auto& [id, table] : tables_) bytes += sizeof(Table) + table->memory_bytes();
  return static_cast<int64_t>(bytes);
}

std::map<std::string, int64_t> SlotStore::Counters() const {
  int64_t entries = 0;
  for (const auto& [id, table] : tables_) entries += static_cast<int64_t>(table->entry_count());
  return {{"rows", rows_},
          {"keys_looked_up", keys_looked_up_},
          {"base_reads", read_counters_.base_reads},
          {"base_hits", read_counters_.base_hits},
          {"base_scans", read_counters_.base_scans},
          {"entries", entries}};
}

}  // namespace holdfast
