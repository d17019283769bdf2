#include "bindings/arrow_capsules.h"

namespace holdfast::bindings {

namespace {

const char* ErrorClass(Code code) {
  switch (code) {
    case Code::kInvalidRequest:
      return "InvalidRequest";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kFenced:
      return "Fenced";
    case Code::kCorrupt:
      return "Corrupt";
    case Code::kIncompatible:
      return "Incompatible";
    case Code::kOk:
    case Code::kInternalError:
      break;
  }
  return "InternalError";
}

[[noreturn]] void RaiseNotArrow(const py::object& object, const char* what) {
  Raise(Status::InvalidRequest(std::string("expected an Arrow ") + what + " (anything with __arrow_c_" + what +
                               "__, such as a pyarrow." + (std::string(what) == "array" ? "Array" : "DataType") +
                               "), found " + std::string(py::str(py::type::of(object))) +
                               "; convert it with pyarrow first"));
  throw std::logic_error("unreachable");
}

void ReleaseSchemaCapsule(PyObject* capsule) {
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
  if (schema->release != nullptr) schema->release(schema);
  delete schema;
}

void ReleaseArrayCapsule(PyObject* capsule) {
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
  if (array->release != nullptr) array->release(array);
  delete array;
}

}  // namespace

void Raise(const Status& status) {
  if (status.ok()) return;
  py::object error = py::module_::import("holdfast.errors").attr(ErrorClass(status.code()));
  // Messages quote what was found: a zero byte must not end one, and what is no UTF-8 must not hide the error.
  const std::string& message = status.message();
  const auto text = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  PyErr_SetObject(error.ptr(), text.ptr());
  throw py::error_already_set();
}

OwnedArray ImportArray(const py::object& object) {
  if (!py::hasattr(object, "__arrow_c_array__")) RaiseNotArrow(object, "array");
  py::tuple capsules = object.attr("__arrow_c_array__")();
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(py::object(capsules[0]).ptr(), "arrow_schema"));
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(py::object(capsules[1]).ptr(), "arrow_array"));
  if (schema == nullptr || array == nullptr) throw py::error_already_set();
  return OwnedArray(schema, array);
}

Type ImportTypeOf(const py::object& object) {
  if (!py::hasattr(object, "__arrow_c_schema__")) RaiseNotArrow(object, "schema");
  py::object capsule = object.attr("__arrow_c_schema__")();
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_schema"));
  if (schema == nullptr) throw py::error_already_set();
  return Unwrap(ImportType(*schema));
}

py::tuple PyArrowArray::Export() {
  if (array_.array()->release == nullptr) {
    Raise(Status::InvalidRequest("this ArrowArray was imported already; keep the pyarrow object and use that"));
  }
  auto* schema = new ArrowSchema(*array_.schema());
  auto* array = new ArrowArray(*array_.array());
  array_.schema()->release = nullptr;
  array_.array()->release = nullptr;
  auto schema_capsule = py::reinterpret_steal<py::object>(PyCapsule_New(schema, "arrow_schema", ReleaseSchemaCapsule));
  auto array_capsule = py::reinterpret_steal<py::object>(PyCapsule_New(array, "arrow_array", ReleaseArrayCapsule));
  return py::make_tuple(schema_capsule, array_capsule);
}

void BindArrow(py::module_& module) {
  py::class_<PyArrowArray>(module, "ArrowArray", "An array made by the core. Import it once: pyarrow.array(x).")
      .def(
          "__arrow_c_array__", [](PyArrowArray& self, const py::object& /*requested_schema*/) { return self.Export(); },
          py::arg("requested_schema") = py::none())
      .def("__len__", &PyArrowArray::length);
}

}  // namespace holdfast::bindings
