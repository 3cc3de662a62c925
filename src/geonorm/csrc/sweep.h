// One pass over a group: the four sums that the search needs. Sums run in float over short blocks and go on in double.
#pragma once
#include "powers.h"
#include "search.h"

namespace geonorm {
namespace GEONORM_ISA {

// y split into a value of T and a remainder: x − y keeps its digits under any offset. `snapped` is what T can hold.
template <class T>
struct Point {
    T head, rest;
    explicit Point(double y) : head((T)y), rest((T)(y - (double)(T)y)) {}
    double snapped() const { return (double)head + (double)rest; }
};

enum { BLOCK = 2048 };  // elements summed in T before the sum goes to double

// n contiguous values, some of which may lie at y: those are not counted.
template <Power POWER, class T>
static Sums sweep_with_ties(const T* x, int64_t n, Point<T> y, double scale, Exponent exponent) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    enum { N = Of<T>::N };
    const T inverse = (T)(1 / scale);
    const V head = all(y.head), rest = all(y.rest * inverse), inv = all(inverse), tiny = all((T)TINY);
    const V s = all((T)(exponent.phi - 2));
    const Path path = exponent.path;
    Sums sums = {0, 0, 0, 0, 0};
    V closest = all((T)1e30);
    for (int64_t i = 0; i < n;) {
        int64_t end = n - i < BLOCK ? n : i + BLOCK;
        V P = {}, M = {}, WP = {}, WM = {};
        auto add = [&](V value, I valid) __attribute__((always_inline)) {
            V r = (value - head) * inv - rest;
            V a = absolute(r);
            closest = smaller(a, closest);
            V w = slope<POWER, T>(larger(a, tiny), s, path);
            V p = r * w;
            I up = (r > (T)0) & valid, down = (r < (T)0) & valid;
            P += choose(up, p), M += choose(down, p), WP += choose(up, w), WM += choose(down, w);
        };
        for (; i + N <= end; i += N) add(load(x + i), ~I{});
        if (i < end) {
            add(read_part(x + i, end - i, x[i]), first_lanes<T>(end - i));
            i = end;
        }
        sums.above += total<T>(P), sums.below -= total<T>(M);
        sums.above_slope += total<T>(WP), sums.below_slope += total<T>(WM);
    }
    sums.closest = least_lane(closest);
    return sums;
}

// n contiguous values for φ < 2. With no value at y, Σp and Σ|p| give P and N, and Σw and Σw·sgn r give W₊ and W₋: four
// additions and no comparison. A side that is much smaller than the other gets the other's rounding error, which P^(1/q)
// with q < 1 does not enlarge. The other function repeats the rare sweep that meets a value at y.
template <Power POWER, class T>
static Sums sweep(const T* x, int64_t n, Point<T> y, double scale, Exponent exponent) {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N };
    const T inverse = (T)(1 / scale);
    const V head = all(y.head), rest = all(y.rest * inverse), inv = all(inverse);
    const V s = all((T)(exponent.phi - 2));
    const Path path = exponent.path;
    double difference = 0, sizes = 0, slopes = 0, signed_slopes = 0;
    V closest = all((T)1e30);
    for (int64_t i = 0; i + N <= n;) {
        int64_t end = n - i < BLOCK ? n - (n - i) % N : i + BLOCK;
        V D = {}, S = {}, W = {}, E = {};
        for (; i < end; i += N) {
            V r = (load(x + i) - head) * inv - rest;
            V a = absolute(r);
            closest = smaller(a, closest);
            V w = slope<POWER, T>(a, s, path);
            D += r * w, S += a * w, W += w, E += with_sign(w, r);
        }
        difference += total<T>(D), sizes += total<T>(S), slopes += total<T>(W), signed_slopes += total<T>(E);
    }
    const double nearest = least_lane(closest);
    const Power with_ties = POWER == GENERAL_BELOW_TWO ? GENERAL : POWER;
    if (!(nearest > TINY)) return sweep_with_ties<with_ties>(x, n, y, scale, exponent);
    Sums sums = {0, 0, 0, 0, nearest};
    if (n % N) {
        sums = sweep_with_ties<with_ties>(x + (n - n % N), n % N, y, scale, exponent);
        sums.closest = least_of(sums.closest, nearest);
    }
    sums.above += most_of(0.5 * (sizes + difference), 0), sums.below += most_of(0.5 * (sizes - difference), 0);
    sums.above_slope += most_of(0.5 * (slopes + signed_slopes), 0);
    sums.below_slope += most_of(0.5 * (slopes - signed_slopes), 0);
    return sums;
}

template <class T>
static Sums sweep_any(const T* x, int64_t n, Point<T> y, double scale, Exponent exponent) {
    const bool below_two = exponent.phi < 2;
    switch (exponent.power()) {
        case ROOT: return sweep<ROOT>(x, n, y, scale, exponent);
        case GENERAL:
            return below_two ? sweep<GENERAL_BELOW_TWO>(x, n, y, scale, exponent)
                             : sweep_with_ties<GENERAL>(x, n, y, scale, exponent);
        default:
            return below_two ? sweep<SPECIAL>(x, n, y, scale, exponent) : sweep_with_ties<SPECIAL>(x, n, y, scale, exponent);
    }
}

// The values nearest to y, at x[0], x[stride], ...; a second pass that few groups need.
template <class T>
static Neighbours neighbours(const T* x, int64_t n, int64_t stride, Point<T> y, double scale) {
    const T inverse = (T)(1 / scale), rest = y.rest * inverse;
    Neighbours found = {0, 1e30, 0, 0};
    T nearest = (T)1e30;
    int64_t tied = 0, above = 0, below = 0;
    for (int64_t i = 0; i < n; i++) {
        T r = (x[i * stride] - y.head) * inverse - rest, a = r < 0 ? -r : r;
        tied += a == 0;
        nearest = a < nearest && a > 0 ? a : nearest;
    }
    for (int64_t i = 0; i < n; i++) {
        T r = (x[i * stride] - y.head) * inverse - rest;
        above += r == nearest, below += r == -nearest;
    }
    found.tied = (double)tied, found.nearest = nearest, found.above = (double)above, found.below = (double)below;
    return found;
}

// The same of contiguous values.
template <class T>
static Neighbours neighbours(const T* x, int64_t n, Point<T> y, double scale) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    enum { N = Of<T>::N };
    const T inverse = (T)(1 / scale), rest = y.rest * inverse, far = (T)1e30;
    const int64_t whole = n - n % N;
    V least = all(far);
    for (int64_t i = 0; i < whole; i += N) {
        const V a = absolute((load(x + i) - y.head) * inverse - rest);
        least = smaller(choose(a > (T)0, a) + choose(a == (T)0, all(far)), least);
    }
    Neighbours found = neighbours(x + whole, n - whole, 1, y, scale);
    const T nearest = (T)least_of(least_lane(least), found.nearest);
    I tied = {}, above = {}, below = {};  // negative
    for (int64_t i = 0; i < whole; i += N) {
        const V r = (load(x + i) - y.head) * inverse - rest;
        tied += r == (T)0, above += r == nearest, below += r == -nearest;
    }
    if (nearest < found.nearest) found.above = found.below = 0;
    found.nearest = nearest;
    for (int l = 0; l < N; l++) found.tied -= tied[l], found.above -= above[l], found.below -= below[l];
    return found;
}

// A search over contiguous values.
template <class T>
struct RowSearch {
    const T* x;
    int64_t n;
    Exponent exponent;
    Search search;
    Point<T> y;
    Sums sums;

    RowSearch() : n(0), y(0) { search.active = false, search.sweeps = 0; }

    void sweep_once() {
        y = Point<T>(search.y), search.y = y.snapped();
        sums = sweep_any(x, n, y, search.scale, exponent);
    }
    void advance() {
        search.evaluate(sums);
        if (search.wants_neighbours(sums)) search.step_by_nearest(sums, neighbours(x, n, y, search.scale));
        search.advance();
    }
};

// Runs searches until each ends by itself, or after `most` sweeps. What follows a sweep is a long chain of operations: the
// next group's sweep does not wait for it.
template <class T>
static void run_searches(RowSearch<T>* rows, int count, int most = MAX_SWEEPS) {
    for (bool some = true; some;) {
        some = false;
        for (int i = 0; i < count; i++)
            if (rows[i].search.active) rows[i].sweep_once();
        for (int i = 0; i < count; i++) {
            if (!rows[i].search.active) continue;
            rows[i].advance();
            some = some || (rows[i].search.active && rows[i].search.sweeps < most);
        }
    }
}

// One search over n contiguous values.
template <class T>
static void run_search(Search& search, const T* x, int64_t n, Exponent exponent, int most = MAX_SWEEPS) {
    RowSearch<T> row;
    row.x = x, row.n = n, row.exponent = exponent, row.search = search;
    if (search.active && search.sweeps < most) run_searches(&row, 1, most);
    search = row.search;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
