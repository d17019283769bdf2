// A base over std::map, and the fold of deltas into it: what RocksDB does for real.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "codec/delta_view.h"
#include "codec/store_key.h"
#include "holdfast/base.h"

namespace holdfast::testing {

using Entries = std::map<std::string, std::string>;

class MapIterator final : public BaseIterator {
 public:
  // Comes as far as `torn`, as RocksDB does to a block that is damaged: it is not valid there, and its status says why.
  MapIterator(Entries::const_iterator next, Entries::const_iterator end, Entries::const_iterator torn, int64_t* steps)
      : next_(next), end_(end), torn_(torn), steps_(steps) {}
  bool Valid() const override { return next_ != end_ && next_ != torn_; }
  void Next() override {
    ++next_;
    ++*steps_;
  }
  Slice key() const override { return next_->first; }
  Slice value() const override { return next_->second; }
  Status status() const override {
    return next_ != end_ && next_ == torn_ ? Status::Corrupt("a torn block") : Status::Ok();
  }

 private:
  Entries::const_iterator next_;
  Entries::const_iterator end_;
  Entries::const_iterator torn_;
  int64_t* steps_;
};

class MapBase final : public BaseReader {
 public:
  explicit MapBase(Entries entries) : entries_(std::move(entries)) {}

  Status MultiGet(std::span<const Slice> keys, GetSink& sink) override {
    ++multi_gets;
    keys_read += keys.size();
    if (fails) return Status::Corrupt("a torn block");
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i > 0 && !(keys[i - 1] < keys[i])) return Status::InternalError("keys are not sorted and distinct");
      const auto found = entries_.find(std::string(keys[i]));
      if (found != entries_.end()) sink.Found(i, found->second);
    }
    return Status::Ok();
  }

  Result<std::unique_ptr<BaseIterator>> Scan(Slice lower, Slice upper) override {
    ++scans;
    if (fails) return Status::Corrupt("a torn block");
    const auto end = upper.empty() ? entries_.cend() : entries_.lower_bound(std::string(upper));
    const auto begin = entries_.lower_bound(std::string(lower));
    return std::unique_ptr<BaseIterator>(std::make_unique<MapIterator>(begin, end, entries_.find(torn_key), &steps));
  }

  const Entries& entries() const { return entries_; }

  bool fails = false;
  std::string torn_key;  // scans that come to it fail there; empty: none
  int multi_gets = 0;
  size_t keys_read = 0;
  int scans = 0;
  int64_t steps = 0;

 private:
  Entries entries_;
};

inline void FoldInto(const OwnedArray& delta, Entries* entries) {
  const DeltaView view = std::move(DeltaView::Make(delta)).value();
  for (int64_t i = 0; i < view.length(); ++i) {
    std::string key = store_key::Make(view.key_group(i), view.state_id(i), view.key(i));
    if (view.has_value(i)) {
      (*entries)[std::move(key)] = view.value(i);
    } else {
      entries->erase(key);
    }
  }
}

}  // namespace holdfast::testing
