// The guard, from the values of a batch to the distance of every sample: moments of each sample in each channel, medians
// of the channels, the joint center, distances. entry.cpp puts the parts together; here they are, one range at a time.
#pragma once
#include "kernels.h"
#include "lanes.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// Mean and variance of samples [first, last). Sums that overflow leave Inf or NaN: `distances` looks at those again.
template <class E>
static void moments_of_rows(const Job& job, int64_t first, int64_t last, typename Computing<E>::T* mean,
                            typename Computing<E>::T* var) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    const int64_t n = job.length;
    const T inverse = (T)1 / (T)n;
    for (int64_t i = first; i < last; i++)
        for (int64_t c = 0; c < job.groups; c++) {
            const E* run = (const E*)job.x + i * job.run_stride + c * job.group_stride;
            double wide = 0;
            for (int64_t k = 0; k < n; k += BLOCK) {
                V sum = {};
                each_piece<T>(k, n - k < BLOCK ? n : k + BLOCK,
                              [&](auto piece) __attribute__((always_inline)) { sum += piece.only(piece.take(run)); });
                wide += total<T>(sum);
            }
            const T m = (T)(wide * inverse);
            const V about = all(m);
            wide = 0;
            for (int64_t k = 0; k < n; k += BLOCK) {
                V sum = {};
                each_piece<T>(k, n - k < BLOCK ? n : k + BLOCK, [&](auto piece) __attribute__((always_inline)) {
                    V d = piece.only(piece.take(run) - about);
                    sum += d * d;
                });
                wide += total<T>(sum);
            }
            mean[i * job.groups + c] = m, var[i * job.groups + c] = (T)(wide * inverse);
        }
}

// The same where neighbouring values are of different channels.
template <class E>
static void moments_of_lanes(const Job& job, int64_t first, int64_t last, typename Computing<E>::T* mean,
                             typename Computing<E>::T* var) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    const int64_t rows = job.positions, features = job.features;
    const V inverse = all((T)1 / (T)rows);
    for (int64_t i = first; i < last; i++) {
        const E* x = (const E*)job.x + i * rows * features;
        T *m = mean + i * features, *v = var ? var + i * features : nullptr;
        each_piece<T>(0, features, [&](auto piece) __attribute__((always_inline)) {
            V sum = {}, squares = {};
            for (int64_t r = 0; r < rows; r++) sum += piece.take(x + r * features);
            const V about = sum * inverse;
            piece.put(m, about);
            if (!v) return;
            for (int64_t r = 0; r < rows; r++) {
                V d = piece.take(x + r * features) - about;
                squares += d * d;
            }
            piece.put(v, squares * inverse);
        });
    }
}

template <class E>
static void sample_moments_of(const Job& job, int64_t first, int64_t last, void* mean, void* var) {
    typedef typename Computing<E>::T T;
    if (job.layout == ROWS)
        moments_of_rows<E>(job, first, last, (T*)mean, (T*)var);
    else
        moments_of_lanes<E>(job, first, last, (T*)mean, (T*)var);
}

static void sample_moments(const Job& job, int64_t first, int64_t last, void* mean, void* var) {
    switch (job.dtype) {
        case FLOAT32: return sample_moments_of<float>(job, first, last, mean, var);
        case FLOAT64: return sample_moments_of<double>(job, first, last, mean, var);
        case BFLOAT16: return sample_moments_of<bf16>(job, first, last, mean, var);
        default: return sample_moments_of<f16>(job, first, last, mean, var);
    }
}

// A float as an integer of the same order, and back: the bits of a negative one, but for the sign, are turned over.
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

// The k-th smallest of n keys in every lane, by halving the range of keys.
template <class T>
static typename Of<T>::I kth_key(const typename Of<T>::I* keys, int64_t n, int64_t k) {
    typedef typename Of<T>::I I;
    I low = keys[0], high = keys[0];
    for (int64_t i = 1; i < n; i++) {
        low = keys[i] < low ? keys[i] : low;
        high = keys[i] > high ? keys[i] : high;
    }
    for (;;) {
        bool open = false;
        for (int l = 0; l < Of<T>::N; l++) open = open || low[l] < high[l];
        if (!open) return low;
        // Halfway, rounded down, without overflow.
        const I middle = (low & high) + ((low ^ high) >> 1);
        I count[4] = {};
        int64_t i = 0;
        for (; i + 4 <= n; i += 4)
            GN_UNROLLED for (int j = 0; j < 4; j++) count[j] -= (I)(keys[i + j] <= middle);
        for (; i < n; i++) count[0] -= (I)(keys[i] <= middle);
        const I enough = (I)(count[0] + count[1] + count[2] + count[3] > (typename Of<T>::Int)k);
        high = (enough & middle) | (~enough & high);
        low = (enough & low) | (~enough & (middle + 1));
    }
}

// The upper of the two middle keys of an even number n, from the lower one.
template <class T>
static typename Of<T>::I next_key(const typename Of<T>::I* keys, int64_t n, typename Of<T>::I lower) {
    typedef typename Of<T>::I I;
    I count = {}, next = I{} + (typename Of<T>::Int)(~(uint64_t)0 >> (65 - 8 * sizeof(T)));
    for (int64_t i = 0; i < n; i++) {
        const I above = (I)(keys[i] > lower);
        count -= ~above;
        const I other = (above & keys[i]) | (~above & next);
        next = other < next ? other : next;
    }
    const I tied = (I)(count > (typename Of<T>::Int)(n / 2));
    return (tied & lower) | (~tied & next);
}

// Center and squared scale of channels [first, last), a multiple of a vector but for the end: medians over some samples.
template <class T>
static void channel_medians_of(const Samples& of, int64_t first, int64_t last, Scratch& scratch) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    const int64_t n = of.some;
    I* keys = (I*)scratch.get(n * sizeof(V));
    if (!keys) return;
    const T *mean = (const T*)of.mean, *var = (const T*)of.var;
    each_piece<T>(first, last, [&](auto piece) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; i++) keys[i] = ordered<T>(piece.take(mean + of.nth(i) * of.channels));
        const I lower = kth_key<T>(keys, n, (n - 1) / 2);
        V center = unordered<T>(lower);
        if (n % 2 == 0) center = center * (T)0.5 + unordered<T>(next_key<T>(keys, n, lower)) * (T)0.5;
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = of.nth(i) * of.channels;
            V d = piece.take(mean + row) - center;
            keys[i] = (I)(d * d + (var ? piece.take(var + row) : V{}));  // not negative: ordered as they are
        }
        piece.put((T*)of.center, center);
        piece.put((T*)of.square, (V)kth_key<T>(keys, n, (n - 1) / 2));
    });
}

static void channel_medians(const Samples& of, int64_t first, int64_t last) {
    static thread_local Scratch scratch;
    if (of.wide)
        channel_medians_of<double>(of, first, last, scratch);
    else
        channel_medians_of<float>(of, first, last, scratch);
}

// Squared distance of one sample: Σ (v + (m − y)²)·inverse.
template <class T>
GN_INLINE double squared_distance(const Samples& of, int64_t sample) {
    typedef typename Of<T>::V V;
    const T *mean = (const T*)of.mean + sample * of.channels, *center = (const T*)of.center;
    const T *var = of.var ? (const T*)of.var + sample * of.channels : nullptr, *inverse = (const T*)of.inverse;
    V sum = {};
    each_piece<T>(0, of.channels, [&](auto piece) __attribute__((always_inline)) {
        V d = piece.take(mean) - piece.take(center);
        d = d * d + (var ? piece.take(var) : V{});
        sum += piece.only(d * piece.take(inverse));
    });
    return total<T>(sum);
}

template <class T>
static void distances_of(const Samples& of, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) of.distance[i] = sqrt(squared_distance<T>(of, i));
}

static void distances(const Samples& of, int64_t first, int64_t last) {
    of.wide ? distances_of<double>(of, first, last) : distances_of<float>(of, first, last);
}

// One Weiszfeld step: the center moves by the mean of the deviations, weighted by one over the distance.
template <class T>
static void weiszfeld_of(const Samples& of, Scratch& scratch) {
    typedef typename Of<T>::V V;
    T* moved = (T*)scratch.get(of.channels * sizeof(T));
    if (!moved) return;
    memset(moved, 0, of.channels * sizeof(T));
    T* center = (T*)of.center;
    double weights = 0;
    for (int64_t i = 0; i < of.some; i++) {
        const int64_t sample = of.nth(i);
        const double d = sqrt(squared_distance<T>(of, sample)), weight = 1 / (d > NEAREST_SAMPLE ? d : NEAREST_SAMPLE);
        if (!(weight > 0)) continue;  // infinitely far away, or not a number
        weights += weight;
        const T* mean = (const T*)of.mean + sample * of.channels;
        const V w = all((T)weight);
        each_piece<T>(0, of.channels, [&](auto piece) __attribute__((always_inline)) {
            piece.put(moved, piece.take(moved) + piece.only((piece.take(mean) - piece.take(center)) * w));
        });
    }
    if (!(weights > 0)) return;
    const V share = all((T)(1 / weights));
    each_piece<T>(0, of.channels, [&](auto piece) __attribute__((always_inline)) {
        piece.put(center, piece.take(center) + piece.only(piece.take(moved) * share));
    });
}

static void weiszfeld(const Samples& of) {
    static thread_local Scratch scratch;
    of.wide ? weiszfeld_of<double>(of, scratch) : weiszfeld_of<float>(of, scratch);
}

// In double, from the values themselves: a sample whose sums overflowed. NaN if a value is not finite.
template <class E>
static double distance_in_double(const Job& job, const Samples& of, int64_t sample) {
    typedef typename Computing<E>::T T;
    const bool rows = job.layout == ROWS;
    const int64_t channels = of.channels, positions = rows ? job.length : job.positions;
    const E* x = (const E*)job.x + sample * channels * positions;
    double sum = 0;
    for (int64_t c = 0; c < channels; c++) {
        double squares = 0;
        for (int64_t p = 0; p < positions; p++) {
            const double v = (double)widen(x[rows ? c * positions + p : p * channels + c]);
            if (!(v - v == 0)) return NAN;
            const double d = v - (double)((const T*)of.center)[c];
            squares += d * d;
        }
        sum += squares / (double)positions * (double)((const T*)of.inverse)[c];
    }
    return sqrt(sum);
}

// x' = y + f·(x − y) of one sample.
template <class E>
static void pull_sample_of(const Job& job, int64_t sample, double factor, const void* center, void* to) {
    typedef typename Computing<E>::T T;
    typedef typename Of<T>::V V;
    const bool rows = job.layout == ROWS;
    const int64_t outer = rows ? job.groups : job.positions, inner = rows ? job.length : job.features;
    const E* x = (const E*)job.x + sample * outer * inner;
    const V f = all((T)factor);
    for (int64_t i = 0; i < outer; i++)
        each_piece<T>(0, inner, [&](auto piece) __attribute__((always_inline)) {
            const V y = rows ? all(((const T*)center)[i]) : piece.take((const T*)center);
            piece.put((E*)to + i * inner, y + f * (piece.take(x + i * inner) - y));
        });
}

// The gradient of a sample that was pulled: f times that of x'.
template <class E>
static void scale_sample_of(const Job& job, int64_t sample, double factor) {
    typedef typename Computing<E>::T T;
    const int64_t size = job.layout == ROWS ? job.groups * job.length : job.positions * job.features;
    E* dx = (E*)job.dx + sample * size;
    for (int64_t i = 0; i < size; i++) dx[i] = narrow((T)(widen(dx[i]) * (T)factor), (E*)nullptr);
}

static double far_distance(const Job& job, const Samples& of, int64_t sample) {
    switch (job.dtype) {
        case FLOAT32: return distance_in_double<float>(job, of, sample);
        case FLOAT64: return distance_in_double<double>(job, of, sample);
        case BFLOAT16: return distance_in_double<bf16>(job, of, sample);
        default: return distance_in_double<f16>(job, of, sample);
    }
}
static void pull_sample(const Job& job, int64_t sample, double factor, const void* center, void* to) {
    switch (job.dtype) {
        case FLOAT32: return pull_sample_of<float>(job, sample, factor, center, to);
        case FLOAT64: return pull_sample_of<double>(job, sample, factor, center, to);
        case BFLOAT16: return pull_sample_of<bf16>(job, sample, factor, center, to);
        default: return pull_sample_of<f16>(job, sample, factor, center, to);
    }
}
static void scale_sample(const Job& job, int64_t sample, double factor) {
    switch (job.dtype) {
        case FLOAT32: return scale_sample_of<float>(job, sample, factor);
        case FLOAT64: return scale_sample_of<double>(job, sample, factor);
        case BFLOAT16: return scale_sample_of<bf16>(job, sample, factor);
        default: return scale_sample_of<f16>(job, sample, factor);
    }
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
