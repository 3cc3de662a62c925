// Forward of a block of neighbouring groups in the layout LANES.
#pragma once
#include "kth_lanes.h"
#include "lane_search.h"
#include "middle.h"

namespace geonorm {
namespace GEONORM_ISA {

// Measures every lane of the block, and copies it into u on the way, row by row, unless u is null.
template <class E, class T>
static void measure_lanes(const LaneBlock<T>& block, LanePlace<const E> x, T* u, Moments* m) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    V base[VECTORS], lowest[VECTORS], highest[VECTORS];
    const int64_t few = block.rows < 8 ? block.rows : 8;
    for (int j = 0; j < VECTORS; j++) {
        V sum = {};
        for (int64_t k = 0; k < few; k++) sum += block.take(x.row(block.rows / few * k), j);
        base[j] = sum / (T)few;
        base[j] = choose(base[j] - base[j] == (T)0, base[j]);
        lowest[j] = highest[j] = block.take(x.row(0), j);
    }
    for (int pass = 0; pass < 2; pass++) {
        Wide<T> sum[VECTORS], squares[VECTORS];
        for (int64_t i = 0; i < block.rows;) {
            int64_t end = block.rows - i < 256 ? block.rows : i + 256;
            // What only unrolled loops touch stays in registers.
            const V from[VECTORS] = {base[0], base[1]};
            V s[VECTORS] = {}, q[VECTORS] = {}, least[VECTORS] = {lowest[0], lowest[1]};
            V most[VECTORS] = {highest[0], highest[1]};
            for (; i < end; i++)
                GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
                    V v = pass && u ? load(u + i * WIDTH + j * N) : block.take(x.row(i), j), d = v - from[j];
                    if (!pass && j == 0) prefetch_row<WIDTH>(x.row(i + AHEAD));
                    if (!pass && u) store(u + i * WIDTH + j * N, v);
                    s[j] += d, q[j] += d * d;
                    least[j] = smaller(v, least[j]), most[j] = larger(v, most[j]);
                }
            GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
                sum[j].add(s[j]), squares[j].add(q[j]), lowest[j] = least[j], highest[j] = most[j];
            }
        }
        bool good = true;
        for (int l = 0; l < WIDTH; l++) {
            int j = l / N, k = l % N;
            m[l].lowest = lowest[j][k], m[l].highest = highest[j][k];
            good = finish_moments<T>(m[l], base[j][k], sum[j][k], squares[j][k], block.rows, 256) && good;
            if (m[l].finite) base[j][k] = (T)m[l].mean;
        }
        if (good) break;
    }
}

// The two middle values of every lane. `memory` has room for the block, `column` for one lane.
template <class T>
static void medians_of_lanes(const T* u, int64_t rows, const Moments* m, T* memory, T* column, double* lower,
                             double* upper) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    const bool passes = rows * N * (int64_t)sizeof(T) <= CACHE_BYTES / 2;  // beyond the cache, many passes take long
    for (int j = 0; j < VECTORS && passes; j++) {
        V kth, next, *values = (V*)memory;
        for (int64_t i = 0; i < rows; i++) values[i] = load(u + i * WIDTH + j * N);
        kth_values<T>(values, rows, all((T)((rows - 1) / 2)), kth, next);
        for (int k = 0; k < N; k++) lower[j * N + k] = kth[k], upper[j * N + k] = rows % 2 ? kth[k] : next[k];
    }
    for (int l = 0; l < WIDTH && !passes; l++) {
        if (!m[l].finite) continue;
        for (int64_t i = 0; i < rows; i++) column[i] = u[i * WIDTH + l];
        middle_values(column, rows, memory, lower[l], upper[l]);
    }
}

template <class T>
static void solve_lanes(const T* u, const LaneBlock<T>& block, const double* phi, const Moments* m, T* sample,
                        double* center, double* bound, double* sweeps) {
    enum { WIDTH = LaneBlock<T>::WIDTH };
    LaneSearch<T> lanes;
    bool solve[WIDTH];
    bool any = false;
    for (int l = 0; l < WIDTH; l++) {
        solve[l] = l < block.width && m[l].finite && m[l].lowest < m[l].highest && phi[l] != 2;
        any = any || solve[l];
    }
    if (!any) return;
    double from[WIDTH];
    for (int l = 0; l < WIDTH; l++) from[l] = m[l].mean;
    if (block.rows >= 8192) {  // start from the center of some of the rows
        int64_t stride = block.rows / 512, count = block.rows / stride;
        double sum[WIDTH] = {};
        for (int64_t i = 0; i < count; i++)
            for (int l = 0; l < WIDTH; l++) sum[l] += sample[i * WIDTH + l] = u[i * stride * WIDTH + l];
        lanes.start(phi, solve, m, count, block.width);
        lanes.run(sample, count, sample + count * WIDTH, 3);
        for (int l = 0; l < WIDTH; l++)
            if (solve[l]) from[l] += lanes.search[l].center - sum[l] / count;
    }
    lanes.start(phi, solve, m, block.rows, block.width);
    for (int l = 0; l < WIDTH; l++)
        if (solve[l]) lanes.search[l].center = lanes.search[l].y = most_of(m[l].lowest, least_of(m[l].highest, from[l]));
    lanes.warm_start(u, block.rows, m);
    lanes.run(u, block.rows, sample);
    for (int l = 0; l < WIDTH; l++)
        if (solve[l]) {
            const Search& one = lanes.search[l];
            center[l] = one.center, bound[l] = one.bound, sweeps[l] = one.sweeps;
        }
}

template <class E>
static Status forward_lane_block(const Job& job, int64_t unit, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    const LaneBlock<T> block(job, unit);
    const int64_t rows = block.rows, size = rows * WIDTH;
    // The states of a block are contiguous. 0 in columns that the rule does not use.
    memset(job.state + block.group * STATE_SIZE, 0, block.width * STATE_SIZE * sizeof(double));
    if (rows == 0) {
        for (int64_t l = 0; l < block.width; l++) {
            double* state = job.state + (block.group + l) * STATE_SIZE;
            state[BY] = 1;
            if (job.spread == NO_SPREAD) state[SPREAD] = 1;
        }
        return DONE;
    }
    double phi[WIDTH];
    for (int l = 0; l < WIDTH; l++) {
        phi[l] = phi_of<T>(job, block.group + (l < block.width ? l : 0));
        if (job.centered && (!solvable(phi[l]) || ((phi[l] == 1 || phi[l] == INFINITY) && phi[l] != phi[0])))
            return REFUSED;
    }
    const bool edges = job.centered && (phi[0] == 1 || phi[0] == INFINITY);
    for (int l = 0; l < block.width; l++)
        if (edges && phi[l] != phi[0]) return REFUSED;
    const bool median = edges && phi[0] == 1;
    // A search needs a copy; without one, the values are read twice where they lie.
    bool copied = median || job.spread > RMS || size * (int64_t)sizeof(T) <= COPY_BYTES;
    for (int l = 0; l < WIDTH; l++) copied = copied || (job.centered && !edges && phi[l] != 2);
    const LanePlace<const E> x = block.template in_x<E>(job);
    const int64_t copies = job.spread == ROBUST || median ? 2 : 1, samples = 1024 * WIDTH + rows;
    T* memory = copied ? (T*)scratch.get((size * copies + samples + 64) * sizeof(T)) : nullptr;
    if (copied && !memory) return REFUSED;
    T *u = memory, *second = copied ? u + size : nullptr, *sample = copied ? u + size * copies : nullptr;
    const auto value = [&](int64_t i, int j) __attribute__((always_inline)) {
        return copied ? load(u + i * WIDTH + j * N) : block.take(x.row(i), j);
    };

    Moments m[WIDTH];
    measure_lanes<E, T>(block, x, u, m);
    double lower_middle[WIDTH], upper_middle[WIDTH];
    if (median) medians_of_lanes(u, rows, m, second, sample, lower_middle, upper_middle);
    V removed[VECTORS], shift[VECTORS], scale[VECTORS], offset[VECTORS];
    double center[WIDTH], lower[WIDTH], upper[WIDTH], bound[WIDTH], sweeps[WIDTH];
    for (int l = 0; l < block.width; l++) {
        if (!m[l].finite) {
            for (int64_t i = 0; i < rows; i++) {
                T v = value(i, l / N)[l % N];
                if (!(v - v == 0)) break;
                if (i == rows - 1) return REFUSED;  // finite, but too large for these sums
            }
        } else if (!moderate<T>(m[l])) {
            return REFUSED;
        }
        center[l] = !job.centered ? 0 : m[l].lowest == m[l].highest ? m[l].lowest : m[l].mean;
        lower[l] = upper[l] = center[l], sweeps[l] = 0;
        bound[l] = job.centered && !edges && m[l].lowest != m[l].highest ? m[l].slack : 0;
        if (edges && m[l].finite) {
            lower[l] = m[l].lowest, upper[l] = m[l].highest;
            if (median) lower[l] = lower_middle[l], upper[l] = upper_middle[l];
            center[l] = 0.5 * lower[l] + 0.5 * upper[l];
        }
    }
    if (job.centered && !edges) solve_lanes<T>(u, block, phi, m, sample, center, bound, sweeps);

    for (int j = 0; j < VECTORS; j++) {
        V alpha = block.parameters(job, job.alphas, j, job.alpha), c;
        for (int k = 0; k < N; k++) c[k] = j * N + k < block.width ? (T)center[j * N + k] : (T)0;
        removed[j] = alpha * c, shift[j] = block.parameters(job, job.shifts, j, 0);
        for (int k = 0; k < block.used(j); k++) {
            int l = j * N + k;
            double* state = job.state + (block.group + l) * STATE_SIZE;
            if (!m[l].finite) {
                set_broken(state, rows);
                removed[j][k] = (T)NAN;
                continue;
            }
            state[CENTER] = rounded<T>(center[l]);
            set_certificate<T>(state, center[l], bound[l], sweeps[l], rows);
            state[LOWER] = edges ? lower[l] : state[CENTER], state[UPPER] = edges ? upper[l] : state[CENTER];
            state[MEAN] = rounded<T>(m[l].mean), state[VAR] = rounded<T>(m[l].var);
            state[MEAN_Z] = m[l].mean - (double)alpha[k] * state[CENTER] + shift[j][k];
            set_distances<T>(state, state[CENTER], m[l].lowest, m[l].highest, UNIT, LEAST);
            if (job.spread == NO_SPREAD) set_spread<T>(state, job, 1);
            if (job.spread == RMS) set_spread<T>(state, job, sqrt(m[l].var + state[MEAN_Z] * state[MEAN_Z]));
        }
    }
    if (job.spread > RMS) {
        V least[VECTORS], most[VECTORS] = {};
        double sum[WIDTH] = {};
        for (int j = 0; j < VECTORS; j++) least[j] = all((T)INFINITY);
        for (int64_t i = 0; i < rows;) {
            int64_t end = rows - i < 256 ? rows : i + 256;
            V part[VECTORS] = {};
            for (; i < end; i++)
                GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
                    V a = absolute((load(u + i * WIDTH + j * N) - removed[j]) + shift[j]);
                    part[j] += a, most[j] = larger(a, most[j]);
                    if (job.spread == ROBUST) store(second + i * WIDTH + j * N, a), least[j] = smaller(a, least[j]);
                }
            for (int l = 0; l < WIDTH; l++) sum[l] += part[l / N][l % N];
        }
        Moments sizes[WIDTH];
        double psi[WIDTH], middle[WIDTH];
        for (int l = 0; l < WIDTH; l++) {
            const double mean = sum[l] / rows;
            sizes[l] = Moments{mean, HALF_NORMAL * mean * mean, least[l / N][l % N], most[l / N][l % N], m[l].finite};
            psi[l] = job.psi;
            middle[l] = sizes[l].lowest == sizes[l].highest ? sizes[l].lowest : sizes[l].mean;
        }
        if (job.spread == ROBUST) solve_lanes<T>(second, block, psi, sizes, sample, middle, bound, sweeps);
        for (int l = 0; l < block.width; l++) {
            double* state = job.state + (block.group + l) * STATE_SIZE;
            if (!m[l].finite) continue;
            if (job.spread == MEAN_ABS) set_spread<T>(state, job, sizes[l].mean);
            if (job.spread == MAX_ABS) set_spread<T>(state, job, sizes[l].highest);
            if (job.spread != ROBUST) continue;
            state[MIDDLE] = rounded<T>(middle[l]);
            set_distances<T>(state, state[MIDDLE], sizes[l].lowest, sizes[l].highest, UNIT_2, LEAST_2);
            double value = rounded<T>(job.psi_factor * state[MIDDLE]);
            double floor = rounded<T>(job.spread_floor * sizes[l].mean);
            state[FLOORED] = floor > value;
            set_spread<T>(state, job, most_of(value, floor));
        }
    }

    if (!job.y) return DONE;
    const LanePlace<E> y = block.in(job, (E*)job.y);
    for (int j = 0; j < VECTORS; j++) {
        V rho = all((T)0);
        for (int k = 0; k < block.used(j); k++) rho[k] = (T)job.state[(block.group + j * N + k) * STATE_SIZE + RHO];
        scale[j] = rho * block.parameters(job, job.gammas, j, 1), offset[j] = block.parameters(job, job.betas, j, 0);
    }
    const V away[VECTORS] = {removed[0], removed[1]}, up[VECTORS] = {shift[0], shift[1]};
    const V times[VECTORS] = {scale[0], scale[1]}, plus[VECTORS] = {offset[0], offset[1]};
    for (int64_t i = 0; i < rows; i++) {
        prefetch_row_for_write<WIDTH>(y.row(i + AHEAD));
        GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
            V z = (value(i, j) - away[j]) + up[j];
            block.put(y.row(i), j, z * times[j] + plus[j]);
        }
    }
    return DONE;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
