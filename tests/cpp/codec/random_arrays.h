// Random types and arrays, and what it means that two values are equal or ordered: the oracles of the codec tests.
#pragma once

#include <random>
#include <vector>

#include "codec/array_builder.h"
#include "codec/array_view.h"

namespace holdfast::testing_codec {

using Random = std::mt19937_64;

Type Fixed(TypeId id, int32_t byte_width);
Type String();
Type ListOf(Type element);
Type MapOf(Type key, Type value);
Type StructOf(std::vector<Type> fields);  // fields are named a, b, c …

// One of each type that may be a key, without structs.
std::vector<Type> KeyTypes();
// Nested types of every shape, over all primitives.
std::vector<Type> RowTypes();

struct RandomOptions {
  bool nulls = true;
  int max_elements = 6;
};
void AppendRandom(const Type& type, const RandomOptions& options, Random& random, ArrayBuilder* out);
OwnedArray RandomArray(const Type& type, int64_t rows, const RandomOptions& options, Random& random);

ArrayView View(const Type& type, const OwnedArray& array);

bool Equal(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j);
// As docs/formats/key.md orders keys: < 0, 0 or > 0. Null first, NaN last.
int Compare(const ArrayView& left, int64_t i, const ArrayView& right, int64_t j);

}  // namespace holdfast::testing_codec
