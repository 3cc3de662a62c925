// What units.cpp defines for each dtype.
#pragma once
#include "kernels.h"
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

// Units [first, last) of forward; the status of the worst.
template <class E>
Status forward_units(const Job& job, int64_t first, int64_t last);

// Units of backward; the arguments are those of Kernels::backward.
template <class E>
void backward_units(const Job& job, int64_t first, int64_t last, double* sums, double* d_phi, void* const* values);

}  // namespace GEONORM_ISA
}  // namespace geonorm
