// Deltas on their way out of the core, as codec/delta_view.h reads them.
#pragma once

#include "holdfast/array.h"
#include "overlay/delta.h"

namespace holdfast {

OwnedArray DeltaArray(DeltaPiece piece);

}  // namespace holdfast
