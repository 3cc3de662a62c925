// The interface of the kernels of one instruction set.
#pragma once
#include "job.h"

namespace geonorm {

// The moments of the samples of a batch per channel, [samples, channels], and the guard's working memory.
struct Samples {
    const void *mean, *var;  // of the computing dtype; no var where a sample has one value per channel
    int64_t samples, channels, some;
    bool wide;                        // the computing dtype is double
    void *center, *square, *inverse;  // per channel: y, s² and 1/(s²·channels)
    void* squared;                    // distance of each sample
    // The distance of a sample whose squares are too large for T, in double; NaN if one of its values is not finite.
    double (*far)(const Samples& of, int64_t sample);
    const void* values;  // passed to that function

    // Center and scales come from `some` samples, evenly spaced.
    int64_t nth(int64_t i) const { return some == samples ? i : i * samples / some; }
};
static const double NEAREST_SAMPLE = 1e-6;  // smaller distances count as this in the weights of the center

struct Kernels {
    const char* name;
    int lanes;  // groups side by side that one unit of the layout LANES takes, float32; float64 takes half
    // Units [first, last) of forward; the status of the worst.
    Status (*forward)(const Job& job, int64_t first, int64_t last);
    // Units of backward. `sums`: SUMS per group (or run), `d_phi`: one per group, `values`: SUMS arrays or null.
    void (*backward)(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values);
    // The parts of the guard (guard.h): of samples [first, last), of channels, of all, of one sample.
    void (*sample_moments)(const Job& job, int64_t first, int64_t last, void* mean, void* var);
    void (*channel_medians)(const Samples& of, int64_t first, int64_t last);
    void (*weiszfeld)(const Samples& of);
    void (*distances)(const Samples& of, int64_t first, int64_t last);
    double (*middle_value)(const void* values, int64_t count, bool wide);
    void (*verdicts)(void* distance, void* factor, int64_t count, double radius, double limit, bool wide);
    double (*far_distance)(const Samples& of, int64_t sample);  // from the values of a job
    void (*pull_sample)(const Job& job, int64_t sample, double factor, const void* center, void* to);
    void (*scale_sample)(const Job& job, int64_t sample, double factor);
    // The step of the search from the sums at a point, for tests; see geonorm_evaluate.
    void (*evaluate)(const double* given, double* found);
};

// A unit is a group (ROWS), or a block of neighbouring groups of one segment (LANES).
inline int64_t lane_blocks(const Job& job, const Kernels& kernels) {
    int64_t lanes = job.dtype == FLOAT64 ? kernels.lanes / 2 : kernels.lanes;
    return (job.features + lanes - 1) / lanes;
}

inline int64_t element_size(const Job& job) { return job.dtype == FLOAT64 ? 8 : job.dtype == FLOAT32 ? 4 : 2; }

// How many neighbouring groups are processed together: 1 unless their runs are short and a few fit into the cache.
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
