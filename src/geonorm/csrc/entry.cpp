// The C functions that Python calls: choice of the instruction set, threads, sums over groups, running statistics.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "decide.h"
#include "kernels.h"
#include "layout.h"
#include "huge_pages.h"
#include "pool.h"

#define GN_EXPORT extern "C" __attribute__((visibility("default")))

namespace geonorm {

static const Kernels& best() {
#if defined(GEONORM_HAS_AVX512) || defined(GEONORM_HAS_AVX2)
    const char* limit = getenv("GEONORM_ISA");  // a smaller set than the machine has, for tests
    const bool any = !limit || !*limit, less = limit && !strcmp(limit, "avx2");
    __builtin_cpu_init();
#endif
#ifdef GEONORM_HAS_AVX512
    if (any && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return avx512::kernels;
#endif
#ifdef GEONORM_HAS_AVX2
    if ((any || less) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        return avx2::kernels;
#elif defined(GEONORM_HAS_AVX512)
    (void)less;
#endif
    return baseline::kernels;
}

static const Kernels& chosen() {
    static const Kernels& kernels = best();
    return kernels;
}

static int64_t group_size(const Job& job) {
    if (job.layout == ROWS) return job.runs * job.length;
    if (!job.offsets) return job.rows;
    return job.segments ? job.offsets[job.segments] / job.segments + 1 : 0;
}
static int64_t group_count(const Job& job) {
    return job.layout == ROWS ? job.groups : job.segments * job.features;
}
static int64_t unit_count(const Job& job) {
    return job.layout == ROWS ? job.groups : job.segments * lane_blocks(job, chosen());
}

// Units per chunk: enough work for the cost of a few atomic operations, and a fixed number for given sizes.
static int64_t chunk_size(const Job& job, int64_t units) {
    int64_t lanes = job.layout == ROWS ? 1 : 16;
    int64_t work = group_size(job) * lanes + 1, size = 8192 / work;
    const int64_t tile = tile_size(job);  // chunks are whole tiles
    size = size < tile ? tile : size / tile * tile;
    return size < units ? size : units;
}

// Below this many elements a second thread costs more than it saves.
static const int64_t WORTH_A_THREAD = 16384;

static int64_t threads_for(const Job& job) {
    return group_count(job) * group_size(job) < WORTH_A_THREAD ? 1 : job.threads;
}

// GCC's OpenMP, if torch has loaded it: its threads often spin for a while after torch's own work, and would compete with
// other threads. A forked child must not use it: it does not have its parent's threads. Atomic, because two threads of
// Python may load the library at the same time.
typedef void (*Parallel)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
static std::atomic<Parallel> openmp{nullptr};
static std::atomic<pid_t> openmp_process{0};

struct Shared {
    std::atomic<int64_t> next;
    int64_t chunks;
    void (*work)(void*, int64_t);
    void* context;
};

static void run_chunks(int64_t chunks, int64_t threads, void (*work)(void*, int64_t), void* context) {
    const Parallel parallel = openmp.load();
    if (!parallel || openmp_process.load() != getpid()) return Pool::own().run(chunks, threads, work, context);
    Shared shared = {{0}, chunks, work, context};
    auto share = [](void* p) {
        Shared& s = *(Shared*)p;
        for (int64_t i; (i = s.next.fetch_add(1)) < s.chunks;) s.work(s.context, i);
    };
    parallel(share, &shared, (unsigned)(threads < chunks ? threads : chunks), 0);
}

template <class F>
static void in_chunks(int64_t units, int64_t size, int64_t threads, F f) {
    struct Context {
        F& f;
        int64_t units, size;
    } context = {f, units, size};
    auto work = [](void* p, int64_t chunk) {
        Context& c = *(Context*)p;
        int64_t first = chunk * c.size, last = first + c.size;
        c.f(chunk, first, last < c.units ? last : c.units);
    };
    int64_t chunks = (units + size - 1) / size;
    if (threads <= 1 || chunks <= 1) {
        for (int64_t i = 0; i < chunks; i++) work(&context, i);
    } else {
        run_chunks(chunks, threads, work, &context);
    }
}

// A buffer moves towards a value; where the value is not finite the buffer stays.
template <class T>
static void follow(void* buffer, int64_t i, double value, double momentum) {
    if (!buffer || !std::isfinite(value)) return;
    T& b = ((T*)buffer)[i];
    b = (T)(b + momentum * (value - b));
}

// Tools made for torch write the mean or the variance alone. If that has changed since the last update and our own buffer has
// not, ours is stale and starts again from theirs.
template <class T>
static void adopt(void* own, const void* source, const void* seen_own, const void* seen_source, int64_t n, double factor) {
    if (!own || !seen_own) return;
    T* mine = (T*)own;
    const T* theirs = (const T*)source;
    const bool stale = std::equal(mine, mine + n, (const T*)seen_own) && !std::equal(theirs, theirs + n, (const T*)seen_source);
    for (int64_t i = 0; i < n && stale; i++) mine[i] = theirs[i] * (T)factor;
}

template <class T>
static void update_running(const Job& job) {
    if (job.batches) ++*job.batches;
    if (!job.running_mean) return;
    const int64_t groups = group_count(job);
    adopt<T>(job.running_center, job.running_mean, job.seen_center, job.seen_mean, groups, 1);
    adopt<T>(job.running_scale, job.running_var, job.seen_scale, job.seen_var, groups, job.normal_scale);
    const double m = (double)group_size(job), unbiased = m > 1 ? m / (m - 1) : NAN;
    for (int64_t i = 0; i < groups; i++) {
        const double* state = job.state + i * STATE_SIZE;
        follow<T>(job.running_mean, i, state[MEAN], job.momentum);
        follow<T>(job.running_var, i, state[VAR] * unbiased, job.momentum);
        follow<T>(job.running_center, i, state[CENTER], job.momentum);
        follow<T>(job.running_scale, i, state[SPREAD] * state[SPREAD], job.momentum);
    }
    auto remember = [&](void* seen, const void* buffer) {
        if (seen && buffer) memcpy(seen, buffer, groups * sizeof(T));
    };
    remember(job.seen_mean, job.running_mean), remember(job.seen_var, job.running_var);
    remember(job.seen_center, job.running_center), remember(job.seen_scale, job.running_scale);
}

static int64_t tensor_bytes(const Job& job) {
    const int64_t rows = job.offsets ? job.offsets[job.segments] : job.segments * job.rows;
    const int64_t elements = job.layout == ROWS ? job.groups * job.runs * job.length : rows * job.features;
    return elements * element_size(job);
}

// φ of a job from the offsets θ that are learned, and dφ/dθ on the way back. Near the ends of the range the sigmoid is
// flat: a gradient that leads away from them gets a minimum slope, as in geonorm/ops/learned.py.
template <class T>
class LearnedPhi {
   public:
    explicit LearnedPhi(Job& job) : job_(job) {
        if (!(job.phi_high > 0)) return;
        offsets_ = (const T*)job.phis;
        values_.resize(job.phi_count);
        for (int64_t i = 0; i < job.phi_count; i++)
            values_[i] = (T)(job.phi_low + (job.phi_high - job.phi_low) / (1 + exp(-position(i))));
        job.phis = values_.data();
    }
    void finish() const {
        const double flat = 4.5, width = job_.phi_high - job_.phi_low;
        for (size_t i = 0; i < values_.size() && job_.d_phi; i++) {
            T& gradient = ((T*)job_.d_phi)[i];
            const bool leads_back = gradient * position(i) > 0;  // a step goes against the gradient
            const double t = leads_back && fabs(position(i)) > flat ? flat : position(i);
            gradient *= (T)(width / ((1 + exp(t)) * (1 + exp(-t))));
        }
    }

   private:
    double position(int64_t i) const { return (double)offsets_[i] + job_.phi_start; }

    const Job& job_;
    const T* offsets_ = nullptr;
    std::vector<T> values_;
};

// From the moments of all samples to the verdict. REFUSED if a value is not finite.
template <class T>
static Status judge(Samples& of, const Verdict<T>& verdict, double k, int64_t threads) {
    const Kernels& kernels = chosen();
    const int64_t samples = of.samples, channels = of.channels;
    std::vector<T> work(2 * channels);
    of.some = samples < 256 ? samples : 256, of.wide = sizeof(T) == 8;
    of.center = verdict.center, of.square = work.data(), of.inverse = work.data() + channels;
    of.squared = verdict.distance;

    const int64_t block = 32, blocks = (channels + block - 1) / block;
    in_chunks(blocks, 1, of.some * channels < WORTH_A_THREAD ? 1 : threads, [&](int64_t, int64_t first, int64_t last) {
        kernels.channel_medians(of, first * block, last * block < channels ? last * block : channels);
    });
    T widest = 0, *square = (T*)of.square, *inverse = (T*)of.inverse;
    for (int64_t c = 0; c < channels; c++) widest = square[c] > widest ? square[c] : widest;
    const T least = (T)1e-6 * widest;  // a dead channel must not dominate
    for (int64_t c = 0; c < channels; c++) {
        square[c] = square[c] > least ? square[c] : least;
        verdict.scale[c] = (T)sqrt(square[c]);
        inverse[c] = square[c] > 0 ? (T)(1 / (square[c] * (double)channels)) : 0;
    }
    for (int step = 0; step < 2; step++) kernels.weiszfeld(of);
    in_chunks(samples, WORTH_A_THREAD / (channels + 1) + 1, samples * channels < WORTH_A_THREAD ? 1 : threads,
              [&](int64_t, int64_t first, int64_t last) { kernels.distances(of, first, last); });

    T* squared = verdict.distance;
    std::vector<std::pair<int64_t, double>> far;
    for (int64_t i = 0; i < samples; i++) {
        if (squared[i] < (T)INFINITY) continue;
        far.emplace_back(i, of.far(of, i));
        if (std::isnan(far.back().second)) return REFUSED;
        squared[i] = (T)INFINITY;
    }
    const double middle = kernels.middle_value(squared, samples, of.wide), limit = middle * k * k;
    const bool can_tell = samples >= 4 && middle > 1e-8;  // else most samples are the same
    const double radius = can_tell ? sqrt(limit) : INFINITY;
    *verdict.radius = (T)radius;
    kernels.verdicts(squared, verdict.factor, samples, radius, can_tell ? limit : INFINITY, of.wide);
    for (const auto& [sample, distance] : far) {
        verdict.factor[sample] = can_tell ? (T)(radius / distance) : 1;
        verdict.distance[sample] = (T)distance;
    }
    return DONE;
}

// The same from the values of a batch, into job.verdict.
template <class T>
static Status judge(const Job& job) {
    const Kernels& kernels = chosen();
    const Verdict<T> verdict(job);
    const int64_t samples = verdict.samples, numbers = samples * verdict.channels, threads = threads_for(job);
    const bool one_each = job.layout == LANES && job.positions == 1;
    const bool as_they_are = one_each && element_size(job) == (int64_t)sizeof(T);
    std::unique_ptr<T[]> moments(as_they_are ? nullptr : new T[one_each ? numbers : 2 * numbers]);
    T *mean = moments.get(), *var = one_each ? nullptr : mean + numbers;
    if (!as_they_are) {
        const int64_t size = WORTH_A_THREAD / (tensor_bytes(job) / element_size(job) / samples + 1) + 1;
        in_chunks(samples, size, threads, [&](int64_t, int64_t first, int64_t last) {
            kernels.sample_moments(job, first, last, mean, var);
        });
    }
    Samples of = {};
    of.mean = as_they_are ? job.x : mean, of.var = var, of.samples = samples, of.channels = verdict.channels;
    of.far = kernels.far_distance, of.values = &job;
    return judge(of, verdict, job.guard, threads);
}

// The distance, from given moments, of a sample too far away for squares in T.
template <class T>
static double far_by_deviations(const Samples& of, int64_t sample) {
    const T* mean = (const T*)of.mean + sample * of.channels;
    const T* deviation = (const T*)of.values + sample * of.channels;
    double sum = 0;
    for (int64_t c = 0; c < of.channels; c++) {
        const double d = (double)mean[c] - ((const T*)of.center)[c], s = deviation[c];
        if (!(d - d == 0)) return NAN;
        sum += (d * d + s * s) * ((const T*)of.inverse)[c];
    }
    return sqrt(sum);
}

// Moments of a batch whose samples have been judged and pulled, from the moments of each.
template <class T>
static Status guarded_moments(const T* mean, const T* deviation, int64_t samples, int64_t channels, double k,
                              int64_t threads, T* numbers, T* total, T* var) {
    const Verdict<T> verdict(numbers, samples, channels);
    std::unique_ptr<T[]> squares(new T[samples * channels]);
    for (int64_t i = 0; i < samples * channels; i++) squares[i] = deviation[i] * deviation[i];
    Samples of = {};
    of.mean = mean, of.var = squares.get(), of.samples = samples, of.channels = channels;
    of.far = far_by_deviations<T>, of.values = deviation;
    const Status status = judge(of, verdict, k, threads);
    if (status != DONE) return status;
    std::vector<double> sums(2 * channels, 0.0);
    double *about = sums.data(), *spread = about + channels;
    const auto pulled = [&](int64_t i, int64_t c) {
        const double m = mean[i * channels + c], f = verdict.factor[i], y = verdict.center[c];
        return f == 1 ? m : y + f * (m - y);
    };
    for (int64_t i = 0; i < samples; i++)
        for (int64_t c = 0; c < channels; c++) about[c] += pulled(i, c);
    for (int64_t c = 0; c < channels; c++) about[c] /= (double)samples;
    for (int64_t i = 0; i < samples; i++) {
        const double f = verdict.factor[i];
        for (int64_t c = 0; c < channels; c++) {
            const double d = pulled(i, c) - about[c], s = f > 0 ? f * deviation[i * channels + c] : 0;
            spread[c] += d * d + s * s;
        }
    }
    for (int64_t c = 0; c < channels; c++) total[c] = (T)about[c], var[c] = (T)(spread[c] / (double)samples);
    return DONE;
}

// The samples that the guard has pulled: copies on the ball, and the addresses that every run or row is read from.
template <class T>
class PulledSamples {
   public:
    explicit PulledSamples(Job& job) : job_(job) {
        if (!(job.guard > 0)) return;
        const Verdict<T> verdict(job);
        for (int64_t i = 0; i < job.samples; i++)
            if (verdict.factor[i] < 1) pulled_.push_back(i);
        if (pulled_.empty()) return;
        const int64_t rows = job.layout == ROWS ? 1 : job.positions, row = tensor_bytes(job) / job.samples / rows;
        copies_.reset((char*)malloc(pulled_.size() * rows * row));
        if (!copies_) throw std::bad_alloc();
        for (int64_t i = 0; i < job.samples * rows; i++) places_.push_back((const char*)job.x + i * row);
        for (size_t k = 0; k < pulled_.size(); k++) {
            char* copy = copies_.get() + k * rows * row;
            chosen().pull_sample(job, pulled_[k], verdict.factor[pulled_[k]], verdict.center, copy);
            for (int64_t i = 0; i < rows; i++) places_[pulled_[k] * rows + i] = copy + i * row;
        }
        places_.insert(places_.end(), 16, places_.back());  // prefetching reads ahead
        job.places = places_.data();
    }
    void count() const {
        if (!(job_.guard > 0) || !job_.guard_counts) return;
        job_.guard_counts[0]++, job_.guard_counts[1] += !pulled_.empty(), job_.guard_counts[2] += pulled_.size();
    }
    void scale_gradients() const {
        for (int64_t i : pulled_) chosen().scale_sample(job_, i, Verdict<T>(job_).factor[i]);
    }

   private:
    struct Free {
        void operator()(char* memory) const { free(memory); }
    };
    const Job& job_;
    std::vector<int64_t> pulled_;
    std::unique_ptr<char, Free> copies_;
    std::vector<const void*> places_;
};

template <class T>
static Status forward(Job job) {
    const LearnedPhi<T> learned(job);
    const int64_t units = unit_count(job);
    if (job.guard > 0) {
        const Status status = judge<T>(job);
        if (status != DONE) return status;
    }
    const PulledSamples<T> pulled(job);
    if (job.y) request_huge_pages(job.y, tensor_bytes(job));
    std::atomic<int64_t> worst{DONE};
    in_chunks(units, chunk_size(job, units), threads_for(job), [&](int64_t, int64_t first, int64_t last) {
        if (worst.load(std::memory_order_relaxed) != DONE) return;
        Status status = chosen().forward(job, first, last);
        if (status != DONE) worst.store(status);
    });
    if (worst.load() != DONE || job.task != WHOLE_JOB) return (Status)worst.load();
    update_running<T>(job);
    pulled.count();
    return DONE;
}

// Sums over the groups that share a parameter, in their order. `count` entries of `stride` numbers per group.
template <class T>
static void reduce(void* out, const double* sums, int64_t groups, int64_t period, int64_t count, int64_t stride) {
    if (!out) return;
    std::vector<double> wide(period * count, 0.0);
    for (int64_t i = 0; i < groups; i++)
        for (int64_t k = 0; k < count; k++) wide[i % period * count + k] += sums[(i * count + k) * stride];
    for (int64_t i = 0; i < period * count; i++) ((T*)out)[i] = (T)wide[i];
}

template <class T>
static Status backward(Job job) {
    const LearnedPhi<T> learned(job);
    const PulledSamples<T> pulled(job);
    if (job.dx) request_huge_pages(job.dx, tensor_bytes(job));
    const int64_t groups = group_count(job), units = unit_count(job);
    const bool per_value = job.parameters == PER_VALUE;
    const int64_t runs = job.parameters == PER_RUN ? job.runs : 1, members = per_value ? group_size(job) : 0;
    void* outputs[SUMS] = {job.d_gamma, job.d_beta, job.d_shift, job.d_alpha};
    std::vector<double> sums(groups * runs * SUMS, 0.0), d_phi(groups, 0.0);

    // Parameters per value: every chunk sums its own groups, and the chunks are added in order, so that the sums do not
    // depend on which thread was first.
    int64_t size = chunk_size(job, units);
    const int64_t width = job.period * members;
    if (per_value) {
        int64_t chunks = groups / 64 < 1 ? 1 : groups / 64 > 64 ? 64 : groups / 64;
        size = (groups + chunks - 1) / chunks;
    }
    const int64_t chunks = (units + size - 1) / size;
    std::vector<T> parts;
    if (per_value) parts.assign(chunks * SUMS * width, (T)0);
    in_chunks(units, size, threads_for(job), [&](int64_t chunk, int64_t first, int64_t last) {
        if (!per_value) return chosen().backward(job, first, last, sums.data(), d_phi.data(), nullptr);
        const int64_t together = job.period == 1 ? last - first : 1;  // groups with the same parameters
        for (int64_t i = first; i < last; i += together) {
            void* arrays[SUMS];
            for (int k = 0; k < SUMS; k++) {
                T* part = parts.data() + (chunk * SUMS + k) * width + i % job.period * members;
                arrays[k] = outputs[k] ? part : nullptr;
            }
            chosen().backward(job, i, i + together, sums.data(), d_phi.data(), arrays);
        }
    });

    if (job.task != WHOLE_JOB) return DONE;
    if (per_value) {
        for (int k = 0; k < SUMS; k++) {
            if (!outputs[k]) continue;
            for (int64_t i = 0; i < width; i++) {
                double sum = 0;
                for (int64_t chunk = 0; chunk < chunks; chunk++) sum += parts[(chunk * SUMS + k) * width + i];
                ((T*)outputs[k])[i] = (T)sum;
            }
        }
    } else {
        for (int k = 0; k < SUMS; k++) reduce<T>(outputs[k], sums.data() + k, groups, job.period, runs, SUMS);
    }
    reduce<T>(job.d_phi, d_phi.data(), groups, job.phi_count, 1, 1);
    learned.finish();
    pulled.scale_gradients();
    return DONE;
}

// Repeats checks that Python has made: they cost nothing, and a wrong address would crash the process.
static bool sound(const Job& job) {
    if (job.dtype < FLOAT32 || job.dtype > FLOAT16 || job.threads < 1 || job.period < 1) return false;
    if (job.phis ? job.phi_count < 1 : job.phi_high > 0) return false;
    if (!job.x || !job.state || job.spread < NO_SPREAD || job.spread > ROBUST) return false;
    if (job.parameters < PER_GROUP || job.parameters > PER_VALUE) return false;
    if (job.guard != 0) {
        const bool fits = job.layout == ROWS ? job.runs == job.samples && job.run_stride == job.groups * job.length
                                             : job.segments == 1 && job.rows == job.samples * job.positions;
        if (!(job.guard > 0) || !job.verdict || job.samples < 1 || job.positions < 1 || job.offsets || !fits) return false;
    }
    if (job.task < WHOLE_JOB || job.task > SPREAD_OUT) return false;
    if (job.task != WHOLE_JOB) {  // tasks need one set of parameters per group, and memory for their results
        const bool needs_points = job.task != WRITE && job.task != ADD_UP;
        const bool finds = job.task == MEASURE || job.task == SWEEP || job.task == ADD_UP;
        if (job.parameters != PER_GROUP || job.guard != 0 || job.offsets || (needs_points && !job.points)) return false;
        if ((finds && !job.found) || (job.task == WRITE && !job.y)) return false;
    }
    if (job.layout == ROWS)
        return job.groups >= 0 && job.runs >= 1 && job.length >= 1 && (job.parameters != PER_VALUE || job.runs == 1);
    return job.layout == LANES && job.segments >= 0 && job.features >= 1 && job.parameters == PER_GROUP &&
           (job.offsets || job.rows >= 1);
}

}  // namespace geonorm

// The address of GOMP_parallel, or null for threads of our own.
GN_EXPORT void geonorm_use_openmp(void* parallel) {
    geonorm::openmp = (geonorm::Parallel)parallel;
    geonorm::openmp_process = getpid();
}

// Names and offsets of the fields of a job, names of the columns of the state.
GN_EXPORT const char* geonorm_layout() {
    static const std::string layout = geonorm::layout();
    return layout.c_str();
}

GN_EXPORT const char* geonorm_instruction_set() { return geonorm::chosen().name; }

GN_EXPORT int64_t geonorm_forward(const geonorm::Job* job) {
    if (!geonorm::sound(*job) || job->task > geonorm::WRITE) return geonorm::WRONG;
    try {
        return job->dtype == geonorm::FLOAT64 ? geonorm::forward<double>(*job) : geonorm::forward<float>(*job);
    } catch (...) {
        return geonorm::REFUSED;
    }
}

GN_EXPORT int64_t geonorm_backward(const geonorm::Job* job) {
    const bool adds_up = job->task == geonorm::ADD_UP;
    if (!geonorm::sound(*job) || !job->g || (!job->dx && !adds_up)) return geonorm::WRONG;
    if (job->task != geonorm::WHOLE_JOB && !adds_up && job->task != geonorm::SPREAD_OUT) return geonorm::WRONG;
    try {
        return job->dtype == geonorm::FLOAT64 ? geonorm::backward<double>(*job) : geonorm::backward<float>(*job);
    } catch (...) {
        return geonorm::REFUSED;
    }
}

// `verdict`, `total` and `var` are filled; all arrays are of float, or of double if `wide`.
GN_EXPORT int64_t geonorm_guarded_moments(const void* mean, const void* deviation, int64_t samples, int64_t channels,
                                          double k, int64_t threads, int64_t wide, void* verdict, void* total,
                                          void* var) {
    if (samples < 1 || channels < 1 || !(k > 0) || !mean || !deviation || !verdict || !total || !var)
        return geonorm::WRONG;
    try {
        if (wide)
            return geonorm::guarded_moments((const double*)mean, (const double*)deviation, samples, channels, k,
                                            threads, (double*)verdict, (double*)total, (double*)var);
        return geonorm::guarded_moments((const float*)mean, (const float*)deviation, samples, channels, k, threads,
                                        (float*)verdict, (float*)total, (float*)var);
    } catch (...) {
        return geonorm::REFUSED;
    }
}

// First row of every segment from the sorted segment numbers of the rows; REFUSED if they are not sorted or not in range.
GN_EXPORT int64_t geonorm_offsets(const int64_t* batch, int64_t rows, int64_t number, int64_t* offsets) {
    if (!offsets || (rows && !batch)) return geonorm::REFUSED;
    int64_t segment = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (batch[i] < segment || batch[i] >= number) return geonorm::REFUSED;
        while (segment < batch[i]) offsets[++segment] = i;
    }
    while (segment < number) offsets[++segment] = rows;
    return geonorm::DONE;
}

// Takes φ, eps, number of values, the extremes, y, and the five sums at y in units of the range; returns direction, bound
// on the error, step, whether it ends the search, and the bound after it. Other backends use the same formulas: tests
// compare them.
GN_EXPORT void geonorm_evaluate(const double* given, double* found) { geonorm::chosen().evaluate(given, found); }

// Updates searches over several processes, a row of decide::COLUMNS numbers per group, after their k-th sweep. `parts` has
// the sums of each process, SWEPT numbers of all groups. For k = 0 it only sets the first points. Returns how many are
// still active.
GN_EXPORT int64_t geonorm_advance(double* rows, int64_t groups, const double* parts, int64_t processes, int64_t k,
                                  int64_t wide, int64_t adaptive) {
    using namespace geonorm::decide;
    const double eps = wide ? 2.220446049250313e-16 : 1.1920928955078125e-07;
    int64_t going_on = 0;
    for (int64_t i = 0; i < groups; i++) {
        double* row = rows + i * COLUMNS;
        if (row[ACTIVE] > 0 && k > 0) {
            Sums all = {};
            for (int64_t p = 0; p < processes; p++) {
                Sums one;
                for (int j = 0; j < geonorm::SWEPT; j++) one.of[j] = parts[(p * geonorm::SWEPT + j) * groups + i];
                if (p)
                    all.add(one);
                else
                    all = one;
            }
            advance(row, all, k, eps, adaptive);
        }
        going_on += row[ACTIVE] > 0;
        set_sweep_point(row, wide);
    }
    return going_on;
}
