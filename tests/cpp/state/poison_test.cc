// A call that fails half-way: nothing of its batch can be prepared, whoever catches the error.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A Store in its first batch, one call of which failed.
void ExpectPoisoned(Store* store, Code code, const std::string& call, const std::string& reason) {
  for (const std::string& part : {std::string("the batch must be aborted"), call, reason}) {
    ExpectError(store->Check(), code, part);
    ExpectError(store->TakeDelta().status(), code, part);
    ExpectError(store->Commit(), code, part);
    ExpectError(store->SetBase(nullptr, 1), code, part);
    ExpectError(store->Begin(2), code, part);
    ExpectError(store->EvictClean(), code, part);
    ExpectError(store->Reset(), code, part);
  }
}

TEST(Poison, ACaughtOverflowInRowThreeOfFiveLeavesNothingToPrepare) {
  auto store = MakeStore();
  FoldTable* sums = Value(store->ReducingState(4, Int64(), "sum"));
  ExpectOk(store->Begin(1));
  ExpectOk(sums->AddOnly(Keys({3}), Ints({kMost})));
  ExpectError(sums->AddOnly(Keys({1, 2, 3, 4, 5}), Ints({1, 1, 1, 1, 1})), Code::kInvalidRequest, "row 2, key 3");
  ExpectPoisoned(store.get(), Code::kInvalidRequest, "add_only() of state 4", "row 2, key 3: the sum does not fit");
  ExpectError(sums->Get(Keys({1})).status(), Code::kInvalidRequest, "add_only() of state 4");
  ExpectError(sums->AddOnly(Keys({1}), Ints({1})), Code::kInvalidRequest, "add_only() of state 4");
}

TEST(Poison, EveryKindOfStateHasIt) {
  const auto poisoned_by = [](const auto& change) {
    auto store = MakeStore();
    ExpectOk(store->Begin(1));
    const Status failed = change(store.get());
    EXPECT_FALSE(failed.ok());
    const Status refused = store->TakeDelta().status();
    EXPECT_EQ(refused.code(), failed.code());
    EXPECT_NE(refused.message().find(failed.message()), std::string::npos) << refused.message();
    return refused.message();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text;
  };
  has(poisoned_by([](Store* s) { return Value(s->ValueState(1, Int64()))->Put(Keys({1}), Ints({1, 2})); }), "put()");
  has(poisoned_by([](Store* s) { return Value(s->ValueState(1, Int64()))->Clear(Strings({"a"})); }), "clear()");
  has(poisoned_by([](Store* s) { return Value(s->ListState(1, Int64()))->Append(Keys({1}), Strings({"a"})); }),
      "append()");
  has(poisoned_by([](Store* s) { return Value(s->ListState(1, Int64()))->Clear(Strings({"a"})); }), "clear()");
  has(poisoned_by([](Store* s) {
        return Value(s->MapState(1, String(), Int64()))->Put(Keys({1}), Strings({std::nullopt}), Ints({1}));
      }),
      "put()");
  has(poisoned_by([](Store* s) { return Value(s->MapState(1, String(), Int64()))->Remove(Keys({1}), Strings({})); }),
      "remove()");
  has(poisoned_by([](Store* s) {
        return Value(s->AggregatingState(1, Int64(), "avg"))->Add(Keys({1}), Strings({"a"})).status();
      }),
      "add()");
}

TEST(Poison, AFailedReadOfWhatIsStoredEndsTheBatchThatCaughtIt) {
  auto base = std::make_shared<MapBase>(Entries{});
  auto store = MakeStore();
  ExpectOk(store->SetBase(base, 1));
  ValueTable* values = Value(store->ValueState(0, Int64()));
  base->fails = true;
  ExpectError(values->Get(Keys({1})).status(), Code::kCorrupt, "torn");
  ExpectOk(store->Check());  // no batch has missed anything
  ExpectOk(store->Begin(2));
  ExpectError(values->Get(Keys({1})).status(), Code::kCorrupt, "torn");
  base->fails = false;
  ExpectError(values->Get(Keys({1})).status(), Code::kCorrupt, "get() of state 0");
  ExpectError(store->TakeDelta().status(), Code::kCorrupt, "torn");
}

TEST(Poison, ARequestThatChangesNothingLeavesTheBatchAlone) {
  auto store = Value(Store::Make(KeyType(), {.max_parallelism = 64, .first_key_group = 3, .end_key_group = 4}));
  ValueTable* values = Value(store->ValueState(0, Int64()));
  ExpectError(values->Put(Keys({1}), Ints({1})), Code::kInvalidRequest, "begin");
  ExpectError(store->Commit(), Code::kInvalidRequest, "begin");
  ExpectOk(store->Begin(1));
  ExpectError(store->Begin(2), Code::kInvalidRequest, "in progress");
  ExpectError(values->Get(Keys({1, 2, 3, 4})).status(), Code::kInvalidRequest, "this slot has key groups");
  ExpectError(store->ReducingState(0, Int64(), "sum").status(), Code::kIncompatible, "value state");
  ExpectOk(store->Check());
  ExpectOk(store->TakeDelta().status());
  ExpectOk(store->Commit());
}

TEST(Poison, HalfADeltaIsNoVersion) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, Int64()))->Put(Keys({1, 2}), Ints({10, 20})));
  const OwnedArray delta = Value(first->TakeDelta());
  // The same keys are of other key groups where there are fewer of them.
  auto store = Value(Store::Make(KeyType(), {.max_parallelism = 7, .first_key_group = 0, .end_key_group = 7}));
  ExpectError(store->ApplyDelta(delta, 1), Code::kCorrupt, "key group");
  ExpectError(store->Begin(2), Code::kCorrupt, "apply_delta()");
  ExpectError(store->Check(), Code::kCorrupt, "key group");
}

TEST(Poison, AWriteThatMetAnotherThreadIsMissedByTheBatch) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, Int64()));
  ExpectOk(store->Begin(1));
  std::vector<int64_t> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::atomic<int> refused = 0;
  const auto work = [&] {
    const OwnedArray array = Keys(keys);
    for (int i = 0; i < 200 && refused == 0; ++i) {
      if (!table->Put(array, array).ok()) ++refused;
    }
  };
  std::thread thread(work);
  work();
  thread.join();
  if (refused == 0) GTEST_SKIP() << "the threads never met";
  ExpectError(store->TakeDelta().status(), Code::kInvalidRequest, "in use by another thread");
}

TEST(Store, AnyThreadMayAskForFiguresWhileAnotherWorks) {
  auto store = MakeStore();
  FoldTable* sums = Value(store->ReducingState(0, Int64(), "sum"));
  ExpectOk(store->Begin(1));
  std::atomic<bool> done = false;
  std::thread asks([&] {
    while (!done) {
      EXPECT_GT(store->memory_bytes(), 0);
      EXPECT_GE(store->pending_bytes(), 0);
      EXPECT_GE(store->dirty_bytes(), 0);
      EXPECT_EQ(store->Counters().at("base_reads"), 0);
      EXPECT_GE(store->sequence(), 0);
    }
  });
  for (int64_t i = 0; i < 2000; ++i) ExpectOk(sums->AddOnly(Keys({i, i + 1}), Ints({1, 1})));
  ExpectOk(store->TakeDelta().status());
  ExpectOk(store->Commit());
  done = true;
  asks.join();
  EXPECT_EQ(store->Counters().at("entries"), 2001);
}

}  // namespace
}  // namespace holdfast::testing
