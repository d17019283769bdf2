#include "state/key_reader.h"

#include <algorithm>

#include "codec/index_hash.h"
#include "codec/xxh64.h"
#include "state/key_text.h"

namespace holdfast {

Result<KeyReader> KeyReader::Make(const SlotStore& store, const OwnedArray& keys) {
  HOLDFAST_ASSIGN_OR_RETURN(
      KeyEncoder encoder,
      KeyEncoder::Make(store.key_codec().type(), store.key_codec().allow_null(), keys.schema(), keys.array()));
  const int64_t length = encoder.length();
  return KeyReader(store, std::move(encoder), length);
}

Result<KeyReader> KeyReader::Make(const SlotStore& store, const Table& table, const OwnedArray& keys) {
  if (!layout::IsOperatorId(table.state_id())) return Make(store, keys);
  Type none;
  none.id = TypeId::kNull;
  HOLDFAST_ASSIGN_OR_RETURN(const ArrayView view, ArrayView::Make(none, keys.schema(), keys.array()));
  return KeyReader(store, std::nullopt, view.length());
}

// One key without bytes; what it points to is not null, as with other keys.
void KeyReader::ReadNoKeys(size_t rows) {
  keys_.bytes.assign(1, '\0');
  keys_.offsets.assign(rows + 1, 0);
  std::fill_n(hashes_.begin(), rows, IndexHash(keys_[0]));
  std::fill_n(key_groups_of_.begin(), rows, layout::kNoKeyGroup);
}

Status KeyReader::Read(int64_t begin, int64_t end) {
  const auto rows = static_cast<size_t>(end - begin);
  begin_ = begin;
  if (!encoder_.has_value()) {
    ReadNoKeys(rows);
    return Status::Ok();
  }
  keys_.Clear();
  encoder_->Append(begin, end, &keys_);
  HOLDFAST_RETURN_IF_ERROR(CheckSizes(keys_, begin, "key"));
  for (size_t i = 0; i < rows; ++i) hashes_[i] = IndexHash(keys_[static_cast<int64_t>(i)]);
  return Status::Ok();
}

Status KeyReader::FindGroup(int64_t i) {
  const SlotKeyGroups& groups = store_->key_groups();
  const Slice key = keys_[i];
  const uint16_t key_group = groups.Of(Xxh64Inline(key.data(), key.size()));
  key_groups_of_[static_cast<size_t>(i)] = key_group;
  return groups.Contains(key_group) ? Status::Ok() : NotOfSlot(i);
}

Status KeyReader::FindGroups() {
  if (!encoder_.has_value()) return Status::Ok();
  for (int64_t i = 0; i < block_rows(); ++i) HOLDFAST_RETURN_IF_ERROR(FindGroup(i));
  return Status::Ok();
}

Status KeyReader::NotOfSlot(int64_t i) const {
  const SlotKeyGroups& groups = store_->key_groups();
  return Status::InvalidRequest("row " + std::to_string(begin_ + i) + ": key " +
                                KeyText(store_->key_codec(), keys_[i]) + " is of key group " +
                                std::to_string(key_groups_of_[static_cast<size_t>(i)]) + ", this slot has key groups " +
                                std::to_string(groups.first()) + " to " + std::to_string(groups.end() - 1) +
                                "; ask states with the operator's own key columns, as they came in");
}

Status CheckSizes(const ByteColumn& bytes, int64_t first_row, const char* what) {
  if (bytes.bytes.size() <= Table::kBytesMax) return Status::Ok();
  for (int64_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i].size() <= Table::kBytesMax) continue;
    return Status::InvalidRequest("row " + std::to_string(first_row + i) + ": the " + what + " has " +
                                  std::to_string(bytes[i].size()) + " bytes encoded, at most " +
                                  std::to_string(Table::kBytesMax) + " are possible; split it");
  }
  return Status::Ok();
}

Status CheckRows(const OwnedArray& array, const OwnedArray& keys, const char* argument) {
  if (array.length() == keys.length()) return Status::Ok();
  return Status::InvalidRequest(std::string(argument) + " has " + std::to_string(array.length()) + " rows, expected " +
                                std::to_string(keys.length()) + ", one for each key");
}

}  // namespace holdfast
