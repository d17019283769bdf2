#include "overlay/operation.h"

#include <exception>
#include <new>

namespace holdfast {

std::string Call::Text() const {
  return std::string(name) + "()" + (table == nullptr ? "" : " of state " + std::to_string(table->state_id()));
}

Status Poison::Check() const {
  if (!set_.load(std::memory_order_acquire)) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void Poison::Set(const Call& call, const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (!refusal_.ok()) return;
  refusal_ = failure.With("the batch must be aborted: " + call.Text() +
                          " failed, so that its state may be half changed, and nothing of the batch can be prepared, "
                          "even if the error was caught. The error was: " +
                          failure.message());
  set_.store(true, std::memory_order_release);
}

Status ThrownBy(const Call& call) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::Unavailable(call.Text() +
                               " could not get the memory that it needs; lower spark.holdfast.memory.batch.max and "
                               "memory.cache.max, or give the Python workers more memory");
  } catch (const std::exception& error) {
    return Status::InternalError(call.Text() + " failed: " + error.what());
  }
}

}  // namespace holdfast
