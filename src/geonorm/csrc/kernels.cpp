// The kernels for one instruction set: compiled once for each, with GEONORM_ISA naming it.
// Nothing here may instantiate a template of the standard library: the linker would keep one copy of it for all sets.
#include "kernels.h"

#include "guard.h"
#include "units.h"

namespace geonorm {
namespace GEONORM_ISA {

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

static void evaluate(const double* given, double* found) {
    Search search;
    search.start(given[0], given[1], given[2], given[3], given[4], given[5]);
    search.evaluate(Sums{given[6], given[7], given[8], given[9], given[10]});
    found[0] = search.direction, found[1] = search.error, found[2] = search.step, found[3] = search.settled;
    found[4] = search.settled ? search.rest : 0;
}

#define GN_NAME_OF(x) #x
#define GN_NAME(x) GN_NAME_OF(x)
extern const Kernels kernels;
const Kernels kernels = {GN_NAME(GEONORM_ISA), VECTORS * Of<float>::N, forward, backward, sample_moments, channel_medians,
                         weiszfeld, distances, middle_value, verdicts, far_distance, pull_sample, scale_sample, evaluate};

}  // namespace GEONORM_ISA
}  // namespace geonorm
