// Lets other Python threads run for as long as it lives; as pybind11's gil_scoped_release, but for its end.
#pragma once

#include <pybind11/pybind11.h>

namespace holdfast::bindings {

// Once the interpreter has begun to end, whoever asks for its lock again is ended there and then, by an unwinding of
// its stack (pthread_exit). A destructor that must not throw would end the whole process instead: a program that ends
// while its background thread is in here would say "terminate called" and fail.
class WithoutGilScope {
 public:
  WithoutGilScope() : state_(PyEval_SaveThread()) {}
  ~WithoutGilScope() noexcept(false) { PyEval_RestoreThread(state_); }
  WithoutGilScope(const WithoutGilScope&) = delete;
  WithoutGilScope& operator=(const WithoutGilScope&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace holdfast::bindings
