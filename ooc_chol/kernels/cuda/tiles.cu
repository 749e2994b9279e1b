// Small kernels around the vendor's: tiles are row-major, 64-bit indices throughout.

// Copy one triangle of a square tile over the other, transposed. A block of 32 x 8 threads moves a square of 32 x 32 through shared
// memory, so that reads and writes are both of adjacent entries; blocks of the triangle that is written do nothing but be written.
__device__ void mirror(double* a, int n, bool to_upper)
{
    __shared__ double square[32][33];
    const int block_row = blockIdx.y, block_col = blockIdx.x;
    if (block_col > block_row) return;
    // The source square lies below the diagonal when `to_upper`, above it otherwise.
    const int row0 = 32 * (to_upper ? block_row : block_col), col0 = 32 * (to_upper ? block_col : block_row);
    for (int y = threadIdx.y; y < 32; y += 8) {
        const int row = row0 + y, col = col0 + threadIdx.x;
        if (row < n && col < n) square[y][threadIdx.x] = a[(long long)row * n + col];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8) {
        const int row = col0 + y, col = row0 + threadIdx.x;
        const bool is_target = to_upper ? col > row : col < row;
        if (row < n && col < n && is_target) a[(long long)row * n + col] = square[threadIdx.x][y];
    }
}

extern "C" __global__ void lower_to_upper(double* a, int n) { mirror(a, n, true); }

extern "C" __global__ void upper_to_lower(double* a, int n) { mirror(a, n, false); }

// Zero the strict upper triangle of a diagonal tile and find the first diagonal entry that is not a positive finite number.
// first_bad holds INT_MAX before, and the one-based position of that entry after.
extern "C" __global__ void finish_potrf(double* a, int n, int* first_bad)
{
    const long long total = (long long)n * n;
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < total; at += (long long)gridDim.x * blockDim.x) {
        const int row = (int)(at / n), col = (int)(at % n);
        if (col > row) {
            a[at] = 0.0;
        } else if (col == row && !(a[at] > 0.0 && a[at] < 1.0 / 0.0)) {
            atomicMin(first_bad, row + 1);
        }
    }
}

// Find the smallest row-major position of a NaN or an infinity, in the lower triangle only when `lower` is set.
// `first` holds the largest 64-bit value before, and the position after.
extern "C" __global__ void check_finite(const double* a, int rows, int cols, int lower, unsigned long long* first)
{
    const long long total = (long long)rows * cols;
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < total; at += (long long)gridDim.x * blockDim.x) {
        const double value = a[at];
        if (!(value - value == 0.0) && !(lower && at % cols > at / cols)) {
            atomicMin(first, (unsigned long long)at);
        }
    }
}

// blocks[b] = identity of order `block`, for every diagonal block of a tile; the last may be short and is padded with the identity.
extern "C" __global__ void identities(double* blocks, int block, int count)
{
    const long long total = (long long)count * block * block;
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < total; at += (long long)gridDim.x * blockDim.x) {
        const long long inside = at % ((long long)block * block);
        blocks[at] = inside / block == inside % block ? 1.0 : 0.0;
    }
}
