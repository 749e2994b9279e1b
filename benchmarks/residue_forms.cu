// Strassen's products in Winograd's form on planes of residues: sums of blocks, made again canonical, and what seven products add
// up to. In front of this text stand PLANES and the tables MODULUS and LOWEST by plane, written by residue_rates.py.
//
// Rows and columns are split inside each tile, so that a tile's sums need nothing of another tile: of the 2 `half` rows or columns
// of a tile the first half counts as block 1, the rest as block 2. An array of halves holds `half` of each tile.

typedef long long i64;
typedef unsigned long long u64;

#define WIDE 16 // entries of int8 that a thread reads at once

struct __align__(16) Bytes {
    signed char at[WIDE];
};

// s mod m, canonical, for |s| below 3 m / 2.
__device__ __forceinline__ int wrapped(int s, int m, int lowest)
{
    s -= s > lowest + m - 1 ? m : 0;
    return s + (s < lowest ? m : 0);
}

// Place of an index among halves in the whole array.
__device__ __forceinline__ i64 place_of(i64 index, int half, int block)
{
    return index + index / half * half + block * half;
}

// Uniform residues, from a hash of plane and place: entry i of plane p, in [LOWEST[p] >> narrower, ...].
extern "C" __global__ void fill(signed char* out, i64 entries, int planes, u64 seed, int narrower)
{
    const i64 first = WIDE * (blockIdx.x * (i64)blockDim.x + threadIdx.x);
    for (int p = 0; p < planes && first < entries; ++p) {
        Bytes bytes;
        const int m = MODULUS[p] >> narrower, lowest = LOWEST[p] / (1 << narrower);
        for (int i = 0; i < WIDE; ++i) {
            u64 z = seed + (p * (u64)entries + first + i) * 0x9E3779B97F4A7C15ull;
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
            bytes.at[i] = (signed char)(lowest + (int)(((z >> 32) * (u64)m) >> 32));
        }
        *(Bytes*)(out + p * entries + first) = bytes;
    }
}

// The seven factors of a strip. in: `planes` planes of `rows` by `cols`; out: plane f * planes + p is factor f of plane p, of
// half the rows and columns. Of the left strip a: a11, a12, s4, a22, s1, s2, s3 with s1 = a21 + a22, s2 = s1 - a11,
// s3 = a11 - a21, s4 = a12 - s2. Of the right one, whose rows are columns of the product, so that b12 is rows of block 2 and
// columns of block 1: b11, b21, b22, t4, t1, t2, t3 with t1 = b12 - b11, t2 = b22 - t1, t3 = b22 - b12, t4 = t2 - b21.
extern "C" __global__ void factors(const signed char* in, signed char* out, i64 rows, i64 cols, int planes, int half_rows,
                                   int half_cols, int is_right)
{
    const i64 out_rows = rows / 2, out_cols = cols / 2;
    const i64 col = WIDE * (blockIdx.x * (i64)blockDim.x + threadIdx.x);
    const int p = blockIdx.z;
    if (col >= out_cols) {
        return;
    }
    const int m = MODULUS[p % PLANES], lowest = LOWEST[p % PLANES];
    const signed char* from = in + p * rows * cols;
    for (i64 row = blockIdx.y; row < out_rows; row += gridDim.y) {
        Bytes x[2][2], y[7];
        for (int r = 0; r < 2; ++r) {
            for (int c = 0; c < 2; ++c) {
                x[r][c] = *(const Bytes*)(from + place_of(row, half_rows, r) * cols + place_of(col, half_cols, c));
            }
        }
#pragma unroll
        for (int i = 0; i < WIDE; ++i) {
            const int x11 = x[0][0].at[i], x12 = x[0][1].at[i], x21 = x[1][0].at[i], x22 = x[1][1].at[i];
            int y2, y3, y4, y5, y6;
            if (is_right) { // b11 = x11, b21 = x12, b12 = x21, b22 = x22
                y4 = wrapped(x21 - x11, m, lowest);
                y5 = wrapped(x22 - y4, m, lowest);
                y6 = wrapped(x22 - x21, m, lowest);
                y3 = wrapped(y5 - x12, m, lowest);
                y2 = x22;
            } else {
                y4 = wrapped(x21 + x22, m, lowest);
                y5 = wrapped(y4 - x11, m, lowest);
                y6 = wrapped(x11 - x21, m, lowest);
                y2 = wrapped(x12 - y5, m, lowest);
                y3 = x22;
            }
            y[2].at[i] = (signed char)y2, y[3].at[i] = (signed char)y3, y[4].at[i] = (signed char)y4;
            y[5].at[i] = (signed char)y5, y[6].at[i] = (signed char)y6;
        }
        y[0] = x[0][0];
        y[1] = x[0][1];
#pragma unroll
        for (int f = 0; f < 7; ++f) {
            *(Bytes*)(out + ((f * (i64)planes + p) * out_rows + row) * out_cols + col) = y[f];
        }
    }
}

__device__ __forceinline__ int residue(int s, int m, int lowest)
{
    s %= m;
    s += s < 0 ? m : 0;
    return s > lowest + m - 1 ? s - m : s;
}

// out[p] = the product mod m_p, canonical, from its seven partial products: in[f * planes + p], of half the rows and columns.
extern "C" __global__ void combine(const int* in, int* out, i64 rows, i64 cols, int planes, int half_rows, int half_cols)
{
    const i64 in_rows = rows / 2, in_cols = cols / 2;
    const i64 col = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    const int p = blockIdx.z;
    if (col >= in_cols) {
        return;
    }
    const int m = MODULUS[p % PLANES], lowest = LOWEST[p % PLANES];
    for (i64 row = blockIdx.y; row < in_rows; row += gridDim.y) {
        int x[7];
#pragma unroll
        for (int f = 0; f < 7; ++f) {
            x[f] = residue(in[((f * (i64)planes + p) * in_rows + row) * in_cols + col], m, lowest);
        }
        const int u2 = x[0] + x[5], u3 = u2 + x[6];
        const int sums[2][2] = {{x[0] + x[1], u2 + x[4] + x[2]}, {u3 - x[3], u3 + x[4]}};
        for (int r = 0; r < 2; ++r) {
            for (int c = 0; c < 2; ++c) {
                const i64 at = place_of(row, half_rows, r) * cols + place_of(col, half_cols, c);
                out[p * rows * cols + at] = residue(sums[r][c], m, lowest);
            }
        }
    }
}

// Entries in which x mod m_p, canonical or not, differs from the canonical y.
extern "C" __global__ void count_different(const int* x, const int* y, i64 entries, u64* found)
{
    const int p = blockIdx.y, m = MODULUS[p], lowest = LOWEST[p];
    u64 mine = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < entries; i += gridDim.x * (i64)blockDim.x) {
        mine += residue(x[p * entries + i], m, lowest) != y[p * entries + i];
    }
    if (mine) {
        atomicAdd(found, mine);
    }
}
