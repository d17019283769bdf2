// Arrow arrays through Python: import by __arrow_c_array__ / __arrow_c_schema__, export as the class ArrowArray.
// Ownership: ImportedArray owns what the producer handed over until it is destroyed; PyArrowArray owns an array of the
// core until Python imports it. Any function here that touches Python objects needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "holdfast/array.h"

namespace holdfast::bindings {

namespace py = pybind11;

// Raises the class of holdfast.errors that goes with the status; returns when it is ok.
void Raise(const Status& status);
template <typename T>
T Unwrap(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result).value();
}

// Takes the array out of `object` (InvalidRequest when it does not speak the Arrow C data interface).
OwnedArray ImportArray(const py::object& object);
// Reads the type out of `object`: a pyarrow DataType, Field or Schema.
Type ImportTypeOf(const py::object& object);

// What the core hands to Python; consumed by the first __arrow_c_array__.
class PyArrowArray {
 public:
  explicit PyArrowArray(OwnedArray array) : array_(std::move(array)), length_(array_.length()) {}
  py::tuple Export();
  int64_t length() const { return length_; }

 private:
  OwnedArray array_;
  int64_t length_;
};

inline std::unique_ptr<PyArrowArray> ToPython(OwnedArray array) {
  return std::make_unique<PyArrowArray>(std::move(array));
}

void BindArrow(py::module_& module);       // ArrowArray (arrow_capsules.cc)
void BindCodec(py::module_& module);       // KeyCodec, RowCodec, xxh64 … (codec.cc)
void BindRocksDb(py::module_& module);     // load_rocksdb, Base, BaseWriter (rocksdb.cc)
void BindStateCodec(py::module_& module);  // ValueSchemas, StateCodec (state_codec.cc)
void BindStore(py::module_& module);       // Store and the state tables (store.cc)

}  // namespace holdfast::bindings
