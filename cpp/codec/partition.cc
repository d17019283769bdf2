#include "codec/partition.h"

#include <algorithm>
#include <limits>

#include "codec/key_encoder.h"
#include "codec/xxh64.h"

namespace holdfast {

namespace {

// Small enough that a block of keys stays in the processor's cache between encoding and hashing.
constexpr int64_t kBlockRows = 2048;

// Calls visit(row, key group) for each row in order.
template <typename Visit>
void ForEachKeyGroup(const KeyEncoder& encoder, int32_t max_parallelism, Visit visit) {
  const auto groups = static_cast<uint64_t>(max_parallelism);
  const bool power_of_two = (groups & (groups - 1)) == 0;
  ByteColumn keys;
  for (int64_t begin = 0; begin < encoder.length(); begin += kBlockRows) {
    const int64_t end = std::min(begin + kBlockRows, encoder.length());
    keys.Clear();
    encoder.Append(begin, end, &keys);
    for (int64_t i = 0; i < end - begin; ++i) {
      const Slice key = keys[i];
      const uint64_t hash = Xxh64Inline(key.data(), key.size());
      visit(begin + i, static_cast<uint16_t>(power_of_two ? hash & (groups - 1) : hash % groups));
    }
  }
}

}  // namespace

Status CheckSlots(int32_t max_parallelism, int32_t slots) {
  if (max_parallelism < 1 || max_parallelism > kMaxParallelismLimit) {
    return Status::InvalidRequest("max_parallelism must be between 1 and " + std::to_string(kMaxParallelismLimit) +
                                  ", found " + std::to_string(max_parallelism));
  }
  if (slots < 1 || slots > max_parallelism) {
    return Status::InvalidRequest("slots must be between 1 and max_parallelism (" + std::to_string(max_parallelism) +
                                  "), found " + std::to_string(slots));
  }
  return Status::Ok();
}

Status CheckKeyGroup(int32_t key_group, int32_t max_parallelism) {
  if (key_group >= 0 && key_group < max_parallelism) return Status::Ok();
  return Status::InvalidRequest("key_group must be at least 0 and below max_parallelism (" +
                                std::to_string(max_parallelism) + "), found " + std::to_string(key_group));
}

Status CheckSlot(int32_t slot, int32_t slots) {
  if (slot >= 0 && slot <= slots) return Status::Ok();
  return Status::InvalidRequest("slot must be between 0 and slots (" + std::to_string(slots) + "), found " +
                                std::to_string(slot));
}

Result<std::vector<uint16_t>> KeyGroups(const KeyCodec& codec, const ArrowSchema& schema, const ArrowArray& keys,
                                        int32_t max_parallelism) {
  HOLDFAST_RETURN_IF_ERROR(CheckSlots(max_parallelism, 1));
  HOLDFAST_ASSIGN_OR_RETURN(const KeyEncoder encoder, KeyEncoder::Make(codec.type(), codec.allow_null(), schema, keys));
  std::vector<uint16_t> groups(static_cast<size_t>(encoder.length()));
  ForEachKeyGroup(encoder, max_parallelism,
                  [&groups](int64_t row, uint16_t group) { groups[static_cast<size_t>(row)] = group; });
  return groups;
}

Result<Partition> PartitionBySlot(const KeyCodec& codec, const ArrowSchema& schema, const ArrowArray& keys,
                                  int32_t max_parallelism, int32_t slots) {
  HOLDFAST_RETURN_IF_ERROR(CheckSlots(max_parallelism, slots));
  HOLDFAST_ASSIGN_OR_RETURN(const KeyEncoder encoder, KeyEncoder::Make(codec.type(), codec.allow_null(), schema, keys));
  const int64_t rows = encoder.length();
  if (rows > std::numeric_limits<int32_t>::max()) {
    return Status::InvalidRequest("a batch to partition has at most 2147483647 rows, found " + std::to_string(rows));
  }
  std::vector<uint16_t> slot_of(static_cast<size_t>(max_parallelism));
  for (int32_t group = 0; group < max_parallelism; ++group) {
    slot_of[static_cast<size_t>(group)] = static_cast<uint16_t>(SlotOf(group, max_parallelism, slots));
  }
  Partition partition;
  partition.offsets.assign(static_cast<size_t>(slots) + 1, 0);
  std::vector<uint16_t> slot(static_cast<size_t>(rows));
  ForEachKeyGroup(encoder, max_parallelism, [&](int64_t row, uint16_t group) {
    const uint16_t s = slot_of[group];
    slot[static_cast<size_t>(row)] = s;
    ++partition.offsets[static_cast<size_t>(s) + 1];
  });
  for (size_t s = 1; s < partition.offsets.size(); ++s) partition.offsets[s] += partition.offsets[s - 1];
  std::vector<int64_t> next(partition.offsets.begin(), partition.offsets.end() - 1);
  partition.order.resize(static_cast<size_t>(rows));
  for (size_t row = 0; row < slot.size(); ++row) {
    partition.order[static_cast<size_t>(next[slot[row]]++)] = static_cast<int32_t>(row);
  }
  return partition;
}

}  // namespace holdfast
