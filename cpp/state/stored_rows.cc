#include "state/stored_rows.h"

#include "codec/value_header.h"

namespace holdfast {

Result<OwnedArray> DecodeValues(const RowCodec& codec, uint16_t state_id, const std::vector<const Entry*>& entries) {
  std::vector<Slice> rows(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] != nullptr && entries[i]->present()) rows[i] = value_header::Row(entries[i]->value());
  }
  Result<OwnedArray> array = codec.Decode(rows);
  if (array.ok() || array.status().code() != Code::kCorrupt) return array;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Result<OwnedArray> one = codec.Decode({&rows[i], 1});
    if (one.ok()) continue;
    return Status::Corrupt(
        "state " + std::to_string(state_id) + ", key group " + std::to_string(entries[i]->key_group) +
        ": a stored value cannot be read: " + one.status().message() + "; restore from another version");
  }
  return array;
}

}  // namespace holdfast
