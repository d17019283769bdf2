#include "overlay/versions.h"

#include <numeric>
#include <string>

namespace holdfast {

namespace {

std::string Text(int64_t sequence) { return std::to_string(sequence); }

}  // namespace

void Versions::NextMark() {
  ++mark_;
  bytes_.push_back(0);
}

void Versions::Record(int64_t sequence) {
  sequence_ = sequence;
  if (!committed_.empty() && committed_.back().sequence == sequence) committed_.pop_back();
  committed_.push_back({sequence, mark_});
}

Status Versions::Begin(int64_t sequence) {
  if (in_batch()) {
    return Status::InvalidRequest("batch " + Text(batch_sequence_) + " is in progress; commit it, or drop the Store");
  }
  if (sequence <= sequence_ || sequence > kSequenceMax) {
    return Status::InvalidRequest("a batch on top of sequence " + Text(sequence_) +
                                  " needs a sequence above it and at most " + Text(kSequenceMax) + ", found " +
                                  Text(sequence));
  }
  HOLDFAST_RETURN_IF_ERROR(CheckReadable());
  batch_sequence_ = sequence;
  delta_taken_ = false;
  NextMark();
  return Status::Ok();
}

void Versions::DeltaTaken() {
  delta_taken_ = true;
  NextMark();
}

void Versions::Commit() {
  Record(batch_sequence_);
  batch_sequence_ = -1;
  applied_sequence_ = -1;
  delta_taken_ = false;
}

Status Versions::BeginApply(int64_t sequence) {
  if (in_batch()) {
    return Status::InvalidRequest("a delta cannot be applied while batch " + Text(batch_sequence_) + " is in progress");
  }
  const bool continues = sequence == sequence_ && sequence == applied_sequence_;  // the next piece of one delta
  if ((sequence <= sequence_ && !continues) || sequence > kSequenceMax) {
    return Status::InvalidRequest("the store is at sequence " + Text(sequence_) + ", the delta of sequence " +
                                  Text(sequence) + " does not follow; apply deltas in order, each once");
  }
  HOLDFAST_RETURN_IF_ERROR(CheckReadable());
  NextMark();
  applied_sequence_ = sequence;
  Record(sequence);
  return Status::Ok();
}

Status Versions::SetBase(int64_t sequence, bool empty, bool changed) {
  if (sequence < 0 || sequence > kSequenceMax) {
    return Status::InvalidRequest("a base has a sequence from 0 to " + Text(kSequenceMax) + ", found " +
                                  Text(sequence));
  }
  const bool holds_batch = in_batch() && sequence == batch_sequence_;
  if (holds_batch && changed) {
    return Status::InvalidRequest("a base of batch " + Text(sequence) +
                                  " lacks what was changed since the last take_delta; take the delta first");
  }
  if (holds_batch) {
    MoveBaseMark(mark_ - 1);
    delta_taken_ = false;
  } else if (empty && !in_batch() && (unreadable_ || sequence > sequence_ || sequence < base_sequence_)) {
    sequence_ = sequence;
    applied_sequence_ = -1;
    committed_.clear();
    MoveBaseMark(mark_ - 1);
  } else {
    const bool lacks_dropped = unreadable_ && (sequence != sequence_ || delta_taken_);
    if (sequence > sequence_ || sequence < base_sequence_ || lacks_dropped) {
      return Status::InvalidRequest(
          "the store is at sequence " + Text(sequence_) + (in_batch() ? ", in batch " + Text(batch_sequence_) : "") +
          ", on a base of sequence " + Text(base_sequence_) + "; it cannot move to a base of sequence " +
          Text(sequence) + (lacks_dropped ? ", which lacks what reset() dropped" : "; open a new Store on that base"));
    }
    uint32_t mark = base_mark_;
    for (const Committed& committed : committed_) {
      if (committed.sequence <= sequence) mark = committed.mark;
    }
    if (mark == mark_) NextMark();
    MoveBaseMark(mark);
  }
  base_sequence_ = sequence;
  unreadable_ = false;
  while (!committed_.empty() && committed_.front().sequence <= sequence) committed_.pop_front();
  return Status::Ok();
}

void Versions::MoveBaseMark(uint32_t mark) {
  if (mark <= base_mark_) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(mark - base_mark_));
  base_mark_ = mark;
}

void Versions::Reset() {
  unreadable_ = unreadable_ || !committed_.empty() || delta_taken_ || pending_bytes() > 0;
  for (int64_t& bytes : bytes_) bytes = 0;
}

Status Versions::CheckReadable() const {
  if (!unreadable_) return Status::Ok();
  return Status::InvalidRequest("reset() dropped changes that the base lacks; set_base() to one that holds them first");
}

int64_t Versions::pending_bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0}); }

}  // namespace holdfast
