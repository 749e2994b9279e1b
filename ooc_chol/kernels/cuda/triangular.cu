// TRSM and the inversion of diagonal blocks, each in one launch; strips.cu stands in front of this text.
//
// Products of the vendor's take forty launches for a tile's TRSM, and beside a long product every one of them waits until thread
// blocks of that product end; here a thread block keeps its processor until it is done.

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
