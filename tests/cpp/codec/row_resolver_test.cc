#include "codec/row_resolver.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "codec/random_arrays.h"
#include "holdfast/row_codec.h"

namespace holdfast {
namespace {

using namespace testing_codec;  // NOLINT(google-build-using-namespace)
using namespace std::string_literals;

Type Named(const char* name, Type type, bool nullable = true) {
  type.name = name;
  type.nullable = nullable;
  return type;
}

Type Struct(std::vector<Type> fields) {
  Type type;
  type.id = TypeId::kStruct;
  type.children = std::move(fields);
  return type;
}

RowResolver Resolver(const Type& writer, const Type& reader, const std::vector<FieldDefault>& defaults = {}) {
  auto resolver = RowResolver::Make(writer, reader, defaults);
  EXPECT_TRUE(resolver.ok()) << resolver.status().message();
  return std::move(resolver).value();
}

std::string Resolved(const RowResolver& resolver, const std::string& row) {
  std::string out = "what was there before";
  const Status status = resolver.Resolve(row, &out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

const Type kInt8 = Fixed(TypeId::kInt8, 1);
const Type kInt16 = Fixed(TypeId::kInt16, 2);
const Type kInt32 = Fixed(TypeId::kInt32, 4);
const Type kUInt8 = Fixed(TypeId::kUInt8, 1);
const Type kFloat = Fixed(TypeId::kFloat, 4);
const Type kDouble = Fixed(TypeId::kDouble, 8);

TEST(RowResolver, ATypeBecomesItself) {
  Random random(3);
  for (const Type& type : RowTypes()) {
    const RowResolver resolver = Resolver(type, type);
    EXPECT_TRUE(resolver.is_identity()) << type.ToString();
    // Within a struct that changes, every type is walked over.
    const Type before = Struct({Named("x", type), Named("y", kInt8)});
    const Type after = Struct({Named("y", kInt16), Named("x", type)});
    const RowResolver moved = Resolver(before, after);
    EXPECT_FALSE(moved.is_identity());
    const OwnedArray values = RandomArray(before, 300, {.nulls = true}, random);
    const RowCodec codec = RowCodec::Make(before).value();
    ByteColumn rows;
    std::vector<bool> nulls;
    ASSERT_TRUE(codec.Encode(values.schema(), values.array(), {}, &rows, &nulls).ok());
    std::vector<std::string> resolved(nulls.size());
    std::vector<Slice> slices(nulls.size());
    for (size_t i = 0; i < nulls.size(); ++i) {
      if (nulls[i]) continue;
      resolved[i] = Resolved(moved, std::string(rows[static_cast<int64_t>(i)]));
      slices[i] = resolved[i];
    }
    const OwnedArray read = RowCodec::Make(after).value().Decode(slices).value();
    const ArrayView old_view = View(before, values);
    const ArrayView new_view = View(after, read);
    for (int64_t i = 0; i < old_view.length(); ++i) {
      ASSERT_EQ(old_view.IsNull(i), new_view.IsNull(i));
      if (old_view.IsNull(i)) continue;
      ASSERT_TRUE(Equal(old_view.child(0), i, new_view.child(1), i)) << type.ToString();
      ASSERT_EQ(old_view.child(1).IsNull(i), new_view.child(0).IsNull(i));
      if (old_view.child(1).IsNull(i)) continue;
      ASSERT_EQ(old_view.child(1).Value<int8_t>(i), new_view.child(0).Value<int16_t>(i));
    }
  }
}

TEST(RowResolver, NumbersAreWidened) {
  EXPECT_EQ(Resolved(Resolver(kInt8, kInt32), "\x80"), "\x80\xFF\xFF\xFF"s);
  EXPECT_EQ(Resolved(Resolver(kUInt8, kInt32), "\x80"), "\x80\x00\x00\x00"s);
  EXPECT_EQ(Resolved(Resolver(kFloat, kDouble), "\x00\x00\x00\x3F"s), "\x00\x00\x00\x00\x00\x00\xE0\x3F"s);
}

TEST(RowResolver, FieldsGoByTheirNames) {
  const Type before = Struct({Named("a", kInt8), Named("b", String()), Named("c", kInt8)});
  const Type after =
      Struct({Named("new", String()), Named("c", kInt16), Named("a", kInt8), Named("filled", kInt8, false)});
  const RowResolver resolver = Resolver(before, after, {{{3}, "\x09"}});
  EXPECT_EQ(Resolved(resolver, "\x00\x01\x02hi\xFF"s), "\x01\xFF\xFF\x01\x09"s);
  EXPECT_EQ(Resolved(resolver, "\x05\x02hi"s), "\x07\x09"s);
}

TEST(RowResolver, ElementsAndEntriesAreResolved) {
  const Type before = ListOf(Struct({Named("a", kInt8)}));
  const Type after = ListOf(Struct({Named("a", kInt8), Named("b", kInt8)}));
  EXPECT_EQ(Resolved(Resolver(before, after, {{{0, 1}, "\x07"}}), "\x02\x02\x00\x05"s), "\x02\x02\x00\x05\x07"s);
  const Type map_before = MapOf(kInt8, kInt8);
  const Type map_after = MapOf(kInt8, kInt16);
  EXPECT_EQ(Resolved(Resolver(map_before, map_after), "\x02\x01\x00\x02\x01\xFE"s), "\x02\x01\x00\x02\x01\xFE\xFF"s);
}

TEST(RowResolver, RefusesWhatHoldsLess) {
  const auto expect = [](const Type& writer, const Type& reader, const char* part) {
    const auto made = RowResolver::Make(writer, reader, {});
    ASSERT_FALSE(made.ok()) << writer.ToString() << " to " << reader.ToString();
    EXPECT_EQ(made.status().code(), Code::kInvalidRequest);
    EXPECT_NE(made.status().message().find(part), std::string::npos) << made.status().message();
  };
  expect(kInt16, kInt8, "int16 does not become it");
  expect(kInt8, kUInt8, "int8");
  expect(kDouble, kFloat, "double");
  expect(kInt32, kFloat, "int32");
  expect(String(), ListOf(kInt8), "string");
  expect(ListOf(kInt8), Struct({}), "list");
  expect(Struct({}), kInt8, "struct");
  expect(Struct({Named("a", kInt8)}), Struct({Named("a", kInt8, false)}), "may be null");
  expect(Struct({}), Struct({Named("a", kInt8, false)}), "nor a default");
  Type coarse = Fixed(TypeId::kTimestamp, 8);
  Type fine = coarse;
  fine.unit = TimeUnit::kNano;
  expect(coarse, fine, "timestamp");
}

// Whatever bytes there are: an answer that the reader's codec judges, or Corrupt; never a read past the end.
TEST(RowResolver, TornAndFlippedRowsAreCorruptOrValues) {
  Random random(7);
  for (const Type& type : RowTypes()) {
    const Type before = Struct({Named("x", type), Named("y", kInt8)});
    const Type after = Struct({Named("y", kInt16), Named("z", String()), Named("x", type)});
    const RowResolver resolver = Resolver(before, after, {{{1}, "\x01?"}});
    const OwnedArray values = RandomArray(before, 40, {.nulls = false}, random);
    ByteColumn rows;
    std::vector<bool> nulls;
    ASSERT_TRUE(RowCodec::Make(before).value().Encode(values.schema(), values.array(), {}, &rows, &nulls).ok());
    std::string out;
    for (int64_t i = 0; i < rows.size(); ++i) {
      const std::string row(rows[i]);
      for (size_t size = 0; size < row.size(); ++size) {
        const std::string torn = row.substr(0, size);
        EXPECT_EQ(resolver.Resolve(torn, &out).code(), Code::kCorrupt);
      }
      EXPECT_EQ(resolver.Resolve(row + '\0', &out).code(), Code::kCorrupt);
      for (int flips = 0; flips < 20 && !row.empty(); ++flips) {
        std::string flipped = row;
        char& byte = flipped[random() % flipped.size()];
        byte = static_cast<char>(byte ^ (1 << (random() % 8)));
        const Status status = resolver.Resolve(flipped, &out);
        EXPECT_TRUE(status.ok() || status.code() == Code::kCorrupt) << status.message();
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
