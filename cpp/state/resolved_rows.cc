#include "state/resolved_rows.h"

#include <string>
#include <utility>
#include <vector>

#include "codec/row_resolver.h"
#include "codec/value_header.h"

namespace holdfast {

namespace {

class ResolvedRows final : public EarlierRows {
 public:
  explicit ResolvedRows(std::vector<RowResolver> resolvers) : resolvers_(std::move(resolvers)) {}

  uint8_t version() const override { return static_cast<uint8_t>(resolvers_.size() + 1); }

  Result<Slice> ToNewest(uint8_t version, Slice row, std::string* bytes) const override {
    const RowResolver& resolver = resolvers_[size_t{version} - 1];
    if (resolver.is_identity()) return row;
    HOLDFAST_RETURN_IF_ERROR(resolver.Resolve(row, bytes));
    return Slice(*bytes);
  }

 private:
  std::vector<RowResolver> resolvers_;
};

}  // namespace

Result<std::unique_ptr<EarlierRows>> MakeResolvedRows(const ValueSchemas& schemas) {
  if (schemas.earlier.size() >= value_header::kVersionMax) {
    return Status::InvalidRequest("a state has at most " + std::to_string(value_header::kVersionMax) +
                                  " schemas, found " + std::to_string(schemas.earlier.size() + 1));
  }
  std::vector<RowResolver> resolvers;
  for (const Type& earlier : schemas.earlier) {
    HOLDFAST_ASSIGN_OR_RETURN(RowResolver resolver, RowResolver::Make(earlier, schemas.newest, schemas.defaults));
    resolvers.push_back(std::move(resolver));
  }
  return std::unique_ptr<EarlierRows>(std::make_unique<ResolvedRows>(std::move(resolvers)));
}

}  // namespace holdfast
