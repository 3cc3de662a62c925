// a^(φ−2) of a vector of distances a > 0: one square root for the usual φ, two short polynomials for the others.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

// ONE: φ = 2. ROOT: φ = 1.5. SPECIAL: other φ with a short form, which Exponent::path tells apart. GENERAL: the rest, and
// the rest below 2. For gradients, EDGES: φ = 1 and ∞. NONE: no center.
enum Power { ONE, ROOT, SPECIAL, GENERAL, GENERAL_BELOW_TWO, EDGES, NONE };
enum Path { PATH_ONE, PATH_125, PATH_150, PATH_175, PATH_250, PATH_300, PATH_400, PATH_GENERAL };

struct Exponent {
    double phi;
    Path path;
    Power power() const {
        return path == PATH_ONE ? ONE : path == PATH_150 ? ROOT : path == PATH_GENERAL ? GENERAL : SPECIAL;
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

static const float ROUNDING = 12582912.f;  // 1.5·2^23: after adding it, the low bits hold the nearest integer

#if defined(__AVX512F__)
// Tables of 16 entries, which a register holds and one instruction looks up, leave short polynomials.
struct Tables {
    alignas(64) float inverses[16], logs[16], powers[16];  // 1/c, log2 c of c in the middle of a 16th of [1, 2); 2^(i/16)
};
static const Tables TABLES = {
    {0.969696999f, 0.914285719f, 0.864864886f, 0.820512831f, 0.780487776f, 0.744186044f, 0.711111128f, 0.680851042f,
     0.653061211f, 0.627451003f, 0.603773594f, 0.581818163f, 0.561403513f, 0.542372882f, 0.524590135f, 0.507936537f},
    {0.0443940759f, 0.129283011f, 0.209453329f, 0.285402209f, 0.357552052f, 0.426264763f, 0.491853058f, 0.554588914f,
     0.614709854f, 0.67242527f, 0.727920413f, 0.781359732f, 0.832889974f, 0.882643044f, 0.930737436f, 0.977279842f},
    {1.f, 1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f, 1.41421354f,
     1.47682619f, 1.54221082f, 1.61049032f, 1.68179286f, 1.75625217f, 1.8340081f, 1.91520655f}};
GN_INLINE F32 look_up(const float* table, I32 low_bits) {
    return (F32)_mm512_permutexvar_ps((__m512i)low_bits, _mm512_load_ps(table));
}

// How many terms of a series: errors of 1e-5, of 5e-8 and of half an eps or less.
enum Terms { ROUGH, CLOSE, EXACT };

// log2 a = e + l with e a whole number and 0 ≤ l ≤ 1: kept apart, so that a product with φ−2 loses nothing.
template <Terms TERMS>
GN_INLINE void log2_parts(F32 a, F32& e, F32& l) {
    const I32 sixteenth = (I32)a >> 19;
    e = (F32)_mm512_getexp_ps((__m512)a);
    const F32 m = (F32)_mm512_getmant_ps((__m512)a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
    const F32 r = m * look_up(TABLES.inverses, sixteenth) - 1.f, log = look_up(TABLES.logs, sixteenth);
    if (TERMS == ROUGH)
        l = log + r * (1.443025017e+00f - r * 7.216753130e-01f);
    else if (TERMS == CLOSE)
        l = log + r * (1.442694940e+00f + r * (r * 4.812731696e-01f - 7.216219695e-01f));
    else
        l = log + r * (1.442694966e+00f + r * (r * (4.812286906e-01f - r * 3.610371825e-01f) - 7.213473894e-01f));
}

static const float SIXTEENTHS = ROUNDING / 16;  // the same for the nearest 16th

// 2^(n − SIXTEENTHS + f).
template <Terms TERMS>
GN_INLINE F32 exp2_from(F32 n, F32 f) {
    const F32 power = look_up(TABLES.powers, (I32)n);
    const F32 p = TERMS == ROUGH ? 1.000117301f + f * 6.932013831e-01f
                                 : 1.f + f * (6.931471799e-01f + f * (2.402358998e-01f + f * 5.550606181e-02f));
    return (F32)_mm512_scalef_ps((__m512)(power * p), (__m512)(n - SIXTEENTHS));
}
template <Terms TERMS>
GN_INLINE F32 exp2_of(F32 t) {
    const F32 n = t + SIXTEENTHS;
    return exp2_from<TERMS>(n, t - (n - SIXTEENTHS));
}
GN_INLINE void log2_parts(F32 a, F32& e, F32& l) { log2_parts<EXACT>(a, e, l); }
GN_INLINE F32 exp2_parts(F32 s, F32 e, F32 l) {
    const F32 n = (s * e + s * l) + SIXTEENTHS;
    return exp2_from<EXACT>(n, (s * e - (n - SIXTEENTHS)) + s * l);
}
#else
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
// 2^f for |f| ≤ ½.
GN_INLINE F32 exp2_fraction(F32 f) {
    F32 f2 = f * f;
    return (1.000000072f + f * 6.931469670e-01f) + (2.402211973e-01f + f * 5.550713317e-02f) * f2 +
           (9.675541222e-03f + f * 1.327645785e-03f) * (f2 * f2);
}
// 2^(s(e + l)), 0 where that is below 2^−126.
GN_INLINE F32 exp2_parts(F32 s, F32 e, F32 l) {
    F32 t = larger(smaller(s * e + s * l, all(126.f)), all(-127.f));
    F32 n = t + ROUNDING;
    I32 whole = (I32)n;
    n = n - ROUNDING;
    F32 p = exp2_fraction((s * e - n) + s * l);
    I32 small = n < -126.f;
    return (F32)(~small & ((I32)p + (whole << 23)));
}
#endif

GN_INLINE F32 general_power(F32 a, F32 s, F32& log2_a) {
    F32 e, l;
    log2_parts(a, e, l);
    log2_a = e + l;
    return exp2_parts(s, e, l);
}
GN_INLINE F64 general_power(F64 a, F64 s, F64& log2_a) {
    F64 w;
    for (int i = 0; i < Of<double>::N; i++) {
        double l = log2(a[i]);
        log2_a[i] = l;
        w[i] = exp2(s[i] * l);
    }
    return w;
}

// The same for −1 < s ≤ 0 and a from 1e-30 to 1, where nothing over- or underflows, with what the certificate allows for
// rounding: 5 eps or less from a = 1e-9 on.
GN_INLINE F32 power_below_two(F32 a, F32 s) {
#if defined(__AVX512F__)
    F32 e, l;
    log2_parts<CLOSE>(a, e, l);
    return exp2_of<EXACT>(s * (e + l));
#else
    I32 bits = (I32)a, k = (bits - 0x3f3504f3) >> 23;
    F32 f = (F32)(bits - (k << 23)) - 1.f;
    F32 f2 = f * f;
    F32 low = (1.442699726f - f * 7.213758714e-01f) + (4.804650334e-01f - f * 3.589618513e-01f) * f2;
    F32 high = (2.972625914e-01f - f * 2.726979206e-01f) + f2 * 1.706344794e-01f;
    F32 t = s * ((low + high * (f2 * f2)) * f + __builtin_convertvector(k, F32));
    F32 n = t + ROUNDING;
    return (F32)((I32)exp2_fraction(t - (n - ROUNDING)) + ((I32)n << 23));
#endif
}
GN_INLINE F64 power_below_two(F64 a, F64 s) {
    F64 log2_a;
    return general_power(a, s, log2_a);
}

// a^(φ−2) for a > 0 with a relative error of 1e-4, at half the cost or less: for the warm start, not for the certificate.
GN_INLINE F32 rough_power(F32 a, F32 s) {
#if defined(__AVX512F__)
    F32 e, l;
    log2_parts<ROUGH>(a, e, l);
    return exp2_of<ROUGH>(s * (e + l));
#else
    I32 bits = (I32)a, k = (bits - 0x3f3504f3) >> 23;
    F32 f = (F32)(bits - (k << 23)) - 1.f;
    F32 log2_a = ((1.441760650f - f * 7.249041620e-01f) + (5.175093900e-01f - f * 3.296297200e-01f) * (f * f)) * f +
                 __builtin_convertvector(k, F32);
    F32 t = larger(s * log2_a, all(-120.f)), n = t + ROUNDING;
    I32 whole = (I32)n;
    f = t - (n - ROUNDING);
    F32 p = (9.999280740e-01f + f * 6.932609860e-01f) + (2.426111220e-01f + f * 5.517166720e-02f) * (f * f);
    return (F32)((I32)p + (whole << 23));
#endif
}

// a^(φ−2) for a > 0. `s` = φ−2 in every lane: groups side by side may have different exponents.
template <Power POWER, class T>
GN_INLINE typename Of<T>::V slope(typename Of<T>::V a, typename Of<T>::V s, Path path) {
    typedef typename Of<T>::V V;
    if (POWER == ONE) return all((T)1);
    if (POWER == ROOT) return inverse_root(a);
    if (POWER == GENERAL_BELOW_TWO) return power_below_two(a, s);
    if (POWER == GENERAL) {
        V log2_a;
        return general_power(a, s, log2_a);
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

template <Power POWER>
GN_INLINE F32 rough_slope(F32 a, F32 s, Path path) {
    if (POWER == ROOT) return rough_inverse_root(a);
    if (POWER == GENERAL) return rough_power(a, s);
    return slope<POWER, float>(a, s, path);
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
