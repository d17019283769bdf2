// The contract of BaseReader, over RocksDB and over std::map: what the overlay may rely on, whatever is under it.
#include <algorithm>
#include <functional>

#include "rocksdb/fixture.h"

namespace holdfast::testing {
namespace {

struct Backend {
  const char* name;
  // A reader of these entries; may make folders under `folder`.
  std::function<Result<std::unique_ptr<BaseReader>>(const Entries&, const std::string& folder)> open;
};

Result<std::unique_ptr<BaseReader>> OpenMap(const Entries& entries, const std::string& /*folder*/) {
  return std::unique_ptr<BaseReader>(std::make_unique<MapBase>(entries));
}

// All in one table.
Result<std::unique_ptr<BaseReader>> OpenOneRun(const Entries& entries, const std::string& folder) {
  HOLDFAST_RETURN_IF_ERROR(MakeBase("", folder + "/one", AsBatch(entries)).status());
  return OpenBase(folder + "/one", {});
}

// The same entries over tables that hide others: all keys with a wrong value and as many keys again that do not exist,
// then a table that puts every third right, then one that puts the rest right and takes the strangers away.
Result<std::unique_ptr<BaseReader>> OpenManyRuns(const Entries& entries, const std::string& folder) {
  std::vector<Batch> batches(3);
  int number = 0;
  for (const auto& [key, value] : entries) {
    const std::string stranger = key + "\xFF stranger";
    batches[0].emplace_back(key, "wrong");
    batches[0].emplace_back(stranger, "wrong");
    batches[number++ % 3 == 0 ? 1 : 2].emplace_back(key, value);
    batches[2].emplace_back(stranger, std::nullopt);
  }
  std::string parent;
  for (size_t i = 0; i < batches.size(); ++i) {
    const std::string directory = folder + "/run" + std::to_string(i);
    HOLDFAST_RETURN_IF_ERROR(MakeBase(parent, directory, batches[i]).status());
    parent = directory;
  }
  return OpenBase(parent, {});
}

Result<std::unique_ptr<BaseReader>> OpenCompressed(const Entries& entries, const std::string& folder) {
  BaseOptions options;
  options.compression = "lz4";
  options.block_cache_bytes = 0;
  HOLDFAST_RETURN_IF_ERROR(MakeBase("", folder + "/lz4", AsBatch(entries), options).status());
  return OpenBase(folder + "/lz4", options);
}

class BaseReaderContract : public BaseTest, public ::testing::WithParamInterface<Backend> {
 protected:
  std::unique_ptr<BaseReader> Open(const Entries& entries) {
    auto opened = GetParam().open(entries, folder_.string());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
};

Entries Numbered(int count) {
  Entries entries;
  for (int i = 0; i < count; ++i)
    entries[NumberedKey(2 * i)] = std::string(static_cast<size_t>(i % 40), 'v') + std::to_string(i);
  return entries;
}

TEST_P(BaseReaderContract, FindsEveryKeyAndNoOther) {
  const Entries entries = Numbered(3000);
  const auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  std::vector<std::string> keys;
  for (int i = -1; i <= 6001; ++i) keys.push_back(NumberedKey(i));  // every second one exists
  std::sort(keys.begin(), keys.end());
  const auto found = Get(*base, keys);
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_EQ(found.value(), entries);
}

TEST_P(BaseReaderContract, FindsAFewKeysAmongMany) {
  const Entries entries = Numbered(3000);
  const auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  const auto found = Get(*base, {NumberedKey(0), NumberedKey(1), NumberedKey(3000), NumberedKey(5998), "zzz"});
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_EQ(found.value(), (Entries{{NumberedKey(0), "0"},
                                    {NumberedKey(3000), entries.at(NumberedKey(3000))},
                                    {NumberedKey(5998), entries.at(NumberedKey(5998))}}));
}

TEST_P(BaseReaderContract, NoKeysAskedForIsNoWork) {
  const auto base = Open(Numbered(10));
  ASSERT_NE(base, nullptr);
  const auto found = Get(*base, {});
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_TRUE(found.value().empty());
}

TEST_P(BaseReaderContract, AnEmptyBaseHoldsNothing) {
  const auto base = Open({});
  ASSERT_NE(base, nullptr);
  const auto found = Get(*base, {"a", "b"});
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_TRUE(found.value().empty());
  const auto all = ReadAll(*base);
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_TRUE(all.value().empty());
}

TEST_P(BaseReaderContract, BytesAreBytes) {
  using std::string_literals::operator""s;
  const Entries entries = {{"\0"s, ""},         {"\0\0"s, "\0"s},      {"\0\x01"s, std::string(100000, '\xFF')},
                           {"a", "prefix"},     {"a\0"s, "of"},        {"ab", "another"},
                           {"\x7F"s, "signed"}, {"\x80"s, "unsigned"}, {"\xFF\xFF"s, "last"}};
  const auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  std::vector<std::string> keys;
  for (const auto& [key, value] : entries) keys.push_back(key);
  ASSERT_TRUE(std::is_sorted(keys.begin(), keys.end()));
  const auto found = Get(*base, keys);
  HOLDFAST_ASSERT_OK(found.status());
  EXPECT_EQ(found.value(), entries);
  const auto all = ReadAll(*base);
  HOLDFAST_ASSERT_OK(all.status());
  EXPECT_EQ(all.value(), entries);
}

TEST_P(BaseReaderContract, ScansFromLowerUpToUpper) {
  const Entries entries = Numbered(100);
  const auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  const auto keys = [&](const std::string& lower, const std::string& upper) {
    std::vector<std::string> found;
    auto iterator = base->Scan(lower, upper);
    EXPECT_TRUE(iterator.ok());
    for (; iterator.value()->Valid(); iterator.value()->Next()) found.emplace_back(iterator.value()->key());
    EXPECT_TRUE(iterator.value()->status().ok());
    return found;
  };
  EXPECT_EQ(keys(NumberedKey(10), NumberedKey(14)), (std::vector{NumberedKey(10), NumberedKey(12)}));
  EXPECT_EQ(keys(NumberedKey(9), NumberedKey(13)), (std::vector{NumberedKey(10), NumberedKey(12)}));
  EXPECT_EQ(keys(NumberedKey(196), ""), (std::vector{NumberedKey(196), NumberedKey(198)}));
  EXPECT_TRUE(keys(NumberedKey(14), NumberedKey(14)).empty());
  EXPECT_TRUE(keys("zzz", "").empty());
  EXPECT_EQ(keys("", "").size(), entries.size());
  EXPECT_EQ(keys("", NumberedKey(4)).size(), 2U);
}

TEST_P(BaseReaderContract, AnIteratorOutlivesItsReader) {
  const Entries entries = Numbered(1000);
  auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  auto iterator = base->Scan("", "");
  HOLDFAST_ASSERT_OK(iterator.status());
  base.reset();
  size_t count = 0;
  for (; iterator.value()->Valid(); iterator.value()->Next()) ++count;
  HOLDFAST_ASSERT_OK(iterator.value()->status());
  EXPECT_EQ(count, entries.size());
}

TEST_P(BaseReaderContract, TwoIteratorsGoTheirOwnWays) {
  const Entries entries = Numbered(10);
  const auto base = Open(entries);
  ASSERT_NE(base, nullptr);
  auto first = base->Scan("", "");
  auto second = base->Scan(NumberedKey(4), "");
  HOLDFAST_ASSERT_OK(first.status());
  HOLDFAST_ASSERT_OK(second.status());
  first.value()->Next();
  EXPECT_EQ(first.value()->key(), NumberedKey(2));
  EXPECT_EQ(second.value()->key(), NumberedKey(4));
}

INSTANTIATE_TEST_SUITE_P(Backends, BaseReaderContract,
                         ::testing::Values(Backend{"Map", OpenMap}, Backend{"OneRun", OpenOneRun},
                                           Backend{"ManyRuns", OpenManyRuns}, Backend{"Compressed", OpenCompressed}),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace holdfast::testing
