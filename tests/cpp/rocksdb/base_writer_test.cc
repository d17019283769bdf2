// How one base is made out of another: what wins, what is shared, what is left in the folder, what stays untouched.
#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "rocksdb/base_files.h"
#include "rocksdb/fixture.h"
#include "rocksdb/seal.h"

namespace holdfast::testing {
namespace {

class BaseWriterTest : public BaseTest {};

bool OnlyFilesOfABase(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "CURRENT" || name == "SEAL" || name.starts_with("MANIFEST-") || name.ends_with(".sst");
  });
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : FilesOf(directory)) names.push_back(name);
  return names;
}

TEST_F(BaseWriterTest, TheLastChangeOfAKeyWins) {
  const auto made =
      MakeBase("", Path("a"), {{"k", "1"}, {"gone", "1"}, {"k", "2"}, {"gone", {}}, {"back", {}}, {"back", "3"}});
  HOLDFAST_ASSERT_OK(made.status());
  const auto all = ReadAll(Path("a"));
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value(), (Entries{{"back", "3"}, {"k", "2"}}));
}

TEST_F(BaseWriterTest, AChildIsItsParentPlusTheChanges) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}, {"b", "1"}, {"c", "1"}}).status());
  HOLDFAST_ASSERT_OK(MakeBase(Path("a"), Path("b"), {{"b", {}}, {"c", "2"}, {"d", "2"}}).status());
  const auto all = ReadAll(Path("b"));
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value(), (Entries{{"a", "1"}, {"c", "2"}, {"d", "2"}}));
}

TEST_F(BaseWriterTest, NothingAddedIsStillABase) {
  const auto first = MakeBase("", Path("a"), {});
  HOLDFAST_ASSERT_OK(first.status());
  EXPECT_TRUE(OnlyFilesOfABase(first.value()));
  HOLDFAST_ASSERT_OK(MakeBase(Path("a"), Path("b"), {{"k", "v"}}).status());
  const auto third = MakeBase(Path("b"), Path("c"), {});
  HOLDFAST_ASSERT_OK(third.status());
  EXPECT_EQ(FilesOf(Path("c")), FilesOf(Path("b")));
  const auto all = ReadAll(Path("c"));
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value(), (Entries{{"k", "v"}}));
}

TEST_F(BaseWriterTest, OnlyTombstonesOverNothingIsAnEmptyBase) {
  const auto made = MakeBase("", Path("a"), {{"a", {}}, {"b", {}}});
  HOLDFAST_ASSERT_OK(made.status());
  EXPECT_EQ(made.value().size(), 3U) << "CURRENT, a manifest and the seal, no table";
  HOLDFAST_ASSERT_OK(MakeBase(Path("a"), Path("b"), {{"a", {}}}).status());
  const auto all = ReadAll(Path("b"));
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_TRUE(all.value().empty());
}

TEST_F(BaseWriterTest, TheFolderHoldsJustTheBase) {
  BaseOptions options;
  options.max_runs = 2;
  std::string parent;
  for (int i = 0; i < 12; ++i) {
    const std::string directory = Path("base" + std::to_string(i));
    const auto made = MakeBase(parent, directory, {{NumberedKey(i), "v"}, {NumberedKey(i / 2), {}}}, options);
    HOLDFAST_ASSERT_OK(made.status());
    EXPECT_TRUE(OnlyFilesOfABase(made.value())) << ::testing::PrintToString(made.value());
    EXPECT_EQ(made.value(), NamesIn(directory));
    HOLDFAST_ASSERT_OK(ReadAll(directory).status());
    EXPECT_EQ(made.value(), NamesIn(directory)) << "reading left something behind";
    parent = directory;
  }
}

TEST_F(BaseWriterTest, ReadingNeverWrites) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  HOLDFAST_ASSERT_OK(MakeBase(Path("a"), Path("b"), {{"b", "1"}}).status());
  const auto before = FilesOf(Path("b"));
  const auto written = fs::last_write_time(Path("b"));
  auto base = OpenBase(Path("b"), {});
  HOLDFAST_ASSERT_OK(base.status());
  EXPECT_EQ(FilesOf(Path("b")), before);
  HOLDFAST_ASSERT_OK(ReadAll(*base.value()).status());
  base.value().reset();
  EXPECT_EQ(FilesOf(Path("b")), before);
  EXPECT_EQ(fs::last_write_time(Path("b")), written);
}

TEST_F(BaseWriterTest, ABaseWhoseFolderIsReadOnlyCanBeRead) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  fs::permissions(Path("a"), fs::perms::owner_read | fs::perms::owner_exec);
  const auto all = ReadAll(Path("a"));
  fs::permissions(Path("a"), fs::perms::owner_all);
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value().size(), 1U);
}

// What comes in order goes into a table before Finish: later changes must win over it all the same.
TEST_F(BaseWriterTest, MuchThatComesInOrderIsNotHeldAndLaterChangesWin) {
  constexpr int kEntries = 40'000;
  const std::string large(1000, 'v');
  Entries expected;
  auto writer = BaseWriter::Make("", Path("a"), {});
  HOLDFAST_ASSERT_OK(writer.status());
  const auto add = [&](const std::string& key, const std::optional<std::string>& value) {
    const Change change{key, value.has_value() ? Slice(*value) : Slice(), !value.has_value()};
    HOLDFAST_ASSERT_OK(writer.value()->Add({&change, 1}));
    Apply({{key, value}}, &expected);
  };
  for (int i = 0; i < kEntries; ++i) {
    if (i % 1000 == 0) {
      add(NumberedKey(i), std::nullopt);
    } else {
      add(NumberedKey(i), large + std::to_string(i));
    }
  }
  EXPECT_LT(writer.value()->memory_bytes(), size_t{1} << 20);
  const Change empty{"", "1", false};
  EXPECT_EQ(writer.value()->Add({&empty, 1}).code(), Code::kInvalidRequest) << "and nothing is added";
  for (int i = 0; i < kEntries; i += 7) {
    add(NumberedKey(i), i % 2 == 0 ? std::optional<std::string>("later") : std::nullopt);
  }
  add(NumberedKey(kEntries + 1), "the last");
  const auto names = writer.value()->Finish();
  HOLDFAST_ASSERT_OK(names.status());
  for (const std::string& name : names.value()) EXPECT_FALSE(name.ends_with(".pending")) << name;
  const auto found = ReadAll(Path("a"));
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_TRUE(found.value() == expected);
}

TEST_F(BaseWriterTest, TablesAreSharedAndParentsStayAsTheyWere) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", std::string(5000, 'a')}, {"b", "1"}}).status());
  const auto before = FilesOf(Path("a"));
  BaseOptions options;
  options.max_runs = 2;  // so that the parent's tables are merged away in the children
  std::string parent = Path("a");
  for (int i = 0; i < 5; ++i) {
    const std::string child = Path("child" + std::to_string(i));
    HOLDFAST_ASSERT_OK(MakeBase(parent, child, {{"a", std::to_string(i)}, {"b", {}}}, options).status());
    parent = child;
  }
  EXPECT_EQ(FilesOf(Path("a")), before);
  const auto all = ReadAll(Path("a"));
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value().at("b"), "1");

  HOLDFAST_ASSERT_OK(MakeBase(Path("a"), Path("sibling"), {{"c", "1"}}).status());
  const std::string table = NamesIn(Path("a")).front();
  ASSERT_TRUE(table.ends_with(".sst"));
  EXPECT_TRUE(fs::equivalent(fs::path(Path("a")) / table, fs::path(Path("sibling")) / table)) << "a hard link";
  fs::remove_all(Path("a"));
  const auto sibling = ReadAll(Path("sibling"));
  HOLDFAST_ASSERT_OK(sibling.status());
  EXPECT_EQ(sibling.value().size(), 3U);
}

TEST_F(BaseWriterTest, TablesAreCopiedWhereLinksCannotGo) {
  const fs::path other = "/dev/shm";
  std::string elsewhere = (other / "holdfast-rocksdb-test-XXXXXX").string();
  if (!fs::exists(other) || mkdtemp(elsewhere.data()) == nullptr) GTEST_SKIP() << "no second file system here";
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  const auto made = MakeBase(Path("a"), elsewhere + "/b", {{"b", "1"}});
  const auto all = ReadAll(elsewhere + "/b");
  fs::remove_all(elsewhere);
  HOLDFAST_ASSERT_OK(made.status());
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value(), (Entries{{"a", "1"}, {"b", "1"}}));
}

TEST_F(BaseWriterTest, ALongLineOfRandomBasesEqualsAMap) {
  std::mt19937 random(20261121);
  BaseOptions options;
  options.max_runs = 3;
  Entries expected;
  std::string parent;
  for (int version = 0; version < 40; ++version) {
    Batch batch;
    const size_t changes = random() % (version % 5 == 0 ? 400 : 20);
    for (size_t i = 0; i < changes; ++i) {
      const std::string key = NumberedKey(static_cast<int>(random() % 300));
      if (random() % 3 == 0) {
        batch.emplace_back(key, std::nullopt);
      } else {
        batch.emplace_back(key, std::string(random() % 200, static_cast<char>('a' + random() % 26)));
      }
    }
    Apply(batch, &expected);
    const std::string directory = Path("base" + std::to_string(version));
    HOLDFAST_ASSERT_OK(MakeBase(parent, directory, batch, options).status());
    if (!parent.empty()) fs::remove_all(parent);
    parent = directory;
    const auto all = ReadAll(directory);
    HOLDFAST_ASSERT_OK(all.status());
    ASSERT_EQ(all.value(), expected) << "version " << version;
  }
}

// State that comes and goes, as sessions do: what is live stays small, so must the base.
TEST_F(BaseWriterTest, TombstonesGoAwayInTheEnd) {
  constexpr int kGeneration = 2000;
  std::string parent;
  size_t bytes_max = 0;
  for (int version = 0; version < 40; ++version) {
    Batch batch;
    for (int i = 0; i < kGeneration; ++i) {
      batch.emplace_back(NumberedKey(version * kGeneration + i), "some value");
      if (version > 0) batch.emplace_back(NumberedKey((version - 1) * kGeneration + i), std::nullopt);
    }
    const std::string directory = Path("base" + std::to_string(version));
    HOLDFAST_ASSERT_OK(MakeBase(parent, directory, batch).status());
    if (!parent.empty()) fs::remove_all(parent);
    parent = directory;
    size_t bytes = 0;
    for (const auto& [name, content] : FilesOf(directory)) bytes += content.size();
    bytes_max = std::max(bytes_max, bytes);
  }
  EXPECT_LT(bytes_max, 20U * kGeneration * 50) << "of 40 generations";
  const auto all = ReadAll(parent);
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value().size(), static_cast<size_t>(kGeneration));
}

TEST_F(BaseWriterTest, AParentIsReadWhileChildrenAreMade) {
  Batch batch;
  for (int i = 0; i < 2000; ++i) batch.emplace_back(NumberedKey(i), "first");
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), batch).status());
  std::atomic<bool> done = false;
  std::vector<std::string> failures(2);
  std::vector<std::thread> readers;
  for (std::string& failure : failures) {
    readers.emplace_back([&] {
      do {
        const auto all = ReadAll(Path("a"));
        if (!all.ok()) {
          failure = all.status().message();
        } else if (all.value().size() != 2000 || all.value().at(NumberedKey(7)) != "first") {
          failure = "wrong entries";
        }
      } while (!done && failure.empty());
    });
  }
  BaseOptions options;
  options.max_runs = 2;
  std::string parent = Path("a");
  for (int i = 0; i < 10; ++i) {
    const std::string child = Path("child" + std::to_string(i));
    const auto made = MakeBase(parent, child, {{NumberedKey(7), "second"}}, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    parent = child;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST_F(BaseWriterTest, AnAbandonedWriterLeavesTheParentAlone) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  const auto before = FilesOf(Path("a"));
  {
    auto writer = BaseWriter::Make(Path("a"), Path("b"), {});
    HOLDFAST_ASSERT_OK(writer.status());
    const Change change{"a", "2", false};
    HOLDFAST_ASSERT_OK(writer.value()->Add({&change, 1}));
  }
  EXPECT_EQ(FilesOf(Path("a")), before);
  EXPECT_EQ(OpenBase(Path("b"), {}).status().code(), Code::kCorrupt) << "not sealed, so not a base";
}

TEST_F(BaseWriterTest, AFolderThatExistsIsRefused) {
  fs::create_directory(Path("a"));
  const auto writer = BaseWriter::Make("", Path("a"), {});
  EXPECT_EQ(writer.status().code(), Code::kInvalidRequest);
  EXPECT_NE(writer.status().message().find(Path("a")), std::string::npos);
}

TEST_F(BaseWriterTest, AFinishedWriterTakesNothingMore) {
  auto writer = BaseWriter::Make("", Path("a"), {});
  HOLDFAST_ASSERT_OK(writer.status());
  HOLDFAST_ASSERT_OK(writer.value()->Finish().status());
  const Change change{"a", "1", false};
  EXPECT_EQ(writer.value()->Add({&change, 1}).code(), Code::kInvalidRequest);
  EXPECT_EQ(writer.value()->Finish().status().code(), Code::kInvalidRequest);
}

TEST_F(BaseWriterTest, AWriterWhoseTableFailedNeverSealsItsParentWithoutTheChanges) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  auto writer = BaseWriter::Make(Path("a"), Path("b"), {});
  HOLDFAST_ASSERT_OK(writer.status());
  const Change change{"a", "2", false};
  HOLDFAST_ASSERT_OK(writer.value()->Add({&change, 1}));
  fs::create_directory(Path("b") + "/changes.pending");  // no table can be written there
  const Status failed = writer.value()->Finish().status();
  EXPECT_FALSE(failed.ok());
  fs::remove(Path("b") + "/changes.pending");
  const Status again = writer.value()->Finish().status();
  EXPECT_EQ(again.code(), failed.code());
  EXPECT_NE(again.message().find(failed.message()), std::string::npos) << again.message();
  EXPECT_FALSE(writer.value()->Add({&change, 1}).ok());
  EXPECT_EQ(OpenBase(Path("b"), {}).status().code(), Code::kCorrupt) << "not sealed, so not a base";
}

TEST_F(BaseWriterTest, NoManifestIsRemovedAndNothingSealedWhereCurrentDoesNotNameOne) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  const auto files = FilesOf(Path("a"));
  std::set<std::string> tables;
  for (const auto& [name, bytes] : files) {
    if (rocks::IsTable(name)) tables.insert(name);
  }
  const auto fill = [&] {
    fs::remove_all(Path("b"));
    fs::create_directory(Path("b"));
    for (const auto& [name, bytes] : files) {
      if (name != "CURRENT" && name != "SEAL") WriteFile(Path("b") + "/" + name, bytes);
    }
  };
  const auto expect_refused = [&](Code code, const std::string& what) {
    const auto before = FilesOf(Path("b"));
    EXPECT_EQ(rocks::RemoveObsoleteFiles(Path("b"), tables).code(), code) << what;
    EXPECT_EQ(rocks::WriteSeal(Path("b")).code(), code) << what;
    EXPECT_TRUE(FilesOf(Path("b")) == before) << what;
  };
  const std::string& current = files.at("CURRENT");
  const std::string name = current.substr(0, current.size() - 1);
  const std::vector<std::string> others = {"",   "\n",           "MANIFEST-\n", "../" + current, "x" + current,
                                           name, name + current, name + "x\n",  name + "1\n"};
  for (const std::string& other : others) {
    fill();
    WriteFile(Path("b") + "/CURRENT", other);
    expect_refused(Code::kCorrupt, other);
  }
  fill();
  expect_refused(Code::kCorrupt, "none");
  fs::create_symlink("CURRENT", Path("b") + "/CURRENT");
  expect_refused(Code::kUnavailable, "cannot be read");
  fill();
  WriteFile(Path("b") + "/CURRENT", current);
  WriteFile(Path("b") + "/LOG", "");
  HOLDFAST_ASSERT_OK(rocks::RemoveObsoleteFiles(Path("b"), tables));
  HOLDFAST_ASSERT_OK(rocks::WriteSeal(Path("b")));
  EXPECT_TRUE(FilesOf(Path("b")) == files);
}

// RocksDB would begin an empty database there, and the base would be sealed without what its parent has.
TEST_F(BaseWriterTest, AFolderThatLostItsParentsDatabaseIsNoBase) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  for (const std::string& name : NamesIn(Path("a"))) {
    if (name == "SEAL" || rocks::IsTable(name)) continue;
    for (const bool changed : {false, true}) {
      auto writer = BaseWriter::Make(Path("a"), Path("b"), {});
      HOLDFAST_ASSERT_OK(writer.status());
      fs::remove(Path("b") + "/" + name);
      const Change change{"b", "2", false};
      if (changed) HOLDFAST_ASSERT_OK(writer.value()->Add({&change, 1}));
      EXPECT_EQ(writer.value()->Finish().status().code(), Code::kCorrupt) << name << (changed ? ", with a change" : "");
      EXPECT_FALSE(fs::exists(Path("b") + "/SEAL"));
      fs::remove_all(Path("b"));
    }
  }
}

TEST_F(BaseWriterTest, WhenTablesWereMergedLastIsNotForgottenWhereItCannotBeRead) {
  HOLDFAST_ASSERT_OK(MakeBase("", Path("a"), {{"a", "1"}}).status());
  auto writer = BaseWriter::Make(Path("a"), Path("b"), {}, {StateExpiry{1, {1000, 0}, 100}});
  HOLDFAST_ASSERT_OK(writer.status());
  fs::create_symlink("EXPIRY", Path("b") + "/EXPIRY");
  EXPECT_EQ(writer.value()->Finish().status().code(), Code::kUnavailable);
}

// A table that changed after its base was sealed would break every base that shares it.
TEST_F(BaseWriterTest, NoFileOfASealedBaseChangesWhateverIsMadeOfIt) {
  std::map<std::string, std::map<std::string, std::string>> sealed;  // by folder
  const auto expect_unchanged = [&] {
    for (const auto& [folder, files] : sealed) ASSERT_TRUE(FilesOf(folder) == files) << folder;
  };
  BaseOptions options;
  options.max_runs = 3;  // merges come often
  std::string parent;
  for (int number = 0; number < 24; ++number) {
    Batch batch;
    for (int i = 0; i < 300; ++i)
      batch.push_back(
          {NumberedKey((number * 97 + i * 13) % 2000), std::string(50, static_cast<char>('a' + number % 26))});
    batch.push_back({NumberedKey(number), std::nullopt});
    std::sort(batch.begin(), batch.end());
    batch.erase(
        std::unique(batch.begin(), batch.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        batch.end());
    const std::string folder = Path("base-" + std::to_string(number));
    const auto reader = parent.empty() ? nullptr : std::move(OpenBase(parent, options)).value();
    HOLDFAST_ASSERT_OK(MakeBase(parent, folder, batch, options).status());
    expect_unchanged();
    // Siblings: the same fold once more, and another one that is given up.
    HOLDFAST_ASSERT_OK(MakeBase(parent, folder + "-again", batch, options).status());
    HOLDFAST_ASSERT_OK(BaseWriter::Make(folder, folder + "-left", options).status());
    expect_unchanged();
    sealed[folder] = FilesOf(folder);
    HOLDFAST_ASSERT_OK(ReadAll(folder, options).status());
    if (reader != nullptr) HOLDFAST_ASSERT_OK(ReadAll(*reader).status());
    expect_unchanged();
    parent = folder;
  }
}

TEST_F(BaseWriterTest, SettingsOutOfRangeAreNamed) {
  BaseOptions options;
  options.compression = "gzip";
  EXPECT_NE(BaseWriter::Make("", Path("a"), options).status().message().find("'gzip'"), std::string::npos);
  EXPECT_FALSE(fs::exists(Path("a"))) << "refused before anything is made";
  options = {};
  options.max_runs = 1;
  EXPECT_EQ(BaseWriter::Make("", Path("a"), options).status().code(), Code::kInvalidRequest);
  options = {};
  options.compaction_threads = 0;
  EXPECT_EQ(OpenBase(Path("a"), options).status().code(), Code::kInvalidRequest);
}

TEST_F(BaseWriterTest, EveryCompressionThatIsOfferedWorks) {
  for (const char* compression : {"none", "snappy", "lz4", "lz4hc", "zlib", "zstd"}) {
    BaseOptions options;
    options.compression = compression;
    HOLDFAST_ASSERT_OK(MakeBase("", Path(compression), {{"a", std::string(20000, 'x')}}, options).status());
    const auto all = ReadAll(Path(compression));  // a reader need not know how tables were compressed
    HOLDFAST_ASSERT_OK(all.status());
    EXPECT_EQ(all.value().at("a").size(), 20000U) << compression;
  }
}

}  // namespace
}  // namespace holdfast::testing
