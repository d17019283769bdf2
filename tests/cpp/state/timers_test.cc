// Timers: their order over key groups, and what is read of the base to know which is the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

constexpr int64_t kId = 0x8000;

std::vector<std::optional<int64_t>> Times(const std::vector<int64_t>& times) { return {times.begin(), times.end()}; }
OwnedArray NoNames(size_t count) { return Strings(StringList(count, "")); }

void Register(TimerTable* timers, const std::vector<int64_t>& keys, const std::vector<int64_t>& times) {
  ExpectOk(timers->Register(Keys(keys), Ints(Times(times)), NoNames(keys.size())));
}
void TakeAll(Store* store, Entries* entries) {
  do {
    FoldInto(Value(store->TakeDelta()), entries);
  } while (store->dirty_bytes() > 0);
}

TEST(Timers, FireInOrderOfTimeOverAllKeyGroupsInPieces) {
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  std::mt19937_64 random(5);
  std::vector<Timer> expected;
  std::vector<int64_t> keys;
  std::vector<int64_t> times;
  for (int64_t i = 0; i < 5000; ++i) {
    keys.push_back(static_cast<int64_t>(random() % 1000));
    times.push_back(static_cast<int64_t>(random() % 3000) - 1000);
    expected.emplace_back(times.back(), keys.back(), "");
  }
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  ExpectOk(store->Begin(1));
  Register(timers, keys, times);
  std::vector<Timer> taken;
  for (;;) {
    const std::vector<Timer> piece = TimersOf(timers->TakeDue(1000, 137));
    taken.insert(taken.end(), piece.begin(), piece.end());
    if (piece.size() < 137) break;
  }
  const auto due =
      std::partition_point(expected.begin(), expected.end(), [](const Timer& t) { return std::get<0>(t) <= 1000; });
  EXPECT_EQ(taken, std::vector<Timer>(expected.begin(), due));
  EXPECT_EQ(Value(timers->NextDue()), std::get<0>(*due));
  EXPECT_TRUE(TimersOf(timers->TakeDue(1000, 137)).empty());
  Register(timers, {7}, {-5000});  // while firing
  EXPECT_EQ(TimersOf(timers->TakeDue(1000, 137)), (std::vector<Timer>{{-5000, 7, ""}}));
}

TEST(Timers, RegisteredTwiceFireOnceAndDeletedNever) {
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  ExpectOk(store->Begin(1));
  ExpectOk(timers->Register(Keys({1, 1, 1, 2}), Ints({5, 5, 5, 5}), Strings({"a", "a", "b", "a"})));
  ExpectOk(timers->Delete(Keys({2, 3}), Ints({5, 5}), Strings({"a", "a"})));
  EXPECT_EQ(TimersOf(timers->TakeDue(5, 10)), (std::vector<Timer>{{5, 1, "a"}, {5, 1, "b"}}));
  EXPECT_TRUE(TimersOf(timers->TakeDue(INT64_MAX, 10)).empty());
  EXPECT_EQ(Value(timers->NextDue()), std::nullopt);
}

TEST(Timers, ABatchInWhichNoneIsDueReadsNothingOfTheBase) {
  auto first = MakeStore();
  TimerTable* timers = Value(first->Timers(kId));
  Entries entries;
  std::vector<int64_t> keys(1000);
  std::vector<int64_t> times(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = times[i] = static_cast<int64_t>(i);
  ExpectOk(first->Begin(1));
  Register(timers, keys, times);
  TakeAll(first.get(), &entries);

  const auto base = std::make_shared<MapBase>(entries);
  auto store = MakeStore();
  timers = Value(store->Timers(kId));
  ExpectOk(store->SetBase(base, 1));
  EXPECT_EQ(Value(timers->NextDue()), 0);
  EXPECT_EQ(base->scans, 64);  // each key group once
  for (int64_t sequence = 2; sequence < 20; ++sequence) {
    ExpectOk(store->Begin(sequence));
    EXPECT_TRUE(TimersOf(timers->TakeDue(-1, 100)).empty());
    Register(timers, {sequence}, {2000});
    TakeAll(store.get(), &entries);
    ExpectOk(store->Commit());
    EXPECT_EQ(Value(timers->NextDue()), 0);
  }
  EXPECT_EQ(base->scans, 64);
  const auto next = std::make_shared<MapBase>(entries);  // a fold: another base of the same version
  ExpectOk(store->SetBase(next, 19));
  ExpectOk(store->EvictClean());
  EXPECT_EQ(Value(timers->NextDue()), 0);
  ExpectOk(store->Begin(20));
  EXPECT_EQ(TimersOf(timers->TakeDue(0, 100)), (std::vector<Timer>{{0, 0, ""}}));
  EXPECT_EQ(Value(timers->NextDue()), 1);
  EXPECT_EQ(next->scans, 1);  // of the key group that had one
}

TEST(Timers, AreForgottenWhenTheStoreMovesToAnotherVersion) {
  auto writer = MakeStore();
  TimerTable* timers = Value(writer->Timers(kId));
  Entries entries;
  ExpectOk(writer->Begin(1));
  Register(timers, {1}, {10});
  TakeAll(writer.get(), &entries);
  auto store = MakeStore();
  timers = Value(store->Timers(kId));
  EXPECT_EQ(Value(timers->NextDue()), std::nullopt);  // of the empty state
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  EXPECT_EQ(Value(timers->NextDue()), 10);
  entries.clear();
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 2));
  EXPECT_EQ(Value(timers->NextDue()), std::nullopt);
}

TEST(Timers, AreKnownAtANewStoreOverABaseOfSequenceZero) {  // what was asked before there was a base says nothing
  auto writer = MakeStore();
  Entries entries;
  ExpectOk(writer->Begin(1));
  Register(Value(writer->Timers(kId)), {1}, {10});
  TakeAll(writer.get(), &entries);
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  EXPECT_EQ(Value(timers->NextDue()), std::nullopt);
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 0));
  EXPECT_EQ(Value(timers->NextDue()), 10);
}

TEST(Timers, AreReadBeforeTheyAreDeclared) {
  for (const bool complete : {false, true}) {
    auto writer = MakeStore(complete);
    ExpectOk(writer->Begin(1));
    Register(Value(writer->Timers(kId)), {1, 2}, {-10, 20});
    const OwnedArray delta = Value(writer->TakeDelta());
    auto store = MakeStore(complete);
    ExpectOk(store->ApplyDelta(delta, 1));
    TimerTable* timers = Value(store->Timers(kId));
    EXPECT_EQ(Value(timers->NextDue()), -10);
    EXPECT_EQ(TimersByKey(timers->List(Keys({2, 3})), {2, 3}), (std::vector<std::vector<Timer>>{{{20, 2, ""}}, {}}));
  }
}

TEST(Timers, OfOneMomentAreNotWalkedAgainForEachPiece) {
  Entries entries;
  auto writer = MakeStore();
  ExpectOk(writer->Begin(1));
  std::vector<int64_t> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  Register(Value(writer->Timers(kId)), keys, std::vector<int64_t>(keys.size(), 5));
  TakeAll(writer.get(), &entries);
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  const auto base = std::make_shared<MapBase>(entries);
  ExpectOk(store->SetBase(base, 1));
  ExpectOk(store->Begin(2));
  size_t taken = 0;
  while (taken < keys.size()) {
    const size_t piece = TimersOf(timers->TakeDue(5, 1000)).size();
    ASSERT_EQ(piece, 1000U);
    taken += piece;
  }
  EXPECT_LT(base->steps, 20 * 64 + 4 * static_cast<int64_t>(keys.size()));
}

// A slot's timers beside a set of them: set and deleted before, among and behind those that wait to be taken, in
// pieces, over batches, bases, and a store that forgets what it has seen.
struct TimersBesideASet {
  explicit TimersBesideASet(bool complete) : store(MakeStore(complete)), timers(Value(store->Timers(kId))) {}

  void Change(int64_t key, int64_t time, const std::string& name, bool set) {
    if (set) {
      ExpectOk(timers->Register(Keys({key}), Ints({time}), Strings({name})));
      expected.insert({time, key, name});
    } else {
      ExpectOk(timers->Delete(Keys({key}), Ints({time}), Strings({name})));
      expected.erase({time, key, name});
    }
  }
  size_t Take(int64_t until, int64_t limit) {
    const std::vector<Timer> piece = TimersOf(timers->TakeDue(until, limit));
    const auto due = std::distance(expected.begin(), expected.lower_bound({until, INT64_MAX, ""}));
    EXPECT_EQ(piece.size(), static_cast<size_t>(std::min<int64_t>(due, limit)));
    for (const Timer& timer : piece) {
      EXPECT_EQ(timer, expected.empty() ? Timer() : *expected.begin());
      expected.erase(timer);
    }
    return piece.size();
  }
  void CheckNext() {
    const std::optional<int64_t> next = Value(timers->NextDue());
    EXPECT_EQ(next, expected.empty() ? std::nullopt : std::optional(std::get<0>(*expected.begin())));
  }
  void CheckListed(int64_t key) {
    std::vector<Timer> of_key;
    for (const Timer& timer : expected) {
      if (std::get<1>(timer) == key) of_key.push_back(timer);
    }
    EXPECT_EQ(TimersByKey(timers->List(Keys({key})), {key}), std::vector<std::vector<Timer>>{of_key});
  }
  void Commit(bool fold) {
    TakeAll(store.get(), &entries);
    ExpectOk(store->Commit());
    if (fold) ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), sequence));
    ExpectOk(store->EvictClean());
    ExpectOk(store->Begin(++sequence));
  }
  // As a worker does that holds too much in the middle of a batch.
  void Spill() {
    TakeAll(store.get(), &entries);
    ExpectOk(store->EvictClean());
  }

  std::unique_ptr<Store> store;
  TimerTable* timers;
  std::set<Timer> expected;
  Entries entries;
  int64_t sequence = 1;
};

TEST(Timers, ThatWaitAreSetAndDeletedLikeAllOthers) {
  for (const uint32_t seed : {1U, 2U, 3U, 4U}) {
    std::mt19937_64 random(seed);
    TimersBesideASet both(/*complete=*/seed == 4);
    ExpectOk(both.store->Begin(1));
    const auto some = [&](int64_t from, int64_t to) {
      return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from));
    };
    std::vector<int64_t> keys;
    std::vector<int64_t> times;
    for (int64_t i = 0; i < 20000; ++i) {
      keys.push_back(some(0, 3000));
      times.push_back(some(0, 2000));
      both.expected.insert({times.back(), keys.back(), ""});
    }
    Register(both.timers, keys, times);
    both.Commit(/*fold=*/seed != 4);
    int64_t now = 0;
    for (int step = 0; step < 600; ++step) {
      now += some(0, 8);
      const auto about = [&] { return std::max<int64_t>(0, now + some(-20, 60)); };
      for (int64_t i = some(0, 6); i > 0; --i) both.Change(some(0, 3000), about(), random() % 4 == 0 ? "n" : "", true);
      for (int64_t i = some(0, 4); i > 0 && !both.expected.empty(); --i) {
        const auto at = both.expected.lower_bound({about(), some(0, 3000), ""});
        const Timer timer = at == both.expected.end() ? *both.expected.begin() : *at;
        both.Change(std::get<1>(timer), std::get<0>(timer), std::get<2>(timer), false);
        if (random() % 3 == 0) both.Change(std::get<1>(timer), std::get<0>(timer), std::get<2>(timer), true);
      }
      if (random() % 3 == 0) both.CheckNext();
      both.Take(step % 97 == 50 ? INT64_MAX : now, some(1, 200));  // with more that wait than are read at once
      if (random() % 5 == 0) both.CheckListed(some(0, 3000));
      if (random() % 40 == 0) both.Spill();
      if (random() % 15 == 0) {
        while (both.Take(now, 97) > 0) continue;
        both.CheckNext();
        both.Commit(random() % 2 == 0 && seed != 4);
      }
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
    while (both.Take(INT64_MAX, 1000) > 0) continue;
    EXPECT_TRUE(both.expected.empty());
    both.CheckNext();
  }
}

TEST(Timers, ThatWaitAreForgottenWithTheirVersion) {
  Entries entries;
  auto writer = MakeStore();
  ExpectOk(writer->Begin(1));
  Register(Value(writer->Timers(kId)), {1, 2, 3}, {10, 20, 30});
  TakeAll(writer.get(), &entries);
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  ExpectOk(store->Begin(2));
  EXPECT_EQ(TimersOf(timers->TakeDue(100, 1)), (std::vector<Timer>{{10, 1, ""}}));  // two wait
  TakeAll(store.get(), &entries);
  ExpectOk(store->Commit());
  ExpectOk(store->Reset());
  ExpectOk(store->SetBase(std::make_shared<MapBase>(Entries()), 9));
  EXPECT_EQ(Value(timers->NextDue()), std::nullopt);
  ExpectOk(store->Begin(10));
  EXPECT_TRUE(TimersOf(timers->TakeDue(100, 10)).empty());
}

TEST(Timers, OfLargeNamespacesWaitInBoundedMemory) {
  auto store = MakeStore();
  TimerTable* timers = Value(store->Timers(kId));
  ExpectOk(store->Begin(1));
  constexpr int64_t kCount = 96;
  constexpr int64_t kPiece = 7;
  const auto name = [](int64_t key) { return std::string(size_t{1} << 20, static_cast<char>('A' + key % 26)); };
  for (int64_t key = 0; key < kCount; ++key) {
    ExpectOk(timers->Register(Keys({key}), Ints({kCount - key}), Strings({name(key)})));
  }
  const int64_t before = store->memory_bytes();
  for (int64_t due = kCount; due > 0; due -= kPiece) {
    const std::vector<Timer> piece = TimersOf(timers->TakeDue(2 * kCount, kPiece));
    ASSERT_EQ(piece.size(), static_cast<size_t>(std::min(due, kPiece)));
    for (size_t i = 0; i < piece.size(); ++i) {
      const int64_t key = due - 1 - static_cast<int64_t>(i);
      EXPECT_EQ(piece[i], Timer(kCount - key, key, name(key)));
    }
    EXPECT_LT(store->memory_bytes() - before, int64_t{80} << 20);
  }
}

TEST(Timers, AreRefusedWhatTheyCannotBe) {
  auto store = MakeStore();
  ExpectError(store->Timers(1).status(), Code::kInvalidRequest, "from 32768 on");
  ExpectError(store->ValueState(0x8000, Int64()).status(), Code::kInvalidRequest, "from 32768 on");
  const auto fails = [](const auto& call, const std::string& part) {
    auto failing = MakeStore();
    TimerTable* timers = Value(failing->Timers(kId));
    ExpectOk(failing->Begin(1));
    ExpectError(call(timers), Code::kInvalidRequest, part);
    ExpectError(failing->TakeDelta().status(), Code::kInvalidRequest, "the batch must be aborted");
  };
  fails([](TimerTable* t) { return t->Register(Keys({1, 2}), Ints({1, std::nullopt}), NoNames(2)); },
        "times has a null in row 1");
  fails([](TimerTable* t) { return t->Delete(Keys({1}), Ints({1}), Strings({std::nullopt})); },
        "namespaces has a null in row 0");
  fails([](TimerTable* t) { return t->Register(Keys({1}), Ints({1, 2}), NoNames(1)); }, "times has 2 rows, expected 1");
  fails([](TimerTable* t) { return t->TakeDue(1, 0).status(); }, "limit: expected at least 1, found 0");
  TimerTable* timers = Value(store->Timers(kId));
  ExpectError(timers->Register(Keys({1}), Ints({1}), NoNames(1)), Code::kInvalidRequest, "within a batch only");
}

TEST(Timers, OfABaseThatLiesAreCorrupt) {
  auto writer = MakeStore();
  Entries entries;
  ExpectOk(writer->Begin(1));
  Register(Value(writer->Timers(kId)), {1}, {10});
  TakeAll(writer.get(), &entries);
  auto truncated = entries;
  const std::string key = entries.begin()->first;
  truncated = {{key.substr(0, key.size() - 3), entries.begin()->second}};
  const auto open = [](Entries of) {
    auto store = MakeStore();
    ExpectOk(store->SetBase(std::make_shared<MapBase>(std::move(of)), 1));
    ExpectOk(store->Begin(2));
    return store;
  };
  ExpectError(Value(open(truncated)->Timers(kId))->TakeDue(100, 10).status(), Code::kCorrupt,
              "a stored timer cannot be read");
  ExpectError(Value(open({{key.substr(0, 6), "\x01"}})->Timers(kId))->NextDue().status(), Code::kCorrupt,
              "state 32768");
  ExpectError(Value(open({{key, "\x02"}})->Timers(kId))->NextDue().status(), Code::kIncompatible, "schema version 2");
}

TEST(Timers, OfABaseThatIsTornAreNotLeftOutForALaterOneOfTheOverlay) {
  auto writer = MakeStore();
  Entries entries;
  ExpectOk(writer->Begin(1));
  Register(Value(writer->Timers(kId)), {7, 7, 7}, {10, 20, 30});  // of one key group, in this order
  TakeAll(writer.get(), &entries);
  const std::vector<Timer> all = {{10, 7, ""}, {20, 7, ""}, {30, 7, ""}, {1000, 7, ""}};
  for (const auto& [torn_key, value] : entries) {
    const auto base = std::make_shared<MapBase>(entries);
    base->torn_key = torn_key;
    Entries next = entries;
    auto store = MakeStore();
    TimerTable* timers = Value(store->Timers(kId));
    ExpectOk(store->SetBase(base, 1));
    ExpectOk(store->Begin(2));
    Register(timers, {7}, {1000});
    TakeAll(store.get(), &next);
    ExpectOk(store->Commit());
    ExpectError(timers->List(Keys({7})).status(), Code::kCorrupt, "torn");
    const bool at_first = torn_key == entries.begin()->first;
    if (at_first) ExpectError(timers->NextDue().status(), Code::kCorrupt, "torn");
    // What failed has left no first keys behind that a base that is whole would be asked from.
    ExpectOk(store->SetBase(std::make_shared<MapBase>(next), 2));
    EXPECT_EQ(Value(timers->NextDue()), 10);
    EXPECT_EQ(TimersByKey(timers->List(Keys({7})), {7}), std::vector<std::vector<Timer>>{all});
    const auto torn = std::make_shared<MapBase>(next);
    torn->torn_key = torn_key;
    ExpectOk(store->SetBase(torn, 2));
    ExpectOk(store->Begin(3));
    ExpectError(timers->TakeDue(100, 10).status(), Code::kCorrupt, "torn");
    ExpectError(store->TakeDelta().status(), Code::kCorrupt, "the batch must be aborted");
  }
}

}  // namespace
}  // namespace holdfast::testing
