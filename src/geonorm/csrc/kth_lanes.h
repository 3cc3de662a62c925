// The value of a given rank among the values of each lane, exactly: passes that only count, in all lanes at once.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

// A float as an integer of the same order, and back: the bits of a negative one, except the sign, are inverted.
template <class T>
GN_INLINE typename Of<T>::I ordered(typename Of<T>::V v) {
    typedef typename Of<T>::I I;
    const typename Of<T>::Int most = (typename Of<T>::Int)(~(uint64_t)0 >> (65 - 8 * sizeof(T)));
    const I bits = (I)v;
    return bits ^ ((bits >> (8 * sizeof(T) - 1)) & most);
}
template <class T>
GN_INLINE typename Of<T>::V unordered(typename Of<T>::I key) {
    return (typename Of<T>::V)ordered<T>((typename Of<T>::V)key);
}
template <class T>
GN_INLINE bool any_lane(typename Of<T>::I mask) {
    bool found = false;
    for (int l = 0; l < Of<T>::N; l++) found = found || mask[l];
    return found;
}
GN_INLINE F32 either(I32 where, F32 a, F32 b) { return (F32)((where & (I32)a) | (~where & (I32)b)); }
GN_INLINE F64 either(I64 where, F64 a, F64 b) {
#if defined(__AVX2__)
    return (F64)((where & (I64)a) | (~where & (I64)b));
#else
    for (int l = 0; l < Of<double>::N; l++) a[l] = where[l] ? a[l] : b[l];  // SSE2 cannot compare whole numbers of 64 bits
    return a;
#endif
}

// In every lane, how many of n values are at most `limit`. Counts are floats: of integers of 64 bits, not every
// instruction set can compare a vector.
template <class T>
GN_INLINE typename Of<T>::V count_up_to(const typename Of<T>::V* v, int64_t n, typename Of<T>::V limit) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    const V one = all((T)1);
    V count[4] = {};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        GN_UNROLLED for (int j = 0; j < 4; j++) count[j] += choose((I)(v[i + j] <= limit), one);
    for (; i < n; i++) count[0] += choose((I)(v[i] <= limit), one);
    return (count[0] + count[1]) + (count[2] + count[3]);
}

// In every lane, the value of that rank (from 0) of n values without NaN, and the one after it.
//
// Eight of the values, sorted, are searched first: three passes leave the values between two of them. Halving that
// interval leaves two values after some five passes. Where it does not (ties, a far outlier as one end), keys are halved
// instead of values, which always ends.
template <class T>
static void kth_values(const typename Of<T>::V* v, int64_t n, typename Of<T>::V rank, typename Of<T>::V& kth,
                       typename Of<T>::V& next) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    V few[8];
    for (int j = 0; j < 8; j++) few[j] = v[j * n / 8];
    for (int round = 0; round < 8; round++)
        for (int j = round % 2; j < 7; j += 2) {
            const V a = smaller(few[j], few[j + 1]);
            few[j + 1] = larger(few[j], few[j + 1]), few[j] = a;
        }
    // The k-th value is above low and at most high; `below` and `up_to` values are at most these.
    V low = all((T)-INFINITY), high = all((T)INFINITY);
    V below = {}, up_to = all((T)n);
    const auto narrow = [&](V limit) __attribute__((always_inline)) {
        const V count = count_up_to<T>(v, n, limit);
        const I enough = (I)(count > rank);
        high = either(enough, limit, high), up_to = either(enough, count, up_to);
        low = either(enough, low, limit), below = either(enough, below, count);
        return enough;
    };
    const I left = narrow(few[3]), again = narrow(either(left, few[1], few[5]));
    narrow(either(left, either(again, few[0], few[2]), either(again, few[4], few[6])));
    const I open = (I)(low == (T)-INFINITY) | (I)(high == (T)INFINITY);
    if (any_lane<T>(open)) {
        V lowest = v[0], highest = v[0];
        for (int64_t i = 1; i < n; i++) lowest = smaller(v[i], lowest), highest = larger(v[i], highest);
        low = either((I)(low == (T)-INFINITY), unordered<T>(ordered<T>(lowest) - 2), low);  // below it: −0 is not below 0
        high = either((I)(high == (T)INFINITY), highest, high);
    }
    // Of two values that are left, the k-th is the smaller or the larger; of more, only if all are the same.
    V first, last, beyond;
    I settled;
    for (int pass = 0;; pass++) {
        const bool many = any_lane<T>((I)(up_to - below > (T)2));
        if (!many || pass >= 10) {
            first = beyond = all((T)INFINITY), last = all((T)-INFINITY);
            for (int64_t i = 0; i < n; i++) {
                const I above = (I)(v[i] > low), outside = (I)(v[i] > high);
                first = smaller(either(above, v[i], first), first);
                last = larger(either(outside, last, v[i]), last);
                beyond = smaller(either(outside, v[i], beyond), beyond);
            }
            settled = (I)(up_to - below <= (T)2) | (I)(first == last);
            if (!any_lane<T>(~settled) || pass > 30) break;  // NaN never settles; such a batch is refused
        }
        if (pass < 10) {
            narrow(low * (T)0.5 + high * (T)0.5);
            continue;
        }
        for (int bits = 0; bits < 4; bits++) {
            const I bottom = ordered<T>(low), top = ordered<T>(high);
            narrow(unordered<T>((bottom & top) + ((bottom ^ top) >> 1)));  // halfway without overflow
        }
    }
    const I second = (I)(rank > below) & (I)(first < last);  // the k-th is the larger one
    kth = either(second, last, first);
    next = either((I)(up_to > rank + (T)1), last, beyond);
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
