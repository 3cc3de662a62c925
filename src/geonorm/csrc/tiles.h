// Channels of small images are scattered: one short run per sample, at a stride that is often a power of two, which caches
// cannot hold. A few neighbouring channels together make longer runs: they are packed, processed in the cache, and written
// back.
#pragma once
#include "kernels.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// The lengths of 4×4 images are copied by an instruction or two instead of a call.
GN_INLINE void copy_run(char* to, const char* from, int64_t bytes) {
    if (bytes == 64)
        memcpy(to, from, 64);
    else if (bytes == 32)
        memcpy(to, from, 32);
    else
        memcpy(to, from, bytes);
}

// How many samples ahead to prefetch: they lie too far apart for the hardware prefetcher.
enum { SAMPLES_AHEAD = 4 };

template <bool PACK>
GN_INLINE void prefetch_run(const char* run, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(run + i, PACK ? 0 : 1, 2);
}

// Elements from one packed group to the next: one cache line more than a group has, because groups of a power of two would
// all fall into one set of the cache.
GN_INLINE int64_t packed_stride(const Job& job, int64_t size) {
    return ((job.runs * job.length * size + LINE_BYTES - 1) / LINE_BYTES + 1) * LINE_BYTES / size;
}

// Groups [first, last) between their places in a tensor and packed memory. `places`: of runs that lie elsewhere, or null.
template <bool PACK>
static void move_tile(const Job& job, char* tensor, char* packed, int64_t first, int64_t last, int64_t size,
                      const void* const* places = nullptr) {
    const int64_t run = job.length * size, group = packed_stride(job, size) * size;
    for (int64_t i = 0; i < job.runs; i++) {
        char* place = tensor + (i * job.run_stride + first * job.group_stride) * size;
        if (places) place = (char*)places[i] + first * job.group_stride * size;
        if (i + SAMPLES_AHEAD < job.runs)
            prefetch_run<PACK>(place + SAMPLES_AHEAD * job.run_stride * size, run * (last - first));
        for (int64_t k = 0; k < last - first; k++) {
            char *here = packed + k * group + i * run, *there = place + k * run;
            PACK ? copy_run(here, there, run) : copy_run(there, here, run);
        }
    }
}

// The same job on packed memory that holds the groups from `first` on. Addresses count from group 0, as in a tensor.
GN_INLINE Job packed_job(const Job& job, int64_t size) {
    Job packed = job;  // parameters are per group there, so that all runs of a group are one
    packed.length = packed.run_stride = job.runs * job.length;
    packed.group_stride = packed_stride(job, size);
    packed.runs = 1;
    packed.places = nullptr;
    return packed;
}
GN_INLINE void* from_group_0(char* packed, const Job& job, int64_t first, int64_t size) {
    return (void*)((uintptr_t)packed - (uintptr_t)(first * packed_stride(job, size) * size));
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
