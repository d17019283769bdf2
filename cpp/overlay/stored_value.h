// Whether a value of a base or a delta can be read, by its header and its size; and what is wrong with one that cannot.
#pragma once

#include "codec/value_header.h"
#include "holdfast/status.h"

namespace holdfast {

// Of one value with its header, without a stamp.
inline constexpr size_t kStoredBytesMax = size_t{1} << 30;

// Of a schema of this version.
inline bool IsStoredValue(Slice value, uint8_t version) {
  return value_header::IsReadable(value, version) &&
         value.size() <= kStoredBytesMax + value_header::HeaderBytes(value) - value_header::kBytes;
}
// `version`: of the newest schema that is known.
Status StoredValueError(Slice value, uint8_t version, uint16_t state_id, uint16_t key_group);

}  // namespace holdfast
