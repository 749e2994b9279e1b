// Matern covariance of half-integer smoothness, one thread an entry; nugget by index, never by distance.
extern "C" __global__ void matern(double* out, int rows, int cols, long long row0, long long col0,
                                  const double* sites, int dimensions, int twice_nu, double variance, double range, double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    double square = 0.0;
    for (int axis = 0; axis < dimensions; ++axis) {
        const double difference = sites[i * dimensions + axis] - sites[j * dimensions + axis];
        square += difference * difference;
    }
    const double h = sqrt(square) / range;
    double value = exp(-h);
    if (twice_nu == 3) value *= 1.0 + h;
    if (twice_nu == 5) value *= 1.0 + h + h * h / 3.0;
    out[(long long)r * cols + c] = variance * value + (i == j ? nugget : 0.0);
}
