#include "holdfast/type.h"

#include <gtest/gtest.h>

#include "codec/random_arrays.h"
#include "codec/type_match.h"

namespace holdfast {
namespace {

using namespace testing_codec;  // NOLINT(google-build-using-namespace)

TEST(Type, ComesBackFromItsSchema) {
  for (const Type& type : RowTypes()) {
    ArrowSchema schema{};
    ASSERT_TRUE(ExportType(type, &schema).ok());
    const auto imported = ImportType(schema);
    schema.release(&schema);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    EXPECT_EQ(imported.value(), type) << type.ToString();
  }
}

TEST(Type, PrintsAsPyarrowDoes) {
  Type required = StructOf({String(), ListOf(Fixed(TypeId::kDouble, 8))});
  required.children[0].nullable = false;
  EXPECT_EQ(required.ToString(), "struct<a: string not null, b: list<item: double>>");
  EXPECT_EQ(MapOf(String(), Fixed(TypeId::kInt64, 8)).ToString(), "map<string, int64>");
  Type instant = Fixed(TypeId::kTimestamp, 8);
  instant.timezone = "UTC";
  EXPECT_EQ(instant.ToString(), "timestamp[us, tz=UTC]");
  EXPECT_EQ(Fixed(TypeId::kDecimal128, 16).ToString(), "decimal128(38, 4)");
  EXPECT_EQ(Fixed(TypeId::kFixedSizeBinary, 3).ToString(), "fixed_size_binary[3]");
}

TEST(Type, NamesTheFieldThatIsNotSupported) {
  ArrowSchema schema{};
  ASSERT_TRUE(ExportType(StructOf({String(), ListOf(Fixed(TypeId::kInt64, 8))}), &schema).ok());
  for (const char* format : {"e", "+ud:0", "+r", "d:40,2,256", "tiM", "nonsense", ""}) {
    schema.children[1]->children[0]->format = format;
    const auto imported = ImportType(schema);
    ASSERT_FALSE(imported.ok()) << format;
    EXPECT_EQ(imported.status().code(), Code::kInvalidRequest);
    EXPECT_NE(imported.status().message().find("'b.item'"), std::string::npos) << imported.status().message();
  }
  schema.release(&schema);
}

TEST(Type, NestsOnlySoDeep) {
  Type type = String();
  for (int i = 0; i < 70; ++i) type = ListOf(std::move(type));
  ArrowSchema schema{};
  ASSERT_TRUE(ExportType(type, &schema).ok());
  EXPECT_EQ(ImportType(schema).status().code(), Code::kInvalidRequest);
  schema.release(&schema);
}

TEST(SameType, LooksAtWhatChangesTheBytes) {
  Type utc = Fixed(TypeId::kTimestamp, 8);
  utc.timezone = "UTC";
  Type berlin = utc;
  berlin.timezone = "Europe/Berlin";
  EXPECT_TRUE(SameType(utc, berlin));
  EXPECT_FALSE(SameType(utc, Fixed(TypeId::kTimestamp, 8)));
  Type renamed = StructOf({String()});
  renamed.children[0].name = "other";
  EXPECT_FALSE(SameType(StructOf({String()}), renamed));
  Type required = StructOf({String()});
  required.children[0].nullable = false;
  EXPECT_TRUE(SameType(StructOf({String()}), required));
}

}  // namespace
}  // namespace holdfast
