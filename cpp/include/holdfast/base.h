// The base of a slot: the immutable, sorted store under the overlay. See docs/rfcs/0001.
// The overlay and the states know this interface only; cpp/rocksdb implements it, tests implement it over std::map.
// Thread-safety: a BaseReader may be used from any one thread at a time; several readers of one directory may coexist.
#pragma once

#include <memory>
#include <span>

#include "holdfast/bytes.h"
#include "holdfast/status.h"

namespace holdfast {

// Receives the values that MultiGet finds. `index` is the position in the keys asked for; `value` is valid only
// during the call. Not called for keys that do not exist.
class GetSink {
 public:
  virtual ~GetSink() = default;
  virtual void Found(size_t index, Slice value) = 0;
};

// Entries in key order. Usage: `while (it->Valid()) { ...; it->Next(); }` then check status().
class BaseIterator {
 public:
  virtual ~BaseIterator() = default;
  virtual bool Valid() const = 0;
  virtual void Next() = 0;
  virtual Slice key() const = 0;    // valid until Next()
  virtual Slice value() const = 0;  // valid until Next()
  virtual Status status() const = 0;
};

class BaseReader {
 public:
  virtual ~BaseReader() = default;
  // `keys` are full store keys, sorted ascending, without duplicates.
  virtual Status MultiGet(std::span<const Slice> keys, GetSink& sink) = 0;
  // Entries with lower <= key < upper; an empty `upper` means "to the end".
  virtual Result<std::unique_ptr<BaseIterator>> Scan(Slice lower, Slice upper) = 0;
};

}  // namespace holdfast
