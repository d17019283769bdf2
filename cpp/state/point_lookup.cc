#include "state/point_lookup.h"

#include <algorithm>

namespace holdfast {

Result<PointLookup> PointLookup::Make(SlotStore* store, Table* table, const OwnedArray& keys, Need need) {
  HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store, keys));
  store->engine()->CountLookups(reader.length());
  PointLookup lookup(store, table, std::move(reader), need);
  lookup.entries_.resize(static_cast<size_t>(std::min(lookup.length(), KeyReader::kBlockRows)));
  return lookup;
}

Status PointLookup::Intern(int64_t begin, int64_t end, size_t at) {
  HOLDFAST_RETURN_IF_ERROR(reader_.Read(begin, end));
  const int64_t rows = end - begin;
  Entry** out = entries_.data() + at;
  for (int64_t i = 0; i < rows; ++i) table_->PrefetchIndex(reader_.hash(i));
  for (int64_t i = 0; i < rows; ++i) out[i] = table_->PrefetchEntry(reader_.hash(i));
  for (int64_t i = 0; i < rows; ++i) {
    if (Table::IsOf(out[i], reader_.key(i))) [[likely]]
      continue;
    HOLDFAST_RETURN_IF_ERROR(reader_.FindGroup(i));
    out[i] = table_->Intern(reader_[i]);
  }
  if (need_ == Need::kNothing) return Status::Ok();
  for (int64_t i = 0; i < rows; ++i) {
    if ((out[i]->flags & (Entry::kKnown | Entry::kAsked)) != 0) continue;
    out[i]->flags |= Entry::kAsked;
    unknown_.push_back(out[i]);
  }
  return Status::Ok();
}

Status PointLookup::InternRest() {
  first_row_ = begin_;
  entries_.resize(static_cast<size_t>(length() - first_row_));
  interned_ = true;
  Status status;
  for (int64_t begin = end_; begin < length() && status.ok(); begin += KeyReader::kBlockRows) {
    const int64_t end = std::min(begin + KeyReader::kBlockRows, length());
    status = Intern(begin, end, static_cast<size_t>(begin - first_row_));
  }
  if (!status.ok()) {
    for (Entry* entry : unknown_) entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kAsked);
    return status;
  }
  return ReadEntries(store_->base(), table_, &unknown_, store_->read_counters());
}

Result<std::span<Entry* const>> PointLookup::Next() {
  begin_ = end_;
  end_ = std::min(begin_ + KeyReader::kBlockRows, length());
  const auto rows = static_cast<size_t>(end_ - begin_);
  if (rows == 0) return std::span<Entry* const>();
  if (!interned_) {
    HOLDFAST_RETURN_IF_ERROR(Intern(begin_, end_, 0));
    if (unknown_.empty()) return Settled({entries_.data(), rows});
    HOLDFAST_RETURN_IF_ERROR(InternRest());
  }
  Entry* const* block = entries_.data() + (begin_ - first_row_);
  for (size_t i = 0; i < rows; ++i) __builtin_prefetch(block[i], 1);
  return Settled({block, rows});
}

std::span<Entry* const> PointLookup::Settled(std::span<Entry* const> block) {
  if (need_ == Need::kNothing || !table_->settles()) return block;
  for (Entry* entry : block) table_->Settle(entry, /*refresh=*/true);
  return block;
}

Status CollectEntries(SlotStore* store, Table* table, const OwnedArray& keys, std::vector<const Entry*>* entries) {
  HOLDFAST_ASSIGN_OR_RETURN(PointLookup lookup, PointLookup::Make(store, table, keys, Need::kValues));
  entries->reserve(static_cast<size_t>(lookup.length()));
  for (;;) {
    HOLDFAST_ASSIGN_OR_RETURN(const std::span<Entry* const> block, lookup.Next());
    if (block.empty()) return Status::Ok();
    entries->insert(entries->end(), block.begin(), block.end());
  }
}

Status ClearEntries(SlotStore* store, Table* table, const OwnedArray& keys) {
  return store->Run({"clear", table, Access::kWrite}, [&]() -> Status {
    HOLDFAST_ASSIGN_OR_RETURN(PointLookup lookup, PointLookup::Make(store, table, keys, Need::kNothing));
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const std::span<Entry* const> block, lookup.Next());
      if (block.empty()) return Status::Ok();
      for (Entry* entry : block) table->Remove(entry);
    }
  });
}

}  // namespace holdfast
