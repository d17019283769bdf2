#include "overlay/key_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace holdfast {

void KeyOrder::Arrived(const Entry& entry) {
  FirstKey& first = first_[entry.key_group - groups_.first];
  const Slice key = entry.key();
  if (watches()) Keep(entry, /*arrived=*/true);
  if (first.state != FirstKey::State::kNone && first.bound < key) return;
  first.state = FirstKey::State::kExact;
  first.bound.assign(key);
}

void KeyOrder::Left(const Entry& entry) {
  FirstKey& first = first_[entry.key_group - groups_.first];
  if (watches()) Keep(entry, /*arrived=*/false);
  if (first.state == FirstKey::State::kExact && first.bound == entry.key()) first.state = FirstKey::State::kAtLeast;
}

void KeyOrder::Watch(Slice begin, Slice end, size_t bytes) {
  if (!watches()) watched_.emplace();
  watched_->begin.assign(begin);
  watched_->end.assign(end);
  watched_->bytes = bytes;
}

void KeyOrder::Keep(const Entry& entry, bool arrived) {
  const Slice key = entry.key();
  Changes& changes = watched_->changes;
  if (!watched_->end.empty() && key >= watched_->end) return;
  // One that is not asked for again is of no interest, unless it has arrived again.
  if (!arrived && key < watched_->begin && changes.in_order.empty()) return;
  char* const copy = changes.keys.Allocate(key.size());
  std::copy(key.begin(), key.end(), copy);
  changes.in_order.push_back({{copy, key.size()}, entry.key_group, arrived});
}

std::span<const std::vector<SortKey>> KeyOrder::Runs() {
  if (tail_.empty()) return runs_;
  SortKey::Sort(&tail_);
  runs_.push_back(std::exchange(tail_, {}));
  while (runs_.size() > 1 && runs_[runs_.size() - 2].size() < 2 * runs_.back().size()) {
    std::vector<SortKey> merged;
    const std::vector<SortKey>& longer = runs_[runs_.size() - 2];
    merged.reserve(longer.size() + runs_.back().size());
    std::merge(longer.begin(), longer.end(), runs_.back().begin(), runs_.back().end(), std::back_inserter(merged));
    runs_.pop_back();
    runs_.back() = std::move(merged);
  }
  return runs_;
}

void KeyOrder::TakeEntries(KeyOrder* other) {
  runs_ = std::move(other->runs_);
  tail_ = std::move(other->tail_);
}

void KeyOrder::DropEntries() {
  runs_ = {};
  tail_ = {};
}

void KeyOrder::SetFirst(uint16_t key_group, FirstKey::State state, Slice bound) {
  FirstKey& first = first_[key_group - groups_.first];
  first.state = state;
  first.bound.assign(bound);
}

void KeyOrder::Forget() {
  Unwatch();
  first_.assign(groups_.count, {complete_ ? FirstKey::State::kNone : FirstKey::State::kAtLeast, {}});
}

size_t KeyOrder::memory_bytes() const {
  size_t bytes = first_.capacity() * sizeof(FirstKey) + tail_.capacity() * sizeof(SortKey) +
                 (watches() ? watched_->bytes + watched_->changes.keys.memory_bytes() : 0);
  for (const std::vector<SortKey>& run : runs_) bytes += run.capacity() * sizeof(SortKey);
  return bytes;
}

}  // namespace holdfast
