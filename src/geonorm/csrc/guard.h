// The guard, from the values of a batch to the distance of every sample: moments of each sample in each channel, medians
// of the channels, the joint center, distances. These functions process one range at a time; entry.cpp combines them.
#pragma once
#include "kernels.h"
#include "kth_lanes.h"
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
