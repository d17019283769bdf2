// How states are declared, and the distinct keys of a batch.
#include "codec/array_builder.h"
#include "state/key_reader.h"
#include "state/slot_store.h"
#include "state/states.h"

namespace holdfast {

namespace {

constexpr int64_t kStateIdMax = 0xFFFF;

}  // namespace

Status SlotStore::CheckStateId(int64_t state_id) {
  if (state_id >= 0 && state_id <= kStateIdMax) return Status::Ok();
  return Status::InvalidRequest("state ids are from 0 to 65535, found " + std::to_string(state_id));
}

template <typename Handle, typename MakeHandle>
Result<Handle*> SlotStore::Declare(int64_t state_id, const std::string& description, layout::Kind kind,
                                   MakeHandle make_handle) {
  const Operation operation(&engine_, {"declare", nullptr, Access::kVersion});
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  HOLDFAST_RETURN_IF_ERROR(CheckStateId(state_id));
  const auto id = static_cast<uint16_t>(state_id);
  const layout::Layout& layout = layout::Of(kind);
  if (layout::IsOrderedId(id) != layout.is_ordered()) {
    return Status::InvalidRequest("ids of timers are from " + std::to_string(layout::kFirstOrderedId) +
                                  " on, those of other states below; found " + std::to_string(id) + " for " +
                                  description);
  }
  if (layout::IsOperatorId(id) && !layout.has_elements()) {
    return Status::InvalidRequest("ids of operator states are from " + std::to_string(layout::kFirstOperatorId) +
                                  " to " + std::to_string(layout::kFirstOrderedId - 1) +
                                  ", and those are lists and maps; found " + std::to_string(id) + " for " +
                                  description);
  }
  if (const auto found = declared_.find(id); found != declared_.end()) {
    if (found->second.description == description) return std::get<std::unique_ptr<Handle>>(found->second.table).get();
    return Status::Incompatible("state " + std::to_string(id) + " is declared as " + found->second.description +
                                ", and now as " + description + "; give each state an id of its own");
  }
  Table* table = engine_.TableOf(id);
  if (table->entry_count() > 0 && table->has_elements() != layout.has_elements()) {
    return Status::Incompatible("state " + std::to_string(id) + " is stored as a " +
                                (table->has_elements() ? "list or map" : "single value") + " a key, and declared as " +
                                description + "; give the state a new id, or migrate it");
  }
  HOLDFAST_ASSIGN_OR_RETURN(std::unique_ptr<Handle> handle, make_handle(table));
  Handle* pointer = handle.get();
  declared_.emplace(id, Declared{description, std::move(handle)});
  if (layout.suffix == layout::Suffix::kNone) engine_.DeclareWhole(id);
  return pointer;
}

Result<ValueTable*> SlotStore::ValueState(int64_t state_id, const Type& value) {
  return Declare<ValueTable>(state_id, "value state of " + value.ToString(), layout::Kind::kValue,
                             [&](Table* table) { return MakeValueState(this, table, value); });
}

Result<ListTable*> SlotStore::ListState(int64_t state_id, const Type& element) {
  return Declare<ListTable>(state_id, "list state of " + element.ToString(), layout::Kind::kList,
                            [&](Table* table) { return MakeListState(this, table, element); });
}

Result<MapTable*> SlotStore::MapState(int64_t state_id, const Type& map_key, const Type& map_value) {
  return Declare<MapTable>(state_id, "map state of " + map_key.ToString() + " to " + map_value.ToString(),
                           layout::Kind::kMap,
                           [&](Table* table) { return MakeMapState(this, table, map_key, map_value); });
}

Result<ReducingTable*> SlotStore::ReducingState(int64_t state_id, const Type& value, const std::string& function) {
  return Declare<ReducingTable>(state_id, "reducing state (" + function + ") of " + value.ToString(),
                                layout::Kind::kReducing,
                                [&](Table* table) { return MakeReducingState(this, table, value, function); });
}

Result<AggregatingTable*> SlotStore::AggregatingState(int64_t state_id, const Type& value,
                                                      const std::string& function) {
  return Declare<AggregatingTable>(state_id, "aggregating state (" + function + ") of " + value.ToString(),
                                   layout::Kind::kAggregating,
                                   [&](Table* table) { return MakeAggregatingState(this, table, value, function); });
}

Result<TimerTable*> SlotStore::Timers(int64_t state_id) {
  return Declare<TimerTable>(state_id, layout::Of(layout::Kind::kTimers).name, layout::Kind::kTimers,
                             [&](Table* table) { return MakeTimers(this, table); });
}

namespace {

OwnedArray Int32Array(std::vector<int32_t> codes) {
  return MakeFixedWidth(Type::Field(TypeId::kInt32, "", sizeof(int32_t), true), std::move(codes));
}

struct DistinctKey {
  int32_t code;
  uint32_t key_length;
  const char* key_bytes() const { return reinterpret_cast<const char*>(this) + sizeof(DistinctKey); }
  char* key_bytes() { return reinterpret_cast<char*>(this) + sizeof(DistinctKey); }
  Slice key() const { return {key_bytes(), key_length}; }
};

}  // namespace

Result<Store::Distinct> SlotStore::DistinctKeys(const OwnedArray& keys) {
  const Operation operation(&engine_, {"distinct", nullptr, Access::kVersion});
  HOLDFAST_RETURN_IF_ERROR(operation.status());
  HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*this, keys));
  if (reader.length() > INT32_MAX) {
    return Status::InvalidRequest("distinct() takes at most 2147483647 rows, found " + std::to_string(reader.length()));
  }
  Arena arena;
  HashIndex<DistinctKey> index;
  std::vector<int32_t> codes(static_cast<size_t>(reader.length()));
  std::vector<int32_t> rows;
  for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
    const int64_t end = std::min(begin + KeyReader::kBlockRows, reader.length());
    HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, end));
    HOLDFAST_RETURN_IF_ERROR(reader.FindGroups());
    for (int64_t i = 0; i < end - begin; ++i) index.Prefetch(reader.hash(i));
    for (int64_t i = 0; i < end - begin; ++i) {
      const HashedKey key = reader[i];
      const DistinctKey* found = index.FindOrInsert(
          key.hash, [&](const DistinctKey& other) { return other.key() == key.bytes; },
          [&] {
            auto* made = reinterpret_cast<DistinctKey*>(arena.Allocate(sizeof(DistinctKey) + key.bytes.size()));
            *made = {static_cast<int32_t>(rows.size()), static_cast<uint32_t>(key.bytes.size())};
            std::memcpy(made->key_bytes(), key.bytes.data(), key.bytes.size());
            rows.push_back(static_cast<int32_t>(begin + i));
            return made;
          });
      codes[static_cast<size_t>(begin + i)] = found->code;
    }
  }
  return Distinct{Int32Array(std::move(codes)), Int32Array(std::move(rows))};
}

}  // namespace holdfast
