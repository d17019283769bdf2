// Large memory of tables, in huge pages where the system has them: tables are read at random, and at four KiB a
// page most reads would also miss the processor's page table cache. No more of it is taken than was asked for.
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
  const size_t whole = bytes / kHugePageBytes * kHugePageBytes;
  const size_t rounded = whole == bytes ? whole : whole + kHugePageBytes;
  void* pages = std::aligned_alloc(kHugePageBytes, rounded);
  if (pages == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Advice: refusal costs speed, or memory. What is left at the end must not become a huge page, as it would where the
  // system makes them unasked, or where this memory was another's before: more would be taken than anybody counts.
  madvise(pages, whole, MADV_HUGEPAGE);
  if (rounded > whole) madvise(static_cast<char*>(pages) + whole, rounded - whole, MADV_NOHUGEPAGE);
#endif
  return Pages<T>(static_cast<T*>(pages));
}

}  // namespace holdfast
