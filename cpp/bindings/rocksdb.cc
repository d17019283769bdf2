// RocksDB's face to Python: load_rocksdb, BaseOptions, Base, BaseWriter. The GIL is released around all work on files.
#include <pybind11/stl.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrow_capsules.h"
#include "bindings/base.h"
#include "bindings/without_gil.h"
#include "holdfast/rocksdb_base.h"
#include "rocksdb/record_batches.h"

namespace holdfast::bindings {

namespace {

// Runs `work` without the GIL, then raises or returns what it gave.
template <typename Work>
auto WithoutGil(Work work) {
  auto result = [&] {
    const WithoutGilScope release;
    return work();
  }();
  return Unwrap(std::move(result));
}

BaseOptions MakeBaseOptions(size_t block_cache_bytes, std::string compression, int compaction_threads, int max_runs) {
  BaseOptions options;
  options.block_cache_bytes = block_cache_bytes;
  options.compression = std::move(compression);
  options.compaction_threads = compaction_threads;
  options.max_runs = max_runs;
  return options;
}

PyBase OpenPyBase(const std::string& directory, const BaseOptions& options) {
  return {WithoutGil([&] { return OpenBase(directory, options); }), directory};
}

void ClosePyBase(PyBase& base) {
  std::shared_ptr<BaseReader> reader = std::move(base.reader);
  const WithoutGilScope release;
  reader.reset();
}

// Work without the GIL on what one thread at a time may use: the second one is refused.
class Busy {
 public:
  Busy(std::atomic<bool>* busy, const char* what) : busy_(busy) {
    if (!busy_->exchange(true)) return;
    Raise(Status::InvalidRequest(std::string("this ") + what +
                                 " is in use by another thread; it belongs to one at a time"));
  }
  ~Busy() { busy_->store(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>* busy_;
};

// Entries batch by batch; keeps the base open on its own.
struct PyScan {
  std::shared_ptr<BaseReader> reader;
  std::unique_ptr<BaseIterator> entries;
  int64_t batch_rows;
  std::unique_ptr<std::atomic<bool>> busy = std::make_unique<std::atomic<bool>>(false);
};

PyScan ScanPyBase(const PyBase& base, const std::string& lower, const std::string& upper, int64_t batch_rows) {
  if (batch_rows < 1) {
    Raise(Status::InvalidRequest("batch_rows: expected 1 or more, found " + std::to_string(batch_rows)));
  }
  std::shared_ptr<BaseReader> reader = Unwrap(ReaderOf(base));
  auto entries = WithoutGil([&] { return reader->Scan(lower, upper); });
  return {.reader = std::move(reader), .entries = std::move(entries), .batch_rows = batch_rows};
}

std::unique_ptr<PyArrowArray> NextOfScan(PyScan& scan) {
  const Busy busy(scan.busy.get(), "scan");
  OwnedArray batch = WithoutGil([&] { return rocks::NextBatch(*scan.entries, scan.batch_rows); });
  if (batch.length() == 0) throw py::stop_iteration();
  return ToPython(std::move(batch));
}

struct PyBaseWriter {
  std::unique_ptr<BaseWriter> writer;
  std::unique_ptr<std::atomic<bool>> busy = std::make_unique<std::atomic<bool>>(false);
};

// (state id, cutoff, since, merge step), as StateExpiry
using PyStateExpiry = std::tuple<uint16_t, int64_t, int64_t, int64_t>;

PyBaseWriter MakePyBaseWriter(const std::optional<std::string>& parent, const std::string& directory,
                              const BaseOptions& options, const std::vector<PyStateExpiry>& expiry) {
  std::vector<StateExpiry> states;
  for (const auto& [state_id, cutoff_ms, since_ms, merge_step_ms] : expiry) {
    states.push_back({state_id, {cutoff_ms, since_ms}, merge_step_ms});
  }
  return {.writer = WithoutGil([&] { return BaseWriter::Make(parent.value_or(""), directory, options, states); })};
}

void AddToPyBaseWriter(PyBaseWriter& self, const py::object& delta) {
  const OwnedArray array = ImportArray(delta);
  const Busy busy(self.busy.get(), "BaseWriter");
  Status status;
  {
    const WithoutGilScope release;
    status = rocks::AddDelta(array, *self.writer);
  }
  Raise(status);
}

}  // namespace

void BindRocksDb(py::module_& module) {
  const BaseOptions defaults;
  module.def(
      "load_rocksdb",
      [](const std::string& path) {
        Status status;
        {
          const WithoutGilScope release;
          status = LoadRocksDb(path);
        }
        Raise(status);
      },
      py::arg("path"));
  py::class_<BaseOptions>(module, "BaseOptions")
      .def(py::init(&MakeBaseOptions), py::kw_only(), py::arg("block_cache_bytes") = defaults.block_cache_bytes,
           py::arg("compression") = defaults.compression, py::arg("compaction_threads") = defaults.compaction_threads,
           py::arg("max_runs") = defaults.max_runs);
  py::class_<PyScan>(module, "BaseScan", "Entries of a Base in key order, batch by batch.")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &NextOfScan);
  py::class_<PyBase>(module, "Base", "A base opened read-only.")
      .def(py::init(&OpenPyBase), py::arg("directory"), py::arg("options"))
      .def("scan", &ScanPyBase, py::arg("lower") = py::bytes(), py::arg("upper") = py::bytes(),
           py::arg("batch_rows") = 65536)
      .def("close", &ClosePyBase);
  py::class_<PyBaseWriter>(module, "BaseWriter", "Makes the next base: the old one's tables, shared, plus changes.")
      .def(py::init(&MakePyBaseWriter), py::arg("parent").none(true), py::arg("directory"), py::arg("options"),
           py::arg("expiry") = std::vector<PyStateExpiry>())
      .def("add", &AddToPyBaseWriter, py::arg("delta"))
      .def_property_readonly("memory_bytes",
                             [](const PyBaseWriter& self) {
                               const Busy busy(self.busy.get(), "BaseWriter");
                               return self.writer->memory_bytes();
                             })
      .def_property_readonly("expired",
                             [](const PyBaseWriter& self) {
                               const Busy busy(self.busy.get(), "BaseWriter");
                               return self.writer->expired();
                             })
      .def("finish", [](PyBaseWriter& self) {
        const Busy busy(self.busy.get(), "BaseWriter");
        return WithoutGil([&] { return self.writer->Finish(); });
      });
}

}  // namespace holdfast::bindings
