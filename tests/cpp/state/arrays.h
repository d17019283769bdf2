// Arrow arrays from C++ values and back, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "holdfast/store.h"

namespace holdfast::testing {

template <typename T>
T Value(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}
inline void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
inline void ExpectError(const Status& status, Code code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

inline Type Primitive(TypeId id, int32_t byte_width, const char* name = "") {
  Type type;
  type.id = id;
  type.byte_width = byte_width;
  type.name = name;
  return type;
}
inline Type Int64() { return Primitive(TypeId::kInt64, 8); }
inline Type Double() { return Primitive(TypeId::kDouble, 8); }
inline Type String() { return Primitive(TypeId::kString, 0); }
inline Type Bool() { return Primitive(TypeId::kBool, 1); }
inline Type Decimal(int32_t precision, int32_t scale) {
  Type type = Primitive(TypeId::kDecimal128, 16);
  type.precision = precision;
  type.scale = scale;
  return type;
}
inline Type KeyType() {
  Type type = Primitive(TypeId::kStruct, 0);
  type.children = {Primitive(TypeId::kInt64, 8, "user")};
  return type;
}

template <typename T>
OwnedArray Fixed(const Type& type, const std::vector<std::optional<T>>& values) {
  ArrayBuilder builder(type);
  for (const std::optional<T>& value : values) {
    if (value.has_value()) {
      builder.AppendFixed(reinterpret_cast<const char*>(&*value));
    } else {
      builder.AppendNull();
    }
  }
  return Value(builder.Finish());
}
inline OwnedArray Ints(const std::vector<std::optional<int64_t>>& values) { return Fixed(Int64(), values); }
inline OwnedArray Keys(const std::vector<int64_t>& keys) { return Ints({keys.begin(), keys.end()}); }
inline OwnedArray Doubles(const std::vector<std::optional<double>>& values) { return Fixed(Double(), values); }
inline OwnedArray Strings(const std::vector<std::optional<std::string>>& values) {
  ArrayBuilder builder(String());
  for (const std::optional<std::string>& value : values) {
    if (value.has_value()) {
      builder.AppendBytes(*value);
    } else {
      builder.AppendNull();
    }
  }
  return Value(builder.Finish());
}

template <typename T>
std::vector<std::optional<T>> FixedOf(const ArrayView& view, int64_t begin, int64_t end) {
  std::vector<std::optional<T>> values;
  for (int64_t i = begin; i < end; ++i) {
    values.push_back(view.IsNull(i) ? std::nullopt : std::optional<T>(view.Value<T>(i)));
  }
  return values;
}
inline std::vector<std::optional<std::string>> StringsOf(const ArrayView& view, int64_t begin, int64_t end) {
  std::vector<std::optional<std::string>> values;
  for (int64_t i = begin; i < end; ++i) {
    values.push_back(view.IsNull(i) ? std::nullopt : std::optional<std::string>(view.Bytes(i)));
  }
  return values;
}

// An array with the view that reads it.
class Read {
 public:
  explicit Read(Result<OwnedArray> array)
      : array_(Value(std::move(array))),
        type_(Value(ImportType(std::as_const(array_).schema()))),
        view_(Value(ArrayView::Make(type_, std::as_const(array_).schema(), std::as_const(array_).array()))) {}
  Read(const Read&) = delete;
  Read& operator=(const Read&) = delete;
  const ArrayView* operator->() const { return &view_; }
  const ArrayView& operator*() const { return view_; }
  const Type& type() const { return type_; }

 private:
  OwnedArray array_;
  Type type_;
  ArrayView view_;
};

inline std::vector<std::optional<int64_t>> IntsOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  EXPECT_EQ(read.type().id, TypeId::kInt64);
  return FixedOf<int64_t>(*read, 0, read->length());
}
inline std::vector<std::optional<double>> DoublesOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  EXPECT_EQ(read.type().id, TypeId::kDouble);
  return FixedOf<double>(*read, 0, read->length());
}
inline std::vector<std::optional<std::string>> StringsOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  return StringsOf(*read, 0, read->length());
}
inline std::vector<bool> BoolsOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  std::vector<bool> values;
  for (int64_t i = 0; i < read->length(); ++i) values.push_back(read->Bool(i));
  return values;
}
using StringList = std::vector<std::optional<std::string>>;
inline std::vector<StringList> ListsOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  std::vector<StringList> lists;
  for (int64_t i = 0; i < read->length(); ++i) {
    lists.push_back(StringsOf(read->child(0), read->List(i).begin, read->List(i).end));
  }
  return lists;
}
// In the order in which the map came.
using StringMap = std::vector<std::pair<std::string, std::optional<int64_t>>>;
inline std::vector<StringMap> MapsOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  std::vector<StringMap> maps(static_cast<size_t>(read->length()));
  for (int64_t i = 0; i < read->length(); ++i) {
    for (int64_t j = read->List(i).begin; j < read->List(i).end; ++j) {
      const ArrayView& values = read->child(1);
      maps[static_cast<size_t>(i)].emplace_back(
          read->child(0).Bytes(j), values.IsNull(j) ? std::nullopt : std::optional<int64_t>(values.Value<int64_t>(j)));
    }
  }
  return maps;
}

// Time, key, namespace.
using Timer = std::tuple<int64_t, int64_t, std::string>;
// What TakeDue gives.
inline std::vector<Timer> TimersOf(Result<OwnedArray> array) {
  const Read read(std::move(array));
  std::vector<Timer> timers;
  for (int64_t i = 0; i < read->length(); ++i) {
    timers.emplace_back(read->child(1).Value<int64_t>(i), read->child(0).child(0).Value<int64_t>(i),
                        std::string(read->child(2).Bytes(i)));
  }
  return timers;
}
// What List gives for these keys.
inline std::vector<std::vector<Timer>> TimersByKey(Result<OwnedArray> array, const std::vector<int64_t>& keys) {
  const Read read(std::move(array));
  std::vector<std::vector<Timer>> timers(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    for (int64_t j = read->List(row).begin; j < read->List(row).end; ++j) {
      timers[i].emplace_back(read->child(0).child(0).Value<int64_t>(j), keys[i],
                             std::string(read->child(0).child(1).Bytes(j)));
    }
  }
  return timers;
}

inline std::unique_ptr<Store> MakeStore(bool complete = false,
                                        int64_t delta_bytes_max = StoreOptions().delta_bytes_max) {
  return Value(Store::Make(KeyType(), {.max_parallelism = 64,
                                       .first_key_group = 0,
                                       .end_key_group = 64,
                                       .complete = complete,
                                       .delta_bytes_max = delta_bytes_max}));
}

}  // namespace holdfast::testing
