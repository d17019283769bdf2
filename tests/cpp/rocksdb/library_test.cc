// Loading RocksDB: once a process, and clear about what is missing.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "rocksdb/fixture.h"

namespace holdfast::testing {
namespace {

class LibraryTest : public BaseTest {};

TEST_F(LibraryTest, TheSamePathAgainIsNoWork) {
  HOLDFAST_ASSERT_OK(LoadRocksDb(std::getenv("HOLDFAST_ROCKSDB_LIBRARY")));
}

TEST_F(LibraryTest, AnotherPathIsRefusedOnceLoaded) {
  const Status status = LoadRocksDb(Path("librocksdbjni-other.so"));
  EXPECT_EQ(status.code(), Code::kInvalidRequest);
  EXPECT_NE(status.message().find(Path("librocksdbjni-other.so")), std::string::npos);
}

TEST_F(LibraryTest, AnEmptyPathIsRefused) { EXPECT_EQ(LoadRocksDb("").code(), Code::kInvalidRequest); }

// Runs `work` in a process that has not loaded RocksDB yet; `work` ends it with the exit code that is expected.
class FreshProcess : public BaseTest {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void ExitWith(const Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(static_cast<int>(status.code()));
}

TEST_F(FreshProcess, AMissingLibraryIsUnavailable) {
  EXPECT_EXIT(ExitWith(LoadRocksDb("/nowhere/librocksdbjni.so")),
              ::testing::ExitedWithCode(static_cast<int>(Code::kUnavailable)), "/nowhere/librocksdbjni.so");
}

TEST_F(FreshProcess, ALibraryWithoutTheFunctionsIsUnavailable) {
  EXPECT_EXIT(ExitWith(LoadRocksDb("libm.so.6")), ::testing::ExitedWithCode(static_cast<int>(Code::kUnavailable)),
              "libm.so.6 has no rocksdb_");
}

TEST_F(FreshProcess, UsingItBeforeLoadingIsRefused) {
  EXPECT_EXIT(ExitWith(OpenBase("/nowhere", {}).status()),
              ::testing::ExitedWithCode(static_cast<int>(Code::kInvalidRequest)), "not loaded");
}

TEST_F(FreshProcess, ACopyThatIsLoadedAlreadyIsUsed) {
  const char* library = std::getenv("HOLDFAST_ROCKSDB_LIBRARY");
  ASSERT_NE(library, nullptr);
  EXPECT_EXIT(
      {
        // As in a JVM: loaded by somebody else, from a file that is gone by now.
        const std::string copy = (fs::temp_directory_path() / "librocksdbjni-of-a-jvm.so").string();
        fs::copy_file(library, copy, fs::copy_options::overwrite_existing);
        void* handle = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
        fs::remove(copy);
        if (handle == nullptr) std::exit(100);
        ExitWith(LoadRocksDb("/nowhere/librocksdbjni.so"));
      },
      ::testing::ExitedWithCode(static_cast<int>(Code::kOk)), "");
}

}  // namespace
}  // namespace holdfast::testing
