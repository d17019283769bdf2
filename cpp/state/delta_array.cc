#include "state/delta_array.h"

#include "codec/array_builder.h"
#include "codec/delta_view.h"

namespace holdfast {

OwnedArray DeltaArray(DeltaPiece piece) {
  const int64_t rows = piece.rows();
  const std::vector<Type>& fields = DeltaType().children;
  std::vector<OwnedArray> arrays;
  arrays.push_back(MakeFixedWidth(fields[0], std::move(piece.key_groups)));
  arrays.push_back(MakeFixedWidth(fields[1], std::move(piece.states)));
  arrays.push_back(MakeBinary(std::move(piece.keys)));
  arrays.push_back(MakeBinary(std::move(piece.values), {std::move(piece.valid), piece.tombstones}));
  return MakeStruct(DeltaType(), rows, std::move(arrays));
}

}  // namespace holdfast
