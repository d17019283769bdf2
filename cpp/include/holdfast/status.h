// Status and Result: the only way errors travel in the core. Kinds are named by what the caller can do
// (the same family as python/holdfast/errors.py). Nothing throws across a public function of the core.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace holdfast {

enum class Code {
  kOk,
  kInvalidRequest,  // fix the call
  kUnavailable,     // try again
  kFenced,          // another owner took over: stop
  kCorrupt,         // restore from elsewhere
  kIncompatible,    // migrate
  kInternalError,   // report a bug
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status Ok() { return {}; }
  static Status InvalidRequest(std::string message) { return {Code::kInvalidRequest, std::move(message)}; }
  static Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
  static Status Fenced(std::string message) { return {Code::kFenced, std::move(message)}; }
  static Status Corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
  static Status Incompatible(std::string message) { return {Code::kIncompatible, std::move(message)}; }
  static Status InternalError(std::string message) { return {Code::kInternalError, std::move(message)}; }

  // The same kind with another message.
  Status With(std::string message) const { return {code_, std::move(message)}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace holdfast

#define HOLDFAST_CONCAT_INNER(a, b) a##b
#define HOLDFAST_CONCAT(a, b) HOLDFAST_CONCAT_INNER(a, b)
#define HOLDFAST_RETURN_IF_ERROR(expression)             \
  do {                                                   \
    ::holdfast::Status holdfast_status_ = (expression);  \
    if (!holdfast_status_.ok()) return holdfast_status_; \
  } while (false)
// A declaration cannot stand in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define HOLDFAST_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!(result).ok()) return (result).status();                          \
  declaration = std::move(result).value()
#define HOLDFAST_ASSIGN_OR_RETURN(declaration, expression) \
  HOLDFAST_ASSIGN_OR_RETURN_INNER(HOLDFAST_CONCAT(holdfast_result_, __LINE__), declaration, expression)
// NOLINTEND(bugprone-macro-parentheses)
