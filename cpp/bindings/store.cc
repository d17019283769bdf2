// holdfast._core.Store and its tables. Arrays are taken over and given back with the GIL, the work is done without it.
// Tables belong to their Store: reference_internal keeps the Store alive as long as one of its tables.
#include "holdfast/store.h"

#include <pybind11/stl.h>

#include <optional>

#include "bindings/arrow_capsules.h"
#include "bindings/base.h"
#include "bindings/without_gil.h"

namespace holdfast::bindings {

namespace {

template <typename Call>
auto WithoutGil(Call&& call) {
  const WithoutGilScope release;
  return call();
}

std::unique_ptr<PyArrowArray> Give(Result<OwnedArray> result) { return ToPython(Unwrap(std::move(result))); }
void Give(const Status& status) { Raise(status); }

// Python functions of a table's methods, each argument an array. `Self` is the table as Python knows it.
template <typename Self, typename Table, typename Answer>
auto Bound(Answer (Table::*method)(const OwnedArray&)) {
  return [method](Self& table, const py::object& a) {
    const OwnedArray first = ImportArray(a);
    return Give(WithoutGil([&] { return (table.*method)(first); }));
  };
}
template <typename Self, typename Table, typename Answer>
auto Bound(Answer (Table::*method)(const OwnedArray&, const OwnedArray&)) {
  return [method](Self& table, const py::object& a, const py::object& b) {
    const OwnedArray first = ImportArray(a);
    const OwnedArray second = ImportArray(b);
    return Give(WithoutGil([&] { return (table.*method)(first, second); }));
  };
}
template <typename Self, typename Table, typename Answer>
auto Bound(Answer (Table::*method)(const OwnedArray&, const OwnedArray&, const OwnedArray&)) {
  return [method](Self& table, const py::object& a, const py::object& b, const py::object& c) {
    const OwnedArray first = ImportArray(a);
    const OwnedArray second = ImportArray(b);
    const OwnedArray third = ImportArray(c);
    return Give(WithoutGil([&] { return (table.*method)(first, second, third); }));
  };
}

void BindValueTable(py::module_& module) {
  py::class_<ValueTable>(module, "ValueTable", "One value a key.")
      .def("get", Bound<ValueTable>(&ValueTable::Get), py::arg("keys"))
      .def("put", Bound<ValueTable>(&ValueTable::Put), py::arg("keys"), py::arg("values"))
      .def("contains", Bound<ValueTable>(&ValueTable::Contains), py::arg("keys"))
      .def("clear", Bound<ValueTable>(&ValueTable::Clear), py::arg("keys"));
}

template <typename Table>
void BindFoldTable(py::module_& module, const char* name, const char* doc) {
  py::class_<Table>(module, name, doc)
      .def("add", Bound<Table>(&FoldTable::Add), py::arg("keys"), py::arg("values"))
      .def("add_only", Bound<Table>(&FoldTable::AddOnly), py::arg("keys"), py::arg("values"))
      .def("get", Bound<Table>(&FoldTable::Get), py::arg("keys"))
      .def("clear", Bound<Table>(&FoldTable::Clear), py::arg("keys"));
}

void BindListTable(py::module_& module) {
  py::class_<ListTable>(module, "ListTable", "A list a key; appending reads nothing.")
      .def("append", Bound<ListTable>(&ListTable::Append), py::arg("keys"), py::arg("values"))
      .def("get", Bound<ListTable>(&ListTable::Get), py::arg("keys"))
      .def("clear", Bound<ListTable>(&ListTable::Clear), py::arg("keys"));
}

void BindMapTable(py::module_& module) {
  py::class_<MapTable>(module, "MapTable", "A map a key; map_keys and map_values are as long as keys.")
      .def("get", Bound<MapTable>(&MapTable::Get), py::arg("keys"), py::arg("map_keys"))
      .def("put", Bound<MapTable>(&MapTable::Put), py::arg("keys"), py::arg("map_keys"), py::arg("map_values"))
      .def("contains", Bound<MapTable>(&MapTable::Contains), py::arg("keys"), py::arg("map_keys"))
      .def("remove", Bound<MapTable>(&MapTable::Remove), py::arg("keys"), py::arg("map_keys"))
      .def("entries", Bound<MapTable>(&MapTable::Entries), py::arg("keys"))
      .def("count", Bound<MapTable>(&MapTable::Count), py::arg("keys"))
      .def("clear", Bound<MapTable>(&MapTable::Clear), py::arg("keys"));
}

void BindTimerTable(py::module_& module) {
  py::class_<TimerTable>(module, "TimerTable", "Timers: (key, time, namespace), in order of time.")
      .def("register", Bound<TimerTable>(&TimerTable::Register), py::arg("keys"), py::arg("times"),
           py::arg("namespaces"))
      .def("delete", Bound<TimerTable>(&TimerTable::Delete), py::arg("keys"), py::arg("times"), py::arg("namespaces"))
      .def(
          "take_due",
          [](TimerTable& table, int64_t until, int64_t limit) {
            return Give(WithoutGil([&] { return table.TakeDue(until, limit); }));
          },
          py::arg("until"), py::arg("limit"))
      .def("next_due", [](TimerTable& table) { return Unwrap(WithoutGil([&] { return table.NextDue(); })); })
      .def("list", Bound<TimerTable>(&TimerTable::List), py::arg("keys"));
}

// Python lets go of a Store with the GIL held, and giving gigabytes back takes a while.
std::shared_ptr<Store> MakeStore(const py::object& key_schema, const StoreOptions& options) {
  std::unique_ptr<Store> store = Unwrap(Store::Make(ImportTypeOf(key_schema), options));
  return {store.release(), [](Store* last) {
            const WithoutGilScope release;
            delete last;
          }};
}

std::shared_ptr<BaseReader> ReaderOrNull(const PyBase* base) {
  return base == nullptr ? nullptr : Unwrap(ReaderOf(*base));
}

void BindStates(py::class_<Store, std::shared_ptr<Store>>& store) {
  constexpr auto kOwned = py::return_value_policy::reference_internal;
  store
      .def(
          "value_state",
          [](Store& self, int64_t id, const py::object& value) {
            return Unwrap(self.ValueState(id, ImportTypeOf(value)));
          },
          py::arg("state_id"), py::arg("value"), kOwned)
      .def(
          "list_state",
          [](Store& self, int64_t id, const py::object& element) {
            return Unwrap(self.ListState(id, ImportTypeOf(element)));
          },
          py::arg("state_id"), py::arg("element"), kOwned)
      .def(
          "map_state",
          [](Store& self, int64_t id, const py::object& map_key, const py::object& map_value) {
            return Unwrap(self.MapState(id, ImportTypeOf(map_key), ImportTypeOf(map_value)));
          },
          py::arg("state_id"), py::arg("map_key"), py::arg("map_value"), kOwned)
      .def(
          "reducing_state",
          [](Store& self, int64_t id, const py::object& value, const std::string& function) {
            return Unwrap(self.ReducingState(id, ImportTypeOf(value), function));
          },
          py::arg("state_id"), py::arg("value"), py::arg("function"), kOwned)
      .def(
          "aggregating_state",
          [](Store& self, int64_t id, const py::object& value, const std::string& function) {
            return Unwrap(self.AggregatingState(id, ImportTypeOf(value), function));
          },
          py::arg("state_id"), py::arg("value"), py::arg("function"), kOwned)
      .def("timers", [](Store& self, int64_t id) { return Unwrap(self.Timers(id)); }, py::arg("state_id"), kOwned);
}

void BindVersions(py::class_<Store, std::shared_ptr<Store>>& store) {
  store
      .def(
          "set_base",
          [](Store& self, const PyBase* base, int64_t sequence) {
            std::shared_ptr<BaseReader> reader = ReaderOrNull(base);
            Raise(WithoutGil([&] { return self.SetBase(std::move(reader), sequence); }));
          },
          py::arg("base").none(true), py::arg("sequence"))
      .def(
          "load",
          [](Store& self, const PyBase& base) {
            std::shared_ptr<BaseReader> reader = ReaderOrNull(&base);
            Raise(WithoutGil([&] { return self.Load(std::move(reader)); }));
          },
          py::arg("base"))
      .def(
          "apply_delta",
          [](Store& self, const py::object& delta, int64_t sequence) {
            const OwnedArray array = ImportArray(delta);
            Raise(WithoutGil([&] { return self.ApplyDelta(array, sequence); }));
          },
          py::arg("delta"), py::arg("sequence"))
      .def(
          "begin", [](Store& self, int64_t sequence) { Raise(self.Begin(sequence)); }, py::arg("sequence"))
      .def(
          "set_schemas",
          [](Store& self, int64_t state_id, const ValueSchemas& schemas) { Raise(self.SetSchemas(state_id, schemas)); },
          py::arg("state_id"), py::arg("schemas"))
      .def(
          "set_expiry",
          [](Store& self, int64_t state_id, std::optional<int64_t> cutoff_ms, std::optional<int64_t> since_ms,
             std::optional<int64_t> stamp_ms, bool refresh_on_read) {
            const Expiry none;
            const Expiry expiry{cutoff_ms.value_or(none.cutoff_ms), since_ms.value_or(none.since_ms)};
            Raise(self.SetExpiry(state_id, {expiry, stamp_ms.has_value(), stamp_ms.value_or(0), refresh_on_read}));
          },
          py::arg("state_id"), py::kw_only(), py::arg("cutoff_ms"), py::arg("since_ms"), py::arg("stamp_ms"),
          py::arg("refresh_on_read") = false)
      .def("take_delta", [](Store& self) { return Give(WithoutGil([&] { return self.TakeDelta(); })); })
      .def("commit", [](Store& self) { Raise(self.Commit()); })
      .def("check", [](Store& self) { Raise(self.Check()); })
      .def("reset", [](Store& self) { Raise(WithoutGil([&] { return self.Reset(); })); })
      .def("evict_clean", [](Store& self) { Raise(WithoutGil([&] { return self.EvictClean(); })); });
}

}  // namespace

void BindStore(py::module_& module) {
  BindValueTable(module);
  BindFoldTable<ReducingTable>(module, "ReducingTable", "One value a key, into which values are folded.");
  BindFoldTable<AggregatingTable>(module, "AggregatingTable", "One accumulator a key.");
  BindListTable(module);
  BindMapTable(module);
  BindTimerTable(module);
  py::class_<Store, std::shared_ptr<Store>> store(module, "Store",
                                                  "The live state of one slot at one version: overlay over a base.");
  store.def(py::init([](const py::object& key_schema, int32_t max_parallelism, int32_t first_key_group,
                        int32_t end_key_group, bool null_keys, bool complete, int64_t delta_bytes_max) {
              return MakeStore(key_schema,
                               {max_parallelism, first_key_group, end_key_group, null_keys, complete, delta_bytes_max});
            }),
            py::arg("key_schema"), py::kw_only(), py::arg("max_parallelism"), py::arg("first_key_group"),
            py::arg("end_key_group"), py::arg("null_keys") = false, py::arg("complete") = false,
            py::arg("delta_bytes_max") = StoreOptions().delta_bytes_max);
  BindStates(store);
  BindVersions(store);
  store.def_property_readonly("sequence", &Store::sequence)
      .def_property_readonly("memory_bytes", &Store::memory_bytes)
      .def_property_readonly("pending_bytes", &Store::pending_bytes)
      .def_property_readonly("dirty_bytes", &Store::dirty_bytes)
      .def_property_readonly("counters", &Store::Counters)
      .def(
          "distinct",
          [](Store& self, const py::object& keys) {
            const OwnedArray array = ImportArray(keys);
            Store::Distinct distinct = Unwrap(WithoutGil([&] { return self.DistinctKeys(array); }));
            return py::make_tuple(ToPython(std::move(distinct.codes)), ToPython(std::move(distinct.rows)));
          },
          py::arg("keys"));
}

}  // namespace holdfast::bindings
