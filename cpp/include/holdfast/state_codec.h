// What one state keeps as Arrow columns, and back: for readers and writers of whole versions, beside the states that a
// processor calls. Layout of keys and values: docs/formats/value.md.
// Thread-safety: immutable after Make.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "holdfast/array.h"
#include "holdfast/expiry.h"
#include "holdfast/value_schemas.h"

namespace holdfast {

enum class EntryKind : uint8_t { kValue, kList, kMap, kTimers };  // reducing and aggregating states: kValue

struct StateCodecOptions {
  int64_t state_id = 0;
  EntryKind kind = EntryKind::kValue;
  bool null_keys = false;
  int32_t max_parallelism = 0;
  std::optional<Type> map_key;  // of maps
  std::optional<Type> value;    // of all but timers: value, element or accumulator
  // Where the state had others before; `value` is what is stored as in `schemas->newest`. Encode writes the newest.
  std::optional<ValueSchemas> schemas = std::nullopt;
};

class StateCodec {
 public:
  virtual ~StateCodec() = default;
  // `key_type`: a struct of the key columns. Which states have neither key nor time, the state's id says.
  static Result<std::unique_ptr<StateCodec>> Make(const Type& key_type, StateCodecOptions options);

  // The state's own among `entries`, a struct (key: binary, value: binary) of store keys and stored values, but those
  // that are expired; in their order. A struct of those of these fields that the state has:
  //   key        struct of the key columns
  //   time       int64
  //   suffix     uint64 (list index), the map key, or string (namespace)
  //   begins     bool, of lists: the element before, among these, is of another key
  //   value      null: an element or a map value that is null
  //   stamp      int64, null where there is none
  //   key_group  uint16
  // Corrupt, with state and key group, for what does not parse, and for a key that is not of its group.
  virtual Result<OwnedArray> Decode(const OwnedArray& entries, const Expiry& expiry) const = 0;

  // Columns as Decode gives them, all of one length; null: there is no such column. `stamps` may be left out.
  struct Columns {
    const OwnedArray* keys = nullptr;
    const OwnedArray* times = nullptr;
    const OwnedArray* suffixes = nullptr;
    const OwnedArray* values = nullptr;
    const OwnedArray* stamps = nullptr;
  };
  // Entries as a delta has them (key_group, state, key, value). InvalidRequest for columns that the state has not, or
  // lacks; for nulls where there must be none; and for a key or value that is too long.
  virtual Result<OwnedArray> Encode(const Columns& columns) const = 0;
};

}  // namespace holdfast
