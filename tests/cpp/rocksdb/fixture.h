// What every test of bases needs: RocksDB loaded, a folder of its own, entries in and out.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/rocksdb_base.h"
#include "rocksdb/map_base.h"

namespace holdfast::testing {

namespace fs = std::filesystem;

#define HOLDFAST_ASSERT_OK(expression)                                \
  do {                                                                \
    const ::holdfast::Status holdfast_status_ = (expression);         \
    ASSERT_TRUE(holdfast_status_.ok()) << holdfast_status_.message(); \
  } while (false)

// A new value, or none for a tombstone.
using Batch = std::vector<std::pair<std::string, std::optional<std::string>>>;

class BaseTest : public ::testing::Test {
 protected:
  // Loads the library that HOLDFAST_ROCKSDB_LIBRARY names; fails the test when it is unset.
  void SetUp() override;
  void TearDown() override;

  // A path in this test's folder.
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

// Makes a base in `directory` out of `parent` (may be empty) and changes.
Result<std::vector<std::string>> MakeBase(const std::string& parent, const std::string& directory, const Batch& batch,
                                          const BaseOptions& options = {});
void Apply(const Batch& batch, Entries* entries);
Batch AsBatch(const Entries& entries);

// Everything in a base by one scan.
Result<Entries> ReadAll(BaseReader& base);
Result<Entries> ReadAll(const std::string& directory, const BaseOptions& options = {});
// The values of `keys` (sorted) by one multi-get; absent ones are left out. Checks that none is reported twice.
Result<Entries> Get(BaseReader& base, const std::vector<std::string>& keys);

// File name to bytes.
std::map<std::string, std::string> FilesOf(const std::string& directory);
void WriteFile(const std::string& path, const std::string& bytes);

// "key-000042": sorts as the number does.
std::string NumberedKey(int number);

}  // namespace holdfast::testing
