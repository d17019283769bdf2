// ArrayView over arrays that others made:
// every storage variant, and everything that the C data interface can say wrong.
#include "codec/array_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "codec/foreign_arrays.h"
#include "holdfast/row_codec.h"

namespace holdfast {
namespace {

using testing_codec::BytesOf;
using testing_codec::ForeignArray;
using testing_codec::Handed;
using Bytes = ForeignArray::Bytes;
using Lie = std::function<void(Handed*)>;

// --- three rows each: "one", null, "a string of more than twelve bytes"; [1, 2], null, [3]

const std::string kText = "onea string of more than twelve bytes";
const auto kEnd = static_cast<int32_t>(kText.size());
const Bytes kSecondIsNull = {0b101};

ForeignArray Int64s(const std::vector<int64_t>& values) {
  return {"l", static_cast<int64_t>(values.size()), {{}, BytesOf(values)}};
}
ForeignArray NoBitmap(ForeignArray array) {
  array.is_null_buffer[0] = true;
  return array;
}
ForeignArray Text() { return {"u", 3, {kSecondIsNull, BytesOf<int32_t>({0, 3, 3, kEnd}), BytesOf(kText)}}; }
ForeignArray LargeText() { return {"U", 3, {kSecondIsNull, BytesOf<int64_t>({0, 3, 3, kEnd}), BytesOf(kText)}}; }
ForeignArray TextViews() {
  std::string views(48, '\0');
  const auto put = [&views](size_t at, int32_t number) { std::memcpy(views.data() + at, &number, sizeof(number)); };
  put(0, 3);
  std::memcpy(views.data() + 4, "one", 3);
  put(16, -7);  // of a null: says nothing
  put(32, kEnd - 3);
  std::memcpy(views.data() + 36, "a st", 4);
  put(40, 0);
  put(44, 3);
  return {"vu", 3, {kSecondIsNull, BytesOf(views), BytesOf(kText), BytesOf<int64_t>({kEnd})}};
}
ForeignArray TextDictionary() {
  ForeignArray array{"c", 3, {kSecondIsNull, BytesOf<int8_t>({2, 100, 0})}};
  array.dictionary.push_back(
      NoBitmap({"u", 3, {{}, BytesOf<int32_t>({0, kEnd - 3, kEnd - 3, kEnd}), BytesOf(kText.substr(3) + "one")}}));
  return array;
}
ForeignArray Lists() {
  return {"+l", 3, {kSecondIsNull, BytesOf<int32_t>({0, 2, 2, 3})}, {NoBitmap(Int64s({1, 2, 3}))}};
}
ForeignArray LargeLists() {
  return {"+L", 3, {kSecondIsNull, BytesOf<int64_t>({0, 2, 2, 3})}, {NoBitmap(Int64s({1, 2, 3}))}};
}
ForeignArray ListViews() {
  return {"+vl",
          3,
          {kSecondIsNull, BytesOf<int32_t>({1, 900, 0}), BytesOf<int32_t>({2, -1, 1})},
          {NoBitmap(Int64s({3, 1, 2}))}};
}
ForeignArray LargeListViews() {
  return {"+vL",
          3,
          {kSecondIsNull, BytesOf<int64_t>({1, 900, 0}), BytesOf<int64_t>({2, -1, 1})},
          {NoBitmap(Int64s({3, 1, 2}))}};
}
ForeignArray FixedLists() { return {"+w:2", 3, {kSecondIsNull}, {NoBitmap(Int64s({1, 2, 0, 0, 3, 4}))}}; }
ForeignArray Maps() {
  ForeignArray keys = NoBitmap({"u", 3, {{}, BytesOf<int32_t>({0, 1, 2, 3}), BytesOf("xyz")}});
  ForeignArray entries = NoBitmap({"+s", 3, {{}}, {std::move(keys), NoBitmap(Int64s({1, 2, 3}))}});
  return {"+m", 3, {kSecondIsNull, BytesOf<int32_t>({0, 2, 2, 3})}, {std::move(entries)}};
}
ForeignArray Structs() {
  ForeignArray bools{"b", 3, {kSecondIsNull, {0b100}}};
  ForeignArray fixed{"w:2", 3, {kSecondIsNull, BytesOf("aabbcc")}};
  ForeignArray nulls{"n", 3, {}};
  return {"+s", 3, {kSecondIsNull}, {std::move(bools), std::move(fixed), std::move(nulls), TextDictionary(), Lists()}};
}

std::vector<ForeignArray> AllVariants() {
  return {Text(),      LargeText(),      TextViews(),  TextDictionary(), Lists(),  LargeLists(),
          ListViews(), LargeListViews(), FixedLists(), Maps(),           Structs()};
}

// The rows as bytes: all of the array is read.
Result<ByteColumn> Read(Handed* handed) {
  HOLDFAST_ASSIGN_OR_RETURN(Type type, ImportType(handed->schema()));
  HOLDFAST_ASSIGN_OR_RETURN(const RowCodec codec, RowCodec::Make(std::move(type)));
  ByteColumn rows;
  HOLDFAST_RETURN_IF_ERROR(codec.Encode(handed->schema(), handed->array(), {}, &rows, nullptr));
  return rows;
}
std::vector<std::string> RowsOf(const ForeignArray& array) {
  Handed handed(array);
  const Result<ByteColumn> read = Read(&handed);
  EXPECT_TRUE(read.ok()) << read.status().message();
  std::vector<std::string> rows;
  for (int64_t i = 0; read.ok() && i < read.value().size(); ++i) rows.emplace_back(read.value()[i]);
  return rows;
}

TEST(ArrayView, ReadsAllStorageVariantsAsOne) {
  for (const ForeignArray& variant : {LargeText(), TextViews(), TextDictionary()}) {
    EXPECT_EQ(RowsOf(variant), RowsOf(Text())) << variant.format;
  }
  for (const ForeignArray& variant : {LargeLists(), ListViews(), LargeListViews()}) {
    EXPECT_EQ(RowsOf(variant), RowsOf(Lists())) << variant.format;
  }
}

TEST(ArrayView, ReadsSlices) {
  for (ForeignArray& variant : AllVariants()) {
    const std::vector<std::string> all = RowsOf(variant);
    variant.offset = 1;
    variant.length = 2;
    EXPECT_EQ(RowsOf(variant), std::vector<std::string>(all.begin() + 1, all.end())) << variant.format;
    variant.length = 0;
    EXPECT_TRUE(RowsOf(variant).empty()) << variant.format;
  }
}

TEST(ArrayView, GoesByTheBitmapWhereTheNullCountLies) {
  for (ForeignArray& variant : AllVariants()) {
    const std::vector<std::string> rows = RowsOf(variant);
    for (const int64_t count : {0, 2, 3}) {
      variant.null_count = count;
      EXPECT_EQ(RowsOf(variant), rows) << variant.format;
    }
  }
}

void ExpectRefused(const ForeignArray& array, const Lie& lie, const std::string& part) {
  Handed handed(array);
  lie(&handed);
  const Result<ByteColumn> read = Read(&handed);
  ASSERT_FALSE(read.ok()) << array.format << ": expected " << part;
  EXPECT_EQ(read.status().code(), Code::kInvalidRequest);
  EXPECT_NE(read.status().message().find(part), std::string::npos) << array.format << ": " << read.status().message();
}
template <typename T>
Lie Overwrite(size_t buffer, std::vector<T> values) {
  return [buffer, values](Handed* handed) {
    std::memcpy(handed->nodes()[0].blocks[buffer].get(), values.data(), values.size() * sizeof(T));
  };
}

TEST(ArrayView, RefusesCountsThatCannotBe) {
  for (const ForeignArray& variant : AllVariants()) {
    ExpectRefused(variant, [](Handed* h) { h->array().length = -1; }, "its length is -1");
    ExpectRefused(variant, [](Handed* h) { h->array().offset = -1; }, "its offset -1");
    ExpectRefused(variant, [](Handed* h) { h->array().offset = INT64_MAX; }, "its offset 9223372036854775807");
    ExpectRefused(variant, [](Handed* h) { h->array().length = INT64_MAX; }, "its length is 9223372036854775807");
    ExpectRefused(variant, [](Handed* h) { h->array().null_count = 4; }, "its null count is 4 of 3 rows");
    ExpectRefused(variant, [](Handed* h) { h->array().null_count = -2; }, "its null count is -2");
    ExpectRefused(variant, [](Handed* h) { h->array().n_buffers = 0; }, "buffers are missing");
    ExpectRefused(variant, [](Handed* h) { h->array().buffers = nullptr; }, "buffers are missing");
    ExpectRefused(variant, [](Handed* h) { ++h->array().n_children; }, "children, expected");
    ExpectRefused(variant, [](Handed* h) { h->array().release = nullptr; }, "it was released already");
    ExpectRefused(
        variant,
        [](Handed* h) {
          h->array().null_count = 1;
          h->array().buffers[0] = nullptr;
        },
        "without a bitmap");
  }
}

TEST(ArrayView, RefusesChildrenThatAreNotThere) {
  for (const ForeignArray& variant : {Lists(), LargeLists(), FixedLists(), Maps(), Structs(), ListViews()}) {
    ExpectRefused(variant, [](Handed* h) { --h->array().n_children; }, "children, expected");
    ExpectRefused(variant, [](Handed* h) { h->array().children = nullptr; }, "children, expected");
    ExpectRefused(variant, [](Handed* h) { h->array().children[0] = nullptr; }, "a child is missing");
    ExpectRefused(variant, [](Handed* h) { h->array().children[0]->release = nullptr; }, "it was released already");
    ExpectRefused(variant, [](Handed* h) { h->array().children[0]->offset = INT64_MAX; }, "its offset");
  }
  for (const ForeignArray& variant : {Lists(), LargeLists(), FixedLists(), Maps(), Structs()}) {
    ExpectRefused(variant, [](Handed* h) { --h->array().children[0]->length; }, "shorter than its parent");
  }
  ExpectRefused(Maps(), [](Handed* h) { --h->array().children[0]->children[1]->length; }, "shorter than its parent");
  ExpectRefused(Maps(), [](Handed* h) { --h->array().children[0]->n_children; }, "it has 1 children, expected 2");
}

TEST(ArrayView, RefusesOffsetsThatLeadOutOfTheArray) {
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 3, 2, kEnd}, {-1, 3, 3, kEnd}, {0, 3, 3, 2}}) {
    ExpectRefused(Text(), Overwrite<int32_t>(1, offsets), "its offsets are negative or descend");
    ExpectRefused(LargeText(), Overwrite<int64_t>(1, {offsets.begin(), offsets.end()}),
                  "its offsets are negative or descend");
  }
  ExpectRefused(Lists(), Overwrite<int32_t>(1, {0, 2, 1, 3}), "its offsets are negative or descend");
  ExpectRefused(Maps(), Overwrite<int32_t>(1, {-1, 2, 2, 3}), "its offsets are negative or descend");
  ExpectRefused(LargeLists(), Overwrite<int64_t>(1, {0, 2, 2, 4}), "shorter than its parent");
  ExpectRefused(ListViews(), Overwrite<int32_t>(1, {2, 0, 0}), "row 0 has elements that do not exist");
  ExpectRefused(ListViews(), Overwrite<int32_t>(1, {-1, 0, 0}), "row 0 has elements that do not exist");
  ExpectRefused(LargeListViews(), Overwrite<int64_t>(2, {2, 0, INT64_MAX}), "row 2 has elements that do not exist");
  ExpectRefused(LargeListViews(), Overwrite<int64_t>(2, {2, 0, -1}), "row 2 has elements that do not exist");
  ExpectRefused(
      ListViews(), [](Handed* h) { h->array().children[0]->length = INT64_MIN; }, "its child has a negative length");
  ExpectRefused(FixedLists(), [](Handed* h) { h->nodes()[0].schema.format = "+w:3"; }, "shorter than its parent");
}

TEST(ArrayView, RefusesViewsAndIndicesThatPointNowhere) {
  const auto view = [](size_t at, int32_t number) -> Lie {
    return [at, number](Handed* h) { std::memcpy(h->nodes()[0].blocks[1].get() + at, &number, sizeof(number)); };
  };
  ExpectRefused(TextViews(), view(0, -1), "row 0 has a negative length");
  ExpectRefused(TextViews(), view(32, kEnd), "row 2 points to bytes that do not exist");
  ExpectRefused(TextViews(), view(40, 1), "row 2 points to bytes that do not exist");
  ExpectRefused(TextViews(), view(40, -1), "row 2 points to bytes that do not exist");
  ExpectRefused(TextViews(), view(44, -1), "row 2 points to bytes that do not exist");
  ExpectRefused(TextViews(), view(44, INT32_MAX), "row 2 points to bytes that do not exist");
  ExpectRefused(TextViews(), [](Handed* h) { h->array().buffers[3] = nullptr; }, "bytes that do not exist");
  ExpectRefused(TextDictionary(), Overwrite<int8_t>(1, {3}), "row 0 points past its dictionary");
  ExpectRefused(TextDictionary(), Overwrite<int8_t>(1, {-1}), "row 0 points past its dictionary");
  ExpectRefused(TextDictionary(), [](Handed* h) { h->array().dictionary = nullptr; }, "the dictionary is missing");
}

TEST(ArrayView, RefusesNullBuffersThatRowsLieIn) {
  const auto null = [](size_t buffer) -> Lie { return [buffer](Handed* h) { h->array().buffers[buffer] = nullptr; }; };
  for (const ForeignArray& variant : {Text(), LargeText(), Lists(), LargeLists(), Maps()}) {
    ExpectRefused(variant, null(1), "the offsets buffer is null");
  }
  for (const ForeignArray& variant : {Text(), LargeText()}) ExpectRefused(variant, null(2), "the data buffer is null");
  for (const ForeignArray& variant : {ListViews(), LargeListViews()}) {
    ExpectRefused(variant, null(1), "the offsets or sizes buffer is null");
    ExpectRefused(variant, null(2), "the offsets or sizes buffer is null");
  }
  ExpectRefused(TextViews(), null(1), "the views buffer is null");
  ExpectRefused(TextViews(), null(2), "bytes that do not exist");
  ExpectRefused(TextDictionary(), null(1), "the indices buffer is null");
  ExpectRefused(NoBitmap(Int64s({1})), null(1), "the value buffer is null");
}

TEST(ArrayView, RefusesSchemasThatAreNone) {
  const auto format = [](const char* text) -> Lie { return [text](Handed* h) { h->schema().format = text; }; };
  ExpectRefused(FixedLists(), format("+w:x"), "malformed Arrow format string");
  ExpectRefused(FixedLists(), format("+w:-1"), "malformed Arrow format string");
  ExpectRefused(FixedLists(), format("+w:99999999999"), "malformed Arrow format string");
  ExpectRefused(Lists(), format("+r"), "run-end encoded");
  ExpectRefused(Lists(), format("+us:0"), "unions");
  ExpectRefused(TextDictionary(), format("u"), "malformed Arrow format string");
  ExpectRefused(TextDictionary(), format("cc"), "malformed Arrow format string");
  ExpectRefused(Maps(), [](Handed* h) { h->schema().children[0]->format = "+l"; }, "malformed Arrow format string");
  ExpectRefused(Maps(), [](Handed* h) { h->schema().children = nullptr; }, "malformed Arrow format string");
  ExpectRefused(Lists(), [](Handed* h) { h->schema().children = nullptr; }, "malformed Arrow format string");
  ExpectRefused(
      TextDictionary(), [](Handed* h) { h->schema().dictionary->dictionary = h->schema().dictionary; },
      "dictionaries of dictionaries");
}

// --- random lies, such as the interface can tell: a buffer's size is none of them

class Liar {
 public:
  explicit Liar(uint64_t seed) : random_(seed) {}

  void Tell(Handed* handed) {
    for (size_t lies = 1 + Below(3); lies > 0; --lies) TellOne(&handed->nodes()[Below(handed->nodes().size())]);
  }

 private:
  size_t Below(size_t end) { return random_() % end; }
  int64_t Number() {
    constexpr int64_t kNumbers[] = {0, 1, -1, 2, 3, 127, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    const size_t at = Below(std::size(kNumbers) + 1);
    return at < std::size(kNumbers) ? kNumbers[at] : static_cast<int64_t>(random_());
  }
  // A length or an offset that makes an array larger is believed: whoever says it says that the buffers are as large.
  int64_t Smaller(int64_t now) {
    constexpr int64_t kImpossible = INT64_MAX / 16;
    const int64_t number = Number();
    return now <= kImpossible && (number <= now || number > kImpossible) ? number : now;
  }

  void TellOne(Handed::Node* node) {
    ArrowArray* const array = &node->array;
    switch (Below(8)) {
      case 0:
        array->length = Smaller(array->length);
        return;
      case 1:
        array->offset = Smaller(array->offset);
        return;
      case 2:
        array->null_count = Number();
        return;
      case 3:
        array->n_buffers = std::min(array->n_buffers, Number());
        return;
      case 4:
        array->n_children = Number();
        return;
      case 5:
        if (!node->buffers.empty()) node->buffers[Below(node->buffers.size())] = nullptr;
        return;
      default:
        Scribble(node);
    }
  }

  // Over bitmaps, offsets, sizes, views and indices. How many bytes strings have is said by their offsets alone.
  void Scribble(Handed::Node* node) {
    if (node->blocks.size() < 2) return;
    const bool text = node->format == "u" || node->format == "U";
    const size_t buffer = Below(node->format.starts_with("+v") ? 3 : 2);
    const size_t bytes = node->block_bytes[buffer];
    const bool wide = node->format == "U" || node->format == "+L" || node->format == "+vL";
    const size_t width = std::min<size_t>(bytes, wide ? 8 : 4);
    if (width == 0) return;
    int64_t number = wide ? Number() : static_cast<int32_t>(Number());
    if (text && buffer == 1) number = std::min(number, static_cast<int64_t>(node->block_bytes[2]));
    std::memcpy(node->blocks[buffer].get() + Below(bytes / width) * width, &number, width);
  }

  std::mt19937_64 random_;
};

// With --gtest_shuffle and --gtest_repeat each repetition has a seed of its own.
TEST(ArrayView, OfRandomLiesIsRefusedOrReadWithinItsBuffers) {
  const auto seed = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) << 32;
  const std::vector<ForeignArray> variants = AllVariants();
  size_t refused = 0;
  size_t read = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    Liar liar(seed + round);
    Handed handed(variants[round % variants.size()]);
    liar.Tell(&handed);
    (Read(&handed).ok() ? read : refused) += 1;
  }
  EXPECT_GT(refused, 5000U);
  EXPECT_GT(read, 1000U);
}

}  // namespace
}  // namespace holdfast
