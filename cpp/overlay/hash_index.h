// Open addressing over records that live elsewhere: a power of two of slots, linear probing, the whole hash beside the
// pointer, so that a probe touches one cache line and growing touches no record. Nothing is ever erased.
// Slots are chosen by the high bits of the hash: the low ones choose the key group and are alike within a slot of
// Spark.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace holdfast {

template <typename Record>
class HashIndex {
 public:
  struct Slot {
    uint64_t hash;
    Record* record;  // null: empty
  };

  size_t size() const { return size_; }
  size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

  void Prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash >> shift_]);
  }
  // The first record of the probe sequence whose hash is equal, or null: a guess, for prefetching.
  Record* Guess(uint64_t hash) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[hash >> shift_];
    return slot.hash == hash ? slot.record : nullptr;
  }

  // The record with this hash for which `equals(record)`; null when there is none.
  template <typename Equals>
  Record* Find(uint64_t hash, Equals&& equals) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.record == nullptr) return nullptr;
      if (slot.hash == hash && equals(*slot.record)) return slot.record;
    }
  }

  // The same; when there is none, inserts what `make()` returns.
  template <typename Equals, typename Make>
  Record* FindOrInsert(uint64_t hash, Equals&& equals, Make&& make) {
    if (size_ * 8 >= slots_.size() * 5) Grow();
    for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.record == nullptr) {
        slot = {hash, make()};
        ++size_;
        return slot.record;
      }
      if (slot.hash == hash && equals(*slot.record)) return slot.record;
    }
  }

  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.record != nullptr) visit(slot.hash, slot.record);
    }
  }

 private:
  static constexpr size_t kMinSlots = 16;

  void Grow() {
    const size_t count = slots_.empty() ? kMinSlots : slots_.size() * 2;
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(count, Slot{0, nullptr}));
    mask_ = count - 1;
    shift_ = 64 - std::countr_zero(count);
    for (const Slot& slot : old) {
      if (slot.record == nullptr) continue;
      size_t i = slot.hash >> shift_;
      while (slots_[i].record != nullptr) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  size_t mask_ = 0;
  int shift_ = 63;
};

}  // namespace holdfast
