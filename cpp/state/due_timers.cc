#include "state/due_timers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "state/timer_key.h"

namespace holdfast {

namespace {

// A seek in a key group costs as much as reading some dozens of timers, so that many of each are worth reading at once.
constexpr size_t kAheadPerGroup = 128;
constexpr size_t kAheadBytesMax = size_t{64} << 20;
// Keys that nothing waits for any more may take so much, and as much as those that were read.
constexpr size_t kFewBytes = size_t{1} << 20;

ScanRange OneGroup(uint16_t key_group, Slice lower) {
  return {key_group, static_cast<uint16_t>(key_group + 1), lower, {}};
}

bool IsBefore(Slice key, Slice end) { return end.empty() || key < end; }

bool InOrder(const DueTimers::Timer& a, const DueTimers::Timer& b) {
  return a.time != b.time ? a.time < b.time : a.key < b.key;
}

Slice Copy(Slice key, Arena* arena) {
  char* const copy = arena->Allocate(key.size());
  std::copy(key.begin(), key.end(), copy);
  return {copy, key.size()};
}

// The key group whose first timer may be the slot's, or null. Among equals one that is known.
const FirstKey* LeastOf(const KeyOrder& order, uint16_t* key_group) {
  const FirstKey* least = nullptr;
  const KeyGroupRange groups = order.groups();
  for (uint16_t i = 0; i < groups.count; ++i) {
    const auto at = static_cast<uint16_t>(groups.first + i);
    const FirstKey& first = order.first(at);
    if (first.state == FirstKey::State::kNone) continue;
    const int compared = least == nullptr ? -1 : first.bound.compare(least->bound);
    if (compared > 0 || (compared == 0 && first.state != FirstKey::State::kExact)) continue;
    least = &first;
    *key_group = at;
  }
  return least;
}

}  // namespace

Result<std::span<const DueTimers::Timer>> DueTimers::Take(BaseReader* base, int64_t until, size_t limit) {
  const std::string after_due = timer_key::After(until);
  Update();
  const bool may_lack = ahead_.size() - next_ < limit && !end_.empty() && IsBefore(end_, after_due);
  if (!any() || may_lack) HOLDFAST_RETURN_IF_ERROR(ReadAhead(base, after_due, limit));
  const size_t first = next_;
  const size_t end = std::min(ahead_.size(), first + limit);
  while (next_ < end && IsBefore(ahead_[next_].key, after_due)) ++next_;
  Watch();
  return std::span<const Timer>(ahead_).subspan(first, next_ - first);
}

Result<std::optional<int64_t>> DueTimers::NextTime(BaseReader* base) {
  Update();
  if (any()) return std::optional<int64_t>(timer_key::Time(ahead_[next_].key));
  for (;;) {
    uint16_t key_group = 0;
    const FirstKey* least = LeastOf(*order_, &key_group);
    if (least == nullptr) return std::optional<int64_t>();
    if (least->state == FirstKey::State::kExact) return std::optional<int64_t>(timer_key::Time(least->bound));
    const std::string lower = least->bound;
    HOLDFAST_ASSIGN_OR_RETURN(const OrderedCursor cursor,
                              OrderedCursor::Make(table_, base, OneGroup(key_group, lower)));
    order_->SetFirst(key_group, cursor.Valid() ? FirstKey::State::kExact : FirstKey::State::kNone,
                     cursor.Valid() ? cursor.key() : Slice());
  }
}

Slice DueTimers::LowerBound(uint16_t key_group) const {
  const FirstKey& first = order_->first(key_group);
  if (!order_->watches() || !any()) return first.bound;
  const Slice waits = ahead_[next_].key;
  return first.state == FirstKey::State::kNone ? waits : std::min(waits, Slice(first.bound));
}

void DueTimers::Update() {
  if (!order_->watches()) {
    Keep({}, {});
    return;
  }
  KeyOrder::Changes changes = order_->TakeChanges();
  if (changes.in_order.empty()) return;
  std::stable_sort(changes.in_order.begin(), changes.in_order.end(),
                   [](const KeyOrder::Change& a, const KeyOrder::Change& b) { return a.key < b.key; });
  std::vector<Timer> merged;  // what waits, up to the last change
  for (size_t i = 0; i < changes.in_order.size(); ++i) {
    const KeyOrder::Change& change = changes.in_order[i];
    if (i + 1 < changes.in_order.size() && changes.in_order[i + 1].key == change.key) continue;  // not the last of it
    for (; any() && ahead_[next_].key < change.key; ++next_) merged.push_back(ahead_[next_]);
    if (any() && ahead_[next_].key == change.key) ++next_;
    if (change.arrived) merged.push_back({timer_key::Ordered(change.key), change.key, change.key_group});
  }
  // Mostly there is room for it where those stood that were taken.
  if (merged.size() > next_) {
    const size_t missing = merged.size() - next_;
    ahead_.insert(ahead_.begin(), missing, Timer());
    next_ += missing;
  }
  next_ -= merged.size();
  std::copy(merged.begin(), merged.end(), ahead_.begin() + static_cast<std::ptrdiff_t>(next_));
  keys_bytes_ += changes.keys.memory_bytes();
  keys_.push_back(std::move(changes.keys));
  if (keys_bytes_ > kFewBytes + 2 * kept_bytes_) CompactKeys();
  Watch();
}

Status DueTimers::ReadAhead(BaseReader* base, std::string end, size_t limit) {
  const KeyGroupRange groups = order_->groups();
  Found found{std::move(end), limit, std::max(limit, kAheadPerGroup * groups.count), kAheadBytesMax};
  for (uint16_t i = 0; i < groups.count; ++i) {
    const auto key_group = static_cast<uint16_t>(groups.first + i);
    const FirstKey& first = order_->first(key_group);
    if (first.state == FirstKey::State::kNone || !IsBefore(first.bound, found.end)) continue;
    const bool waits = any() && first.bound < end_;  // what is before the end waits already
    HOLDFAST_RETURN_IF_ERROR(ReadGroup(base, key_group, waits ? end_ : first.bound, &found));
  }
  Cut(&found);
  std::sort(found.timers.begin(), found.timers.end(), InOrder);
  for (const Visited& visited : found.visited) {
    // What was left out comes from the end on, in whatever key group.
    order_->SetFirst(visited.key_group, found.cut ? FirstKey::State::kAtLeast : visited.state,
                     found.cut ? found.end : visited.bound);
  }
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(next_));
  for (Timer& timer : ahead_) timer.key = Copy(timer.key, &found.keys);
  ahead_.insert(ahead_.end(), found.timers.begin(), found.timers.end());
  Keep(std::move(ahead_), std::move(found.keys));
  end_ = std::move(found.end);
  return Status::Ok();
}

Status DueTimers::ReadGroup(BaseReader* base, uint16_t key_group, const std::string& lower, Found* found) {
  HOLDFAST_ASSIGN_OR_RETURN(OrderedCursor cursor, OrderedCursor::Make(table_, base, OneGroup(key_group, lower)));
  while (cursor.Valid() && IsBefore(cursor.key(), found->end)) {
    const Slice key = Copy(cursor.key(), &found->keys);
    found->timers.push_back({timer_key::Ordered(key), key, key_group});
    if (found->timers.size() / 2 >= found->count_max || found->keys.memory_bytes() > found->bytes_max) Cut(found);
    HOLDFAST_RETURN_IF_ERROR(cursor.Next());
  }
  found->visited.push_back({key_group, cursor.Valid() ? FirstKey::State::kExact : FirstKey::State::kNone,
                            cursor.Valid() ? std::string(cursor.key()) : std::string()});
  return Status::Ok();
}

void DueTimers::Cut(Found* found) {
  const bool too_large = found->keys.memory_bytes() > found->bytes_max;
  if (too_large) found->count_max = std::max(found->limit, std::min(found->count_max, found->timers.size() / 2));
  if (found->timers.size() > found->count_max) {
    const auto end = found->timers.begin() + static_cast<std::ptrdiff_t>(found->count_max);
    std::nth_element(found->timers.begin(), end - 1, found->timers.end(), InOrder);
    found->timers.erase(end, found->timers.end());
    found->end.assign(found->timers.back().key).push_back('\0');  // the next possible key
    found->cut = true;
  }
  if (!too_large) return;
  Arena kept;
  for (Timer& timer : found->timers) timer.key = Copy(timer.key, &kept);
  found->keys = std::move(kept);
  found->bytes_max = std::max(found->bytes_max, 2 * found->keys.memory_bytes());
}

void DueTimers::Keep(std::vector<Timer> timers, Arena keys) {
  ahead_ = std::move(timers);
  next_ = 0;
  kept_bytes_ = keys_bytes_ = keys.memory_bytes();
  keys_.clear();
  keys_.push_back(std::move(keys));
}

void DueTimers::CompactKeys() {
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(next_));
  Arena kept;
  for (Timer& timer : ahead_) timer.key = Copy(timer.key, &kept);
  Keep(std::move(ahead_), std::move(kept));
}

// When nothing waits, the first keys say all there is to know.
void DueTimers::Watch() {
  if (!any()) {
    order_->Unwatch();
    return;
  }
  order_->Watch(ahead_[next_].key, end_, ahead_.capacity() * sizeof(Timer) + keys_bytes_);
}

}  // namespace holdfast
