// RAII over RocksDB's C handles, and the one way to open a database here. Destruction order matters to RocksDB (column
// family, then database, then options), which is the order of the members, last first.
#pragma once

#include <memory>
#include <string>

#include "holdfast/rocksdb_base.h"
#include "rocksdb/c_api.h"

namespace holdfast::rocks {

template <typename T>
using Handle = std::unique_ptr<T, void (*)(T*)>;

using OptionsHandle = Handle<COptions>;

// Everything that decides how a base is laid out and read; docs/rfcs/0002 says why each is as it is.
// InvalidRequest when a setting is out of range, naming it.
Result<OptionsHandle> MakeOptions(const CApi& api, const BaseOptions& options);

enum class OpenMode { kReadOnly, kReadWrite };

// An open database. kReadOnly wants a sealed base; kReadWrite creates a database when `directory` holds none, and
// merges by `filter`, which stays the caller's and must outlive it.
class Database {
 public:
  static Result<std::unique_ptr<Database>> Open(const CApi& api, const std::string& directory,
                                                const BaseOptions& options, OpenMode mode,
                                                CCompactionFilter* filter = nullptr);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const CApi& api() const { return api_; }
  const std::string& directory() const { return directory_; }
  CDatabase* db() const { return db_; }
  CColumnFamily* family() const { return family_; }

 private:
  Database(const CApi& api, std::string directory, OptionsHandle options)
      : api_(api), directory_(std::move(directory)), options_(std::move(options)) {}

  const CApi& api_;
  const std::string directory_;
  OptionsHandle options_;
  CDatabase* db_ = nullptr;
  CColumnFamily* family_ = nullptr;
};

}  // namespace holdfast::rocks
