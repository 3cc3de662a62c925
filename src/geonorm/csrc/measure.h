// The statistics of one group that need no array: shared by the layouts.
#pragma once
#include "job.h"
#include "sweep.h"

namespace geonorm {
namespace GEONORM_ISA {

static const double HALF_NORMAL = 0.5708;  // var|z| / (mean|z|)² of a normal z: where an estimate of the variance is enough

struct Moments {
    double mean, var, lowest, highest;
    bool finite;
    double slack = 0;  // |true mean − mean| at most
};

// Within these magnitudes no power of a distance over- or underflows; other data are refused.
template <class T>
GN_INLINE bool moderate(const Moments& m) {
    double largest = most_of(fabs(m.lowest), fabs(m.highest));
    double limit = sizeof(T) == 4 ? 1125899906842624.0 : 1e120;  // 2^50
    return largest == 0 || (largest < limit && largest > 1e-3 / limit);
}

// From sums of x − base and its square; returns whether the base was too far off to keep the digits of the variance.
// `additions` one after the other were made in T: each loses half an eps of a sum that Σ|x − base| bounds, and so does
// each difference.
template <class T>
GN_INLINE bool finish_moments(Moments& m, double base, double sum, double squares, int64_t count, double additions) {
    double shift = sum / count;
    m.slack = 0.5 * (additions + 1) * (double)Of<T>::eps * sqrt(squares / count);
    m.mean = base + shift;
    m.var = most_of(0, squares / count - shift * shift);
    m.finite = fabs(sum) < INFINITY && fabs(squares) < INFINITY;
    return !m.finite || shift * shift <= 4 * m.var || shift == 0;
}

GN_INLINE bool solvable(double phi) {
    return phi == 1 || phi == INFINITY || (phi >= 1.01 && phi <= 4);
}

// The value of T nearest to a double.
template <class T>
GN_INLINE double rounded(double value) {
    return (double)(T)value;
}

template <class T>
GN_INLINE void set_distances(double* state, double center, double lowest, double highest, State unit, State least) {
    double reach = most_of(highest - center, center - lowest);
    double tallest = most_of(fabs(lowest), fabs(highest));
    state[unit] = lowest == highest ? 0 : reach;
    state[least] = reach > 0 ? most_of(4 * (double)Of<T>::eps * tallest / reach, TINY) : TINY;
}

// ρ from the spread; the floor of the gradient is a fraction of the spread.
template <class T>
GN_INLINE void set_spread(double* state, const Job& job, double spread) {
    state[SPREAD] = rounded<T>(spread);
    state[RHO] = job.spread == NO_SPREAD ? 1 : rounded<T>(1 / sqrt(state[SPREAD] * state[SPREAD] + job.eps));
    if (job.grad_floor > 0 && state[UNIT] > 0)
        state[LEAST] = most_of(state[LEAST], job.grad_floor * state[SPREAD] / state[UNIT]);
}

GN_INLINE void set_broken(double* state, int64_t members) {
    for (int i = 0; i < STATE_SIZE; i++) state[i] = NAN;
    state[UNIT] = state[UNIT_2] = 0;
    state[FLOORED] = state[SWEEPS] = 0;
    state[MASS] = (double)members, state[BY] = 1;
}

// The certificate of a center, including its rounding to T, and which backend made it.
template <class T>
GN_INLINE void set_certificate(double* state, double center, double bound, double sweeps, int64_t members) {
    const double smallest = sizeof(T) == 4 ? 1.1754943508222875e-38 : 2.2250738585072014e-308;
    state[BOUND] = bound + (double)Of<T>::eps * (fabs(center) + smallest);
    state[SWEEPS] = sweeps, state[MASS] = (double)members, state[BY] = 1;
}

// The index of a group among `period`. Integer division takes as long as a sweep over a short group.
GN_INLINE int64_t index_of(int64_t group, int64_t period) {
    return group < period ? group : period == 1 ? 0 : group % period;
}
template <class T>
GN_INLINE double phi_of(const Job& job, int64_t group) {
    return job.phis ? (double)((const T*)job.phis)[index_of(group, job.phi_count)] : job.phi;
}
template <class T>
GN_INLINE T parameter(const void* values, int64_t index, double otherwise) {
    return values ? ((const T*)values)[index] : (T)otherwise;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
