// Rows of a real L as residues, one a modulus: conversion, folding and reconstruction. Products are the vendor's.
//
// In front of this text stands residue_numbers.cu, and what an entry of a tile is: ENTRY, which ENTRIES below reads. Arrays are
// row-major planes with any strides, in items and 64-bit throughout.

// The bits of x in FP16, rounded to nearest even.
__device__ __forceinline__ unsigned short fp16_bits(double x)
{
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}

// A number of 17 bits and a sign that is s modulo m_p.
__device__ __forceinline__ double residue17(int s, int plane)
{
    const int biased = dot_bytes((unsigned)s ^ 0x80000000u, LOW_BYTES[plane], (int)(0x80000000u - OFFSET32[plane]));
    return __hiloint2double(0x43300000, biased) - (0x1p52 + 0x1p31); // 2**52 + 2**31 + t, less what is not t
}

// A residue that is canonical already.
__device__ __forceinline__ double residue17(signed char s, int plane)
{
    return __hiloint2double(0x43300000, (int)s ^ 0x80000000) - (0x1p52 + 0x1p31);
}

// Exponents and limits of count rows from first_row, from the diagonal of a block of A.
extern "C" __global__ void diagonal(
    const ENTRY* a, long long a_stride, int count, long long first_row, int* exponents, double* limits, u64* first_flagged)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        scale_row(widened(a[i * (a_stride + 1)]), first_row + i, exponents, limits, first_flagged);
    }
}

// How entries of a tile are read, four adjacent ones at once where that is aligned: FP64, or as stored in a narrower format, of
// which the last two have a scale, 2**-exponent.
struct __align__(16) Doubles {
    double x, y, z, w;
};

struct Fp64 {
    typedef double Code;
    typedef Doubles Codes;
    static constexpr bool HAS_SCALE = false;
    static __device__ __forceinline__ double value(double code) { return code; }
};

struct Fp32 {
    typedef float Code;
    typedef float4 Codes;
    static constexpr bool HAS_SCALE = false;
    static __device__ __forceinline__ double value(float code) { return widened(code); }
};

struct Fp16 {
    typedef unsigned short Code;
    typedef ushort4 Codes;
    static constexpr bool HAS_SCALE = true;
    static __device__ __forceinline__ double value(unsigned short code)
    {
        double value;
        asm("cvt.f64.f16 %0, %1;" : "=d"(value) : "h"(code));
        return value;
    }
};

struct Fp8 { // E4M3: with its sign, exponent and fraction in their places in FP16, it is 2**-8 times its value
    typedef unsigned char Code;
    typedef uchar4 Codes;
    static constexpr bool HAS_SCALE = true;
    static __device__ __forceinline__ double value(unsigned char code)
    {
        return 256.0 * Fp16::value((unsigned short)((code & 0x80) << 8 | (code & 0x7F) << 7));
    }
};

// out[p][r][c] = round(2**e_r x[r][c]) mod m_p, canonical; one block a row, four adjacent columns a thread and round.
// is_first: the squares are added to the row's running sum, and the row is flagged unless the sum is within its limit, which a
// NaN is not. What no int64 can hold gets residues of 0: its row is flagged.
// is_aligned: rows of x are aligned to four entries but at most 16 bytes, of out to 4, of fp16 to 8, and cols is a multiple of 4.
// fp16, unless it is null: fp16[r][c] = 2**h_r x[r][c] in FP16, h_r = e_r + FP16_SHIFT.
// behind, of a format with a scale: its exponent.
template <class F>
__device__ __forceinline__ void convert_rows(
    const typename F::Code* __restrict__ x, long long x_stride, signed char* __restrict__ out, long long out_stride,
    long long out_plane, int cols, long long first_row, const int* __restrict__ exponents, const double* __restrict__ limits,
    double* sums, u64* first_flagged, int is_first, int is_aligned, unsigned short* __restrict__ fp16, long long fp16_stride,
    const long long* __restrict__ behind)
{
    const long long row = blockIdx.x;
    const int power = exponents[first_row + row] - (F::HAS_SCALE ? (int)*behind : 0);
    // The exponent of a tile of tiny entries is beyond a double's; then the scale is applied in two steps.
    const double scale = power_of_two(max(-1022, min(power, 1022))), rest = power_of_two(power - max(-1022, min(power, 1022)));
    double squares = 0.0;
    x += row * x_stride;
    out += row * out_stride;
    fp16 += fp16 ? row * fp16_stride : 0;
    for (int col = CONVERT_COLUMNS * threadIdx.x; col < cols; col += CONVERT_COLUMNS * THREADS) {
        double t[CONVERT_COLUMNS];
        if (is_aligned) {
            const typename F::Codes codes = *(const typename F::Codes*)(x + col);
            t[0] = F::value(codes.x), t[1] = F::value(codes.y), t[2] = F::value(codes.z), t[3] = F::value(codes.w);
        } else {
#pragma unroll
            for (int i = 0; i < CONVERT_COLUMNS; ++i) {
                t[i] = col + i < cols ? F::value(x[col + i]) : 0.0;
            }
        }
#pragma unroll
        for (int i = 0; i < CONVERT_COLUMNS; ++i) {
            t[i] *= scale;
            t[i] *= F::HAS_SCALE ? rest : 1.0;
        }
        unsigned low[CONVERT_COLUMNS], high[CONVERT_COLUMNS];
        if (fp16) {
            unsigned short h[CONVERT_COLUMNS];
#pragma unroll
            for (int i = 0; i < CONVERT_COLUMNS; ++i) {
                h[i] = fp16_bits(t[i] * power_of_two(FP16_SHIFT));
            }
            if (is_aligned) {
                *(ushort4*)(fp16 + col) = make_ushort4(h[0], h[1], h[2], h[3]);
            } else {
#pragma unroll
                for (int i = 0; i < CONVERT_COLUMNS; ++i) {
                    if (col + i < cols) {
                        fp16[col + i] = h[i];
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < CONVERT_COLUMNS; ++i) {
            squares = __fma_rn(t[i], t[i], squares);
            const u64 q = fabs(t[i]) < 9223372036854775808.0 ? (u64)__double2ll_rn(t[i]) : 0;
            low[i] = (unsigned)q;
            high[i] = (unsigned)(q >> 32) ^ 0x80000000u;
        }
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            const unsigned r01 = __byte_perm(residue64(low[0], high[0], p), residue64(low[1], high[1], p), 0x0040);
            const unsigned r23 = __byte_perm(residue64(low[2], high[2], p), residue64(low[3], high[3], p), 0x0040);
            const unsigned r = __byte_perm(r01, r23, 0x5410);
            signed char* at = out + p * out_plane + col;
            if (is_aligned) {
                *(unsigned*)at = r;
            } else {
#pragma unroll
                for (int i = 0; i < CONVERT_COLUMNS; ++i) {
                    if (col + i < cols) {
                        at[i] = (signed char)(r >> (8 * i));
                    }
                }
            }
        }
    }
    if (is_first) {
        add_squares(squares, first_row + row, limits, sums, first_flagged);
    }
}

#define CONVERT(name, F) \
    extern "C" __global__ void __launch_bounds__(THREADS) name( \
        const F::Code* x, long long x_stride, signed char* out, long long out_stride, long long out_plane, int cols, \
        long long first_row, const int* exponents, const double* limits, double* sums, u64* first_flagged, int is_first, \
        int is_aligned, unsigned short* fp16, long long fp16_stride, const long long* behind) \
    { \
        convert_rows<F>( \
            x, x_stride, out, out_stride, out_plane, cols, first_row, exponents, limits, sums, first_flagged, is_first, \
            is_aligned, fp16, fp16_stride, behind); \
    }

CONVERT(convert, ENTRIES)
CONVERT(convert_fp32, Fp32)
CONVERT(convert_fp16, Fp16)
CONVERT(convert_fp8, Fp8)

// s[p][r][c] = s[p][r][c] mod m_p, canonical, in place; all planes of an entry by one thread.
extern "C" __global__ void __launch_bounds__(THREADS) fold(int* s, long long stride, long long plane, int rows, int cols)
{
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col >= cols) {
        return;
    }
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        int* at = s + row * stride + col;
        int sums[MODULI];
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            sums[p] = at[p * plane];
        }
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            at[p * plane] = residue32(sums[p], p);
        }
    }
}

// A[r][c] -= X 2**-(e_r + e_c) with X = sum_k q_rk q_ck from residues s[p][r][c], int32 folded or not, or int8. A thread's columns are THREADS
// apart. With t_p = s_p modulo m_p of 17 bits, X = sum_p t_p w_p mod P. The sum is kept by 32-bit digits of the w_p, each in a
// double and exact, since 16 times 2**17 times 2**32 is 2**53. A float is rounded from
// a double.
template <class S>
__device__ __forceinline__ void reconstruct_from(
    const S* __restrict__ s, long long stride, long long plane, ENTRY* __restrict__ a, long long a_stride, int rows, int cols,
    const int* __restrict__ row_exponents, const int* __restrict__ col_exponents)
{
    const int first_col = blockIdx.x * (RECONSTRUCT_COLUMNS * THREADS) + threadIdx.x;
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        double digit0[RECONSTRUCT_COLUMNS] = {}, digit1[RECONSTRUCT_COLUMNS] = {};
        double digit2[RECONSTRUCT_COLUMNS] = {}, digit3[RECONSTRUCT_COLUMNS] = {};
#pragma unroll
        for (int p = 0; p < MODULI; ++p) {
            const S* at = s + row * stride + p * plane + first_col;
#pragma unroll
            for (int i = 0; i < RECONSTRUCT_COLUMNS; ++i) {
                const double t = residue17(first_col + i * THREADS < cols ? at[i * THREADS] : S(0), p);
                digit0[i] = __fma_rn(t, WEIGHT0[p], digit0[i]);
                digit1[i] = __fma_rn(t, WEIGHT1[p], digit1[i]);
                digit2[i] = __fma_rn(t, WEIGHT2[p], digit2[i]);
                digit3[i] = __fma_rn(t, WEIGHT3[p], digit3[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < RECONSTRUCT_COLUMNS; ++i) {
            const int col = first_col + i * THREADS;
            if (col < cols) {
                ENTRY* target = a + row * a_stride + col;
                const __int128 x = remainder_of(digit0[i], digit1[i], digit2[i], digit3[i]);
                put(target, difference(widened(*target), x, row_exponents[row] + col_exponents[col]));
            }
        }
    }
}

RECONSTRUCT(reconstruct, int, 8)
RECONSTRUCT(reconstruct_folded, signed char, 8)

// A[r][c] -= F[r][c] 2**-(h_r + h_c), h = e + FP16_SHIFT: sums of products in FP16, which are in FP32.
extern "C" __global__ void __launch_bounds__(THREADS) subtract_narrow(
    const float* __restrict__ f, long long stride, double* __restrict__ a, long long a_stride, int rows, int cols,
    const int* __restrict__ row_exponents, const int* __restrict__ col_exponents)
{
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col >= cols) {
        return;
    }
    const double col_scale = power_of_two(-(col_exponents[col] + FP16_SHIFT));
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const double row_scale = power_of_two(-(row_exponents[row] + FP16_SHIFT));
        a[row * a_stride + col] -= (double)f[row * stride + col] * row_scale * col_scale;
    }
}
