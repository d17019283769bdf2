// Reducing folds over values of one fixed width:
// the accumulator is the row itself, folded where it lies in the overlay.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "codec/value_header.h"
#include "state/fold.h"

namespace holdfast {

template <typename T, typename Function>
class FixedFoldCall final : public FoldCall {
 public:
  FixedFoldCall(const FoldRequest& request, const Type& type, Function function, std::optional<ArrayView> values)
      : request_(request), type_(type), function_(function), values_(std::move(values)) {
    if (request.with_results) results_.resize(static_cast<size_t>(request.rows));
  }

  Status Add(std::span<Entry* const> entries, int64_t begin) override {
    return request_.with_results ? AddRows<true>(entries, begin) : AddRows<false>(entries, begin);
  }

  Status Get(std::span<Entry* const> entries) override {
    for (const Entry* entry : entries) {
      if (entry->present() && entry->value_length != kStoredBytes) return Wrong(*entry);
      Note(*entry, next_++);
    }
    return Status::Ok();
  }

  Result<OwnedArray> Finish() override {
    validity_.AppendValid(request_.rows - validity_.length());
    const int64_t null_count = validity_.null_count();
    Validity validity{validity_.Finish(), null_count};
    if constexpr (sizeof(T) == 1) {
      if (type_.id == TypeId::kBool) {
        return MakeBool(std::vector<uint8_t>(results_.begin(), results_.end()), std::move(validity));
      }
    }
    return MakeFixedWidth(type_, std::move(results_), std::move(validity));
  }

 private:
  static constexpr size_t kStoredBytes = value_header::kBytes + sizeof(T);

  template <bool kWithResults>
  Status AddRows(std::span<Entry* const> entries, int64_t begin) {
    Table* const table = request_.table;
    T* const results = kWithResults ? results_.data() + begin : nullptr;
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry* const entry = entries[i];
      const int64_t row = begin + static_cast<int64_t>(i);
      const bool present = entry->present();
      if (present && entry->value_length != kStoredBytes) return Wrong(*entry);
      if (values_->IsNull(row)) {
        if constexpr (kWithResults) Note(*entry, row);
        continue;
      }
      T value = ValueAt(row);
      if (present) {
        T folded;
        std::memcpy(&folded, entry->value_bytes() + value_header::kBytes, sizeof(folded));
        if (!function_.Fold(folded, value, &value)) return OutOfRange(*entry, row);
        table->Touch(entry);
        std::memcpy(entry->value_bytes() + value_header::kBytes, &value, sizeof(value));
      } else {
        char stored[kStoredBytes] = {value_header::kRow};
        std::memcpy(stored + value_header::kBytes, &value, sizeof(value));
        table->Put(entry, {stored, kStoredBytes});
      }
      if constexpr (kWithResults) results[i] = value;
    }
    return Status::Ok();
  }

  T ValueAt(int64_t row) const {
    if constexpr (sizeof(T) == 1) {
      if (type_.id == TypeId::kBool) return static_cast<T>(values_->Bool(row) ? 1 : 0);
    }
    return values_->Value<T>(row);
  }

  void Note(const Entry& entry, int64_t row) {
    T& result = results_[static_cast<size_t>(row)];
    if (entry.present()) {
      std::memcpy(&result, entry.value_bytes() + value_header::kBytes, sizeof(result));
      return;
    }
    result = T{};
    validity_.AppendValid(row - validity_.length());
    validity_.AppendNull();
  }

  Status Wrong(const Entry& entry) const { return WrongAccumulator(*request_.table, entry, kStoredBytes); }
  Status OutOfRange(const Entry& entry, int64_t row) const {
    return FoldFailed(request_, row, entry,
                      std::string("the ") + Function::kName + " does not fit into " + type_.ToString() +
                          "; declare a wider type, or a float");
  }

  FoldRequest request_;
  const Type& type_;
  Function function_;
  std::optional<ArrayView> values_;
  std::vector<T, UninitializedAllocator<T>> results_;
  ValidityBuilder validity_;  // up to the last null
  int64_t next_ = 0;          // row of a call of get
};

template <typename T, typename Function>
class FixedFold final : public Fold {
 public:
  FixedFold(Type type, Function function) : type_(std::move(type)), function_(function) {}

  Result<std::unique_ptr<FoldCall>> Start(const FoldRequest& request) const override {
    std::optional<ArrayView> values;
    if (request.values != nullptr) {
      HOLDFAST_ASSIGN_OR_RETURN(values, ArrayView::Make(type_, request.values->schema(), request.values->array()));
    }
    return std::unique_ptr<FoldCall>(
        std::make_unique<FixedFoldCall<T, Function>>(request, type_, function_, std::move(values)));
  }

 private:
  Type type_;
  Function function_;
};

}  // namespace holdfast
