// The schemas that a state's values were written with, one after the other, and how fields of the newest came to be.
// Why: docs/rfcs/0017. Which one wrote a value, its header says: docs/formats/value.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/type.h"

namespace holdfast {

// What rows from before a field have in it.
struct FieldDefault {
  std::vector<int32_t> path;  // numbers of children, from the newest schema down to the field
  std::string row;            // of the field's type in the newest schema
};

struct ValueSchemas {
  // Versions 1, 2, … A field of a struct is, in all versions, the one of its name; so callers name fields by what
  // identifies them.
  std::vector<Type> earlier;
  Type newest;
  std::vector<FieldDefault> defaults;  // of other fields that an earlier schema lacks: null
};

}  // namespace holdfast
