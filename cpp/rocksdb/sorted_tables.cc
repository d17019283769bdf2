#include "rocksdb/sorted_tables.h"

#include <utility>

#include "rocksdb/errors.h"

namespace holdfast::rocks {

SortedTables::SortedTables(const CApi& api, const BaseOptions& options, std::string stem, size_t table_bytes)
    : api_(api),
      options_(options),
      stem_(std::move(stem)),
      table_bytes_(table_bytes),
      made_options_(nullptr, api.options_destroy),
      environment_(api.envoptions_create(), api.envoptions_destroy),
      writer_(nullptr, api.sstfilewriter_destroy) {}

Status SortedTables::Put(Slice key, Slice value) {
  HOLDFAST_RETURN_IF_ERROR(MakeRoom(key.size() + value.size()));
  char* error = nullptr;
  api_.sstfilewriter_put(writer_.get(), key.data(), key.size(), value.data(), value.size(), &error);
  return Said(error, "writing a sorted table");
}

Status SortedTables::Delete(Slice key) {
  HOLDFAST_RETURN_IF_ERROR(MakeRoom(key.size()));
  char* error = nullptr;
  api_.sstfilewriter_delete(writer_.get(), key.data(), key.size(), &error);
  return Said(error, "writing a sorted table");
}

Status SortedTables::Finish() {
  if (writer_ == nullptr) return Status::Ok();
  char* error = nullptr;
  api_.sstfilewriter_finish(writer_.get(), &error);
  writer_.reset();
  bytes_ = 0;
  return Said(error, "finishing a sorted table");
}

Status SortedTables::MakeRoom(size_t bytes) {
  if (bytes_ >= table_bytes_) HOLDFAST_RETURN_IF_ERROR(Finish());
  bytes_ += bytes;
  return writer_ == nullptr ? Begin() : Status::Ok();
}

Status SortedTables::Begin() {
  if (made_options_ == nullptr) {
    HOLDFAST_ASSIGN_OR_RETURN(made_options_, MakeOptions(api_, options_));
  }
  writer_.reset(api_.sstfilewriter_create(environment_.get(), made_options_.get()));
  paths_.push_back(stem_ + (paths_.empty() ? "" : "-" + std::to_string(paths_.size())) + ".pending");
  char* error = nullptr;
  api_.sstfilewriter_open(writer_.get(), paths_.back().c_str(), &error);
  return Said(error, "writing a sorted table");
}

Status SortedTables::Said(char* error, const char* doing) const {
  if (error == nullptr) return Status::Ok();
  return TakeError(api_, error, doing, stem_.substr(0, stem_.rfind('/')));
}

}  // namespace holdfast::rocks
