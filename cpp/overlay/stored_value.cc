#include "overlay/stored_value.h"

#include <string>

#include "overlay/table.h"

namespace holdfast {

namespace {

std::string Place(uint16_t state_id, uint16_t key_group) {
  return "state " + std::to_string(state_id) + ", key group " + std::to_string(key_group) + ": ";
}

}  // namespace

Status StoredValueError(Slice value, uint8_t version, uint16_t state_id, uint16_t key_group) {
  const std::string place = Place(state_id, key_group);
  if (value.empty()) return Status::Corrupt(place + "a stored value has no header; restore from another version");
  const size_t stamp_bytes = value_header::HeaderBytes(value) - value_header::kBytes;
  if (value.size() > kStoredBytesMax + stamp_bytes) {
    return Status::Corrupt(place + "a stored value has " + std::to_string(value.size()) + " bytes, at most " +
                           std::to_string(kStoredBytesMax + stamp_bytes) +
                           " are possible; restore from another version");
  }
  if (value.size() < value_header::HeaderBytes(value)) {
    return Status::Corrupt(place + "a stored value ends within its stamp; restore from another version");
  }
  const uint8_t found = value_header::VersionOf(value);
  if (found < value_header::kFirstVersion || found > version) {
    return Status::Incompatible(place + "a stored value has schema version " + std::to_string(found) +
                                ", expected 1 to " + std::to_string(version) +
                                ", those that are recorded; a later program wrote it: go on with that one");
  }
  return Status::Corrupt(place + "a stored null is followed by a row; restore from another version");
}

// Off the way of what the newest schema wrote.
Status Table::SetStoredEarlier(Entry* entry, Slice stored, uint32_t mark) {
  const bool whole = value_header::IsWhole(stored);
  const uint8_t version = whole ? value_header::VersionOf(stored) : version_;
  if (version >= version_ || !IsStoredValue(stored, version)) {
    return StoredValueError(stored, version_, state_id_, entry->key_group);
  }
  const Slice row = value_header::StoredRow(stored);
  if (row.data() == nullptr) {
    SetRead(entry, stored, /*present=*/true, mark);
    return Status::Ok();
  }
  std::string bytes;
  const Result<Slice> newest = earlier_->ToNewest(version, row, &bytes);
  if (!newest.ok()) {
    return newest.status().With(Place(state_id_, entry->key_group) + "a stored value of schema version " +
                                std::to_string(version) + " cannot be read: " + newest.status().message() +
                                "; restore from another version");
  }
  std::string current(stored.substr(0, value_header::HeaderBytes(stored)));
  current.append(newest.value());
  SetRead(entry, current, /*present=*/true, mark);
  return Status::Ok();
}

}  // namespace holdfast
