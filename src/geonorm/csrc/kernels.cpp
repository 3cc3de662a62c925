// The kernels for one instruction set, named by GEONORM_ISA: compiled once for each dtype, named by GEONORM_ELEMENT, and
// once for what they share, so that the compiler can work on several at a time.
// Nothing here may instantiate a template of the standard library: the linker would keep one copy of it for all sets.
#include "kernels.h"

#include "backward_lanes.h"
#include "backward_rows.h"
#include "forward_lanes.h"
#include "forward_rows.h"
#include "guard.h"
#include "parts_lanes.h"
#include "tiles.h"

namespace geonorm {
namespace GEONORM_ISA {

// Units [first, last): all of forward, or a part.
template <class E>
static Status forward_few(const Job& job, int64_t first, int64_t last, Scratch& scratch) {
    if (job.layout == ROWS && job.task == WHOLE_JOB) return forward_rows<E>(job, first, last, scratch);
    Status worst = DONE;
    for (int64_t i = first; i < last && worst == DONE; i++)
        worst = job.layout == LANES      ? job.task == WHOLE_JOB ? forward_lane_block<E>(job, i, scratch)
                                                                 : part_of_lanes<E>(job, i, scratch)
                                         : part_of_row<E>(job, i, scratch);
    return worst;
}

template <class E>
static Status forward_row_tiles(const Job& job, int64_t first, int64_t last, int64_t tile, Scratch& scratch,
                                Scratch& memory) {
    const int64_t bytes = tile * packed_stride(job, sizeof(E)) * (int64_t)sizeof(E);
    char *x = (char*)memory.get(2 * bytes), *y = x + bytes;
    if (!x) return REFUSED;
    Job packed = packed_job(job, sizeof(E));
    Status worst = DONE;
    for (int64_t i = first; i < last && worst == DONE; i += tile) {
        const int64_t end = last - i < tile ? last : i + tile;
        packed.x = from_group_0(x, job, i, sizeof(E));
        packed.y = job.y ? from_group_0(y, job, i, sizeof(E)) : nullptr;
        move_tile<true>(job, (char*)job.x, x, i, end, sizeof(E), job.places);
        worst = forward_few<E>(packed, i, end, scratch);
        if (job.y) move_tile<false>(job, (char*)job.y, y, i, end, sizeof(E));
    }
    return worst;
}

template <class E>
static Status forward_units(const Job& job, int64_t first, int64_t last) {
    static thread_local Scratch scratch, memory;
    const int64_t tile = tile_size(job);
    const Status worst = tile > 1 ? forward_row_tiles<E>(job, first, last, tile, scratch, memory)
                                  : forward_few<E>(job, first, last, scratch);
    if (scratch.size > KEEP_BYTES) scratch.release();
    return worst;
}

template <class E>
static bool backward_row_tiles(const Job& job, int64_t first, int64_t last, int64_t tile, double* sums, double* d_phi,
                               Scratch& scratch, Scratch& memory) {
    const int64_t bytes = tile * packed_stride(job, sizeof(E)) * (int64_t)sizeof(E);
    char *x = (char*)memory.get(3 * bytes), *g = x + bytes, *dx = g + bytes;
    if (!x) return false;
    Job packed = packed_job(job, sizeof(E));
    for (int64_t i = first; i < last; i += tile) {
        const int64_t end = last - i < tile ? last : i + tile;
        packed.x = from_group_0(x, job, i, sizeof(E)), packed.g = from_group_0(g, job, i, sizeof(E));
        packed.dx = from_group_0(dx, job, i, sizeof(E));
        move_tile<true>(job, (char*)job.x, x, i, end, sizeof(E), job.places);
        move_tile<true>(job, (char*)job.g, g, i, end, sizeof(E));
        for (int64_t k = i; k < end; k++)
            backward_row<E>(packed, k, sums + k * SUMS, d_phi[k], ValueSums<typename Computing<E>::T>(), scratch);
        if (job.dx) move_tile<false>(job, (char*)job.dx, dx, i, end, sizeof(E));
    }
    return true;
}

template <class E>
static void backward_units(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi,
                           void* const* values) {
    typedef typename Computing<E>::T T;
    static thread_local Scratch scratch, memory;
    const int64_t tile = tile_size(job);
    if (job.layout == LANES) {
        for (int64_t i = first; i < last; i++)
            backward_lane_block<E>(job, LaneBlock<T>(job, i), sums, d_phi, scratch);
        return;
    }
    if (tile > 1 && backward_row_tiles<E>(job, first, last, tile, sums, d_phi, scratch, memory)) return;
    ValueSums<T> arrays;
    if (values)
        for (int i = 0; i < SUMS; i++) arrays.of[i] = (T*)values[i];
    int64_t per_group = (job.parameters == PER_RUN ? job.runs : 1) * (int64_t)SUMS;
    for (int64_t i = first; i < last; i++) backward_row<E>(job, i, sums + i * per_group, d_phi[i], arrays, scratch);
}

// What is compiled once for each dtype.
template <class E>
Status forward_of(const Job& job, int64_t first, int64_t last);
template <class E>
void backward_of(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values);

#ifdef GEONORM_ELEMENT

template <class E>
Status forward_of(const Job& job, int64_t first, int64_t last) {
    return forward_units<E>(job, first, last);
}

template <class E>
void backward_of(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values) {
    backward_units<E>(job, first, last, sums, d_phi, values);
}

template Status forward_of<GEONORM_ELEMENT>(const Job&, int64_t, int64_t);
template void backward_of<GEONORM_ELEMENT>(const Job&, int64_t, int64_t, double*, double*, void* const*);

#else

static Status forward(const Job& job, int64_t first, int64_t last) {
    switch (job.dtype) {
        case FLOAT32: return forward_of<float>(job, first, last);
        case FLOAT64: return forward_of<double>(job, first, last);
        case BFLOAT16: return forward_of<bf16>(job, first, last);
        case FLOAT16: return forward_of<f16>(job, first, last);
        default: return WRONG;
    }
}

static void backward(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values) {
    switch (job.dtype) {
        case FLOAT32: return backward_of<float>(job, first, last, sums, d_phi, values);
        case FLOAT64: return backward_of<double>(job, first, last, sums, d_phi, values);
        case BFLOAT16: return backward_of<bf16>(job, first, last, sums, d_phi, values);
        default: return backward_of<f16>(job, first, last, sums, d_phi, values);
    }
}

static void evaluate(const double* given, double* found) {
    Search search;
    search.start(given[0], given[1], given[2], given[3], given[4], given[5]);
    search.evaluate(Sums{given[6], given[7], given[8], given[9], given[10]});
    found[0] = search.direction, found[1] = search.error, found[2] = search.step, found[3] = search.settled;
    found[4] = search.settled ? search.rest : 0;
}

#define GN_NAME_OF(x) #x
#define GN_NAME(x) GN_NAME_OF(x)
#if defined(__aarch64__)
#define GN_SET "neon"  // every 64-bit ARM has it
#else
#define GN_SET GN_NAME(GEONORM_ISA)
#endif
extern const Kernels kernels;
const Kernels kernels = {GN_SET, VECTORS * Of<float>::N, forward, backward, sample_moments, channel_medians,
                         weiszfeld, distances, middle_value, verdicts, far_distance, pull_sample, scale_sample, evaluate};

#endif

}  // namespace GEONORM_ISA
}  // namespace geonorm
