// xxh64, slots and the codecs for Python. No logic: arguments in, the core's call without the GIL, arrays out.
#include <pybind11/stl.h>

#include "bindings/arrow_capsules.h"
#include "bindings/without_gil.h"
#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "codec/partition.h"
#include "codec/xxh64.h"
#include "holdfast/key_codec.h"
#include "holdfast/row_codec.h"

namespace holdfast::bindings {

namespace {

// Runs `work` without the GIL; raises what it returns.
template <typename Work>
auto Unlocked(Work work) {
  auto result = [&work] {
    const WithoutGilScope unlocked;
    return work();
  }();
  return Unwrap(std::move(result));
}

// The byte strings of a binary array; null rows have a null data().
Result<std::vector<Slice>> Slices(const OwnedArray& array) {
  const Type binary = Type::Field(TypeId::kBinary, "", 0, true);
  HOLDFAST_ASSIGN_OR_RETURN(const ArrayView view, ArrayView::Make(binary, array.schema(), array.array()));
  std::vector<Slice> slices(static_cast<size_t>(view.length()));
  for (int64_t i = 0; i < view.length(); ++i) {
    if (!view.IsNull(i)) slices[static_cast<size_t>(i)] = view.Bytes(i);
  }
  return slices;
}

uint64_t HashBuffer(const py::buffer& data, uint64_t seed) {
  const py::buffer_info info = data.request();
  if (!PyBuffer_IsContiguous(info.view(), 'C')) {
    Raise(Status::InvalidRequest("xxh64 needs contiguous bytes; copy the memoryview with bytes(…) first"));
  }
  const WithoutGilScope unlocked;
  return Xxh64(info.ptr, static_cast<size_t>(info.size * info.itemsize), seed);
}

std::unique_ptr<PyArrowArray> EncodeKeys(const KeyCodec& codec, const py::object& keys) {
  const OwnedArray array = ImportArray(keys);
  return ToPython(Unlocked([&]() -> Result<OwnedArray> {
    ByteColumn encoded;
    HOLDFAST_RETURN_IF_ERROR(codec.Encode(array.schema(), array.array(), &encoded));
    return MakeBinary(std::move(encoded));
  }));
}

std::unique_ptr<PyArrowArray> DecodeKeys(const KeyCodec& codec, const py::object& encoded) {
  const OwnedArray array = ImportArray(encoded);
  return ToPython(Unlocked([&]() -> Result<OwnedArray> {
    HOLDFAST_ASSIGN_OR_RETURN(const std::vector<Slice> slices, Slices(array));
    return codec.Decode(slices);
  }));
}

std::unique_ptr<PyArrowArray> KeyGroupsOf(const KeyCodec& codec, const py::object& keys, int32_t max_parallelism) {
  const OwnedArray array = ImportArray(keys);
  return ToPython(Unlocked([&]() -> Result<OwnedArray> {
    HOLDFAST_ASSIGN_OR_RETURN(std::vector<uint16_t> groups,
                              KeyGroups(codec, array.schema(), array.array(), max_parallelism));
    return MakeFixedWidth(Type::Field(TypeId::kUInt16, "", 2, true), std::move(groups));
  }));
}

py::tuple PartitionKeys(const KeyCodec& codec, const py::object& keys, int32_t max_parallelism, int32_t slots) {
  const OwnedArray array = ImportArray(keys);
  Partition partition =
      Unlocked([&] { return PartitionBySlot(codec, array.schema(), array.array(), max_parallelism, slots); });
  return py::make_tuple(
      ToPython(MakeFixedWidth(Type::Field(TypeId::kInt32, "", 4, true), std::move(partition.order))),
      ToPython(MakeFixedWidth(Type::Field(TypeId::kInt64, "", 8, true), std::move(partition.offsets))));
}

std::unique_ptr<PyArrowArray> EncodeRows(const RowCodec& codec, const py::object& values) {
  const OwnedArray array = ImportArray(values);
  return ToPython(Unlocked([&]() -> Result<OwnedArray> {
    ByteColumn rows;
    std::vector<bool> nulls;
    HOLDFAST_RETURN_IF_ERROR(codec.Encode(array.schema(), array.array(), {}, &rows, &nulls));
    return MakeBinary(std::move(rows), ValidityOf(nulls));
  }));
}

std::unique_ptr<PyArrowArray> DecodeRows(const RowCodec& codec, const py::object& rows) {
  const OwnedArray array = ImportArray(rows);
  return ToPython(Unlocked([&]() -> Result<OwnedArray> {
    HOLDFAST_ASSIGN_OR_RETURN(const std::vector<Slice> slices, Slices(array));
    return codec.Decode(slices);
  }));
}

int32_t SlotOfChecked(int32_t key_group, int32_t max_parallelism, int32_t slots) {
  Raise(CheckSlots(max_parallelism, slots));
  Raise(CheckKeyGroup(key_group, max_parallelism));
  return SlotOf(key_group, max_parallelism, slots);
}

int32_t FirstKeyGroupChecked(int32_t slot, int32_t max_parallelism, int32_t slots) {
  Raise(CheckSlots(max_parallelism, slots));
  Raise(CheckSlot(slot, slots));
  return FirstKeyGroup(slot, max_parallelism, slots);
}

}  // namespace

void BindCodec(py::module_& module) {
  module.def("xxh64", &HashBuffer, py::arg("data"), py::arg("seed") = 0, "XXH64 of the bytes.");
  module.def(
      "xxh64_file", [](const std::string& path) { return Unlocked([&path] { return Xxh64File(path); }); },
      py::arg("path"), "(XXH64 with seed 0, size in bytes) of a file.");
  module.def("slot_of", &SlotOfChecked, py::arg("key_group"), py::arg("max_parallelism"), py::arg("slots"),
             "The slot that owns a key group.");
  module.def("first_key_group", &FirstKeyGroupChecked, py::arg("slot"), py::arg("max_parallelism"), py::arg("slots"),
             "The first key group of a slot; of slot `slots`: max_parallelism.");

  py::class_<KeyCodec>(module, "KeyCodec", "Encodes keys so that the order of the bytes is the order of the keys.")
      .def(py::init([](const py::object& schema, bool null_keys) {
             return Unwrap(KeyCodec::Make(ImportTypeOf(schema), null_keys));
           }),
           py::arg("schema"), py::kw_only(), py::arg("null_keys") = false)
      .def("encode", &EncodeKeys, py::arg("keys"), "One encoded key a row, as binary.")
      .def("decode", &DecodeKeys, py::arg("encoded"), "The keys that the encodings stand for.")
      .def("key_groups", &KeyGroupsOf, py::arg("keys"), py::arg("max_parallelism"),
           "The key group of each row: uint16.")
      .def("partition", &PartitionKeys, py::arg("keys"), py::arg("max_parallelism"), py::arg("slots"),
           "(order, offsets): row numbers grouped by slot, in their first order within each slot.");

  py::class_<RowCodec>(module, "RowCodec", "Turns values of one type into rows of bytes and back.")
      .def(py::init([](const py::object& schema) { return Unwrap(RowCodec::Make(ImportTypeOf(schema))); }),
           py::arg("schema"))
      .def("encode", &EncodeRows, py::arg("values"), "One row a value, as binary; null where the value is null.")
      .def("decode", &DecodeRows, py::arg("rows"), "The values that the rows stand for; null where a row is null.");
}

}  // namespace holdfast::bindings
