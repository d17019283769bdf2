// States of the slot that belong to no key: lists and maps under an id of their own (overlay/layout.h).
#include <gtest/gtest.h>

#include "overlay/layout.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

constexpr uint16_t kMapId = layout::kFirstOperatorId;
constexpr uint16_t kListId = layout::kFirstOperatorId + 1;

OwnedArray NoKeys(int64_t rows) {
  ArrayBuilder builder(Primitive(TypeId::kNull, 0));
  for (int64_t i = 0; i < rows; ++i) builder.AppendNull();
  return Value(builder.Finish());
}

std::unique_ptr<Store> SlotOf(int32_t first, int32_t end, bool complete) {
  return Value(Store::Make(
      KeyType(), {.max_parallelism = 64, .first_key_group = first, .end_key_group = end, .complete = complete}));
}

StringMap MapOf(Store* store) {
  return MapsOf(Value(store->MapState(kMapId, String(), Int64()))->Entries(NoKeys(1)))[0];
}
StringList ListOf(Store* store) { return ListsOf(Value(store->ListState(kListId, String()))->Get(NoKeys(1)))[0]; }

class OperatorStates : public ::testing::TestWithParam<bool> {};

TEST_P(OperatorStates, OutliveDeltasBasesAndEvictions) {
  const bool complete = GetParam();
  auto store = SlotOf(16, 32, complete);
  Entries base;
  std::vector<OwnedArray> deltas;
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    ExpectOk(store->Begin(sequence));
    MapTable* map = Value(store->MapState(kMapId, String(), Int64()));
    ListTable* list = Value(store->ListState(kListId, String()));
    ExpectOk(map->Put(NoKeys(2), Strings({"both", "of " + std::to_string(sequence)}), Ints({sequence, {}})));
    ExpectOk(map->Remove(NoKeys(1), Strings({"of " + std::to_string(sequence - 1)})));
    if (sequence == 3) ExpectOk(list->Clear(NoKeys(1)));
    ExpectOk(list->Append(NoKeys(2), Strings({"a" + std::to_string(sequence), {}})));
    EXPECT_EQ(IntsOf(map->Get(NoKeys(2), Strings({"none", "both"}))),
              (std::vector<std::optional<int64_t>>{std::nullopt, sequence}));
    deltas.push_back(Value(store->TakeDelta()));
    FoldInto(deltas.back(), &base);
    ExpectOk(store->Commit());
  }
  const StringMap map = {{"both", 3}, {"of 3", std::nullopt}};
  const StringList list = {"a3", std::nullopt};
  auto later = SlotOf(16, 32, complete);
  for (int64_t i = 0; i < 3; ++i) ExpectOk(later->ApplyDelta(deltas[static_cast<size_t>(i)], i + 1));
  auto folded = SlotOf(16, 32, complete);
  const auto reader = std::make_shared<MapBase>(base);
  if (complete) ExpectOk(folded->Load(reader));
  ExpectOk(folded->SetBase(reader, 3));
  for (Store* one : {store.get(), later.get(), folded.get()}) {
    EXPECT_EQ(MapOf(one), map);
    EXPECT_EQ(ListOf(one), list);
    ExpectOk(one->EvictClean());
    EXPECT_EQ(MapOf(one), map);
    EXPECT_EQ(ListOf(one), list);
  }
}

TEST_P(OperatorStates, AreTheSameBytesInEverySlotAndOfNoKeyGroup) {  // so that a rescale may copy them as they are
  Entries first, second;
  for (const auto& [begin, entries] : {std::pair{0, &first}, std::pair{32, &second}}) {
    auto store = SlotOf(begin, begin + 32, GetParam());
    ExpectOk(store->Begin(5));
    ExpectOk(Value(store->MapState(kMapId, String(), Int64()))->Put(NoKeys(1), Strings({"rule"}), Ints({7})));
    FoldInto(Value(store->TakeDelta()), entries);
  }
  EXPECT_EQ(first, second);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(store_key::KeyGroup(first.begin()->first), layout::kNoKeyGroup);
}

TEST_P(OperatorStates, ThatLieAreCorrupt) {
  Entries entries;
  auto writer = SlotOf(0, 64, false);
  ExpectOk(writer->Begin(1));
  ExpectOk(Value(writer->ValueState(1, Int64()))->Put(Keys({1}), Ints({7})));
  ExpectOk(Value(writer->MapState(kMapId, String(), Int64()))->Put(NoKeys(1), Strings({"rule"}), Ints({7})));
  FoldInto(Value(writer->TakeDelta()), &entries);
  const std::string keyed = entries.begin()->first;
  const std::string of_no_key = entries.rbegin()->first;
  const auto restored = [](const std::string& key) {
    auto store = SlotOf(0, 64, /*complete=*/true);
    ExpectOk(store->SetBase(nullptr, 0));
    return store->Load(std::make_shared<MapBase>(Entries{{key, std::string("\1\7\0\0\0\0\0\0\0", 9)}}));
  };
  ExpectOk(restored(keyed));
  ExpectOk(restored(of_no_key));
  const std::string rest = of_no_key.substr(4);
  const char* const reason = "operator states, and nothing else, are of key group 65535";
  ExpectError(restored(store_key::Make(layout::kNoKeyGroup, 1, keyed.substr(4))), Code::kCorrupt, reason);
  ExpectError(restored(store_key::Make(layout::kNoKeyGroup, 0x8000, "12345678" + keyed.substr(4))), Code::kCorrupt,
              reason);
  ExpectError(restored(store_key::Make(3, kMapId, rest)), Code::kCorrupt, reason);
  ExpectError(restored(store_key::Make(layout::kNoKeyGroup, kMapId, {})), Code::kCorrupt, "without an element");
}

TEST_P(OperatorStates, TakeNoKeysAndAreListsAndMapsOnly) {
  auto store = SlotOf(0, 64, GetParam());
  ExpectError(store->ValueState(kMapId, Int64()).status(), Code::kInvalidRequest, "those are lists and maps");
  ExpectError(store->ReducingState(kMapId, Int64(), "sum").status(), Code::kInvalidRequest, "those are lists and maps");
  ExpectError(store->Timers(kMapId).status(), Code::kInvalidRequest, "ids of timers");
  MapTable* map = Value(store->MapState(kMapId, String(), Int64()));
  ExpectError(map->Get(Keys({1}), Strings({"a"})).status(), Code::kIncompatible, "expected an array of null");
  ExpectError(map->Get(NoKeys(2), Strings({"a"})).status(), Code::kInvalidRequest, "map_keys has 1 rows, expected 2");
  MapTable* keyed = Value(store->MapState(1, String(), Int64()));
  EXPECT_FALSE(keyed->Get(NoKeys(1), Strings({"a"})).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, OperatorStates, ::testing::Bool(),
                         [](const auto& backend) { return backend.param ? "Complete" : "OverABase"; });

}  // namespace
}  // namespace holdfast::testing
