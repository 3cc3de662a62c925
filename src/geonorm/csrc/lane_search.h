// The certified search of groups side by side: all lanes sweep together, and the last few go on alone.
#pragma once
#include "warm_start.h"
#include "lanes.h"
#include "scratch.h"

namespace geonorm {
namespace GEONORM_ISA {

// The searches of all lanes of a block.
template <class T>
struct LaneSearch {
    typedef typename Of<T>::V V;
    typedef typename Of<T>::I I;
    enum { N = Of<T>::N, WIDTH = LaneBlock<T>::WIDTH };
    Search search[WIDTH];
    Exponent exponent;  // of all lanes; the general path with `s` per lane if they differ
    V s[VECTORS];
    bool below_two;  // φ < 2 in all lanes
    int few;         // with no more searches left, each goes on alone: together they would keep all lanes busy

    // φ of each lane that is to be solved; the others stay inactive.
    void start(const double* phi, const bool* solve, const Moments* m, int64_t members, int64_t width) {
        exponent = exponent_of(phi[0]);
        below_two = true;
        few = members * WIDTH * (int64_t)sizeof(T) <= CACHE_BYTES ? WIDTH / 8 : 0;  // a lane alone touches all lines
        for (int l = 0; l < WIDTH; l++) {
            bool used = l < width;
            if (used && phi[l] != phi[0]) exponent.path = PATH_GENERAL;
            if (used && phi[l] > 2) below_two = false;
            s[l / N][l % N] = (T)((used ? phi[l] : 1.5) - 2);
            if (used && solve[l])
                search[l].start(phi[l], Of<T>::eps, (double)members, m[l].lowest, m[l].highest, m[l].mean);
            else
                search[l].active = false;
        }
    }
    // Number of searches that go on, of all or of one vector.
    int active() const {
        int count = 0;
        for (int j = 0; j < VECTORS; j++) count += active(j);
        return count;
    }
    int active(int j) const {
        int count = 0;
        for (int k = 0; k < N; k++) count += search[j * N + k].active;
        return count;
    }

    void run_alone(const T* u, int64_t rows, T* memory, int most) {
        for (int l = 0; l < WIDTH; l++) {
            if (!search[l].active) continue;
            for (int64_t i = 0; i < rows; i++) memory[i] = u[i * WIDTH + l];
            run_search(search[l], memory, rows, exponent_of(search[l].q + 1), most);
        }
    }

    // TIES: values may lie at y, or φ > 2. Otherwise sums and differences give both sides, see sweep.h; false if a value
    // does lie at y.
    template <Power POWER, bool TIES>
    bool sweep(const T* u, int64_t rows, Sums* sums) {
        V head[VECTORS], rest[VECTORS], inverse[VECTORS], closest[VECTORS];
        bool going[VECTORS];
        for (int j = 0; j < VECTORS; j++) going[j] = active(j) > 0;
        for (int l = 0; l < WIDTH; l++) {
            Search& one = search[l];
            Point<T> y(one.active ? one.y : 0);
            if (one.active) one.y = y.snapped();
            T inv = (T)(one.active ? 1 / one.scale : 0);
            head[l / N][l % N] = y.head, inverse[l / N][l % N] = inv, rest[l / N][l % N] = y.rest * inv;
            sums[l] = Sums{0, 0, 0, 0, 0};
        }
        const V tiny = all((T)TINY);
        for (int j = 0; j < VECTORS; j++) closest[j] = all((T)1e30);
        for (int64_t first = 0; first < rows; first += 256) {
            const int64_t end = rows - first < 256 ? rows : first + 256;
            for (int j = 0; j < VECTORS; j++) {  // one after the other: the sums of both would not fit the registers
                if (!going[j]) continue;
                V A = {}, B = {}, C = {}, D = {}, nearest = closest[j];
                const V h = head[j], t = rest[j], inv = inverse[j], power = s[j];
                for (int64_t i = first; i < end; i++) {
                    V r = (load(u + i * WIDTH + j * N) - h) * inv - t, a = absolute(r);
                    nearest = smaller(a, nearest);
                    V w = slope<POWER, T>(TIES ? larger(a, tiny) : a, power, exponent.path);
                    if (TIES) {
                        V p = r * w;
                        I up = r > (T)0, down = r < (T)0;
                        A += choose(up, p), B += choose(down, p), C += choose(up, w), D += choose(down, w);
                    } else {
                        A += r * w, B += a * w, C += w, D += with_sign(w, r);
                    }
                }
                closest[j] = nearest;
                for (int k = 0; k < N; k++) {
                    Sums& sum = sums[j * N + k];
                    sum.above += A[k], sum.below -= B[k], sum.above_slope += C[k], sum.below_slope += D[k];
                }
            }
        }
        bool good = true;
        for (int l = 0; l < WIDTH; l++) {
            Sums& sum = sums[l];
            sum.closest = closest[l / N][l % N];
            if (TIES || !search[l].active) continue;
            good = good && sum.closest > TINY;
            double difference = sum.above, sizes = -sum.below, slopes = sum.above_slope, signed_slopes = sum.below_slope;
            sum.above = most_of(0.5 * (sizes + difference), 0), sum.below = most_of(0.5 * (sizes - difference), 0);
            sum.above_slope = most_of(0.5 * (slopes + signed_slopes), 0);
            sum.below_slope = most_of(0.5 * (slopes - signed_slopes), 0);
        }
        return good;
    }

    template <Power POWER>
    void sweep(const T* u, int64_t rows, Sums* sums) {
        const Power free_of_ties = POWER == GENERAL ? GENERAL_BELOW_TWO : POWER;
        if (!below_two || !sweep<free_of_ties, false>(u, rows, sums)) sweep<POWER, true>(u, rows, sums);
    }

    // Newton's steps of all lanes towards their centers, as `warm_start` of one group.
    template <Power POWER>
    void warm_start(const T* u, int64_t rows, const Moments* m) {
        double last[WIDTH];
        bool on[WIDTH];
        for (int l = 0; l < WIDTH; l++) last[l] = INFINITY, on[l] = search[l].active;
        for (int k = 0; k < MAX_STEPS; k++) {
            float at[WIDTH];
            double ratio[WIDTH];
            for (int l = 0; l < WIDTH; l++) at[l] = search[l].active ? (float)search[l].y : 0;
            rough_ratios<POWER>(u, rows, at, ratio);
            int far = 0;
            for (int l = 0; l < WIDTH; l++) {
                if (!on[l]) continue;
                Search& one = search[l];
                const double step = ratio[l] / one.q;
                on[l] = shrinks(step, last[l]);
                if (!on[l]) continue;
                one.center = one.y = most_of(one.lowest, least_of(one.highest, at[l] + step)), last[l] = step;
                on[l] = fabs(step) > NEAR * sqrt(m[l].var);
                far += on[l];
            }
            if (far <= few) return;
        }
    }

    // As `rough_ratio` of one group, at a point for each lane.
    template <Power POWER>
    void rough_ratios(const T* u, int64_t rows, const float* points, double* ratio) const {
        static_assert(VECTORS == 2, "both, or one of them");
        const bool first = active(0) > 0, second = active(1) > 0;
        if (first && second) return rough_ratios_of<POWER, 2>(0, u, rows, points, ratio);
        if (first || second) rough_ratios_of<POWER, 1>(second, u, rows, points, ratio);
    }

    // Of COUNT vectors from `start` on. A second one hides how long a root takes.
    template <Power POWER, int COUNT>
    void rough_ratios_of(int start, const T* u, int64_t rows, const float* points, double* ratio) const {
        V inverses[COUNT] = {}, tinies[COUNT] = {}, all_D[COUNT] = {}, all_W[COUNT] = {};
        double unit[COUNT * N];
        for (int l = 0; l < COUNT * N; l++) {
            const Search& one = search[start * N + l];
            unit[l] = POWER == ROOT ? 1 : one.scale;
            if (!one.active) continue;
            inverses[l / N][l % N] = (T)(1 / one.scale), tinies[l / N][l % N] = (T)(TINY * one.scale / unit[l]);
        }
        for (int64_t i = 0; i < rows;) {
            const int64_t end = rows - i < 256 ? rows : i + 256;
            V D[COUNT] = {}, W[COUNT] = {}, at[COUNT], inverse[COUNT], tiny[COUNT], power[COUNT];
            GN_UNROLLED for (int j = 0; j < COUNT; j++) {
                at[j] = load(points + (start + j) * N), inverse[j] = inverses[j], tiny[j] = tinies[j];
                power[j] = s[start + j];
            }
            for (; i < end; i++)
                GN_UNROLLED for (int j = 0; j < COUNT; j++) {
                    V r = rough_distance<POWER>(load(u + i * WIDTH + (start + j) * N), at[j], inverse[j]);
                    V w = rough_weight<POWER, true>(r, tiny[j], power[j], exponent.path);
                    D[j] += r * w, W[j] += w;
                }
            GN_UNROLLED for (int j = 0; j < COUNT; j++) all_D[j] += D[j], all_W[j] += W[j];
        }
        for (int l = 0; l < COUNT * N; l++)
            ratio[start * N + l] = unit[l] * (double)all_D[l / N][l % N] / (double)all_W[l / N][l % N];
    }

    void warm_start(const T* u, int64_t rows, const Moments* m) {
        if constexpr (sizeof(T) == 4) {
            if (rows < MIN_VALUES) return;
            switch (exponent.power()) {
                case ROOT: return warm_start<ROOT>(u, rows, m);
                case GENERAL: return warm_start<GENERAL>(u, rows, m);
                default: return warm_start<SPECIAL>(u, rows, m);
            }
        }
    }

    // `memory` is for the values of one lane.
    void run(const T* u, int64_t rows, T* memory, int most = MAX_SWEEPS) {
        Sums sums[WIDTH];
        for (int k = 0; k < most; k++) {
            if (active() <= few) return run_alone(u, rows, memory, most);
            switch (exponent.power()) {
                case ROOT: sweep<ROOT>(u, rows, sums); break;
                case GENERAL: sweep<GENERAL>(u, rows, sums); break;
                default: sweep<SPECIAL>(u, rows, sums);
            }
            for (int l = 0; l < WIDTH; l++) {
                Search& one = search[l];
                if (!one.active) continue;
                one.evaluate(sums[l]);
                if (one.wants_neighbours(sums[l]))
                    one.step_by_nearest(sums[l], neighbours(u + l, rows, WIDTH, Point<T>(one.y), one.scale));
                one.advance();
            }
        }
    }
};

}  // namespace GEONORM_ISA
}  // namespace geonorm
