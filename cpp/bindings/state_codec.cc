// StateCodec, and the schemas of a state, for Python. No logic: arguments in, the core's call without the GIL, arrays
// out.
#include "holdfast/state_codec.h"

#include <pybind11/stl.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrow_capsules.h"
#include "bindings/without_gil.h"

namespace holdfast::bindings {

namespace {

const std::map<std::string, EntryKind> kKinds = {
    {"value", EntryKind::kValue}, {"list", EntryKind::kList}, {"map", EntryKind::kMap}, {"timers", EntryKind::kTimers}};

std::optional<Type> TypeOrNone(const std::optional<py::object>& schema) {
  return schema.has_value() ? std::optional<Type>(ImportTypeOf(*schema)) : std::nullopt;
}

ValueSchemas MakeValueSchemas(const std::vector<py::object>& earlier, const py::object& newest,
                              const std::vector<std::pair<std::vector<int32_t>, std::string>>& defaults) {
  ValueSchemas schemas;
  for (const py::object& schema : earlier) schemas.earlier.push_back(ImportTypeOf(schema));
  schemas.newest = ImportTypeOf(newest);
  for (const auto& [path, row] : defaults) schemas.defaults.push_back({path, row});
  return schemas;
}

std::unique_ptr<StateCodec> MakeStateCodec(const py::object& key_schema, int64_t state_id, const std::string& kind,
                                           int32_t max_parallelism, bool null_keys,
                                           const std::optional<py::object>& map_key,
                                           const std::optional<py::object>& value,
                                           const std::optional<ValueSchemas>& schemas) {
  const auto found = kKinds.find(kind);
  if (found == kKinds.end()) {
    Raise(Status::InvalidRequest("kind: expected value, list, map or timers, found '" + kind + "'"));
  }
  return Unwrap(StateCodec::Make(ImportTypeOf(key_schema), {state_id, found->second, null_keys, max_parallelism,
                                                            TypeOrNone(map_key), TypeOrNone(value), schemas}));
}

std::unique_ptr<PyArrowArray> Decode(const StateCodec& codec, const py::object& entries,
                                     std::optional<int64_t> cutoff_ms, std::optional<int64_t> since_ms) {
  const OwnedArray array = ImportArray(entries);
  const Expiry none;
  const Expiry expiry{cutoff_ms.value_or(none.cutoff_ms), since_ms.value_or(none.since_ms)};
  return ToPython(Unwrap([&] {
    const WithoutGilScope release;
    return codec.Decode(array, expiry);
  }()));
}

std::unique_ptr<PyArrowArray> Encode(const StateCodec& codec, const std::optional<py::object>& keys,
                                     const std::optional<py::object>& times, const std::optional<py::object>& suffixes,
                                     const std::optional<py::object>& values, const std::optional<py::object>& stamps) {
  std::vector<OwnedArray> arrays;
  arrays.reserve(5);
  const auto import = [&arrays](const std::optional<py::object>& given) -> const OwnedArray* {
    return given.has_value() ? &arrays.emplace_back(ImportArray(*given)) : nullptr;
  };
  const StateCodec::Columns columns{import(keys), import(times), import(suffixes), import(values), import(stamps)};
  return ToPython(Unwrap([&] {
    const WithoutGilScope release;
    return codec.Encode(columns);
  }()));
}

}  // namespace

void BindStateCodec(py::module_& module) {
  py::class_<ValueSchemas>(module, "ValueSchemas", "The schemas that a state's values were written with.")
      .def(py::init(&MakeValueSchemas), py::arg("earlier"), py::arg("newest"), py::kw_only(),
           py::arg("defaults") = std::vector<std::pair<std::vector<int32_t>, std::string>>());
  py::class_<StateCodec>(module, "StateCodec", "What one state keeps as Arrow columns, and back.")
      .def(py::init(&MakeStateCodec), py::arg("key_schema"), py::kw_only(), py::arg("state_id"), py::arg("kind"),
           py::arg("max_parallelism"), py::arg("null_keys") = false, py::arg("map_key") = std::nullopt,
           py::arg("value") = std::nullopt, py::arg("schemas") = std::nullopt)
      .def("decode", &Decode, py::arg("entries"), py::kw_only(), py::arg("cutoff_ms") = std::nullopt,
           py::arg("since_ms") = std::nullopt)
      .def("encode", &Encode, py::kw_only(), py::arg("keys") = std::nullopt, py::arg("times") = std::nullopt,
           py::arg("suffixes") = std::nullopt, py::arg("values") = std::nullopt, py::arg("stamps") = std::nullopt);
}

}  // namespace holdfast::bindings
