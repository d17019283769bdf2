// One call on a Store: what it is called in errors, and the poison that a failed one leaves. How far a failed call came
// is not known and cannot be undone, so the Store refuses all that comes after it with the first error: whoever catches
// that error can prepare nothing of the batch.
// Thread-safety: any thread may ask a Poison, or set it: it also says that two threads met.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "overlay/table.h"

namespace holdfast {

enum class Access {
  kRead,     // of states
  kWrite,    // to states: within a batch only
  kVersion,  // which version the Store is at, and what it is made of
};

struct Call {
  const char* name;    // as Python knows it
  const Table* table;  // null: of no state
  Access access;

  std::string Text() const;
};

class Poison {
 public:
  // Ok until a call failed; then of that failure's kind, with its text.
  Status Check() const;
  // The first failure stays.
  void Set(const Call& call, const Status& failure);

 private:
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  Status refusal_;  // guarded by mutex_
};

// In a catch block: what was thrown out of a call, as a Status.
Status ThrownBy(const Call& call);

}  // namespace holdfast
