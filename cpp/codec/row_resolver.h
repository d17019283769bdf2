// Rows of an earlier schema as rows of the newest: fields added, dropped, reordered, widened, made nullable.
// Thread-safety: immutable after Make. Format of rows: docs/formats/row.md.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "holdfast/bytes.h"
#include "holdfast/value_schemas.h"

namespace holdfast {

class RowResolver {
 public:
  // The largest row that there is: with its header, 1 GiB.
  static constexpr size_t kRowBytesMax = (size_t{1} << 30) - 1;
  struct Plan;

  // InvalidRequest where rows of the one cannot be rows of the other: names the field, and both types.
  static Result<RowResolver> Make(const Type& writer, const Type& reader, std::span<const FieldDefault> defaults);
  RowResolver(RowResolver&&) noexcept;
  ~RowResolver();

  // Whether rows of both have the same bytes.
  bool is_identity() const;
  // Replaces `*out`. Corrupt for a row that is cut off or has a rest: never reads past it. Incompatible for one that
  // would be larger than a row may be.
  Status Resolve(Slice row, std::string* out) const;

 private:
  explicit RowResolver(std::unique_ptr<const Plan> plan);
  std::unique_ptr<const Plan> plan_;
};

}  // namespace holdfast
