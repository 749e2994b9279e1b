// Substitution with a triangle for some right-hand sides in one launch: blocks of rows wait for those before them.
//
// A block of ROWS rows and COLUMNS columns of x belongs to one thread block. It subtracts products with all blocks of rows
// before it as these become final, and then solves with its own triangle. Numbers are dealt out to thread blocks as they
// begin to run, so that whoever waits does so for one that runs. The order of all sums depends on the shape alone.

#define OF_WARP (COLUMNS / (THREADS / 32))
#define PITCH (ROWS + 1) // of a block in shared memory: neighbours down a column lie in different banks

// Rows of L in the order in which they are solved for: as they are, or from the last one of the last block on.
struct Order {
    int rows, padded, is_reversed;

    __device__ int row(int place) const { return is_reversed ? padded - 1 - place : place; }
};

// A block of op(L) from places `first` and `second` on, below or on the diagonal; zeros above, and beyond the last row.
__device__ void bring(double* block, const double* __restrict__ l, Order order, int first, int second)
{
#pragma unroll 8
    for (int e = threadIdx.x; e < ROWS * ROWS; e += THREADS) {
        const int slow = e / ROWS, fast = e % ROWS;
        const int p = order.is_reversed ? fast : slow, q = order.is_reversed ? slow : fast;
        const int a = order.row(first + p), b = order.row(second + q);
        const int i = order.is_reversed ? b : a, j = order.is_reversed ? a : b;
        block[p * PITCH + q] = i < order.rows && j <= i ? l[(long long)i * order.rows + j] : 0.0;
    }
}

// x = inv(L) x, or inv(L.T) x, of row-major L (rows, rows) and x (rows, columns). `state` is zeros: a number for each launch's
// next thread block, and how many blocks of rows are final of each group of columns.
extern "C" __global__ void __launch_bounds__(THREADS)
    substitute(const double* __restrict__ l, double* x, int rows, int columns, int is_transposed, unsigned* state)
{
    extern __shared__ double memory[];
    double *triangle = memory, *block = triangle + ROWS * PITCH, *solved = block + ROWS * PITCH;
    double* reciprocals = solved + ROWS * COLUMNS;
    __shared__ unsigned number;
    if (threadIdx.x == 0) {
        number = atomicAdd(state, 1u);
    }
    __syncthreads();
    const unsigned groups = (columns + COLUMNS - 1) / COLUMNS, group = number % groups, own = number / groups;
    volatile unsigned* final_blocks = state + 1 + group;
    const Order order = {rows, (rows + ROWS - 1) / ROWS * ROWS, is_transposed};
    const int lane = threadIdx.x % 32, column = group * COLUMNS + threadIdx.x / 32 * OF_WARP;
    double sums[2][OF_WARP];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int i = order.row(own * ROWS + h * 32 + lane);
#pragma unroll
        for (int c = 0; c < OF_WARP; ++c) {
            sums[h][c] = i < rows && column + c < columns ? x[(long long)i * columns + column + c] : 0.0;
        }
    }
    bring(triangle, l, order, own * ROWS, own * ROWS);
    for (unsigned before = 0; before < own; ++before) {
        bring(block, l, order, own * ROWS, before * ROWS);
        if (threadIdx.x == 0) {
            while (*final_blocks <= before) {
                __nanosleep(20);
            }
            __threadfence();
        }
        __syncthreads();
        for (int e = threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
            const int i = order.row(before * ROWS + e / COLUMNS), j = group * COLUMNS + e % COLUMNS;
            solved[e] = i < rows && j < columns ? __ldcg(x + (long long)i * columns + j) : 0.0;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < ROWS; ++k) {
            const double upper = block[lane * PITCH + k], lower = block[(lane + 32) * PITCH + k];
#pragma unroll
            for (int c = 0; c < OF_WARP; ++c) {
                const double factor = solved[k * COLUMNS + threadIdx.x / 32 * OF_WARP + c];
                sums[0][c] = fma(-upper, factor, sums[0][c]);
                sums[1][c] = fma(-lower, factor, sums[1][c]);
            }
        }
        __syncthreads();
    }
    __syncthreads();
    if (threadIdx.x < ROWS) {
        const double diagonal = triangle[threadIdx.x * PITCH + threadIdx.x];
        reciprocals[threadIdx.x] = order.row(own * ROWS + threadIdx.x) < rows ? 1.0 / diagonal : 0.0;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll 8
        for (int k = 0; k < 32; ++k) {
            const int at = h * 32 + k;
            const double upper = triangle[lane * PITCH + at], lower = triangle[(lane + 32) * PITCH + at];
#pragma unroll
            for (int c = 0; c < OF_WARP; ++c) {
                const double factor = __shfl_sync(0xffffffffu, sums[h][c], k) * reciprocals[at];
                if (h == 0) {
                    sums[0][c] = lane > k ? fma(-upper, factor, sums[0][c]) : lane == k ? factor : sums[0][c];
                    sums[1][c] = fma(-lower, factor, sums[1][c]);
                } else {
                    sums[1][c] = lane > k ? fma(-lower, factor, sums[1][c]) : lane == k ? factor : sums[1][c];
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int i = order.row(own * ROWS + h * 32 + lane);
#pragma unroll
        for (int c = 0; c < OF_WARP; ++c) {
            if (i < rows && column + c < columns) {
                x[(long long)i * columns + column + c] = sums[h][c];
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *final_blocks = own + 1;
    }
}
