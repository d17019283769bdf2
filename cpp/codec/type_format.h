// Arrow's format strings of one letter, for both ways between schemas and types.
// https://arrow.apache.org/docs/format/CDataInterface.html#data-type-description-format-strings
#pragma once

#include <array>

#include "holdfast/type.h"

namespace holdfast {

struct PrimitiveFormat {
  TypeId id;
  char format;
  int8_t byte_width;
  const char* name;
};

// In the order of TypeId.
inline constexpr std::array<PrimitiveFormat, 12> kPrimitives = {{
    {TypeId::kNull, 'n', 0, "null"},
    {TypeId::kBool, 'b', 1, "bool"},
    {TypeId::kInt8, 'c', 1, "int8"},
    {TypeId::kInt16, 's', 2, "int16"},
    {TypeId::kInt32, 'i', 4, "int32"},
    {TypeId::kInt64, 'l', 8, "int64"},
    {TypeId::kUInt8, 'C', 1, "uint8"},
    {TypeId::kUInt16, 'S', 2, "uint16"},
    {TypeId::kUInt32, 'I', 4, "uint32"},
    {TypeId::kUInt64, 'L', 8, "uint64"},
    {TypeId::kFloat, 'f', 4, "float"},
    {TypeId::kDouble, 'g', 8, "double"},
}};

// Of a dictionary's indices: of 1, 2, 4 and 8 bytes, each with a sign and without.
inline constexpr const char* kIndexFormats = "cCsSiIlL";

}  // namespace holdfast
