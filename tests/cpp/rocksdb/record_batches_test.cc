// Deltas in, entries out, by the Arrow C data interface: slices, offsets, nulls, and types that are not ours.
#include "rocksdb/record_batches.h"

#include <array>

#include "rocksdb/fixture.h"

namespace holdfast::testing {
namespace {

using std::string_literals::operator""s;

// A delta batch built by hand, with `before` rows that are not part of it in front of each column.
class DeltaBatch {
 public:
  struct Row {
    uint16_t key_group;
    uint16_t state;
    std::string key;
    std::optional<std::string> value;
  };

  DeltaBatch(const std::vector<Row>& rows, int64_t struct_offset, int64_t child_offset) {
    const int64_t before = struct_offset + child_offset;
    validity_.resize(static_cast<size_t>((before + static_cast<int64_t>(rows.size())) / 8 + 1), 0);
    for (int64_t i = 0; i < before; ++i) Append({7, 7, "not part of it", "nor this"});
    for (const Row& row : rows) Append(row);
    columns_[0].buffers = {nullptr, groups_.data(), nullptr};
    columns_[1].buffers = {nullptr, states_.data(), nullptr};
    columns_[2].buffers = {nullptr, key_offsets_.data(), keys_.data()};
    columns_[3].buffers = {validity_.data(), value_offsets_.data(), values_.data()};
    constexpr const char* kNames[] = {"key_group", "state", "key", "value"};
    constexpr const char* kFormats[] = {"S", "S", "z", "Z"};
    for (size_t i = 0; i < 4; ++i) {
      Column& column = columns_[i];
      column.array.length = static_cast<int64_t>(rows.size()) + struct_offset;
      column.array.offset = child_offset;
      column.array.null_count = i < 3 ? 0 : -1;
      column.array.n_buffers = i < 2 ? 2 : 3;
      column.array.buffers = column.buffers.data();
      column.schema.name = kNames[i];
      column.schema.format = kFormats[i];
      column.array.release = [](ArrowArray*) {};
      column.schema.release = [](ArrowSchema*) {};
      children_[i] = &column.array;
      child_schemas_[i] = &column.schema;
    }
    array.length = static_cast<int64_t>(rows.size());
    array.offset = struct_offset;
    array.n_buffers = 1;
    array.buffers = no_buffers_;
    array.n_children = 4;
    array.children = children_;
    array.release = [](ArrowArray*) {};
    schema.format = "+s";
    schema.name = "";
    schema.n_children = 4;
    schema.children = child_schemas_;
    schema.release = [](ArrowSchema*) {};
  }

  ArrowArray array{};
  ArrowSchema schema{};

 private:
  struct Column {
    std::array<const void*, 3> buffers;
    ArrowArray array{};
    ArrowSchema schema{};
  };
  void Append(const Row& row) {
    const size_t at = groups_.size();
    groups_.push_back(row.key_group);
    states_.push_back(row.state);
    keys_ += row.key;
    key_offsets_.push_back(static_cast<int32_t>(keys_.size()));
    values_ += row.value.value_or("");
    value_offsets_.push_back(static_cast<int64_t>(values_.size()));
    if (row.value.has_value()) validity_[at / 8] = static_cast<uint8_t>(validity_[at / 8] | 1U << at % 8);
  }

  std::vector<uint16_t> groups_, states_;
  std::string keys_, values_;
  std::vector<int32_t> key_offsets_ = {0};
  std::vector<int64_t> value_offsets_ = {0};
  std::vector<uint8_t> validity_;
  std::array<Column, 4> columns_;
  ArrowArray* children_[4];
  ArrowSchema* child_schemas_[4];
  const void* no_buffers_[1] = {nullptr};
};

class RecordBatchesTest : public BaseTest {
 protected:
  // The base that one delta makes.
  Result<Entries> Written(DeltaBatch&& delta) {
    HOLDFAST_ASSIGN_OR_RETURN(auto writer, BaseWriter::Make("", Path("base"), {}));
    HOLDFAST_RETURN_IF_ERROR(rocks::AddDelta(OwnedArray(&delta.schema, &delta.array), *writer));
    HOLDFAST_RETURN_IF_ERROR(writer->Finish().status());
    auto entries = ReadAll(Path("base"));
    fs::remove_all(Path("base"));
    return entries;
  }
};

TEST_F(RecordBatchesTest, ADeltaBecomesStoreKeys) {
  const std::vector<DeltaBatch::Row> rows = {
      {0x0102, 0x0304, "k", "v"}, {0, 1, "", ""}, {0xFFFE, 2, "\0x"s, "\0"s}, {5, 1, "gone", std::nullopt}};
  const Entries expected = {{"\0\0\0\x01"s, ""}, {"\x01\x02\x03\x04k", "v"}, {"\xFF\xFE\0\x02\0x"s, "\0"s}};
  for (const int64_t struct_offset : {0, 3}) {
    for (const int64_t child_offset : {0, 9}) {
      const auto entries = Written(DeltaBatch(rows, struct_offset, child_offset));
      HOLDFAST_ASSERT_OK(entries.status());
      EXPECT_EQ(entries.value(), expected) << struct_offset << " " << child_offset;
    }
  }
}

TEST_F(RecordBatchesTest, AnEmptyDeltaAddsNothing) {
  const auto entries = Written(DeltaBatch({}, 0, 0));
  HOLDFAST_ASSERT_OK(entries.status());
  EXPECT_TRUE(entries.value().empty());
}

TEST_F(RecordBatchesTest, OtherColumnsAreRefusedWithWhatWasFound) {
  const auto refused = [this](DeltaBatch* delta) {
    const auto entries = Written(std::move(*delta));
    fs::remove_all(Path("base"));
    EXPECT_EQ(entries.status().code(), Code::kIncompatible);
    return entries.status().message();
  };
  DeltaBatch wrong_type({{0, 0, "k", "v"}}, 0, 0);
  wrong_type.schema.children[0]->format = "i";
  EXPECT_NE(refused(&wrong_type).find("found struct<key_group: int32"), std::string::npos);
  DeltaBatch wrong_name({{0, 0, "k", "v"}}, 0, 0);
  wrong_name.schema.children[2]->name = "keys";
  EXPECT_NE(refused(&wrong_name).find("keys: binary"), std::string::npos);
  DeltaBatch text({{0, 0, "k", "v"}}, 0, 0);
  text.schema.children[3]->format = "u";
  EXPECT_NE(refused(&text).find("value: string"), std::string::npos);
  DeltaBatch too_few({{0, 0, "k", "v"}}, 0, 0);
  too_few.schema.n_children = 3;
  refused(&too_few);
  DeltaBatch not_a_struct({{0, 0, "k", "v"}}, 0, 0);
  not_a_struct.schema.format = "S";
  refused(&not_a_struct);
}

TEST_F(RecordBatchesTest, ANullKeyIsRefusedWithItsRow) {
  DeltaBatch delta({{0, 0, "a", "v"}, {0, 0, "b", "v"}}, 0, 0);
  const uint8_t validity = 0b01;
  delta.array.children[2]->buffers[0] = &validity;
  delta.array.children[2]->null_count = 1;
  const auto entries = Written(std::move(delta));
  EXPECT_EQ(entries.status().code(), Code::kCorrupt);
  EXPECT_NE(entries.status().message().find("column 'key', the first in row 1"), std::string::npos);
}

TEST_F(RecordBatchesTest, NothingOfADeltaThatLiesIsAdded) {
  const auto refused = [this](DeltaBatch* delta, const std::string& part) {
    const auto entries = Written(std::move(*delta));
    fs::remove_all(Path("base"));
    EXPECT_NE(entries.status().message().find(part), std::string::npos) << entries.status().message();
    return entries.status().code();
  };
  DeltaBatch short_child({{0, 0, "a", "v"}, {0, 0, "b", "v"}}, 0, 0);
  short_child.array.children[1]->length = 1;
  EXPECT_EQ(refused(&short_child, "shorter than its parent"), Code::kInvalidRequest);
  DeltaBatch too_few({{0, 0, "a", "v"}}, 0, 0);
  too_few.array.n_children = 3;
  EXPECT_EQ(refused(&too_few, "it has 3 children, expected 4"), Code::kInvalidRequest);
  DeltaBatch descending({{0, 0, "abc", "v"}, {0, 0, "d", "v"}}, 0, 0);
  const int32_t offsets[] = {0, 4, 3};
  descending.array.children[2]->buffers[1] = offsets;
  EXPECT_EQ(refused(&descending, "negative or descend"), Code::kInvalidRequest);
  DeltaBatch no_values({{0, 0, "a", "v"}}, 0, 0);
  no_values.array.children[3]->buffers[2] = nullptr;
  EXPECT_EQ(refused(&no_values, "the data buffer is null"), Code::kInvalidRequest);
  DeltaBatch null_row({{0, 0, "a", "v"}}, 0, 0);
  const uint8_t none = 0;
  null_row.array.buffers[0] = &none;
  EXPECT_EQ(refused(&null_row, "row 0 is null"), Code::kCorrupt);
}

Entries Decode(const OwnedArray& batch) {
  Entries entries;
  const auto at = [](const ArrowArray& column, int64_t row) {
    const auto* offsets = static_cast<const int32_t*>(column.buffers[1]);
    return Slice(static_cast<const char*>(column.buffers[2]) + offsets[row],
                 static_cast<size_t>(offsets[row + 1] - offsets[row]));
  };
  for (int64_t row = 0; row < batch.length(); ++row) {
    entries.emplace(at(*batch.array().children[0], row), at(*batch.array().children[1], row));
  }
  return entries;
}

TEST_F(RecordBatchesTest, EntriesComeOutInBatches) {
  Entries expected;
  for (int i = 0; i < 1000; ++i) expected[NumberedKey(i)] = std::string(static_cast<size_t>(i % 7), 'v');
  MapBase base(expected);
  auto iterator = base.Scan("", "");
  HOLDFAST_ASSERT_OK(iterator.status());
  Entries found;
  std::vector<int64_t> lengths;
  for (;;) {
    const auto batch = rocks::NextBatch(*iterator.value(), 300);
    HOLDFAST_ASSERT_OK(batch.status());
    EXPECT_STREQ(batch.value().schema().children[0]->name, "key");
    EXPECT_STREQ(batch.value().schema().children[1]->format, "z");
    if (batch.value().length() == 0) break;
    lengths.push_back(batch.value().length());
    found.merge(Decode(batch.value()));
  }
  EXPECT_EQ(lengths, (std::vector<int64_t>{300, 300, 300, 100}));
  EXPECT_EQ(found, expected);
}

TEST_F(RecordBatchesTest, LargeValuesMakeSmallerBatches) {
  Entries entries;
  for (int i = 0; i < 5; ++i) entries[NumberedKey(i)] = std::string(40 << 20, 'v');
  MapBase base(std::move(entries));
  auto iterator = base.Scan("", "");
  HOLDFAST_ASSERT_OK(iterator.status());
  const auto batch = rocks::NextBatch(*iterator.value(), 300);
  HOLDFAST_ASSERT_OK(batch.status());
  EXPECT_EQ(batch.value().length(), 2);
}

TEST_F(RecordBatchesTest, AColumnMayOutliveItsBatch) {
  MapBase base(Entries{{"k", "v"}});
  auto iterator = base.Scan("", "");
  HOLDFAST_ASSERT_OK(iterator.status());
  auto batch = rocks::NextBatch(*iterator.value(), 10);
  HOLDFAST_ASSERT_OK(batch.status());
  // As the interface allows: moved out of the parent, which is then released.
  const OwnedArray column(batch.value().schema()->children[1], batch.value().array()->children[1]);
  batch = OwnedArray();
  EXPECT_EQ(Slice(static_cast<const char*>(column.array().buffers[2]), 1), "v");
}

}  // namespace
}  // namespace holdfast::testing
