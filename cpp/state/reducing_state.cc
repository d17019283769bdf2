// Reducing states: which fold goes with a function and a type.
#include "state/fixed_fold.h"
#include "state/reduce_functions.h"
#include "state/row_fold.h"
#include "state/states.h"

namespace holdfast {

namespace {

using reduce::Int128;

template <typename T, typename Function>
std::unique_ptr<Fold> Fixed(const Type& type, Function function) {
  return std::make_unique<FixedFold<T, Function>>(type, function);
}

// Numbers, and what is stored as one: `Function<T>` over the C++ type of the value. Null when `type` is neither.
template <template <typename> typename Function>
std::unique_ptr<Fold> OverNumbers(const Type& type) {
  switch (type.id) {
    case TypeId::kInt8:
      return Fixed<int8_t>(type, Function<int8_t>{});
    case TypeId::kInt16:
      return Fixed<int16_t>(type, Function<int16_t>{});
    case TypeId::kInt32:
      return Fixed<int32_t>(type, Function<int32_t>{});
    case TypeId::kInt64:
    case TypeId::kDuration:
      return Fixed<int64_t>(type, Function<int64_t>{});
    case TypeId::kUInt8:
      return Fixed<uint8_t>(type, Function<uint8_t>{});
    case TypeId::kUInt16:
      return Fixed<uint16_t>(type, Function<uint16_t>{});
    case TypeId::kUInt32:
      return Fixed<uint32_t>(type, Function<uint32_t>{});
    case TypeId::kUInt64:
      return Fixed<uint64_t>(type, Function<uint64_t>{});
    case TypeId::kFloat:
      return Fixed<float>(type, Function<float>{});
    case TypeId::kDouble:
      return Fixed<double>(type, Function<double>{});
    default:
      return nullptr;
  }
}

std::unique_ptr<Fold> OfSum(const Type& type) {
  if (type.id != TypeId::kDecimal128) return OverNumbers<reduce::Sum>(type);
  Int128 limit = 1;
  for (int32_t i = 0; i < type.precision; ++i) limit *= 10;
  return Fixed<Int128>(type, reduce::DecimalSum{limit});
}

std::unique_ptr<Fold> OfProduct(const Type& type) {
  return type.id == TypeId::kDuration ? nullptr : OverNumbers<reduce::Product>(type);
}

template <template <typename> typename Function>
std::unique_ptr<Fold> OfOrder(const Type& type) {
  switch (type.id) {
    case TypeId::kDate32:
    case TypeId::kTime32:
      return Fixed<int32_t>(type, Function<int32_t>{});
    case TypeId::kDate64:
    case TypeId::kTime64:
    case TypeId::kTimestamp:
      return Fixed<int64_t>(type, Function<int64_t>{});
    case TypeId::kDecimal128:
      return Fixed<Int128>(type, Function<Int128>{});
    default:
      return OverNumbers<Function>(type);
  }
}

template <template <typename> typename Function>
std::unique_ptr<Fold> OfPosition(const Type& type) {
  if (!type.children.empty() || type.id == TypeId::kFixedSizeBinary) return nullptr;
  switch (type.byte_width) {
    case 1:
      return Fixed<uint8_t>(type, Function<uint8_t>{});
    case 2:
      return Fixed<uint16_t>(type, Function<uint16_t>{});
    case 4:
      return Fixed<uint32_t>(type, Function<uint32_t>{});
    case 8:
      return Fixed<uint64_t>(type, Function<uint64_t>{});
    case 16:
      return Fixed<Int128>(type, Function<Int128>{});
    default:
      return nullptr;
  }
}

std::unique_ptr<Fold> OfBool(const Type& type, bool conjunction) {
  if (type.id != TypeId::kBool) return nullptr;
  return conjunction ? Fixed<uint8_t>(type, reduce::BoolAnd{}) : Fixed<uint8_t>(type, reduce::BoolOr{});
}

bool IsBytes(const Type& type) {
  return type.id == TypeId::kString || type.id == TypeId::kBinary || type.id == TypeId::kFixedSizeBinary;
}

Result<std::unique_ptr<Fold>> OfRows(const Type& type, RowFunction function) {
  HOLDFAST_ASSIGN_OR_RETURN(RowCodec codec, RowCodec::Make(type));
  return MakeRowFold(std::move(codec), function);
}

Result<std::unique_ptr<Fold>> MakeFold(const Type& type, const std::string& function) {
  std::unique_ptr<Fold> fold;
  const bool position = function == "first" || function == "last";
  if (function == "sum") fold = OfSum(type);
  if (function == "product") fold = OfProduct(type);
  if (function == "min") fold = OfOrder<reduce::Min>(type);
  if (function == "max") fold = OfOrder<reduce::Max>(type);
  if (function == "first") fold = OfPosition<reduce::First>(type);
  if (function == "last") fold = OfPosition<reduce::Last>(type);
  if (function == "bool_and" || function == "bool_or") fold = OfBool(type, function == "bool_and");
  if (fold != nullptr) return fold;
  if (position && type.id != TypeId::kNull) {
    return OfRows(type, function == "first" ? RowFunction::kFirst : RowFunction::kLast);
  }
  if (IsBytes(type) && (function == "min" || function == "max")) {
    return OfRows(type, function == "min" ? RowFunction::kMin : RowFunction::kMax);
  }
  return Status::InvalidRequest("no reducing function '" + function + "' over " + type.ToString() +
                                "; there are sum and product over numbers, min and max over what has an order, first "
                                "and last over anything, bool_and and bool_or over booleans");
}

}  // namespace

std::unique_ptr<Fold> MakeFixedKeep(const Type& type) {
  return type.id == TypeId::kBool ? nullptr : OfPosition<reduce::First>(type);
}

Result<std::unique_ptr<ReducingTable>> MakeReducingState(SlotStore* store, Table* table, const Type& value,
                                                         const std::string& function) {
  HOLDFAST_ASSIGN_OR_RETURN(std::unique_ptr<Fold> fold, MakeFold(value, function));
  if (value.children.empty() && value.byte_width > 0) table->ExpectWidth(static_cast<size_t>(value.byte_width));
  return MakeReducingTable(store, table, std::move(fold));
}

}  // namespace holdfast
