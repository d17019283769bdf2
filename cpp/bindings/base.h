// The Python class Base, for the bindings that take one (rocksdb.cc makes it, store.cc reads from it).
// Ownership: whoever reads holds `reader` on its own, so that Base.close() in Python never pulls it away from a scan or
// a Store that still uses it; the directory is let go with the last of them. `reader` is null once closed.
#pragma once

#include <memory>
#include <string>

#include "holdfast/base.h"

namespace holdfast::bindings {

struct PyBase {
  std::shared_ptr<BaseReader> reader;
  std::string directory;
};

// InvalidRequest when `base` is closed.
inline Result<std::shared_ptr<BaseReader>> ReaderOf(const PyBase& base) {
  if (base.reader == nullptr) {
    return Status::InvalidRequest("the base in " + base.directory + " is closed; open it again with Base(directory)");
  }
  return base.reader;
}

}  // namespace holdfast::bindings
