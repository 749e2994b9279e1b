// Rows of a complex L as residues, two a modulus: conversion, folding and reconstruction. Products are the vendor's.
//
// In front of this text stands residue_numbers.cu, and what an entry of a tile is: ENTRY, a vector of two. ROOT[p]**2 is -1
// modulo m_p: plane p holds x + ROOT[p] y and plane MODULI + p, "the other", x - ROOT[p] y of the entry x + iy. Arrays are
// row-major planes with any strides, in items and 64-bit throughout.

// Exponents and limits of count rows from first_row, from the real parts of the diagonal of a block of A.
extern "C" __global__ void diagonal(
    const ENTRY* a, long long a_stride, int count, long long first_row, int* exponents, double* limits, u64* first_flagged)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        scale_row(widened(a[i * (a_stride + 1)].x), first_row + i, exponents, limits, first_flagged);
    }
}

// The words of round(t) + 2**63; what no int64 can hold becomes 0.
__device__ __forceinline__ void words_of(double t, unsigned& low, unsigned& high)
{
    const u64 q = fabs(t) < 9223372036854775808.0 ? (u64)__double2ll_rn(t) : 0;
    low = (unsigned)q;
    high = (unsigned)(q >> 32) ^ 0x80000000u;
}

// Four residues, each in the low byte, as the bytes of a word.
__device__ __forceinline__ unsigned packed(const int (&residues)[CONVERT_COLUMNS])
{
    const unsigned r01 = __byte_perm(residues[0], residues[1], 0x0040), r23 = __byte_perm(residues[2], residues[3], 0x0040);
    return __byte_perm(r01, r23, 0x5410);
}

// Store four adjacent residues of a plane, of which so many columns exist; at once where that is aligned.
__device__ __forceinline__ void store_four(signed char* at, unsigned residues, int columns, int is_aligned)
{
    if (is_aligned) {
        *(unsigned*)at = residues;
        return;
    }
#pragma unroll
    for (int i = 0; i < CONVERT_COLUMNS; ++i) {
        if (i < columns) {
            at[i] = (signed char)(residues >> (8 * i));
        }
    }
}

// out[p][r][c] and out[MODULI + p][r][c] of round(2**e_r x[r][c]), both parts rounded, canonical; one block a row, four adjacent
// columns a thread and round.
// is_first: the squares are added to the row's running sum, and the row is flagged unless the sum is within its limit, which a
// NaN is not. What no int64 can hold gets residues as of 0: its row is flagged.
// is_aligned: rows of out are aligned to 4, and cols is a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS) convert(
    const ENTRY* __restrict__ x, long long x_stride, signed char* __restrict__ out, long long out_stride, long long out_plane,
    int cols, long long first_row, const int* __restrict__ exponents, const double* __restrict__ limits, double* sums,
    u64* first_flagged, int is_first, int is_aligned)
{
    const long long row = blockIdx.x;
    const double scale = power_of_two(exponents[first_row + row]);
    double squares = 0.0;
    x += row * x_stride;
    out += row * out_stride;
    for (int col = CONVERT_COLUMNS * threadIdx.x; col < cols; col += CONVERT_COLUMNS * THREADS) {
        unsigned real_low[CONVERT_COLUMNS], real_high[CONVERT_COLUMNS], imag_low[CONVERT_COLUMNS], imag_high[CONVERT_COLUMNS];
#pragma unroll
        for (int i = 0; i < CONVERT_COLUMNS; ++i) {
            const bool is_there = is_aligned || col + i < cols;
            const double real = is_there ? scale * widened(x[col + i].x) : 0.0;
            const double imag = is_there ? scale * widened(x[col + i].y) : 0.0;
            squares = __fma_rn(imag, imag, __fma_rn(real, real, squares));
            words_of(real, real_low[i], real_high[i]);
            words_of(imag, imag_low[i], imag_high[i]);
        }
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            int one[CONVERT_COLUMNS], other[CONVERT_COLUMNS];
#pragma unroll
            for (int i = 0; i < CONVERT_COLUMNS; ++i) {
                const int real = (signed char)residue64(real_low[i], real_high[i], p);
                const int imag = ROOT[p] * (signed char)residue64(imag_low[i], imag_high[i], p);
                one[i] = reduced(MAGIC_BITS + real + imag, p); // |real + imag| <= 120 + 120**2
                other[i] = reduced(MAGIC_BITS + real - imag, p);
            }
            signed char* at = out + p * out_plane + col;
            store_four(at, packed(one), cols - col, is_aligned);
            store_four(at + MODULI * out_plane, packed(other), cols - col, is_aligned);
        }
    }
    if (is_first) {
        add_squares(squares, first_row + row, limits, sums, first_flagged);
    }
}

// s[p][r][c] = s[p][r][c] mod m_p, canonical, in place, and s[MODULI + p][r][c]; all planes of an entry by one thread.
extern "C" __global__ void __launch_bounds__(THREADS) fold(int* s, long long stride, long long plane, int rows, int cols)
{
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col >= cols) {
        return;
    }
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        int* at = s + row * stride + col;
        int sums[2 * MODULI];
#pragma unroll
        for (int p = 0; p < 2 * MODULI; ++p) {
            sums[p] = at[p * plane];
        }
#pragma unroll
        for (int p = 0; p < 2 * MODULI; ++p) {
            at[p * plane] = residue32(sums[p], p % MODULI);
        }
    }
}

// A sum over p of t_p w_p by the 32-bit digits of the w_p, each in a double and exact.
struct Digits {
    double digit0, digit1, digit2, digit3;

    __device__ __forceinline__ void add(double t, double weight0, double weight1, double weight2, double weight3)
    {
        digit0 = __fma_rn(t, weight0, digit0);
        digit1 = __fma_rn(t, weight1, digit1);
        digit2 = __fma_rn(t, weight2, digit2);
        digit3 = __fma_rn(t, weight3, digit3);
    }

    __device__ __forceinline__ __int128 remainder() const { return remainder_of(digit0, digit1, digit2, digit3); }
};

// A[r][c] -= X 2**-(e_r + e_c) with X = sum_k q_rk conj(q_ck), both parts, from residues s[p][r][c] and s[MODULI + p][r][c], int32
// folded or not, or int8: with u and v these modulo m_p, canonical, X is sum_p (u + v) w_p / 2 and sum_p (u - v) w_p / (2 ROOT[p]) modulo P, whose
// weights are REAL and IMAG. Digits are exact, since 16 times 2**8 times 2**32 is 2**44. Parts in float are rounded from a double.
template <class S>
__device__ __forceinline__ void reconstruct_from(
    const S* __restrict__ s, long long stride, long long plane, ENTRY* __restrict__ a, long long a_stride, int rows, int cols,
    const int* __restrict__ row_exponents, const int* __restrict__ col_exponents)
{
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col >= cols) {
        return;
    }
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        Digits real = {}, imag = {};
        const S* at = s + row * stride + col;
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            const int u = folded(at[p * plane], p), v = folded(at[(MODULI + p) * plane], p);
            real.add(u + v, REAL0[p], REAL1[p], REAL2[p], REAL3[p]);
            imag.add(u - v, IMAG0[p], IMAG1[p], IMAG2[p], IMAG3[p]);
        }
        ENTRY* target = a + row * a_stride + col;
        const int e = row_exponents[row] + col_exponents[col];
        const double of_real = difference(widened(target->x), real.remainder(), e);
        const double of_imag = difference(widened(target->y), imag.remainder(), e);
        put(&target->x, of_real);
        put(&target->y, of_imag);
    }
}

RECONSTRUCT(reconstruct, int, 6)
RECONSTRUCT(reconstruct_folded, signed char, 6)
