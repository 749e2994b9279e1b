// Small kernels around the vendor's: tiles are row-major, 64-bit indices throughout.

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
