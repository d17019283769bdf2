// Aggregating states: count, mean, variance and standard deviation (both of the sample), over numbers as doubles.
#include <algorithm>
#include <array>
#include <optional>

#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "codec/value_header.h"
#include "state/accumulators.h"
#include "state/fold.h"
#include "state/key_reader.h"
#include "state/states.h"

namespace holdfast {

namespace {

template <typename T>
void ToDoubles(const ArrayView& values, int64_t begin, size_t count, double* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<double>(values.Value<T>(begin + static_cast<int64_t>(i)));
}

bool IsNumber(const Type& type) {
  return (type.id >= TypeId::kInt8 && type.id <= TypeId::kUInt64) || type.id == TypeId::kFloat ||
         type.id == TypeId::kDouble;
}

// Values of rows [begin, begin + count); of nulls, anything.
void ReadDoubles(const ArrayView& values, int64_t begin, size_t count, double* out) {
  switch (values.type().id) {
    case TypeId::kInt8:
      return ToDoubles<int8_t>(values, begin, count, out);
    case TypeId::kInt16:
      return ToDoubles<int16_t>(values, begin, count, out);
    case TypeId::kInt32:
      return ToDoubles<int32_t>(values, begin, count, out);
    case TypeId::kInt64:
      return ToDoubles<int64_t>(values, begin, count, out);
    case TypeId::kUInt8:
      return ToDoubles<uint8_t>(values, begin, count, out);
    case TypeId::kUInt16:
      return ToDoubles<uint16_t>(values, begin, count, out);
    case TypeId::kUInt32:
      return ToDoubles<uint32_t>(values, begin, count, out);
    case TypeId::kUInt64:
      return ToDoubles<uint64_t>(values, begin, count, out);
    case TypeId::kFloat:
      return ToDoubles<float>(values, begin, count, out);
    case TypeId::kDouble:
      return ToDoubles<double>(values, begin, count, out);
    default:
      std::fill_n(out, count, 0.0);  // count counts rows of any type
  }
}

template <typename Accumulator>
class AggregateCall final : public FoldCall {
 public:
  AggregateCall(const FoldRequest& request, const Type& output, std::optional<ArrayView> values)
      : request_(request), output_(output), values_(std::move(values)) {
    if (request.with_results) results_.reserve(static_cast<size_t>(request.rows));
  }

  Status Add(std::span<Entry* const> entries, int64_t begin) override {
    std::array<double, KeyReader::kBlockRows> doubles;
    ReadDoubles(*values_, begin, entries.size(), doubles.data());
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry* entry = entries[i];
      Accumulator accumulator;
      if (entry->present() && !Load(*entry, &accumulator)) return Wrong(*entry);
      if (!values_->IsNull(begin + static_cast<int64_t>(i))) {
        accumulator.Add(doubles[i]);
        Save(entry, accumulator);
      }
      if (request_.with_results) Note(accumulator);
    }
    return Status::Ok();
  }

  Status Get(std::span<Entry* const> entries) override {
    for (const Entry* entry : entries) {
      Accumulator accumulator;
      if (entry->present() && !Load(*entry, &accumulator)) return Wrong(*entry);
      Note(accumulator);
    }
    return Status::Ok();
  }

  Result<OwnedArray> Finish() override {
    const int64_t null_count = validity_.null_count();
    return MakeFixedWidth(output_, std::move(results_), {validity_.Finish(), null_count});
  }

 private:
  static constexpr size_t kStoredBytes = value_header::kBytes + Accumulator::kRowBytes;

  static bool Load(const Entry& entry, Accumulator* accumulator) {
    return entry.value_length == kStoredBytes && accumulator->Load(entry.value_bytes() + value_header::kBytes);
  }
  void Save(Entry* entry, const Accumulator& accumulator) {
    if (entry->present()) {
      request_.table->Touch(entry);
      accumulator.Save(entry->value_bytes() + value_header::kBytes);
    } else {
      char stored[kStoredBytes] = {value_header::kRow};
      accumulator.Save(stored + value_header::kBytes);
      request_.table->Put(entry, {stored, sizeof(stored)});
    }
  }
  void Note(const Accumulator& accumulator) {
    const bool has_output = accumulator.HasOutput();
    results_.push_back(has_output ? accumulator.Result() : typename Accumulator::Output{});
    if (has_output) {
      validity_.AppendValid();
    } else {
      validity_.AppendNull();
    }
  }
  Status Wrong(const Entry& entry) const { return WrongAccumulator(*request_.table, entry, kStoredBytes); }

  FoldRequest request_;
  const Type& output_;
  std::optional<ArrayView> values_;
  std::vector<typename Accumulator::Output, UninitializedAllocator<typename Accumulator::Output>> results_;
  ValidityBuilder validity_;
};

template <typename Accumulator>
class Aggregate final : public Fold {
 public:
  explicit Aggregate(Type type) : type_(std::move(type)) {
    const bool integer = std::is_integral_v<typename Accumulator::Output>;
    output_.id = integer ? TypeId::kInt64 : TypeId::kDouble;
    output_.byte_width = sizeof(typename Accumulator::Output);
  }

  Result<std::unique_ptr<FoldCall>> Start(const FoldRequest& request) const override {
    std::optional<ArrayView> values;
    if (request.values != nullptr) {
      HOLDFAST_ASSIGN_OR_RETURN(values, ArrayView::Make(type_, request.values->schema(), request.values->array()));
    }
    return std::unique_ptr<FoldCall>(std::make_unique<AggregateCall<Accumulator>>(request, output_, std::move(values)));
  }

 private:
  Type type_;
  Type output_;
};

template <typename Accumulator>
std::unique_ptr<Fold> MakeAggregate(const Type& type, Table* table) {
  table->ExpectWidth(Accumulator::kRowBytes);
  return std::make_unique<Aggregate<Accumulator>>(type);
}

}  // namespace

Result<std::unique_ptr<AggregatingTable>> MakeAggregatingState(SlotStore* store, Table* table, const Type& value,
                                                               const std::string& function) {
  std::unique_ptr<Fold> fold;
  if (function == "count") fold = MakeAggregate<CountAccumulator>(value, table);
  if (IsNumber(value)) {
    if (function == "avg") fold = MakeAggregate<MeanAccumulator>(value, table);
    if (function == "variance") fold = MakeAggregate<VarianceAccumulator>(value, table);
    if (function == "stddev") fold = MakeAggregate<DeviationAccumulator>(value, table);
  }
  if (fold == nullptr) {
    return Status::InvalidRequest("no aggregating function '" + function + "' over " + value.ToString() +
                                  "; there are count over anything, and avg, variance and stddev over integers and "
                                  "floats (cast decimals to double first)");
  }
  return MakeAggregatingTable(store, table, std::move(fold));
}

}  // namespace holdfast
