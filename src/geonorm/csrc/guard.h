// The guard, from the values of a batch to the distance of every sample: moments of each sample in each channel, medians
// of the channels, the joint center, distances. These functions process one range at a time; entry.cpp combines them.
#pragma once
#include "kernels.h"
#include "lanes.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// Σ (x − about)^POWER of a run, in blocks short enough for float sums.
template <int POWER, class E, class T>
GN_INLINE double power_sum(const E* run, int64_t n, T about) {
    typedef typename Of<T>::V V;
    const V base = all(about);
    double wide = 0;
    for (int64_t k = 0; k < n; k += BLOCK) {
        V sum = {};
        each_piece<T>(k, n - k < BLOCK ? n : k + BLOCK, [&](auto piece) __attribute__((always_inline)) {
            V d = piece.only(piece.take(run) - base);
            sum += POWER == 1 ? d : d * d;
        });
        wide += quick_sum(sum);
    }
    return wide;
}

// Mean and variance of samples [first, last). Sums that overflow leave Inf or NaN: such samples are measured again in double.
template <class E>
static void moments_of_rows(const Job& job, int64_t first, int64_t last, typename Computing<E>::T* mean,
                            typename Computing<E>::T* var) {
    typedef typename Computing<E>::T T;
    const double inverse = 1.0 / (double)job.length;
    for (int64_t i = first; i < last; i++)
        for (int64_t c = 0; c < job.groups; c++) {
            const E* run = (const E*)job.x + i * job.run_stride + c * job.group_stride;
            const T m = (T)(power_sum<1, E, T>(run, job.length, 0) * inverse);
            mean[i * job.groups + c] = m;
            var[i * job.groups + c] = (T)(power_sum<2, E, T>(run, job.length, m) * inverse);
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

// Center and squared scale of channels [first, last): medians over some samples.
template <class T>
static void channel_medians_of(const Samples& of, int64_t first, int64_t last, Scratch& scratch) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    const int64_t n = of.some;
    V* values = (V*)scratch.get(n * sizeof(V));
    if (!values) return;
    const T *mean = (const T*)of.mean, *var = (const T*)of.var;
    each_piece<T>(first, last, [&](auto piece) __attribute__((always_inline)) {
        V kth, next;
        const V middle = all((T)((n - 1) / 2));
        for (int64_t i = 0; i < n; i++) values[i] = piece.take(mean + of.nth(i) * of.channels);
        kth_values<T>(values, n, middle, kth, next);
        const V center = n % 2 ? kth : kth * (T)0.5 + next * (T)0.5;
        for (int64_t i = 0; i < n; i++) {
            const V d = values[i] - center;
            values[i] = d * d + (var ? piece.take(var + of.nth(i) * of.channels) : V{});
        }
        piece.put((T*)of.center, center);
        kth_values<T>(values, n, middle, kth, next);
        const V grain = center * (T)(8 * Of<T>::eps), least = grain * grain;  // the size of rounding errors
        const I sparse = ~(I)(kth > least);
        if (any_lane<T>(sparse)) {  // most samples are the same: the median of the others
            const V same = count_up_to<T>(values, n, least);
            V rank = middle;
            for (int l = 0; l < Of<T>::N; l++) {
                const int64_t alike = (int64_t)same[l], others = n - alike;
                if (sparse[l]) rank[l] = (T)(others ? alike + (others - 1) / 2 : n - 1);
            }
            V other;
            kth_values<T>(values, n, rank, other, next);
            kth = either(sparse, choose((I)(other > least), other), kth);
        }
        piece.put((T*)of.square, kth);
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
GN_INLINE T squared_distance(const Samples& of, int64_t sample) {
    typedef typename Of<T>::V V;
    const T *mean = (const T*)of.mean + sample * of.channels, *center = (const T*)of.center;
    const T *var = of.var ? (const T*)of.var + sample * of.channels : nullptr, *inverse = (const T*)of.inverse;
    V sum = {};
    each_piece<T>(0, of.channels, [&](auto piece) __attribute__((always_inline)) {
        V d = piece.take(mean) - piece.take(center);
        d = d * d + (var ? piece.take(var) : V{});
        sum += piece.only(d * piece.take(inverse));
    });
    return quick_sum(sum);
}

template <class T>
static void distances_of(const Samples& of, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) ((T*)of.squared)[i] = squared_distance<T>(of, i);
}

static void distances(const Samples& of, int64_t first, int64_t last) {
    of.wide ? distances_of<double>(of, first, last) : distances_of<float>(of, first, last);
}

// The lower median of non-negative values, whose bits have the same order.
template <class T>
static double middle_of(const T* values, int64_t n) {
    typedef typename Of<T>::I I;
    typedef typename Of<T>::Int Int;
    Int low = -1, high;
    const T infinite = (T)INFINITY;
    memcpy(&high, &infinite, sizeof(T));
    while (low + 1 < high) {
        const Int middle = low + (high - low) / 2;
        I counts = {};
        int64_t count = 0;
        each_piece<T>(0, n, [&](auto piece) __attribute__((always_inline)) {
            counts -= (I)((I)piece.take(values) <= middle) & piece.fresh();
        });
        for (int l = 0; l < Of<T>::N; l++) count += counts[l];
        if (count > (n - 1) / 2)
            high = middle;
        else
            low = middle;
    }
    T found;
    memcpy(&found, &high, sizeof(T));
    return (double)found;
}

static double middle_value(const void* values, int64_t n, bool wide) {
    return wide ? middle_of((const double*)values, n) : middle_of((const float*)values, n);
}

// From squared distances to distances, in place, and factors: 1 up to the radius, radius/distance beyond.
template <class T>
static void verdicts_of(T* distance, T* factor, int64_t n, double radius, double limit) {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    const V one = all((T)1), r = all((T)radius), most = all((T)limit);
    each_piece<T>(0, n, [&](auto piece) __attribute__((always_inline)) {
        const V square = piece.take(distance), d = root(square);
        piece.put(factor, either((I)(square > most), r / d, one));
    });
    for (int64_t i = 0; i + Of<T>::N <= n; i += Of<T>::N) store(distance + i, root(load(distance + i)));
    for (int64_t i = n - n % Of<T>::N; i < n; i++) distance[i] = (T)sqrt(distance[i]);
}

static void verdicts(void* distance, void* factor, int64_t n, double radius, double limit, bool wide) {
    wide ? verdicts_of((double*)distance, (double*)factor, n, radius, limit)
         : verdicts_of((float*)distance, (float*)factor, n, radius, limit);
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

static double far_distance(const Samples& of, int64_t sample) {
    const Job& job = *(const Job*)of.values;
    switch (job.dtype) {
        case FLOAT32: return distance_in_double<float>(job, of, sample);
        case FLOAT64: return distance_in_double<double>(job, of, sample);
        case BFLOAT16: return distance_in_double<bf16>(job, of, sample);
        default: return distance_in_double<f16>(job, of, sample);
    }
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
        double d = sqrt(squared_distance<T>(of, sample));
        if (!(d < INFINITY)) d = of.far(of, sample);
        if (d != d) continue;  // a value is not finite: the batch will be refused
        const double weight = 1 / (d > NEAREST_SAMPLE ? d : NEAREST_SAMPLE);
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
