// The layout LANES for forward and backward: neighbouring groups side by side, one in each lane.
#pragma once
#include "measure.h"
#include "vector_loop.h"

namespace geonorm {
namespace GEONORM_ISA {

// How many rows ahead to prefetch, into the second-level cache: the lines of a block lie too far apart for the hardware
// prefetcher, and often fall into few sets of the first-level cache.
enum { AHEAD = 8 };

// All lines of a block's row.
template <int WIDTH, class E>
GN_INLINE void prefetch_row(const E* row) {
    for (int i = 0; i < WIDTH; i += LINE_BYTES / (int)sizeof(E)) __builtin_prefetch(row + i, 0, 2);
}
template <int WIDTH, class E>
GN_INLINE void prefetch_row_for_write(E* row) {
    for (int i = 0; i < WIDTH; i += LINE_BYTES / (int)sizeof(E)) __builtin_prefetch(row + i, 1, 2);
}

// Where the rows of a block lie in a tensor.
template <class E>
struct LanePlace {
    E* first;
    int64_t stride;
    const void* const* places = nullptr;  // of rows that lie elsewhere, whole ones: the block begins at `feature`
    int64_t feature = 0;
    E* row(int64_t i) const { return places ? (E*)places[i] + feature : first + i * stride; }
};

// Smaller blocks that are read twice are copied: their rows may lie so far apart that they compete for few places of the
// cache. Larger ones would only drive other data out.
static const int64_t COPY_BYTES = (int64_t)128 << 10;

enum { VECTORS = 2 };  // vectors side by side in a block: a whole cache line of AVX2

template <class T>
struct LaneBlock {
    typedef typename Of<T>::V V;
    enum { N = Of<T>::N, WIDTH = VECTORS * N };
    int64_t first_row, rows, feature, width, group;  // `width` lanes of the block are used; `group` is that of lane 0

    LaneBlock(const Job& job, int64_t unit) {
        int64_t blocks = (job.features + WIDTH - 1) / WIDTH, segment = unit / blocks;
        feature = unit % blocks * WIDTH;
        width = job.features - feature < WIDTH ? job.features - feature : (int64_t)WIDTH;
        first_row = job.offsets ? job.offsets[segment] : segment * job.rows;
        rows = job.offsets ? job.offsets[segment + 1] - first_row : job.rows;
        group = segment * job.features + feature;
    }
    template <class E>
    LanePlace<E> in(const Job& job, E* tensor) const {
        return LanePlace<E>{tensor + first_row * job.features + feature, job.features, nullptr, 0};
    }
    // The rows of x: in the tensor, or in the guard's copies of samples.
    template <class E>
    LanePlace<const E> in_x(const Job& job) const {
        LanePlace<const E> place = in(job, (const E*)job.x);
        place.places = job.places, place.feature = feature;
        return place;
    }
    // Lanes of vector j that are used.
    int64_t used(int j) const { return width - j * N < N ? (width - j * N > 0 ? width - j * N : 0) : (int64_t)N; }

    // Told what to expect, the compiler keeps parts of vectors out of the loops.
    template <class E>
    GN_MEMBER V take(const E* row, int j) const {
        if (__builtin_expect(width == WIDTH, 1)) return read(row + j * N);
        return read_part<E, T>(row + j * N, used(j), (T)0);
    }
    template <class E>
    GN_MEMBER void put(E* row, int j, V v) const {
        if (__builtin_expect(width == WIDTH, 1))
            write(row + j * N, v);
        else
            write_part<E, T>(row + j * N, used(j), v);
    }
    // A parameter of each group, `otherwise` where there is none.
    V parameters(const Job& job, const void* values, int j, double otherwise) const {
        V v = all((T)otherwise);
        if (values)
            for (int l = 0; l < used(j); l++) v[l] = ((const T*)values)[(group + j * N + l) % job.period];
        return v;
    }
};

}  // namespace GEONORM_ISA
}  // namespace geonorm
