// Memory of one thread that is kept between calls, and the selection of a middle value in it.
#pragma once
#include <cstdlib>

#include "vec.h"

namespace geonorm {
namespace GEONORM_ISA {

struct Scratch {
    void* memory = nullptr;
    size_t size = 0;
    ~Scratch() { free(memory); }

    // At least `bytes`, aligned; null when there is no memory. The previous contents are lost.
    void* get(size_t bytes) {
        if (bytes > size) {
            free(memory);
            size = (bytes + 4095) & ~(size_t)4095;
            memory = aligned_alloc(4096, size);
            if (!memory) size = 0;
        }
        return memory;
    }
    void release() {
        free(memory);
        memory = nullptr, size = 0;
    }
};

// Otherwise a few large blocks would stay allocated forever.
static const size_t KEEP_BYTES = (size_t)64 << 20;

// The same for numbers that are nearly as quick to compute: only while they stay in the first-level cache.
static const int64_t KEEP_ROOTS_BYTES = (int64_t)16 << 10;

// Copies up to this size are worth making: they stay in the cache until they are read again.
static const int64_t CACHE_BYTES = (int64_t)1 << 20;

template <class T>
GN_INLINE void swap_values(T& a, T& b) {
    T c = a;
    a = b, b = c;
}

// The k-th smallest of n values (no NaN), which are reordered: smaller ones before it, larger ones behind.
template <class T>
static T select(T* v, int64_t n, int64_t k) {
    int64_t first = 0, last = n - 1;
    while (first < last) {
        int64_t middle = first + (last - first) / 2;  // median of three against sorted data
        if (v[middle] < v[first]) swap_values(v[middle], v[first]);
        if (v[last] < v[first]) swap_values(v[last], v[first]);
        if (v[last] < v[middle]) swap_values(v[last], v[middle]);
        T pivot = v[middle];
        int64_t i = first, j = last;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (pivot < v[j]) j--;
            if (i <= j) swap_values(v[i++], v[j--]);
        }
        if (k <= j)
            last = j;
        else if (k >= i)
            first = i;
        else
            return v[k];
    }
    return v[k];
}

// Lower and upper middle value.
template <class T>
static void middle_values(T* v, int64_t n, double& lower, double& upper) {
    int64_t k = (n - 1) / 2;
    lower = upper = select(v, n, k);
    if (n % 2 == 0) {
        T next = v[k + 1];
        for (int64_t i = k + 2; i < n; i++) next = v[i] < next ? v[i] : next;
        upper = next;
    }
}

}  // namespace GEONORM_ISA
}  // namespace geonorm
