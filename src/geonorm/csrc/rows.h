// The layout ROWS for forward and backward: the values and the parameters of one group.
#pragma once
#include "measure.h"
#include "vector_loop.h"

namespace geonorm {
namespace GEONORM_ISA {

// The parameters of one group: constants of a run, or arrays along the run.
template <class T>
struct RowParameters {
    const T *alphas, *shifts, *gammas, *betas;
    T alpha;
    int64_t step;  // between the parameters of two runs

    RowParameters(const Job& job, int64_t group) {
        int64_t size = job.parameters == PER_GROUP ? 1 : job.parameters == PER_RUN ? job.runs : job.runs * job.length;
        int64_t first = index_of(group, job.period) * size;
        step = job.parameters == PER_RUN;
        alphas = job.alphas ? (const T*)job.alphas + first : nullptr;
        shifts = job.shifts ? (const T*)job.shifts + first : nullptr;
        gammas = job.gammas ? (const T*)job.gammas + first : nullptr;
        betas = job.betas ? (const T*)job.betas + first : nullptr;
        alpha = (T)job.alpha;
    }
    T alpha_of(int64_t run) const { return alphas ? alphas[run * step] : alpha; }
    T shift_of(int64_t run) const { return shifts ? shifts[run * step] : (T)0; }
    T gamma_of(int64_t run) const { return gammas ? gammas[run * step] : (T)1; }
    T beta_of(int64_t run) const { return betas ? betas[run * step] : (T)0; }

    template <PieceKind K>
    GN_MEMBER typename Of<T>::V along(const T* values, Piece<T, K> piece, T otherwise) const {
        return values ? piece.take(values) : all(otherwise);
    }
};

// Run `run` of a group of x: in the tensor, or in the guard's copy of the sample.
template <class E>
GN_INLINE const E* run_of(const Job& job, int64_t group, int64_t run) {
    const E* first = job.places ? (const E*)job.places[run] : (const E*)job.x + run * job.run_stride;
    return first + group * job.group_stride;
}

// Whether all runs of a group follow each other in memory.
GN_INLINE bool is_packed(const Job& job) { return job.runs == 1 || job.run_stride == job.length; }

// What to prefetch while a run is read: the run behind it. The hardware does not foresee where that begins, unless it is the
// end of this one: null then.
template <class E>
GN_INLINE const E* run_to_prefetch(const Job& job, int64_t group, int64_t run) {
    return run == job.runs - 1 || (is_packed(job) && !job.places) ? nullptr : run_of<E>(job, group, run + 1);
}
template <class T, class E, PieceKind K>
GN_INLINE void prefetch_next(const E* next, Piece<T, K> piece) {
    if (K == WHOLE && next) __builtin_prefetch(next + piece.at, 0, 2);
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
