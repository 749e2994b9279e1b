// Tiles of narrow formats: rounded in place and measured, made into stored bytes, and widened again. Bit for bit what
// ooc_chol/formats.py does. Memory bound: a thread takes four adjacent entries at a time where the tile is aligned.
//
// Everything here is exact but the one rounding: multiplications are by powers of two. A number is rounded by adding and
// subtracting 1.5 * 2**k, whose last place is that of the format; its code is the top of the bits of a double with the format's
// exponent bias, subnormal numbers included, since FP64 arithmetic keeps them.

typedef unsigned long long u64;

#define GROUP 4
#define ALL_LANES 0xFFFFFFFFu
#define EXPONENT_BITS 0x7FF0000000000000ull // those of a double: an infinity

// DIGITS of the significand; BIAS of the exponent; scaled entries are below 2**TOP; codes above LARGEST_CODE are no numbers.
struct Fp64 {
    static constexpr int DIGITS = 53;
    static constexpr int TOP = 0;
    static constexpr bool HAS_SCALE = false;
};

struct Fp32 {
    typedef unsigned int Code;
    static constexpr int DIGITS = 24, BIAS = 127, TOP = 0;
    static constexpr Code LARGEST_CODE = 0x7F7FFFFF;
    static constexpr double LARGEST = 0x1.fffffep127;
    static constexpr bool HAS_SCALE = false, HAS_INFINITY = true;
};

struct Fp16 {
    typedef unsigned short Code;
    static constexpr int DIGITS = 11, BIAS = 15, TOP = 15;
    static constexpr Code LARGEST_CODE = 0x7BFF;
    static constexpr double LARGEST = 65504.0;
    static constexpr bool HAS_SCALE = true, HAS_INFINITY = true;
};

struct Fp8 { // E4M3
    typedef unsigned char Code;
    static constexpr int DIGITS = 4, BIAS = 7, TOP = 8;
    static constexpr Code LARGEST_CODE = 0x7E;
    static constexpr double LARGEST = 448.0;
    static constexpr bool HAS_SCALE = true, HAS_INFINITY = false;
};

// What is measured of a tile. The sums of squares are of entries times 2**exponent, which neither overflow nor vanish.
struct Row {
    double squares, lost_squares, row_sum, column_sum;
    u64 largest; // bits of the largest magnitude; those of a NaN are above all others
    long long exponent;
};

struct __align__(16) Entries {
    double of[GROUP];
};

template <class F> struct __align__(GROUP * sizeof(typename F::Code)) Codes {
    typename F::Code of[GROUP];
};

__device__ __forceinline__ u64 bits_of(double x)
{
    return (u64)__double_as_longlong(x);
}

// 2**power for -1022 <= power <= 1023.
__device__ __forceinline__ double power_of_two(int power)
{
    return __longlong_as_double((long long)(power + 1023) << 52);
}

// 2**e = first * second: tiles of very small or large entries have exponents beyond those of a double.
struct Scale {
    double first, second;
};

__device__ __forceinline__ Scale scale_of(int e)
{
    return {power_of_two(e >> 1), power_of_two(e - (e >> 1))};
}

__device__ __forceinline__ double scaled(double x, Scale scale)
{
    return __dmul_rn(__dmul_rn(x, scale.first), scale.second);
}

// The exponent of a tile with a scale, by the largest entry as the format rounds it; for others one that puts it below 1.
template <class F> __device__ int exponent_of(u64 largest)
{
    if (largest == 0 || largest >= EXPONENT_BITS) {
        return 0;
    }
    const int shift = largest >> 52 ? 0 : __clzll((long long)largest) - 11; // of a subnormal number, to a leading bit
    const u64 normal = largest << shift;
    const int power = (int)(normal >> 52) - shift - 1022; // as frexp: the mantissa is from 1/2 on and below 1
    int exponent = F::TOP - power;
    if constexpr (F::HAS_SCALE) {
        const u64 fraction = normal & ((1ull << 52) - 1);
        exponent -= fraction >= (1ull << 52) - (1ull << (52 - F::DIGITS)); // it rounds up to 1: 1/2 of the next binade
    }
    return exponent;
}

// The number of the format nearest to x, ties to even; beyond its range an infinity, or a NaN where there is none.
template <class F> __device__ __forceinline__ double rounded(double x)
{
    const int least = (1024 - F::BIAS) << 20, most = (1024 + F::BIAS) << 20; // first normal binade, and one behind the last
    const int binade = max(least, min(__double2hiint(x) & 0x7FF00000, most));
    const double magic = __hiloint2double((binade + ((53 - F::DIGITS) << 20)) | 0x00080000, 0);
    double nearest = __dsub_rn(__dadd_rn(x, magic), magic);
    if (!(fabs(nearest) <= F::LARGEST)) {
        nearest = __longlong_as_double((long long)EXPONENT_BITS | (long long)(x != x || !F::HAS_INFINITY) << 51);
    }
    return copysign(nearest, x); // of a zero, too
}

// Code of a number of the format; all ones is a NaN in every format.
template <class F> __device__ __forceinline__ typename F::Code code_of(double x)
{
    const double magnitude = fabs(x);
    u64 code = bits_of(__dmul_rn(magnitude, power_of_two(F::BIAS - 1023))) >> (53 - F::DIGITS);
    if (!(magnitude <= F::LARGEST)) {
        code = x != x ? ~0ull >> (65 - 8 * sizeof(typename F::Code)) : F::LARGEST_CODE + 1ull;
    }
    return (typename F::Code)(code | bits_of(x) >> 63 << (8 * sizeof(typename F::Code) - 1));
}

// The number of a code.
template <class F> __device__ __forceinline__ double value_of(typename F::Code code)
{
    const u64 sign = (u64)code >> (8 * sizeof(typename F::Code) - 1);
    const u64 magnitude = code ^ sign << (8 * sizeof(typename F::Code) - 1);
    double value = __dmul_rn(__longlong_as_double((long long)(magnitude << (53 - F::DIGITS))), power_of_two(1023 - F::BIAS));
    if (magnitude > F::LARGEST_CODE) {
        const bool is_nan = !F::HAS_INFINITY || magnitude > F::LARGEST_CODE + 1ull;
        value = __longlong_as_double((long long)EXPONENT_BITS | (long long)is_nan << 51);
    }
    return sign ? -value : value;
}

struct Sum {
    static __device__ __forceinline__ double of(double a, double b) { return a + b; }
};

struct Maximum {
    static __device__ __forceinline__ u64 of(u64 a, u64 b) { return a > b ? a : b; }
};

// All values of a warp in one, for its first lane.
template <class Operation, class T> __device__ __forceinline__ T over_warp(T value)
{
    for (int distance = 16; distance > 0; distance >>= 1) {
        value = Operation::of(value, __shfl_down_sync(ALL_LANES, value, distance));
    }
    return value;
}

// All values of a block in one, for its first thread; blocks are rows of whole warps.
template <class Operation, class T> __device__ __forceinline__ T over_block(T value)
{
    __shared__ T of_warp[32];
    value = over_warp<Operation>(value);
    __syncthreads(); // the values of an earlier call have been read
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < (blockDim.x + 31) / 32; ++warp) {
            value = Operation::of(value, of_warp[warp]);
        }
    }
    return value;
}

__device__ __forceinline__ long long first_of_thread()
{
    return blockIdx.x * (long long)blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long threads_of_grid()
{
    return (long long)gridDim.x * blockDim.x;
}

// How many groups of entries can be read at once.
__device__ __forceinline__ long long groups_of(const double* tile, long long entries)
{
    return (u64)tile % sizeof(double2) ? 0 : entries / GROUP;
}

template <class F>
__device__ __forceinline__ long long groups_of(const double* tile, const typename F::Code* stored, long long entries)
{
    return (u64)stored % sizeof(Codes<F>) ? 0 : groups_of(tile, entries);
}

// *most becomes the largest of itself and the bits of the magnitudes of a tile; zero before.
__device__ __forceinline__ void keep_largest_magnitude(const double* __restrict__ tile, long long entries, u64* most)
{
    const long long groups = groups_of(tile, entries);
    u64 largest = 0;
    for (long long at = first_of_thread(); at < groups; at += threads_of_grid()) {
        const Entries x = ((const Entries*)tile)[at];
#pragma unroll
        for (int place = 0; place < GROUP; ++place) {
            largest = Maximum::of(largest, bits_of(fabs(x.of[place])));
        }
    }
    for (long long at = GROUP * groups + first_of_thread(); at < entries; at += threads_of_grid()) {
        largest = Maximum::of(largest, bits_of(fabs(tile[at])));
    }
    largest = over_block<Maximum>(largest);
    if (threadIdx.x == 0) {
        atomicMax(most, largest);
    }
}

extern "C" __global__ void largest_magnitude(const double* __restrict__ tile, long long entries, u64* most)
{
    keep_largest_magnitude(tile, entries, most);
}

// Rounds entries, and adds up the squares of what they become and of what they lose, times 2**exponent.
template <class F> struct Rounding {
    Scale up, down;
    double squares, lost_squares;

    __device__ explicit Rounding(int exponent)
        : up(scale_of(exponent)), down(scale_of(-exponent)), squares(0.0), lost_squares(0.0)
    {
    }

    __device__ __forceinline__ double of(double x)
    {
        const double large = scaled(x, up);
        double result = x, kept = large;
        if constexpr (F::HAS_SCALE) {
            kept = rounded<F>(large);
            result = scaled(kept, down);
        } else if constexpr (F::DIGITS < 53) {
            result = rounded<F>(x);
            kept = scaled(result, up);
        }
        squares += kept * kept;
        lost_squares += (large - kept) * (large - kept);
        return result;
    }
};

// Rounds a tile in place and adds to its sums of squares; row->largest is known, the sums are zero before.
template <class F> __device__ __forceinline__ void finish(double* tile, long long entries, Row* row)
{
    const int exponent = exponent_of<F>(row->largest);
    const long long groups = groups_of(tile, entries);
    Rounding<F> rounding(exponent);
    for (long long at = first_of_thread(); at < groups; at += threads_of_grid()) {
        Entries x = ((const Entries*)tile)[at];
#pragma unroll
        for (int place = 0; place < GROUP; ++place) {
            x.of[place] = rounding.of(x.of[place]);
        }
        if constexpr (F::DIGITS < 53) {
            ((Entries*)tile)[at] = x;
        }
    }
    for (long long at = GROUP * groups + first_of_thread(); at < entries; at += threads_of_grid()) {
        const double result = rounding.of(tile[at]);
        if constexpr (F::DIGITS < 53) {
            tile[at] = result;
        }
    }
    const double squares = over_block<Sum>(rounding.squares), lost_squares = over_block<Sum>(rounding.lost_squares);
    if (threadIdx.x == 0) {
        atomicAdd(&row->squares, squares);
        atomicAdd(&row->lost_squares, lost_squares);
        row->exponent = exponent; // the same from every block
    }
}

// Stored entries of a tile, and behind them the exponent of one with a scale; *largest holds the bits of its largest magnitude.
template <class F, class Code>
__device__ __forceinline__ void encode(
    const double* __restrict__ tile, long long entries, Code* __restrict__ stored, const u64* largest, long long* behind)
{
    const int exponent = F::HAS_SCALE ? exponent_of<F>(*largest) : 0;
    const Scale up = scale_of(exponent);
    const long long groups = groups_of<F>(tile, stored, entries);
    for (long long at = first_of_thread(); at < groups; at += threads_of_grid()) {
        const Entries x = ((const Entries*)tile)[at];
        Codes<F> codes;
#pragma unroll
        for (int place = 0; place < GROUP; ++place) {
            codes.of[place] = code_of<F>(rounded<F>(scaled(x.of[place], up)));
        }
        ((Codes<F>*)stored)[at] = codes;
    }
    for (long long at = GROUP * groups + first_of_thread(); at < entries; at += threads_of_grid()) {
        stored[at] = code_of<F>(rounded<F>(scaled(tile[at], up)));
    }
    if (F::HAS_SCALE && first_of_thread() == 0) {
        for (char* gap = (char*)(stored + entries); gap < (char*)behind; ++gap) {
            *gap = 0;
        }
        *behind = exponent;
    }
}

// The tile of stored entries; *behind is the exponent of one with a scale.
template <class F, class Code>
__device__ __forceinline__ void widen(
    const Code* __restrict__ stored, long long entries, double* __restrict__ tile, const long long* behind)
{
    const Scale down = scale_of(F::HAS_SCALE ? -(int)*behind : 0);
    const long long groups = groups_of<F>(tile, stored, entries);
    for (long long at = first_of_thread(); at < groups; at += threads_of_grid()) {
        const Codes<F> codes = ((const Codes<F>*)stored)[at];
        Entries x;
#pragma unroll
        for (int place = 0; place < GROUP; ++place) {
            x.of[place] = scaled(value_of<F>(codes.of[place]), down);
        }
        ((Entries*)tile)[at] = x;
    }
    for (long long at = GROUP * groups + first_of_thread(); at < entries; at += threads_of_grid()) {
        tile[at] = scaled(value_of<F>(stored[at]), down);
    }
}

// *most becomes the largest of itself and a sum of magnitudes, as of bits.
__device__ __forceinline__ void keep_largest(double* most, double sum)
{
    atomicMax((u64*)most, bits_of(fabs(sum)));
}

// The largest sums of magnitudes along rows (blocks of y = 0) and along columns (y = 1) of a tile; blocks of 32 x 8 threads.
extern "C" __global__ void largest_sums(const double* __restrict__ tile, int rows, int cols, Row* row)
{
    __shared__ double of_rows[8][32];
    if (blockIdx.y == 0) { // a warp takes a row
        for (int r = blockIdx.x * blockDim.y + threadIdx.y; r < rows; r += gridDim.x * blockDim.y) {
            double sum = 0.0;
            for (int c = threadIdx.x; c < cols; c += blockDim.x) {
                sum += fabs(tile[(long long)r * cols + c]);
            }
            sum = over_warp<Sum>(sum);
            if (threadIdx.x == 0) {
                keep_largest(&row->row_sum, sum);
            }
        }
        return;
    }
    for (int left = blockIdx.x * blockDim.x; left < cols; left += gridDim.x * blockDim.x) { // a block takes 32 columns
        const int c = left + threadIdx.x;
        double sum = 0.0;
        for (int r = threadIdx.y; c < cols && r < rows; r += blockDim.y) {
            sum += fabs(tile[(long long)r * cols + c]);
        }
        of_rows[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && c < cols) {
            for (unsigned y = 1; y < blockDim.y; ++y) {
                sum += of_rows[y][threadIdx.x];
            }
            keep_largest(&row->column_sum, sum);
        }
        __syncthreads();
    }
}

extern "C" __global__ void finish_fp64(double* tile, long long entries, Row* row)
{
    finish<Fp64>(tile, entries, row);
}

// One tile of a stack: tiles (first, column), (first + 1, column) and so on of `each` entries, one below the other, the last of
// which may have fewer. Blocks of one y take one of them.
struct OfStack {
    double* tile;
    long long entries;
    Row* row;

    __device__ OfStack(double* tiles, long long each, long long total, Row* norms, long long first, long long column)
    {
        const long long begin = each * blockIdx.y, i = first + blockIdx.y;
        tile = tiles + begin;
        entries = each < total - begin ? each : total - begin;
        row = norms + i * (i + 1) / 2 + column;
    }
};

extern "C" __global__ void largest_of_stack(
    double* tiles, long long each, long long total, Row* norms, long long first, long long column)
{
    const OfStack one(tiles, each, total, norms, first, column);
    keep_largest_magnitude(one.tile, one.entries, &one.row->largest);
}

extern "C" __global__ void measure_stack(
    double* tiles, long long each, long long total, Row* norms, long long first, long long column)
{
    const OfStack one(tiles, each, total, norms, first, column);
    finish<Fp64>(one.tile, one.entries, one.row);
}

#define KERNELS(name, F) \
    extern "C" __global__ void finish_##name(double* tile, long long entries, Row* row) \
    { \
        finish<F>(tile, entries, row); \
    } \
    extern "C" __global__ void encode_##name( \
        const double* tile, long long entries, F::Code* stored, const u64* largest, long long* behind) \
    { \
        encode<F>(tile, entries, stored, largest, behind); \
    } \
    extern "C" __global__ void widen_##name(const F::Code* stored, long long entries, double* tile, const long long* behind) \
    { \
        widen<F>(stored, entries, tile, behind); \
    }

KERNELS(fp32, Fp32)
KERNELS(fp16, Fp16)
KERNELS(fp8, Fp8)
