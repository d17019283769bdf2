#include "codec/random_arrays.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace holdfast::testing_codec {

Type Fixed(TypeId id, int32_t byte_width) {
  Type type;
  type.id = id;
  type.byte_width = byte_width;
  if (id == TypeId::kDecimal128) {
    type.precision = 38;
    type.scale = 4;
  }
  if (id == TypeId::kTime64 || id == TypeId::kTimestamp || id == TypeId::kDuration) type.unit = TimeUnit::kMicro;
  if (id == TypeId::kDate64 || id == TypeId::kTime32) type.unit = TimeUnit::kMilli;
  return type;
}

Type String() { return Fixed(TypeId::kString, 0); }

Type ListOf(Type element) {
  Type type = Fixed(TypeId::kList, 0);
  element.name = "item";
  type.children = {std::move(element)};
  return type;
}

Type MapOf(Type key, Type value) {
  Type type = Fixed(TypeId::kMap, 0);
  key.name = "key";
  key.nullable = false;
  value.name = "value";
  type.children = {std::move(key), std::move(value)};
  return type;
}

Type StructOf(std::vector<Type> fields) {
  Type type = Fixed(TypeId::kStruct, 0);
  type.children = std::move(fields);
  for (size_t i = 0; i < type.children.size(); ++i) {
    std::string& name = type.children[i].name;
    name.assign(1, static_cast<char>('a' + i % 26));
    if (i >= 26) name.append(std::to_string(i / 26));
  }
  return type;
}

std::vector<Type> KeyTypes() {
  return {Fixed(TypeId::kBool, 1),
          Fixed(TypeId::kInt8, 1),
          Fixed(TypeId::kInt16, 2),
          Fixed(TypeId::kInt32, 4),
          Fixed(TypeId::kInt64, 8),
          Fixed(TypeId::kUInt8, 1),
          Fixed(TypeId::kUInt16, 2),
          Fixed(TypeId::kUInt32, 4),
          Fixed(TypeId::kUInt64, 8),
          Fixed(TypeId::kFloat, 4),
          Fixed(TypeId::kDouble, 8),
          Fixed(TypeId::kDecimal128, 16),
          Fixed(TypeId::kDate32, 4),
          Fixed(TypeId::kDate64, 8),
          Fixed(TypeId::kTime32, 4),
          Fixed(TypeId::kTime64, 8),
          Fixed(TypeId::kTimestamp, 8),
          Fixed(TypeId::kDuration, 8),
          String(),
          Fixed(TypeId::kBinary, 0),
          Fixed(TypeId::kFixedSizeBinary, 3)};
}

std::vector<Type> RowTypes() {
  std::vector<Type> types = KeyTypes();
  types.push_back(Fixed(TypeId::kNull, 0));
  types.push_back(Fixed(TypeId::kFixedSizeBinary, 0));
  types.push_back(StructOf(types));
  types.push_back(StructOf({}));
  types.push_back(StructOf({Fixed(TypeId::kInt64, 8), String(), Fixed(TypeId::kDouble, 8)}));
  types.push_back(StructOf({StructOf({Fixed(TypeId::kInt64, 8), StructOf({String()})}), Fixed(TypeId::kBool, 1)}));
  for (const Type& element : {Fixed(TypeId::kInt32, 4), Fixed(TypeId::kBool, 1), String(), Fixed(TypeId::kNull, 0),
                              StructOf({}), StructOf({String(), Fixed(TypeId::kInt8, 1)})}) {
    types.push_back(ListOf(element));
    types.push_back(ListOf(ListOf(element)));
    types.push_back(MapOf(String(), element));
    types.push_back(StructOf({ListOf(element), MapOf(Fixed(TypeId::kInt64, 8), ListOf(element))}));
  }
  types.push_back(MapOf(StructOf({String(), Fixed(TypeId::kInt8, 1)}), MapOf(String(), String())));
  return types;
}

namespace {

uint64_t RandomBits(Random& random) {
  // Small numbers, borders and anything at all: so that equal values and neighbours turn up.
  switch (random() % 4) {
    case 0:
      return random() % 5 - 2;
    case 1:
      return uint64_t{1} << (random() % 64);
    case 2:
      return (uint64_t{1} << (random() % 64)) - 1;
    default:
      return random();
  }
}

template <typename F, typename T>
void AppendRandomFloat(Random& random, ArrayBuilder* out) {
  const F special[] = {F{0},
                       -F{0},
                       std::numeric_limits<F>::infinity(),
                       -std::numeric_limits<F>::infinity(),
                       std::numeric_limits<F>::quiet_NaN(),
                       -std::numeric_limits<F>::quiet_NaN(),
                       std::numeric_limits<F>::denorm_min(),
                       F{1},
                       -F{1}};
  const F value =
      random() % 2 == 0 ? special[random() % std::size(special)] : std::bit_cast<F>(static_cast<T>(random()));
  out->AppendFixed(reinterpret_cast<const char*>(&value));
}

std::string RandomBytes(Random& random, size_t length) {
  // Few distinct bytes, so that prefixes, zeros and equal strings turn up.
  const char alphabet[] = {'\0', '\1', 'a', 'b', '\xFF', '\xFE'};
  std::string bytes(length, ' ');
  for (char& byte : bytes) byte = alphabet[random() % std::size(alphabet)];
  return bytes;
}

}  // namespace

void AppendRandom(const Type& type, const RandomOptions& options, Random& random, ArrayBuilder* out) {
  if (type.id == TypeId::kNull || (options.nulls && type.nullable && random() % 4 == 0)) return out->AppendNull();
  const size_t elements = random() % static_cast<size_t>(options.max_elements + 1);
  switch (type.id) {
    case TypeId::kStruct:
      for (size_t i = 0; i < type.children.size(); ++i) {
        AppendRandom(type.children[i], options, random, &out->child(i));
      }
      return out->AppendStruct();
    case TypeId::kList:
    case TypeId::kMap:
      for (size_t i = 0; i < elements; ++i) {
        for (size_t c = 0; c < type.children.size(); ++c) {
          AppendRandom(type.children[c], options, random, &out->child(c));
        }
      }
      return out->AppendList();
    case TypeId::kString:
    case TypeId::kBinary:
      return out->AppendBytes(RandomBytes(random, elements));
    case TypeId::kBool: {
      const char value = random() % 2 == 0 ? 0 : 1;
      return out->AppendFixed(&value);
    }
    case TypeId::kFloat:
      return AppendRandomFloat<float, uint32_t>(random, out);
    case TypeId::kDouble:
      return AppendRandomFloat<double, uint64_t>(random, out);
    case TypeId::kFixedSizeBinary:
      return out->AppendFixed(RandomBytes(random, static_cast<size_t>(type.byte_width)).data());
    default: {
      const uint64_t value[2] = {RandomBits(random), random() % 2 == 0 ? 0 - (random() % 2) : RandomBits(random)};
      return out->AppendFixed(reinterpret_cast<const char*>(value));
    }
  }
}

OwnedArray RandomArray(const Type& type, int64_t rows, const RandomOptions& options, Random& random) {
  ArrayBuilder builder(type);
  for (int64_t i = 0; i < rows; ++i) AppendRandom(type, options, random, &builder);
  auto array = builder.Finish();
  EXPECT_TRUE(array.ok()) << array.status().message();
  return std::move(array).value();
}

ArrayView View(const Type& type, const OwnedArray& array) {
  auto view = ArrayView::Make(type, array.schema(), array.array());
  EXPECT_TRUE(view.ok()) << view.status().message();
  return std::move(view).value();
}

bool Equal(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j) {
  if (left.IsNull(i) || right.IsNull(j)) return left.IsNull(i) == right.IsNull(j);
  const Type& type = left.type();
  if (type.id == TypeId::kString || type.id == TypeId::kBinary) return left.Bytes(i) == right.Bytes(j);
  if (type.id == TypeId::kBool) return left.Bool(i) == right.Bool(j);
  if (type.id == TypeId::kStruct) {
    for (size_t c = 0; c < left.children(); ++c) {
      if (!Equal(left.child(c), i, right.child(c), j)) return false;
    }
    return true;
  }
  if (type.id == TypeId::kList || type.id == TypeId::kMap) {
    const ArrayView::Range a = left.List(i);
    const ArrayView::Range b = right.List(j);
    if (a.end - a.begin != b.end - b.begin) return false;
    for (int64_t k = 0; k < a.end - a.begin; ++k) {
      for (size_t c = 0; c < left.children(); ++c) {
        if (!Equal(left.child(c), a.begin + k, right.child(c), b.begin + k)) return false;
      }
    }
    return true;
  }
  const auto width = static_cast<size_t>(type.byte_width);
  return width == 0 || std::memcmp(left.fixed() + i * type.byte_width, right.fixed() + j * type.byte_width, width) == 0;
}

namespace {

template <typename T>
int CompareNumbers(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j) {
  const T a = left.Value<T>(i);
  const T b = right.Value<T>(j);
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - static_cast<int>(std::isnan(b));
  }
  return a < b ? -1 : (b < a ? 1 : 0);
}

int CompareDecimals(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j) {
  __extension__ using Int128 = __int128;
  return CompareNumbers<Int128>(left, i, right, j);
}

}  // namespace

int Compare(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j) {
  if (left.IsNull(i) || right.IsNull(j)) return static_cast<int>(right.IsNull(j)) - static_cast<int>(left.IsNull(i));
  switch (left.type().id) {
    case TypeId::kStruct:
      for (size_t c = 0; c < left.children(); ++c) {
        const int order = Compare(left.child(c), i, right.child(c), j);
        if (order != 0) return order;
      }
      return 0;
    case TypeId::kBool:
      return static_cast<int>(left.Bool(i)) - static_cast<int>(right.Bool(j));
    case TypeId::kString:
    case TypeId::kBinary:
      return left.Bytes(i).compare(right.Bytes(j));
    case TypeId::kFixedSizeBinary: {
      const auto width = static_cast<size_t>(left.type().byte_width);
      return Slice(left.fixed() + i * left.type().byte_width, width)
          .compare(Slice(right.fixed() + j * right.type().byte_width, width));
    }
    case TypeId::kInt8:
      return CompareNumbers<int8_t>(left, i, right, j);
    case TypeId::kInt16:
      return CompareNumbers<int16_t>(left, i, right, j);
    case TypeId::kUInt8:
      return CompareNumbers<uint8_t>(left, i, right, j);
    case TypeId::kUInt16:
      return CompareNumbers<uint16_t>(left, i, right, j);
    case TypeId::kUInt32:
      return CompareNumbers<uint32_t>(left, i, right, j);
    case TypeId::kUInt64:
      return CompareNumbers<uint64_t>(left, i, right, j);
    case TypeId::kFloat:
      return CompareNumbers<float>(left, i, right, j);
    case TypeId::kDouble:
      return CompareNumbers<double>(left, i, right, j);
    case TypeId::kDecimal128:
      return CompareDecimals(left, i, right, j);
    default:
      return left.type().byte_width == 4 ? CompareNumbers<int32_t>(left, i, right, j)
                                         : CompareNumbers<int64_t>(left, i, right, j);
  }
}

}  // namespace holdfast::testing_codec
