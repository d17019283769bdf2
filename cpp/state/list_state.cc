// List states: each element is a key of its own, under an index that grows with every append. Appending reads nothing.
#include "codec/array_builder.h"
#include "codec/value_header.h"
#include "state/element_keys.h"
#include "state/states.h"
#include "state/stored_rows.h"

namespace holdfast {

namespace {

class ListState final : public ListTable {
 public:
  ListState(SlotStore* store, Table* table, RowCodec codec) : store_(store), table_(table), codec_(std::move(codec)) {
    type_.id = TypeId::kList;
    type_.children = {codec_.type()};
    type_.children[0].name = "item";
    type_.children[0].nullable = true;
  }

  Status Append(const OwnedArray& keys, const OwnedArray& values) override {
    return store_->Run({"append", table_, Access::kWrite}, [&]() -> Status {
      HOLDFAST_RETURN_IF_ERROR(CheckRows(values, keys, "values"));
      ByteColumn rows;
      std::vector<bool> nulls;
      HOLDFAST_RETURN_IF_ERROR(codec_.Encode(values.schema(), values.array(), value_header::kRowPrefix, &rows, &nulls));
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(rows, 0, "element"));
      return ForEachHeadBlock(store_, table_, keys, [&](int64_t begin, std::span<const HeadKey> heads) {
        return AppendBlock(heads, begin, rows, nulls);
      });
    });
  }

  Result<OwnedArray> Get(const OwnedArray& keys) override {
    return store_->Run({"get", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      HOLDFAST_ASSIGN_OR_RETURN(const std::vector<HeadKey> heads, LoadElements(store_, table_, keys, ScanFor::kValues));
      const Elements elements = CollectElements(table_, heads);
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray values, DecodeValues(codec_, table_->state_id(), elements.entries));
      return MakeList(type_, elements.offsets, std::move(values));
    });
  }

  Status Clear(const OwnedArray& keys) override { return ClearElements(store_, table_, keys); }

 private:
  Status AppendBlock(std::span<const HeadKey> heads, int64_t begin, const ByteColumn& rows,
                     const std::vector<bool>& nulls) {
    std::array<uint64_t, KeyReader::kBlockRows> indexes;
    for (size_t i = 0; i < heads.size(); ++i) {
      HOLDFAST_ASSIGN_OR_RETURN(const uint64_t index, store_->engine()->NextOrdinal());
      indexes[i] = __builtin_bswap64(index);
      table_->PrefetchIndex(Table::ElementHash(heads[i].hash, Suffix(indexes[i])));
      Table::PrefetchItems(*heads[i].head);
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      Entry* entry = table_->InternElementOf(heads[i].head, heads[i].hash, Suffix(indexes[i]));
      const int64_t row = begin + static_cast<int64_t>(i);
      table_->Put(entry, nulls[static_cast<size_t>(row)] ? value_header::kNullValue : rows[row]);
    }
    return Status::Ok();
  }
  static Slice Suffix(const uint64_t& big_endian) {
    return {reinterpret_cast<const char*>(&big_endian), sizeof(big_endian)};
  }

  SlotStore* store_;
  Table* table_;
  RowCodec codec_;
  Type type_;
};

}  // namespace

Result<std::unique_ptr<ListTable>> MakeListState(SlotStore* store, Table* table, const Type& element) {
  HOLDFAST_ASSIGN_OR_RETURN(RowCodec codec, RowCodec::Make(element));
  if (codec.fixed_width() > 0) table->ExpectWidth(codec.fixed_width());
  return std::unique_ptr<ListTable>(std::make_unique<ListState>(store, table, std::move(codec)));
}

}  // namespace holdfast
