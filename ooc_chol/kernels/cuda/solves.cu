// Sums over right-hand sides and products. Their order depends on the shape alone: one thread makes each number.

// out[j] += sum_i x[i, j]**2 of a row-major array; a thread a column, so that neighbours read neighbours.
extern "C" __global__ void add_column_squares(const double* __restrict__ x, int rows, int columns, double* out)
{
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) {
        return;
    }
    double sums[4] = {0.0, 0.0, 0.0, 0.0}; // four loads in flight
    for (int i = 0; i < rows; i += 4) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (i + k < rows) {
                const double entry = x[(long long)(i + k) * columns + j];
                sums[k] = fma(entry, entry, sums[k]);
            }
        }
    }
    out[j] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// targets[k, e] -= products[k, 0, e], then products[k, 1, e] and so on; steps are in entries. Blocks along y take a k each.
template <typename Real>
__device__ void subtract(
    Real* targets, const Real* products, long long entries, int terms, long long step, long long of_products, long long of_terms)
{
    const long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= entries) {
        return;
    }
    Real* target = targets + blockIdx.y * step + e;
    const Real* product = products + blockIdx.y * of_products + e;
    Real left = *target;
#pragma unroll 4
    for (int t = 0; t < terms; ++t) {
        left -= product[t * of_terms];
    }
    *target = left;
}

extern "C" __global__ void subtract_float64(
    double* targets, const double* products, long long entries, int terms, long long step, long long of_products,
    long long of_terms)
{
    subtract(targets, products, entries, terms, step, of_products, of_terms);
}

extern "C" __global__ void subtract_float32(
    float* targets, const float* products, long long entries, int terms, long long step, long long of_products, long long of_terms)
{
    subtract(targets, products, entries, terms, step, of_products, of_terms);
}
