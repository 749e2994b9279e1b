// What follows cuSOLVER's POTRF of a row-major matrix: zeros above the diagonal, and the first pivot that is none.

// One thread an entry, threads of a block along a row. verdict holds 2^32 - 1 before.
extern "C" __global__ void finish_lower(double* l, int n, unsigned int* verdict)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    for (int row = blockIdx.y; row < n; row += gridDim.y) {
        if (column >= n || column < row) continue;
        double* entry = l + (long long)row * n + column;
        if (column > row) *entry = 0.0;
        else if (!(*entry > 0.0 && *entry < 1.0 / 0.0)) atomicMin(verdict, (unsigned int)row + 1u);
    }
}
