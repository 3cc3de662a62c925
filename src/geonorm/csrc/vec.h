// Vectors of the instruction set that this file is compiled for. Plain arithmetic is the compiler's vector extension;
// intrinsics are used only where it cannot express the operation.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define GN_INLINE static inline __attribute__((always_inline))
#define GN_MEMBER inline __attribute__((always_inline))
// Before a loop over the vectors of a block: unrolled, its sums stay in registers.
#define GN_UNROLLED _Pragma("GCC unroll 4")

namespace geonorm {
namespace GEONORM_ISA {

#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX2__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };  // SSE2 and NEON
#endif

enum { LINE_BYTES = 64 };  // of the cache

typedef float F32 __attribute__((vector_size(BYTES)));
typedef double F64 __attribute__((vector_size(BYTES)));
typedef int32_t I32 __attribute__((vector_size(BYTES)));
typedef int64_t I64 __attribute__((vector_size(BYTES)));
typedef float F32U __attribute__((vector_size(BYTES), aligned(4)));
typedef double F64U __attribute__((vector_size(BYTES), aligned(8)));

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

template <class T>
struct Of;  // the vector of a computing type
template <>
struct Of<float> {
    typedef F32 V;
    typedef I32 I;
    typedef int32_t Int;
    typedef F32U Unaligned;
    enum { N = BYTES / 4 };
    static constexpr float eps = 1.1920929e-07f;
};
template <>
struct Of<double> {
    typedef F64 V;
    typedef I64 I;
    typedef int64_t Int;
    typedef F64U Unaligned;
    enum { N = BYTES / 8 };
    static constexpr double eps = 2.220446049250313e-16;
};

template <class E>
struct Computing {
    typedef float T;
};
template <>
struct Computing<double> {
    typedef double T;
};

// Types with code of their own for the usual cases; the others share the general code, to build faster.
template <class E>
constexpr bool IS_COMMON = false;
template <>
constexpr bool IS_COMMON<float> = true;
template <>
constexpr bool IS_COMMON<bf16> = true;

template <class T>
GN_INLINE typename Of<T>::V all(T value) {
    return value - typename Of<T>::V{};
}
template <class T>
GN_INLINE typename Of<T>::V load(const T* p) {
    return *(const typename Of<T>::Unaligned*)p;
}
template <class T>
GN_INLINE void store(T* p, typename Of<T>::V v) {
    *(typename Of<T>::Unaligned*)p = v;
}

GN_INLINE F32 absolute(F32 a) { return (F32)((I32)a & 0x7fffffff); }
GN_INLINE F64 absolute(F64 a) { return (F64)((I64)a & 0x7fffffffffffffffLL); }
GN_INLINE F32 choose(I32 where, F32 a) { return (F32)(where & (I32)a); }  // a where the mask is set, 0 elsewhere
GN_INLINE F64 choose(I64 where, F64 a) { return (F64)(where & (I64)a); }

// A positive w with the sign of r.
GN_INLINE F32 with_sign(F32 w, F32 r) { return (F32)((I32)w | ((I32)r & (int32_t)0x80000000)); }
GN_INLINE F64 with_sign(F64 w, F64 r) { return (F64)((I64)w | ((I64)r & (int64_t)0x8000000000000000LL)); }

// The larger and the smaller; the second operand where one of them is NaN.
GN_INLINE F32 larger(F32 a, F32 b) {
#if defined(__AVX512F__)
    return (F32)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (F32)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (F32)_mm_max_ps((__m128)a, (__m128)b);
#else
    return a > b ? a : b;
#endif
}
GN_INLINE F32 smaller(F32 a, F32 b) {
#if defined(__AVX512F__)
    return (F32)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (F32)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (F32)_mm_min_ps((__m128)a, (__m128)b);
#else
    return a < b ? a : b;
#endif
}
GN_INLINE F64 larger(F64 a, F64 b) { return a > b ? a : b; }
GN_INLINE F64 smaller(F64 a, F64 b) { return a < b ? a : b; }

// 1/√a for a > 0: the estimate of the hardware, good to 4e-4 or better; and with one Newton step, good to 2 eps. The estimate
// of ARM has 8 bits, so it takes a step of its own.
GN_INLINE F32 rough_inverse_root(F32 a) {
#if defined(__AVX512F__)
    return (F32)_mm512_rsqrt14_ps((__m512)a);
#elif defined(__AVX2__)
    return (F32)_mm256_rsqrt_ps((__m256)a);
#elif defined(__SSE2__)
    return (F32)_mm_rsqrt_ps((__m128)a);
#elif defined(__aarch64__)
    const float32x4_t x = (float32x4_t)a, y = vrsqrteq_f32(x);
    return (F32)vmulq_f32(y, vrsqrtsq_f32(vmulq_f32(x, y), y));
#else
    F32 y;
    for (int i = 0; i < Of<float>::N; i++) y[i] = 1.f / sqrtf(a[i]);
    return y;
#endif
}
GN_INLINE F32 inverse_root(F32 a) {
    F32 y = rough_inverse_root(a);
#if defined(__SSE2__) || defined(__aarch64__)
    F32 half = a * 0.5f * y;
    y = y + y * (0.5f - half * y);
#endif
    return y;
}
GN_INLINE F64 inverse_root(F64 a) {
    F64 y;
    for (int i = 0; i < Of<double>::N; i++) y[i] = sqrt(a[i]);
    return 1.0 / y;
}

// √a for a ≥ 0.
GN_INLINE F32 root(F32 a) {
#if defined(__AVX512F__)
    return (F32)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
    return (F32)_mm256_sqrt_ps((__m256)a);
#elif defined(__aarch64__)
    return (F32)vsqrtq_f32((float32x4_t)a);
#else
    for (int i = 0; i < Of<float>::N; i++) a[i] = sqrtf(a[i]);
    return a;
#endif
}
GN_INLINE F64 root(F64 a) {
    for (int i = 0; i < Of<double>::N; i++) a[i] = sqrt(a[i]);
    return a;
}

// Sums of lanes that go on in double. Halves are added first, then halves of halves: a chain would wait for each addition.
typedef float HalfF32 __attribute__((vector_size(BYTES / 2)));
GN_INLINE double sum_of_lanes(F64 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)v);
#else
    double sums[BYTES / 8];
    memcpy(sums, &v, BYTES);
    for (int width = BYTES / 16; width > 0; width /= 2)
        for (int i = 0; i < width; i++) sums[i] += sums[i + width];
    return sums[0];
#endif
}

template <class T>
struct Wide;  // one sum in double for every lane
template <>
struct Wide<float> {
    F64 half[2] = {};
    GN_MEMBER void add(F32 v) {
        HalfF32 halves[2];
        memcpy(halves, &v, BYTES);
        half[0] += __builtin_convertvector(halves[0], F64), half[1] += __builtin_convertvector(halves[1], F64);
    }
    GN_MEMBER double operator[](int lane) const { return half[lane / (BYTES / 8)][lane % (BYTES / 8)]; }
    GN_MEMBER double all() const { return sum_of_lanes(half[0] + half[1]); }
};
template <>
struct Wide<double> {
    F64 sum = {};
    GN_MEMBER void add(F64 v) { sum += v; }
    GN_MEMBER double operator[](int lane) const { return sum[lane]; }
    GN_MEMBER double all() const { return sum_of_lanes(sum); }
};

template <class T>
GN_INLINE double total(typename Of<T>::V v) {
    Wide<T> sum;
    sum.add(v);
    return sum.all();
}

// Stores the lanes where the mask is set, one behind the other, and returns their number. The memory behind them, up to a
// whole vector, is overwritten.
GN_INLINE int store_chosen(float* to, F32 v, I32 where) {
#if defined(__AVX512F__)
    const __mmask16 chosen = _mm512_movepi32_mask((__m512i)where);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(chosen, (__m512)v));
    return __builtin_popcount(chosen);
#else
    int count = 0;
    for (int i = 0; i < Of<float>::N; i++) to[count] = v[i], count -= where[i];
    return count;
#endif
}
GN_INLINE int store_chosen(double* to, F64 v, I64 where) {
    int count = 0;
    for (int i = 0; i < Of<double>::N; i++) to[count] = v[i], count -= (int)where[i];
    return count;
}

// The smallest and the largest lane.
GN_INLINE float least_lane(F32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_min_ps((__m512)v);
#else
    float found = v[0];
    for (int l = 1; l < Of<float>::N; l++) found = v[l] < found ? v[l] : found;
    return found;
#endif
}
GN_INLINE float largest_lane(F32 v) { return -least_lane(-v); }
GN_INLINE double least_lane(F64 v) {
    double found = v[0];
    for (int l = 1; l < Of<double>::N; l++) found = v[l] < found ? v[l] : found;
    return found;
}
GN_INLINE double largest_lane(F64 v) { return -least_lane(-v); }

// The same in the type of the lanes: a few instructions, for sums of few numbers.
GN_INLINE float quick_sum(F32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX2__)
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#elif defined(__aarch64__)
    return vaddvq_f32((float32x4_t)v);
#else
    return (float)total<float>(v);
#endif
}
GN_INLINE double quick_sum(F64 v) { return total<double>(v); }

// Half precision: bfloat16 is the upper half of a float32; float16 needs hardware or arithmetic.
GN_INLINE float widen(bf16 v) {
    uint32_t u = (uint32_t)v.bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
GN_INLINE bf16 narrow(float f, bf16*) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (f != f) return bf16{0x7fc0};
    return bf16{(uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}
GN_INLINE float widen(f16 v) {
    uint32_t sign = (uint32_t)(v.bits & 0x8000) << 16, exponent = (v.bits >> 10) & 31, fraction = v.bits & 0x3ff;
    float f;
    if (exponent == 0) {
        f = (float)fraction * 5.9604644775390625e-08f;  // 2^-24
        uint32_t u;
        memcpy(&u, &f, 4);
        u |= sign;
        memcpy(&f, &u, 4);
        return f;
    }
    uint32_t u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (fraction << 13);
    memcpy(&f, &u, 4);
    return f;
}
GN_INLINE f16 narrow(float f, f16*) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    u &= 0x7fffffff;
    if (u > 0x7f800000) return f16{(uint16_t)(sign | 0x7e00)};
    if (u >= 0x47800000) return f16{(uint16_t)(sign | 0x7c00)};  // 65536 and above
    if (u < 0x38800000) {                                         // below 2^-14: count in units of 2^-24
        float scaled;
        memcpy(&scaled, &u, 4);
        scaled = scaled * 16777216.f + 8388608.f;  // adding 2^23 rounds to the nearest even integer
        uint32_t r;
        memcpy(&r, &scaled, 4);
        return f16{(uint16_t)(sign | (r & 0x7ff))};
    }
    u += 0xfff + ((u >> 13) & 1);
    return f16{(uint16_t)(sign | ((u - 0x38000000) >> 13))};
}
GN_INLINE float widen(float v) { return v; }
GN_INLINE double widen(double v) { return v; }
GN_INLINE float narrow(float v, float*) { return v; }
GN_INLINE double narrow(double v, double*) { return v; }

GN_INLINE F32 read(const float* p) { return load(p); }
GN_INLINE F64 read(const double* p) { return load(p); }
GN_INLINE void write(float* p, F32 v) { store(p, v); }
GN_INLINE void write(double* p, F64 v) { store(p, v); }

typedef uint16_t H16U __attribute__((vector_size(BYTES / 2), aligned(2)));
typedef uint32_t U32 __attribute__((vector_size(BYTES)));
#if defined(__AVX512F__)  // where the compiler makes two halves of a conversion and puts them together
GN_INLINE F32 widened(__m256i bits, const bf16*) {
    return (F32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}
GN_INLINE F32 widened(__m256i bits, const f16*) { return (F32)_mm512_cvtph_ps(bits); }
GN_INLINE __m256i narrowed(F32 v, const bf16*) {
    const __m512i bits = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 broken = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i high = _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), broken, _mm512_set1_epi32(0x7fc0));
    return _mm512_cvtepi32_epi16(high);
}
GN_INLINE __m256i narrowed(F32 v, const f16*) { return _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT); }
GN_INLINE F32 read(const bf16* p) { return widened(_mm256_loadu_si256((const __m256i*)p), p); }
GN_INLINE void write(bf16* p, F32 v) { _mm256_storeu_si256((__m256i*)p, narrowed(v, p)); }
#else
#if defined(__AVX2__)
GN_INLINE F32 read(const bf16* p) {
    return (F32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16);
}
#else
GN_INLINE F32 read(const bf16* p) { return (F32)(__builtin_convertvector(*(const H16U*)p, U32) << 16); }
#endif
GN_INLINE void write(bf16* p, F32 v) {
    U32 u = (U32)v;
    U32 rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    I32 broken = v != v;
    rounded = ((U32)broken & 0x7fc0u) | (~(U32)broken & rounded);
#if defined(__AVX2__)
    const __m256i packed = _mm256_packus_epi32((__m256i)rounded, (__m256i)rounded);
    _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x88)));
#else
    *(H16U*)p = __builtin_convertvector(rounded, H16U);
#endif
}
#endif
GN_INLINE F32 read(const f16* p) {
#if defined(__AVX512F__)
    return widened(_mm256_loadu_si256((const __m256i*)p), p);
#elif defined(__F16C__)
    return (F32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#elif defined(__aarch64__)
    return (F32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t*)p)));
#else
    F32 v;
    for (int i = 0; i < Of<float>::N; i++) v[i] = widen(p[i]);
    return v;
#endif
}
GN_INLINE void write(f16* p, F32 v) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i*)p, narrowed(v, p));
#elif defined(__F16C__)
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    vst1_u16((uint16_t*)p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#else
    for (int i = 0; i < Of<float>::N; i++) p[i] = narrow(v[i], (f16*)nullptr);
#endif
}

// The first `count` values, `fill` in the other lanes; and back.
#if defined(__AVX512F__)
GN_INLINE __mmask16 first_bits(int64_t count) { return (__mmask16)((1u << count) - 1); }
template <class E, class T>
GN_INLINE typename Of<T>::V read_part(const E* p, int64_t count, T fill) {
    const __mmask16 mask = first_bits(count);
    if constexpr (sizeof(E) == 8) {
        return (F64)_mm512_mask_loadu_pd((__m512d)all(fill), (__mmask8)mask, p);
    } else if constexpr (sizeof(E) == 4) {
        return (F32)_mm512_mask_loadu_ps((__m512)all(fill), mask, p);
    } else {
        const F32 values = widened(_mm256_maskz_loadu_epi16(mask, p), p);
        return (F32)_mm512_mask_mov_ps((__m512)all(fill), mask, (__m512)values);
    }
}
template <class E, class T>
GN_INLINE void write_part(E* p, int64_t count, typename Of<T>::V v) {
    const __mmask16 mask = first_bits(count);
    if constexpr (sizeof(E) == 8) {
        _mm512_mask_storeu_pd(p, (__mmask8)mask, (__m512d)v);
    } else if constexpr (sizeof(E) == 4) {
        _mm512_mask_storeu_ps(p, mask, (__m512)v);
    } else {
        _mm256_mask_storeu_epi16(p, mask, narrowed(v, p));
    }
}
#else
template <class E, class T>
GN_INLINE typename Of<T>::V read_part(const E* p, int64_t count, T fill) {
    alignas(BYTES) T lanes[Of<T>::N];
    for (int i = 0; i < Of<T>::N; i++) lanes[i] = i < count ? (T)widen(p[i]) : fill;
    return load(lanes);
}
template <class E, class T>
GN_INLINE void write_part(E* p, int64_t count, typename Of<T>::V v) {
    for (int i = 0; i < Of<T>::N; i++)
        if (i < count) p[i] = narrow((T)v[i], (E*)nullptr);
}
#endif
template <class T>
GN_INLINE typename Of<T>::I first_lanes(int64_t count) {
    typename Of<T>::I mask = {};
    for (int i = 0; i < Of<T>::N; i++) mask[i] = i < count ? -1 : 0;
    return mask;
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
