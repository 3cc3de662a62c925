// The kernels for one instruction set: compiled once for each, with GEONORM_ISA naming it.
// Nothing here may instantiate a template of the standard library: the linker would keep one copy of it for all sets.
#include "kernels.h"

#include "backward_lanes.h"
#include "backward_rows.h"
#include "forward_lanes.h"
#include "forward_rows.h"

namespace geonorm {
namespace GEONORM_ISA {

template <class E>
static Status forward_units(const Job& job, int64_t first, int64_t last) {
    static thread_local Scratch scratch;
    Status worst = DONE;
    for (int64_t i = first; i < last && worst == DONE; i++)
        worst = job.layout == ROWS ? forward_row<E>(job, i, scratch) : forward_lane_block<E>(job, i, scratch);
    if (scratch.size > KEEP_BYTES) scratch.release();
    return worst;
}

template <class E>
static void backward_units(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi,
                           void* const* values) {
    typedef typename Computing<E>::T T;
    if (job.layout == LANES) {
        for (int64_t i = first; i < last; i++) backward_lane_block<E>(job, i, sums, d_phi);
        return;
    }
    ValueSums<T> arrays;
    if (values)
        for (int i = 0; i < SUMS; i++) arrays.of[i] = (T*)values[i];
    int64_t per_group = (job.parameters == PER_RUN ? job.runs : 1) * (int64_t)SUMS;
    for (int64_t i = first; i < last; i++) backward_row<E>(job, i, sums + i * per_group, d_phi[i], arrays);
}

static Status forward(const Job& job, int64_t first, int64_t last) {
    switch (job.dtype) {
        case FLOAT32: return forward_units<float>(job, first, last);
        case FLOAT64: return forward_units<double>(job, first, last);
        case BFLOAT16: return forward_units<bf16>(job, first, last);
        case FLOAT16: return forward_units<f16>(job, first, last);
        default: return WRONG;
    }
}

static void backward(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values) {
    switch (job.dtype) {
        case FLOAT32: return backward_units<float>(job, first, last, sums, d_phi, values);
        case FLOAT64: return backward_units<double>(job, first, last, sums, d_phi, values);
        case BFLOAT16: return backward_units<bf16>(job, first, last, sums, d_phi, values);
        default: return backward_units<f16>(job, first, last, sums, d_phi, values);
    }
}

#define GN_NAME_OF(x) #x
#define GN_NAME(x) GN_NAME_OF(x)
extern const Kernels kernels;
const Kernels kernels = {GN_NAME(GEONORM_ISA), VECTORS * Of<float>::N, forward, backward};

}  // namespace GEONORM_ISA
}  // namespace geonorm
