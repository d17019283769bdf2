// Reducing and aggregating states: what each function gives, row by row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

using OptionalInts = std::vector<std::optional<int64_t>>;
using OptionalDoubles = std::vector<std::optional<double>>;
__extension__ typedef __int128 Int128;

class Folds : public ::testing::Test {
 protected:
  Folds() { StartAnew(); }
  // With an empty store: a call that failed poisons the one that it was made on.
  void StartAnew() {
    store_ = MakeStore();
    next_id_ = 0;
    ExpectOk(store_->Begin(1));
  }
  FoldTable* Reducing(const Type& type, const std::string& function) {
    return Value(store_->ReducingState(next_id_++, type, function));
  }
  FoldTable* Aggregating(const Type& type, const std::string& function) {
    return Value(store_->AggregatingState(next_id_++, type, function));
  }
  std::unique_ptr<Store> store_;
  int64_t next_id_ = 0;
};

TEST_F(Folds, EachRowSeesTheRowsBeforeIt) {
  FoldTable* sum = Reducing(Int64(), "sum");
  EXPECT_EQ(IntsOf(sum->Add(Keys({1, 2, 1, 1, 3}), Ints({1, 10, 2, std::nullopt, std::nullopt}))),
            (OptionalInts{1, 10, 3, 3, std::nullopt}));
  ExpectOk(sum->AddOnly(Keys({1, 2}), Ints({4, 5})));
  EXPECT_EQ(IntsOf(sum->Get(Keys({2, 1, 3}))), (OptionalInts{15, 7, std::nullopt}));
  ExpectOk(sum->Clear(Keys({1})));
  EXPECT_EQ(IntsOf(sum->Add(Keys({1}), Ints({5}))), OptionalInts{5});
}

TEST_F(Folds, Functions) {
  const OwnedArray keys = Keys({1, 1, 1, 1});
  const auto run = [&](const char* function) {
    return IntsOf(Reducing(Int64(), function)->Add(keys, Ints({3, -2, 5, -7})));
  };
  EXPECT_EQ(run("sum"), (OptionalInts{3, 1, 6, -1}));
  EXPECT_EQ(run("product"), (OptionalInts{3, -6, -30, 210}));
  EXPECT_EQ(run("min"), (OptionalInts{3, -2, -2, -7}));
  EXPECT_EQ(run("max"), (OptionalInts{3, 3, 5, 5}));
  EXPECT_EQ(run("first"), (OptionalInts{3, 3, 3, 3}));
  EXPECT_EQ(run("last"), (OptionalInts{3, -2, 5, -7}));
}

TEST_F(Folds, IntegersNeverWrap) {
  const int64_t max = std::numeric_limits<int64_t>::max();
  ExpectError(Reducing(Int64(), "sum")->Add(Keys({4, 4}), Ints({max, 1})).status(), Code::kInvalidRequest,
              "row 1, key 4: the sum does not fit into int64");
  StartAnew();
  ExpectError(Reducing(Int64(), "product")->AddOnly(Keys({4, 4}), Ints({max, 2})), Code::kInvalidRequest, "product");
  StartAnew();
  const Type small = Primitive(TypeId::kInt8, 1);
  FoldTable* sum = Reducing(small, "sum");
  ExpectError(sum->AddOnly(Keys({1, 1}), Fixed<int8_t>(small, {100, 100})), Code::kInvalidRequest, "int8");
  StartAnew();
  const Type unsigned_type = Primitive(TypeId::kUInt64, 8);
  ExpectOk(Reducing(unsigned_type, "sum")
               ->AddOnly(Keys({1, 1}), Fixed<uint64_t>(unsigned_type, {uint64_t{1} << 63, (uint64_t{1} << 63) - 1})));
}

TEST_F(Folds, DecimalsKeepTheirPrecision) {
  const Type type = Decimal(3, 1);
  FoldTable* sum = Reducing(type, "sum");
  const Read after(sum->Add(Keys({1, 1}), Fixed<Int128>(type, {Int128{999}, Int128{-10}})));
  EXPECT_EQ(after->Value<Int128>(1), Int128{989});
  ExpectError(sum->AddOnly(Keys({1}), Fixed<Int128>(type, {Int128{11}})), Code::kInvalidRequest, "decimal128(3, 1)");
  StartAnew();
  const Read least(Reducing(type, "min")->Add(Keys({1, 1}), Fixed<Int128>(type, {Int128{5}, Int128{-6}})));
  EXPECT_EQ(least->Value<Int128>(1), Int128{-6});
}

TEST_F(Folds, NanIsLargerThanAnything) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto least = DoublesOf(Reducing(Double(), "min")->Add(Keys({1, 1, 1, 1}), Doubles({nan, 2.0, nan, -1.0})));
  EXPECT_TRUE(std::isnan(*least[0]));
  EXPECT_EQ(least[1], 2.0);
  EXPECT_EQ(least[2], 2.0);
  EXPECT_EQ(least[3], -1.0);
  const auto most = DoublesOf(Reducing(Double(), "max")->Add(Keys({1, 1, 1}), Doubles({2.0, nan, 3.0})));
  EXPECT_EQ(most[0], 2.0);
  EXPECT_TRUE(std::isnan(*most[1]));
  EXPECT_TRUE(std::isnan(*most[2]));
}

TEST_F(Folds, StringsCompareByTheirBytes) {
  const OwnedArray keys = Keys({1, 1, 1, 1, 2});
  const std::string longer(200, 'm');
  const auto run = [&](const char* function) {
    return StringsOf(Reducing(String(), function)->Add(keys, Strings({"m", longer, "b", std::nullopt, std::nullopt})));
  };
  EXPECT_EQ(run("min"), (StringList{"m", "m", "b", "b", std::nullopt}));
  EXPECT_EQ(run("max"), (StringList{"m", longer, longer, longer, std::nullopt}));
  EXPECT_EQ(run("first"), (StringList{"m", "m", "m", "m", std::nullopt}));
  EXPECT_EQ(run("last"), (StringList{"m", longer, "b", "b", std::nullopt}));
}

TEST_F(Folds, Booleans) {
  const OwnedArray keys = Keys({1, 1, 1});
  const OwnedArray values = Fixed<uint8_t>(Bool(), {1, 0, 1});
  EXPECT_EQ(BoolsOf(Reducing(Bool(), "bool_and")->Add(keys, values)), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(BoolsOf(Reducing(Bool(), "bool_or")->Add(keys, values)), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(BoolsOf(Reducing(Bool(), "last")->Add(keys, values)), (std::vector<bool>{true, false, true}));
}

TEST_F(Folds, Aggregates) {
  const OwnedArray keys = Keys({1, 1, 1, 2, 1});
  const OwnedArray values = Ints({2, 4, 9, std::nullopt, std::nullopt});
  EXPECT_EQ(IntsOf(Aggregating(Int64(), "count")->Add(keys, values)), (OptionalInts{1, 2, 3, 0, 3}));
  EXPECT_EQ(DoublesOf(Aggregating(Int64(), "avg")->Add(keys, values)),
            (OptionalDoubles{2.0, 3.0, 5.0, std::nullopt, 5.0}));
  EXPECT_EQ(DoublesOf(Aggregating(Int64(), "variance")->Add(keys, values)),
            (OptionalDoubles{std::nullopt, 2.0, 13.0, std::nullopt, 13.0}));
  FoldTable* deviation = Aggregating(Int64(), "stddev");
  ExpectOk(deviation->AddOnly(keys, values));
  EXPECT_EQ(DoublesOf(deviation->Get(Keys({1, 2, 3}))), (OptionalDoubles{std::sqrt(13.0), std::nullopt, std::nullopt}));
  EXPECT_EQ(IntsOf(Aggregating(String(), "count")->Add(Keys({1, 1}), Strings({"a", std::nullopt}))),
            (OptionalInts{1, 1}));
}

TEST_F(Folds, AccumulatorsAreRows) {
  // docs/formats/value.md: readers decode accumulators with the row codec.
  Type mean = Primitive(TypeId::kStruct, 0);
  mean.children = {Primitive(TypeId::kDouble, 8, "sum"), Primitive(TypeId::kInt64, 8, "count")};
  ExpectOk(Aggregating(Int64(), "avg")->AddOnly(Keys({1, 1}), Ints({2, 5})));
  const OwnedArray delta = Value(store_->TakeDelta());
  auto store = MakeStore();
  ExpectOk(store->ApplyDelta(delta, 1));
  const Read row(Value(store->ValueState(0, mean))->Get(Keys({1})));
  EXPECT_EQ(row->child(0).Value<double>(0), 7.0);
  EXPECT_EQ(row->child(1).Value<int64_t>(0), 2);

  Type variance = Primitive(TypeId::kStruct, 0);
  variance.children = {Primitive(TypeId::kInt64, 8, "count"), Primitive(TypeId::kDouble, 8, "mean"),
                       Primitive(TypeId::kDouble, 8, "m2")};
  ExpectOk(Aggregating(Int64(), "variance")->AddOnly(Keys({1, 1}), Ints({2, 4})));
  auto other = MakeStore();
  ExpectOk(other->ApplyDelta(Value(store_->TakeDelta()), 1));
  const Read welford(Value(other->ValueState(1, variance))->Get(Keys({1})));
  EXPECT_EQ(welford->child(0).Value<int64_t>(0), 2);
  EXPECT_EQ(welford->child(1).Value<double>(0), 3.0);
  EXPECT_EQ(welford->child(2).Value<double>(0), 2.0);
}

TEST_F(Folds, AStoredAccumulatorOfAnotherWidthIsCorrupt) {
  auto first = MakeStore();
  ExpectOk(first->Begin(1));
  ExpectOk(Value(first->ValueState(0, String()))->Put(Keys({1}), Strings({"abc"})));
  auto store = MakeStore();
  ExpectOk(store->ApplyDelta(Value(first->TakeDelta()), 1));
  ExpectOk(store->Begin(2));
  FoldTable* sum = Value(store->ReducingState(0, Int64(), "sum"));
  ExpectError(sum->Add(Keys({1}), Ints({1})).status(), Code::kCorrupt, "state 0, key group");
  ExpectError(sum->Get(Keys({1})).status(), Code::kCorrupt, "state 0, key group");
}

}  // namespace
}  // namespace holdfast::testing
