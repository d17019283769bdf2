// What becomes of rows that earlier schemas of a state wrote, where they are read. The engine knows bytes only;
// cpp/state knows the schemas. Why: docs/rfcs/0017. Thread-safety: immutable.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/bytes.h"
#include "holdfast/status.h"

namespace holdfast {

class EarlierRows {
 public:
  virtual ~EarlierRows() = default;
  // Of the newest schema; that of the first is 1.
  virtual uint8_t version() const = 0;
  // A row of schema `version`, below the newest, as the newest has it: `row` itself, or in `*bytes`.
  // Corrupt for one that does not parse.
  virtual Result<Slice> ToNewest(uint8_t version, Slice row, std::string* bytes) const = 0;
};

}  // namespace holdfast
