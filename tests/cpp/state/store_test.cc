// What a caller of Store notices: batches, deltas, bases, errors.
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

using OptionalInts = std::vector<std::optional<int64_t>>;

std::vector<std::pair<std::string, std::optional<std::string>>> Rows(const OwnedArray& delta) {
  const DeltaView view = Value(DeltaView::Make(delta));
  std::vector<std::pair<std::string, std::optional<std::string>>> rows;
  for (int64_t i = 0; i < view.length(); ++i) {
    rows.emplace_back(view.key(i), view.has_value(i) ? std::optional<std::string>(view.value(i)) : std::nullopt);
  }
  return rows;
}

TEST(Store, ADeltaHasEachChangedKeyOnceInTheOrderOfItsFirstChange) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(3, Int64()));
  ExpectOk(store->Begin(1));
  ExpectOk(table->Put(Keys({7, 5, 7, 9}), Ints({1, 2, 3, std::nullopt})));
  const OwnedArray delta = Value(store->TakeDelta());
  const auto rows = Rows(delta);
  ASSERT_EQ(rows.size(), 3U);
  using namespace std::string_literals;
  EXPECT_EQ(rows[0].first, "\x80\0\0\0\0\0\0\7"s);
  EXPECT_EQ(rows[0].second, "\1\3\0\0\0\0\0\0\0"s);
  EXPECT_EQ(rows[1].second, "\1\2\0\0\0\0\0\0\0"s);
  EXPECT_EQ(rows[2].second, std::nullopt) << "nobody knew that key 9 was absent";
  EXPECT_EQ(Value(DeltaView::Make(delta)).state_id(0), 3);
  ExpectOk(store->Commit());
  EXPECT_EQ(store->sequence(), 1);
}

TEST(Store, ADeltaPastItsLimitComesInPieces) {  // one that Arrow cannot hold could be built and never stored
  auto store = MakeStore(/*complete=*/false, /*delta_bytes_max=*/100);
  ValueTable* values = Value(store->ValueState(0, String()));
  ListTable* lists = Value(store->ListState(1, Int64()));
  ExpectOk(store->Begin(1));
  ExpectOk(values->Put(Keys({1, 2, 3, 4}), Strings({std::string(60, 'a'), std::string(60, 'b'), "c", {}})));
  ExpectOk(values->Put(Keys({5}), Strings({std::string(300, 'e')})));
  ExpectOk(lists->Append(Keys({6}), Ints({6})));
  std::vector<int64_t> pieces;
  auto other = MakeStore();
  for (bool changed_again = false; store->dirty_bytes() > 0;) {
    ExpectError(store->Commit(), Code::kInvalidRequest, "take_delta()");
    const OwnedArray piece = Value(store->TakeDelta());
    pieces.push_back(piece.length());
    ExpectOk(other->ApplyDelta(piece, 1));
    if (std::exchange(changed_again, true)) continue;
    ExpectOk(values->Put(Keys({1, 2}), Strings({"again", "b"})));  // one that was taken, one that was not
  }
  EXPECT_EQ(pieces, (std::vector<int64_t>{1, 3, 1, 2}));
  ExpectOk(store->Commit());
  for (Store* one : {store.get(), other.get()}) {
    EXPECT_EQ(StringsOf(Value(one->ValueState(0, String()))->Get(Keys({1, 2, 3, 4, 5}))),
              (std::vector<std::optional<std::string>>{"again", "b", "c", std::nullopt, std::string(300, 'e')}));
  }
  ExpectError(Store::Make(KeyType(), {.max_parallelism = 1, .end_key_group = 1, .delta_bytes_max = 0}).status(),
              Code::kInvalidRequest, "delta_bytes_max");
}

TEST(Store, AKeyKnownToBeAbsentAndAbsentAgainIsNotInTheDelta) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, Int64()));
  ExpectOk(store->Begin(1));
  EXPECT_EQ(IntsOf(table->Get(Keys({1}))), OptionalInts{std::nullopt});
  ExpectOk(table->Put(Keys({1}), Ints({5})));
  ExpectOk(table->Clear(Keys({1})));
  EXPECT_EQ(Value(store->TakeDelta()).length(), 0);
  ExpectOk(table->Put(Keys({1}), Ints({5})));
  EXPECT_EQ(Value(store->TakeDelta()).length(), 1);
  ExpectOk(table->Clear(Keys({1})));
  EXPECT_EQ(Value(store->TakeDelta()).length(), 1) << "the delta before has the key";
  ExpectOk(store->Commit());
}

TEST(Store, CommitNeedsTheDelta) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, Int64()));
  ExpectError(table->Put(Keys({1}), Ints({1})), Code::kInvalidRequest, "begin");
  ExpectError(store->Commit(), Code::kInvalidRequest, "begin");
  ExpectOk(store->Begin(1));
  ExpectOk(table->Put(Keys({1}), Ints({1})));
  EXPECT_GT(store->dirty_bytes(), 0);
  ExpectError(store->Commit(), Code::kInvalidRequest, "take_delta");
  ExpectError(store->Reset(), Code::kInvalidRequest, "take_delta");
  EXPECT_EQ(Value(store->TakeDelta()).length(), 1);
  EXPECT_EQ(store->dirty_bytes(), 0);
  ExpectOk(store->Commit());
  EXPECT_GT(store->pending_bytes(), 0);
}

TEST(Store, BlindWritesReadNothingAndReadsAskOnce) {
  Entries entries;
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, Int64()))->Put(Keys({1, 2, 3}), Ints({10, 20, 30})));
  ExpectOk(Value(first->ListState(1, String()))->Append(Keys({1, 1}), Strings({"a", "b"})));
  FoldInto(Value(first->TakeDelta()), &entries);

  auto base = std::make_shared<MapBase>(entries);
  auto store = MakeStore();
  ExpectOk(store->SetBase(base, 1));
  EXPECT_EQ(store->sequence(), 1);
  ValueTable* values = Value(store->ValueState(0, Int64()));
  ListTable* lists = Value(store->ListState(1, String()));
  MapTable* maps = Value(store->MapState(2, String(), Int64()));
  ExpectOk(store->Begin(2));
  ExpectOk(values->Put(Keys({1, 4}), Ints({11, 40})));
  ExpectOk(values->Clear(Keys({2})));
  ExpectOk(lists->Append(Keys({1}), Strings({"c"})));
  ExpectOk(maps->Put(Keys({1}), Strings({"k"}), Ints({1})));
  ExpectOk(maps->Remove(Keys({1}), Strings({"l"})));
  EXPECT_EQ(base->multi_gets + base->scans, 0);

  EXPECT_EQ(IntsOf(values->Get(Keys({1, 2, 3, 4, 5, 5, 3}))),
            (OptionalInts{11, std::nullopt, 30, 40, std::nullopt, std::nullopt, 30}));
  EXPECT_EQ(base->multi_gets, 1);
  EXPECT_EQ(base->keys_read, 2U) << "only keys 3 and 5 were not known";
  EXPECT_EQ(BoolsOf(values->Contains(Keys({3, 5}))), (std::vector<bool>{true, false}));
  EXPECT_EQ(base->multi_gets, 1);
  EXPECT_EQ(ListsOf(lists->Get(Keys({1, 2, 1}))), (std::vector<StringList>{{"a", "b", "c"}, {}, {"a", "b", "c"}}));
  EXPECT_EQ(base->scans, 2);
  EXPECT_EQ(ListsOf(lists->Get(Keys({1, 2}))), (std::vector<StringList>{{"a", "b", "c"}, {}}));
  EXPECT_EQ(base->scans, 2) << "loaded lists are not scanned again";
}

TEST(Store, ACompleteStoreNeverReadsAfterLoad) {
  Entries entries;
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, Int64()))->Put(Keys({1, 2}), Ints({10, 20})));
  ExpectOk(Value(first->MapState(1, String(), Int64()))->Put(Keys({1, 1}), Strings({"b", "a"}), Ints({1, 2})));
  FoldInto(Value(first->TakeDelta()), &entries);
  auto base = std::make_shared<MapBase>(entries);
  auto store = MakeStore(/*complete=*/true);
  ExpectOk(store->SetBase(base, 1));
  ValueTable* values = Value(store->ValueState(0, Int64()));
  ExpectError(values->Get(Keys({1})).status(), Code::kInvalidRequest, "load()");
  ExpectOk(store->Load(base));
  const int scans = base->scans;
  EXPECT_EQ(IntsOf(values->Get(Keys({1, 2, 3}))), (OptionalInts{10, 20, std::nullopt}));
  EXPECT_EQ(MapsOf(Value(store->MapState(1, String(), Int64()))->Entries(Keys({1, 2}))),
            (std::vector<StringMap>{{{"a", 2}, {"b", 1}}, {}}));
  ExpectOk(store->EvictClean());
  EXPECT_EQ(IntsOf(values->Get(Keys({1, 2, 3}))), (OptionalInts{10, 20, std::nullopt}));
  EXPECT_EQ(base->scans, scans);
  EXPECT_EQ(base->multi_gets, 0);
}

TEST(Store, ACompleteStoreForgetsKeysThatAreLongGone) {
  auto store = MakeStore(/*complete=*/true);
  ValueTable* values = Value(store->ValueState(0, Int64()));
  MapTable* maps = Value(store->MapState(1, Int64(), Int64()));
  std::vector<int64_t> many(10000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i);
  ExpectOk(store->Begin(1));
  ExpectOk(values->Put(Keys(many), Keys(many)));
  ExpectOk(maps->Put(Keys(many), Keys(many), Keys(many)));
  ExpectOk(store->TakeDelta().status());
  ExpectOk(store->Commit());
  ExpectOk(store->Begin(2));
  ExpectOk(values->Clear(Keys(many)));
  ExpectOk(maps->Clear(Keys(many)));
  ExpectOk(values->Put(Keys({3}), Ints({30})));
  ExpectOk(maps->Put(Keys({3}), Ints({4}), Ints({40})));
  EXPECT_EQ(Value(store->TakeDelta()).length(), 20001);
  EXPECT_EQ(store->Counters().at("entries"), 20001) << "the batch may change them again";
  ExpectOk(store->Commit());
  EXPECT_EQ(store->Counters().at("entries"), 2);
  EXPECT_GT(store->pending_bytes(), 0);
  ExpectOk(store->SetBase(nullptr, 2));
  EXPECT_EQ(store->pending_bytes(), 0);
  EXPECT_EQ(store->Counters().at("entries"), 2);
  EXPECT_EQ(IntsOf(values->Get(Keys({3, 4}))), (OptionalInts{30, std::nullopt}));
  EXPECT_EQ(IntsOf(maps->Count(Keys({3, 4}))), (OptionalInts{1, 0}));
}

TEST(Store, EvictionOfManyPendingKeysKeepsThemAll) {  // took minutes: their new index grew in the order of hashes
  auto store = MakeStore();
  ValueTable* values = Value(store->ValueState(0, Int64()));
  std::vector<int64_t> many(600000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i);
  ExpectOk(store->Begin(1));
  ExpectOk(values->Put(Keys(many), Keys(many)));
  ExpectOk(store->EvictClean());
  EXPECT_EQ(store->Counters().at("entries"), 600000);
  EXPECT_EQ(IntsOf(values->Get(Keys({0, 599999, 600000}))), (OptionalInts{0, 599999, std::nullopt}));
}

TEST(Store, LoadMayComeBeforeSetBase) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, Int64()))->Put(Keys({1}), Ints({10})));
  Entries entries;
  FoldInto(Value(first->TakeDelta()), &entries);
  auto base = std::make_shared<MapBase>(entries);
  auto store = MakeStore(/*complete=*/true);
  ExpectOk(store->Load(base));
  ExpectOk(store->SetBase(base, 7));
  EXPECT_EQ(store->sequence(), 7);
  EXPECT_EQ(IntsOf(Value(store->ValueState(0, Int64()))->Get(Keys({1}))), OptionalInts{10});
}

TEST(Store, ARefusedDeclarationSaysWhatWasDeclared) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, Int64()));
  EXPECT_EQ(Value(store->ValueState(0, Int64())), table);
  ExpectError(store->ValueState(0, String()).status(), Code::kIncompatible, "value state of int64");
  ExpectError(store->ReducingState(0, Int64(), "sum").status(), Code::kIncompatible, "value state of int64");
  ExpectError(store->ValueState(65536, Int64()).status(), Code::kInvalidRequest, "65535");
  ExpectError(store->ReducingState(1, String(), "sum").status(), Code::kInvalidRequest, "sum");
  ExpectError(store->AggregatingState(1, Decimal(10, 2), "avg").status(), Code::kInvalidRequest, "double");
  Value(store->ReducingState(1, Int64(), "sum"));
  ExpectError(store->ReducingState(1, Int64(), "max").status(), Code::kIncompatible, "(sum)");
}

TEST(Store, KeysOfOtherSlotsAreRefused) {
  auto store = Value(Store::Make(KeyType(), {.max_parallelism = 64, .first_key_group = 3, .end_key_group = 4}));
  ValueTable* table = Value(store->ValueState(0, Int64()));
  const Status status = table->Get(Keys({1, 2, 3, 4})).status();
  ExpectError(status, Code::kInvalidRequest, "this slot has key groups 3 to 3");
  ExpectError(status, Code::kInvalidRequest, "row 0: key 1 is of key group");
  ExpectError(table->Get(Ints({std::nullopt})).status(), Code::kInvalidRequest, "null");
  ExpectError(Store::Make(KeyType(), {.max_parallelism = 64, .first_key_group = 4, .end_key_group = 4}).status(),
              Code::kInvalidRequest, "end_key_group");
}

TEST(Store, ArgumentsOfUnequalLengthsAreRefused) {
  const auto refused = [](const auto& change) {
    auto store = MakeStore();
    ExpectOk(store->Begin(1));
    return change(store.get());
  };
  ExpectError(refused([](Store* s) { return Value(s->ValueState(0, Int64()))->Put(Keys({1}), Ints({1, 2})); }),
              Code::kInvalidRequest, "values");
  ExpectError(
      refused([](Store* s) { return Value(s->MapState(1, String(), Int64()))->Remove(Keys({1, 2}), Strings({"a"})); }),
      Code::kInvalidRequest, "map_keys");
  ExpectError(refused([](Store* s) { return Value(s->ValueState(0, Int64()))->Put(Strings({"a"}), Ints({1})); }),
              Code::kIncompatible, "string");
}

TEST(Store, DeltasReachStatesThatAreDeclaredLater) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, Int64()))->Put(Keys({1, 2}), Ints({10, 20})));
  ExpectOk(Value(first->ListState(1, String()))->Append(Keys({1, 2}), Strings({"a", std::nullopt})));
  ExpectOk(Value(first->MapState(2, String(), Int64()))->Put(Keys({1, 1}), Strings({"y", "x"}), Ints({1, {}})));
  const OwnedArray delta = Value(first->TakeDelta());
  auto store = MakeStore();
  ExpectOk(store->ApplyDelta(delta, 1));
  EXPECT_EQ(store->sequence(), 1);
  ExpectError(store->ApplyDelta(delta, 0), Code::kInvalidRequest, "does not follow");
  ExpectError(store->ListState(0, Int64()).status(), Code::kIncompatible, "single value");
  ExpectError(store->ValueState(1, Int64()).status(), Code::kIncompatible, "list or map");
  EXPECT_EQ(IntsOf(Value(store->ValueState(0, Int64()))->Get(Keys({2, 1}))), (OptionalInts{20, 10}));
  EXPECT_EQ(ListsOf(Value(store->ListState(1, String()))->Get(Keys({1, 2}))),
            (std::vector<StringList>{{"a"}, {std::nullopt}}));
  EXPECT_EQ(MapsOf(Value(store->MapState(2, String(), Int64()))->Entries(Keys({1}))),
            (std::vector<StringMap>{{{"x", std::nullopt}, {"y", 1}}}));
}

TEST(Store, WhatCannotBeReadNamesStateAndKeyGroup) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(9, Int64()))->Put(Keys({1}), Ints({10})));
  Entries good;
  FoldInto(Value(first->TakeDelta()), &good);
  const std::string place = "state 9, key group " + std::to_string(store_key::KeyGroup(good.begin()->first));
  const auto status_with = [&](std::string value) {
    Entries entries = good;
    entries.begin()->second = std::move(value);
    auto store = MakeStore();
    ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
    return Value(store->ValueState(9, Int64()))->Get(Keys({1})).status();
  };
  const std::string row = good.begin()->second.substr(1);
  ExpectOk(status_with("\x01" + row));
  ExpectError(status_with(""), Code::kCorrupt, place);
  ExpectError(status_with("\x02" + row), Code::kIncompatible, place);
  ExpectOk(status_with("\x81" + std::string(8, '\0') + row));
  ExpectError(status_with("\x81" + std::string(7, '\0')), Code::kCorrupt, "stamp");
  ExpectError(status_with("\xC1" + std::string(8, '\0') + row), Code::kCorrupt, place);
  ExpectError(status_with("\x82" + std::string(8, '\0') + row), Code::kIncompatible, place);
  ExpectError(status_with("\x41" + row), Code::kCorrupt, place);
  ExpectError(status_with("\x01" + row.substr(1)), Code::kCorrupt, place);
}

TEST(Store, AFailedReadIsReportedAndNothingIsCached) {
  auto base = std::make_shared<MapBase>(Entries{});
  auto store = MakeStore();
  ExpectOk(store->SetBase(base, 1));
  ValueTable* table = Value(store->ValueState(0, Int64()));
  base->fails = true;
  ExpectError(table->Get(Keys({1})).status(), Code::kCorrupt, "torn");
  ListTable* lists = Value(store->ListState(1, Int64()));
  ExpectError(lists->Get(Keys({1})).status(), Code::kCorrupt, "torn");
  base->fails = false;
  EXPECT_EQ(IntsOf(table->Get(Keys({1}))), OptionalInts{std::nullopt});
  EXPECT_EQ(base->multi_gets, 2);
}

TEST(Store, AScanThatComesToATornBlockIsNotTheEndOfWhatIsThere) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ListState(0, String()))->Append(Keys({1, 1, 1}), Strings({"a", "b", "c"})));
  ExpectOk(Value(first->MapState(1, Int64(), Int64()))->Put(Keys({1, 1, 1}), Keys({1, 2, 3}), Ints({1, 2, 3})));
  Entries entries;
  FoldInto(Value(first->TakeDelta()), &entries);
  ASSERT_EQ(entries.size(), 6U);
  for (const auto& [torn_key, value] : entries) {
    const bool in_list = store_key::StateId(torn_key) == 0;
    const auto base = std::make_shared<MapBase>(entries);
    base->torn_key = torn_key;
    const auto open = [&base](bool complete) {
      auto store = MakeStore(complete);
      ExpectOk(store->SetBase(base, 1));
      return store;
    };
    auto store = open(/*complete=*/false);
    ListTable* lists = Value(store->ListState(0, String()));
    MapTable* maps = Value(store->MapState(1, Int64(), Int64()));
    if (in_list) {
      ExpectError(lists->Get(Keys({1})).status(), Code::kCorrupt, "torn");
      EXPECT_EQ(IntsOf(maps->Count(Keys({1}))), OptionalInts{3});
    } else {
      ExpectError(maps->Entries(Keys({1})).status(), Code::kCorrupt, "torn");
      ExpectError(maps->Count(Keys({1})).status(), Code::kCorrupt, "torn");
      EXPECT_EQ(ListsOf(lists->Get(Keys({1}))), (std::vector<StringList>{{"a", "b", "c"}}));
    }
    ExpectOk(store->Begin(2));
    ExpectError(in_list ? lists->Clear(Keys({1})) : maps->Clear(Keys({1})), Code::kCorrupt, "torn");
    ExpectError(store->TakeDelta().status(), Code::kCorrupt, "the batch must be aborted");
    ExpectError(open(/*complete=*/true)->Load(base), Code::kCorrupt, "torn");
  }
}

TEST(Store, ASpillInTheMiddleOfABatch) {
  Entries entries;
  auto store = MakeStore();
  FoldTable* sums = Value(store->ReducingState(0, Int64(), "sum"));
  ListTable* lists = Value(store->ListState(1, String()));
  ExpectOk(store->Begin(1));
  ExpectOk(sums->AddOnly(Keys({1, 2}), Ints({1, 2})));
  ExpectOk(lists->Append(Keys({1}), Strings({"a"})));
  const OwnedArray piece = Value(store->TakeDelta());
  FoldInto(piece, &entries);
  ExpectOk(store->Reset());
  ExpectError(sums->Get(Keys({1})).status(), Code::kInvalidRequest, "set_base");
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  ExpectOk(sums->AddOnly(Keys({1}), Ints({10})));
  ExpectOk(lists->Append(Keys({1}), Strings({"b"})));
  const OwnedArray rest = Value(store->TakeDelta());
  EXPECT_EQ(rest.length(), 2);
  ExpectOk(store->Commit());
  EXPECT_GT(store->pending_bytes(), 0);
  ExpectOk(store->EvictClean());
  EXPECT_EQ(IntsOf(sums->Get(Keys({1, 2}))), (OptionalInts{11, 2}));
  EXPECT_EQ(ListsOf(lists->Get(Keys({1}))), (std::vector<StringList>{{"a", "b"}}));

  auto other = MakeStore();
  ExpectOk(other->ApplyDelta(piece, 1));
  ExpectOk(other->ApplyDelta(rest, 1));
  EXPECT_EQ(IntsOf(Value(other->ReducingState(0, Int64(), "sum"))->Get(Keys({1, 2}))), (OptionalInts{11, 2}));
}

TEST(Store, DistinctKeysByFirstAppearance) {
  auto store = MakeStore();
  Store::Distinct distinct = Value(store->DistinctKeys(Keys({5, 7, 5, 5, 9, 7})));
  const Read codes(std::move(distinct.codes));
  const Read rows(std::move(distinct.rows));
  using Codes = std::vector<std::optional<int32_t>>;
  EXPECT_EQ(FixedOf<int32_t>(*codes, 0, codes->length()), (Codes{0, 1, 0, 0, 2, 1}));
  EXPECT_EQ(FixedOf<int32_t>(*rows, 0, rows->length()), (Codes{0, 1, 4}));
  EXPECT_EQ(store->Counters().at("entries"), 0);
}

TEST(Store, TwoThreadsAreNoticed) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, Int64()));
  ExpectOk(store->Begin(1));
  std::vector<int64_t> keys(2000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::atomic<int> refused = 0;
  std::atomic<int> other = 0;
  const auto work = [&] {
    const OwnedArray array = Keys(keys);
    for (int i = 0; i < 200; ++i) {
      const Status status = table->Put(array, array);
      if (status.ok()) continue;
      ++(status.code() == Code::kInvalidRequest ? refused : other);
    }
  };
  std::thread thread(work);
  work();
  thread.join();
  EXPECT_EQ(other, 0);
  if (refused == 0) {
    EXPECT_EQ(IntsOf(table->Get(Keys({1999}))), OptionalInts{1999});
  }
}

TEST(Store, MemoryIsGivenBack) {
  auto store = MakeStore();
  ValueTable* table = Value(store->ValueState(0, String()));
  ExpectOk(store->Begin(1));
  const int64_t empty = store->memory_bytes();
  std::vector<int64_t> keys;
  std::vector<std::optional<std::string>> values;
  for (int64_t i = 0; i < 1000; ++i) {
    keys.push_back(i);
    values.push_back(std::string(1000, 'x'));
  }
  ExpectOk(table->Put(Keys(keys), Strings(values)));
  const int64_t full = store->memory_bytes();
  EXPECT_GT(full, 1000 * 1000);
  EXPECT_LT(store->pending_bytes(), full);
  EXPECT_GE(store->pending_bytes(), 1000 * 1000);
  for (int round = 0; round < 20; ++round) {
    for (auto& value : values) value->resize(round % 2 == 0 ? 500 : 1000);
    ExpectOk(table->Put(Keys(keys), Strings(values)));
  }
  EXPECT_LT(store->memory_bytes(), full * 3) << "rewritten values reuse memory";
  Entries entries;
  FoldInto(Value(store->TakeDelta()), &entries);
  ExpectOk(store->Commit());
  ExpectOk(store->EvictClean());
  EXPECT_GT(store->memory_bytes(), 1000 * 1000) << "pending values stay";
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  EXPECT_EQ(store->pending_bytes(), 0);
  ExpectOk(store->EvictClean());
  EXPECT_LT(store->memory_bytes(), empty + 10000);
}

}  // namespace
}  // namespace holdfast::testing
