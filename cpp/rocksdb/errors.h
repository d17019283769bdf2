// RocksDB's error strings as Statuses.
// The C API gives text only ("Corruption: …", "IO error: No space left on device: …").
#pragma once

#include <string>

#include "holdfast/bytes.h"
#include "rocksdb/c_api.h"

namespace holdfast::rocks {

// Takes over `error` (null: Ok). `action` says what was tried, `directory` where.
Status TakeError(const CApi& api, char* error, const std::string& action, const std::string& directory);

// The Status of an error text.
Status FromText(Slice text, const std::string& action, const std::string& directory);

}  // namespace holdfast::rocks
