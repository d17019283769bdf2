#include "state/row_fold.h"

#include "codec/row_format.h"
#include "codec/value_header.h"
#include "state/key_reader.h"

namespace holdfast {

namespace {

// The bytes that a stored string, binary or fixed-size binary compares by. A row that does not parse compares as it is:
// the decoder will refuse it.
Slice Comparable(const Type& type, Slice stored) {
  const Slice row = stored.substr(value_header::kBytes);
  if (type.id == TypeId::kFixedSizeBinary) return row;
  uint64_t length = 0;
  const char* bytes = row_format::GetVarint(row.data(), row.data() + row.size(), &length);
  if (bytes == nullptr) return row;
  return row.substr(static_cast<size_t>(bytes - row.data()));
}

class RowFoldCall final : public FoldCall {
 public:
  RowFoldCall(const FoldRequest& request, const RowCodec& codec, RowFunction function)
      : request_(request), codec_(codec), function_(function) {}

  Status Encode() {
    HOLDFAST_RETURN_IF_ERROR(
        codec_.Encode(request_.values->schema(), request_.values->array(), value_header::kRowPrefix, &rows_, &nulls_));
    return CheckSizes(rows_, 0, "value");
  }

  Status Add(std::span<Entry* const> entries, int64_t begin) override {
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry* entry = entries[i];
      const int64_t row = begin + static_cast<int64_t>(i);
      if (!nulls_[static_cast<size_t>(row)]) {
        if (Replaces(*entry, rows_[row])) {
          request_.table->Put(entry, rows_[row]);
        } else {
          request_.table->Refresh(entry);
        }
      }
      if (request_.with_results) Note(*entry);
    }
    return Status::Ok();
  }

  Status Get(std::span<Entry* const> entries) override {
    for (const Entry* entry : entries) Note(*entry);
    return Status::Ok();
  }

  Result<OwnedArray> Finish() override {
    results_.bytes.reserve(1);  // also where no row has bytes, what is not null points somewhere
    std::vector<Slice> rows(results_null_.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!results_null_[i]) rows[i] = results_[static_cast<int64_t>(i)];
    }
    Result<OwnedArray> array = codec_.Decode(rows);
    if (array.ok() || array.status().code() != Code::kCorrupt) return array;
    return Status::Corrupt("state " + std::to_string(request_.table->state_id()) + ": a stored value cannot be read: " +
                           array.status().message() + "; restore from another version");
  }

 private:
  bool Replaces(const Entry& entry, Slice stored) const {
    if (!entry.present()) return true;
    switch (function_) {
      case RowFunction::kFirst:
        return false;
      case RowFunction::kLast:
        return true;
      case RowFunction::kMin:
        return Comparable(codec_.type(), stored) < Comparable(codec_.type(), entry.value());
      case RowFunction::kMax:
        return Comparable(codec_.type(), entry.value()) < Comparable(codec_.type(), stored);
    }
    return false;
  }

  // Copies: a later row may overwrite the value where it lies.
  void Note(const Entry& entry) {
    const Slice row = entry.present() ? value_header::Row(entry.value()) : Slice();
    results_.bytes.insert(results_.bytes.end(), row.begin(), row.end());
    results_.offsets.push_back(static_cast<int64_t>(results_.bytes.size()));
    results_null_.push_back(row.data() == nullptr);
  }

  FoldRequest request_;
  const RowCodec& codec_;
  RowFunction function_;
  ByteColumn rows_;
  std::vector<bool> nulls_;
  ByteColumn results_;
  std::vector<bool> results_null_;
};

class RowFold final : public Fold {
 public:
  RowFold(RowCodec codec, RowFunction function) : codec_(std::move(codec)), function_(function) {}

  Result<std::unique_ptr<FoldCall>> Start(const FoldRequest& request) const override {
    auto call = std::make_unique<RowFoldCall>(request, codec_, function_);
    if (request.values != nullptr) HOLDFAST_RETURN_IF_ERROR(call->Encode());
    return std::unique_ptr<FoldCall>(std::move(call));
  }

 private:
  RowCodec codec_;
  RowFunction function_;
};

}  // namespace

std::unique_ptr<Fold> MakeRowFold(RowCodec codec, RowFunction function) {
  return std::make_unique<RowFold>(std::move(codec), function);
}

}  // namespace holdfast
