#include "holdfast/key_codec.h"

#include <gtest/gtest.h>

#include <thread>

#include "codec/partition.h"
#include "codec/random_arrays.h"

namespace holdfast {
namespace {

using namespace testing_codec;  // NOLINT(google-build-using-namespace)

std::vector<Type> AllKeyTypes() {
  std::vector<Type> types = KeyTypes();
  const size_t primitives = types.size();
  for (size_t i = 0; i + 1 < primitives; ++i) types.push_back(StructOf({types[i], types[i + 1]}));
  types.push_back(StructOf({String(), StructOf({Fixed(TypeId::kInt32, 4), String()}), Fixed(TypeId::kDouble, 8)}));
  types.push_back(StructOf({StructOf({Fixed(TypeId::kInt32, 4)}), Fixed(TypeId::kBool, 1)}));
  return types;
}

KeyCodec MakeCodec(const Type& type, bool allow_null) {
  auto codec = KeyCodec::Make(type, allow_null);
  EXPECT_TRUE(codec.ok()) << codec.status().message();
  return std::move(codec).value();
}

// A key column of structs is never null as a whole.
OwnedArray RandomKeys(const Type& type, int64_t rows, bool nulls, Random& random) {
  Type top = type;
  top.nullable = type.id != TypeId::kStruct;
  return RandomArray(top, rows, {.nulls = nulls, .max_elements = 4}, random);
}

ByteColumn Encoded(const KeyCodec& codec, const OwnedArray& keys) {
  ByteColumn encoded;
  const Status status = codec.Encode(keys.schema(), keys.array(), &encoded);
  EXPECT_TRUE(status.ok()) << status.message();
  return encoded;
}

std::vector<Slice> Slices(const ByteColumn& column) {
  std::vector<Slice> slices;
  for (int64_t i = 0; i < column.size(); ++i) slices.push_back(column[i]);
  return slices;
}

class KeyCodecTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(NullKeys, KeyCodecTest, ::testing::Bool());

TEST_P(KeyCodecTest, BytesAreOrderedAsTheKeysAre) {
  Random random(1);
  for (const Type& type : AllKeyTypes()) {
    const KeyCodec codec = MakeCodec(type, GetParam());
    const OwnedArray keys = RandomKeys(type, 120, GetParam(), random);
    const ArrayView view = View(type, keys);
    const ByteColumn encoded = Encoded(codec, keys);
    for (int64_t i = 0; i < encoded.size(); ++i) {
      for (int64_t j = 0; j < encoded.size(); ++j) {
        const int expected = Compare(view, i, view, j);
        const int found = encoded[i].compare(encoded[j]);
        ASSERT_EQ(expected < 0, found < 0) << type.ToString() << " rows " << i << ", " << j;
        ASSERT_EQ(expected == 0, found == 0) << type.ToString() << " rows " << i << ", " << j;
      }
    }
  }
}

TEST_P(KeyCodecTest, NoKeyIsAPrefixOfAnother) {
  Random random(2);
  for (const Type& type : AllKeyTypes()) {
    const ByteColumn encoded = Encoded(MakeCodec(type, GetParam()), RandomKeys(type, 120, GetParam(), random));
    for (int64_t i = 0; i < encoded.size(); ++i) {
      ASSERT_FALSE(encoded[i].empty());
      for (int64_t j = 0; j < encoded.size(); ++j) {
        ASSERT_TRUE(encoded[i] == encoded[j] || !encoded[j].starts_with(encoded[i])) << type.ToString();
      }
    }
  }
}

TEST_P(KeyCodecTest, DecodesToTheSameKeys) {
  Random random(3);
  for (const Type& type : AllKeyTypes()) {
    const KeyCodec codec = MakeCodec(type, GetParam());
    const OwnedArray keys = RandomKeys(type, 3000, GetParam(), random);
    const ByteColumn encoded = Encoded(codec, keys);
    auto decoded = codec.Decode(Slices(encoded));
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    const ArrayView before = View(type, keys);
    const ArrayView after = View(type, decoded.value());
    ASSERT_EQ(after.length(), before.length());
    // Compare, not Equal: -0.0 comes back as 0.0 and every NaN as one.
    for (int64_t i = 0; i < before.length(); ++i) ASSERT_EQ(Compare(before, i, after, i), 0) << type.ToString();
    const ByteColumn again = Encoded(codec, decoded.value());
    ASSERT_EQ(again.bytes, encoded.bytes);
    ASSERT_EQ(again.offsets, encoded.offsets);
  }
}

TEST_P(KeyCodecTest, KnowsItsLengthWhateverFollows) {
  Random random(4);
  for (const Type& type : AllKeyTypes()) {
    const KeyCodec codec = MakeCodec(type, GetParam());
    const ByteColumn encoded = Encoded(codec, RandomKeys(type, 50, GetParam(), random));
    for (int64_t i = 0; i < encoded.size(); ++i) {
      const std::string followed = std::string(encoded[i]) + std::string("\xFF\x00\x01z", 4);
      const auto length = codec.EncodedLength(followed);
      ASSERT_TRUE(length.ok()) << length.status().message();
      ASSERT_EQ(length.value(), encoded[i].size());
    }
  }
}

TEST_P(KeyCodecTest, TornAndForgedKeysAreCorrupt) {
  Random random(5);
  for (const Type& type : AllKeyTypes()) {
    const KeyCodec codec = MakeCodec(type, GetParam());
    const ByteColumn encoded = Encoded(codec, RandomKeys(type, 50, GetParam(), random));
    for (int64_t i = 0; i < encoded.size(); ++i) {
      for (size_t cut = 0; cut < encoded[i].size(); ++cut) {
        // A copy of its own, so that the sanitizer sees a read past its end.
        const std::vector<char> torn(encoded[i].begin(), encoded[i].begin() + static_cast<int64_t>(cut));
        const Slice slice(torn.data(), torn.size());
        const auto decoded = codec.Decode(std::span(&slice, 1));
        ASSERT_EQ(decoded.status().code(), Code::kCorrupt);
        ASSERT_EQ(codec.EncodedLength(slice).status().code(), Code::kCorrupt);
      }
      const std::string longer = std::string(encoded[i]) + "x";
      const Slice slice(longer);
      ASSERT_EQ(codec.Decode(std::span(&slice, 1)).status().code(), Code::kCorrupt);
    }
    for (int round = 0; round < 2000; ++round) {
      std::vector<char> noise(random() % 24);
      for (char& byte : noise) byte = static_cast<char>(random() % 3 == 0 ? random() : random() % 2);
      const Slice slice(noise.data(), noise.size());
      auto decoded = codec.Decode(std::span(&slice, 1));
      if (!decoded.ok()) {
        ASSERT_EQ(decoded.status().code(), Code::kCorrupt);
        continue;
      }
      // What parses is what the encoder writes for it, and nothing else.
      ASSERT_EQ(Encoded(codec, decoded.value())[0], slice) << type.ToString();
    }
  }
}

TEST(KeyCodec, WritesTheBytesOfTheFormat) {
  const Type type = StructOf({Fixed(TypeId::kInt16, 2), String()});
  ArrayBuilder builder(type);
  const int16_t number = -2;
  builder.child(0).AppendFixed(reinterpret_cast<const char*>(&number));
  builder.child(1).AppendBytes(Slice("a\0b", 3));
  builder.AppendStruct();
  const auto keys = builder.Finish();
  EXPECT_EQ(Encoded(MakeCodec(type, false), keys.value())[0], Slice("\x7F\xFE"
                                                                    "a\0\xFF"
                                                                    "b\0\1",
                                                                    8));
  EXPECT_EQ(Encoded(MakeCodec(type, true), keys.value())[0], Slice("\1\x7F\xFE\1"
                                                                   "a\0\xFF"
                                                                   "b\0\1",
                                                                   10));
}

TEST(KeyCodec, AppendsToWhatIsThere) {
  Random random(6);
  const Type type = String();
  const KeyCodec codec = MakeCodec(type, false);
  const OwnedArray first = RandomArray(type, 2500, {.nulls = false}, random);
  const OwnedArray second = RandomArray(type, 7, {.nulls = false}, random);
  ByteColumn both = Encoded(codec, first);
  ASSERT_TRUE(codec.Encode(second.schema(), second.array(), &both).ok());
  const ByteColumn alone = Encoded(codec, second);
  ASSERT_EQ(both.size(), 2507);
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(both[2500 + i], alone[i]);
}

TEST(KeyCodec, OneColumnMayComeAlone) {
  Random random(7);
  const Type column = String();
  const Type type = StructOf({column});
  const KeyCodec codec = MakeCodec(type, false);
  const OwnedArray alone = RandomArray(column, 10, {.nulls = false}, random);
  const ByteColumn encoded = Encoded(codec, alone);
  auto decoded = codec.Decode(Slices(encoded));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(Encoded(codec, decoded.value()).bytes, encoded.bytes);
}

TEST(KeyCodec, IsSharedByThreads) {
  Random random(10);
  const Type type = StructOf({String(), Fixed(TypeId::kDouble, 8)});
  const KeyCodec codec = MakeCodec(type, true);
  const OwnedArray keys = RandomKeys(type, 5000, true, random);
  const ByteColumn expected = Encoded(codec, keys);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const ByteColumn encoded = Encoded(codec, keys);
      EXPECT_EQ(encoded.bytes, expected.bytes);
      EXPECT_TRUE(codec.Decode(Slices(encoded)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(KeyCodec, RefusesANullKeyByColumnAndRow) {
  const Type type = StructOf({Fixed(TypeId::kInt64, 8), StructOf({String()})});
  ArrayBuilder builder(type);
  for (int i = 0; i < 3; ++i) {
    builder.child(0).AppendFixed("12345678");
    if (i == 2) {
      builder.child(1).child(0).AppendNull();
    } else {
      builder.child(1).child(0).AppendBytes("x");
    }
    builder.child(1).AppendStruct();
    builder.AppendStruct();
  }
  const auto keys = builder.Finish();
  ByteColumn out;
  const Status status = MakeCodec(type, false).Encode(keys.value().schema(), keys.value().array(), &out);
  EXPECT_EQ(status.code(), Code::kInvalidRequest);
  EXPECT_NE(status.message().find("'b.a'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("row 2"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("null_keys=True"), std::string::npos) << status.message();
  EXPECT_TRUE(MakeCodec(type, true).Encode(keys.value().schema(), keys.value().array(), &out).ok());
}

TEST(KeyCodec, RefusesTypesWithoutAnOrder) {
  const Type bad[] = {Fixed(TypeId::kNull, 0), ListOf(String()), MapOf(String(), String()), StructOf({}),
                      Fixed(TypeId::kFixedSizeBinary, 0)};
  for (const Type& type : bad) {
    EXPECT_EQ(KeyCodec::Make(type, false).status().code(), Code::kInvalidRequest) << type.ToString();
    const auto nested = KeyCodec::Make(StructOf({String(), type}), true);
    EXPECT_EQ(nested.status().code(), Code::kInvalidRequest) << type.ToString();
    EXPECT_NE(nested.status().message().find("'b'"), std::string::npos) << nested.status().message();
  }
}

TEST(KeyCodec, AnotherTypeIsIncompatible) {
  Random random(8);
  const OwnedArray numbers = RandomArray(Fixed(TypeId::kInt32, 4), 3, {.nulls = false}, random);
  ByteColumn out;
  const Status status = MakeCodec(StructOf({String()}), false).Encode(numbers.schema(), numbers.array(), &out);
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("int32"), std::string::npos) << status.message();
}

TEST(Slots, OwnContiguousRangesOfKeyGroups) {
  for (const int32_t groups : {1, 2, 7, 128, 1000, 32768}) {
    for (const int32_t slots : {1, 2, 3, 7, 100, 128, 999, 32768}) {
      if (slots > groups) continue;
      for (int32_t group = 0; group < groups; ++group) {
        const int32_t slot = SlotOf(group, groups, slots);
        ASSERT_GE(group, FirstKeyGroup(slot, groups, slots));
        ASSERT_LT(group, FirstKeyGroup(slot + 1, groups, slots));
      }
      ASSERT_EQ(FirstKeyGroup(0, groups, slots), 0);
      ASSERT_EQ(FirstKeyGroup(slots, groups, slots), groups);
    }
  }
}

TEST(Partition, GroupsRowsBySlotInTheirOrder) {
  Random random(9);
  const Type type = StructOf({String(), Fixed(TypeId::kInt8, 1)});
  const KeyCodec codec = MakeCodec(type, true);
  for (const int64_t rows : {0, 1, 2047, 2049, 5000}) {
    const OwnedArray keys = RandomKeys(type, rows, true, random);
    const ByteColumn encoded = Encoded(codec, keys);
    for (const int32_t groups : {1, 100, 128, 32768}) {
      const int32_t slots = groups / 3 + 1;
      auto found = PartitionBySlot(codec, keys.schema(), keys.array(), groups, slots);
      ASSERT_TRUE(found.ok()) << found.status().message();
      std::vector<int32_t> order;
      std::vector<int64_t> offsets = {0};
      for (int32_t slot = 0; slot < slots; ++slot) {
        for (int64_t i = 0; i < rows; ++i) {
          const uint16_t group = KeyGroup(Xxh64(encoded[i].data(), encoded[i].size()), groups);
          if (SlotOf(group, groups, slots) == slot) order.push_back(static_cast<int32_t>(i));
        }
        offsets.push_back(static_cast<int64_t>(order.size()));
        if (slots > 200 && slot == 200) break;  // the naive way takes too long for all of them
      }
      found.value().order.resize(order.size());
      EXPECT_EQ(found.value().order, order);
      found.value().offsets.resize(offsets.size());
      EXPECT_EQ(found.value().offsets, offsets);
    }
  }
}

TEST(Partition, RefusesImpossibleSlots) {
  EXPECT_EQ(CheckSlots(0, 1).code(), Code::kInvalidRequest);
  EXPECT_EQ(CheckSlots(kMaxParallelismLimit + 1, 1).code(), Code::kInvalidRequest);
  EXPECT_EQ(CheckSlots(4, 5).code(), Code::kInvalidRequest);
  EXPECT_EQ(CheckSlots(4, 0).code(), Code::kInvalidRequest);
  EXPECT_TRUE(CheckSlots(4, 4).ok());
}

}  // namespace
}  // namespace holdfast
