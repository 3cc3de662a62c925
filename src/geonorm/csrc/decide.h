// The next step of a search, the same in all processes: geonorm/ops/torch/search.py in C++, operation by operation. It
// agrees with geonorm/ops/joint/decide.py to the last bit, because some processes may not have this library. Nothing here
// calls a math library, and the compiler may not contract operations (-ffp-contract=off): IEEE 754 prescribes the results
// of + − × ÷.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "job.h"

namespace geonorm {
namespace decide {

// One search per group, as a row of numbers that Python owns. UP and DOWN: distances of the extremes from y.
enum Column {
    Q, LOWEST, HIGHEST, TOTAL, LIGHTEST,  // given: φ − 1, the extremes, the mass, the lightest weight
    LO, HI, Y, FOUND, WITHIN, WIDTH_0, WIDTH_1, WIDTH_2, USED, ACTIVE, UP, DOWN, COLUMNS
};
static const double DOUBLE_EPS = 2.220446049250313e-16, SMALLEST = 1e-30;
static const int MOST_SWEEPS = 200;

template <int N>
inline double series(double x, const double (&coefficients)[N]) {
    double found = coefficients[N - 1];
    for (int i = N - 2; i >= 0; i--) found = found * x + coefficients[i];
    return found;
}

inline double power_of_two(int64_t exponent) {
    const int64_t bits = (exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static const double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

inline double logarithm(double value) {
    if (value == INFINITY) return value;
    if (value == 0) return -INFINITY;
    if (!(value >= 0)) return NAN;
    static const double odd[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
    int e;
    double m = frexp(value, &e);
    if (m < 0.70710678118654757) m = 2 * m, e = e - 1;
    const double s = (m - 1) / (m + 1), exponent = e;
    return exponent * LN2_HIGH + (exponent * LN2_LOW + s * series(s * s, odd));
}

inline double exponential(double value) {
    if (value != value) return value;
    if (value < -708) return 0;
    if (value > 709) return INFINITY;
    static const double taylor[] = {1.0,           1.0,            1.0 / 2,         1.0 / 6,          1.0 / 24,
                                    1.0 / 120,     1.0 / 720,      1.0 / 5040,      1.0 / 40320,      1.0 / 362880,
                                    1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};
    const double whole = nearbyint(value * 1.4426950408889634);
    const double rest = (value - whole * LN2_HIGH) - whole * LN2_LOW;
    return series(rest, taylor) * power_of_two((int64_t)whole);
}

inline double power(double value, double exponent) { return exponential(logarithm(value) * exponent); }
inline double smaller(double a, double b) { return a < b ? a : b; }
inline double larger(double a, double b) { return a > b ? a : b; }
inline double or_zero(double a) { return a - a == 0 ? a : 0; }

struct Sums {
    double of[SWEPT];
    // The sums of two parts of a group.
    void add(const Sums& other) {
        const double mine = of[NEAREST], theirs = other.of[NEAREST];
        const bool keep = mine <= theirs, take = theirs <= mine;
        for (int i = ABOVE; i <= TIED; i++) of[i] = of[i] + other.of[i];
        for (int i : {NEAREST_ABOVE, NEAREST_BELOW}) of[i] = (keep ? of[i] : 0) + (take ? other.of[i] : 0);
        of[NEAREST] = smaller(mine, theirs);
    }
};

struct Evaluation {
    double direction, error, step, rest;
    bool settled;
};

inline Evaluation evaluate(const Sums& s, double up, double down, double q, const double* row, double eps) {
    const bool below_2 = q < 1;
    const double span = row[HIGHEST] - row[LOWEST], above = s.of[ABOVE], below = s.of[BELOW];
    const double far_up = logarithm(up / span), far_down = logarithm(down / span);
    const double shift = logarithm(below_2 ? 2.0 / row[TOTAL] : 1.0);
    const double log_up = far_up + (logarithm(above) + shift) / q, log_down = far_down + (logarithm(below) + shift) / q;
    const double lead = log_up - log_down;
    const double size_up = span * exponential(log_up), size_down = span * exponential(log_down);
    const double damp = exponential(-fabs(lead)), fell = exponential(-q * fabs(lead));
    const double share_up = exponential((q - 1) * far_up), share_down = exponential((q - 1) * far_down);
    const double kappa = eps * (2 * q + 16) - DOUBLE_EPS * q * larger(far_up + far_down, -1e3);
    const bool sure = (1 - fell) / (1 + fell) > kappa;
    const double mean_up = up * above / s.of[ABOVE_SLOPE], mean_down = down * below / s.of[BELOW_SLOPE];
    const double grows_up = or_zero(size_up / mean_up), grows_down = or_zero(size_down / mean_down);
    double growing = lead > 0 ? grows_down : grows_up;
    if (!sure) growing = smaller(grows_up, grows_down);
    const double slope = below_2 ? 2.0 : power(row[LIGHTEST], 1 / q) + growing;
    Evaluation e;
    e.error = (fabs(size_up - size_down) + kappa / q * (size_up + size_down)) / slope + SMALLEST * span;
    if (e.error != e.error) e.error = INFINITY;
    e.step = lead > 0 ? (1 - damp) / (1 / mean_up + damp / mean_down) : (damp - 1) / (damp / mean_up + 1 / mean_down);
    e.direction = sure ? (lead > 0 ? 1 : lead < 0 ? -1 : 0) : 0;
    const double above_slope = above > 0 ? s.of[ABOVE_SLOPE] * share_up : 0;
    const double below_slope = below > 0 ? s.of[BELOW_SLOPE] * share_down : 0;
    const double all_above = above > 0 ? above * share_up * (up / span) : 0;
    const double all_below = below > 0 ? below * share_down * (down / span) : 0;
    const double all_slope = q * (above_slope + below_slope), distance = s.of[TIED] > 0 ? 0 : s.of[NEAREST];
    const double noise = kappa * (all_above + all_below) * span / all_slope;
    const double curve = 2 * fabs(1 - q) * e.error * e.error;
    e.settled = distance >= 2 * e.error && curve <= noise * distance && q <= 3 && distance - distance == 0;
    const double newton = span * (all_above - all_below) / all_slope;
    e.rest = curve / distance + noise + kappa * fabs(newton);
    if (e.settled) e.step = newton;
    return e;
}

inline double step_by_nearest(const Sums& s, double up, double down, double q) {
    const double span = up + down, above = power(up / span, q), below = power(down / span, q);
    const double f = s.of[ABOVE] * above - s.of[BELOW] * below;
    const double slope = (s.of[ABOVE] > 0 ? s.of[ABOVE_SLOPE] * above * (span / up) : 0) +
                         (s.of[BELOW] > 0 ? s.of[BELOW_SLOPE] * below * (span / down) : 0);
    const bool at_y = s.of[TIED] > 0, higher = s.of[NEAREST_ABOVE] > 0;
    const double sign = higher ? 1.0 : -1.0, k = at_y ? s.of[TIED] : higher ? s.of[NEAREST_ABOVE] : s.of[NEAREST_BELOW];
    const double t = at_y ? 0 : sign * s.of[NEAREST] / span, safe = at_y ? 1.0 : fabs(t), own = power(safe, q);
    double others = slope - (at_y ? 0 : k * own / safe);
    others = (others < 0 ? 0 : others) * q;
    const double c = f - (at_y ? 0 : k * sign * own) - others * t, goal = fabs(c);
    double u = smaller(goal / k, power(goal / larger(others, DBL_MIN), q));
    for (int i = 0; i < 6; i++) {
        const double root = power(u, 1 / q);
        u = u - (k * u + others * root - goal) / (k + (u > 0 ? others * root / u : 0) / q);
        if (u < 0) u = 0;
    }
    return span * (t + (c > 0 ? 1.0 : c < 0 ? -1.0 : 0.0) * power(u, 1 / q));
}

// y rounded to what a sweep in float32 or float64 can represent, and the distances of the extremes from it.
inline void set_sweep_point(double* row, bool wide) {
    const double head = wide ? row[Y] : (double)(float)row[Y];
    row[Y] = head + (wide ? row[Y] - head : (double)(float)(row[Y] - head));
    row[UP] = larger(row[HIGHEST] - row[Y], 0), row[DOWN] = larger(row[Y] - row[LOWEST], 0);
}

// The next point from the sums at y, the point of the k-th sweep.
inline void advance(double* row, const Sums& s, int64_t k, double eps, bool adaptive) {
    const double q = row[Q], y = row[Y], span = row[HIGHEST] - row[LOWEST];
    Evaluation e = evaluate(s, row[UP], row[DOWN], q, row, eps);
    const bool looked = s.of[TIED] > 0 || (s.of[NEAREST] < INFINITY && k >= 5);
    if (adaptive && !e.settled && q < 1 && looked) e.step = step_by_nearest(s, row[UP], row[DOWN], q);
    const double resolution = 2 * larger(eps * eps, DOUBLE_EPS), grain = larger(eps * eps, 100 * SMALLEST) * span;
    double lo = larger(row[LO], e.direction > 0 ? y : y - e.error), hi = smaller(row[HI], e.direction < 0 ? y : y + e.error);
    const double middle = 0.5 * (lo + hi);
    lo = smaller(lo, middle), hi = larger(hi, middle);
    const double width = hi - lo, least = resolution * fabs(y) + grain;
    if (!e.settled && fabs(e.step) < least && e.direction != 0) e.step = e.direction * least;
    double next = y + e.step;
    bool usable = next - next == 0 && next >= lo && next <= hi;
    if (k > 3) usable = usable && (width <= 0.5 * row[WIDTH_0] || e.direction == 0 || e.settled);
    if (!usable) next = middle;
    const bool narrow = width <= 0.25 * eps * fabs(y) + 2 * grain;
    if (e.settled || e.direction == 0 || narrow || next == y) row[ACTIVE] = 0;
    row[LO] = lo, row[HI] = hi, row[FOUND] = row[Y] = next;
    double within = larger(hi - next, next - lo);
    row[WITHIN] = e.settled && usable ? smaller(within, e.rest) : within;
    row[USED] = row[USED] + 1;
    row[WIDTH_0] = row[WIDTH_1], row[WIDTH_1] = row[WIDTH_2], row[WIDTH_2] = width;
}

}  // namespace decide
}  // namespace geonorm
