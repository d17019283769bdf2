// Damaged bases: flipped, cut and missing files are Corrupt, at open or at the read that meets them;
// never wrong values.
#include <algorithm>

#include "rocksdb/errors.h"
#include "rocksdb/fixture.h"

namespace holdfast::testing {
namespace {

class DamageTest : public BaseTest {
 protected:
  void SetUp() override {
    BaseTest::SetUp();
    if (HasFatalFailure()) return;
    Batch batch;
    for (int i = 0; i < 2000; ++i) batch.emplace_back(NumberedKey(i), "value of " + std::to_string(i));
    HOLDFAST_ASSERT_OK(MakeBase("", Path("first"), batch).status());
    HOLDFAST_ASSERT_OK(MakeBase(Path("first"), Path("base"), {{NumberedKey(7), "newer"}}).status());
    files_ = FilesOf(Path("base"));
    auto all = ReadAll(Path("base"));
    HOLDFAST_ASSERT_OK(all.status());
    entries_ = std::move(all).value();
  }

  // Puts the base back as it was, with one file changed (`bytes` empty: removed).
  void Damage(const std::string& name, const std::optional<std::string>& bytes) {
    fs::remove_all(Path("base"));
    fs::create_directory(Path("base"));
    for (const auto& [file, content] : files_) {
      if (file != name) WriteFile(Path("base") + "/" + file, content);
    }
    if (bytes.has_value()) WriteFile(Path("base") + "/" + name, *bytes);
  }

  // What a scan, a multi-get of everything and multi-gets of a few keys each say together.
  Result<Entries> ReadBothWays() {
    HOLDFAST_ASSIGN_OR_RETURN(auto base, OpenBase(Path("base"), {}));
    HOLDFAST_ASSIGN_OR_RETURN(Entries scanned, ReadAll(*base));
    std::vector<std::string> keys;
    for (const auto& [key, value] : entries_) keys.push_back(key);
    HOLDFAST_ASSIGN_OR_RETURN(Entries got, Get(*base, keys));
    EXPECT_EQ(got, entries_) << "wrong values from a multi-get";
    for (size_t first = 0; first < keys.size(); first += 100) {
      const auto begin = keys.begin() + static_cast<ptrdiff_t>(first);
      HOLDFAST_ASSIGN_OR_RETURN(Entries few, Get(*base, {begin, begin + std::min<ptrdiff_t>(100, keys.end() - begin)}));
      for (const auto& [key, value] : few) EXPECT_EQ(value, entries_.at(key)) << "wrong value from a multi-get of few";
    }
    return scanned;
  }

  std::map<std::string, std::string> files_;
  Entries entries_;
};

TEST_F(DamageTest, FlippedBytesNeverGiveWrongValues) {
  int refused = 0;
  for (const auto& [name, content] : files_) {
    const size_t step = name.ends_with(".sst") ? std::max<size_t>(1, content.size() / 60) : 1;
    for (size_t at = 0; at < content.size(); at += step) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
      Damage(name, damaged);
      const auto all = ReadBothWays();
      if (all.ok()) {
        EXPECT_EQ(all.value(), entries_) << name << " at " << at;
      } else {
        ++refused;
        EXPECT_EQ(all.status().code(), Code::kCorrupt) << name << " at " << at << ": " << all.status().message();
      }
    }
  }
  EXPECT_GT(refused, 60);
}

TEST_F(DamageTest, CutFilesAreCorrupt) {
  for (const auto& [name, content] : files_) {
    for (const size_t size : {size_t{0}, content.size() / 2, content.size() - 1}) {
      Damage(name, content.substr(0, size));
      const auto all = ReadBothWays();
      EXPECT_EQ(all.status().code(), Code::kCorrupt) << name << " cut to " << size << ": " << all.status().message();
    }
  }
}

TEST_F(DamageTest, MissingFilesAreCorruptAndNamed) {
  for (const auto& [name, content] : files_) {
    Damage(name, std::nullopt);
    const auto all = ReadBothWays();
    ASSERT_FALSE(all.ok()) << name;
    EXPECT_EQ(all.status().code(), Code::kCorrupt) << all.status().message();
    EXPECT_NE(all.status().message().find(Path("base")), std::string::npos) << all.status().message();
    const auto child = MakeBase(Path("base"), Path("child"), {{"a", "1"}});
    EXPECT_EQ(child.status().code(), Code::kCorrupt) << name << ": " << child.status().message();
    fs::remove_all(Path("child"));
  }
}

TEST_F(DamageTest, AFolderThatIsMissingOrEmptyIsCorrupt) {
  EXPECT_EQ(OpenBase(Path("nowhere"), {}).status().code(), Code::kCorrupt);
  EXPECT_FALSE(fs::exists(Path("nowhere"))) << "opening for reading makes nothing";
  EXPECT_EQ(MakeBase(Path("nowhere"), Path("child"), {}).status().code(), Code::kCorrupt);
  fs::create_directory(Path("empty"));
  EXPECT_EQ(OpenBase(Path("empty"), {}).status().code(), Code::kCorrupt);
  EXPECT_TRUE(fs::is_empty(Path("empty")));
}

TEST_F(DamageTest, ADamagedParentIsNoticedWhenItIsMerged) {
  BaseOptions options;
  options.max_runs = 2;
  const std::string table = files_.begin()->first;
  ASSERT_TRUE(table.ends_with(".sst"));
  std::string damaged = files_.at(table);
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  Damage(table, damaged);
  const auto child = MakeBase(Path("base"), Path("child"), {{NumberedKey(1), "1"}}, options);
  EXPECT_EQ(child.status().code(), Code::kCorrupt) << child.status().message();
}

TEST(RocksDbErrors, KindsSayWhatTheCallerCanDo) {
  const auto kind = [](const char* text) { return rocks::FromText(text, "reading", "/base").code(); };
  EXPECT_EQ(kind("Corruption: block checksum mismatch: stored = 1, computed = 2"), Code::kCorrupt);
  EXPECT_EQ(kind("IO error: No such file or directory: While open a file: /base/000008.sst"), Code::kCorrupt);
  EXPECT_EQ(kind("IO error: No space left on device: While appending to file: /base/000012.sst"), Code::kUnavailable);
  EXPECT_EQ(kind("IO error: While open a file: /base/000008.sst: Too many open files"), Code::kUnavailable);
  EXPECT_EQ(kind("Corruption: IO error: While open a file: /base/000008.sst: Too many open files"), Code::kUnavailable);
  EXPECT_EQ(kind("IO error: Input/output error"), Code::kUnavailable);
  EXPECT_EQ(kind("Not implemented: a feature"), Code::kIncompatible);
  EXPECT_EQ(kind("Invalid argument: keys must be added in strict ascending order"), Code::kInternalError);
  const Status full = rocks::FromText("IO error: No space left on device: x", "merging", "/base");
  EXPECT_NE(full.message().find("disk full"), std::string::npos);
  EXPECT_NE(full.message().find("/base"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::testing
