// The kernels of one instruction set, as the entry sees them.
#pragma once
#include "job.h"

namespace geonorm {

struct Kernels {
    const char* name;
    int lanes;  // groups side by side that one unit of the layout LANES takes, float32; float64 takes half
    // Units [first, last) of forward; the status of the worst.
    Status (*forward)(const Job& job, int64_t first, int64_t last);
    // Units of backward. `sums`: SUMS per group (or run), `d_phi`: one per group, `values`: SUMS arrays or null.
    void (*backward)(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values);
};

// A unit is a group (ROWS), or a block of neighbouring groups of one segment (LANES).
inline int64_t lane_blocks(const Job& job, const Kernels& kernels) {
    int64_t lanes = job.dtype == FLOAT64 ? kernels.lanes / 2 : kernels.lanes;
    return (job.features + lanes - 1) / lanes;
}

inline int64_t element_size(const Job& job) { return job.dtype == FLOAT64 ? 8 : job.dtype == FLOAT32 ? 4 : 2; }

// How many neighbouring groups are worked on together: 1 unless their runs are short and a few fit into the cache.
inline int64_t tile_size(const Job& job) {
    const int64_t run = job.length * element_size(job), group = run * job.runs;
    if (job.layout != ROWS || job.runs == 1 || job.run_stride == job.length || run >= 512) return 1;
    const int64_t wanted = 1024 / run, most = ((int64_t)128 << 10) / (group + 1);
    const int64_t size = wanted < most ? wanted : most;
    return size < 1 ? 1 : size;
}

namespace baseline {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

}  // namespace geonorm
