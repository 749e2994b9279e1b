// A covariance function of one scaled distance z = |x_i - x_j| * scale from its table (radial_table.py), one thread an entry; errors
// of observations by index, never by distance.
//
// A table has a polynomial of degree 7 for each sixteenth of a binade: exponent and leading four bits of the mantissa of z number
// the piece, the other 48 bits are the place -1 <= s < 1 in it, exactly. The first and the last piece are constant, and hold for
// all smaller and all larger z. The variance is in the coefficients.
#ifndef DIMENSIONS
#define DIMENSIONS 2
#endif

extern "C" __global__ void radial(double* out, int rows, int cols, long long row0, long long col0, const double* sites,
                                  const double* diagonal, double scale, const double* table, int before, int last)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const double *a = sites + DIMENSIONS * (row0 + r), *b = sites + DIMENSIONS * (col0 + c);
    double square = 0.0;
#pragma unroll
    for (int axis = 0; axis < DIMENSIONS; ++axis) {
        const double difference = __ldg(a + axis) - __ldg(b + axis);
        square = fma(difference, difference, square);
    }
    const double z = sqrt(square) * scale;
    const int high = __double2hiint(z), low = __double2loint(z);
    const int piece = min(max((high >> 16) - before, 0), last);
    // the mantissa without its leading four bits, under the exponent of 2, is 3 + s
    const double s = __hiloint2double(0x40000000 | (high & 0xffff) << 4 | (int)((unsigned)low >> 28), low << 4) - 3.0;
    const double2* p = (const double2*)table + 4 * piece;
    const double2 p67 = __ldg(p + 3), p45 = __ldg(p + 2), p23 = __ldg(p + 1), p01 = __ldg(p);
    double value = fma(p67.y, s, p67.x);
    value = fma(fma(value, s, p45.y), s, p45.x);
    value = fma(fma(value, s, p23.y), s, p23.x);
    value = fma(fma(value, s, p01.y), s, p01.x);
    out[(long long)r * cols + c] = row0 + r == col0 + c ? __ldg(diagonal + row0 + r) : value;
}
