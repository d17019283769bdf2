// The entries of one call's keys, for the states that keep one entry a key. Blocks of rows come out in order; as long
// as all keys are known, a block is looked up and handed out at once. When a block has keys that the base must be asked
// for, the rest of the call is looked up first, so that the base is asked once.
#pragma once

#include <span>
#include <vector>

#include "state/key_reader.h"

namespace holdfast {

enum class Need {
  kNothing,  // entries may be unknown: what they held is not looked at
  kValues,
};

class PointLookup {
 public:
  static Result<PointLookup> Make(SlotStore* store, Table* table, const OwnedArray& keys, Need need);

  int64_t length() const { return reader_.length(); }
  // The entries of the next rows, the first of which is row begin(); empty after the last.
  Result<std::span<Entry* const>> Next();
  int64_t begin() const { return begin_; }

 private:
  PointLookup(SlotStore* store, Table* table, KeyReader reader, Need need)
      : store_(store), table_(table), reader_(std::move(reader)), need_(need) {}
  // Looks up rows [begin, end); their entries go to entries_[at …].
  Status Intern(int64_t begin, int64_t end, size_t at);
  Status InternRest();
  // What is handed out to be looked at is not expired.
  std::span<Entry* const> Settled(std::span<Entry* const> block);

  SlotStore* store_;
  Table* table_;
  KeyReader reader_;
  Need need_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t first_row_ = 0;  // of entries_
  bool interned_ = false;  // all rows from first_row_ on are in entries_
  std::vector<Entry*> entries_;
  std::vector<Entry*> unknown_;
};

// What several states do alike:
// the known entries of all rows' keys, and the removal of their values (which reads nothing).
Status CollectEntries(SlotStore* store, Table* table, const OwnedArray& keys, std::vector<const Entry*>* entries);
Status ClearEntries(SlotStore* store, Table* table, const OwnedArray& keys);

}  // namespace holdfast
