#include "holdfast/row_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "codec/random_arrays.h"
#include "codec/row_format.h"

namespace holdfast {
namespace {

using namespace testing_codec;  // NOLINT(google-build-using-namespace)

RowCodec MakeCodec(const Type& type) {
  auto codec = RowCodec::Make(type);
  EXPECT_TRUE(codec.ok()) << codec.status().message();
  return std::move(codec).value();
}

// The rows, null ones absent: data() == nullptr.
std::vector<Slice> Slices(const ByteColumn& rows, const std::vector<bool>& nulls) {
  std::vector<Slice> slices;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const Slice row = rows[i].empty() ? Slice("") : rows[i];
    slices.push_back(nulls[static_cast<size_t>(i)] ? Slice() : row);
  }
  return slices;
}

void ExpectRoundTrip(const Type& type, const OwnedArray& values) {
  const RowCodec codec = MakeCodec(type);
  ByteColumn rows;
  std::vector<bool> nulls;
  const Status status = codec.Encode(values.schema(), values.array(), {}, &rows, &nulls);
  ASSERT_TRUE(status.ok()) << status.message();
  auto decoded = codec.Decode(Slices(rows, nulls));
  ASSERT_TRUE(decoded.ok()) << type.ToString() << ": " << decoded.status().message();
  const ArrayView before = View(type, values);
  const ArrayView after = View(type, decoded.value());
  ASSERT_EQ(after.length(), before.length());
  for (int64_t i = 0; i < before.length(); ++i) {
    ASSERT_EQ(nulls[static_cast<size_t>(i)], before.IsNull(i));
    ASSERT_TRUE(Equal(before, i, after, i)) << type.ToString() << " row " << i;
  }
}

TEST(RowCodec, DecodesToTheSameValues) {
  Random random(11);
  for (const Type& type : RowTypes()) {
    for (const bool nulls : {true, false}) {
      ExpectRoundTrip(type, RandomArray(type, 2500, {.nulls = nulls}, random));
      ExpectRoundTrip(type, RandomArray(type, 0, {.nulls = nulls}, random));
    }
  }
}

TEST(RowCodec, PrefixesEveryRowButNulls) {
  Random random(12);
  for (const Type& type : RowTypes()) {
    const RowCodec codec = MakeCodec(type);
    for (const bool with_nulls : {true, false}) {
      const OwnedArray values = RandomArray(type, 1500, {.nulls = with_nulls}, random);
      ByteColumn plain;
      ByteColumn prefixed;
      prefixed.bytes = {'o', 'l', 'd'};
      prefixed.offsets = {0, 3};
      std::vector<bool> nulls;
      ASSERT_TRUE(codec.Encode(values.schema(), values.array(), {}, &plain, &nulls).ok());
      ASSERT_TRUE(codec.Encode(values.schema(), values.array(), "pre", &prefixed, &nulls).ok());
      ASSERT_EQ(prefixed.size(), 1501);
      EXPECT_EQ(prefixed[0], "old");
      for (int64_t i = 0; i < plain.size(); ++i) {
        const bool null = nulls[static_cast<size_t>(i)];
        ASSERT_EQ(prefixed[i + 1], null ? "" : "pre" + std::string(plain[i])) << type.ToString() << " row " << i;
      }
    }
  }
}

TEST(RowCodec, FixedWidthIsTheWidthOfEveryRow) {
  Random random(13);
  for (const Type& type : RowTypes()) {
    const RowCodec codec = MakeCodec(type);
    if (codec.fixed_width() == 0) continue;
    const OwnedArray values = RandomArray(type, 20, {.nulls = false}, random);
    ByteColumn rows;
    std::vector<bool> nulls;
    ASSERT_TRUE(codec.Encode(values.schema(), values.array(), {}, &rows, &nulls).ok());
    for (int64_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].size(), codec.fixed_width()) << type.ToString();
  }
}

TEST(RowCodec, WritesTheBytesOfTheFormat) {
  const Type type = StructOf(
      {Fixed(TypeId::kInt16, 2), ListOf(String()), MapOf(String(), Fixed(TypeId::kBool, 1)), Fixed(TypeId::kInt64, 8)});
  ArrayBuilder builder(type);
  builder.child(0).AppendFixed("\x02\x01");
  builder.child(1).child(0).AppendBytes("hi");
  builder.child(1).child(0).AppendNull();
  builder.child(1).AppendList();
  builder.child(2).child(0).AppendBytes("k");
  builder.child(2).child(1).AppendFixed("\1");
  builder.child(2).child(0).AppendBytes("");
  builder.child(2).child(1).AppendNull();
  builder.child(2).AppendList();
  builder.child(3).AppendNull();
  builder.AppendStruct();
  const auto values = builder.Finish();
  ByteColumn rows;
  std::vector<bool> nulls;
  ASSERT_TRUE(MakeCodec(type).Encode(values.value().schema(), values.value().array(), {}, &rows, &nulls).ok());
  const std::string expected =
      std::string("\x08", 1) + "\x02\x01" + std::string("\x02\x02\x02hi", 5) + std::string("\x02\x01k\1\1\0\0", 7);
  EXPECT_EQ(rows[0], expected);
}

// Decodes one row, copied to memory of its own, so that the sanitizer sees a read past its end. Whatever the bytes, the
// answer is a value or Corrupt.
bool Parses(const RowCodec& codec, Slice bytes) {
  const auto memory = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), memory.get());
  const Slice row(memory.get(), bytes.size());
  const auto decoded = codec.Decode(std::span(&row, 1));
  if (decoded.ok()) return true;
  EXPECT_EQ(decoded.status().code(), Code::kCorrupt) << decoded.status().message();
  EXPECT_NE(decoded.status().message().find("row 0"), std::string::npos) << decoded.status().message();
  return false;
}

TEST(RowCodec, EveryTornRowIsCorrupt) {
  Random random(14);
  for (const Type& type : RowTypes()) {
    const RowCodec codec = MakeCodec(type);
    Type present = type;
    present.nullable = false;
    const OwnedArray values = RandomArray(present, 40, {}, random);
    ByteColumn rows;
    std::vector<bool> nulls;
    ASSERT_TRUE(codec.Encode(values.schema(), values.array(), {}, &rows, &nulls).ok());
    for (int64_t i = 0; i < rows.size(); ++i) {
      if (nulls[static_cast<size_t>(i)]) continue;  // the null type
      const Slice row = rows[i];
      ASSERT_TRUE(Parses(codec, row));
      for (size_t cut = 0; cut < row.size(); ++cut) {
        ASSERT_FALSE(Parses(codec, row.substr(0, cut))) << type.ToString() << " cut to " << cut << " of " << row.size();
      }
      ASSERT_FALSE(Parses(codec, std::string(row).append(1, 0))) << type.ToString();
    }
  }
}

TEST(RowCodec, ForgedRowsNeverCrash) {
  Random random(15);
  for (const Type& type : RowTypes()) {
    const RowCodec codec = MakeCodec(type);
    Type present = type;
    present.nullable = false;
    const OwnedArray values = RandomArray(present, 50, {}, random);
    ByteColumn rows;
    std::vector<bool> nulls;
    ASSERT_TRUE(codec.Encode(values.schema(), values.array(), {}, &rows, &nulls).ok());
    for (int round = 0; round < 3000; ++round) {
      std::string noise(random() % 40, 0);
      for (char& byte : noise) byte = static_cast<char>(random() % 2 == 0 ? random() : random() % 4);
      Parses(codec, noise);
      const Slice row = rows[static_cast<int64_t>(random() % 50)];
      std::string flipped(row);
      if (flipped.empty()) continue;
      flipped[random() % flipped.size()] ^= static_cast<char>(1 << (random() % 8));
      Parses(codec, flipped);
    }
  }
}

TEST(RowCodec, ForgedCountsAreRefusedBeforeAnythingIsAllocated) {
  for (const Type& element : {Fixed(TypeId::kNull, 0), StructOf({}), Fixed(TypeId::kFixedSizeBinary, 0), String()}) {
    for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{1} << 63}) {
      char forged[16];
      const char* end = row_format::PutVarint(count, forged);
      const Slice forged_row(forged, static_cast<size_t>(end - forged));
      EXPECT_FALSE(Parses(MakeCodec(ListOf(element)), forged_row));
      EXPECT_FALSE(Parses(MakeCodec(MapOf(String(), element)), forged_row));
      EXPECT_FALSE(Parses(MakeCodec(String()), forged_row));
    }
  }
}

TEST(RowCodec, OnlyTheShortestVarintIsRead) {
  const RowCodec codec = MakeCodec(String());
  EXPECT_TRUE(Parses(codec, "\x01x"));
  EXPECT_FALSE(Parses(codec, Slice("\x81\0x", 3)));
  EXPECT_FALSE(Parses(codec, std::string(11, '\x80')));
  for (uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{16384}, ~uint64_t{0}}) {
    char bytes[16];
    char* end = row_format::PutVarint(value, bytes);
    EXPECT_EQ(static_cast<size_t>(end - bytes), row_format::VarintSize(value));
    uint64_t read = 0;
    EXPECT_EQ(row_format::GetVarint(bytes, end, &read), end);
    EXPECT_EQ(read, value);
  }
}

TEST(RowCodec, NullInARequiredFieldIsRefusedBothWays) {
  Type type = StructOf({Fixed(TypeId::kInt64, 8), String()});
  Type strict = type;
  strict.children[1].nullable = false;
  ArrayBuilder builder(type);
  builder.AppendNull();  // below a null parent nothing is asked for
  builder.child(0).AppendNull();
  builder.child(1).AppendNull();
  builder.AppendStruct();
  const auto values = builder.Finish();
  ByteColumn rows;
  std::vector<bool> nulls;
  const Status status = MakeCodec(strict).Encode(values.value().schema(), values.value().array(), {}, &rows, &nulls);
  EXPECT_EQ(status.code(), Code::kInvalidRequest);
  EXPECT_NE(status.message().find("'b'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("row 1"), std::string::npos) << status.message();
  ASSERT_TRUE(MakeCodec(type).Encode(values.value().schema(), values.value().array(), {}, &rows, &nulls).ok());
  EXPECT_FALSE(Parses(MakeCodec(strict), rows[1]));
}

TEST(RowCodec, AnotherTypeIsIncompatible) {
  Random random(16);
  const OwnedArray numbers = RandomArray(Fixed(TypeId::kInt32, 4), 3, {}, random);
  ByteColumn out;
  std::vector<bool> nulls;
  const Status status = MakeCodec(String()).Encode(numbers.schema(), numbers.array(), {}, &out, &nulls);
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("expected an array of string, found int32"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace holdfast
