// Logical types: what a key, a value or a list element is. Parsed from, and written to, Arrow C schemas.
// Storage variants of one logical type (large_string, string_view, dictionary) all parse to the same TypeId:
// they are decoded on the way in and never come out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/arrow_abi.h"
#include "holdfast/status.h"

namespace holdfast {

enum class TypeId : uint8_t {
  kNull,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat,
  kDouble,
  kDecimal128,
  kDate32,
  kDate64,
  kTime32,
  kTime64,
  kTimestamp,
  kDuration,
  kString,
  kBinary,
  kFixedSizeBinary,
  kList,
  kMap,
  kStruct,
};

enum class TimeUnit : uint8_t { kSecond, kMilli, kMicro, kNano };

struct Type {
  TypeId id = TypeId::kNull;
  std::string name;        // as a field of its parent; empty at the top
  bool nullable = true;    // as a field of its parent
  int32_t byte_width = 0;  // of fixed-width types, in bytes (bool: 1); 0 for the others
  int32_t precision = 0;   // decimal
  int32_t scale = 0;       // decimal
  TimeUnit unit = TimeUnit::kSecond;
  std::string timezone;        // timestamp; empty: none
  std::vector<Type> children;  // list: element; map: key, value; struct: fields

  // A column, or a field of a struct; of types that need no more.
  static Type Field(TypeId id, std::string name, int32_t byte_width, bool nullable);
  bool operator==(const Type&) const = default;
  // As pyarrow prints it: "int64", "struct<a: string not null, b: list<item: double>>".
  std::string ToString() const;
};

// InvalidRequest, naming the field, for types that Holdfast does not keep:
// unions, run-end encoded, decimal256, half floats …
Result<Type> ImportType(const ArrowSchema& schema);
// Fills `out`, which the caller releases. string → "u", binary → "z", list → "+l".
Status ExportType(const Type& type, ArrowSchema* out);

}  // namespace holdfast
