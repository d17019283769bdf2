#include "state/delta_array.h"

#include "codec/array_builder.h"

namespace holdfast {

namespace {

Type Field(TypeId id, const char* name, int32_t byte_width, bool nullable) {
  Type type;
  type.id = id;
  type.name = name;
  type.byte_width = byte_width;
  type.nullable = nullable;
  return type;
}

}  // namespace

const Type& DeltaType() {
  static const Type kType = [] {
    Type type = Field(TypeId::kStruct, "", 0, true);
    type.children = {Field(TypeId::kUInt16, "key_group", 2, false), Field(TypeId::kUInt16, "state", 2, false),
                     Field(TypeId::kBinary, "key", 0, false), Field(TypeId::kBinary, "value", 0, true)};
    return type;
  }();
  return kType;
}

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

Result<DeltaView> DeltaView::Make(const OwnedArray& delta) {
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView view, ArrayView::Make(DeltaType(), delta.schema(), delta.array()));
  for (size_t i = 0; i < 3; ++i) {
    if (view.child(i).has_nulls()) {
      return Status::Corrupt("a delta has nulls in its column '" + DeltaType().children[i].name + "'");
    }
  }
  return DeltaView(std::move(view));
}

}  // namespace holdfast
