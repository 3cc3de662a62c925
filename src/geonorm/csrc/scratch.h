// Memory of one thread that is kept between calls.
#pragma once
#include <cstdlib>

#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

struct Scratch {
    void* memory = nullptr;
    size_t size = 0;
    ~Scratch() { free(memory); }

    // At least `bytes`, aligned; null when there is no memory. The previous contents are lost.
    void* get(size_t bytes) {
        if (bytes > size) {
            free(memory);
            size = (bytes + 4095) & ~(size_t)4095;
            memory = aligned_alloc(4096, size);
            if (!memory) size = 0;
        }
        return memory;
    }
    void release() {
        free(memory);
        memory = nullptr, size = 0;
    }
};

// Otherwise a few large blocks would stay allocated forever.
static const size_t KEEP_BYTES = (size_t)64 << 20;

// The same for numbers that are nearly as quick to compute: only while they stay in the first-level cache.
static const int64_t KEEP_ROOTS_BYTES = (int64_t)16 << 10;

// Copies up to this size are worth making: they stay in the cache until they are read again.
static const int64_t CACHE_BYTES = (int64_t)1 << 20;

}  // namespace GEONORM_ISA
}  // namespace geonorm
