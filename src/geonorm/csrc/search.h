// The certified search for the center of one group: geonorm/ops/torch/search.py, for one number.
// See there for the mathematics; the two must be changed together.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

static const double TINY = 1e-30;  // smallest |x − y| in units of the range: keeps Σ|r|^(q−1) finite in float32
static const int MAX_SWEEPS = 200;

// The results of one sweep, in units of the search's scale.
struct Sums {
    double above, below, above_slope, below_slope;  // P, N, W₊, W₋
    double closest;                                 // smallest |x − y|; 0 if a value lies at y
};

// The values nearest to y, from a second pass.
struct Neighbours {
    double tied, nearest, above, below;  // number at y, distance of the nearest other, how many at that distance
};

GN_INLINE double least_of(double a, double b) { return a < b ? a : b; }
GN_INLINE double most_of(double a, double b) { return a > b ? a : b; }

struct Search {
    double q, eps, members;
    double lowest, highest, scale, lo, hi;
    double y, center, error, step, direction;
    double bound;  // |true center − center| at most
    double rest;   // the same after a Newton step that settles the search
    double widths[3];
    int sweeps;
    bool active, settled;

    void start(double phi, double eps_, double members_, double lowest_, double highest_, double from) {
        q = phi - 1, eps = eps_, members = members_;
        lowest = lo = lowest_, highest = hi = highest_, scale = highest_ - lowest_;
        widths[0] = widths[1] = widths[2] = scale;
        sweeps = 0;
        bound = 0;
        center = y = most_of(lo, least_of(hi, from));
        active = scale > 0;
    }

    double root(double value) const {  // value^(1/q)
        if (q == 0.5) return value * value;
        if (q == 1) return value;
        return value > 0 ? exp(log(value) / q) : 0;
    }

    // Direction, certificate and Newton step from the sums at y.
    void evaluate(const Sums& s) {
        double share = q < 1 ? 2 / members : 1;
        double up = scale * root(share * s.above), down = scale * root(share * s.below);
        double kappa = eps * (2 * q + 16);
        double difference = s.above - s.below;
        direction = fabs(difference) > kappa * (s.above + s.below) ? (difference > 0 ? 1 : -1) : 0;
        double mean_up = s.above > 0 && s.above_slope > 0 ? scale * s.above / s.above_slope : 0;
        double mean_down = s.below > 0 && s.below_slope > 0 ? scale * s.below / s.below_slope : 0;
        double slope = 2;
        if (q >= 1) {
            double grows_up = mean_up > 0 ? up / mean_up : 0, grows_down = mean_down > 0 ? down / mean_down : 0;
            double unsure = least_of(grows_up, grows_down);  // on whichever side the center lies
            slope = 1 + (direction == 0 ? unsure : difference > 0 ? grows_down : grows_up);
        }
        error = (fabs(up - down) + kappa / q * (up + down)) / slope + 2 * TINY * scale;
        if (settle(s, kappa)) return;
        if (difference > 0) {
            double damp = down / up;
            step = (1 - damp) / (1 / mean_up + (mean_down > 0 ? damp / mean_down : 0));
        } else {
            double damp = up > 0 ? up / down : 0;
            step = (damp - 1) / ((mean_up > 0 ? damp / mean_up : 0) + 1 / mean_down);
        }
    }

    // Whether one Newton step on F ends the search.
    bool settle(const Sums& s, double kappa) {
        double distance = s.closest * scale, slope = q * (s.above_slope + s.below_slope);
        double noise = kappa * (s.above + s.below) * scale / slope;
        settled = distance >= 2 * error && 2 * fabs(1 - q) * error * error <= noise * distance;
        if (!settled) return false;
        step = scale * (s.above - s.below) / slope;
        rest = 2 * fabs(1 - q) * error * error / distance + noise + kappa * fabs(step);  // the last: rounding of the slope
        return true;
    }

    // Newton with the value nearest to y treated exactly and the others linearised (φ < 2).
    void step_by_nearest(const Sums& s, const Neighbours& n) {
        double f = s.above - s.below, all_slope = s.above_slope + s.below_slope;
        bool at_y = n.tied > 0;
        double sign = n.above > 0 ? 1 : -1, k = at_y ? n.tied : n.above > 0 ? n.above : n.below;
        double t = at_y ? 0 : sign * n.nearest, away = fabs(t);
        double others = all_slope - (at_y ? 0 : k * pow(away, q - 1));
        others = q * most_of(others, 0);
        double c = f - (at_y ? 0 : k * sign * pow(away, q)) - others * t;
        double goal = fabs(c), u = least_of(goal / k, pow(goal / most_of(others, 1e-300), q));
        for (int i = 0; i < 6; i++) {
            double rest = others * pow(u, 1 / q - 1);
            u = most_of(0, u - (k * u + rest * u - goal) / (k + rest / q));
        }
        step = scale * (t + (c > 0 ? 1 : -1) * pow(u, 1 / q));
    }

    bool wants_neighbours(const Sums& s) const { return !settled && q < 1 && (s.closest == 0 || sweeps >= 5); }

    // The next point, from the evaluation at y; ends the search when only rounding error is left.
    void advance() {
        double grain = most_of(eps * eps, 100 * TINY) * scale;
        double resolution = 2 * most_of(eps * eps, 2.220446049250313e-16);
        double new_lo = most_of(lo, direction > 0 ? y : y - error), new_hi = least_of(hi, direction < 0 ? y : y + error);
        double middle = 0.5 * (new_lo + new_hi);
        new_lo = least_of(new_lo, middle), new_hi = most_of(new_hi, middle);
        double width = new_hi - new_lo, least = resolution * fabs(y) + grain;
        if (!settled && fabs(step) < least && direction != 0) step = direction * least;
        double next = y + step;
        sweeps++;
        bool usable = next >= new_lo && next <= new_hi;  // false for NaN
        if (sweeps > 3) usable = usable && (width <= 0.5 * widths[0] || direction == 0 || settled);
        if (!usable) next = middle;
        active = !(settled || direction == 0 || width <= 0.25 * eps * fabs(y) + 2 * grain || next == y) && sweeps < MAX_SWEEPS;
        lo = new_lo, hi = new_hi;
        widths[0] = widths[1], widths[1] = widths[2], widths[2] = width;
        center = y = next;
        bound = most_of(hi - center, center - lo);
        if (settled && usable) bound = least_of(bound, rest);
        bound += 2 * TINY * scale;  // closer values count as this far: the direction may be wrong by as much
    }
};

}  // namespace GEONORM_ISA
}  // namespace geonorm
