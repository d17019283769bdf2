// Which version the overlay is at, and what of it the base does not hold yet.
//
// Every change carries a mark, a counter that moves on whenever a batch begins, a delta is taken or applied. An entry
// is pending when its mark is above the base's. Moving to another base moves one number; no entry is visited.
// Invariants: base_mark() < mark(); entries changed since the last take_delta are exactly those with mark() itself.
// Thread-safety: none; belongs to the Store.
#pragma once

#include <cstdint>
#include <deque>

#include "holdfast/status.h"

namespace holdfast {

class Versions {
 public:
  // List indexes are sequence << 32 | ordinal (docs/formats/value.md).
  static constexpr int64_t kSequenceMax = 0xFFFFFFFEL;

  int64_t sequence() const { return sequence_; }
  int64_t base_sequence() const { return base_sequence_; }
  bool in_batch() const { return batch_sequence_ >= 0; }
  int64_t batch_sequence() const { return batch_sequence_; }
  uint32_t mark() const { return mark_; }
  bool IsPending(uint32_t mark) const { return mark > base_mark_; }

  Status Begin(int64_t sequence);
  void DeltaTaken();
  void Commit();
  // The mark for the entries of a delta that is about to be applied is mark() afterwards.
  Status BeginApply(int64_t sequence);

  // `empty`: the overlay holds nothing that another base could contradict.
  // `changed`: something was changed since the last take_delta.
  Status SetBase(int64_t sequence, bool empty, bool changed);
  // The overlay was dropped. Until SetBase it cannot be read if it held what the base does not.
  void Reset();
  // InvalidRequest between a Reset that dropped pending entries and SetBase.
  Status CheckReadable() const;

  // An entry of `old_bytes` under `old_mark` has become `new_bytes` under mark().
  void Account(uint32_t old_mark, size_t old_bytes, size_t new_bytes) {
    if (IsPending(old_mark)) BytesOf(old_mark) -= static_cast<int64_t>(old_bytes);
    if (IsPending(mark_)) BytesOf(mark_) += static_cast<int64_t>(new_bytes);
  }
  int64_t pending_bytes() const;
  int64_t changed_bytes() const { return bytes_.empty() ? 0 : bytes_.back(); }

 private:
  struct Committed {
    int64_t sequence;
    uint32_t mark;
  };

  int64_t& BytesOf(uint32_t mark) { return bytes_[mark - base_mark_ - 1]; }
  void NextMark();
  void MoveBaseMark(uint32_t mark);
  void Record(int64_t sequence);

  int64_t sequence_ = 0;
  int64_t base_sequence_ = 0;
  int64_t batch_sequence_ = -1;
  int64_t applied_sequence_ = -1;
  bool delta_taken_ = false;  // in the batch at hand
  bool unreadable_ = false;
  uint32_t mark_ = 1;
  uint32_t base_mark_ = 0;
  std::deque<Committed> committed_;  // above the base, oldest first
  std::deque<int64_t> bytes_ = {0};  // of marks base_mark_ + 1 … mark_
};

}  // namespace holdfast
