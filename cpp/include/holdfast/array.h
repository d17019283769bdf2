// Arrow arrays at the edge of the core. OwnedArray owns one (RAII over the C release callbacks); ArrayView reads one
// that somebody else keeps alive. Views see through offsets, slices, dictionaries and string views.
#pragma once

#include <utility>

#include "holdfast/arrow_abi.h"
#include "holdfast/bytes.h"
#include "holdfast/type.h"

namespace holdfast {

// Owns an ArrowArray and its ArrowSchema. Movable, not copyable.
class OwnedArray {
 public:
  OwnedArray() = default;
  // Takes over the contents of both (they are marked released).
  OwnedArray(ArrowSchema* schema, ArrowArray* array) : schema_(*schema), array_(*array) {
    schema->release = nullptr;
    array->release = nullptr;
  }
  OwnedArray(OwnedArray&& other) noexcept { *this = std::move(other); }
  OwnedArray& operator=(OwnedArray&& other) noexcept {
    if (this != &other) {
      Release();
      schema_ = std::exchange(other.schema_, {});
      array_ = std::exchange(other.array_, {});
    }
    return *this;
  }
  OwnedArray(const OwnedArray&) = delete;
  OwnedArray& operator=(const OwnedArray&) = delete;
  ~OwnedArray() { Release(); }

  ArrowSchema* schema() { return &schema_; }
  ArrowArray* array() { return &array_; }
  const ArrowSchema& schema() const { return schema_; }
  const ArrowArray& array() const { return array_; }
  int64_t length() const { return array_.length; }

 private:
  void Release() {
    if (array_.release != nullptr) array_.release(&array_);
    if (schema_.release != nullptr) schema_.release(&schema_);
  }
  ArrowSchema schema_{};
  ArrowArray array_{};
};

}  // namespace holdfast
