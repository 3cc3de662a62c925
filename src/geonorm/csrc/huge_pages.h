// The first write to a page costs a page fault, often more than the work itself. Large outputs request huge pages, as
// NumPy does for its arrays: a hint that the system may ignore.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>

namespace geonorm {

inline void request_huge_pages(void* memory, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
    const int64_t least = (int64_t)4 << 20, page = 4096;  // a smaller output holds few whole huge pages
    if (bytes < least) return;
    const uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
    madvise((void*)first, bytes - (int64_t)(first - (uintptr_t)memory), MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

}  // namespace geonorm
