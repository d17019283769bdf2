// A base opened read-only. Any number of processes may have it open; nothing is written to its folder.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "rocksdb/errors.h"
#include "rocksdb/handles.h"

namespace holdfast {

namespace rocks {

namespace {

// Large enough to share the lookups of one index block, small enough that a call's bookkeeping stays on the stack.
constexpr size_t kKeysPerCall = 256;
// Keys for which it is decided together whether to look them up or to scan past them. RFC 2 has the measurements.
constexpr size_t kKeysPerDecision = 4096;
constexpr size_t kKeysWorthDeciding = 512;
// A lookup costs as much as scanning past this many entries …
constexpr double kEntriesPerLookup = 5;
// … and a seek as much as stepping over this many.
constexpr int kStepsBeforeSeek = 24;

using ReadOptionsHandle = Handle<CReadOptions>;

ReadOptionsHandle MakeReadOptions(const CApi& api) {
  ReadOptionsHandle options(api.readoptions_create(), api.readoptions_destroy);
  api.readoptions_set_verify_checksums(options.get(), 1);
  return options;
}

// The values and errors of one call to RocksDB; gives back what was not consumed.
class FoundValues {
 public:
  explicit FoundValues(const CApi& api) : api_(api) {}
  ~FoundValues() {
    for (size_t i = 0; i < kKeysPerCall; ++i) {
      if (values[i] != nullptr) api_.pinnableslice_destroy(values[i]);
      if (errors[i] != nullptr) api_.free(errors[i]);
    }
  }
  FoundValues(const FoundValues&) = delete;
  FoundValues& operator=(const FoundValues&) = delete;

  std::array<CPinnableSlice*, kKeysPerCall> values{};
  std::array<char*, kKeysPerCall> errors{};

 private:
  const CApi& api_;
};

class Iterator final : public BaseIterator {
 public:
  Iterator(std::shared_ptr<Database> database, Slice lower, Slice upper)
      : database_(std::move(database)),
        api_(database_->api()),
        upper_(upper),
        options_(MakeReadOptions(api_)),
        iterator_(nullptr, api_.iter_destroy) {
    if (!upper_.empty()) api_.readoptions_set_iterate_upper_bound(options_.get(), upper_.data(), upper_.size());
    iterator_.reset(api_.create_iterator_cf(database_->db(), options_.get(), database_->family()));
    api_.iter_seek(iterator_.get(), lower.data(), lower.size());
  }

  bool Valid() const override { return api_.iter_valid(iterator_.get()) != 0; }
  void Next() override { api_.iter_next(iterator_.get()); }
  Slice key() const override {
    size_t size = 0;
    const char* bytes = api_.iter_key(iterator_.get(), &size);
    return {bytes, size};
  }
  Slice value() const override {
    size_t size = 0;
    const char* bytes = api_.iter_value(iterator_.get(), &size);
    return {bytes, size};
  }
  Status status() const override {
    char* error = nullptr;
    api_.iter_get_error(iterator_.get(), &error);
    return TakeError(api_, error, "scanning a base", database_->directory());
  }

 private:
  std::shared_ptr<Database> database_;  // an iterator may outlive its reader
  const CApi& api_;
  const std::string upper_;  // RocksDB borrows it
  ReadOptionsHandle options_;
  Handle<CIterator> iterator_;
};

// Finds sorted keys by going through the entries between them: cheaper than lookups where most entries are asked for.
class Sweep {
 public:
  explicit Sweep(const std::shared_ptr<Database>& database)
      : database_(*database),
        api_(database->api()),
        options_(MakeReadOptions(api_)),
        iterator_(api_.create_iterator_cf(database->db(), options_.get(), database->family()), api_.iter_destroy) {}

  // `keys` follow, in order, those of earlier calls. `first` is the position of keys[0] in what was asked for.
  Status Get(std::span<const Slice> keys, size_t first, GetSink& sink) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!MoveTo(keys[i])) break;
      if (key_ == keys[i]) sink.Found(first + i, Value());
    }
    char* error = nullptr;
    api_.iter_get_error(iterator_.get(), &error);
    return TakeError(api_, error, "reading from a base", database_.directory());
  }

 private:
  // To the first entry at or after `wanted`; false when there is none.
  bool MoveTo(Slice wanted) {
    for (int step = 0; positioned_ && step < kStepsBeforeSeek; ++step) {
      if (key_ >= wanted) return true;
      api_.iter_next(iterator_.get());
      ReadKey();
    }
    if (positioned_ && key_ >= wanted) return true;
    if (at_end_) return false;
    api_.iter_seek(iterator_.get(), wanted.data(), wanted.size());
    ReadKey();
    return positioned_;
  }

  void ReadKey() {
    positioned_ = api_.iter_valid(iterator_.get()) != 0;
    at_end_ = !positioned_;
    if (!positioned_) return;
    size_t size = 0;
    const char* bytes = api_.iter_key(iterator_.get(), &size);
    key_ = {bytes, size};
  }

  Slice Value() const {
    size_t size = 0;
    const char* bytes = api_.iter_value(iterator_.get(), &size);
    return {bytes, size};
  }

  const Database& database_;
  const CApi& api_;
  ReadOptionsHandle options_;
  Handle<CIterator> iterator_;
  bool positioned_ = false;
  bool at_end_ = false;  // or failed
  Slice key_;            // of the entry at hand, when positioned_
};

class Reader final : public BaseReader {
 public:
  explicit Reader(std::unique_ptr<Database> database)
      : database_(std::move(database)),
        options_(MakeReadOptions(database_->api())),
        entries_(IntProperty("rocksdb.estimate-num-keys")),
        table_bytes_(IntProperty("rocksdb.total-sst-files-size")) {}

  Status MultiGet(std::span<const Slice> keys, GetSink& sink) override {
    std::optional<Sweep> sweep;
    for (size_t first = 0; first < keys.size(); first += kKeysPerDecision) {
      const auto part = keys.subspan(first, std::min(kKeysPerDecision, keys.size() - first));
      if (static_cast<double>(part.size()) * kEntriesPerLookup < EntriesBetween(part)) {
        HOLDFAST_RETURN_IF_ERROR(LookUp(part, first, sink));
      } else {
        if (!sweep.has_value()) sweep.emplace(database_);
        HOLDFAST_RETURN_IF_ERROR(sweep->Get(part, first, sink));
      }
    }
    return Status::Ok();
  }

  Result<std::unique_ptr<BaseIterator>> Scan(Slice lower, Slice upper) override {
    auto iterator = std::make_unique<Iterator>(database_, lower, upper);
    HOLDFAST_RETURN_IF_ERROR(iterator->status());
    return std::unique_ptr<BaseIterator>(std::move(iterator));
  }

 private:
  uint64_t IntProperty(const char* name) const {
    uint64_t value = 0;
    const CApi& api = database_->api();
    return api.property_int_cf(database_->db(), database_->family(), name, &value) == 0 ? value : 0;
  }

  // About how many entries lie from the first of these keys to the last. Infinite for so few keys that asking costs
  // more than it could save.
  double EntriesBetween(std::span<const Slice> keys) const {
    constexpr double kMany = std::numeric_limits<double>::infinity();
    if (keys.size() < kKeysWorthDeciding || table_bytes_ == 0) return kMany;
    const CApi& api = database_->api();
    const char* const starts[] = {keys.front().data()};
    const char* const limits[] = {keys.back().data()};
    const size_t start_sizes[] = {keys.front().size()};
    const size_t limit_sizes[] = {keys.back().size()};
    uint64_t bytes = 0;
    char* error = nullptr;
    api.approximate_sizes_cf(database_->db(), database_->family(), 1, starts, start_sizes, limits, limit_sizes, &bytes,
                             &error);
    if (error != nullptr) {
      api.free(error);  // an estimate only: the lookups will meet what is wrong
      return kMany;
    }
    return static_cast<double>(entries_) * static_cast<double>(bytes) / static_cast<double>(table_bytes_);
  }

  Status LookUp(std::span<const Slice> keys, size_t first, GetSink& sink) {
    for (size_t done = 0; done < keys.size(); done += kKeysPerCall) {
      const auto part = keys.subspan(done, std::min(kKeysPerCall, keys.size() - done));
      HOLDFAST_RETURN_IF_ERROR(LookUpSome(part, first + done, sink));
    }
    return Status::Ok();
  }

  // At most kKeysPerCall.
  Status LookUpSome(std::span<const Slice> keys, size_t first, GetSink& sink) {
    const CApi& api = database_->api();
    std::array<const char*, kKeysPerCall> data;
    std::array<size_t, kKeysPerCall> sizes;
    for (size_t i = 0; i < keys.size(); ++i) {
      data[i] = keys[i].data();
      sizes[i] = keys[i].size();
    }
    FoundValues found(api);
    api.batched_multi_get_cf(database_->db(), options_.get(), database_->family(), keys.size(), data.data(),
                             sizes.data(), found.values.data(), found.errors.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found.errors[i] != nullptr) {
        return FromText(found.errors[i], "reading from a base", database_->directory());
      }
      if (found.values[i] == nullptr) continue;
      size_t size = 0;
      const char* bytes = api.pinnableslice_value(found.values[i], &size);
      sink.Found(first + i, {bytes, size});
    }
    return Status::Ok();
  }

  std::shared_ptr<Database> database_;
  ReadOptionsHandle options_;
  const uint64_t entries_;      // those that newer ones hide among them
  const uint64_t table_bytes_;  // of all tables
};

}  // namespace

}  // namespace rocks

Result<std::unique_ptr<BaseReader>> OpenBase(const std::string& directory, const BaseOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const rocks::CApi* api, rocks::LoadedApi());
  HOLDFAST_ASSIGN_OR_RETURN(auto database, rocks::Database::Open(*api, directory, options, rocks::OpenMode::kReadOnly));
  return std::unique_ptr<BaseReader>(std::make_unique<rocks::Reader>(std::move(database)));
}

}  // namespace holdfast
