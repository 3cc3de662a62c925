// Memory that is written for the first time costs a page fault per page, often more than the work itself. Large outputs
// ask for large pages, as NumPy does for its arrays: a hint that the system may ignore.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>

namespace geonorm {

inline void ask_for_large_pages(void* memory, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
    const int64_t least = (int64_t)4 << 20, page = 4096;  // below, few whole large pages would fit
    if (bytes < least) return;
    const uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
    madvise((void*)first, bytes - (int64_t)(first - (uintptr_t)memory), MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

}  // namespace geonorm
