// Sums over right-hand sides. Their order depends on the shape alone: one thread, or one tree, makes each number.

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

// out[0] += trace of a row-major square; one block of 256 threads.
extern "C" __global__ void add_trace(const double* __restrict__ square, int order, double* out)
{
    __shared__ double sums[256];
    double sum = 0.0;
    for (int i = threadIdx.x; i < order; i += 256) {
        sum += square[(long long)i * (order + 1)];
    }
    sums[threadIdx.x] = sum;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) {
            sums[threadIdx.x] += sums[threadIdx.x + width];
        }
    }
    if (threadIdx.x == 0) {
        out[0] += sums[0];
    }
}
