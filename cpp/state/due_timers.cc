#include "state/due_timers.h"

#include <algorithm>

#include "state/timer_key.h"

namespace holdfast {

namespace {

ScanRange OneGroup(uint16_t key_group, Slice lower) {
  return {key_group, static_cast<uint16_t>(key_group + 1), lower, {}};
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

Result<std::optional<int64_t>> NextDueTime(Table* table, BaseReader* base) {
  KeyOrder* const order = table->order();
  for (;;) {
    uint16_t key_group = 0;
    const FirstKey* least = LeastOf(*order, &key_group);
    if (least == nullptr) return std::optional<int64_t>();
    if (least->state == FirstKey::State::kExact) return std::optional<int64_t>(timer_key::Time(least->bound));
    const std::string lower = least->bound;
    HOLDFAST_ASSIGN_OR_RETURN(const OrderedCursor cursor, OrderedCursor::Make(table, base, OneGroup(key_group, lower)));
    order->SetFirst(key_group, cursor.Valid() ? FirstKey::State::kExact : FirstKey::State::kNone,
                    cursor.Valid() ? cursor.key() : Slice());
  }
}

Result<DueTimers> DueTimers::Find(Table* table, BaseReader* base, int64_t until, size_t limit) {
  DueTimers due(limit);
  const std::string after_due = timer_key::After(until);
  KeyOrder* const order = table->order();
  for (uint16_t i = 0; i < order->groups().count; ++i) {
    const auto key_group = static_cast<uint16_t>(order->groups().first + i);
    const FirstKey& first = order->first(key_group);
    if (first.state == FirstKey::State::kNone || (!after_due.empty() && first.bound >= after_due)) continue;
    HOLDFAST_RETURN_IF_ERROR(due.FindInGroup(table, base, key_group, after_due));
  }
  if (due.timers_.size() > limit) due.Cut();
  std::sort(due.timers_.begin(), due.timers_.end(), [](const Timer& a, const Timer& b) { return a.key < b.key; });
  for (const Visited& visited : due.visited_) {
    // What was left out comes after the cut, in whatever key group.
    const bool all = due.cut_at_.data() == nullptr;
    order->SetFirst(visited.key_group, all ? visited.state : FirstKey::State::kAtLeast,
                    all ? Slice(visited.bound) : due.cut_at_);
  }
  return due;
}

Status DueTimers::FindInGroup(Table* table, BaseReader* base, uint16_t key_group, Slice after_due) {
  const std::string lower = table->order()->first(key_group).bound;
  HOLDFAST_ASSIGN_OR_RETURN(OrderedCursor cursor, OrderedCursor::Make(table, base, OneGroup(key_group, lower)));
  while (cursor.Valid() && (after_due.empty() || cursor.key() < after_due)) {
    const Slice key = cursor.key();
    if (cut_at_.data() != nullptr && key > cut_at_) break;  // the rest of the key group comes later still
    char* const copy = keys_.Allocate(key.size());
    std::copy(key.begin(), key.end(), copy);
    timers_.push_back({{copy, key.size()}, key_group, cursor.entry()});
    if (timers_.size() >= 2 * limit_) Cut();
    HOLDFAST_RETURN_IF_ERROR(cursor.Next());
  }
  visited_.push_back({key_group, cursor.Valid() ? FirstKey::State::kExact : FirstKey::State::kNone,
                      cursor.Valid() ? std::string(cursor.key()) : std::string()});
  return Status::Ok();
}

void DueTimers::Cut() {
  if (timers_.size() <= limit_) return;
  const auto end = timers_.begin() + static_cast<std::ptrdiff_t>(limit_);
  std::nth_element(timers_.begin(), end - 1, timers_.end(),
                   [](const Timer& a, const Timer& b) { return a.key < b.key; });
  timers_.erase(end, timers_.end());
  cut_at_ = timers_.back().key;
}

}  // namespace holdfast
