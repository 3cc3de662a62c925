// Parts of forward for a block of neighbouring groups in the layout LANES whose other values are in other processes.
#pragma once
#include "forward_lanes.h"
#include "parts_rows.h"

namespace geonorm {
namespace GEONORM_ISA {

// The coefficients of z in each lane, from a given state.
template <class T>
struct LaneDeviations {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N };
    V removed[VECTORS], shift[VECTORS];

    LaneDeviations(const Job& job, const LaneBlock<T>& block) {
        for (int j = 0; j < VECTORS; j++) {
            V c = {};
            for (int k = 0; k < block.used(j); k++) c[k] = (T)job.state[(block.group + j * N + k) * STATE_SIZE + CENTER];
            removed[j] = block.parameters(job, job.alphas, j, job.alpha) * c;
            shift[j] = block.parameters(job, job.shifts, j, 0);
        }
    }
    GN_MEMBER V of(V x, int j) const { return (x - removed[j]) + shift[j]; }
};

// |z| instead of x, and their moments, with an estimate of the variance.
template <class T>
static void sizes_of_lanes(const Job& job, const LaneBlock<T>& block, T* u, Moments* m) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    const LaneDeviations<T> z(job, block);
    V least[VECTORS], most[VECTORS] = {};
    double sum[WIDTH] = {};
    for (int j = 0; j < VECTORS; j++) least[j] = all((T)INFINITY);
    for (int64_t i = 0; i < block.rows;) {
        const int64_t end = block.rows - i < 256 ? block.rows : i + 256;
        V part[VECTORS] = {};
        for (; i < end; i++)
            GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
                T* place = u + i * WIDTH + j * N;
                V a = absolute(z.of(load(place), j));
                part[j] += a, most[j] = larger(a, most[j]), least[j] = smaller(a, least[j]);
                store(place, a);
            }
        for (int l = 0; l < WIDTH; l++) sum[l] += part[l / N][l % N];
    }
    for (int l = 0; l < WIDTH; l++) {
        const double mean = sum[l] / (double)block.rows;
        m[l] = Moments{mean, HALF_NORMAL * mean * mean, least[l / N][l % N], most[l / N][l % N], mean - mean == 0};
    }
}

template <class E, class T>
static void write_lanes(const Job& job, const LaneBlock<T>& block) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    const LaneDeviations<T> z(job, block);
    const LanePlace<const E> x = block.template in_x<E>(job);
    const LanePlace<E> y = block.in(job, (E*)job.y);
    V scale[VECTORS], offset[VECTORS];
    for (int j = 0; j < VECTORS; j++) {
        V rho = {};
        for (int k = 0; k < block.used(j); k++) rho[k] = (T)job.state[(block.group + j * N + k) * STATE_SIZE + RHO];
        scale[j] = rho * block.parameters(job, job.gammas, j, 1), offset[j] = block.parameters(job, job.betas, j, 0);
    }
    for (int64_t i = 0; i < block.rows; i++) {
        prefetch_row<WIDTH>(x.row(i + AHEAD)), prefetch_row_for_write<WIDTH>(y.row(i + AHEAD));
        GN_UNROLLED for (int j = 0; j < VECTORS; j++)
            block.put(y.row(i), j, z.of(block.take(x.row(i), j), j) * scale[j] + offset[j]);
    }
}

template <class T>
static void sweep_lanes(const Job& job, const LaneBlock<T>& block, const T* u) {
    enum { WIDTH = LaneBlock<T>::WIDTH };
    double phi[WIDTH];
    bool active[WIDTH];
    Moments m[WIDTH] = {};
    const double* points = job.points + block.group * POINTS;
    for (int l = 0; l < WIDTH; l++) {
        const double* point = points + (l < block.width ? l : 0) * POINTS;
        active[l] = l < block.width && point[POINT_Y] == point[POINT_Y];
        phi[l] = point[POINT_PHI], m[l].highest = active[l] ? point[POINT_SCALE] : 0;
    }
    LaneSearch<T> lanes;
    lanes.start(phi, active, m, block.rows, block.width);
    for (int l = 0; l < WIDTH; l++)
        if (active[l]) lanes.search[l].y = points[l * POINTS + POINT_Y];
    Sums sums[WIDTH];
    switch (lanes.exponent.power()) {
        case ROOT: lanes.template sweep<ROOT>(u, block.rows, sums); break;
        case GENERAL: lanes.template sweep<GENERAL>(u, block.rows, sums); break;
        default: lanes.template sweep<SPECIAL>(u, block.rows, sums);
    }
    for (int64_t l = 0; l < block.width; l++) {
        double* out = job.found + (block.group + l) * SWEPT;
        for (int i = 0; i < SWEPT; i++) out[i] = 0;
        if (!active[l]) continue;
        const double* point = points + l * POINTS;
        const Point<T> y(point[POINT_Y]);
        const double scale = point[POINT_SCALE];
        Neighbours near = {(double)(sums[l].closest == 0), sums[l].closest, 0, 0};
        if (phi[l] < 2 && (sums[l].closest == 0 || point[POINT_NEAR] > 0))
            near = neighbours(u + l, block.rows, WIDTH, y, scale);
        put_sums(out, sums[l], near, scale);
    }
}

template <class E>
static Status part_of_lanes(const Job& job, int64_t unit, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    enum { WIDTH = LaneBlock<T>::WIDTH };
    const LaneBlock<T> block(job, unit);
    if (job.task == WRITE) {
        write_lanes<E, T>(job, block);
        return DONE;
    }
    const int64_t rows = block.rows, size = rows * WIDTH;
    T* u = (T*)scratch.get((size + 1024 * WIDTH + rows + 64) * sizeof(T));
    if (!u) return REFUSED;
    Moments m[WIDTH];
    measure_lanes<E, T>(block, block.template in_x<E>(job), u, m);
    if (job.task == MEASURE && !job.sizes) {
        for (int64_t l = 0; l < block.width; l++) {
            if (m[l].finite && !moderate<T>(m[l])) return REFUSED;
            for (int64_t i = 0; i < rows && !m[l].finite; i++) {
                T v = u[i * WIDTH + l];
                if (!(v - v == 0)) break;
                if (i == rows - 1) return REFUSED;  // finite, but too large for these sums
            }
        }
    }
    if (job.sizes) sizes_of_lanes<T>(job, block, u, m);
    if (job.task == SWEEP) {
        sweep_lanes<T>(job, block, u);
        return DONE;
    }
    double phi[WIDTH], center[WIDTH], bound[WIDTH], sweeps[WIDTH];
    for (int l = 0; l < WIDTH; l++) {
        phi[l] = job.points[(block.group + (l < block.width ? l : 0)) * POINTS + POINT_PHI];
        if (!(phi[l] >= 1.01 && phi[l] <= 4)) phi[l] = 2;
        center[l] = m[l].mean;
    }
    solve_lanes<T>(u, block, phi, m, u + size, center, bound, sweeps);
    for (int64_t l = 0; l < block.width; l++)
        put_measures(job.found + (block.group + l) * MEASURES, m[l], (double)rows, center[l]);
    return DONE;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
