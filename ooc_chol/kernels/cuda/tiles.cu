// A small kernel beside the vendor's products: tiles are row-major, 64-bit indices throughout.

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
