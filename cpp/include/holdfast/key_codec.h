// Order-preserving key encoding: memcmp order of the bytes is the order of the keys, and an encoded key is never a
// prefix of another, so that suffixes (map key, list index) can follow. Format: docs/formats/key.md.
#pragma once

#include <span>

#include "holdfast/array.h"

namespace holdfast {

inline constexpr int32_t kMaxParallelismLimit = 32768;  // as Flink's; key group 0xFFFF stays free

class KeyCodec {
 public:
  // `type` is a struct whose fields are the key columns (one or more), or a single non-struct type.
  static Result<KeyCodec> Make(Type type, bool allow_null);

  // Appends one encoded key a row. InvalidRequest, naming column and row, when a key is null and that is not allowed.
  // The array's type must equal type() up to storage variants (ImportType decides); Incompatible otherwise.
  Status Encode(const ArrowSchema& schema, const ArrowArray& keys, ByteColumn* out) const;
  // The array of keys that these encodings stand for; Corrupt when bytes do not parse.
  Result<OwnedArray> Decode(std::span<const Slice> encoded) const;
  // Length of the one encoded key at the start of `bytes` (which may go on with a suffix).
  // Corrupt when it does not parse.
  Result<size_t> EncodedLength(Slice bytes) const;

  const Type& type() const { return type_; }
  bool allow_null() const { return allow_null_; }

 private:
  KeyCodec(Type type, bool allow_null) : type_(std::move(type)), allow_null_(allow_null) {}
  Type type_;
  bool allow_null_;
};

uint64_t Xxh64(const void* data, size_t length, uint64_t seed = 0);

// Key group of an encoded key. The hash is Xxh64 with seed 0.
inline uint16_t KeyGroup(uint64_t hash, int32_t max_parallelism) {
  return static_cast<uint16_t>(hash % static_cast<uint64_t>(max_parallelism));
}
// Slot of a key group, and the first key group of a slot (the two agree: slot s owns [First(s), First(s + 1))).
inline int32_t SlotOf(int32_t key_group, int32_t max_parallelism, int32_t slots) {
  return static_cast<int32_t>(static_cast<int64_t>(key_group) * slots / max_parallelism);
}
inline int32_t FirstKeyGroup(int32_t slot, int32_t max_parallelism, int32_t slots) {
  return static_cast<int32_t>((static_cast<int64_t>(slot) * max_parallelism + slots - 1) / slots);
}

}  // namespace holdfast
