// The parts of the gradient of x: through the center (w = |x − c|^(φ−2), the weight of every value) and through the spread
// (σ = ∂s/∂z up to a factor). geonorm/ops/torch/derivatives.py has the mathematics and the conventions.
#pragma once
#include "measure.h"
#include "vector_loop.h"

namespace geonorm {
namespace GEONORM_ISA {

template <class T, PieceKind K>
GN_INLINE void add_to(T* sums, Piece<T, K> piece, typename Of<T>::V v) {
    piece.put(sums, piece.take(sums) + piece.only(v));
}

GN_INLINE Power power_of(const Job& job, const double* state, double phi) {
    if (!job.centered) return NONE;
    if (state[UNIT] == 0) return ONE;  // equal values share the gradient
    if (phi == 1 || phi == INFINITY) return EDGES;
    return exponent_of(phi).power();
}

// One sum per lane that goes on in double.
template <class T>
struct LaneSum {
    typedef typename Of<T>::V V;
    V part = {};
    double wide[Of<T>::N] = {};
    void flush() {
        for (int l = 0; l < Of<T>::N; l++) wide[l] += part[l];
        part = V{};
    }
    double all() const {
        double sum = 0;
        for (int l = 0; l < Of<T>::N; l++) sum += wide[l];
        return sum;
    }
};

// Σw and Σ sgn(r)|r|^(φ−1) log2|r|; for φ = 1 and ∞ the ties of the two values that the center lies between.
template <class T>
struct PullSums {
    LaneSum<T> slope, moment;
    void flush() { slope.flush(), moment.flush(); }
};

template <class T, Power POWER, bool PHI>
struct Slope {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    V inverse, least, cap, s, lower, upper;
    I vanish;  // φ > 2: a value at the center gets no gradient
    Path path;

    Slope() : path(PATH_GENERAL) {}
    Slope(const double* state, double phi) {
        for (int l = 0; l < Of<T>::N; l++) set(l, state, phi);
        path = exponent_of(phi).path;
    }
    void set(int lane, const double* state, double phi) {
        bool some = state[UNIT] > 0;
        double power = some ? phi - 2 : 0;
        inverse[lane] = (T)(some ? 1 / state[UNIT] : 0);
        least[lane] = (T)(phi < 2 ? state[LEAST] : TINY);
        cap[lane] = (T)(power < 0 ? exp2(power * log2(state[LEAST])) : 3e38);
        s[lane] = (T)power;
        vanish[lane] = power > 0 ? -1 : 0;
        lower[lane] = (T)state[LOWER], upper[lane] = (T)state[UPPER];
    }

    GN_MEMBER V weight(V r) const {
        if (POWER == ONE) return all((T)1);
        V a = absolute(r) * inverse;
        if (PHI) {
            V log2_a, w = smaller(general_power(larger(a, all((T)TINY)), s, log2_a), cap);
            return choose(~(vanish & (a == (T)0)), w);
        }
        if (POWER == ROOT) return inverse_root(larger(a, least));
        V w = slope < POWER == GENERAL ? GENERAL : SPECIAL, T > (larger(a, least), s, path);
        return choose(~(vanish & (a == (T)0)), w);
    }

    // Returns what `at` will return, except for φ = 1 and ∞.
    GN_MEMBER V add(V r, V x, PullSums<T>& sums, I fresh) const {
        if (POWER == ONE || POWER == NONE) return V{};
        if (POWER == EDGES) {
            sums.slope.part += choose(fresh & (x == lower), all((T)1));
            sums.moment.part += choose(fresh & (x == upper), all((T)1));
            return V{};
        }
        if (PHI) {
            V scaled = r * inverse, a = absolute(scaled), log2_a;
            V w = choose(~(vanish & (a == (T)0)), general_power(larger(a, all((T)TINY)), s, log2_a));
            V capped = smaller(w, cap);
            sums.slope.part += choose(fresh, capped);
            sums.moment.part += choose(fresh, scaled * w * log2_a);
            return capped;
        }
        V w = weight(r);
        sums.slope.part += choose(fresh, w);
        return w;
    }

    // The weight of a value, up to the factor 1 / Σw.
    GN_MEMBER V at(V r, V x, V edge_lower, V edge_upper) const {
        if (POWER == NONE) return V{};
        if (POWER == EDGES) return choose(x == lower, edge_lower) + choose(x == upper, edge_upper);
        return weight(r);
    }
};

// The sums for the direction of the spread: ties of the largest, or the slopes of the robust center.
template <class T>
struct PushSums {
    LaneSum<T> count;
    void flush() { count.flush(); }
};

template <class T>
struct Spreading {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    int64_t kind;
    V spread, middle, inverse, least, s;
    I floored, vanish;
    Path path;

    Spreading(const Job& job) : kind(job.spread), path(exponent_of(job.psi).path) {}
    Spreading(const Job& job, const double* state) : Spreading(job) {
        for (int l = 0; l < Of<T>::N; l++) set(l, job, state);
    }
    void set(int lane, const Job& job, const double* state) {
        spread[lane] = (T)state[SPREAD];
        if (kind != ROBUST) return;
        bool some = state[UNIT_2] > 0;
        middle[lane] = (T)state[MIDDLE];
        inverse[lane] = (T)(some ? 1 / state[UNIT_2] : 0);
        least[lane] = (T)(job.psi < 2 ? state[LEAST_2] : TINY);
        s[lane] = (T)(job.psi - 2);
        vanish[lane] = job.psi > 2 && some ? -1 : 0;
        floored[lane] = state[FLOORED] > 0 ? -1 : 0;
    }

    GN_MEMBER V direction(V z, PushSums<T>& sums, I fresh) const {
        if (kind == RMS) return z;
        const V one = all((T)1);
        V sign = choose(z > (T)0, one) - choose(z < (T)0, one);
        sign = z == z ? sign : z;
        switch (kind) {
            case MEAN_ABS: return sign;
            case MAX_ABS: {
                I tie = absolute(z) == spread;
                sums.count.part += choose(fresh & tie & (sign != (T)0), one);
                return choose(tie, sign);
            }
            case ROBUST: {
                V a = absolute(absolute(z) - middle) * inverse;
                V w = choose(~(vanish & (a == (T)0)), slope<SPECIAL, T>(larger(a, least), s, path));
                sums.count.part += choose(fresh, w);
                return sign * (choose(floored, one) + choose(~floored, w));
            }
            default: return V{};
        }
    }
};

// Factors of the spread's direction and of the center's slope, and the gradient of φ.
struct Flow {
    double spread, center, d_phi, edge_lower, edge_upper;
};

// From the sums over a group: Σαγg, Σγg·x̂, Σασ, and those of slope and direction.
GN_INLINE Flow flow_of(const Job& job, const double* state, double phi, Power power, double members, double with_center,
                       double with_spread, double directions, double slope, double moment, double count) {
    const double rho = state[RHO], spread = state[SPREAD];
    Flow flow = {0, 0, 0, 0, 0};
    double d_spread = -(spread * rho) * rho * with_spread;
    switch (job.spread) {
        case RMS: flow.spread = spread > 0 ? d_spread / (members * spread) : spread; break;  // NaN stays
        case MEAN_ABS: flow.spread = d_spread / members; break;
        case MAX_ABS: flow.spread = d_spread / (count > 0 ? count : 1); break;
        case ROBUST:
            flow.spread = state[FLOORED] > 0 ? d_spread * job.spread_floor / members
                                             : d_spread * job.psi_factor / (count > 0 ? count : 1);
            break;
        default: break;
    }
    if (power == NONE) return flow;
    double d_center = -(rho * with_center + flow.spread * directions);
    if (power == EDGES) {
        flow.center = d_center;
        flow.edge_lower = 0.5 / (slope > 0 ? slope : 1), flow.edge_upper = 0.5 / (moment > 0 ? moment : 1);
        return flow;
    }
    double all_slope = power == ONE ? members : slope > 0 ? slope : 1;
    flow.center = d_center / all_slope;
    if (power == GENERAL) flow.d_phi = d_center * state[UNIT] / all_slope / (phi - 1) * moment * 0.6931471805599453;
    return flow;
}

// The same from the sums over all processes.
GN_INLINE Flow given_flow(const Job& job, int64_t group) {
    const double* flow = job.points + group * FLOWS;
    return Flow{flow[FLOW_SPREAD], flow[FLOW_CENTER], 0, flow[FLOW_LOWER], flow[FLOW_UPPER]};
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
