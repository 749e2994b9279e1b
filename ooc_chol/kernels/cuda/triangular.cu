// POTRF, TRSM and the inversion of diagonal blocks, each in one launch.
//
// The vendor's take forty to a hundred launches for a tile, and beside a long product every one of them waits until thread blocks
// of the product end; here a thread block keeps its processor until it is done. Tiles are row-major. A thread block computes a
// strip of ROWS rows by BLOCK columns at a time, K in stages of DEPTH columns on the FP64 tensor cores.

// Written in front of this text by triangular_source.py: BLOCK, order of the diagonal blocks that are inverted; ROWS, rows of a
// strip; DEPTH, columns of K in a stage; STAGES, stages in flight; THREADS; PADDING, entries behind each row in shared memory;
// SMALL, order of the blocks that one warp factors.
#define STAGE_STRIDE (DEPTH + PADDING)
#define STRIP_STRIDE (BLOCK + PADDING)
#define SQUARE_STRIDE (BLOCK + 1)
#define STAGE_ENTRIES ((ROWS + BLOCK) * STAGE_STRIDE)

// Rows of the FP64 product of one instruction of the tensor cores: 16 from Hopper on, 8 from Ampere on, 0 where there is none.
#ifndef FP64_MMA
#if __CUDA_ARCH__ >= 900
#define FP64_MMA 16
#elif __CUDA_ARCH__ >= 800
#define FP64_MMA 8
#else
#define FP64_MMA 0
#endif
#endif

typedef long long i64;

__device__ __forceinline__ double* shared_memory()
{
    extern __shared__ __align__(16) double memory[];
    return memory;
}

// Two warps side by side along the rows of a strip, the rest along its columns.
#define WARP_ROWS (ROWS / 2)
#define WARP_COLUMNS (BLOCK * 64 / THREADS)

// Entries of a strip that one thread holds: [sixteen rows][eight columns][row, row, row + 8, row + 8 at two adjacent columns].
typedef double Fragment[WARP_ROWS / 16][WARP_COLUMNS / 8][4];

struct Place {
    int row, column; // of the thread's first entry in the strip
    int inner;       // of its first entry along K
};

__device__ __forceinline__ Place place_of_thread()
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return {WARP_ROWS * (warp % 2) + lane / 4, WARP_COLUMNS * (warp / 2) + 2 * (lane % 4), lane % 4};
}

// c += a @ b, 16 x 8 += 16 x 4 @ 4 x 8 by one warp. With g = lane / 4 and t = lane % 4 a thread holds a[h] = A[g + 8 h][t],
// b = B[t][g], c[2 h + e] = C[g + 8 h][2 t + e]. The instruction of depth 16 has half the rate where a scheduler has one warp.
__device__ __forceinline__ void multiply_add(double (&c)[4], const double (&a)[2], double b)
{
#if FP64_MMA == 16
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(b));
#elif FP64_MMA == 8
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(c[2 * h]), "+d"(c[2 * h + 1])
                     : "d"(a[h]), "d"(b));
    }
#else // every thread fetches what it needs from its neighbours
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const double left = __shfl_sync(0xFFFFFFFFu, a[h], lane / 4 * 4 + t);
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const double right = __shfl_sync(0xFFFFFFFFu, b, (2 * (lane % 4) + e) * 4 + t);
                c[2 * h + e] = __fma_rn(left, right, c[2 * h + e]);
            }
        }
    }
#endif
}

// Copy WIDTH (1 or 2) adjacent entries to shared memory, of which the last `missing` are not read but zero; pairs only start. All
// by way of the L2 cache alone, as other processors may have written them.
template <int WIDTH> __device__ __forceinline__ void copy_entries(double* target, const double* source, int missing)
{
#if FP64_MMA
    if constexpr (WIDTH == 2) {
        const unsigned address = (unsigned)__cvta_generic_to_shared(target);
        const int bytes = 8 * (WIDTH - min(WIDTH, max(0, missing)));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(bytes) : "memory");
    } else
#endif
    {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            target[i] = i < WIDTH - missing ? __ldcg(source + i) : 0.0;
        }
    }
}

__device__ __forceinline__ void close_copies()
{
#if FP64_MMA
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait for all copies but those of the last PENDING groups.
template <int PENDING> __device__ __forceinline__ void wait_copies()
{
#if FP64_MMA
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// A row-major block in global memory; what lies behind its rows and columns counts as zero.
struct Operand {
    const double* first;
    i64 stride;
    int rows, columns;
};

// What one thread copies of an operand's stages of DEPTH columns: WIDTH entries of every STEP-th of COUNT rows, from its own on.
template <int WIDTH, int COUNT> struct Copies {
    static constexpr int STEP = WIDTH * THREADS / DEPTH;
    const double* source;
    double* target; // in the first stage's buffer
    i64 step;
    int rows, columns; // from the thread's own on
    bool is_whole;     // nothing lies outside

    __device__ __forceinline__ Copies(const Operand& from, double* buffer)
    {
        const int row = WIDTH * threadIdx.x / DEPTH, column = WIDTH * threadIdx.x % DEPTH;
        source = from.first + row * from.stride + column;
        target = buffer + row * STAGE_STRIDE + column;
        step = STEP * from.stride;
        rows = from.rows - row;
        columns = from.columns - column;
        is_whole = from.rows >= COUNT && from.columns % DEPTH == 0;
    }

    __device__ __forceinline__ void copy(int stage)
    {
        double* to = target + stage % STAGES * STAGE_ENTRIES;
        const double* from = source;
        if (is_whole) {
#pragma unroll
            for (int i = 0; i < COUNT / STEP; ++i, from += step) {
                copy_entries<WIDTH>(to + i * STEP * STAGE_STRIDE, from, 0);
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < COUNT / STEP; ++i, from += step) {
                const bool is_inside = i * STEP < rows && columns > 0;
                copy_entries<WIDTH>(to + i * STEP * STAGE_STRIDE, is_inside ? from : source, is_inside ? WIDTH - columns : WIDTH);
            }
        }
        source += DEPTH;
        columns -= DEPTH;
    }
};

// sums += sign left @ right.T over right.columns columns of K. `left` comes from global memory, or with STRIP from the strip in
// shared memory, where it was stored before the last barrier. Ends with a barrier: buffers and strip may be written again.
// BLOCK columns at a time are summed from zero, as rounding errors are those of what is summed: starting from C, each of the
// products would round at the size of C.
template <int WIDTH, bool STRIP>
__device__ __forceinline__ void accumulate(
    Fragment& sums, const Operand& left, const Operand& right, double sign, double* stages, const double* strip)
{
    const int count = (right.columns + DEPTH - 1) / DEPTH;
    const Place place = place_of_thread();
    const int first_column = WARP_COLUMNS * (threadIdx.x / 64) + threadIdx.x % 32 / 4;
    Copies<WIDTH, ROWS> of_left(left, stages);
    Copies<WIDTH, BLOCK> of_right(right, stages + ROWS * STAGE_STRIDE);
    auto start = [&](int stage) {
        if (stage < count) {
            if (!STRIP) {
                of_left.copy(stage);
            }
            of_right.copy(stage);
        }
        close_copies(); // an empty group at the end, so that the count of groups in flight stays right
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        start(stage);
    }
    Fragment part = {};
    for (int stage = 0; stage < count; ++stage) {
        wait_copies<STAGES - 2>();
        __syncthreads(); // all have this stage, and nobody reads the one before any more, whose buffer is filled next
        const double* buffer = stages + stage % STAGES * STAGE_ENTRIES;
        const int stride = STRIP ? STRIP_STRIDE : STAGE_STRIDE;
        const double* rows = (STRIP ? strip + stage * DEPTH : buffer) + place.row * stride + place.inner;
        const double* columns = buffer + (ROWS + first_column) * STAGE_STRIDE + place.inner;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 4) {
            double a[WARP_ROWS / 16][2];
#pragma unroll
            for (int m = 0; m < WARP_ROWS / 16; ++m) {
                a[m][0] = sign * rows[16 * m * stride + k];
                a[m][1] = sign * rows[(16 * m + 8) * stride + k];
            }
#pragma unroll
            for (int n = 0; n < WARP_COLUMNS / 8; ++n) {
                const double b = columns[8 * n * STAGE_STRIDE + k];
#pragma unroll
                for (int m = 0; m < WARP_ROWS / 16; ++m) {
                    multiply_add(part[m][n], a[m], b);
                }
            }
            if (k == 0) { // copies are issued while the tensor cores work
                start(stage + STAGES - 1);
            }
        }
        if (stage % (BLOCK / DEPTH) == BLOCK / DEPTH - 1 || stage == count - 1) {
#pragma unroll
            for (int m = 0; m < WARP_ROWS / 16; ++m) {
#pragma unroll
                for (int n = 0; n < WARP_COLUMNS / 8; ++n) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        sums[m][n][i] += part[m][n][i];
                        part[m][n][i] = 0.0;
                    }
                }
            }
        }
    }
    __syncthreads();
}

// Apply `action(entry, row, column)` to the thread's entries.
template <typename Action> __device__ __forceinline__ void for_each(Fragment& values, Action action)
{
    const Place place = place_of_thread();
#pragma unroll
    for (int m = 0; m < WARP_ROWS / 16; ++m) {
#pragma unroll
        for (int n = 0; n < WARP_COLUMNS / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                action(values[m][n][i], place.row + 16 * m + 8 * (i / 2), place.column + 8 * n + i % 2);
            }
        }
    }
}

// The strip's entries of this thread, from its block in global memory; what lies outside is zero. By way of the L2 cache, as other
// processors may have written them.
__device__ __forceinline__ void load(Fragment& values, const double* from, i64 stride, int rows, int columns)
{
    for_each(values, [&](double& value, int row, int column) {
        value = row < rows && column < columns ? __ldcg(from + row * stride + column) : 0.0;
    });
}

__device__ __forceinline__ void store(Fragment& values, double* to, i64 stride, int rows, int columns)
{
    for_each(values, [&](double& value, int row, int column) {
        if (row < rows && column < columns) {
            to[row * stride + column] = value;
        }
    });
}

// Exchange the thread's entries with those in the strip. Ends with a barrier.
__device__ __forceinline__ void swap_with_strip(Fragment& values, double* strip)
{
    for_each(values, [&](double& value, int row, int column) {
        const double old = strip[row * STRIP_STRIDE + column];
        strip[row * STRIP_STRIDE + column] = value;
        value = old;
    });
    __syncthreads();
}

// C becomes X = C inv(L_bb).T, refined once: X = C inv(L_bb).T; C -= X L_bb.T; X += C inv(L_bb).T. Of C and X one is in registers
// and the other one in the strip.
template <int WIDTH>
__device__ __forceinline__ void solve(Fragment& values, const Operand& l_bb, const double* inverse, double* stages, double* strip)
{
    const Operand inverted = {inverse, BLOCK, BLOCK, BLOCK}, nothing = {nullptr, 0, 0, 0};
    for_each(values, [&](double& value, int row, int column) {
        strip[row * STRIP_STRIDE + column] = value;
        value = 0.0;
    });
    __syncthreads();
    accumulate<2, true>(values, nothing, inverted, 1.0, stages, strip);
    swap_with_strip(values, strip);
    accumulate<WIDTH, true>(values, nothing, l_bb, -1.0, stages, strip);
    swap_with_strip(values, strip);
    accumulate<2, true>(values, nothing, inverted, 1.0, stages, strip);
}

// A[i, k] = A[i, k] @ inv(L[k, k]).T: a strip of rows by each thread block, block column by block column.
template <int WIDTH> __device__ __forceinline__ void solve_strip(double* x, int rows, int n, const double* l, const double* inverses)
{
    double *stages = shared_memory(), *strip = stages + STAGES * STAGE_ENTRIES;
    const int row = blockIdx.x * ROWS, count = min(ROWS, rows - row);
    x += (i64)row * n;
    for (int column = 0; column < n; column += BLOCK) {
        const int width = min(BLOCK, n - column);
        const double* l_b = l + (i64)column * n;
        Fragment values;
        load(values, x + column, n, count, width);
        // C = A[:, b] - X[:, :b] @ L[b, :b].T
        accumulate<WIDTH, false>(values, {x, n, count, column}, {l_b, n, width, column}, -1.0, stages, strip);
        solve<WIDTH>(values, {l_b + column, n, width, width}, inverses + (i64)column * BLOCK, stages, strip);
        store(values, x + column, n, count, width);
        __syncthreads(); // the next block column reads this one
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) trsm(double* x, int rows, int n, const double* l, const double* inverses)
{
    if (n % 2 == 0) { // rows are aligned to 16 bytes, as tiles are
        solve_strip<2>(x, rows, n, l, inverses);
    } else {
        solve_strip<1>(x, rows, n, l, inverses);
    }
}

// to = sign left @ right, `count` times with `distance` entries between: squares of order ORDER in shared memory, given by their
// first entries. Ends with a barrier.
template <int ORDER>
__device__ __forceinline__ void multiply_squares(
    const double* left, const double* right, double* to, double sign, int count, int distance)
{
    for (int at = threadIdx.x; at < count * ORDER * ORDER; at += THREADS) {
        const int row = at / ORDER % ORDER, column = at % ORDER, offset = at / (ORDER * ORDER) * distance;
        double even = 0.0, odd = 0.0;
#pragma unroll 8
        for (int k = 0; k < ORDER; k += 2) {
            even = __fma_rn(left[offset + row * SQUARE_STRIDE + k], right[offset + k * SQUARE_STRIDE + column], even);
            odd = __fma_rn(left[offset + row * SQUARE_STRIDE + k + 1], right[offset + (k + 1) * SQUARE_STRIDE + column], odd);
        }
        to[offset + row * SQUARE_STRIDE + column] = sign * (even + odd);
    }
    __syncthreads();
}

// The inverses of two adjacent diagonal blocks of order ORDER, A above and C below, become that of the block of twice the order:
// what is below the diagonal is -inv(C) B inv(A). B inv(A) takes the place above the diagonal of l.
template <int ORDER> __device__ __forceinline__ void join_inverses(double* l, double* inverse)
{
    const int count = BLOCK / (2 * ORDER), distance = 2 * ORDER * (SQUARE_STRIDE + 1), below = ORDER * SQUARE_STRIDE;
    multiply_squares<ORDER>(l + below, inverse, l + ORDER, 1.0, count, distance);
    multiply_squares<ORDER>(inverse + below + ORDER, l + ORDER, inverse + below, -1.0, count, distance);
}

// inverse = inv(l), lower triangles of order BLOCK in shared memory; what is above the diagonal of l is lost. First the diagonal
// blocks of order SMALL, a column by each thread: x_i = (delta_ij - sum_c l_ic x_c) / l_ii. Ends with a barrier.
__device__ __forceinline__ void invert(double* l, double* inverse)
{
    for (int at = threadIdx.x; at < BLOCK * SQUARE_STRIDE; at += THREADS) {
        inverse[at] = 0.0;
    }
    __syncthreads();
    if (threadIdx.x < BLOCK) {
        const int first = threadIdx.x / SMALL * SMALL, j = threadIdx.x % SMALL;
        const double* block = l + first * (SQUARE_STRIDE + 1);
        double x[SMALL];
#pragma unroll
        for (int i = 0; i < SMALL; ++i) {
            double sum = i == j ? 1.0 : 0.0;
#pragma unroll
            for (int c = 0; c < i; ++c) {
                sum = __fma_rn(-block[i * SQUARE_STRIDE + c], x[c], sum);
            }
            x[i] = sum / block[i * (SQUARE_STRIDE + 1)];
            inverse[(first + i) * SQUARE_STRIDE + first + j] = x[i];
        }
    }
    __syncthreads();
    join_inverses<SMALL>(l, inverse);
    join_inverses<2 * SMALL>(l, inverse);
}

// A diagonal block's lower triangle to shared memory, continued by the identity; what is above the diagonal is not read.
__device__ __forceinline__ void load_lower(double* l, const double* from, i64 stride, int order)
{
    for (int at = threadIdx.x; at < BLOCK * BLOCK; at += THREADS) {
        const int row = at / BLOCK, column = at % BLOCK;
        const bool is_inside = column <= row && row < order;
        l[row * SQUARE_STRIDE + column] = is_inside ? __ldcg(from + row * stride + column) : row == column ? 1.0 : 0.0;
    }
    __syncthreads();
}

// A square of order BLOCK from shared memory; its part above the diagonal as zeros.
__device__ __forceinline__ void store_lower(const double* l, double* to, i64 stride, int order)
{
    for (int at = threadIdx.x; at < BLOCK * BLOCK; at += THREADS) {
        const int row = at / BLOCK, column = at % BLOCK;
        if (row < order && column < order) {
            to[row * stride + column] = column <= row ? l[row * SQUARE_STRIDE + column] : 0.0;
        }
    }
}

// inverses[b] = inv(L_bb), order BLOCK each, one thread block each; the last may be short and is continued by the identity.
extern "C" __global__ void __launch_bounds__(THREADS, 2) invert_blocks(const double* l, int n, double* inverses)
{
    double *square = shared_memory(), *inverse = square + BLOCK * SQUARE_STRIDE;
    const int first = blockIdx.x * BLOCK;
    load_lower(square, l + (i64)first * (n + 1), n, min(BLOCK, n - first));
    invert(square, inverse);
    store_lower(inverse, inverses + (i64)first * BLOCK, BLOCK, BLOCK);
}

// L L.T = A for the diagonal block of order SMALL at a, by the first warp, a row by each of its first threads. first_bad becomes the
// least of itself and, one-based from first on, the place of a pivot that is not a positive finite number.
__device__ __forceinline__ void factor_small(double* a, int first, int* first_bad)
{
    const int row = threadIdx.x % SMALL;
    double values[SMALL];
#pragma unroll
    for (int c = 0; c < SMALL; ++c) {
        values[c] = a[row * SQUARE_STRIDE + c]; // above the diagonal without meaning, and without use
    }
#pragma unroll
    for (int j = 0; j < SMALL; ++j) {
        const double pivot = __shfl_sync(0xFFFFFFFFu, values[j], j);
        if (threadIdx.x == 0 && !(pivot > 0.0 && pivot < 1.0 / 0.0)) {
            atomicMin(first_bad, first + j + 1);
        }
        const double root = sqrt(pivot);
        values[j] = row == j ? root : values[j] / root;
#pragma unroll
        for (int c = j + 1; c < SMALL; ++c) {
            values[c] = __fma_rn(-values[j], __shfl_sync(0xFFFFFFFFu, values[j], c), values[c]);
        }
    }
    if (threadIdx.x < SMALL) {
#pragma unroll
        for (int c = 0; c < SMALL; ++c) {
            if (c <= row) {
                a[row * SQUARE_STRIDE + c] = values[c];
            }
        }
    }
}

// L L.T = A in shared memory, order BLOCK, lower triangle, by blocks of order SMALL. Ends with a barrier.
__device__ __forceinline__ void factor(double* a, int first, int* first_bad)
{
    for (int j0 = 0; j0 < BLOCK; j0 += SMALL) {
        double* a_jj = a + j0 * (SQUARE_STRIDE + 1);
        if (threadIdx.x < 32) {
            factor_small(a_jj, first + j0, first_bad);
        }
        __syncthreads();
        const int below = BLOCK - j0 - SMALL;
        if (threadIdx.x < below) { // a row each: x_j = (a_j - sum_c x_c l_jc) / l_jj
            double* a_ij = a_jj + (SMALL + threadIdx.x) * SQUARE_STRIDE;
            double x[SMALL];
#pragma unroll
            for (int j = 0; j < SMALL; ++j) {
                double sum = a_ij[j];
#pragma unroll
                for (int c = 0; c < j; ++c) {
                    sum = __fma_rn(-a_jj[j * SQUARE_STRIDE + c], x[c], sum);
                }
                x[j] = sum / a_jj[j * (SQUARE_STRIDE + 1)];
                a_ij[j] = x[j];
            }
        }
        __syncthreads();
        for (int at = threadIdx.x; at < below * below; at += THREADS) { // also above the diagonal, which has no meaning
            const int row = SMALL + at / below, column = SMALL + at % below;
            double sum = a_jj[row * SQUARE_STRIDE + column];
#pragma unroll
            for (int k = 0; k < SMALL; ++k) {
                sum = __fma_rn(-a_jj[row * SQUARE_STRIDE + k], a_jj[column * SQUARE_STRIDE + k], sum);
            }
            a_jj[row * SQUARE_STRIDE + column] = sum;
        }
        __syncthreads();
    }
}

// Wait for all thread blocks of the grid, the `passed`-th time. They must all be on the device, which they come to be: whatever
// else runs there ends by itself.
__device__ __forceinline__ void wait_for_grid(unsigned* arrived, unsigned& passed)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned wanted = ++passed * gridDim.x;
        __threadfence();
        atomicAdd(arrived, 1);
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        } while (seen < wanted);
        __threadfence();
    }
    __syncthreads();
}

// The last thread block to leave makes the counters zero for the next launch.
__device__ __forceinline__ void leave_grid(unsigned* arrived)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(arrived + 1, 1) == gridDim.x - 1) {
            arrived[0] = 0;
            arrived[1] = 0;
            __threadfence();
        }
    }
}

// A[k, k] -> L[k, k], right-looking by blocks of order BLOCK. While the first thread block brings the next diagonal block up to
// date, factors and inverts it, the others update what is to its right. Where a sum is computed does not change its bits.
template <int WIDTH>
__device__ __forceinline__ void factor_tile(double* a, int n, double* inverses, unsigned* arrived, int* first_bad)
{
    double *stages = shared_memory(), *strip = stages + STAGES * STAGE_ENTRIES;
    double *square = shared_memory(), *inverse = square + BLOCK * SQUARE_STRIDE;
    unsigned passed = 0;
    // Blocks above the diagonal are zero; nothing below reads them.
    for (i64 at = blockIdx.x * (i64)THREADS + threadIdx.x; at < (i64)n * n; at += (i64)gridDim.x * THREADS) {
        if (at % n / BLOCK > at / n / BLOCK) {
            a[at] = 0.0;
        }
    }
    for (int k0 = 0; k0 < n; k0 += BLOCK) {
        double* inverted = inverses + k0 / BLOCK % 2 * (BLOCK * BLOCK);
        double* a_kk = a + (i64)k0 * (n + 1);
        const int width = min(BLOCK, n - k0), below = k0 + width;
        if (blockIdx.x == 0) {
            load_lower(square, a_kk, n, width);
            factor(square, k0, first_bad);
            invert(square, inverse);
            store_lower(square, a_kk, n, width);
            store_lower(inverse, inverted, BLOCK, BLOCK);
        }
        wait_for_grid(arrived, passed);
        // A[i, k] = A[i, k] @ inv(L[k, k]).T
        for (int row = below + ROWS * blockIdx.x; row < n; row += ROWS * gridDim.x) {
            double* a_ik = a + (i64)row * n + k0;
            const int count = min(ROWS, n - row);
            Fragment values;
            load(values, a_ik, n, count, width);
            solve<WIDTH>(values, {a_kk, n, width, width}, inverted, stages, strip);
            store(values, a_ik, n, count, width);
        }
        wait_for_grid(arrived, passed);
        // A[i, j] -= L[i, k] @ L[j, k].T; strips are numbered row by row, the first ones are those of the next diagonal block.
        const int others = (int)gridDim.x - 1, of_diagonal = (min(BLOCK, n - below) + ROWS - 1) / ROWS;
        const bool is_first = blockIdx.x == 0;
        const int step = is_first ? 1 : others;
        int left_to_do = is_first && others > 0 ? of_diagonal : n * n; // no more than there are strips
        int row = below, in_row = is_first ? 0 : of_diagonal + blockIdx.x - 1;
        for (; left_to_do > 0; --left_to_do, in_row += step) {
            for (; row < n && in_row > (row - below) / BLOCK; row += ROWS) {
                in_row -= (row - below) / BLOCK + 1;
            }
            if (row >= n) {
                break;
            }
            const int column = below + in_row * BLOCK, count = min(ROWS, n - row), columns = min(BLOCK, n - column);
            const Operand left = {a + (i64)row * n + k0, n, count, width}, right = {a + (i64)column * n + k0, n, columns, width};
            double* a_ij = a + (i64)row * n + column;
            Fragment sums;
            load(sums, a_ij, n, count, columns);
            accumulate<WIDTH, false>(sums, left, right, -1.0, stages, strip);
            store(sums, a_ij, n, count, columns);
        }
        __syncthreads(); // the first thread block reads what its threads wrote
    }
    leave_grid(arrived);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) potrf(double* a, int n, double* inverses, unsigned* arrived, int* first_bad)
{
    if (n % 2 == 0) {
        factor_tile<2>(a, n, inverses, arrived, first_bad);
    } else {
        factor_tile<1>(a, n, inverses, arrived, first_bad);
    }
}
