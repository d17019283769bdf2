// Which key group and slot each row of a batch belongs to, and the rows of a batch grouped by slot.
#pragma once

#include <vector>

#include "holdfast/key_codec.h"

namespace holdfast {

// InvalidRequest unless 1 <= slots <= max_parallelism <= kMaxParallelismLimit.
Status CheckSlots(int32_t max_parallelism, int32_t slots);
// InvalidRequest unless 0 <= key_group < max_parallelism; unless 0 <= slot <= slots (the one past the end included).
Status CheckKeyGroup(int32_t key_group, int32_t max_parallelism);
Status CheckSlot(int32_t slot, int32_t slots);

Result<std::vector<uint16_t>> KeyGroups(const KeyCodec& codec, const ArrowSchema& schema, const ArrowArray& keys,
                                        int32_t max_parallelism);

// Rows of slot s are order[offsets[s]] to order[offsets[s + 1] - 1], in the order in which they came.
struct Partition {
  std::vector<int32_t> order;
  std::vector<int64_t> offsets;
};
Result<Partition> PartitionBySlot(const KeyCodec& codec, const ArrowSchema& schema, const ArrowArray& keys,
                                  int32_t max_parallelism, int32_t slots);

}  // namespace holdfast
