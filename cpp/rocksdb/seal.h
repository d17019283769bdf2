// The seal of a base: a small file, written last, that says which files make up the base. Format: docs/formats/base.md.
// Why: RocksDB takes a manifest whose end is cut off for an older, shorter one, and would open the base as it was
// before its last changes. Blocks of tables carry checksums of their own, so of tables only names and sizes are sealed.
#pragma once

#include <string>
#include <vector>

#include "holdfast/status.h"

namespace holdfast::rocks {

inline constexpr const char* kSealName = "SEAL";

// Seals the files that `directory` holds now. Corrupt when there is no database among them.
Status WriteSeal(const std::string& directory);

// Names of the files of a base, the seal among them, sorted. Corrupt, naming the file, when one of them is missing, is
// not as long as it was, or (other than tables, whose blocks RocksDB checks as it reads them) holds other bytes.
Result<std::vector<std::string>> CheckSeal(const std::string& directory);

}  // namespace holdfast::rocks
