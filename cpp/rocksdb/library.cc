// Finds RocksDB's functions in a shared library, once a process.
// Two RocksDBs in one process are a hazard (some of their symbols are unique to the process whatever dlopen is told),
// so a copy that is loaded already, as in a JVM where Spark uses RocksDB, wins over the path asked for.
#include <dlfcn.h>
#include <link.h>

#include <mutex>
#include <vector>

#include "holdfast/rocksdb_base.h"
#include "rocksdb/c_api.h"

namespace holdfast {

namespace {

struct Library {
  std::mutex mutex;   // guards both
  std::string path;   // as asked for; empty: none loaded
  rocks::CApi api{};  // never changes once path is set
};

// Never destroyed: readers in other threads may outlive static destruction.
Library& TheLibrary() {
  static auto* library = new Library;
  return *library;
}

int KeepRocksDbPath(dl_phdr_info* info, size_t /*size*/, void* found) {
  const Slice path = info->dlpi_name == nullptr ? Slice() : Slice(info->dlpi_name);
  const size_t slash = path.rfind('/');
  const Slice name = slash == Slice::npos ? path : path.substr(slash + 1);
  if (name.find("librocksdb") != 0) return 0;
  static_cast<std::vector<std::string>*>(found)->emplace_back(path);
  return 0;
}

// A handle to a RocksDB with a C API that this process has loaded already; null when there is none.
void* AlreadyLoaded() {
  std::vector<std::string> paths;
  dl_iterate_phdr(KeepRocksDbPath, &paths);
  for (const std::string& path : paths) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    if (dlsym(handle, "rocksdb_open") != nullptr) return handle;
    dlclose(handle);
  }
  return nullptr;
}

const char* LastError() {
  const char* error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

// Fills `api`; the names of the functions that are missing.
std::string Resolve(void* handle, rocks::CApi* api) {
  std::string missing;
#define HOLDFAST_RESOLVE_FUNCTION(result, name, arguments)                            \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(handle, "rocksdb_" #name)); \
  if (api->name == nullptr) missing += (missing.empty() ? "rocksdb_" : ", rocksdb_") + std::string(#name);
  HOLDFAST_ROCKSDB_FUNCTIONS(HOLDFAST_RESOLVE_FUNCTION)
#undef HOLDFAST_RESOLVE_FUNCTION
  return missing;
}

}  // namespace

Status LoadRocksDb(const std::string& path) {
  if (path.empty()) return Status::InvalidRequest("expected the path of RocksDB's shared library, found an empty one");
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  if (library.path == path) return Status::Ok();
  if (!library.path.empty()) {
    return Status::InvalidRequest("RocksDB was loaded from " + library.path + " and cannot be loaded again from " +
                                  path + ": a process has one; start another process, or use the same path");
  }
  void* handle = AlreadyLoaded();
  if (handle == nullptr) handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status::Unavailable(
        "RocksDB's library cannot be loaded from " + path + ": " + LastError() +
        "; set HOLDFAST_ROCKSDB_LIBRARY to a librocksdbjni of this machine's architecture and libc");
  }
  const std::string missing = Resolve(handle, &library.api);
  if (!missing.empty()) {
    dlclose(handle);
    return Status::Unavailable(
        "the library " + path + " has no " + missing +
        ": Holdfast needs the C API of RocksDB 9.8 or later, as in pyspark's rocksdbjni jar; set "
        "HOLDFAST_ROCKSDB_LIBRARY to such a library or unset it");
  }
  library.path = path;
  return Status::Ok();
}

namespace rocks {

Result<const CApi*> LoadedApi() {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  if (library.path.empty()) {
    return Status::InvalidRequest(
        "RocksDB is not loaded; call LoadRocksDb (in Python holdfast.rocksdb_library.load()) first");
  }
  return &library.api;
}

}  // namespace rocks

}  // namespace holdfast
