// Loops over runs of any length, a vector at a time: whole vectors, then an overlapping last one, or a part of a vector.
#pragma once
#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

enum PieceKind { WHOLE, AGAIN, PART };

// The position of a vector in a run, and which of its lanes are new.
template <class T, PieceKind KIND>
struct Piece {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    int64_t at, count;

    GN_MEMBER I fresh() const {
        if (KIND == WHOLE) return ~I{};
        I mask = {};
        for (int i = 0; i < Of<T>::N; i++) mask[i] = (KIND == PART ? i < count : i >= Of<T>::N - count) ? -1 : 0;
        return mask;
    }
    template <class E>
    GN_MEMBER V take(const E* p) const {
        if (KIND == PART) return read_part<E, T>(p + at, count, (T)0);
        return read(p + at);
    }
    template <class E>
    GN_MEMBER void put(E* p, V v) const {
        if (KIND == PART)
            write_part<E, T>(p + at, count, v);
        else
            write(p + at, v);
    }
    GN_MEMBER V only(V v) const { return KIND == WHOLE ? v : choose(fresh(), v); }
    GN_MEMBER V or_else(V v, V other) const { return KIND == PART ? choose(fresh(), v) + choose(~fresh(), other) : v; }
};

// Calls f with every piece of [first, last) of a run that starts at 0.
template <class T, class F>
GN_INLINE void each_piece(int64_t first, int64_t last, F f) {
    enum { N = Of<T>::N };
    int64_t i = first;
    for (; i + N <= last; i += N) f(Piece<T, WHOLE>{i, N});
    if (i == last) return;
#if !defined(__AVX512F__)  // which reads a part as quickly
    if (last >= N) return f(Piece<T, AGAIN>{last - N, last - i});
#endif
    f(Piece<T, PART>{i, last - i});
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
