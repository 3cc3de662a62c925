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

enum { MOST_ROWS = 8 };  // short groups whose searches run together

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
        difference += quick_sum(D), slopes += quick_sum(W);
    }
    return unit * difference / slopes;
}
template <Power POWER>
static double rough_ratio(const float* x, int64_t n, float y, double scale, Exponent exponent) {
    const double ratio = rough_ratio<POWER, false>(x, n, y, scale, exponent);
    return ratio - ratio == 0 ? ratio : rough_ratio<POWER, true>(x, n, y, scale, exponent);
}

static double rough_ratio_any(const float* x, int64_t n, float y, double scale, Exponent exponent) {
    switch (exponent.power()) {
        case ROOT: return rough_ratio<ROOT>(x, n, y, scale, exponent);
        case GENERAL: return rough_ratio<GENERAL>(x, n, y, scale, exponent);
        default: return rough_ratio<SPECIAL>(x, n, y, scale, exponent);
    }
}

// Searches that have not begun, from their starts towards the centers.
static void warm_start(RowSearch<float>* rows, const Moments* m, int count) {
    double ratio[MOST_ROWS], last[MOST_ROWS];
    bool on[MOST_ROWS];
    for (int i = 0; i < count; i++) last[i] = INFINITY, on[i] = rows[i].search.active && rows[i].n >= MIN_VALUES;
    bool some = true;
    for (int k = 0; k < MAX_STEPS && some; k++) {
        some = false;
        for (int i = 0; i < count; i++) {
            const RowSearch<float>& row = rows[i];
            if (on[i]) ratio[i] = rough_ratio_any(row.x, row.n, (float)row.search.y, row.search.scale, row.exponent);
        }
        for (int i = 0; i < count; i++) {
            if (!on[i]) continue;
            Search& search = rows[i].search;
            const double step = ratio[i] / search.q;
            on[i] = shrinks(step, last[i]);
            if (!on[i]) continue;
            search.center = search.y = most_of(m[i].lowest, least_of(m[i].highest, (float)search.y + step));
            last[i] = step;
            on[i] = step * step > NEAR * NEAR * m[i].var;
            some = some || on[i];
        }
    }
}
// Not for float64: it has no rough powers, and needs more than a step or two.
static void warm_start(RowSearch<double>*, const Moments*, int) {}

// The mean of all values, plus how far the center of a sample lies from its mean: that difference is much less noisy than
// the center of so few values. The sample is made of vectors at an odd distance, because images have rows and columns of
// powers of two.
template <class T>
static double start_from_sample(const T* x, int64_t n, Exponent exponent, double mean, T* sample) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N };
    if (n < 8192) return mean;
    const int64_t vectors = (n < 65536 ? n / 16 : 4096) / N, distance = (n / vectors - 1) | 1, count = vectors * N;
    V lowest = load(x), highest = lowest, sum = {};
    for (int64_t i = 0; i < vectors; i++) {
        const V v = load(x + i * distance);
        store(sample + i * N, v);
        lowest = smaller(v, lowest), highest = larger(v, highest), sum += v - (T)mean;
    }
    Moments m = {};
    m.lowest = least_lane(lowest), m.highest = largest_lane(highest);
    const double offset = total<T>(sum) / count;
    RowSearch<T> row;
    row.x = sample, row.n = count, row.exponent = exponent;
    row.search.start(exponent.phi, Of<T>::eps, (double)count, m.lowest, m.highest, mean + offset);
    if (!row.search.active) return mean;
    warm_start(&row, &m, 1);
    if (sizeof(T) == 8) run_searches(&row, 1, 3);
    return row.search.center - offset;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
