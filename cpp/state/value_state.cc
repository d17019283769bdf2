// Value states: one value a key.
#include "codec/array_builder.h"
#include "codec/value_header.h"
#include "state/fold.h"
#include "state/point_lookup.h"
#include "state/states.h"
#include "state/stored_rows.h"

namespace holdfast {

namespace {

class ValueState final : public ValueTable {
 public:
  ValueState(SlotStore* store, Table* table, RowCodec codec)
      : store_(store), table_(table), codec_(std::move(codec)), fixed_(MakeFixedKeep(codec_.type())) {}

  Result<OwnedArray> Get(const OwnedArray& keys) override {
    return store_->Run({"get", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      if (fixed_ != nullptr) return GetFixed(keys);
      std::vector<const Entry*> entries;
      HOLDFAST_RETURN_IF_ERROR(CollectEntries(store_, table_, keys, &entries));
      return DecodeValues(codec_, table_->state_id(), entries);
    });
  }

  Result<OwnedArray> Contains(const OwnedArray& keys) override {
    return store_->Run({"contains", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      std::vector<const Entry*> entries;
      HOLDFAST_RETURN_IF_ERROR(CollectEntries(store_, table_, keys, &entries));
      std::vector<uint8_t> present(entries.size());
      for (size_t i = 0; i < entries.size(); ++i) present[i] = entries[i]->present() ? 1 : 0;
      return MakeBool(present);
    });
  }

  Status Put(const OwnedArray& keys, const OwnedArray& values) override {
    return store_->Run({"put", table_, Access::kWrite}, [&]() -> Status {
      HOLDFAST_RETURN_IF_ERROR(CheckRows(values, keys, "values"));
      ByteColumn rows;
      std::vector<bool> nulls;
      HOLDFAST_RETURN_IF_ERROR(codec_.Encode(values.schema(), values.array(), value_header::kRowPrefix, &rows, &nulls));
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(rows, 0, "value"));
      HOLDFAST_ASSIGN_OR_RETURN(PointLookup lookup, PointLookup::Make(store_, table_, keys, Need::kNothing));
      for (;;) {
        HOLDFAST_ASSIGN_OR_RETURN(const std::span<Entry* const> entries, lookup.Next());
        if (entries.empty()) return Status::Ok();
        for (size_t i = 0; i < entries.size(); ++i) {
          const int64_t row = lookup.begin() + static_cast<int64_t>(i);
          if (nulls[static_cast<size_t>(row)]) {
            table_->Remove(entries[i]);
          } else {
            table_->Put(entries[i], rows[row]);
          }
        }
      }
    });
  }

  Status Clear(const OwnedArray& keys) override { return ClearEntries(store_, table_, keys); }

 private:
  Result<OwnedArray> GetFixed(const OwnedArray& keys) {
    HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<FoldCall> call,
                              fixed_->Start({&store_->key_codec(), table_, nullptr, keys.length(), true}));
    HOLDFAST_ASSIGN_OR_RETURN(PointLookup lookup, PointLookup::Make(store_, table_, keys, Need::kValues));
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const std::span<Entry* const> entries, lookup.Next());
      if (entries.empty()) return call->Finish();
      HOLDFAST_RETURN_IF_ERROR(call->Get(entries));
    }
  }

  SlotStore* store_;
  Table* table_;
  RowCodec codec_;
  std::unique_ptr<Fold> fixed_;  // copies values of one width while their entries are at hand; null for other types
};

}  // namespace

Result<std::unique_ptr<ValueTable>> MakeValueState(SlotStore* store, Table* table, const Type& value) {
  HOLDFAST_ASSIGN_OR_RETURN(RowCodec codec, RowCodec::Make(value));
  if (codec.fixed_width() > 0) table->ExpectWidth(codec.fixed_width());
  return std::unique_ptr<ValueTable>(std::make_unique<ValueState>(store, table, std::move(codec)));
}

}  // namespace holdfast
