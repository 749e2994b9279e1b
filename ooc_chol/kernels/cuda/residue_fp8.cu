// Products of planes of residues by the FP8 tensor cores of Hopper (sm_90a), with the bits of int8 products.
//
//   S[p] (+)= left[p] @ right[p].T,   S (planes, rows, cols) in int32, or modulo m_p in int8, left (planes, rows, inner), right (planes, cols, inner)
//
// A residue is r = 16 a + b with whole a and b from -8 to 8, which E4M3 holds. With s = 16 c + d
//
//   r s = 256 a c + 16 (a d + b c) + b d.
//
// Tensor cores keep about 14 bits of a sum of such products: TERMS of each are added there, up to 2**13, and what they come to in int32.
// A thread block is one warp group, for a tile of one plane. K, addresses and strides of the operands are multiples of 16.
//
// In front of this text stands residue_hopper.cu.

constexpr int DEPTH = 128, STEP = 32, TERMS = 64;
constexpr int PIECE = 16; // bytes that are read and swizzled together
constexpr int DIGIT_BYTES = TILE * DEPTH;
static_assert(TILE == 64 && THREADS == 128); // what an instruction multiplies, and by how many threads

// Planes of rows: address, and bytes from row to row and from plane to plane.
template <class T>
struct Planes {
    T* address;
    long long row_bytes, plane_bytes;
    __device__ __forceinline__ T* at(int plane, int row) const
    {
        return (T*)((char*)address + plane * plane_bytes + row * row_bytes);
    }
};

struct Shape {
    int rows, cols, inner;
    int accumulates, lower;
};

// Both digits of four residues, a in high and b in low: of x = r + 128, a + 8 = (x + 8) / 16 and b + 8 = (x + 8) mod 16.
__device__ __forceinline__ void split(u32 residues, u32& high, u32& low)
{
    const u32 x = residues ^ 0x80808080u;
    high = less_eight_in_e4m3(((x >> 4) & 0x0F0F0F0Fu) + ((x >> 3) & 0x01010101u));
    low = less_eight_in_e4m3((x & 0x0F0F0F0Fu) ^ 0x08080808u);
}

// The digits of DEPTH columns of TILE rows, a and then b, with a swizzle of 128 bytes; zero where there are no such rows or columns.
__device__ __forceinline__ void store_digits(
    unsigned char* digits, const signed char* from, long long row_bytes, int rows, int columns)
{
#pragma unroll 2
    for (int i = 0; i < DIGIT_BYTES / PIECE / THREADS; i++) {
        const int piece = i * THREADS + threadIdx.x, row = piece / (DEPTH / PIECE), column = piece % (DEPTH / PIECE) * PIECE;
        uint4 residues = {0, 0, 0, 0}, high, low;
        if (row < rows && column < columns) {
            residues = *(const uint4*)(from + row * row_bytes + column);
        }
        split(residues.x, high.x, low.x);
        split(residues.y, high.y, low.y);
        split(residues.z, high.z, low.z);
        split(residues.w, high.w, low.w);
        uint4* to = (uint4*)(digits + row * DEPTH + (column ^ row % 8 * PIECE));
        *to = high;
        *(uint4*)((unsigned char*)to + DIGIT_BYTES) = low;
    }
}

// sums += products of TERMS columns, whose digits begin at these addresses in shared memory.
__device__ __forceinline__ void add_products(int (&sums)[32], u32 left, u32 right)
{
    float high[32] = {}, mixed[32] = {}, low[32] = {};
    pin(high), pin(mixed), pin(low);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < TERMS; k += STEP) {
        const u64 a = descriptor(left + k), b = descriptor(left + DIGIT_BYTES + k);
        const u64 c = descriptor(right + k), d = descriptor(right + DIGIT_BYTES + k);
        multiply_e4m3(high, a, c);
        multiply_e4m3(mixed, a, d);
        multiply_e4m3(mixed, b, c);
        multiply_e4m3(low, b, d);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(high), pin(mixed), pin(low);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        sums[i] += (int)(256.0f * high[i] + 16.0f * mixed[i] + low[i]); // exact: at most 2**20
    }
}

__device__ __forceinline__ void put(int* to, int sum, bool accumulates, const Modulus&) { *to = accumulates ? *to + sum : sum; }

__device__ __forceinline__ void put(signed char* to, int sum, bool accumulates, const Modulus& m)
{
    *to = (signed char)reduced(sum, accumulates ? *to : 0, m);
}

template <class S>
__device__ __forceinline__ void multiply(
    const Planes<const signed char>& left, const Planes<const signed char>& right, const Planes<S>& target, const Moduli& moduli,
    const Shape& shape)
{
    __shared__ __align__(1024) unsigned char digits[4 * DIGIT_BYTES];
    unsigned char *of_left = digits, *of_right = digits + 2 * DIGIT_BYTES;
    const int high = (shape.rows + TILE - 1) / TILE, wide = (shape.cols + TILE - 1) / TILE;
    const int plane = blockIdx.x / (high * wide), in_plane = blockIdx.x - plane * (high * wide);
    const int row = in_plane % high * TILE, col = in_plane / high * TILE;
    if (shape.lower && col >= row + TILE) {
        return; // wholly above the diagonal
    }
    int sums[32] = {};
    for (int k = 0; k < shape.inner; k += DEPTH) {
        store_digits(of_left, left.at(plane, row) + k, left.row_bytes, shape.rows - row, shape.inner - k);
        store_digits(of_right, right.at(plane, col) + k, right.row_bytes, shape.cols - col, shape.inner - k);
        show_to_tensor_cores();
        __syncthreads();
        for (int from = 0; from < DEPTH; from += TERMS) {
            add_products(sums, shared_address(of_left) + from, shared_address(of_right) + from);
        }
        __syncthreads();
    }
    // A warp has 16 rows, a thread two rows of two columns in each eight.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int at_row = row + 16 * warp + lane / 4 + i / 2 % 2 * 8, at_col = col + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (at_row < shape.rows && at_col < shape.cols) {
            put(target.at(plane, at_row) + at_col, sums[i], shape.accumulates, moduli.of[plane]);
        }
    }
}

#define MULTIPLY(name, S) \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) name( \
        const __grid_constant__ Planes<const signed char> left, const __grid_constant__ Planes<const signed char> right, \
        const __grid_constant__ Planes<S> sums, const __grid_constant__ Moduli moduli, const __grid_constant__ Shape shape) \
    { \
        multiply<S>(left, right, sums, moduli, shape); \
    }

MULTIPLY(multiply_digits_int8, signed char)
MULTIPLY(multiply_digits_int32, int)
