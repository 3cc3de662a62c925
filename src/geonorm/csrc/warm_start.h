// A start close to the center, so that the certified sweeps have little left to do.
#pragma once
#include "measure.h"
#include "vector_loop.h"

namespace geonorm {
namespace GEONORM_ISA {

// Newton's method on F with rough powers and without a certificate, at half the cost of a certified sweep. It ends with a
// step below this fraction of the deviations; the first certified sweep usually settles the rest.
static const double NEAR = 4e-4;
enum { MAX_STEPS = 3, MIN_VALUES = 128 };  // with fewer values than MIN_VALUES, F has too many corners

// Whether to take another step. Steps that do not shrink occur at a tie, which the search handles.
GN_INLINE bool shrinks(double step, double last) { return fabs(step) <= 0.5 * fabs(last); }

// Distances in the rough steps: for φ = 1.5 as they are, since all that matters is a ratio; else in units of the range.
template <Power POWER>
GN_INLINE F32 rough_distance(F32 x, F32 y, F32 inverse) {
    return POWER == ROOT ? x - y : (x - y) * inverse;
}
// A weight may be infinite at a tie: TIES prevents that, and is needed only then.
template <Power POWER, bool TIES>
GN_INLINE F32 rough_weight(F32 r, F32 tiny, F32 s, Path path) {
    F32 a = absolute(r);
    return rough_slope<POWER>(TIES ? larger(a, tiny) : a, s, path);
}

// Σ sgn(r)|r|^q / Σ|r|^(q−1) at y, roughly, in the unit of x.
template <Power POWER, bool TIES>
static double rough_ratio(const float* x, int64_t n, float y, double scale, Exponent exponent) {
    typedef Of<float>::V V;
    const double unit = POWER == ROOT ? 1 : scale;
    const V at = all(y), inverse = all((float)(1 / scale)), tiny = all((float)(TINY * scale / unit));
    const V s = all((float)(exponent.phi - 2));
    const Path path = exponent.path;
    double difference = 0, slopes = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        V D = {}, W = {};
        each_piece<float>(first, n - first < BLOCK ? n : first + BLOCK, [&](auto piece) __attribute__((always_inline)) {
            V r = rough_distance<POWER>(piece.take(x), at, inverse);
            V w = rough_weight<POWER, TIES>(r, tiny, s, path);
            D += piece.only(r * w), W += piece.only(w);
        });
        difference += total<float>(D), slopes += total<float>(W);
    }
    return unit * difference / slopes;
}
template <Power POWER>
static double rough_ratio(const float* x, int64_t n, float y, double scale, Exponent exponent) {
    const double ratio = rough_ratio<POWER, false>(x, n, y, scale, exponent);
    return ratio - ratio == 0 ? ratio : rough_ratio<POWER, true>(x, n, y, scale, exponent);
}

// From y towards the center of n values.
static double warm_start(const float* x, int64_t n, Exponent exponent, const Moments& m, double y) {
    if (n < MIN_VALUES) return y;
    const double scale = m.highest - m.lowest, enough = NEAR * sqrt(m.var);
    double last = INFINITY;
    for (int k = 0; k < MAX_STEPS; k++) {
        const float at = (float)y;
        double ratio;
        switch (exponent.power()) {
            case ROOT: ratio = rough_ratio<ROOT>(x, n, at, scale, exponent); break;
            case GENERAL: ratio = rough_ratio<GENERAL>(x, n, at, scale, exponent); break;
            default: ratio = rough_ratio<SPECIAL>(x, n, at, scale, exponent);
        }
        const double step = ratio / (exponent.phi - 1);
        if (!shrinks(step, last)) break;
        y = most_of(m.lowest, least_of(m.highest, at + step)), last = step;
        if (fabs(step) <= enough) break;
    }
    return y;
}
// Not for float64: it has no rough powers, and needs more than a step or two.
static double warm_start(const double*, int64_t, Exponent, const Moments&, double y) { return y; }

// The mean of all values, plus how far the center of every `stride`-th one lies from their mean: that difference is much
// less noisy than the center of so few values.
template <class T>
static double start_from_sample(const T* x, int64_t n, Exponent exponent, double mean, T* sample) {
    if (n < 8192) return mean;
    int64_t stride = n < 65536 ? 16 : n / 4096, count = n / stride;
    T lowest = x[0], highest = x[0];
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        T v = x[i * stride];
        sample[i] = v, sum += v;
        lowest = v < lowest ? v : lowest, highest = v > highest ? v : highest;
    }
    Search search;
    search.start(exponent.phi, Of<T>::eps, (double)count, lowest, highest, sum / count);
    run_search(search, sample, count, exponent, 3);
    return mean + (search.center - sum / count);
}

template <class T>
static double start_near(const T* x, int64_t n, Exponent exponent, const Moments& m, T* sample) {
    return warm_start(x, n, exponent, m, start_from_sample(x, n, exponent, m.mean, sample));
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
