#include "overlay/base_read.h"

#include <algorithm>
#include <span>
#include <string>

#include "codec/store_key.h"
#include "codec/value_header.h"
#include "overlay/sort_key.h"

namespace holdfast {

namespace {

std::vector<SortKey> Sorted(const std::vector<Entry*>& entries) {
  std::vector<SortKey> items(entries.size());
  std::transform(entries.begin(), entries.end(), items.begin(), [](Entry* entry) { return SortKey::Of(entry); });
  SortKey::Sort(&items);
  return items;
}

class EntrySink final : public GetSink {
 public:
  EntrySink(Table* table, std::span<const SortKey> items) : table_(table), items_(items) {}

  void Found(size_t index, Slice value) override {
    Entry* entry = items_[index].entry;
    ++found_;
    Status status = table_->SetStored(entry, value, /*mark=*/0);
    if (!status.ok() && status_.ok()) status_ = std::move(status);
  }

  int64_t found() const { return found_; }
  const Status& status() const { return status_; }

 private:
  Table* table_;
  std::span<const SortKey> items_;
  int64_t found_ = 0;
  Status status_;
};

Status ReadSorted(BaseReader* base, Table* table, std::span<const SortKey> items, ReadCounters* counters) {
  std::vector<char> bytes;
  size_t total = 0;
  for (const SortKey& item : items) total += store_key::kPrefixBytes + item.entry->key_length;
  bytes.resize(total);
  std::vector<Slice> keys(items.size());
  char* next = bytes.data();
  for (size_t i = 0; i < items.size(); ++i) {
    const Slice key = items[i].entry->key();
    store_key::PutPrefix(items[i].entry->key_group, table->state_id(), next);
    std::memcpy(next + store_key::kPrefixBytes, key.data(), key.size());
    keys[i] = {next, store_key::kPrefixBytes + key.size()};
    next += keys[i].size();
  }
  EntrySink sink(table, items);
  Status status = base->MultiGet(keys, sink);
  counters->base_reads += static_cast<int64_t>(keys.size());
  counters->base_hits += sink.found();
  HOLDFAST_RETURN_IF_ERROR(std::move(status));
  return sink.status();
}

// The elements of one head.
Status ScanHead(BaseReader* base, Table* table, Head* head, ScanFor scan_for) {
  const std::string prefix = store_key::Make(head->key_group, table->state_id(), head->key());
  HOLDFAST_ASSIGN_OR_RETURN(const std::unique_ptr<BaseIterator> iterator,
                            base->Scan(prefix, store_key::Successor(prefix)));
  const uint64_t key_hash = IndexHash(head->key());
  for (; iterator->Valid(); iterator->Next()) {
    const Slice suffix = iterator->key().substr(prefix.size());
    if (suffix.empty()) {
      return Status::Corrupt("state " + std::to_string(table->state_id()) + ", key group " +
                             std::to_string(head->key_group) +
                             ": the base has a key of a list or map without an element");
    }
    // A value that cannot be read is no reason to leave it: it is about to be said.
    const Slice value = iterator->value();
    if (scan_for == ScanFor::kValues && value_header::IsWhole(value) && table->IsExpired(value)) {
      table->CountExpired();
      continue;
    }
    Entry* entry = table->InternElementOf(head, key_hash, suffix);
    if (entry->known()) continue;  // changed since the base was made
    if (scan_for == ScanFor::kTombstones) {
      table->SetRead(entry, value_header::kNullValue, /*present=*/true, /*mark=*/0);
      continue;
    }
    HOLDFAST_RETURN_IF_ERROR(table->SetStored(entry, value, /*mark=*/0));
  }
  return iterator->status();
}

// Elements that were asked for one by one and never read do not exist if the scan did not meet them.
void SettleAbsent(Table* table, Head* head) {
  for (uint32_t i = 0; i < head->count; ++i) {
    if (!head->items[i]->known()) table->SetRead(head->items[i], {}, /*present=*/false, /*mark=*/0);
  }
}

}  // namespace

Status ReadEntries(BaseReader* base, Table* table, std::vector<Entry*>* entries, ReadCounters* counters) {
  Status status;
  if (base != nullptr && !entries->empty()) {
    const std::vector<SortKey> items = Sorted(*entries);
    status = ReadSorted(base, table, items, counters);
  }
  for (Entry* entry : *entries) {
    if (!status.ok()) {
      entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kAsked);
    } else if (!entry->known()) {
      table->SetRead(entry, {}, /*present=*/false, /*mark=*/0);
    }
  }
  return status;
}

Status LoadHeads(BaseReader* base, Table* table, std::vector<Head*>* heads, ScanFor scan_for, ReadCounters* counters) {
  std::sort(heads->begin(), heads->end(), [](const Head* a, const Head* b) {
    return a->key_group != b->key_group ? a->key_group < b->key_group : a->key() < b->key();
  });
  for (Head* head : *heads) {
    if (head->loaded) continue;
    if (base != nullptr) {
      HOLDFAST_RETURN_IF_ERROR(ScanHead(base, table, head, scan_for));
      ++counters->base_scans;
    }
    SettleAbsent(table, head);
    head->loaded = true;
  }
  return Status::Ok();
}

}  // namespace holdfast
