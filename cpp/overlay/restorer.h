// Brings stored entries, of a base or a delta, into the tables of an engine. In blocks: what an entry will touch is
// asked for from memory while the others of its block are checked, or a delta of many keys would wait for memory twice
// a key. A worker that meets a slot after others had it applies their deltas, so this is on the way of most batches.
// Thread-safety: none; belongs to the engine.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "holdfast/status.h"
#include "overlay/table.h"

namespace holdfast {

class SlotEngine;

// One entry of a base or a delta.
struct StoredEntry {
  uint16_t key_group;
  uint16_t state_id;
  Slice key;  // without its prefix
  Slice value;
  bool present;
};

class Restorer {
 public:
  // `mark`: of the entries, as for Table::SetRead.
  Restorer(SlotEngine* engine, uint32_t mark);
  Restorer(const Restorer&) = delete;
  Restorer& operator=(const Restorer&) = delete;

  // Takes an entry; its bytes must stay until Finish. Corrupt, or Incompatible, for one that this engine cannot read:
  // this one, or one of its block.
  Status Add(const StoredEntry& stored);
  // The same with bytes that may go at once.
  Status AddCopy(const StoredEntry& stored);
  // Entries are in their tables after this only.
  Status Finish();

 private:
  static constexpr size_t kBlockEntries = 64;
  // A block of copies ends early past this: sixty-four large values would be there twice.
  static constexpr size_t kCopiedBytesMax = size_t{1} << 20;

  struct Item {
    StoredEntry stored;
    Table* table;
    HashedKey key;  // the primary key
    uint64_t entry_hash;
    Entry* guess;

    bool is_element() const { return key.bytes.size() < stored.key.size(); }
    Slice suffix() const { return stored.key.substr(key.bytes.size()); }
  };

  void EnterState(uint16_t state_id);
  // That the entry can be read, and that its key is of its key group and that of this slot.
  Status Read(const StoredEntry& stored, Item* item);
  Status Put(const Item& item);

  SlotEngine* const engine_;
  const uint32_t mark_;
  const bool is_raw_;
  std::array<Item, kBlockEntries> items_;
  std::array<std::string, kBlockEntries> copies_;
  size_t copied_bytes_ = 0;
  size_t count_ = 0;
  // Of the state that the last entry was of.
  Table* table_ = nullptr;
  size_t before_key_bytes_ = 0;
  bool is_operator_ = false;
  bool is_whole_ = false;
};

}  // namespace holdfast
