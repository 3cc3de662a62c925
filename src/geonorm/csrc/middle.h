// The middle values of a group, exactly. Selection mispredicts half of its comparisons, so it comes last: first a sample
// tells two bounds that the middle most likely lies between, and one pass over the values counts those outside and keeps
// the few inside, until few are left.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

template <class T>
GN_INLINE void swap_values(T& a, T& b) {
    T c = a;
    a = b, b = c;
}

// The k-th smallest of n values (no NaN), which are reordered: smaller ones before it, larger ones behind.
template <class T>
static T select(T* v, int64_t n, int64_t k) {
    int64_t first = 0, last = n - 1;
    while (first < last) {
        int64_t middle = first + (last - first) / 2;  // median of three against sorted data
        if (v[middle] < v[first]) swap_values(v[middle], v[first]);
        if (v[last] < v[first]) swap_values(v[last], v[first]);
        if (v[last] < v[middle]) swap_values(v[last], v[middle]);
        T pivot = v[middle];
        int64_t i = first, j = last;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (pivot < v[j]) j--;
            if (i <= j) swap_values(v[i++], v[j--]);
        }
        if (k <= j)
            last = j;
        else if (k >= i)
            first = i;
        else
            return v[k];
    }
    return v[k];
}

// Lower and upper middle value.
template <class T>
static void middle_values(T* v, int64_t n, double& lower, double& upper) {
    int64_t k = (n - 1) / 2;
    lower = upper = select(v, n, k);
    if (n % 2 == 0) {
        T next = v[k + 1];
        for (int64_t i = k + 2; i < n; i++) next = v[i] < next ? v[i] : next;
        upper = next;
    }
}

// How many values lie below, at or below, and between two bounds.
struct Counts {
    int64_t below_low, to_low, inside, to_high;
};

// Counts n values, and keeps those between the bounds in `kept`, which has room for n and may be the values themselves.
template <class T>
static Counts keep_inside(const T* v, int64_t n, T low, T high, T* kept) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    enum { N = Of<T>::N };
    const V lows = all(low), highs = all(high);
    I below_low = {}, to_low = {}, to_high = {};  // negative
    int64_t inside = 0, i = 0;
    for (; i + N <= n; i += N) {
        const V x = load(v + i);
        const I above = x > lows, below = x < highs;
        below_low += x < lows, to_low += ~above, to_high += x <= highs;
        inside += store_chosen(kept + inside, x, above & below);
    }
    Counts counts = {0, 0, 0, 0};
    for (int l = 0; l < N; l++)
        counts.below_low -= below_low[l], counts.to_low -= to_low[l], counts.to_high -= to_high[l];
    for (; i < n; i++) {
        const T x = v[i];
        counts.below_low += x < low, counts.to_low += x <= low, counts.to_high += x <= high;
        if (x > low && x < high) kept[inside++] = x;
    }
    counts.inside = inside;
    return counts;
}

enum { SAMPLED = 256, MARGIN = 24, SELECTED = 1024 };  // MARGIN: three standard deviations of a rank in the sample

// One of the two values that are wanted: found, or its rank among those that are left.
struct Wanted {
    int64_t rank;
    double value = 0;
    bool found = false;

    // False if the value lies outside of the bounds.
    bool update(const Counts& counts, double low, double high) {
        if (found) return true;
        if (rank < counts.below_low || rank >= counts.to_high) return false;
        const bool inside = rank >= counts.to_low && rank < counts.to_low + counts.inside;
        if (!inside) value = rank < counts.to_low ? low : high, found = true;
        rank -= counts.to_low;
        return true;
    }
};

// The same from values that stay as they are. `memory` has room for n.
template <class T>
static void middle_values(const T* values, int64_t n, T* memory, double& lower, double& upper) {
    Wanted first{(n - 1) / 2}, second{n / 2};
    const T* left = values;
    int64_t count = n;
    while (count > SELECTED && !(first.found && second.found)) {
        T sample[SAMPLED];
        const int64_t stride = (count / SAMPLED - 1) | 1;  // odd: images have columns of powers of two
        for (int64_t i = 0; i < SAMPLED; i++) sample[i] = left[i * stride];
        const int64_t at = (first.found ? second.rank : first.rank) * SAMPLED / count;
        const T low = select(sample, SAMPLED, at > MARGIN ? at - MARGIN : 0);
        const T high = select(sample, SAMPLED, at + MARGIN + 1 < SAMPLED ? at + MARGIN + 1 : SAMPLED - 1);
        const Counts counts = keep_inside(left, count, low, high, memory);
        if (!first.update(counts, low, high) || !second.update(counts, low, high)) {
            memcpy(memory, values, n * sizeof(T));
            return middle_values(memory, n, lower, upper);
        }
        const bool slow = counts.inside > count / 2;
        left = memory, count = counts.inside;
        if (slow) break;
    }
    if (left == values) memcpy(memory, values, n * sizeof(T));
    if (!first.found) first.value = select(memory, count, first.rank);
    if (!second.found) second.value = select(memory, count, second.rank);
    lower = first.value, upper = second.value;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
