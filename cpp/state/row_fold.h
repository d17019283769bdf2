// Reducing folds over values of varying width, or that are only kept or dropped as a whole: first and last of any type,
// min and max of strings and binaries.
#pragma once

#include "holdfast/row_codec.h"
#include "state/fold.h"

namespace holdfast {

enum class RowFunction { kFirst, kLast, kMin, kMax };

// kMin and kMax: string, binary and fixed-size binary only, in the order of their unsigned bytes.
std::unique_ptr<Fold> MakeRowFold(RowCodec codec, RowFunction function);

}  // namespace holdfast
