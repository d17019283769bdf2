#include "state/key_reader.h"

#include "state/key_text.h"

namespace holdfast {

Result<KeyReader> KeyReader::Make(const SlotStore& store, const OwnedArray& keys) {
  HOLDFAST_ASSIGN_OR_RETURN(KeyEncoder encoder,
                            KeyEncoder::Make(store.key_codec().type(), store.null_keys(), keys.schema(), keys.array()));
  return KeyReader(store, std::move(encoder));
}

Status KeyReader::Read(int64_t begin, int64_t end) {
  keys_.Clear();
  encoder_.Append(begin, end, &keys_);
  HOLDFAST_RETURN_IF_ERROR(CheckSizes(keys_, begin, "key"));
  const SlotKeyGroups& groups = store_->key_groups();
  const auto rows = static_cast<size_t>(end - begin);
  bool all_of_slot = true;
  for (size_t i = 0; i < rows; ++i) {
    const Slice key = keys_[static_cast<int64_t>(i)];
    hashes_[i] = Xxh64Inline(key.data(), key.size());
    key_groups_of_[i] = groups.Of(hashes_[i]);
    all_of_slot = all_of_slot && groups.Contains(key_groups_of_[i]);
  }
  if (all_of_slot) return Status::Ok();
  size_t i = 0;
  while (groups.Contains(key_groups_of_[i])) ++i;
  return NotOfSlot(begin + static_cast<int64_t>(i), static_cast<int64_t>(i));
}

Status KeyReader::NotOfSlot(int64_t row, int64_t i) const {
  const SlotKeyGroups& groups = store_->key_groups();
  return Status::InvalidRequest("row " + std::to_string(row) + ": key " + KeyText(store_->key_codec(), keys_[i]) +
                                " is of key group " + std::to_string(key_groups_of_[static_cast<size_t>(i)]) +
                                ", this slot has key groups " + std::to_string(groups.first()) + " to " +
                                std::to_string(groups.end() - 1) +
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
