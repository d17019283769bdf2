// Makes a base from its parent and changes: shares the parent's tables, writes the changes as one sorted table,
// lets RocksDB take it in and merge what its compaction asks for.
// A crash anywhere leaves a folder that nobody has been told of.
#include <set>

#include "rocksdb/base_files.h"
#include "rocksdb/changes.h"
#include "rocksdb/errors.h"
#include "rocksdb/expiry_filter.h"
#include "rocksdb/handles.h"
#include "rocksdb/seal.h"

namespace holdfast {

namespace rocks {

namespace {

// Not a name that RocksDB gives a file, so that opening the folder leaves it alone.
constexpr const char* kPendingTable = "changes.pending";

class Writer final : public BaseWriter {
 public:
  Writer(const CApi& api, bool has_parent, std::string directory, BaseOptions options, std::vector<StateExpiry> expiry)
      : api_(api),
        has_parent_(has_parent),
        directory_(std::move(directory)),
        options_(std::move(options)),
        expiry_(std::move(expiry)),
        filter_(expiry_) {}

  Status Add(std::span<const Change> changes) override {
    HOLDFAST_RETURN_IF_ERROR(refusal_);
    return changes_->Add(changes);
  }

  size_t memory_bytes() const override { return changes_ == nullptr ? 0 : changes_->memory_bytes(); }

  int64_t expired() const override { return filter_.dropped(); }

  Result<std::vector<std::string>> Finish() override {
    HOLDFAST_RETURN_IF_ERROR(refusal_);
    refusal_ = Status::InvalidRequest("this BaseWriter is finished; make another one");
    Result<std::vector<std::string>> names = MakeBase();
    // The changes are gone by now: a second try would seal the parent as it is, without them.
    if (!names.ok())
      refusal_ = names.status().With("this BaseWriter failed; make another one. " + names.status().message());
    return names;
  }

 private:
  Result<std::vector<std::string>> MakeBase() {
    const std::string table = directory_ + "/" + kPendingTable;
    HOLDFAST_ASSIGN_OR_RETURN(const size_t entries, WriteTable(table));
    changes_.reset();  // before compaction, which wants memory too
    HOLDFAST_ASSIGN_OR_RETURN(auto merged, ReadMerged(directory_));
    const bool merge_all = MoveMerged(expiry_, &merged);
    // A parent that nothing changed is a base as it stands.
    if (entries > 0 || !has_parent_ || merge_all) HOLDFAST_RETURN_IF_ERROR(TakeIn(table, entries, merge_all));
    if (!merged.empty()) HOLDFAST_RETURN_IF_ERROR(ReplaceMerged(merged));
    HOLDFAST_RETURN_IF_ERROR(WriteSeal(directory_));
    return ListFiles(directory_);
  }

  Status ReplaceMerged(const std::map<uint16_t, int64_t>& merged) {
    HOLDFAST_RETURN_IF_ERROR(RemoveFile(directory_ + "/" + kExpiryName));
    return WriteMerged(directory_, merged);
  }

  // Writes the changes to `path`, unless there are none; how many there are.
  Result<size_t> WriteTable(const std::string& path) {
    HOLDFAST_ASSIGN_OR_RETURN(const OptionsHandle options, MakeOptions(api_, options_));
    const Handle<CEnvOptions> environment(api_.envoptions_create(), api_.envoptions_destroy);
    const Handle<CSstFileWriter> writer(api_.sstfilewriter_create(environment.get(), options.get()),
                                        api_.sstfilewriter_destroy);
    size_t entries = 0;
    const Status written = changes_->Drain([&](const Change& change) -> Status {
      const bool deleted = change.deleted || filter_.Drops(change.key, change.value);
      if (deleted && !has_parent_) return Status::Ok();  // nothing below to hide
      char* error = nullptr;
      if (entries++ == 0) api_.sstfilewriter_open(writer.get(), path.c_str(), &error);
      if (error == nullptr && deleted) {
        api_.sstfilewriter_delete(writer.get(), change.key.data(), change.key.size(), &error);
      } else if (error == nullptr) {
        api_.sstfilewriter_put(writer.get(), change.key.data(), change.key.size(), change.value.data(),
                               change.value.size(), &error);
      }
      return TakeError(api_, error, "writing a sorted table", directory_);
    });
    HOLDFAST_RETURN_IF_ERROR(written);
    if (entries == 0) return entries;
    char* error = nullptr;
    api_.sstfilewriter_finish(writer.get(), &error);
    HOLDFAST_RETURN_IF_ERROR(TakeError(api_, error, "finishing a sorted table", directory_));
    return entries;
  }

  // Opens the folder for writing, takes the table in, waits for the merges that follow, closes and cleans up.
  Status TakeIn(const std::string& table, size_t entries, bool merge_all) {
    const Handle<CCompactionFilter> filter = filter_.ForCompaction(api_);
    HOLDFAST_ASSIGN_OR_RETURN(auto database, Database::Open(api_, directory_, options_, OpenMode::kReadWrite,
                                                            filter_.any() ? filter.get() : nullptr));
    if (entries > 0) HOLDFAST_RETURN_IF_ERROR(Ingest(*database, table));
    // What goes wrong in it is an error in the background, which waiting tells.
    if (merge_all) api_.compact_range_cf(database->db(), database->family(), nullptr, 0, nullptr, 0);
    HOLDFAST_RETURN_IF_ERROR(WaitForMerges(*database));
    const std::set<std::string> live_tables = LiveTables(*database);
    database.reset();
    return RemoveObsoleteFiles(directory_, live_tables);
  }

  Status Ingest(const Database& database, const std::string& table) {
    const Handle<CIngestOptions> options(api_.ingestexternalfileoptions_create(),
                                         api_.ingestexternalfileoptions_destroy);
    api_.ingestexternalfileoptions_set_move_files(options.get(), 1);
    const char* const paths[] = {table.c_str()};
    char* error = nullptr;
    api_.ingest_external_file_cf(database.db(), database.family(), paths, 1, options.get(), &error);
    return TakeError(api_, error, "taking in a sorted table", directory_);
  }

  Status WaitForMerges(const Database& database) {
    const Handle<CWaitForCompactOptions> options(api_.wait_for_compact_options_create(),
                                                 api_.wait_for_compact_options_destroy);
    char* error = nullptr;
    api_.wait_for_compact(database.db(), options.get(), &error);
    return TakeError(api_, error, "merging the tables of a base", directory_);
  }

  // File names without RocksDB's leading slash.
  std::set<std::string> LiveTables(const Database& database) {
    const Handle<const CLiveFiles> files(api_.livefiles(database.db()), api_.livefiles_destroy);
    std::set<std::string> names;
    const int count = api_.livefiles_count(files.get());
    for (int i = 0; i < count; ++i) {
      const Slice name = api_.livefiles_name(files.get(), i);
      names.emplace(name.substr(name.find_first_not_of('/')));
    }
    return names;
  }

  const CApi& api_;
  const bool has_parent_;
  const std::string directory_;
  const BaseOptions options_;
  const std::vector<StateExpiry> expiry_;
  const ExpiryFilter filter_;
  std::unique_ptr<Changes> changes_ = std::make_unique<Changes>();  // null: written
  Status refusal_;  // of whatever comes after Finish, and of a Finish after one that failed
};

}  // namespace

}  // namespace rocks

Result<std::unique_ptr<BaseWriter>> BaseWriter::Make(const std::string& parent, const std::string& directory,
                                                     const BaseOptions& options, std::vector<StateExpiry> expiry) {
  HOLDFAST_ASSIGN_OR_RETURN(const rocks::CApi* api, rocks::LoadedApi());
  HOLDFAST_RETURN_IF_ERROR(rocks::MakeOptions(*api, options).status());  // refuse before anything is made
  std::vector<std::string> names;
  if (!parent.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(names, rocks::CheckSeal(parent));
    std::erase(names, rocks::kSealName);  // a folder is sealed when it is finished
  }
  HOLDFAST_RETURN_IF_ERROR(rocks::CreateNewFolder(directory));
  HOLDFAST_RETURN_IF_ERROR(rocks::ShareFiles(parent, names, directory));
  return std::unique_ptr<BaseWriter>(
      std::make_unique<rocks::Writer>(*api, !parent.empty(), directory, options, std::move(expiry)));
}

}  // namespace holdfast
