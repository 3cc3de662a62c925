// Backward of one group in the layout ROWS: one pass for the sums, one for the gradient of x.
#pragma once
#include "gradient.h"
#include "rows.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// Gradients of parameters with one entry per value of a group, collected over the groups of a chunk; or null.
template <class T>
struct ValueSums {
    T* of[SUMS] = {nullptr, nullptr, nullptr, nullptr};
};

template <class T, PieceKind K>
GN_INLINE void add_values(const ValueSums<T>& values, Piece<T, K> piece, typename Of<T>::V d_gamma,
                          typename Of<T>::V d_beta) {
    if (values.of[D_GAMMA]) add_to(values.of[D_GAMMA], piece, d_gamma);
    if (values.of[D_BETA]) add_to(values.of[D_BETA], piece, d_beta);
}

template <class E, Power POWER, Form FORM, bool PHI>
static void backward_row_as(const Job& job, int64_t group, double* run_sums, double& d_phi,
                            ValueSums<typename Computing<E>::T> values, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    const int64_t n = job.runs * job.length, offset = group * job.group_stride;
    const E* g = (const E*)job.g + offset;
    E* dx = (E*)job.dx + offset;
    const double* state = job.state + group * STATE_SIZE;
    const RowParameters<T> of(job, group);
    const bool per_value = job.parameters == PER_VALUE, per_run = job.parameters == PER_RUN;
    const bool weighted = POWER != ONE && POWER != NONE && POWER != EDGES;
    const bool centered = FORM == CENTERED || FORM == BY_ROOT;
    const Slope<T, POWER, PHI> pull(state, phi_of<T>(job, group), centered);
    const Spreading<T> push(job, state);
    const V c = all((T)state[CENTER]), rho = all((T)state[RHO]);

    // Keeping a power in the cache is cheaper than computing it again, an inverse root only in the first-level cache.
    const bool whole = job.task == WHOLE_JOB;
    const int64_t most = POWER == ROOT ? KEEP_ROOTS_BYTES : (int64_t)KEEP_BYTES;
    const bool keeps = weighted && whole && n * (int64_t)sizeof(T) <= most;
    T* kept = keeps ? (T*)scratch.get(n * sizeof(T)) : nullptr;

    // Sums: Σαγg, Σγg·x̂ and Σασ over the group, and those of the slope and of the spread. All that touches them is inlined:
    // a call would keep them in memory.
    double with_center = 0, with_spread = 0, directions = 0, sum_g = 0, sum_gx = 0, sum_d = 0;
    V g0 = {}, g1 = {}, d0 = {};
    PullSums<T> pulled;
    PushSums<T> pushed;
    int64_t since = 0;
    T alpha = of.alpha_of(0), gamma = of.gamma_of(0);
    V removed = all((T)(alpha * (T)state[CENTER])), shift = all(of.shift_of(0));
    const bool brief = per_run && job.length <= 256;  // then sums in T lose nothing, and sums in double cost too much
    auto sum_of = [&](V v) __attribute__((always_inline)) { return brief ? (double)quick_sum(v) : total<T>(v); };
    auto flush_run = [&]() __attribute__((always_inline)) {
        sum_g += sum_of(g0), sum_gx += sum_of(g1), g0 = g1 = V{};
        if (FORM != CENTERED) sum_d += sum_of(d0), d0 = V{};
    };
    auto flush = [&]() __attribute__((always_inline)) {
        flush_run();
        if (weighted || POWER == EDGES) pulled.flush();
        if (FORM == BY_ROOT || FORM == ANY) pushed.flush();
        since = 0;
    };
    auto finish = [&](double* sums) __attribute__((always_inline)) {  // of a run, or of all runs if they have the same parameters
        flush_run();
        if (per_value) {
            with_center = FORM == ANY ? sum_g : (double)alpha * sum_g, with_spread = sum_gx, directions = sum_d;
            return;
        }
        with_center += (double)alpha * gamma * sum_g, with_spread += (double)gamma * sum_gx;
        directions += (double)alpha * sum_d;
        sums[D_GAMMA] = sum_gx, sums[D_BETA] = sum_g, sums[D_SHIFT] = sum_d;
        sum_g = sum_gx = sum_d = 0;
    };
    for (int64_t run = 0; run < (job.task == SPREAD_OUT ? 0 : job.runs); run++) {
        const E *xr = run_of<E>(job, group, run), *gr = g + run * job.run_stride;
        const E *next_x = run_to_prefetch<E>(job, group, run), *next_g = next_x ? gr + job.run_stride : nullptr;
        if (per_run) {
            alpha = of.alpha_of(run), gamma = of.gamma_of(run);
            removed = all((T)(alpha * (T)state[CENTER])), shift = all(of.shift_of(run));
        }
        for (int64_t i = 0; i < job.length; i += BLOCK) {
            int64_t end = job.length - i < BLOCK ? job.length : i + BLOCK;
            each_piece<T>(i, end, [&](auto piece) __attribute__((always_inline)) {
                prefetch_next<T>(next_x, piece), prefetch_next<T>(next_g, piece);
                V xv = piece.take(xr), gv = piece.only(piece.take(gr)), hat;
                if (FORM == ANY) {
                    V a = of.along(per_value ? of.alphas : nullptr, piece, alpha);
                    V z = (xv - a * c) + (per_value && of.shifts ? piece.take(of.shifts) : shift);
                    V h = gv * of.along(per_value ? of.gammas : nullptr, piece, (T)1);
                    V sigma = piece.only(push.direction(z, pushed, piece.fresh()));
                    hat = z * rho;
                    g1 += h * hat;
                    if (per_value) {
                        g0 += h * a, d0 += sigma * a;
                        add_values(values, piece, gv * hat, gv);
                    } else {
                        g0 += h, d0 += sigma;
                    }
                } else {
                    V z = centered ? xv - c : (xv - removed) + shift, h = gv;
                    hat = z * rho;
                    if (per_value) {
                        h = gv * of.along(of.gammas, piece, (T)1);
                        add_values(values, piece, gv * hat, gv);
                    }
                    g0 += h, g1 += h * hat;
                    if (FORM == SHIFTED && per_run) d0 += piece.only(z);
                    if (FORM == BY_ROOT) d0 += piece.only(push.direction_by_root(z, pushed, piece.fresh()));
                }
                V w = pull.add(centered ? hat : (xv - c) * pull.unit, xv, pulled, piece.fresh());
                if (kept) piece.put(kept + run * job.length, w);
            });
            since += end - i;
            if (since >= BLOCK) flush();
        }
        if (per_run || run == job.runs - 1) finish(run_sums + (per_run ? run * SUMS : 0));
    }
    flush();
    if (FORM == CENTERED || (FORM == SHIFTED && !per_run)) {  // the deviations add up to a number that forward knows
        run_sums[D_SHIFT] = n * state[MEAN_Z];
        directions = (double)of.alpha_of(0) * run_sums[D_SHIFT];
    }

    if (job.task == ADD_UP) {
        const double parts[] = {run_sums[D_BETA], run_sums[D_GAMMA], run_sums[D_SHIFT],
                                pulled.slope.wide.all(), pulled.moment.wide.all(), pushed.count.wide.all()};
        for (int i = 0; i < PARTS; i++) job.found[group * PARTS + i] = parts[i];
        return;
    }
    const Flow flow =
        !whole ? given_flow(job, group) :
        flow_of(job, state, phi_of<T>(job, group), POWER, (double)n, with_center, with_spread, directions,
                pulled.slope.wide.all(), pulled.moment.wide.all(), pushed.count.wide.all());
    d_phi = PHI ? flow.d_phi : state[CENTER] - state[CENTER];  // 0, or the NaN of a broken group
    if (!per_value && whole && !centered) {
        for (int64_t run = 0; run < (per_run ? job.runs : 1); run++) {
            double* sums = run_sums + run * SUMS;
            double dz = state[RHO] * of.gamma_of(run) * sums[D_BETA] + flow.spread * sums[D_SHIFT];
            sums[D_SHIFT] = dz, sums[D_ALPHA] = -state[CENTER] * dz;
        }
    }

    const V by_spread = all((T)flow.spread), by_center = all((T)flow.center);
    const V edge_lower = all((T)flow.edge_lower), edge_upper = all((T)flow.edge_upper);
    V scale = rho;
    PushSums<T> unused;
    const bool keep_dz = per_value && (values.of[D_ALPHA] || values.of[D_SHIFT]);
    for (int64_t run = 0; run < job.runs; run++) {
        const E *xr = run_of<E>(job, group, run), *gr = g + run * job.run_stride;
        E* out = dx + run * job.run_stride;
        if (per_run || run == 0) {
            alpha = of.alpha_of(run), scale = all((T)((T)state[RHO] * of.gamma_of(run)));
            removed = all((T)(alpha * (T)state[CENTER])), shift = all(of.shift_of(run));
        }
        each_piece<T>(0, job.length, [&](auto piece) __attribute__((always_inline)) {
            V xv = piece.take(xr), gv = piece.take(gr), r = xv - c, dz;
            if (FORM == ANY) {
                V a = of.along(per_value ? of.alphas : nullptr, piece, alpha);
                V z = (xv - a * c) + (per_value && of.shifts ? piece.take(of.shifts) : shift);
                V h = per_value && of.gammas ? gv * rho * piece.take(of.gammas) : gv * scale;
                dz = h + push.direction(z, unused, piece.fresh()) * by_spread;
                if (keep_dz) {
                    if (values.of[D_SHIFT]) add_to(values.of[D_SHIFT], piece, dz);
                    if (values.of[D_ALPHA]) add_to(values.of[D_ALPHA], piece, dz * -c);
                }
            } else {
                V z = centered ? r : (xv - removed) + shift;
                V sigma = FORM == BY_ROOT ? push.direction_by_root(z, unused, piece.fresh()) : z;
                dz = gv * (per_value ? rho * of.along(of.gammas, piece, (T)1) : scale) + sigma * by_spread;
            }
            if (POWER == ONE) {
                dz += by_center;
            } else if (POWER != NONE) {
                V w = kept ? piece.take(kept + run * job.length) : pull.at(r * pull.unit, xv, edge_lower, edge_upper);
                dz += w * by_center;
            }
            piece.put(out, dz);
        });
    }
}

// Every case takes seconds to compile, so only the usual ones have code of their own.
template <class E, Form FORM>
static void backward_row_in(const Job& job, int64_t group, double* run_sums, double& d_phi,
                            ValueSums<typename Computing<E>::T> values, Scratch& scratch, Power power) {
    constexpr bool USUAL = FORM == CENTERED;
    constexpr Power BY_ROOT_OR_PATH = USUAL ? ROOT : SPECIAL;
    constexpr Form WITH_EDGES = USUAL ? SHIFTED : FORM;
    switch (power) {
        case ONE: return backward_row_as<E, ONE, FORM, false>(job, group, run_sums, d_phi, values, scratch);
        case NONE: return backward_row_as<E, NONE, FORM, false>(job, group, run_sums, d_phi, values, scratch);
        case EDGES: return backward_row_as<E, EDGES, WITH_EDGES, false>(job, group, run_sums, d_phi, values, scratch);
        case ROOT: return backward_row_as<E, BY_ROOT_OR_PATH, FORM, false>(job, group, run_sums, d_phi, values, scratch);
        default: return backward_row_as<E, SPECIAL, FORM, false>(job, group, run_sums, d_phi, values, scratch);
    }
}

template <class E>
static void backward_row(const Job& job, int64_t group, double* run_sums, double& d_phi,
                         ValueSums<typename Computing<E>::T> values, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    const double* state = job.state + group * STATE_SIZE;
    const double phi = phi_of<T>(job, group);
    const Form form = form_of(job);
    const Power power = power_of(job, state, phi);
    const bool has_phi = power == ROOT || power == SPECIAL || power == GENERAL || phi == 2;
    if (job.d_phi && has_phi && state[UNIT] > 0) {
        if (form == ANY) return backward_row_as<E, GENERAL, ANY, true>(job, group, run_sums, d_phi, values, scratch);
        return backward_row_as<E, GENERAL, SHIFTED, true>(job, group, run_sums, d_phi, values, scratch);
    }
    if constexpr (sizeof(E) == 4) {
        const bool usual = job.spread == ROBUST && job.psi == 1.5 && state[FLOORED] == 0 && job.parameters != PER_VALUE;
        const bool plain = job.alpha == 1 && !job.alphas && !job.shifts && job.task == WHOLE_JOB;
        if (usual && plain && power == ROOT)
            return backward_row_as<E, ROOT, BY_ROOT, false>(job, group, run_sums, d_phi, values, scratch);
    }
    if (form == ANY) return backward_row_in<E, ANY>(job, group, run_sums, d_phi, values, scratch, power);
    if constexpr (IS_COMMON<E>) {
        if (form == CENTERED) return backward_row_in<E, CENTERED>(job, group, run_sums, d_phi, values, scratch, power);
    }
    backward_row_in<E, SHIFTED>(job, group, run_sums, d_phi, values, scratch, power);
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
