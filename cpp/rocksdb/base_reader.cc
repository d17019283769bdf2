// A base opened read-only. Any number of processes may have it open; nothing is written to its folder.
#include <array>

#include "rocksdb/errors.h"
#include "rocksdb/handles.h"

namespace holdfast {

namespace rocks {

namespace {

// Large enough to share the lookups of one index block, small enough that a chunk's bookkeeping stays on the stack.
constexpr size_t kKeysPerCall = 256;

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

class Reader final : public BaseReader {
 public:
  explicit Reader(std::unique_ptr<Database> database)
      : database_(std::move(database)), options_(MakeReadOptions(database_->api())) {}

  Status MultiGet(std::span<const Slice> keys, GetSink& sink) override {
    for (size_t first = 0; first < keys.size(); first += kKeysPerCall) {
      const size_t count = std::min(kKeysPerCall, keys.size() - first);
      HOLDFAST_RETURN_IF_ERROR(GetSome(keys.subspan(first, count), first, sink));
    }
    return Status::Ok();
  }

  Result<std::unique_ptr<BaseIterator>> Scan(Slice lower, Slice upper) override {
    auto iterator = std::make_unique<Iterator>(database_, lower, upper);
    HOLDFAST_RETURN_IF_ERROR(iterator->status());
    return std::unique_ptr<BaseIterator>(std::move(iterator));
  }

 private:
  Status GetSome(std::span<const Slice> keys, size_t first, GetSink& sink) {
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
};

}  // namespace

}  // namespace rocks

Result<std::unique_ptr<BaseReader>> OpenBase(const std::string& directory, const BaseOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const rocks::CApi* api, rocks::LoadedApi());
  HOLDFAST_ASSIGN_OR_RETURN(auto database, rocks::Database::Open(*api, directory, options, rocks::OpenMode::kReadOnly));
  return std::unique_ptr<BaseReader>(std::make_unique<rocks::Reader>(std::move(database)));
}

}  // namespace holdfast
