// What POTRF and TRSM are made of: a thread block computes a strip of ROWS rows by BLOCK columns of a row-major tile, K in stages
// of DEPTH columns on the FP64 tensor cores, and solves with an inverted diagonal block.

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

// Apply `action(m, n, i)` to the indices of a fragment.
template <typename Action> __device__ __forceinline__ void for_each_index(Action action)
{
#pragma unroll
    for (int m = 0; m < WARP_ROWS / 16; ++m) {
#pragma unroll
        for (int n = 0; n < WARP_COLUMNS / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                action(m, n, i);
            }
        }
    }
}

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
            for_each_index([&](int m, int n, int i) {
                sums[m][n][i] += part[m][n][i];
                part[m][n][i] = 0.0;
            });
        }
    }
    __syncthreads();
}

// Apply `action(entry, row, column)` to the thread's entries.
template <typename Action> __device__ __forceinline__ void for_each(Fragment& values, Action action)
{
    const Place place = place_of_thread();
    for_each_index([&](int m, int n, int i) {
        action(values[m][n][i], place.row + 16 * m + 8 * (i / 2), place.column + 8 * n + i % 2);
    });
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
