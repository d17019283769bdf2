// Entries that come in order of their keys, as RocksDB's tables: files that a database takes in, and that belong to
// none until then. Thread-safety: none; belongs to its writer.
#pragma once

#include <string>
#include <vector>

#include "rocksdb/handles.h"

namespace holdfast::rocks {

class SortedTables {
 public:
  // Files `<stem>.pending`, `<stem>-1.pending` …: not names that RocksDB gives a file, so that opening the folder
  // leaves them alone. Past `table_bytes` of keys and values another one begins.
  SortedTables(const CApi& api, const BaseOptions& options, std::string stem, size_t table_bytes);

  // Keys ascend.
  Status Put(Slice key, Slice value);
  Status Delete(Slice key);
  // Ends the last file. They are durable then.
  Status Finish();

  const std::vector<std::string>& paths() const { return paths_; }

 private:
  Status Begin();
  // Begins a table where there is none, ends one that is full by then.
  Status MakeRoom(size_t bytes);
  Status Said(char* error, const char* doing) const;

  const CApi& api_;
  const BaseOptions options_;
  const std::string stem_;
  const size_t table_bytes_;
  size_t bytes_ = 0;  // in the table that is open
  OptionsHandle made_options_;
  Handle<CEnvOptions> environment_;
  Handle<CSstFileWriter> writer_;  // null: no table is open
  std::vector<std::string> paths_;
};

}  // namespace holdfast::rocks
