#include "rocksdb/handles.h"

#include "rocksdb/errors.h"
#include "rocksdb/seal.h"

namespace holdfast::rocks {

Result<std::unique_ptr<Database>> Database::Open(const CApi& api, const std::string& directory,
                                                 const BaseOptions& options, OpenMode mode, CCompactionFilter* filter) {
  HOLDFAST_ASSIGN_OR_RETURN(OptionsHandle made, MakeOptions(api, options));
  if (mode == OpenMode::kReadOnly) HOLDFAST_RETURN_IF_ERROR(CheckSeal(directory).status());
  if (filter != nullptr) api.options_set_compaction_filter(made.get(), filter);
  std::unique_ptr<Database> database(new Database(api, directory, std::move(made)));
  const char* const names[] = {"default"};
  const COptions* const family_options[] = {database->options_.get()};
  char* error = nullptr;
  if (mode == OpenMode::kReadOnly) {
    constexpr unsigned char kErrorIfLogExists = 0;
    database->db_ =
        api.open_for_read_only_column_families(database->options_.get(), directory.c_str(), 1, names, family_options,
                                               &database->family_, kErrorIfLogExists, &error);
  } else {
    database->db_ = api.open_column_families(database->options_.get(), directory.c_str(), 1, names, family_options,
                                             &database->family_, &error);
  }
  HOLDFAST_RETURN_IF_ERROR(TakeError(api, error, "opening a base", directory));
  return database;
}

Database::~Database() {
  if (family_ != nullptr) api_.column_family_handle_destroy(family_);
  if (db_ != nullptr) api_.close(db_);
}

}  // namespace holdfast::rocks
