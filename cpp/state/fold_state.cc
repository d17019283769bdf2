// Reducing and aggregating states: a fold over the entries of their keys.
#include "state/fold.h"
#include "state/key_text.h"
#include "state/point_lookup.h"

namespace holdfast {

namespace {

template <typename Interface>
class FoldState final : public Interface {
 public:
  FoldState(SlotStore* store, Table* table, std::unique_ptr<Fold> fold)
      : store_(store), table_(table), fold_(std::move(fold)) {}

  Result<OwnedArray> Add(const OwnedArray& keys, const OwnedArray& values) override {
    return store_->Run({"add", table_, Access::kWrite}, [&]() -> Result<OwnedArray> {
      HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<FoldCall> call, Run(keys, &values, /*with_results=*/true));
      return call->Finish();
    });
  }

  Status AddOnly(const OwnedArray& keys, const OwnedArray& values) override {
    return store_->Run({"add_only", table_, Access::kWrite},
                       [&]() -> Status { return Run(keys, &values, /*with_results=*/false).status(); });
  }

  Result<OwnedArray> Get(const OwnedArray& keys) override {
    return store_->Run({"get", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<FoldCall> call, Run(keys, nullptr, /*with_results=*/true));
      return call->Finish();
    });
  }

  Status Clear(const OwnedArray& keys) override { return ClearEntries(store_, table_, keys); }

 private:
  Result<std::unique_ptr<FoldCall>> Run(const OwnedArray& keys, const OwnedArray* values, bool with_results) {
    if (values != nullptr) HOLDFAST_RETURN_IF_ERROR(CheckRows(*values, keys, "values"));
    HOLDFAST_ASSIGN_OR_RETURN(std::unique_ptr<FoldCall> call,
                              fold_->Start({&store_->key_codec(), table_, values, keys.length(), with_results}));
    HOLDFAST_ASSIGN_OR_RETURN(PointLookup lookup, PointLookup::Make(store_, table_, keys, Need::kValues));
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const std::span<Entry* const> entries, lookup.Next());
      if (entries.empty()) return call;
      HOLDFAST_RETURN_IF_ERROR(values == nullptr ? call->Get(entries) : call->Add(entries, lookup.begin()));
    }
  }

  SlotStore* store_;
  Table* table_;
  std::unique_ptr<Fold> fold_;
};

}  // namespace

std::unique_ptr<ReducingTable> MakeReducingTable(SlotStore* store, Table* table, std::unique_ptr<Fold> fold) {
  return std::make_unique<FoldState<ReducingTable>>(store, table, std::move(fold));
}

std::unique_ptr<AggregatingTable> MakeAggregatingTable(SlotStore* store, Table* table, std::unique_ptr<Fold> fold) {
  return std::make_unique<FoldState<AggregatingTable>>(store, table, std::move(fold));
}

Status FoldFailed(const FoldRequest& request, int64_t row, const Entry& entry, const std::string& reason) {
  return Status::InvalidRequest("row " + std::to_string(row) + ", key " + KeyText(*request.key_codec, entry.key()) +
                                ": " + reason);
}

Status WrongAccumulator(const Table& table, const Entry& entry, size_t expected_bytes) {
  return Status::Corrupt("state " + std::to_string(table.state_id()) + ", key group " +
                         std::to_string(entry.key_group) + ": expected a stored value of " +
                         std::to_string(expected_bytes) + " bytes, found " + std::to_string(entry.value_length) +
                         "; restore from another version");
}

}  // namespace holdfast
