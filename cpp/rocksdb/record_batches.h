// Record batches at the edge of bases: deltas on the way in, entries on the way out. docs/formats/delta.md has the
// delta's columns. A store key is [key group u16 BE][state u16 BE][key bytes].
#pragma once

#include "holdfast/array.h"
#include "holdfast/rocksdb_base.h"

namespace holdfast::rocks {

// Adds each row of a delta batch (key_group: uint16, state: uint16, key: binary, value: binary, null for a tombstone)
// in order. InvalidRequest for other columns, types, or nulls, and then none of its rows is added.
Status AddDelta(const ArrowSchema& schema, const ArrowArray& delta, BaseWriter& writer);

// Up to `rows` entries from where `entries` stands, as (key: binary, value: binary), fewer when they are large; none at
// the end. Moves `entries` on.
Result<OwnedArray> NextBatch(BaseIterator& entries, int64_t rows);

}  // namespace holdfast::rocks
