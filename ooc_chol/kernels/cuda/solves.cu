// Sums over right-hand sides. Their order depends on the shape alone: one thread makes each number.

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
