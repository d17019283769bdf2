#include "overlay/slot_engine.h"

#include <algorithm>

#include "codec/store_key.h"

namespace holdfast {

Operation::Operation(SlotEngine* engine, const Call& call)
    : engine_(engine), entered_(!engine->busy_.exchange(true, std::memory_order_acquire)) {
  if (!entered_) {
    status_ = Status::InvalidRequest("the Store is in use by another thread; a Store belongs to one thread at a time");
    // The batch lacks what this call should have changed.
    if (call.access == Access::kWrite) engine->poison_.Set(call, status_);
    return;
  }
  status_ = engine->poison_.Check();
  if (call.access == Access::kVersion) return;
  if (status_.ok()) status_ = engine->CheckReadable();
  if (status_.ok() && call.access == Access::kWrite) status_ = engine->CheckInBatch();
}

Status SlotEngine::CheckReadable() const {
  HOLDFAST_RETURN_IF_ERROR(versions_.CheckReadable());
  if (!needs_load_) return Status::Ok();
  return Status::InvalidRequest("a complete Store was given a base that it has not read; load() it first");
}

Status SlotEngine::CheckInBatch() const {
  if (versions_.in_batch()) return Status::Ok();
  return Status::InvalidRequest("states are changed within a batch only; begin(sequence) first");
}

void SlotEngine::NoteFailure(const Call& call, const Status& failure) {
  const bool is_request = failure.code() == Code::kInvalidRequest;
  // A read that was asked wrongly has changed nothing. One that failed within a batch, whoever catches it, leaves a
  // batch that went on without knowing its state.
  const bool poisons =
      call.access == Access::kWrite || (!is_request && (call.access == Access::kVersion || versions_.in_batch()));
  if (poisons) poison_.Set(call, failure);
}

SlotEngine::SlotEngine(EngineOptions options) : options_(std::move(options)) { LeaveFigures(); }

Table* SlotEngine::TableOf(uint16_t state_id) {
  std::unique_ptr<Table>& table = tables_[state_id];
  if (table == nullptr) {
    table = std::make_unique<Table>(state_id, &versions_, options_.complete, options_.key_groups.range());
  }
  return table.get();
}

bool SlotEngine::Changed() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return !table.second->changed().empty(); });
}

bool SlotEngine::Empty() const {
  return std::all_of(tables_.begin(), tables_.end(), [](const auto& table) { return table.second->empty(); });
}

Status SlotEngine::SetBase(std::shared_ptr<BaseReader> base, int64_t sequence) {
  return Run({"set_base", nullptr, Access::kVersion}, [&]() -> Status {
    const bool empty = Empty();
    // Not to an older base: a complete Store that is empty has read all there is.
    const bool jumps = sequence > versions_.sequence() && !versions_.in_batch();
    const int64_t sequence_before = versions_.sequence();
    HOLDFAST_RETURN_IF_ERROR(versions_.SetBase(sequence, empty || loaded_, Changed()));
    if (empty && (versions_.sequence() != sequence_before || base_ == nullptr)) ForgetOrder();
    if (options_.complete && empty && !loaded_ && jumps) needs_load_ = base != nullptr;
    base_ = std::move(base);
    ForgetAbsent();
    return Status::Ok();
  });
}

// Another version: what is present in it is not known.
void SlotEngine::ForgetOrder() {
  for (const auto& [id, table] : tables_) {
    if (table->order() != nullptr) table->order()->Forget();
  }
}

// Keys come and go: what is long deleted must not pile up.
void SlotEngine::ForgetAbsent() {
  for (const auto& [id, table] : tables_) table->ForgetAbsent();
}

Status SlotEngine::Load(std::shared_ptr<BaseReader> base) {
  return Run({"load", nullptr, Access::kVersion}, [&]() -> Status {
    if (!options_.complete || !Empty() || versions_.in_batch()) {
      return Status::InvalidRequest(
          "load() is for a complete Store that holds nothing yet and has no batch in progress");
    }
    if (base == nullptr) return Status::InvalidRequest("load() needs a base");
    HOLDFAST_RETURN_IF_ERROR(LoadRange(base.get(), store_key::Make(options_.key_groups.first(), 0, {}),
                                       store_key::Make(static_cast<uint16_t>(options_.key_groups.end()), 0, {})));
    HOLDFAST_RETURN_IF_ERROR(LoadRange(base.get(), store_key::Make(layout::kNoKeyGroup, 0, {}), {}));
    loaded_ = true;
    needs_load_ = false;
    return Status::Ok();
  });
}

Status SlotEngine::LoadRange(BaseReader* base, Slice lower, Slice upper) {
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
  return iterator->status();
}

Status SlotEngine::Begin(int64_t sequence) {
  return Run({"begin", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_RETURN_IF_ERROR(versions_.Begin(sequence));
    loaded_ = false;
    next_ordinal_ = 0;
    return Status::Ok();
  });
}

Status SlotEngine::SetEarlier(uint16_t state_id, std::unique_ptr<EarlierRows> earlier) {
  return Run({"set_schemas", nullptr, Access::kVersion}, [&]() -> Status {
    const std::string where = "state " + std::to_string(state_id) + ": ";
    if (layout::IsOrderedId(state_id)) return Status::InvalidRequest(where + "timers have no values, nor schemas");
    Table* const table = TableOf(state_id);
    if (!table->empty() || base_ != nullptr) {
      return Status::InvalidRequest(where + "its schemas are said before anything is read");
    }
    table->SetEarlier(std::move(earlier));
    return Status::Ok();
  });
}

Status SlotEngine::SetExpiry(uint16_t state_id, const BatchExpiry& expiry) {
  return Run({"set_expiry", nullptr, Access::kVersion}, [&]() -> Status {
    const std::string where = "state " + std::to_string(state_id) + ": ";
    if (layout::IsOrderedId(state_id)) {
      return Status::InvalidRequest(where + "timers have no time to live; delete those that are not wanted");
    }
    Table* const table = TableOf(state_id);
    const int64_t cutoff_ms = table->expiry().expiry.cutoff_ms;
    const bool in_order = expiry.expiry.cutoff_ms >= cutoff_ms;
    if (in_order && (!expiry.stamps || expiry.stamp_ms > expiry.expiry.cutoff_ms)) {
      table->SetExpiry(expiry);
      return Status::Ok();
    }
    return Status::InvalidRequest(where + "expected a cutoff from " + std::to_string(cutoff_ms) +
                                  " on and a stamp above it, found " + std::to_string(expiry.expiry.cutoff_ms) +
                                  " and " + std::to_string(expiry.stamp_ms));
  });
}

// What has expired may never be asked for again: nobody else would find it. Over a base too, where it would stay as
// something that was read until the memory of all slots is used up.
void SlotEngine::ExpireSome() {
  for (const auto& [id, table] : tables_) table->ExpireSome();
}

Result<DeltaPiece> SlotEngine::TakeDelta() {
  HOLDFAST_RETURN_IF_ERROR(CheckReadable());
  HOLDFAST_RETURN_IF_ERROR(CheckInBatch());
  std::vector<Table*> tables;
  tables.reserve(tables_.size());
  for (const auto& [id, table] : tables_) tables.push_back(table.get());
  ExpireSome();
  DeltaPiece piece = TakeChanged(tables, options_.delta_bytes_max);
  removed_ += piece.tombstones;
  written_ += piece.rows() - piece.tombstones;
  versions_.DeltaTaken();
  for (Table* table : tables) table->KeepChanged();
  return piece;
}

Status SlotEngine::Commit() {
  return Run({"commit", nullptr, Access::kVersion}, [&]() -> Status {
    HOLDFAST_RETURN_IF_ERROR(CheckReadable());
    HOLDFAST_RETURN_IF_ERROR(CheckInBatch());
    if (Changed()) {
      return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                    " has changes that no delta holds; take_delta() before commit()");
    }
    versions_.Commit();
    if (options_.complete)
      ForgetAbsent();  // others may forget a key only once the base does not have it either: in SetBase
    return Status::Ok();
  });
}

Status SlotEngine::Reset() {
  return Run({"reset", nullptr, Access::kVersion}, [&]() -> Status {
    if (Changed()) {
      return Status::InvalidRequest(
          "reset() would lose the changes since the last take_delta; take the delta first, or "
          "drop the Store to abort the batch");
    }
    needs_load_ = needs_load_ || (options_.complete && !Empty());
    loaded_ = false;
    for (const auto& [id, table] : tables_) table->Clear();
    versions_.Reset();
    return Status::Ok();
  });
}

Status SlotEngine::EvictClean() {
  return Run({"evict_clean", nullptr, Access::kVersion}, [&]() -> Status {
    for (const auto& [id, table] : tables_) table->EvictClean();
    return Status::Ok();
  });
}

Result<uint64_t> SlotEngine::NextOrdinal() {
  if (next_ordinal_ == UINT32_MAX) {
    return Status::InvalidRequest("batch " + std::to_string(versions_.batch_sequence()) +
                                  " appends more than 4294967295 list elements in one slot; use smaller batches");
  }
  return static_cast<uint64_t>(versions_.batch_sequence()) << 32 | next_ordinal_++;
}

void SlotEngine::LeaveFigures() {
  size_t memory_bytes = sizeof(*this);
  int64_t entries = 0, expired = 0;
  for (const auto& [id, table] : tables_) {
    memory_bytes += sizeof(Table) + table->memory_bytes();
    entries += static_cast<int64_t>(table->entry_count());
    expired += table->expired_count();
  }
  const auto leave = [](int64_t value, std::atomic<int64_t>* place) { place->store(value, std::memory_order_relaxed); };
  leave(versions_.sequence(), &figures_.sequence);
  leave(static_cast<int64_t>(memory_bytes), &figures_.memory_bytes);
  leave(versions_.pending_bytes(), &figures_.pending_bytes);
  leave(versions_.in_batch() ? versions_.changed_bytes() : 0, &figures_.dirty_bytes);
  leave(entries, &figures_.entries);
  leave(expired, &figures_.expired);
  leave(lookups_, &figures_.lookups);
  leave(written_, &figures_.written);
  leave(removed_, &figures_.removed);
  leave(read_counters_.base_reads, &figures_.base_reads);
  leave(read_counters_.base_hits, &figures_.base_hits);
  leave(read_counters_.base_scans, &figures_.base_scans);
}

}  // namespace holdfast
