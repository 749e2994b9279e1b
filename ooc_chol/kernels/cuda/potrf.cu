// POTRF in one launch; strips.cu and triangular.cu stand in front of this text.

// L L.T = A for the diagonal block of order SMALL at a, by the first warp, a row by each of its first threads. first_bad becomes the
// least of itself and, one-based from first on, the place of a pivot that is not a positive finite number. What is subtracted is
// summed from zero, here and below: starting from A, each of the products would round at the size of A.
__device__ __forceinline__ void factor_small(double* a, int first, int* first_bad)
{
    const int row = threadIdx.x % SMALL;
    double values[SMALL], sums[SMALL] = {};
#pragma unroll
    for (int c = 0; c < SMALL; ++c) {
        values[c] = a[row * SQUARE_STRIDE + c]; // above the diagonal without meaning, and without use
    }
#pragma unroll
    for (int j = 0; j < SMALL; ++j) {
        values[j] -= sums[j];
        const double pivot = __shfl_sync(0xFFFFFFFFu, values[j], j);
        if (threadIdx.x == 0 && !(pivot > 0.0 && pivot < 1.0 / 0.0)) {
            atomicMin(first_bad, first + j + 1);
        }
        const double root = sqrt(pivot);
        values[j] = row == j ? root : values[j] / root;
#pragma unroll
        for (int c = j + 1; c < SMALL; ++c) {
            sums[c] = __fma_rn(values[j], __shfl_sync(0xFFFFFFFFu, values[j], c), sums[c]);
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
                double sum = 0.0;
#pragma unroll
                for (int c = 0; c < j; ++c) {
                    sum = __fma_rn(a_jj[j * SQUARE_STRIDE + c], x[c], sum);
                }
                x[j] = (a_ij[j] - sum) / a_jj[j * (SQUARE_STRIDE + 1)];
                a_ij[j] = x[j];
            }
        }
        __syncthreads();
        for (int at = threadIdx.x; at < below * below; at += THREADS) { // also above the diagonal, which has no meaning
            const int row = SMALL + at / below, column = SMALL + at % below;
            double sum = 0.0;
#pragma unroll
            for (int k = 0; k < SMALL; ++k) {
                sum = __fma_rn(a_jj[row * SQUARE_STRIDE + k], a_jj[column * SQUARE_STRIDE + k], sum);
            }
            a_jj[row * SQUARE_STRIDE + column] -= sum;
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
