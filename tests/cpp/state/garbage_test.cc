// What a slot holds goes by what is alive, not by how many keys came and went.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "container/arena.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

constexpr int kBatches = 2000;
constexpr int kBatchesPerFold = 32;
constexpr int64_t kKeys = 200;
constexpr int64_t kMemoryMax = 1 << 20;
// Between two folds, what the base still has must be known to be absent.
constexpr int64_t kPendingMax = 3 * kBatchesPerFold * kKeys + 4096;

std::vector<int64_t> KeysFrom(int64_t first) {
  std::vector<int64_t> keys(static_cast<size_t>(kKeys));
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

// Runs batches of `work(batch)`; every so often a base takes the deltas in, as a fold does.
void RunBatches(Store* store, bool complete, const std::function<void(int64_t)>& work) {
  Entries entries;
  for (int64_t batch = 1; batch <= kBatches; ++batch) {
    ExpectOk(store->Begin(batch));
    work(batch);
    FoldInto(Value(store->TakeDelta()), &entries);
    ExpectOk(store->Commit());
    if (batch % kBatchesPerFold == 0) {
      ExpectOk(store->SetBase(complete ? nullptr : std::make_shared<MapBase>(entries), batch));
    }
    ASSERT_LT(store->memory_bytes(), complete ? kMemoryMax : 8 * kMemoryMax) << "batch " << batch;
    ASSERT_LT(store->Counters().at("entries"), complete ? 4096 : kPendingMax) << "batch " << batch;
  }
}

class Garbage : public ::testing::TestWithParam<bool> {};

TEST_P(Garbage, AppendAndClearOfListsHoldsNothing) {
  auto store = MakeStore(GetParam());
  ListTable* lists = Value(store->ListState(0, String()));
  const auto keys = KeysFrom(0);
  const std::vector<std::optional<std::string>> elements(keys.size(), "an element");
  RunBatches(store.get(), GetParam(), [&](int64_t) {
    ExpectOk(lists->Append(Keys(keys), Strings(elements)));
    ExpectOk(lists->Clear(Keys(keys)));
  });
  EXPECT_EQ(ListsOf(lists->Get(Keys({0, 199}))), (std::vector<StringList>{{}, {}}));
}

TEST_P(Garbage, UpdateOfListsHoldsTheLastOnes) {
  auto store = MakeStore(GetParam());
  ListTable* lists = Value(store->ListState(0, String()));
  const auto keys = KeysFrom(0);
  RunBatches(store.get(), GetParam(), [&](int64_t batch) {
    const std::vector<std::optional<std::string>> elements(keys.size(), std::to_string(batch));
    ExpectOk(lists->Clear(Keys(keys)));
    ExpectOk(lists->Append(Keys(keys), Strings(elements)));
  });
  EXPECT_EQ(ListsOf(lists->Get(Keys({0, 199}))), (std::vector<StringList>{{"2000"}, {"2000"}}));
}

TEST_P(Garbage, MapEntriesThatComeAndGo) {
  auto store = MakeStore(GetParam());
  MapTable* maps = Value(store->MapState(0, Int64(), Int64()));
  const auto keys = KeysFrom(0);
  RunBatches(store.get(), GetParam(), [&](int64_t batch) {
    const std::vector<int64_t> now(keys.size(), batch);
    const std::vector<int64_t> before(keys.size(), batch - 1);
    ExpectOk(maps->Put(Keys(keys), Keys(now), Keys(now)));
    ExpectOk(maps->Remove(Keys(keys), Keys(before)));
  });
  EXPECT_EQ(IntsOf(maps->Count(Keys({0, 199, 200}))), (std::vector<std::optional<int64_t>>{1, 1, 0}));
}

TEST_P(Garbage, KeysThatComeAndGo) {
  auto store = MakeStore(GetParam());
  ValueTable* values = Value(store->ValueState(0, Int64()));
  MapTable* maps = Value(store->MapState(1, Int64(), Int64()));
  RunBatches(store.get(), GetParam(), [&](int64_t batch) {
    const auto keys = KeysFrom(batch * kKeys);
    ExpectOk(values->Put(Keys(keys), Keys(keys)));
    ExpectOk(maps->Put(Keys(keys), Keys(keys), Keys(keys)));
    ExpectOk(values->Clear(Keys(KeysFrom((batch - 1) * kKeys))));
    ExpectOk(maps->Clear(Keys(KeysFrom((batch - 1) * kKeys))));
  });
  EXPECT_EQ(IntsOf(values->Get(Keys({kBatches * kKeys, kKeys}))),
            (std::vector<std::optional<int64_t>>{kBatches * kKeys, std::nullopt}));
}

INSTANTIATE_TEST_SUITE_P(Backends, Garbage, ::testing::Bool(),
                         [](const auto& backend) { return backend.param ? "hashmap" : "rocksdb"; });

TEST(Store, AListThatWasClearedTakesDeltasAfterEviction) {  // its tombstones stay when its heads are gone
  Entries entries;
  auto first = MakeStore();
  auto store = MakeStore();
  ListTable* lists = Value(first->ListState(0, String()));
  ExpectOk(first->Begin(1));
  ExpectOk(lists->Append(Keys({1, 2}), Strings({"a", "b"})));
  const OwnedArray appended = Value(first->TakeDelta());
  FoldInto(appended, &entries);
  ExpectOk(first->Commit());
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  ExpectOk(store->Begin(2));
  ExpectOk(Value(store->ListState(0, String()))->Clear(Keys({1, 2, 3})));
  EXPECT_EQ(Value(store->TakeDelta()).length(), 2);
  ExpectOk(store->Commit());
  ExpectOk(store->EvictClean());
  ExpectOk(first->Begin(2));
  ExpectOk(first->TakeDelta().status());
  ExpectOk(first->Commit());
  ExpectOk(first->Begin(3));
  ExpectOk(lists->Append(Keys({1}), Strings({"c"})));
  ExpectOk(store->ApplyDelta(Value(first->TakeDelta()), 3));
  EXPECT_EQ(ListsOf(Value(store->ListState(0, String()))->Get(Keys({1, 2}))), (std::vector<StringList>{{"c"}, {}}));
}

TEST(Store, AnEvictionGivesBackTheRoomOfValuesThatBecameShorter) {  // though none of them may be forgotten
  constexpr int64_t kValues = 2000;
  auto store = MakeStore();
  ValueTable* values = Value(store->ValueState(0, String()));
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < kValues; ++key) keys.push_back(key);
  const auto put = [&](int64_t batch, size_t size) {
    ExpectOk(store->Begin(batch));
    ExpectOk(
        values->Put(Keys(keys), Strings(std::vector<std::optional<std::string>>(kValues, std::string(size, 'x')))));
    ExpectOk(store->TakeDelta().status());
    ExpectOk(store->Commit());
  };
  put(1, 3000);
  const int64_t of_long_ones = store->memory_bytes();
  put(2, 100);
  EXPECT_GE(store->memory_bytes(), of_long_ones);
  ExpectOk(store->EvictClean());
  EXPECT_LT(store->memory_bytes(), of_long_ones / 4);
  const int64_t of_short_ones = store->memory_bytes();
  ExpectOk(store->EvictClean());
  EXPECT_EQ(store->memory_bytes(), of_short_ones);
  EXPECT_EQ(StringsOf(values->Get(Keys({7}))), (StringList{std::string(100, 'x')}));
}

TEST(Store, LargeValuesThatAreClearedOrReplacedGiveTheirMemoryBack) {
  auto store = MakeStore(/*complete=*/true);
  ValueTable* values = Value(store->ValueState(0, String()));
  for (int64_t batch = 1; batch <= 50; ++batch) {
    ExpectOk(store->Begin(batch));
    ExpectOk(values->Put(Keys({batch}), Strings({std::string(static_cast<size_t>(3 << 20) + batch * 5000, 'x')})));
    ExpectOk(values->Clear(Keys({batch - 1})));
    ExpectOk(store->TakeDelta().status());
    ExpectOk(store->Commit());
    ASSERT_LT(store->memory_bytes(), 8 << 20) << "batch " << batch;
  }
  const int64_t one = store->memory_bytes();
  ExpectOk(store->Begin(51));
  for (int64_t size = 1 << 20; size < 6 << 20; size += 100000) {
    ExpectOk(values->Put(Keys({50}), Strings({std::string(static_cast<size_t>(size), 'y')})));
  }
  EXPECT_LT(store->memory_bytes(), one + (4 << 20));
}

// What the system has given memory for, from `block` up to where its last huge page would end.
size_t ResidentBytes(char* block, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes / page);
  EXPECT_EQ(mincore(block, pages.size() * page, pages.data()), 0);
  return page * static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](auto at) { return (at & 1) != 0; }));
}

void ExpectLargeBlocksTakeWhatTheyCount() {
  malloc_trim(0);  // what lies free counts for nobody
  Arena arena;
  const size_t block_bytes = Arena::BlockBytes(kHugePageBytes + 60'000);
  for (int i = 0; i < 8; ++i) {
    const size_t before = arena.memory_bytes();
    char* const block = arena.AllocateBlock(block_bytes);
    std::memset(block, 'x', block_bytes);
    EXPECT_LE(ResidentBytes(block, block_bytes), arena.memory_bytes() - before) << "block " << i;
  }
}

TEST(Arena, LargeBlocksTakeNoMoreMemoryThanTheyCount) {  // of a little above 2 MiB they took 4
  ExpectLargeBlocksTakeWhatTheyCount();
}

TEST(Arena, NorDoTheyWhereMemoryWasGivenBackThatHadHugePages) {
  // An allocator that was given back so much keeps what comes next, even if it lies free, as it is not at its end.
  AllocatePages<char>(12 * kHugePageBytes).reset();
  Pages<char> given_back = AllocatePages<char>(8 * kHugePageBytes);
  const Pages<char> behind = AllocatePages<char>(kHugePageBytes);
  given_back.reset();
  ExpectLargeBlocksTakeWhatTheyCount();
}

}  // namespace
}  // namespace holdfast::testing
