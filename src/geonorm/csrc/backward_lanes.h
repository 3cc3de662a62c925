// Backward of a block of neighbouring groups in the layout LANES.
#pragma once
#include "gradient.h"
#include "lanes.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// What the loops over a block need of each vector. Loops use copies that nothing changes: those stay in registers, whereas a
// vector whose lanes are set one by one lies in memory.
template <class T, class Pull>
struct LaneConstants {
    typedef typename Of<T>::V V;
    V c = {}, rho = {}, removed = {}, shift = {};
    V scale = {}, by_spread = {}, by_center = {}, edge_lower = {}, edge_upper = {};
    Pull pull;
    Spreading<T> push;
    LaneConstants(const Job& job) : push(job) {}
};

// Σg, Σg·x̂, Σσ, and the sums of the slope and of the spread.
template <class T>
struct BackwardSums {
    LaneSum<T> g0, g1, d0;
    PullSums<T> pulled;
    PushSums<T> pushed;
};

template <class E, Power POWER, Form FORM, bool PHI>
static void backward_lanes_as(const Job& job, const LaneBlock<typename Computing<E>::T>& block, double* sums,
                              double* d_phi, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    const int64_t rows = block.rows;
    const LanePlace<const E> x = block.template in_x<E>(job), g = block.in(job, (const E*)job.g);
    const LanePlace<E> dx = block.in(job, (E*)job.dx);
    // Kept for the second pass: weights that take a power, and small blocks of x and its gradient.
    const bool whole = job.task == WHOLE_JOB, weighted = POWER != ONE && POWER != NONE && POWER != EDGES;
    const bool centered = FORM == CENTERED || FORM == BY_ROOT, robust = FORM == BY_ROOT;
    const int64_t size = rows * WIDTH, bytes = size * (int64_t)sizeof(T);
    const bool copy = whole && bytes <= COPY_BYTES;
    const bool keep = whole && weighted && POWER != ROOT && bytes <= (int64_t)KEEP_BYTES;
    T* memory = copy || keep ? (T*)scratch.get(bytes * ((copy ? 2 : 0) + (keep ? 1 : 0))) : nullptr;
    T *kept = keep ? memory : nullptr, *copies = copy && memory ? memory + (keep ? size : 0) : nullptr;
    T* copied_g = copies ? copies + size : nullptr;
    V alpha[VECTORS], gamma[VECTORS];
    typedef LaneConstants<T, Slope<T, POWER, PHI>> Constants;
    Constants of[VECTORS] = {Constants(job), Constants(job)};
    double unused[STATE_SIZE] = {};
    for (int j = 0; j < VECTORS; j++) {
        Constants& one = of[j];
        alpha[j] = block.parameters(job, job.alphas, j, job.alpha), gamma[j] = block.parameters(job, job.gammas, j, 1);
        one.shift = block.parameters(job, job.shifts, j, 0);
        bool same = true;
        for (int k = 0; k < N; k++) {
            int l = j * N + k < block.width ? j * N + k : 0;
            const double* state = k < block.used(j) ? job.state + (block.group + l) * STATE_SIZE : unused;
            const double phi = phi_of<T>(job, block.group + l);
            same = same && phi == phi_of<T>(job, block.group) && state[UNIT] > 0;
            one.c[k] = (T)state[CENTER], one.rho[k] = (T)state[RHO];
            one.pull.set(k, state, phi, centered);
            if (robust || FORM == ANY) one.push.set(k, job, state);
        }
        one.pull.path = same ? exponent_of(phi_of<T>(job, block.group)).path : PATH_GENERAL;
        one.removed = alpha[j] * one.c;
    }
    const I every = ~I{};

    BackwardSums<T> sums_of[VECTORS];
    for (int64_t i = job.task == SPREAD_OUT ? rows : 0; i < rows;) {
        int64_t end = rows - i < 256 ? rows : i + 256;
        const Constants here[VECTORS] = {of[0], of[1]};
        BackwardSums<T> part[VECTORS];
        for (; i < end; i++) {
            prefetch_row<WIDTH>(x.row(i + AHEAD)), prefetch_row<WIDTH>(g.row(i + AHEAD));
            GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
                const Constants& one = here[j];
                V xv = block.take(x.row(i), j), gv = block.take(g.row(i), j);
                V z = centered ? xv - one.c : (xv - one.removed) + one.shift, hat = z * one.rho;
                part[j].g0.part += gv, part[j].g1.part += gv * hat;
                if (FORM == ANY) part[j].d0.part += one.push.direction(z, part[j].pushed, every);
                if (robust) part[j].d0.part += one.push.direction_by_root(z, part[j].pushed, every);
                V w = one.pull.add(centered ? hat : (xv - one.c) * one.pull.unit, xv, part[j].pulled, every);
                const int64_t at = i * WIDTH + j * N;
                if (kept) store(kept + at, w);
                if (copies) store(copies + at, xv), store(copied_g + at, gv);
            }
        }
        GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
            sums_of[j].g0.add(part[j].g0), sums_of[j].g1.add(part[j].g1);
            if (weighted || POWER == EDGES) sums_of[j].pulled.add(part[j].pulled);
            if (robust || FORM == ANY) sums_of[j].d0.add(part[j].d0), sums_of[j].pushed.add(part[j].pushed);
        }
    }

    for (int j = 0; j < VECTORS; j++) {
        Constants& one = of[j];
        const BackwardSums<T>& sum = sums_of[j];
        one.scale = one.rho * gamma[j];
        for (int k = 0; k < block.used(j); k++) {
            const int64_t group = block.group + j * N + k;
            const double* state = job.state + group * STATE_SIZE;
            double directions = robust || FORM == ANY ? sum.d0.wide[k] : rows * state[MEAN_Z];
            double sum_g = sum.g0.wide[k], sum_gx = sum.g1.wide[k], a = alpha[j][k], h = gamma[j][k];
            const double slope = sum.pulled.slope.wide[k], moment = sum.pulled.moment.wide[k];
            if (job.task == ADD_UP) {
                const double parts[] = {sum_g, sum_gx, directions, slope, moment, sum.pushed.count.wide[k]};
                for (int i = 0; i < PARTS; i++) job.found[group * PARTS + i] = parts[i];
                continue;
            }
            Flow flow = !whole ? given_flow(job, group)
                               : flow_of(job, state, phi_of<T>(job, group), POWER, (double)rows, a * h * sum_g,
                                         h * sum_gx, a * directions, slope, moment, sum.pushed.count.wide[k]);
            one.by_spread[k] = (T)flow.spread, one.by_center[k] = (T)flow.center;
            one.edge_lower[k] = (T)flow.edge_lower, one.edge_upper[k] = (T)flow.edge_upper;
            double dz = state[RHO] * h * sum_g + flow.spread * directions;
            double* out = sums + group * SUMS;
            out[D_GAMMA] = sum_gx, out[D_BETA] = sum_g, out[D_SHIFT] = dz, out[D_ALPHA] = -state[CENTER] * dz;
            d_phi[group] = PHI ? flow.d_phi : 0;
        }
    }
    if (job.task == ADD_UP) return;
    PushSums<T> ignored;
    const Constants here[VECTORS] = {of[0], of[1]};
    for (int64_t i = 0; i < rows; i++) {
        if (!copies) prefetch_row<WIDTH>(x.row(i + AHEAD)), prefetch_row<WIDTH>(g.row(i + AHEAD));
        prefetch_row_for_write<WIDTH>(dx.row(i + AHEAD));
        GN_UNROLLED for (int j = 0; j < VECTORS; j++) {
            const Constants& one = here[j];
            const int64_t at = i * WIDTH + j * N;
            V xv = copies ? load(copies + at) : block.take(x.row(i), j);
            V gv = copies ? load(copied_g + at) : block.take(g.row(i), j);
            V r = xv - one.c, z = centered ? r : (xv - one.removed) + one.shift;
            V sigma = robust ? one.push.direction_by_root(z, ignored, every)
                      : FORM == ANY ? one.push.direction(z, ignored, every) : z;
            V dz = gv * one.scale + sigma * one.by_spread;
            if (POWER == ONE) {
                dz += one.by_center;
            } else if (POWER != NONE) {
                V w = kept ? load(kept + at) : one.pull.at(r * one.pull.unit, xv, one.edge_lower, one.edge_upper);
                dz += w * one.by_center;
            }
            block.put(dx.row(i), j, dz);
        }
    }
}

// Every case takes seconds to compile: those without a name of their own here are rare.
template <class E, Form FORM>
static void backward_lanes_in(const Job& job, const LaneBlock<typename Computing<E>::T>& block, double* sums,
                              double* d_phi, Scratch& scratch, Power power) {
    enum { COMMON = FORM == CENTERED };
    switch (power) {
        case ONE: return backward_lanes_as<E, ONE, FORM, false>(job, block, sums, d_phi, scratch);
        case NONE: return backward_lanes_as<E, NONE, FORM, false>(job, block, sums, d_phi, scratch);
        case EDGES: return backward_lanes_as<E, EDGES, COMMON ? SHIFTED : FORM, false>(job, block, sums, d_phi, scratch);
        case ROOT: return backward_lanes_as<E, COMMON ? ROOT : SPECIAL, FORM, false>(job, block, sums, d_phi, scratch);
        default: return backward_lanes_as<E, SPECIAL, FORM, false>(job, block, sums, d_phi, scratch);
    }
}

template <class E>
static void backward_lane_block(const Job& job, const LaneBlock<typename Computing<E>::T>& block, double* sums,
                                double* d_phi, Scratch& scratch) {
    typedef typename Computing<E>::T T;
    if (block.rows == 0) {
        for (int64_t group = block.group; group < block.group + block.width; group++) {
            for (int i = 0; i < SUMS; i++) sums[group * SUMS + i] = 0;
            d_phi[group] = 0;
        }
        return;
    }
    Power power = NONE;
    bool usual = job.spread == ROBUST && job.psi == 1.5;  // in all lanes, above the floor of the spread
    for (int64_t l = 0; l < block.width; l++) {
        const int64_t group = block.group + l;
        const double* state = job.state + group * STATE_SIZE;
        Power one = power_of(job, state, phi_of<T>(job, group));
        usual = usual && state[FLOORED] == 0;
        if (l == 0)
            power = one;
        else if (one != power)
            power = one == EDGES || power == EDGES ? EDGES : GENERAL;  // equal values beside others
    }
    const Form form = form_of(job);
    const bool has_phi = job.d_phi && job.centered && power != EDGES;
    if constexpr (IS_COMMON<E>) {
        if (has_phi && form != ANY)
            return backward_lanes_as<E, GENERAL, SHIFTED, true>(job, block, sums, d_phi, scratch);
    }
    if (has_phi) return backward_lanes_as<E, GENERAL, ANY, true>(job, block, sums, d_phi, scratch);
    if constexpr (sizeof(E) == 4) {
        const bool plain = job.alpha == 1 && !job.alphas && !job.shifts && job.task == WHOLE_JOB;
        if (usual && plain && power == ROOT)
            return backward_lanes_as<E, ROOT, BY_ROOT, false>(job, block, sums, d_phi, scratch);
    }
    if constexpr (IS_COMMON<E>) {
        if (form == CENTERED) return backward_lanes_in<E, CENTERED>(job, block, sums, d_phi, scratch, power);
        if (form == SHIFTED) return backward_lanes_in<E, SHIFTED>(job, block, sums, d_phi, scratch, power);
    }
    backward_lanes_in<E, ANY>(job, block, sums, d_phi, scratch, power);
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
