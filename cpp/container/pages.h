// Large memory of tables, in huge pages where the system has them: tables are read at random, and at four KiB a
// page most reads would also miss the processor's page table cache.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace holdfast {

struct FreePages {
  void operator()(void* pages) const { std::free(pages); }
};
template <typename T>
using Pages = std::unique_ptr<T[], FreePages>;

inline constexpr size_t kHugePageBytes = size_t{1} << 21;

// Room for `count` objects of a trivial type, not initialised.
template <typename T>
Pages<T> AllocatePages(size_t count) {
  const size_t bytes = count * sizeof(T);
  if (bytes < kHugePageBytes) {
    void* small = std::malloc(bytes);
    if (small == nullptr) throw std::bad_alloc();
    return Pages<T>(static_cast<T*>(small));
  }
  const size_t rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* pages = std::aligned_alloc(kHugePageBytes, rounded);
  if (pages == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(pages, rounded, MADV_HUGEPAGE);  // advice: refusal costs speed only
#endif
  return Pages<T>(static_cast<T*>(pages));
}

}  // namespace holdfast
