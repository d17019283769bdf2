// holdfast._core: the native core as a Python module. Bindings hold no logic; every call that does real work releases
// the GIL.
#include "bindings/arrow_capsules.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Holdfast's native core. Thin bindings, no logic.";
  holdfast::bindings::BindArrow(module);
  holdfast::bindings::BindCodec(module);
  holdfast::bindings::BindRocksDb(module);
  holdfast::bindings::BindStateCodec(module);
  holdfast::bindings::BindStore(module);
}
