#include "overlay/ordered_cursor.h"

#include <algorithm>

#include "codec/store_key.h"
#include "overlay/base_read.h"

namespace holdfast {

OrderedCursor::OrderedCursor(Table* table, BaseReader* base, const ScanRange& range)
    : table_(table),
      reader_(base),
      key_group_(range.first_group),
      end_group_(range.end_group),
      lower_(range.lower),
      upper_(range.upper) {
  if (table->order() != nullptr) return;
  table->ForEachEntry([&](Entry* entry) {
    if (entry->key_group >= range.first_group && entry->key_group < range.end_group) {
      sorted_.push_back(SortKey::Of(entry));
    }
  });
  std::sort(sorted_.begin(), sorted_.end());
}

Result<OrderedCursor> OrderedCursor::Make(Table* table, BaseReader* base, const ScanRange& range) {
  OrderedCursor cursor(table, base, range);
  const bool empty = range.first_group >= range.end_group || (!range.upper.empty() && range.upper <= range.lower);
  if (empty) return cursor;
  HOLDFAST_RETURN_IF_ERROR(cursor.Enter());
  HOLDFAST_RETURN_IF_ERROR(cursor.Settle());
  return cursor;
}

Status OrderedCursor::Enter() {
  runs_.clear();
  const auto add = [this](std::span<const SortKey> run) {
    if (const Run part = PartOf(run); part.next < part.end) runs_.push_back(part);
  };
  if (table_->order() == nullptr) {
    add(sorted_);
  } else {
    for (const std::vector<SortKey>& run : table_->order()->Runs()) add(run);
  }
  if (reader_ == nullptr) return Status::Ok();
  const std::string lower = store_key::Make(key_group_, table_->state_id(), lower_);
  const std::string upper = upper_.empty() ? store_key::Successor(store_key::Make(key_group_, table_->state_id(), {}))
                                           : store_key::Make(key_group_, table_->state_id(), upper_);
  HOLDFAST_ASSIGN_OR_RETURN(base_, reader_->Scan(lower, upper));
  return Status::Ok();
}

OrderedCursor::Run OrderedCursor::PartOf(std::span<const SortKey> run) const {
  const auto first_at = [&run, this](Slice key) {
    const SortKey bound = SortKey::Of(key_group_, key);
    return std::partition_point(run.begin(), run.end(), [&](const SortKey& item) { return Before(item, bound, key); });
  };
  const auto lower = first_at(lower_);
  const auto upper =
      !upper_.empty() ? first_at(upper_) : std::partition_point(lower, run.end(), [this](const SortKey& item) {
        return item.high >> 48 == key_group_;
      });
  return {run.data() + (lower - run.begin()), run.data() + (upper - run.begin())};
}

OrderedCursor::Run* OrderedCursor::LeastRun() {
  Run* least = nullptr;
  for (Run& run : runs_) {
    if (run.next != run.end && (least == nullptr || *run.next < *least->next)) least = &run;
  }
  return least;
}

Status OrderedCursor::Next() {
  if (from_run_ != nullptr) ++from_run_->next;
  if (from_base_) base_->Next();
  return Settle();
}

// What the overlay holds was checked when it came.
Status OrderedCursor::CheckStored(Slice value) const {
  if (key_.size() < layout::BeforeKeyBytes(table_->state_id())) {
    return Status::Corrupt("state " + std::to_string(table_->state_id()) + ", key group " + std::to_string(key_group_) +
                           ": a stored key has " + std::to_string(key_.size()) +
                           " bytes, too few for what stands before the key; restore from another version");
  }
  if (IsStoredValue(value, table_->version())) return Status::Ok();
  return StoredValueError(value, table_->version(), table_->state_id(), key_group_);
}

Status OrderedCursor::Settle() {
  for (;;) {
    HOLDFAST_RETURN_IF_ERROR(SettleInGroup());
    if (valid_ || key_group_ + 1 >= end_group_) return Status::Ok();
    ++key_group_;
    HOLDFAST_RETURN_IF_ERROR(Enter());
  }
}

Status OrderedCursor::SettleInGroup() {
  for (;;) {
    // One that failed stands nowhere, as one that is at its end does: to go on without it would leave out what it has.
    if (base_ != nullptr && !base_->Valid()) {
      HOLDFAST_RETURN_IF_ERROR(base_->status());
      base_.reset();
    }
    from_run_ = LeastRun();
    entry_ = from_run_ == nullptr ? nullptr : from_run_->next->entry;
    from_base_ = base_ != nullptr;
    valid_ = from_base_ || entry_ != nullptr;
    if (!valid_) return Status::Ok();
    if (from_base_) {
      const Slice key = base_->key().substr(store_key::kPrefixBytes);
      const int order = entry_ == nullptr ? -1 : key.compare(entry_->key());
      if (order < 0) {
        from_run_ = nullptr;
        entry_ = nullptr;
      } else if (order > 0) {
        from_base_ = false;
      }
    }
    if (entry_ != nullptr && entry_->known()) {
      if (table_->IsLive(*entry_)) {
        key_ = entry_->key();
        row_ = value_header::Row(entry_->value());
        return Status::Ok();
      }
    } else if (from_base_) {
      key_ = base_->key().substr(store_key::kPrefixBytes);
      const Slice value = base_->value();
      HOLDFAST_RETURN_IF_ERROR(CheckStored(value));
      if (!table_->IsExpired(value)) {
        row_ = value_header::StoredRow(value);
        return Status::Ok();
      }
    }
    if (from_run_ != nullptr) ++from_run_->next;
    if (from_base_) base_->Next();
  }
}

}  // namespace holdfast
