// States whose values have had several schemas: what is read from a base or a delta is of the newest, and so is what is
// written, whatever kind of state and backend.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "codec/value_header.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

Type Int32() { return Primitive(TypeId::kInt32, 4); }

ValueSchemas FromInt32() { return {{Int32()}, Int64(), {}}; }

// What a program with 32-bit integers leaves: a value, a sum, a list with a null, a map with one.
Entries Written() {
  const auto store = MakeStore();
  ExpectOk(store->Begin(1));
  const OwnedArray numbers = Fixed<int32_t>(Int32(), {-7, 8});
  const OwnedArray some = Fixed<int32_t>(Int32(), {-1, std::nullopt});
  ExpectOk(Value(store->ValueState(1, Int32()))->Put(Keys({1, 2}), numbers));
  ExpectOk(Value(store->ReducingState(2, Int32(), "sum"))->AddOnly(Keys({1, 1}), numbers));
  ExpectOk(Value(store->ListState(3, Int32()))->Append(Keys({1, 1}), some));
  ExpectOk(Value(store->MapState(4, String(), Int32()))->Put(Keys({1, 1}), Strings({"a", "b"}), some));
  Entries entries;
  FoldInto(Value(store->TakeDelta()), &entries);
  return entries;
}

void SetSchemas(Store* store) {
  for (const int64_t id : {1, 2, 3, 4}) ExpectOk(store->SetSchemas(id, FromInt32()));
}

std::vector<std::optional<int64_t>> ElementsOf(Result<OwnedArray> lists) {
  const Read read(std::move(lists));
  return FixedOf<int64_t>(read->child(0), 0, read->List(read->length() - 1).end);
}

using Found = std::vector<std::optional<int64_t>>;

void ExpectRead(Store* store) {
  EXPECT_EQ(IntsOf(Value(store->ValueState(1, Int64()))->Get(Keys({1, 2, 3}))), (Found{-7, 8, {}}));
  EXPECT_EQ(IntsOf(Value(store->ReducingState(2, Int64(), "sum"))->Get(Keys({1}))), (Found{1}));
  EXPECT_EQ(ElementsOf(Value(store->ListState(3, Int64()))->Get(Keys({1}))), (Found{-1, {}}));
  EXPECT_EQ(MapsOf(Value(store->MapState(4, String(), Int64()))->Entries(Keys({1})))[0],
            (StringMap{{"a", -1}, {"b", {}}}));
}

TEST(Schemas, ValuesOfABaseAreReadAsTheNewest) {
  for (const bool complete : {false, true}) {
    const auto store = MakeStore(complete);
    SetSchemas(store.get());
    const auto base = std::make_shared<MapBase>(Written());
    ExpectOk(store->SetBase(complete ? nullptr : base, 1));
    if (complete) ExpectOk(store->Load(base));
    ExpectRead(store.get());
  }
}

TEST(Schemas, ValuesOfADeltaAreReadAsTheNewest) {
  const auto writer = MakeStore();
  ExpectOk(writer->Begin(1));
  ExpectOk(Value(writer->ValueState(1, Int32()))->Put(Keys({1}), Fixed<int32_t>(Int32(), {-7})));
  const OwnedArray delta = Value(writer->TakeDelta());
  const auto store = MakeStore();
  SetSchemas(store.get());
  ExpectOk(store->ApplyDelta(delta, 1));
  EXPECT_EQ(IntsOf(Value(store->ValueState(1, Int64()))->Get(Keys({1}))), (Found{-7}));
}

TEST(Schemas, WhatIsWrittenBearsTheNewestVersionAndWhatIsNotChangedIsNotWritten) {
  for (const int64_t stamp_ms : {0, 1'700'000'000}) {
    const auto store = MakeStore();
    SetSchemas(store.get());
    Entries entries = Written();
    ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
    ExpectOk(store->Begin(2));
    if (stamp_ms > 0) {
      for (const int64_t id : {2, 3})
        ExpectOk(store->SetExpiry(id, {.expiry = {}, .stamps = true, .stamp_ms = stamp_ms}));
    }
    ExpectOk(Value(store->ReducingState(2, Int64(), "sum"))->AddOnly(Keys({1}), Ints({int64_t{1} << 40})));
    ExpectOk(Value(store->ListState(3, Int64()))->Append(Keys({2, 2}), Ints({5, std::nullopt})));
    Entries changed;
    FoldInto(Value(store->TakeDelta()), &changed);
    EXPECT_EQ(changed.size(), 3U);
    for (const auto& [key, value] : changed) {
      EXPECT_EQ(value_header::VersionOf(value), 2) << key;
      EXPECT_EQ(value_header::IsStamped(value), stamp_ms > 0);
      entries[key] = value;
    }
    const auto later = MakeStore();
    SetSchemas(later.get());
    ExpectOk(later->SetBase(std::make_shared<MapBase>(entries), 2));
    EXPECT_EQ(IntsOf(Value(later->ReducingState(2, Int64(), "sum"))->Get(Keys({1}))), (Found{(int64_t{1} << 40) + 1}));
    EXPECT_EQ(ElementsOf(Value(later->ListState(3, Int64()))->Get(Keys({1, 2}))), (Found{-1, {}, 5, {}}));
  }
}

TEST(Schemas, WhoeverDoesNotKnowTheNewestRefusesIt) {
  Entries entries = Written();
  for (auto& [key, value] : entries) value[0] = static_cast<char>(value[0] + 1);
  const auto expect = [&](Store* store) {
    ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
    ExpectError(Value(store->ValueState(1, Int64()))->Get(Keys({1})).status(), Code::kIncompatible,
                "schema version 2, expected 1 to 1");
  };
  expect(MakeStore().get());
  for (auto& [key, value] : entries) value[0] = static_cast<char>(value[0] + 1);
  const auto store = MakeStore();
  SetSchemas(store.get());
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  ExpectError(Value(store->ValueState(1, Int64()))->Get(Keys({1})).status(), Code::kIncompatible,
              "schema version 3, expected 1 to 2");
}

TEST(Schemas, ARowThatDoesNotParseIsCorruptAndPoisonsTheBatch) {
  Entries entries = Written();
  for (auto& [key, value] : entries) value.pop_back();
  const auto store = MakeStore();
  SetSchemas(store.get());
  ExpectOk(store->SetBase(std::make_shared<MapBase>(entries), 1));
  ExpectOk(store->Begin(2));
  ExpectError(Value(store->ValueState(1, Int64()))->Get(Keys({1})).status(), Code::kCorrupt,
              "a stored value of schema version 1 cannot be read");
  ExpectError(store->Check(), Code::kCorrupt, "schema version 1");
}

TEST(Schemas, AreSaidBeforeAnythingIsRead) {
  const auto store = MakeStore();
  ExpectOk(store->SetBase(std::make_shared<MapBase>(Written()), 1));
  ExpectError(store->SetSchemas(1, FromInt32()), Code::kInvalidRequest, "before anything is read");
  ExpectError(MakeStore()->SetSchemas(0x8000, FromInt32()), Code::kInvalidRequest, "timers");
  ExpectError(MakeStore()->SetSchemas(1, {{Int64()}, Int32(), {}}), Code::kInvalidRequest, "int64");
  ExpectError(MakeStore()->SetSchemas(1, {std::vector<Type>(63, Int64()), Int64(), {}}), Code::kInvalidRequest, "63");
}

}  // namespace
}  // namespace holdfast::testing
