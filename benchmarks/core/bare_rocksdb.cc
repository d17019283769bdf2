// The comparator of core_ops: read-modify-write by RocksDB's C API and nothing else, one thread, at its best: keys
// sorted, batched multi-get, one write batch, no log of writes.
//
// Usage: bare_rocksdb LIBRARY FOLDER KEYS KEY_BYTES OPTIONS
// FOLDER is a database of its own; KEYS a file of store keys of KEY_BYTES each, in the order of the rows, each once;
// OPTIONS the text of RocksDB options. Adds 1 to the last eight bytes of each key's value. Prints `open_ms`, `get_ms`,
// `put_ms` and `found`, one a line.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr size_t kKeysPerCall = 256;

[[noreturn]] void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void Check(const char* what, const char* error) {
  if (error != nullptr) Fail(what, error);
}

// RocksDB's functions by name, with the types of its C header.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Fail(path, dlerror());
  }
  template <typename Signature>
  Signature* Find(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) Fail(name, "not in the library");
    return reinterpret_cast<Signature*>(found);
  }

 private:
  void* handle_;
};

double MsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string_view> SplitKeys(const std::string& bytes, size_t key_bytes) {
  std::vector<std::string_view> keys;
  keys.reserve(bytes.size() / key_bytes);
  for (size_t at = 0; at + key_bytes <= bytes.size(); at += key_bytes) keys.emplace_back(bytes.data() + at, key_bytes);
  return keys;
}

struct Database {
  void* db = nullptr;
  void* family = nullptr;
};

Database Open(const Library& library, const char* folder, const char* text) {
  void* defaults = library.Find<void*()>("rocksdb_options_create")();
  void* options = library.Find<void*()>("rocksdb_options_create")();
  char* error = nullptr;
  library.Find<void(const void*, const char*, void*, char**)>("rocksdb_get_options_from_string")(defaults, text,
                                                                                                 options, &error);
  Check("options", error);
  const char* name = "default";
  const void* family_options = options;
  Database database;
  database.db =
      library.Find<void*(const void*, const char*, int, const char* const*, const void* const*, void**, char**)>(
          "rocksdb_open_column_families")(options, folder, 1, &name, &family_options, &database.family, &error);
  Check(folder, error);
  return database;
}

// Reads all keys, sorted, and puts the changed values into a write batch. Returns how many were found.
size_t ReadAndAdd(const Library& library, const Database& database, const std::vector<std::string_view>& keys,
                  void* write_batch) {
  auto* multi_get =
      library.Find<void(void*, const void*, void*, size_t, const char* const*, const size_t*, void**, char**, bool)>(
          "rocksdb_batched_multi_get_cf");
  auto* value_of = library.Find<const char*(const void*, size_t*)>("rocksdb_pinnableslice_value");
  auto* destroy = library.Find<void(void*)>("rocksdb_pinnableslice_destroy");
  auto* put = library.Find<void(void*, const char*, size_t, const char*, size_t)>("rocksdb_writebatch_put");
  void* reads = library.Find<void*()>("rocksdb_readoptions_create")();
  size_t found = 0;
  std::string changed;
  for (size_t start = 0; start < keys.size(); start += kKeysPerCall) {
    const size_t count = std::min(kKeysPerCall, keys.size() - start);
    const char* pointers[kKeysPerCall];
    size_t sizes[kKeysPerCall];
    void* values[kKeysPerCall] = {};
    char* errors[kKeysPerCall] = {};
    for (size_t i = 0; i < count; ++i) {
      pointers[i] = keys[start + i].data();
      sizes[i] = keys[start + i].size();
    }
    multi_get(database.db, reads, database.family, count, pointers, sizes, values, errors, true);
    for (size_t i = 0; i < count; ++i) {
      Check("reading", errors[i]);
      if (values[i] == nullptr) continue;
      size_t size = 0;
      const char* value = value_of(values[i], &size);
      changed.assign(value, size);
      int64_t sum = 0;
      std::memcpy(&sum, changed.data() + size - sizeof(sum), sizeof(sum));
      ++sum;
      std::memcpy(changed.data() + size - sizeof(sum), &sum, sizeof(sum));
      put(write_batch, pointers[i], sizes[i], changed.data(), size);
      destroy(values[i]);
      ++found;
    }
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) Fail(argv[0], "expected LIBRARY FOLDER KEYS KEY_BYTES OPTIONS");
  const Library library(argv[1]);
  std::ifstream file(argv[3], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());

  auto start = std::chrono::steady_clock::now();
  const Database database = Open(library, argv[2], argv[5]);
  std::printf("open_ms %.3f\n", MsSince(start));

  start = std::chrono::steady_clock::now();
  std::vector<std::string_view> keys = SplitKeys(bytes, std::strtoul(argv[4], nullptr, 10));
  std::sort(keys.begin(), keys.end());
  void* write_batch = library.Find<void*()>("rocksdb_writebatch_create")();
  const size_t found = ReadAndAdd(library, database, keys, write_batch);
  std::printf("get_ms %.3f\n", MsSince(start));

  start = std::chrono::steady_clock::now();
  void* writes = library.Find<void*()>("rocksdb_writeoptions_create")();
  library.Find<void(void*, int)>("rocksdb_writeoptions_disable_WAL")(writes, 1);
  char* error = nullptr;
  library.Find<void(void*, const void*, void*, char**)>("rocksdb_write")(database.db, writes, write_batch, &error);
  Check("writing", error);
  std::printf("put_ms %.3f\nfound %zu\n", MsSince(start), found);
  std::fflush(stdout);
  std::_Exit(found == keys.size() ? 0 : 1);  // closing would flush, which is not asked for
}
