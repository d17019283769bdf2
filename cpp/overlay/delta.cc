#include "overlay/delta.h"

#include "codec/array_builder.h"

namespace holdfast {

namespace {

// Calls `visit(const Entry&)`, which says whether to go on, for each changed entry of the table. They lie in memory in
// another order.
template <typename Visitor>
void ForEachChanged(const Table& table, Visitor visit) {
  constexpr size_t kDistance = 16;
  const std::vector<Entry*>& changed = table.changed();
  for (size_t i = 0; i < changed.size(); ++i) {
    if (i + kDistance < changed.size()) Table::Prefetch(changed[i + kDistance]);
    if (!visit(*changed[i])) return;
  }
}

Type Field(TypeId id, const char* name, int32_t byte_width, bool nullable) {
  Type type;
  type.id = id;
  type.name = name;
  type.byte_width = byte_width;
  type.nullable = nullable;
  return type;
}

struct Columns {
  std::vector<uint16_t, UninitializedAllocator<uint16_t>> key_groups;
  std::vector<uint16_t, UninitializedAllocator<uint16_t>> states;
  ByteColumn keys;
  ByteColumn values;
  std::vector<uint8_t> valid;
  int64_t tombstones = 0;
};

// Makes room for the entries of the next piece; how many of each table's they are.
std::vector<size_t> Reserve(std::span<Table* const> tables, size_t bytes_max, Columns* columns) {
  std::vector<size_t> counts;
  size_t rows = 0;
  size_t key_bytes = 0;
  size_t value_bytes = 0;
  for (const Table* table : tables) {
    const size_t first = rows;
    ForEachChanged(*table, [&](const Entry& entry) {
      const bool fits = key_bytes + entry.key_length <= bytes_max && value_bytes + entry.stored_length() <= bytes_max;
      if (!fits && rows > 0) return false;
      ++rows;
      key_bytes += entry.key_length;
      value_bytes += entry.stored_length();
      return true;
    });
    counts.push_back(rows - first);
    if (counts.back() < table->changed().size()) break;
  }
  counts.resize(tables.size(), 0);
  columns->key_groups.reserve(rows);
  columns->states.reserve(rows);
  columns->keys.offsets.reserve(rows + 1);
  columns->keys.bytes.reserve(key_bytes);
  columns->values.offsets.reserve(rows + 1);
  columns->values.bytes.reserve(value_bytes);
  columns->valid.assign((rows + 7) / 8, 0);
  return counts;
}

void Append(Slice bytes, ByteColumn* column) {
  column->bytes.insert(column->bytes.end(), bytes.begin(), bytes.end());
  column->offsets.push_back(static_cast<int64_t>(column->bytes.size()));
}

void AppendStored(const Entry& entry, ByteColumn* column) {
  const Slice value = entry.value();
  if (!entry.stamped()) return Append(value, column);
  const char header = value_header::StampedHeader(value[0]);
  const char* const stamp = value.data() + value.size();
  column->bytes.insert(column->bytes.end(), &header, &header + 1);
  column->bytes.insert(column->bytes.end(), stamp, stamp + value_header::kStampBytes);
  Append(value.substr(1), column);
}

void Append(const Entry& entry, uint16_t state_id, Columns* columns) {
  const size_t row = columns->key_groups.size();
  columns->key_groups.push_back(entry.key_group);
  columns->states.push_back(state_id);
  Append(entry.key(), &columns->keys);
  if (entry.present()) {
    AppendStored(entry, &columns->values);
    columns->valid[row >> 3] = static_cast<uint8_t>(columns->valid[row >> 3] | (1U << (row & 7)));
  } else {
    columns->values.offsets.push_back(columns->values.offsets.back());
    ++columns->tombstones;
  }
}

}  // namespace

const Type& DeltaType() {
  static const Type kType = [] {
    Type type = Field(TypeId::kStruct, "", 0, true);
    type.children = {Field(TypeId::kUInt16, "key_group", 2, false), Field(TypeId::kUInt16, "state", 2, false),
                     Field(TypeId::kBinary, "key", 0, false), Field(TypeId::kBinary, "value", 0, true)};
    return type;
  }();
  return kType;
}

OwnedArray TakeChanged(std::span<Table* const> tables, size_t bytes_max) {
  Columns columns;
  const std::vector<size_t> counts = Reserve(tables, bytes_max, &columns);
  for (size_t i = 0; i < tables.size(); ++i) {
    size_t left = counts[i];
    if (left == 0) continue;
    ForEachChanged(*tables[i], [&](const Entry& entry) {
      if (Table::MustEmit(entry)) Append(entry, tables[i]->state_id(), &columns);
      return --left > 0;
    });
  }
  const auto rows = static_cast<int64_t>(columns.key_groups.size());
  const std::vector<Type>& fields = DeltaType().children;
  std::vector<OwnedArray> arrays;
  arrays.push_back(MakeFixedWidth(fields[0], std::move(columns.key_groups)));
  arrays.push_back(MakeFixedWidth(fields[1], std::move(columns.states)));
  arrays.push_back(MakeBinary(std::move(columns.keys)));
  arrays.push_back(MakeBinary(std::move(columns.values), {std::move(columns.valid), columns.tombstones}));
  OwnedArray delta = MakeStruct(DeltaType(), rows, std::move(arrays));
  for (size_t i = 0; i < tables.size(); ++i) tables[i]->ForgetChanged(counts[i]);
  return delta;
}

Result<DeltaView> DeltaView::Make(const OwnedArray& delta) {
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView view, ArrayView::Make(DeltaType(), delta.schema(), delta.array()));
  for (size_t i = 0; i < 3; ++i) {
    if (view.child(i).has_nulls()) {
      return Status::Corrupt("a delta has nulls in its column '" + DeltaType().children[i].name + "'");
    }
  }
  return DeltaView(std::move(view));
}

}  // namespace holdfast
