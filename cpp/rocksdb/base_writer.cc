// Makes a base from its parent and changes: shares the parent's tables, writes the changes as one sorted table,
// lets RocksDB take it in and merge what its compaction asks for. Where there is no parent and keys come in order, as
// those of a savepoint do, most changes are never held: they go into tables as they come.
// A crash anywhere leaves a folder that nobody has been told of.
#include <set>

#include "rocksdb/base_files.h"
#include "rocksdb/changes.h"
#include "rocksdb/errors.h"
#include "rocksdb/expiry_filter.h"
#include "rocksdb/handles.h"
#include "rocksdb/seal.h"
#include "rocksdb/sorted_tables.h"

namespace holdfast {

namespace rocks {

namespace {

// Changes in order are held up to here: a small state shares one table with the next.
constexpr size_t kHeldInOrderBytes = 16 << 20;
// Of those that are not held: files that go from machine to machine.
constexpr size_t kTableBytes = 256 << 20;

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
    HOLDFAST_RETURN_IF_ERROR(Changes::Check(changes));
    const Status added = AddChecked(changes);
    if (!added.ok())  // some of them may be in a table
      refusal_ = added.With("this BaseWriter failed; make another one. " + added.message());
    return added;
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
  Status AddChecked(std::span<const Change> changes) {
    // Before they are copied: one of them may be a value of 1 GiB.
    const bool begins = !has_parent_ && ordered_ == nullptr && changes_->in_order();
    if (begins && changes_->memory_bytes() + BytesOf(changes) > kHeldInOrderBytes) {
      HOLDFAST_RETURN_IF_ERROR(BeginInOrder());
    }
    if (ordered_ != nullptr && in_order_) {
      size_t taken = 0;
      for (; taken < changes.size() && changes[taken].key > last_key_; ++taken) {
        HOLDFAST_RETURN_IF_ERROR(AppendInOrder(changes[taken]));
        last_key_ = changes[taken].key;
      }
      in_order_ = taken == changes.size();
      changes = changes.subspan(taken);
    }
    return changes_->Add(changes);
  }

  static size_t BytesOf(std::span<const Change> changes) {
    size_t bytes = 0;
    for (const Change& change : changes) bytes += change.key.size() + change.value.size();
    return bytes;
  }

  // From here on changes are not held for as long as their keys ascend.
  Status BeginInOrder() {
    ordered_ = std::make_unique<SortedTables>(api_, options_, directory_ + "/ordered", kTableBytes);
    last_key_ = changes_->last_key();
    HOLDFAST_RETURN_IF_ERROR(changes_->Drain([this](const Change& change) { return AppendInOrder(change); }));
    changes_ = std::make_unique<Changes>();
    return Status::Ok();
  }

  // There is nothing below that a tombstone could hide.
  Status AppendInOrder(const Change& change) {
    if (change.deleted || filter_.Drops(change.key, change.value)) return Status::Ok();
    return ordered_->Put(change.key, change.value);
  }

  Result<std::vector<std::string>> MakeBase() {
    std::vector<std::vector<std::string>> tables;  // later ones win
    if (ordered_ != nullptr) {
      HOLDFAST_RETURN_IF_ERROR(ordered_->Finish());
      if (!ordered_->paths().empty()) tables.push_back(ordered_->paths());
    }
    HOLDFAST_ASSIGN_OR_RETURN(std::vector<std::string> held, WriteHeld(has_parent_ || !tables.empty()));
    if (!held.empty()) tables.push_back(std::move(held));
    changes_.reset();  // before compaction, which wants memory too
    HOLDFAST_ASSIGN_OR_RETURN(auto merged, ReadMerged(directory_));
    const bool merge_all = MoveMerged(expiry_, &merged);
    // A parent that nothing changed is a base as it stands.
    if (!tables.empty() || !has_parent_ || merge_all) HOLDFAST_RETURN_IF_ERROR(TakeIn(tables, merge_all));
    if (!merged.empty()) HOLDFAST_RETURN_IF_ERROR(ReplaceMerged(merged));
    HOLDFAST_RETURN_IF_ERROR(WriteSeal(directory_));
    return ListFiles(directory_);
  }

  Status ReplaceMerged(const std::map<uint16_t, int64_t>& merged) {
    HOLDFAST_RETURN_IF_ERROR(RemoveFile(directory_ + "/" + kExpiryName));
    return WriteMerged(directory_, merged);
  }

  // Writes the changes that are held; where. `below`: there is something that tombstones hide.
  Result<std::vector<std::string>> WriteHeld(bool below) {
    SortedTables table(api_, options_, directory_ + "/changes", SIZE_MAX);
    HOLDFAST_RETURN_IF_ERROR(changes_->Drain([&](const Change& change) -> Status {
      if (!change.deleted && !filter_.Drops(change.key, change.value)) return table.Put(change.key, change.value);
      return below ? table.Delete(change.key) : Status::Ok();
    }));
    HOLDFAST_RETURN_IF_ERROR(table.Finish());
    return table.paths();
  }

  // Opens the folder for writing, takes tables in, waits for the merges that follow, closes and cleans up.
  Status TakeIn(const std::vector<std::vector<std::string>>& tables, bool merge_all) {
    if (has_parent_) HOLDFAST_RETURN_IF_ERROR(CurrentManifest(directory_).status());
    const Handle<CCompactionFilter> filter = filter_.ForCompaction(api_);
    HOLDFAST_ASSIGN_OR_RETURN(auto database, Database::Open(api_, directory_, options_, OpenMode::kReadWrite,
                                                            filter_.any() ? filter.get() : nullptr));
    for (const std::vector<std::string>& together : tables) HOLDFAST_RETURN_IF_ERROR(Ingest(*database, together));
    // What goes wrong in it is an error in the background, which waiting tells.
    if (merge_all) api_.compact_range_cf(database->db(), database->family(), nullptr, 0, nullptr, 0);
    HOLDFAST_RETURN_IF_ERROR(WaitForMerges(*database));
    const std::set<std::string> live_tables = LiveTables(*database);
    database.reset();
    return RemoveObsoleteFiles(directory_, live_tables);
  }

  // Tables whose keys do not overlap.
  Status Ingest(const Database& database, const std::vector<std::string>& tables) {
    const Handle<CIngestOptions> options(api_.ingestexternalfileoptions_create(),
                                         api_.ingestexternalfileoptions_destroy);
    api_.ingestexternalfileoptions_set_move_files(options.get(), 1);
    std::vector<const char*> paths;
    for (const std::string& table : tables) paths.push_back(table.c_str());
    char* error = nullptr;
    api_.ingest_external_file_cf(database.db(), database.family(), paths.data(), paths.size(), options.get(), &error);
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
  std::unique_ptr<SortedTables> ordered_;                           // null: all changes are held
  bool in_order_ = true;                                            // what comes next may go on in ordered_ …
  std::string last_key_;                                            // … if it is above this key
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
