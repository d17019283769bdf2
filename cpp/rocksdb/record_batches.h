// Record batches at the edge of bases: deltas on the way in, entries on the way out.
#pragma once

#include "holdfast/array.h"
#include "holdfast/rocksdb_base.h"

namespace holdfast::rocks {

// Adds each row of a delta in order. Errors as DeltaView::Make, and then none of its rows is added.
Status AddDelta(const OwnedArray& delta, BaseWriter& writer);

// Up to `rows` entries from where `entries` stands, as (key: binary, value: binary), fewer when they are large; none at
// the end. Moves `entries` on.
Result<OwnedArray> NextBatch(BaseIterator& entries, int64_t rows);

}  // namespace holdfast::rocks
