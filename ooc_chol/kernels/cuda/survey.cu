// What is measured of A's tiles beside their norms: the diagonal, and a sample of entries.

// The diagonal of a square tile, and its lower triangle mirrored to the upper one: what stood there may be anything, and the norm
// of the square is wanted. Blocks of 32 x 8 threads take squares of 32 below the diagonal of blocks, through shared memory.
extern "C" __global__ void mirror_lower(double* tile, int order, double* diagonal)
{
    __shared__ double square[32][33];
    const int top = 32 * blockIdx.y, left = 32 * blockIdx.x;
    if (left > top) {
        return;
    }
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = top + y, column = left + threadIdx.x;
        if (row < order && column <= row) {
            square[y][threadIdx.x] = tile[(long long)row * order + column];
        }
    }
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = left + y, column = top + threadIdx.x; // above the diagonal
        if (row < column && column < order) {
            tile[(long long)row * order + column] = square[threadIdx.x][y];
        } else if (row == column && row < order) {
            diagonal[row] = square[y][y];
        }
    }
}

// Every step-th row and column of a tile with `columns` columns, to rows with `stride` entries between them; a thread an entry.
extern "C" __global__ void sample_tile(
    const double* __restrict__ tile, int columns, int step, int sampled_rows, int sampled_columns, double* to, int stride)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < sampled_rows && c < sampled_columns) {
        to[(long long)r * stride + c] = tile[(long long)r * step * columns + c * step];
    }
}
