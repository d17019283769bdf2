// A base over std::map: the simplest thing that keeps the contract of BaseReader. The oracle of the tests here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base.h"

namespace holdfast::testing {

using Entries = std::map<std::string, std::string, std::less<>>;

class MapIterator final : public BaseIterator {
 public:
  MapIterator(std::shared_ptr<const Entries> entries, Slice lower, Slice upper)
      : entries_(std::move(entries)), position_(entries_->lower_bound(lower)), upper_(upper) {}

  bool Valid() const override {
    return position_ != entries_->end() && (upper_.empty() || Slice(position_->first) < Slice(upper_));
  }
  void Next() override { ++position_; }
  Slice key() const override { return position_->first; }
  Slice value() const override { return position_->second; }
  Status status() const override { return Status::Ok(); }

 private:
  std::shared_ptr<const Entries> entries_;
  Entries::const_iterator position_;
  std::string upper_;
};

class MapBase final : public BaseReader {
 public:
  explicit MapBase(Entries entries) : entries_(std::make_shared<const Entries>(std::move(entries))) {}

  Status MultiGet(std::span<const Slice> keys, GetSink& sink) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = entries_->find(keys[i]);
      if (found != entries_->end()) sink.Found(i, found->second);
    }
    return Status::Ok();
  }
  Result<std::unique_ptr<BaseIterator>> Scan(Slice lower, Slice upper) override {
    return std::unique_ptr<BaseIterator>(std::make_unique<MapIterator>(entries_, lower, upper));
  }

 private:
  std::shared_ptr<const Entries> entries_;
};

}  // namespace holdfast::testing
