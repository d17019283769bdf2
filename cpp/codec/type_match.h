// When an array that is handed in is of the type that was declared.
#pragma once

#include "holdfast/type.h"

namespace holdfast {

// Equal up to what does not change the bytes of a value: nullability, the names of list and map children, and *which*
// time zone a timestamp is shown in (Spark stamps its session's zone on each batch; the instant is the same).
bool SameType(const Type& declared, const Type& found);

}  // namespace holdfast
