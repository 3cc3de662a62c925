// a^(φ−2) of a vector of distances a > 0: one square root for the usual φ, two short polynomials for the others.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

// φ = 2; φ = 1.5; the other φ with a short form, told apart by Exponent::path; the rest; the rest below 2. And for
// gradients: φ = 1 and ∞; no center at all.
enum Power { ONE, ROOT, ANY, GENERAL, GENERAL_BELOW_TWO, EDGES, NONE };
enum Path { PATH_ONE, PATH_125, PATH_150, PATH_175, PATH_250, PATH_300, PATH_400, PATH_GENERAL };

struct Exponent {
    double phi;
    Path path;
    Power power() const {
        return path == PATH_ONE ? ONE : path == PATH_150 ? ROOT : path == PATH_GENERAL ? GENERAL : ANY;
    }
};

GN_INLINE Exponent exponent_of(double phi) {
    Path path = phi == 2      ? PATH_ONE
                : phi == 1.25 ? PATH_125
                : phi == 1.5  ? PATH_150
                : phi == 1.75 ? PATH_175
                : phi == 2.5  ? PATH_250
                : phi == 3    ? PATH_300
                : phi == 4    ? PATH_400
                              : PATH_GENERAL;
    return Exponent{phi, path};
}

// log2 a = e + l with e a whole number and |l| ≤ ½: kept apart, so that a product with φ−2 loses nothing.
GN_INLINE void log2_parts(F32 a, F32& e, F32& l) {
    I32 bits = (I32)a;
    I32 k = (bits - 0x3f3504f3) >> 23;  // a / 2^k lies in [√½, √2)
    e = __builtin_convertvector(k, F32);
    F32 f = (F32)(bits - (k << 23)) - 1.f;
    F32 f2 = f * f, f4 = f2 * f2;  // in pairs: Horner's rule would wait for each product
    F32 low = (1.442695005e+00f - f * 7.213471995e-01f) + (4.809102805e-01f - f * 3.607162476e-01f) * f2;
    F32 high = (2.879390562e-01f - f * 2.386760261e-01f) + (2.152129864e-01f - f * 2.089316954e-01f) * f2;
    l = (low + (high + f4 * 1.292596678e-01f) * f4) * f;
}
// 2^(s(e + l)), 0 where that is below 2^−126. BOUNDED: it lies well between 2^−126 and 2^127.
template <bool BOUNDED>
GN_INLINE F32 exp2_parts(F32 s, F32 e, F32 l) {
    F32 t = s * e + s * l;
    if (!BOUNDED) t = larger(smaller(t, all(126.f)), all(-127.f));
    F32 n = t + 12582912.f;  // 1.5·2^23: rounds to the nearest whole number, which stands in the low bits
    I32 whole = (I32)n;
    n = n - 12582912.f;
    F32 f = (s * e - n) + s * l;
    F32 f2 = f * f;
    F32 p = (1.000000072f + f * 6.931469670e-01f) + (2.402211973e-01f + f * 5.550713317e-02f) * f2 +
            (9.675541222e-03f + f * 1.327645785e-03f) * (f2 * f2);
    if (BOUNDED) return (F32)((I32)p + (whole << 23));
    I32 small = n < -126.f;
    return (F32)(~small & ((I32)p + (whole << 23)));
}

template <bool BOUNDED = false>
GN_INLINE F32 general_power(F32 a, F32 s, F32& log2_a) {
    F32 e, l;
    log2_parts(a, e, l);
    log2_a = e + l;
    return exp2_parts<BOUNDED>(s, e, l);
}
template <bool BOUNDED = false>
GN_INLINE F64 general_power(F64 a, F64 s, F64& log2_a) {
    F64 w;
    for (int i = 0; i < Of<double>::N; i++) {
        double l = log2(a[i]);
        log2_a[i] = l;
        w[i] = exp2(s[i] * l);
    }
    return w;
}

// a^(φ−2) for a > 0. `s` = φ−2 in every lane: groups side by side may have different exponents.
template <Power POWER, class T>
GN_INLINE typename Of<T>::V slope(typename Of<T>::V a, typename Of<T>::V s, Path path) {
    typedef typename Of<T>::V V;
    if (POWER == ONE) return all((T)1);
    if (POWER == ROOT) return inverse_root(a);
    if (POWER == GENERAL || POWER == GENERAL_BELOW_TWO) {
        V log2_a;
        return general_power<POWER == GENERAL_BELOW_TWO>(a, s, log2_a);
    }
    switch (path) {
        case PATH_ONE: return all((T)1);
        case PATH_150: return inverse_root(a);
        case PATH_125: {
            V y = inverse_root(a);
            return y * (y * inverse_root(y));
        }
        case PATH_175: {
            V y = inverse_root(a);
            return y * inverse_root(y);
        }
        case PATH_250: return a * inverse_root(a);
        case PATH_300: return a;
        case PATH_400: return a * a;
        default: {
            V log2_a;
            return general_power(a, s, log2_a);
        }
    }
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
