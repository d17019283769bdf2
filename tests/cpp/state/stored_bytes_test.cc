// The bytes of version 1, as docs/formats/value.md gives them. These never change: a store written today is read by
// every later version.
#include <gtest/gtest.h>

#include <tuple>

#include "codec/value_header.h"
#include "overlay/layout.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

std::string Hex(Slice bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<uint8_t>(c) >> 4];
    text += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

// "store key value" of each entry that one batch of sequence 5 leaves, in the store's order.
class StoredBytes : public ::testing::Test {
 protected:
  StoredBytes() : store_(Value(Store::Make(KeyType(), {.max_parallelism = 128, .end_key_group = 128}))) {
    ExpectOk(store_->Begin(5));
  }
  std::vector<std::string> Entries() {
    testing::Entries entries;
    FoldInto(Value(store_->TakeDelta()), &entries);
    std::vector<std::string> lines;
    for (const auto& [key, value] : entries) lines.push_back(Hex(key) + " " + Hex(value));
    return lines;
  }
  std::unique_ptr<Store> store_;
};

using Lines = std::vector<std::string>;

TEST_F(StoredBytes, Lists) {
  ExpectOk(Value(store_->ListState(3, String()))->Append(Keys({1, 1}), Strings({"hi", std::nullopt})));
  EXPECT_EQ(Entries(), (Lines{"004f00038000000000000001"
                              "00000005"
                              "00000000 01026869",
                              "004f00038000000000000001"
                              "00000005"
                              "00000001 41"}));
}

TEST_F(StoredBytes, Stamped) {
  constexpr int64_t kStamp = 1'700'000'000'000;
  ListTable* const lists = Value(store_->ListState(3, String()));
  ExpectOk(store_->SetExpiry(3, {.expiry = {}, .stamps = true, .stamp_ms = kStamp}));
  ExpectOk(lists->Append(Keys({1, 1}), Strings({"hi", std::nullopt})));
  ReducingTable* const sums = Value(store_->ReducingState(4, Int64(), "sum"));
  ExpectOk(sums->AddOnly(Keys({1}), Ints({1})));
  ExpectOk(store_->SetExpiry(4, {.expiry = {kStamp - 1, 0}, .stamps = true, .stamp_ms = kStamp}));
  ExpectOk(sums->AddOnly(Keys({1}), Ints({2})));  // what had no stamp was expired
  EXPECT_EQ(Entries(), (Lines{"004f00038000000000000001"
                              "00000005"
                              "00000000 810000018bcfe56800026869",
                              "004f00038000000000000001"
                              "00000005"
                              "00000001 c10000018bcfe56800",
                              "004f00048000000000000001 810000018bcfe568000200000000000000"}));
  ExpectError(store_->SetExpiry(4, {.expiry = {kStamp - 2, 0}}), Code::kInvalidRequest, "cutoff");
  ExpectError(store_->SetExpiry(4, {.expiry = {kStamp, 0}, .stamps = true, .stamp_ms = kStamp}), Code::kInvalidRequest,
              "stamp above it");
}

TEST_F(StoredBytes, Values) {
  ExpectOk(Value(store_->ValueState(258, Int64()))->Put(Keys({1}), Ints({258})));
  EXPECT_EQ(Entries(), Lines{"004f01028000000000000001 010201000000000000"});
}

TEST_F(StoredBytes, Maps) {
  ExpectOk(Value(store_->MapState(2, String(), Int64()))->Put(Keys({1, 1}), Strings({"b", "a"}), Ints({1, {}})));
  EXPECT_EQ(Entries(),
            (Lines{"004f00028000000000000001610001 41", "004f00028000000000000001620001 010100000000000000"}));
}

TEST_F(StoredBytes, Timers) {
  ExpectOk(Value(store_->Timers(0x8002))->Register(Keys({1, 1}), Ints({258, -1}), Strings({"", "at"})));
  EXPECT_EQ(Entries(),
            (Lines{"004f80027fffffffffffffff80000000000000016174 01", "004f800280000000000001028000000000000001 01"}));
}

TEST_F(StoredBytes, OperatorStates) {  // of no key: key group 65535, and the suffix at once
  ArrayBuilder builder(Primitive(TypeId::kNull, 0));
  builder.AppendNull();
  const OwnedArray no_key = Value(builder.Finish());
  ExpectOk(Value(store_->MapState(0x4000, String(), Int64()))->Put(no_key, Strings({"a"}), Ints({1})));
  ExpectOk(Value(store_->ListState(0x7fff, Int64()))->Append(no_key, Ints({2})));
  EXPECT_EQ(Entries(), (Lines{"ffff4000610001 010100000000000000",
                              "ffff7fff00000005"
                              "00000000 010200000000000000"}));
}

TEST_F(StoredBytes, TheTableOfLayoutsIsThatOfTheFormat) {
  using layout::Kind;
  using layout::Suffix;
  const std::vector<layout::Layout> layouts(layout::kLayouts.begin(), layout::kLayouts.end());
  const std::vector<std::tuple<Kind, std::string, size_t, Suffix>> expected = {
      {Kind::kValue, "value state", 0, Suffix::kNone},
      {Kind::kReducing, "reducing state", 0, Suffix::kNone},
      {Kind::kAggregating, "aggregating state", 0, Suffix::kNone},
      {Kind::kList, "list state", 0, Suffix::kListIndex},
      {Kind::kMap, "map state", 0, Suffix::kMapKey},
      {Kind::kTimers, "timers", 8, Suffix::kNamespace},
  };
  ASSERT_EQ(layouts.size(), expected.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const layout::Layout& found = layouts[i];
    EXPECT_EQ(std::tuple(found.kind, std::string(found.name), found.before_key_bytes, found.suffix), expected[i]);
    EXPECT_EQ(&layout::Of(found.kind), &layout::kLayouts[i]);
  }
  EXPECT_EQ(layout::BeforeKeyBytes(0x7FFF), 0U);
  EXPECT_EQ(layout::BeforeKeyBytes(0x8000), 8U);
  EXPECT_FALSE(layout::IsOperatorId(0x3FFF));
  EXPECT_TRUE(layout::IsOperatorId(0x4000));
  EXPECT_TRUE(layout::IsOperatorId(0x7FFF));
  EXPECT_FALSE(layout::IsOperatorId(0x8000));
  EXPECT_EQ(layout::kNoKeyGroup, 0xFFFF);
  EXPECT_EQ(value_header::kBytes, 1U);
  EXPECT_EQ(value_header::kStampBytes, 8U);
}

TEST_F(StoredBytes, Accumulators) {
  const OwnedArray keys = Keys({1, 1});
  const OwnedArray values = Ints({2, 4});
  ExpectOk(Value(store_->ReducingState(0, Int64(), "sum"))->AddOnly(keys, values));
  ExpectOk(Value(store_->AggregatingState(1, Int64(), "count"))->AddOnly(keys, values));
  ExpectOk(Value(store_->AggregatingState(2, Int64(), "avg"))->AddOnly(keys, values));
  ExpectOk(Value(store_->AggregatingState(3, Int64(), "stddev"))->AddOnly(keys, values));
  EXPECT_EQ(Entries(),
            (Lines{"004f00008000000000000001 010600000000000000", "004f00018000000000000001 010200000000000000",
                   "004f00028000000000000001 010000000000000018400200000000000000",
                   "004f00038000000000000001 0100020000000000000000000000000008400000000000000040"}));
}

}  // namespace
}  // namespace holdfast::testing
