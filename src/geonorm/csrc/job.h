// The job that Python passes to the library: sizes, numbers and addresses, all of 64 bits so that both sides agree on the
// layout.
// The fields are written by geonorm/ops/cpu/library.py in this order; layout.h lets it check that.
#pragma once
#include <cstdint>

namespace geonorm {

enum Dtype : int64_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };

// ROWS: a group is `runs` contiguous runs of `length` values (a channel of NCHW, a row of LayerNorm).
// LANES: neighbouring values belong to different groups (2-D batches, channels_last, graphs).
enum Layout : int64_t { ROWS, LANES };

// Where γ, β, α and the shift of a value are found: one per group, one per run of a group, one per value of a group.
enum Parameters : int64_t { PER_GROUP, PER_RUN, PER_VALUE };

enum Spread : int64_t { NO_SPREAD, RMS, MEAN_ABS, MAX_ABS, ROBUST };

// Results of a call. REFUSED: valid values that these kernels do not support; nothing that anyone reads was changed. The
// caller falls back to torch.
enum Status : int64_t { DONE, REFUSED, WRONG };

// What to do: the whole job, or one part of it for groups with values in other processes. Forward: the moments and the
// center of the values here, the sums of a sweep, the output from a given state. Backward: the sums over the values here,
// the gradient of x from the gradients of spread and center.
enum Task : int64_t { WHOLE_JOB, MEASURE, SWEEP, WRITE, ADD_UP, SPREAD_OUT };

struct Job {
    // The same for all calls with tensors of one dtype and arrangement.
    int64_t dtype, layout;
    int64_t groups, runs, length, run_stride, group_stride;  // ROWS, in elements
    int64_t segments, features, rows;                        // LANES; `rows` per segment unless there are offsets
    int64_t parameters, period, phi_count;                   // parameters of group i are those of group i % period
    int64_t centered, spread;
    int64_t samples, positions;  // of a guarded batch: ROWS has a run, LANES `positions` rows per sample
    double phi, alpha, eps, psi, psi_factor, spread_floor, grad_floor;
    double guard;                         // radius in median distances; 0 for none
    double phi_low, phi_high, phi_start;  // φ = low + (high − low)·sigmoid(offset + start), if high > 0
    // Specific to one call.
    int64_t threads;
    double momentum, normal_scale;  // normal_scale: the squared spread of standard normal data
    const int64_t* offsets;  // LANES: first row of every segment, and the number of rows
    const void *x, *g;
    void *y, *dx;      // y may be null: only the statistics are computed
    const void *phis;  // or the offsets of a learned φ; of the computing dtype, as all parameters, or null
    const void *alphas, *shifts, *gammas, *betas;
    double* state;                                        // STATE_SIZE numbers per group, see State
    void *running_mean, *running_var, *running_center, *running_scale;  // of the computing dtype, or null
    void *seen_mean, *seen_var, *seen_center, *seen_scale;              // copies from the last update, or null
    int64_t* batches;                                                   // a counter, or null
    void *d_phi, *d_alpha, *d_shift, *d_gamma, *d_beta;                 // of the computing dtype, or null
    void* verdict;          // of a guarded batch, the computing dtype: see Verdict
    int64_t* guard_counts;  // batches, batches with a pull, samples pulled, samples not finite; or null
    // For groups over several processes, which exchange the results of tasks.
    int64_t task, sizes;   // sizes: work on |z| instead of x, with the center in `state`
    const double* points;  // POINTS or FLOWS numbers per group
    double* found;         // MEASURES, SWEPT or PARTS numbers per group
    // Set by the library: where each run (ROWS) or row (LANES) of x really lies, if some samples were pulled.
    const void* const* places;
};

// The results of forward about the samples of a guarded batch, one array behind the other.
template <class T>
struct Verdict {
    T *factor, *distance, *center, *scale, *radius;  // samples, samples, channels, channels, 1
    int64_t samples, channels;

    Verdict(T* numbers, int64_t samples_, int64_t channels_) : factor(numbers), samples(samples_), channels(channels_) {
        distance = factor + samples, center = distance + samples, scale = center + channels, radius = scale + channels;
    }
    explicit Verdict(const Job& job)
        : Verdict((T*)job.verdict, job.samples, job.layout == ROWS ? job.groups : job.features) {}
};

// Numbers that forward saves for each group, in double, one row of STATE_SIZE per group: all that backward and the
// statistics need besides the tensors themselves. Every backend writes these columns in this order; values that are used
// in the computing dtype T are rounded to it. A group with a value that is not finite holds NaN, except for UNIT, UNIT_2,
// FLOORED and SWEEPS, which are 0, and MASS and BY.
enum State {
    CENTER,   // c, rounded to T; 0 where nothing is removed
    SPREAD,   // s, rounded to T; 1 where nothing is divided
    RHO,      // 1 / √(s² + ε), rounded to T; 1 where nothing is divided
    MEAN_Z,   // mean of z = x − αc + shift, where α and the shift are the same for the whole group
    UNIT,     // largest |x − c|; 0 for a group of equal values
    LEAST,    // |x − c| / unit below this counts as this (φ < 2)
    LOWER,    // the two values whose midpoint is the center, φ = 1 and φ = ∞; the center itself elsewhere
    UPPER,
    MIDDLE,   // robust spread: center of |z|; the next four are UNIT to UPPER of |z|
    UNIT_2,
    LEAST_2,
    LOWER_2,
    UPPER_2,
    FLOORED,  // robust spread: 1 where the floor, from the mean deviation, is the spread
    MEAN,     // of the values, rounded to T
    VAR,      // of the values, biased, rounded to T
    BOUND,    // |true center − CENTER| at most, the rounding to T included
    SWEEPS,   // certified sweeps of the search for the center; 0 for closed forms
    MASS,     // number of values in the group
    BY,       // who wrote this row: 1 for these kernels, 0 for torch
    STATE_SIZE
};

// The numbers per group that a task takes and returns.
enum Point { POINT_Y, POINT_SCALE, POINT_PHI, POINT_NEAR, POINTS };  // y is NaN for a group to skip
enum Measured { MEASURED_MEAN, MEASURED_SQUARES, MEASURED_LOWEST, MEASURED_HIGHEST, MEASURED_CENTER, MEASURES };
enum Swept { ABOVE, BELOW, ABOVE_SLOPE, BELOW_SLOPE, TIED, NEAREST, NEAREST_ABOVE, NEAREST_BELOW, SWEPT };
enum Part { SUM_G, SUM_GX, DIRECTIONS, SLOPES, MOMENT, DIVISOR, PARTS };
enum FlowOf { FLOW_SPREAD, FLOW_CENTER, FLOW_LOWER, FLOW_UPPER, FLOWS };

// Sums of each group (or run) for the gradients of parameters.
enum Sum { D_GAMMA, D_BETA, D_SHIFT, D_ALPHA, SUMS };

}  // namespace geonorm
