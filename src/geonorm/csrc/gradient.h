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
    Wide<T> wide;
    GN_MEMBER void flush() { wide.add(part), part = V{}; }
    GN_MEMBER void add(const LaneSum& other) { wide.add(other.part); }
};

// Σw and Σ sgn(r)|r|^(φ−1) log2|r|; for φ = 1 and ∞ the ties of the two values that the center lies between.
template <class T>
struct PullSums {
    LaneSum<T> slope, moment;
    GN_MEMBER void flush() { slope.flush(), moment.flush(); }
    GN_MEMBER void add(const PullSums& other) { slope.add(other.slope), moment.add(other.moment); }
};

// How z depends on x. CENTERED: z = x − c, and the spread is none or the rms: the usual case. SHIFTED: the same with
// z = x − αc + shift, one α and one shift per run. BY_ROOT: as CENTERED, with the robust spread of ψ = 1.5 above
// its floor. ANY: everything.
enum Form { CENTERED, SHIFTED, BY_ROOT, ANY };

GN_INLINE Form form_of(const Job& job) {
    if (job.task != WHOLE_JOB || job.spread > RMS) return ANY;
    if (!job.alphas && !job.shifts) return job.alpha == 1 || !job.centered ? CENTERED : SHIFTED;
    return job.parameters == PER_VALUE ? ANY : SHIFTED;
}

// Where the weights of one group come from.
struct SlopeOfGroup {
    double unit, least, cap, s, lower, upper;  // a = |r|·unit, at least `least`; w = a^s
    bool vanish;                               // φ > 2: a value at the center gets no gradient

    // `normalized`: distances in units of 1/ρ, as x̂ has them, not of the largest.
    SlopeOfGroup(const double* state, double phi, bool normalized, bool with_cap) {
        const bool some = state[UNIT] > 0;
        unit = normalized ? state[RHO] : some ? 1 / state[UNIT] : 0;
        least = phi < 2 ? state[LEAST] : TINY;
        s = some ? phi - 2 : 0;
        cap = with_cap && s < 0 ? exp2(s * log2(least)) : 3e38;
        if (normalized) least = most_of(least * state[UNIT] * unit, TINY);
        lower = state[LOWER], upper = state[UPPER];
        vanish = s > 0;
    }
};

template <class T, Power POWER, bool PHI>
struct Slope {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    V unit, least, cap, s, lower, upper;
    I vanish;
    Path path;

    Slope() : path(PATH_GENERAL) {}
    Slope(const double* state, double phi, bool normalized) {
        const SlopeOfGroup of(state, phi, normalized, PHI);
        unit = all((T)of.unit), least = all((T)of.least), cap = all((T)of.cap), s = all((T)of.s);
        lower = all((T)of.lower), upper = all((T)of.upper);
        vanish = of.vanish ? ~I{} : I{};
        path = exponent_of(phi).path;
    }
    void set(int lane, const double* state, double phi, bool normalized) {
        const SlopeOfGroup of(state, phi, normalized, PHI);
        unit[lane] = (T)of.unit, least[lane] = (T)of.least, cap[lane] = (T)of.cap, s[lane] = (T)of.s;
        lower[lane] = (T)of.lower, upper[lane] = (T)of.upper;
        vanish[lane] = of.vanish ? -1 : 0;
    }

    // The weight of a distance, with its sign, in units of the group.
    GN_MEMBER V weight(V scaled) const {
        if (POWER == ONE) return all((T)1);
        V a = absolute(scaled);
        if (PHI) {
            V log2_a, w = smaller(general_power(larger(a, all((T)TINY)), s, log2_a), cap);
            return choose(~(vanish & (a == (T)0)), w);
        }
        if (POWER == ROOT) return inverse_root(larger(a, least));
        V w = slope < POWER == GENERAL ? GENERAL : SPECIAL, T > (larger(a, least), s, path);
        return choose(~(vanish & (a == (T)0)), w);
    }

    // Returns what `at` will return, except for φ = 1 and ∞.
    GN_MEMBER V add(V scaled, V x, PullSums<T>& sums, I fresh) const {
        if (POWER == ONE || POWER == NONE) return V{};
        if (POWER == EDGES) {
            sums.slope.part += choose(fresh & (x == lower), all((T)1));
            sums.moment.part += choose(fresh & (x == upper), all((T)1));
            return V{};
        }
        if (PHI) {
            V a = absolute(scaled), log2_a;
            V w = choose(~(vanish & (a == (T)0)), general_power(larger(a, all((T)TINY)), s, log2_a));
            V capped = smaller(w, cap);
            sums.slope.part += choose(fresh, capped);
            sums.moment.part += choose(fresh, scaled * w * log2_a);
            return capped;
        }
        V w = weight(scaled);
        sums.slope.part += choose(fresh, w);
        return w;
    }

    // The weight of a value, up to the factor 1 / Σw.
    GN_MEMBER V at(V scaled, V x, V edge_lower, V edge_upper) const {
        if (POWER == NONE) return V{};
        if (POWER == EDGES) return choose(x == lower, edge_lower) + choose(x == upper, edge_upper);
        return weight(scaled);
    }
};

// The sums for the direction of the spread: ties of the largest, or the slopes of the robust center.
template <class T>
struct PushSums {
    LaneSum<T> count;
    GN_MEMBER void flush() { count.flush(); }
    GN_MEMBER void add(const PushSums& other) { count.add(other.count); }
};

template <class T>
struct Spreading {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    int64_t kind;
    V spread, middle, inverse, least, s;
    I floored, vanish;
    Path path;

    Spreading(const Job& job) : kind(job.spread), path(exponent_of(job.psi).path) {
        s = all((T)(job.psi - 2));
    }
    Spreading(const Job& job, const double* state) : Spreading(job) {
        set(0, job, state);
        spread = all(spread[0]);
        if (kind != ROBUST) return;
        middle = all(middle[0]), inverse = all(inverse[0]), least = all(least[0]);
        vanish = vanish[0] ? ~I{} : I{}, floored = floored[0] ? ~I{} : I{};
    }
    void set(int lane, const Job& job, const double* state) {
        spread[lane] = (T)state[SPREAD];
        if (kind != ROBUST) return;
        bool some = state[UNIT_2] > 0;
        middle[lane] = (T)state[MIDDLE];
        inverse[lane] = (T)(some ? 1 / state[UNIT_2] : 0);
        least[lane] = (T)(job.psi < 2 ? state[LEAST_2] : TINY);
        vanish[lane] = job.psi > 2 && some ? -1 : 0;
        floored[lane] = state[FLOORED] > 0 ? -1 : 0;
    }

    // Of the robust spread with ψ = 1.5, above its floor.
    GN_MEMBER V direction_by_root(V z, PushSums<T>& sums, I fresh) const {
        const V w = inverse_root(larger(absolute(absolute(z) - middle) * inverse, least));
        sums.count.part += choose(fresh, w);
        return choose(z != (T)0, with_sign(w, z));
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
