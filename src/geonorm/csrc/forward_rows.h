// Forward of one group in the layout ROWS. The group is packed into scratch memory once; every sweep runs from there.
#pragma once
#include "middle.h"
#include "rows.h"
#include "scratch.h"
#include "warm_start.h"

namespace geonorm {
namespace GEONORM_ISA {

// Sums of x − base and of its square, and the extremes.
template <class T>
struct MomentSums {
    typedef typename Of<T>::V V;
    double sum = 0, squares = 0;
    V lowest, highest, some, base;

    MomentSums(T base_, T some_) : lowest(all(some_)), highest(all(some_)), some(all(some_)), base(all(base_)) {}

    template <class E>
    void add(const E* x, int64_t n) {
        const V from = base, other = some;
        V least = lowest, most = highest;  // not in memory while the loop runs
        for (int64_t i = 0; i < n; i += BLOCK) {
            V s = {}, q = {};
            each_piece<T>(i, n - i < BLOCK ? n : i + BLOCK, [&](auto piece) __attribute__((always_inline)) {
                V v = piece.or_else(piece.take(x), other), d = piece.only(v - from);
                s += d, q += d * d;
                least = smaller(v, least), most = larger(v, most);
            });
            sum += total<T>(s), squares += total<T>(q);
        }
        lowest = least, highest = most;
    }

    // True unless the base was too far from the mean.
    bool finish(Moments& m, int64_t count) {
        m.lowest = least_lane(lowest), m.highest = largest_lane(highest);
        return finish_moments<T>(m, base[0], sum, squares, count, BLOCK / Of<T>::N);
    }
};

template <class E>
static bool all_finite(const Job& job, int64_t group) {
    for (int64_t run = 0; run < job.runs; run++) {
        const E* x = run_of<E>(job, group, run);
        for (int64_t i = 0; i < job.length; i++)
            if (!(widen(x[i]) - widen(x[i]) == 0)) return false;
    }
    return true;
}

template <class E, class T>
static void add_runs(MomentSums<T>& sums, const Job& job, int64_t group) {
    if (is_packed(job) && !job.places) return sums.add(run_of<E>(job, group, 0), job.runs * job.length);
    for (int64_t run = 0; run < job.runs; run++) sums.add(run_of<E>(job, group, run), job.length);
}

// Measures a group, and copies it into u, unless that is null, while it is in the first-level cache.
template <class E, class T>
static Moments measure_rows(const Job& job, int64_t group, T* u) {
    const int64_t count = job.runs * job.length;
    T base = 0;
    const int few = count < 4 ? (int)count : 4;
    const bool in_one_piece = is_packed(job) && !job.places;
    const E* values = run_of<E>(job, group, 0);
    for (int k = 0; k < few; k++) {
        int64_t i = count / few * k;
        base += (T)widen(in_one_piece ? values[i] : run_of<E>(job, group, i / job.length)[i % job.length]);
    }
    base /= (T)few;
    if (!(base - base == 0)) base = 0;
    MomentSums<T> sums(base, (T)widen(run_of<E>(job, group, 0)[0]));
    if (!u) {
        add_runs<E>(sums, job, group);
    } else {
        int64_t done = 0, seen = 0;
        for (int64_t run = 0; run < job.runs; run++) {
            const E* from = run_of<E>(job, group, run);
            const E* next = run_to_prefetch<E>(job, group, run);
            for (int64_t i = 0; i < job.length; i += BLOCK) {
                int64_t end = job.length - i < BLOCK ? job.length : i + BLOCK;
                each_piece<T>(i, end, [&](auto piece) __attribute__((always_inline)) {
                    prefetch_next<T>(next, piece);
                    piece.put(u + done, piece.take(from));
                });
                int64_t packed = done + end;
                if (packed - seen >= BLOCK) sums.add(u + seen, packed - seen), seen = packed;
            }
            done += job.length;
        }
        sums.add(u + seen, done - seen);
    }
    Moments m;
    if (!sums.finish(m, count)) {
        MomentSums<T> again((T)m.mean, (T)widen(run_of<E>(job, group, 0)[0]));
        u ? again.add(u, count) : add_runs<E>(again, job, group);
        again.finish(m, count);
    }
    return m;
}

// A center, the bound on its error, and for φ = 1 and ∞ the two values it lies between.
struct FoundCenter {
    double center, lower, upper, bound, sweeps;
};

// The centers of packed values, of several groups at once. `second`: memory for one group.
template <class T>
static void find_centers(const T* const* u, int64_t n, const double* phi, const Moments* m, int count, T* second,
                         FoundCenter* found) {
    RowSearch<T> rows[MOST_ROWS];
    bool some = false;
    for (int i = 0; i < count; i++) {
        const double lowest = m[i].lowest, highest = m[i].highest;
        if (lowest == highest) {
            found[i] = {lowest, lowest, lowest, 0, 0};
        } else if (phi[i] == 2) {
            found[i] = {m[i].mean, m[i].mean, m[i].mean, m[i].slack, 0};
        } else if (phi[i] == 1 || phi[i] == INFINITY) {
            double lower = lowest, upper = highest;
            if (phi[i] == 1) middle_values(u[i], n, second, lower, upper);
            found[i] = {0.5 * lower + 0.5 * upper, lower, upper, 0, 0};
        } else {
            RowSearch<T>& row = rows[i];
            row.x = u[i], row.n = n, row.exponent = exponent_of(phi[i]);
            const double from = start_from_sample(u[i], n, row.exponent, m[i].mean, second);
            row.search.start(phi[i], Of<T>::eps, (double)n, lowest, highest, from);
            some = true;
        }
    }
    if (!some) return;
    warm_start(rows, m, count);
    run_searches(rows, count);
    for (int i = 0; i < count; i++) {
        const Search& one = rows[i].search;
        if (one.sweeps > 0)  // otherwise there was nothing to search
            found[i] = {one.center, one.center, one.center, one.bound, (double)one.sweeps};
    }
}
template <class T>
static FoundCenter find_center(const T* u, int64_t n, double phi, const Moments& m, T* second) {
    FoundCenter found;
    find_centers<T>(&u, n, &phi, &m, 1, second, &found);
    return found;
}

// Calls f(piece, z, run) for the deviations z of packed values. MODE is that of job.parameters.
template <int64_t MODE, class T, class F>
GN_INLINE void each_deviation(const Job& job, const RowParameters<T>& of, const T* u, double center, F f) {
    typedef typename Of<T>::V V;
    const V c = all((T)center);
    V removed = all((T)(of.alpha_of(0) * (T)center)), shift = all(of.shift_of(0));
    for (int64_t run = 0; run < job.runs; run++) {
        const T* values = u + run * job.length;
        if (MODE == PER_RUN) removed = all((T)(of.alpha_of(run) * (T)center)), shift = all(of.shift_of(run));
        each_piece<T>(0, job.length, [&](auto piece) __attribute__((always_inline)) {
            V z = piece.take(values);
            if (MODE == PER_VALUE) {
                z = z - of.along(of.alphas, piece, of.alpha) * c;
                f(piece, of.shifts ? z + piece.take(of.shifts) : z, run);
            } else {
                f(piece, (z - removed) + shift, run);
            }
        });
    }
}
template <class T, class F>
GN_INLINE void each_deviation(const Job& job, const RowParameters<T>& of, const T* u, double center, F f) {
    switch (job.parameters) {
        case PER_GROUP: return each_deviation<PER_GROUP, T>(job, of, u, center, f);
        case PER_RUN: return each_deviation<PER_RUN, T>(job, of, u, center, f);
        default: return each_deviation<PER_VALUE, T>(job, of, u, center, f);
    }
}

// The spread of the deviations.
template <class T>
static void find_spread(const Job& job, const RowParameters<T>& of, const T* u, const Moments& m, T* second,
                        double* state) {
    typedef typename Of<T>::V V;
    const int64_t n = job.runs * job.length;
    const double c = state[CENTER];
    const bool alike = job.parameters == PER_GROUP || (!of.alphas && !of.shifts);  // all values have the same α and shift
    if (alike) state[MEAN_Z] = m.mean - (double)of.alpha_of(0) * c + of.shift_of(0);
    if (job.spread == NO_SPREAD) return set_spread<T>(state, job, 1);
    if (job.spread == RMS && alike)
        return set_spread<T>(state, job, sqrt(m.var + state[MEAN_Z] * state[MEAN_Z]));
    double sum = 0, largest = 0, smallest = INFINITY;
    V part = {}, most = {}, fewest = all((T)INFINITY);
    int64_t since = 0;
    const int64_t spread = job.spread;
    auto flush = [&]() __attribute__((always_inline)) { sum += total<T>(part), part = V{}, since = 0; };
    each_deviation<T>(job, of, u, c, [&](auto piece, V z, int64_t run) __attribute__((always_inline)) {
        V a = piece.only(absolute(z));
        part += spread == RMS ? a * a : a;
        if (spread >= MAX_ABS) {
            most = larger(a, most);
            if (spread == ROBUST) {
                fewest = smaller(piece.or_else(absolute(z), fewest), fewest);
                piece.put(second + run * job.length, absolute(z));
            }
        }
        if (++since == BLOCK / Of<T>::N) flush();
    });
    flush();
    largest = largest_lane(most), smallest = least_lane(fewest);
    if (spread == RMS) return set_spread<T>(state, job, sqrt(sum / n));
    if (spread == MEAN_ABS) return set_spread<T>(state, job, sum / n);
    if (spread == MAX_ABS) return set_spread<T>(state, job, largest);
    Moments sizes = {sum / n, HALF_NORMAL * (sum / n) * (sum / n), smallest, largest, true};
    const FoundCenter found = find_center<T>(second, n, job.psi, sizes, second + n);
    state[MIDDLE] = rounded<T>(found.center);
    state[LOWER_2] = rounded<T>(found.lower), state[UPPER_2] = rounded<T>(found.upper);
    set_distances<T>(state, state[MIDDLE], smallest, largest, UNIT_2, LEAST_2);
    double value = rounded<T>(job.psi_factor * state[MIDDLE]), least = rounded<T>(job.spread_floor * (sum / n));
    state[FLOORED] = least > value;
    set_spread<T>(state, job, most_of(value, least));
}

template <class E, class T, int64_t MODE>
static void write_rows(const Job& job, const RowParameters<T>& of, const T* u, const double* state, E* y) {
    typedef typename Of<T>::V V;
    const T rho = (T)state[RHO];
    V scale = all((T)(rho * of.gamma_of(0))), offset = all(of.beta_of(0));
    int64_t current = 0;
    each_deviation<MODE, T>(job, of, u, state[CENTER], [&](auto piece, V z, int64_t run) __attribute__((always_inline)) {
        if (MODE == PER_VALUE) {
            scale = all(rho) * of.along(of.gammas, piece, (T)1), offset = of.along(of.betas, piece, (T)0);
        } else if (MODE == PER_RUN && run != current) {
            current = run, scale = all((T)(rho * of.gamma_of(run))), offset = all(of.beta_of(run));
        }
        piece.put(y + run * job.run_stride, z * scale + offset);
    });
}

// The state of a group that has been measured, and its output.
template <class E, class T>
static void finish_row(const Job& job, int64_t group, const T* u, const Moments& m, const FoundCenter& found, T* second) {
    double* state = job.state + group * STATE_SIZE;
    const RowParameters<T> of(job, group);
    if (m.finite) {
        state[MEAN] = rounded<T>(m.mean), state[VAR] = rounded<T>(m.var);
        state[CENTER] = rounded<T>(found.center);
        state[LOWER] = rounded<T>(found.lower), state[UPPER] = rounded<T>(found.upper);
        set_certificate<T>(state, found.center, found.bound, found.sweeps, job.runs * job.length);
        set_distances<T>(state, state[CENTER], m.lowest, m.highest, UNIT, LEAST);
        find_spread<T>(job, of, u, m, second, state);
    }
    if (!job.y) return;
    E* y = (E*)job.y + group * job.group_stride;
    switch (job.parameters) {
        case PER_GROUP: return write_rows<E, T, PER_GROUP>(job, of, u, state, y);
        case PER_RUN: return write_rows<E, T, PER_RUN>(job, of, u, state, y);
        default: return write_rows<E, T, PER_VALUE>(job, of, u, state, y);
    }
}

// Groups [first, last), at most MOST_ROWS, of which each step is made for all before the next.
template <class E>
static Status forward_few_rows(const Job& job, int64_t first, int64_t last, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    const int64_t n = job.runs * job.length;
    const int count = (int)(last - first);
    // Without an output, mean and rms need only moments: the values are not copied.
    const bool alike = job.parameters == PER_GROUP || (!job.alphas && !job.shifts);
    const bool in_place = sizeof(E) == sizeof(T) && is_packed(job) && !job.places;
    const int64_t padded = (n + 63) & ~(int64_t)63;
    double phi[MOST_ROWS];
    bool closed = true, median = false;
    for (int i = 0; i < count; i++) {
        phi[i] = phi_of<T>(job, first + i);
        if (job.centered && !solvable(phi[i])) return REFUSED;
        closed = closed && (!job.centered || phi[i] == 2 || phi[i] == INFINITY);
        median = median || (job.centered && phi[i] == 1);
    }
    const bool by_moments = closed && job.spread <= (alike ? RMS : NO_SPREAD);
    const bool copy = !in_place && (job.y || !by_moments);
    const int64_t extra = (median || job.spread == ROBUST ? padded : 0) + (job.spread == ROBUST ? padded : 0) + 8192 + 64;
    T* memory = (T*)scratch.get(((copy ? count * padded : 0) + extra) * sizeof(T));
    if (!memory) return REFUSED;
    T* second = memory + (copy ? count * padded : 0);

    const T* u[MOST_ROWS];
    Moments m[MOST_ROWS];
    FoundCenter found[MOST_ROWS] = {};
    for (int i = 0; i < count; i++) {
        const int64_t group = first + i;
        double* state = job.state + group * STATE_SIZE;
        memset(state, 0, STATE_SIZE * sizeof(double));  // columns that the rule does not use
        u[i] = copy ? memory + i * padded : (const T*)run_of<E>(job, group, 0);
        m[i] = measure_rows<E, T>(job, group, copy ? (T*)u[i] : nullptr);
        if (!m[i].finite) {
            if (all_finite<E>(job, group)) return REFUSED;
            set_broken(state, n);
            m[i].lowest = m[i].highest = 0;  // nothing to search
        } else if (!moderate<T>(m[i])) {
            return REFUSED;
        }
    }
    if (job.centered) find_centers<T>(u, n, phi, m, count, second, found);
    for (int i = 0; i < count; i++) finish_row<E, T>(job, first + i, u[i], m[i], found[i], second);
    return DONE;
}

// Groups [first, last).
template <class E>
static Status forward_rows(const Job& job, int64_t first, int64_t last, Scratch& scratch) {
    const int64_t n = job.runs * job.length, together = 4096 / n;  // they stay in the first-level cache
    const int64_t few = together < 1 ? 1 : together > MOST_ROWS ? (int64_t)MOST_ROWS : together;
    for (int64_t i = first; i < last; i += few) {
        const Status status = forward_few_rows<E>(job, i, last - i < few ? last : i + few, scratch);
        if (status != DONE) return status;
    }
    return DONE;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
