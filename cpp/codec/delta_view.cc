#include "codec/delta_view.h"

namespace holdfast {

const Type& DeltaType() {
  static const Type kType = [] {
    Type type = Type::Field(TypeId::kStruct, "", 0, true);
    type.children = {Type::Field(TypeId::kUInt16, "key_group", 2, false),
                     Type::Field(TypeId::kUInt16, "state", 2, false), Type::Field(TypeId::kBinary, "key", 0, false),
                     Type::Field(TypeId::kBinary, "value", 0, true)};
    return type;
  }();
  return kType;
}

Result<DeltaView> DeltaView::Make(const OwnedArray& delta) {
  HOLDFAST_ASSIGN_OR_RETURN(ArrayView view, ArrayView::Make(DeltaType(), delta.schema(), delta.array()));
  if (view.has_nulls()) {
    return Status::Corrupt("expected a delta, found one whose row " + std::to_string(view.FirstNull()) +
                           " is null; restore from another version");
  }
  for (size_t i = 0; i < 3; ++i) {
    if (!view.child(i).has_nulls()) continue;
    return Status::Corrupt("a delta has nulls in its column '" + DeltaType().children[i].name + "', the first in row " +
                           std::to_string(view.child(i).FirstNull()) +
                           "; only a value may be null; restore from another version");
  }
  return DeltaView(std::move(view));
}

}  // namespace holdfast
