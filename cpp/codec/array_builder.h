// Arrays made by the core. Two ways: ArrayBuilder appends value by value (any type), the Make functions wrap whole
// columns that exist already (no copy). All arrays come out in the type that ExportType writes.
// Thread-safety: a builder belongs to one thread; the arrays that it makes may be released on any.
#pragma once

#include <memory>
#include <vector>

#include "holdfast/array.h"

namespace holdfast {

// Leaves new elements uninitialised on resize: every byte is about to be written.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <typename U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
};
using Buffer = std::vector<char, UninitializedAllocator<char>>;

// One bit a value, packed; all valid when empty. Appending costs nothing until the first null.
class ValidityBuilder {
 public:
  void AppendValid() {
    if (!bits_.empty()) Push(true);
    ++length_;
  }
  void AppendValid(int64_t count) {
    if (bits_.empty()) {
      length_ += count;
    } else {
      for (int64_t i = 0; i < count; ++i) AppendValid();
    }
  }
  void AppendNull();
  int64_t length() const { return length_; }
  int64_t null_count() const { return null_count_; }
  std::vector<uint8_t> Finish() { return std::move(bits_); }

 private:
  void Push(bool valid) {
    const auto bit = static_cast<size_t>(length_);
    if (bit >> 3 >= bits_.size()) bits_.push_back(0);
    if (valid) bits_[bit >> 3] |= static_cast<uint8_t>(1U << (bit & 7));
  }
  std::vector<uint8_t> bits_;
  int64_t length_ = 0;
  int64_t null_count_ = 0;
};

// Builds one array of any type. Nested values are appended from the inside out: a struct's fields, a list's elements,
// a map's keys and values first, each into child(i), then AppendStruct or AppendList closes the row.
class ArrayBuilder {
 public:
  explicit ArrayBuilder(const Type& type);  // copies the type

  const Type& type() const { return type_; }
  int64_t length() const { return validity_.length(); }
  void Reserve(int64_t rows);
  // Of strings and binaries, or of structs whose only field is one: for so many bytes of them in all.
  void ReserveBytes(size_t bytes);

  void AppendNull();                     // structs: appends a null to each child as well
  void AppendFixed(const char* value) {  // type().byte_width bytes; a bool is one byte, 0 or 1
    const auto width = static_cast<size_t>(type_.byte_width);
    if (width > 0) std::memcpy(Grow(width), value, width);
    validity_.AppendValid();
  }
  // Room for `count` values that are not null, for the caller to fill (a bool is one byte); valid until the next call.
  char* AppendFixedRows(int64_t count) {
    validity_.AppendValid(count);
    return Grow(static_cast<size_t>(count * type_.byte_width));
  }
  void AppendBytes(Slice bytes) {  // string, binary
    if (!bytes.empty()) std::memcpy(Grow(bytes.size()), bytes.data(), bytes.size());
    offsets_.push_back(static_cast<int64_t>(values_.size()));
    validity_.AppendValid();
  }
  void AppendStruct() { validity_.AppendValid(); }
  void AppendList() {  // list, map: the row is what was appended to the children since the last row
    offsets_.push_back(children_[0].length());
    validity_.AppendValid();
  }
  ArrayBuilder& child(size_t i) { return children_[i]; }

  // InvalidRequest when one string, binary, list or map column outgrows Arrow's 32-bit offsets. The builder is spent.
  Result<OwnedArray> Finish();

 private:
  // `size` more bytes at the end of values_, not yet written.
  char* Grow(size_t size) {
    const size_t old_size = values_.size();
    values_.resize(old_size + size);
    return values_.data() + old_size;
  }
  Status FinishArray(ArrowArray* out);

  Type type_;
  ValidityBuilder validity_;
  Buffer values_;
  std::vector<int64_t> offsets_;
  std::vector<ArrayBuilder> children_;
};

// Which values are not null, packed as Arrow packs them; `bits` empty: all.
struct Validity {
  std::vector<uint8_t> bits;
  int64_t null_count = 0;
};
Validity ValidityOf(const std::vector<bool>& nulls);

// `values`: length * type.byte_width bytes. Not for bool.
OwnedArray MakeFixedWidth(const Type& type, Buffer values, int64_t length, Validity validity = {});
template <typename T, typename Allocator>
OwnedArray MakeFixedWidth(const Type& type, std::vector<T, Allocator> values, Validity validity = {});
// One byte a value, 0 or 1.
OwnedArray MakeBool(const std::vector<uint8_t>& values, Validity validity = {});
// Type binary; large_binary when the bytes outgrow 32-bit offsets.
OwnedArray MakeBinary(ByteColumn bytes, Validity validity = {});
// `offsets` has one entry more than there are rows and starts at 0. The children are taken over.
Result<OwnedArray> MakeList(const Type& list, const std::vector<int64_t>& offsets, OwnedArray elements,
                            Validity validity = {});
Result<OwnedArray> MakeMap(const Type& map, const std::vector<int64_t>& offsets, OwnedArray keys, OwnedArray values,
                           Validity validity = {});
OwnedArray MakeStruct(const Type& type, int64_t length, std::vector<OwnedArray> fields, Validity validity = {});

// What an exported array points to. `owners` keep the buffers alive; children are released with it.
struct ArrayParts {
  int64_t length = 0;
  int64_t null_count = 0;
  std::vector<const void*> buffers;
  std::vector<std::shared_ptr<void>> owners;
  std::vector<ArrowArray> children;
};
void ExportParts(ArrayParts parts, ArrowArray* out);
OwnedArray ExportParts(const Type& type, ArrayParts parts);

// Moves `values` behind a buffer of `parts`; an empty one becomes a buffer that is not null.
template <typename Vector>
void AddBuffer(Vector values, ArrayParts* parts) {
  auto owner = std::make_shared<Vector>(std::move(values));
  static const int64_t kEmpty[2] = {0, 0};
  parts->buffers.push_back(owner->empty() ? static_cast<const void*>(kEmpty) : owner->data());
  parts->owners.push_back(std::move(owner));
}
void AddValidity(Validity validity, ArrayParts* parts);

template <typename T, typename Allocator>
OwnedArray MakeFixedWidth(const Type& type, std::vector<T, Allocator> values, Validity validity) {
  ArrayParts parts;
  parts.length = static_cast<int64_t>(values.size());
  AddValidity(std::move(validity), &parts);
  AddBuffer(std::move(values), &parts);
  return ExportParts(type, std::move(parts));
}

}  // namespace holdfast
