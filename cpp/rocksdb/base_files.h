// The files of a base's folder: which belong to a base, how a child shares its parent's.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "holdfast/status.h"

namespace holdfast::rocks {

// Makes `directory` (it must not exist; folders above it are made).
Status CreateNewFolder(const std::string& directory);

// Sorted tables; the other files of a base are small.
bool IsTable(const std::string& name);

// Gives `directory` these files of the base in `parent`: sorted tables by hard link, since nobody ever writes to one,
// or by copy where links are not possible; the small files, which RocksDB replaces, by copy.
Status ShareFiles(const std::string& parent, const std::vector<std::string>& names, const std::string& directory);

// The name of the manifest of a database. Corrupt when the folder has none, or no CURRENT that names it: RocksDB would
// make a new, empty database there.
Result<std::string> CurrentManifest(const std::string& directory);

// Removes from a closed database's folder what is not part of the base: logs, locks, old manifests, tables that are not
// in `live_tables` (file names).
Status RemoveObsoleteFiles(const std::string& directory, const std::set<std::string>& live_tables);

// One that is not there is no error.
Status RemoveFile(const std::string& path);
Result<bool> HasFile(const std::string& path);
// Size in bytes; Corrupt when there is no such file.
Result<uint64_t> FileSize(const std::string& path);
// All of a small file; Corrupt when there is none.
Result<std::string> ReadFile(const std::string& path);
Status WriteNewFile(const std::string& path, const std::string& bytes);

// File names, sorted.
Result<std::vector<std::string>> ListFiles(const std::string& directory);

}  // namespace holdfast::rocks
