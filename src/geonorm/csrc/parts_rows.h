// Parts of forward for one group in the layout ROWS whose other values are in other processes: see Task.
#pragma once
#include "forward_rows.h"

namespace geonorm {
namespace GEONORM_ISA {

// |z| of packed values, and their moments, with an estimate of the variance.
template <class T>
static Moments sizes_of_row(const Job& job, const RowParameters<T>& of, const T* u, double center, T* out) {
    typedef typename Of<T>::V V;
    double sum = 0;
    V part = {}, most = {}, fewest = all((T)INFINITY);
    int64_t since = 0;
    auto flush = [&] { sum += total<T>(part), part = V{}, since = 0; };
    each_deviation<T>(job, of, u, center, [&](auto piece, V z, int64_t run) __attribute__((always_inline)) {
        V a = absolute(z);
        part += piece.only(a);
        most = larger(piece.only(a), most), fewest = smaller(piece.or_else(a, fewest), fewest);
        piece.put(out + run * job.length, a);
        if (++since == BLOCK / Of<T>::N) flush();
    });
    flush();
    const double largest = largest_lane(most), smallest = least_lane(fewest);
    const double mean = sum / (double)(job.runs * job.length);
    return Moments{mean, HALF_NORMAL * mean * mean, smallest, largest, mean - mean == 0};
}

GN_INLINE void put_measures(double* out, const Moments& m, double members, double center) {
    out[MEASURED_MEAN] = m.finite ? m.mean : NAN, out[MEASURED_SQUARES] = m.finite ? m.var * members : NAN;
    out[MEASURED_LOWEST] = m.lowest, out[MEASURED_HIGHEST] = m.highest, out[MEASURED_CENTER] = center;
}

GN_INLINE void put_sums(double* out, const Sums& s, const Neighbours& n, double scale) {
    out[ABOVE] = s.above, out[BELOW] = s.below, out[ABOVE_SLOPE] = s.above_slope, out[BELOW_SLOPE] = s.below_slope;
    out[TIED] = n.tied, out[NEAREST] = n.nearest * scale, out[NEAREST_ABOVE] = n.above, out[NEAREST_BELOW] = n.below;
}

template <class E>
static Status part_of_row(const Job& job, int64_t group, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    const int64_t n = job.runs * job.length, padded = (n + 63) & ~(int64_t)63;
    const double* point = job.points ? job.points + group * POINTS : nullptr;
    if (job.task == SWEEP && !(point[POINT_Y] == point[POINT_Y])) {
        for (int i = 0; i < SWEPT; i++) job.found[group * SWEPT + i] = 0;
        return DONE;
    }
    const bool in_place = sizeof(E) == sizeof(T) && is_packed(job) && !job.places;
    T* memory = (T*)scratch.get((2 * padded + 8192 + 64) * sizeof(T));
    if (!memory) return REFUSED;
    const T* u = in_place ? (const T*)run_of<E>(job, group, 0) : memory;
    if (!in_place && (job.task != MEASURE || job.sizes)) {
        for (int64_t run = 0; run < job.runs; run++) {
            const E* from = run_of<E>(job, group, run);
            each_piece<T>(0, job.length, [&](auto piece) __attribute__((always_inline)) {
                piece.put(memory + run * job.length, piece.take(from));
            });
        }
    }
    const double* state = job.state + group * STATE_SIZE;
    const RowParameters<T> of(job, group);
    if (job.task == WRITE) {
        E* y = (E*)job.y + group * job.group_stride;
        write_rows<E, T, PER_GROUP>(job, of, u, state, y);
        return DONE;
    }
    Moments m = {};
    T* second = memory + padded;
    if (job.sizes) {
        m = sizes_of_row<T>(job, of, u, state[CENTER], second);
        u = second, second = memory;
    } else if (job.task == MEASURE) {
        m = measure_rows<E, T>(job, group, in_place ? nullptr : memory);
        if (!m.finite && all_finite<E>(job, group)) return REFUSED;
    }
    if (job.task == MEASURE) {
        if (m.finite && !moderate<T>(m)) return REFUSED;
        const double phi = point[POINT_PHI];
        const bool search = m.finite && phi >= 1.01 && phi <= 4;
        put_measures(job.found + group * MEASURES, m, (double)n,
                     search ? find_center<T>(u, n, phi, m, second).center : m.mean);
        return DONE;
    }
    const Point<T> y(point[POINT_Y]);
    const double scale = point[POINT_SCALE], phi = point[POINT_PHI];
    const Sums sums = sweep_any(u, n, y, scale, exponent_of(phi));
    Neighbours near = {0, sums.closest, 0, 0};
    if (phi < 2 && (sums.closest == 0 || point[POINT_NEAR] > 0)) near = neighbours(u, n, y, scale);
    else near.tied = sums.closest == 0;
    put_sums(job.found + group * SWEPT, sums, near, scale);
    return DONE;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
