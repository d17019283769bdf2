#include "rocksdb/record_batches.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "codec/array_builder.h"
#include "codec/delta_view.h"
#include "codec/store_key.h"

namespace holdfast::rocks {

namespace {

// Past this a batch ends early, so that many large values do not fill the memory.
constexpr size_t kBatchBytes = 64 << 20;
constexpr size_t kBlockChanges = 64;
constexpr size_t kColumnBytesMax = std::numeric_limits<int32_t>::max();  // 32-bit offsets
constexpr int64_t kRowsBeforeReserve = 256;

Type EntriesType() {
  Type type = Type::Field(TypeId::kStruct, "", 0, true);
  type.children = {Type::Field(TypeId::kBinary, "key", 0, false), Type::Field(TypeId::kBinary, "value", 0, false)};
  return type;
}

bool Fits(const ByteColumn& column, Slice value) { return column.bytes.size() + value.size() <= kColumnBytesMax; }

// Room for as many rows as are wanted, by those that are there: a column that grows is copied, each time into pages
// that the system clears first.
void ReserveLike(int64_t rows, ByteColumn* column) {
  const size_t wanted = column->bytes.size() / static_cast<size_t>(column->size()) * static_cast<size_t>(rows);
  column->bytes.reserve(std::min(wanted + wanted / 8, kBatchBytes));
  column->offsets.reserve(static_cast<size_t>(rows) + 1);
}

void Append(Slice value, ByteColumn* column) {
  column->bytes.insert(column->bytes.end(), value.begin(), value.end());
  column->offsets.push_back(static_cast<int64_t>(column->bytes.size()));
}

}  // namespace

Status AddDelta(const OwnedArray& delta, BaseWriter& writer) {
  HOLDFAST_ASSIGN_OR_RETURN(const DeltaView view, DeltaView::Make(delta));
  std::array<std::string, kBlockChanges> keys;
  std::array<Change, kBlockChanges> changes;
  for (int64_t begin = 0; begin < view.length(); begin += kBlockChanges) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kBlockChanges, view.length() - begin));
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = begin + static_cast<int64_t>(i);
      keys[i].resize(store_key::kPrefixBytes);
      store_key::PutPrefix(view.key_group(row), view.state_id(row), keys[i].data());
      keys[i] += view.key(row);
      const bool deleted = !view.has_value(row);
      changes[i] = {keys[i], deleted ? Slice() : view.value(row), deleted};
    }
    HOLDFAST_RETURN_IF_ERROR(writer.Add(std::span(changes).first(count)));
  }
  return Status::Ok();
}

Result<OwnedArray> NextBatch(BaseIterator& entries, int64_t rows) {
  static const Type kType = EntriesType();
  ByteColumn keys;
  ByteColumn values;
  for (; keys.size() < rows && entries.Valid(); entries.Next()) {
    const Slice key = entries.key();
    const Slice value = entries.value();
    const bool full = keys.bytes.size() + values.bytes.size() >= kBatchBytes;
    if (full || !Fits(keys, key) || !Fits(values, value)) break;
    Append(key, &keys);
    Append(value, &values);
    if (keys.size() == kRowsBeforeReserve && rows > kRowsBeforeReserve) {
      ReserveLike(rows, &keys);
      ReserveLike(rows, &values);
    }
  }
  HOLDFAST_RETURN_IF_ERROR(entries.status());
  const int64_t count = keys.size();
  if (count == 0 && rows > 0 && entries.Valid()) {
    return Status::InvalidRequest("expected entries of less than 2 GiB, found one of " +
                                  std::to_string(entries.value().size()) + " bytes, which fits no Arrow binary array");
  }
  std::vector<OwnedArray> columns;
  columns.push_back(MakeBinary(std::move(keys)));
  columns.push_back(MakeBinary(std::move(values)));
  return MakeStruct(kType, count, std::move(columns));
}

}  // namespace holdfast::rocks
