// Stored values as an Arrow array, with errors that say where a value that does not parse is kept.
#pragma once

#include <vector>

#include "holdfast/row_codec.h"
#include "overlay/entry.h"

namespace holdfast {

// Row i is the value of entries[i]; null where the entry is null, absent or holds a stored null.
Result<OwnedArray> DecodeValues(const RowCodec& codec, uint16_t state_id, const std::vector<const Entry*>& entries);

}  // namespace holdfast
