// The functions of reducing states over one value type. `Fold(a, b, &out)` folds b into a; false: the result is out of
// range. Semantics, as Spark SQL's aggregates: integers never wrap, NaN is larger than anything, nulls are not folded.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace holdfast::reduce {

__extension__ typedef __int128 Int128;

template <typename T>
struct Sum {
  bool Fold(T a, T b, T* out) const {
    if constexpr (std::is_floating_point_v<T>) {
      *out = a + b;
      return true;
    } else {
      return !__builtin_add_overflow(a, b, out);
    }
  }
  static constexpr const char* kName = "sum";
};

// Decimals keep the precision that was declared.
struct DecimalSum {
  Int128 limit;  // 10 ^ precision
  bool Fold(Int128 a, Int128 b, Int128* out) const {
    return !__builtin_add_overflow(a, b, out) && *out < limit && *out > -limit;
  }
  static constexpr const char* kName = "sum";
};

template <typename T>
struct Product {
  bool Fold(T a, T b, T* out) const {
    if constexpr (std::is_floating_point_v<T>) {
      *out = a * b;
      return true;
    } else {
      return !__builtin_mul_overflow(a, b, out);
    }
  }
  static constexpr const char* kName = "product";
};

template <typename T>
inline bool Less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return false;
    if (std::isnan(b)) return true;
  }
  return a < b;
}

template <typename T>
struct Min {
  bool Fold(T a, T b, T* out) const {
    *out = Less(b, a) ? b : a;
    return true;
  }
  static constexpr const char* kName = "min";
};

template <typename T>
struct Max {
  bool Fold(T a, T b, T* out) const {
    *out = Less(a, b) ? b : a;
    return true;
  }
  static constexpr const char* kName = "max";
};

template <typename T>
struct First {
  bool Fold(T a, T /*b*/, T* out) const {
    *out = a;
    return true;
  }
  static constexpr const char* kName = "first";
};

template <typename T>
struct Last {
  bool Fold(T /*a*/, T b, T* out) const {
    *out = b;
    return true;
  }
  static constexpr const char* kName = "last";
};

// Booleans are rows of one byte, 0 or 1.
struct BoolAnd {
  bool Fold(uint8_t a, uint8_t b, uint8_t* out) const {
    *out = a & b;
    return true;
  }
  static constexpr const char* kName = "bool_and";
};

struct BoolOr {
  bool Fold(uint8_t a, uint8_t b, uint8_t* out) const {
    *out = a | b;
    return true;
  }
  static constexpr const char* kName = "bool_or";
};

}  // namespace holdfast::reduce
