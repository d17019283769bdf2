// Rows' keys of one call, encoded and hashed block by block, so that a block is still in the processor's cache when its
// entries are looked up.
#pragma once

#include <array>
#include <optional>

#include "codec/key_encoder.h"
#include "state/slot_store.h"

namespace holdfast {

class KeyReader {
 public:
  // Small enough that a block's slots and entries stay in the first-level cache between prefetch and use.
  static constexpr int64_t kBlockRows = 256;

  static Result<KeyReader> Make(const SlotStore& store, const OwnedArray& keys);
  // The same for a state, which may be an operator state:
  // then each row is of no key, and `keys` are nulls of type null.
  static Result<KeyReader> Make(const SlotStore& store, const Table& table, const OwnedArray& keys);

  int64_t length() const { return length_; }
  // Encodes and hashes rows [begin, end), at most kBlockRows.
  Status Read(int64_t begin, int64_t end);
  // Finds the key group of row begin + i of the block, or of all of them: what makes a record needs it. A record that
  // is there already has been asked. InvalidRequest for a key that is not of the slot.
  Status FindGroup(int64_t i);
  Status FindGroups();
  int64_t block_rows() const { return keys_.size(); }
  // The key of row begin + i of the block; its key group once that was found.
  HashedKey operator[](int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {keys_[i], hashes_[at], key_groups_of_[at]};
  }
  Slice key(int64_t i) const { return keys_[i]; }
  uint64_t hash(int64_t i) const { return hashes_[static_cast<size_t>(i)]; }

 private:
  KeyReader(const SlotStore& store, std::optional<KeyEncoder> encoder, int64_t length)
      : store_(&store), encoder_(std::move(encoder)), length_(length) {}
  void ReadNoKeys(size_t rows);
  Status NotOfSlot(int64_t i) const;

  const SlotStore* store_;
  std::optional<KeyEncoder> encoder_;  // none: all rows are of no key
  int64_t length_;
  ByteColumn keys_;
  int64_t begin_ = 0;
  std::array<uint64_t, kBlockRows> hashes_ = {};
  std::array<uint16_t, kBlockRows> key_groups_of_ = {};
};

// InvalidRequest, naming the row, when a key or value is longer than the overlay keeps.
Status CheckSizes(const ByteColumn& bytes, int64_t first_row, const char* what);
// InvalidRequest unless an argument has one row a key.
Status CheckRows(const OwnedArray& array, const OwnedArray& keys, const char* argument);

}  // namespace holdfast
