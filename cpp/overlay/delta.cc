#include "overlay/delta.h"

#include <array>
#include <cstring>

namespace holdfast {

namespace {

// Calls `visit(const Entry&)`, which says whether to go on, for each changed entry of the table.
// They lie in memory in another order.
template <typename Visitor>
void ForEachChanged(const Table& table, Visitor visit) {
  constexpr size_t kDistance = 16;
  const std::vector<Entry*>& changed = table.changed();
  for (size_t i = 0; i < changed.size(); ++i) {
    if (i + kDistance < changed.size()) Table::Prefetch(changed[i + kDistance]);
    if (!visit(*changed[i])) return;
  }
}

// Makes room for the entries of the next piece; how many of each table's they are.
std::vector<size_t> Reserve(std::span<Table* const> tables, size_t bytes_max, DeltaPiece* piece) {
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
  piece->key_groups.reserve(rows);
  piece->states.reserve(rows);
  piece->keys.offsets.reserve(rows + 1);
  piece->keys.bytes.reserve(key_bytes);
  piece->values.offsets.reserve(rows + 1);
  piece->values.bytes.reserve(value_bytes);
  piece->valid.assign((rows + 7) / 8, 0);
  return counts;
}

void Append(Slice bytes, ByteColumn* column) {
  column->bytes.insert(column->bytes.end(), bytes.begin(), bytes.end());
  column->offsets.push_back(static_cast<int64_t>(column->bytes.size()));
}

void AppendStored(const Entry& entry, ByteColumn* column) {
  const Slice value = entry.value();
  if (!entry.stamped()) return Append(value, column);
  std::array<char, value_header::kBytes + value_header::kStampBytes> head;
  head[0] = value_header::StampedHeader(value[0]);
  std::memcpy(head.data() + value_header::kBytes, value.data() + value.size(), value_header::kStampBytes);
  column->bytes.insert(column->bytes.end(), head.begin(), head.end());
  Append(value.substr(value_header::kBytes), column);
}

void Append(const Entry& entry, uint16_t state_id, DeltaPiece* piece) {
  const size_t row = piece->key_groups.size();
  piece->key_groups.push_back(entry.key_group);
  piece->states.push_back(state_id);
  Append(entry.key(), &piece->keys);
  if (entry.present()) {
    AppendStored(entry, &piece->values);
    piece->valid[row >> 3] = static_cast<uint8_t>(piece->valid[row >> 3] | (1U << (row & 7)));
  } else {
    piece->values.offsets.push_back(piece->values.offsets.back());
    ++piece->tombstones;
  }
}

// Of the rows from `first` on: in the overlay all have the first version.
void SetVersion(uint8_t version, size_t first, DeltaPiece* piece) {
  const std::vector<int64_t>& offsets = piece->values.offsets;
  for (size_t row = first; row + 1 < offsets.size(); ++row) {
    if (offsets[row] == offsets[row + 1]) continue;  // a tombstone
    char& header = piece->values.bytes[static_cast<size_t>(offsets[row])];
    header = value_header::WithVersion(header, version);
  }
}

}  // namespace

DeltaPiece TakeChanged(std::span<Table* const> tables, size_t bytes_max) {
  DeltaPiece piece;
  const std::vector<size_t> counts = Reserve(tables, bytes_max, &piece);
  for (size_t i = 0; i < tables.size(); ++i) {
    size_t left = counts[i];
    if (left == 0) continue;
    const size_t first = piece.key_groups.size();
    ForEachChanged(*tables[i], [&](const Entry& entry) {
      if (Table::MustEmit(entry)) Append(entry, tables[i]->state_id(), &piece);
      return --left > 0;
    });
    if (tables[i]->version() != value_header::kFirstVersion) SetVersion(tables[i]->version(), first, &piece);
  }
  for (size_t i = 0; i < tables.size(); ++i) tables[i]->ForgetChanged(counts[i]);
  return piece;
}

}  // namespace holdfast
