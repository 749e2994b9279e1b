// Numbers as residues and back, and the exponents of rows: what the kernels of real and of complex matrices share.
//
// In front of this text stand the numbers of the basis, written by residue_source.py: MODULI, the __constant__ tables by modulus,
// and the shape of blocks. Nothing here divides: a number is taken modulo m by the dot product of its bytes with those of
// 256**k mod m, and by one multiplication with 1 / m.

typedef unsigned long long u64;
typedef unsigned __int128 u128;

// 1.5 * 2**23 as a number and as bits: a float near it has integer steps, and an int added to the bits adds to the number.
#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4B400000

// 2**power for |power| <= 1022.
__device__ __forceinline__ double power_of_two(int power)
{
    return __longlong_as_double((long long)(power + 1023) << 52);
}

// A number as a double, and a double as a number of the type of what, rounded to nearest even. By instructions of their own: what
// the compiler makes of a conversion flushes subnormal floats to zero, since CuPy compiles with -ftz=true.
__device__ __forceinline__ double widened(double x) { return x; }

__device__ __forceinline__ double widened(float x)
{
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x));
    return wide;
}

__device__ __forceinline__ void put(double* what, double x) { *what = x; }

__device__ __forceinline__ void put(float* what, double x)
{
    float rounded;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(rounded) : "d"(x));
    *what = rounded;
}

// sum + dot product of four unsigned bytes with four signed ones.
__device__ __forceinline__ int dot_bytes(unsigned bytes, int weights, int sum)
{
    int result;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(bytes), "r"(weights), "r"(sum));
    return result;
}

// t mod m_p, canonical, in the low byte; biased = MAGIC_BITS + t with |t| < 2**19.
// For odd m, t / m is at least 1 / (2 m) away from every k + 1/2, while t * (1 / m) is wrong by less than |t| 2**-24 / m: the
// quotient is the nearest integer. For m = 256 it is exact, and the low byte of t does not depend on it.
__device__ __forceinline__ int reduced(int biased, int plane)
{
    const float t = __fsub_rn(__int_as_float(biased), MAGIC);
    const float quotient = __fmaf_rn(t, RECIPROCAL[plane], MAGIC);
    return biased - __float_as_int(quotient) * MODULUS[plane]; // MAGIC_BITS is a multiple of 256
}

// z mod m_p in the low byte, z given as the two words of z + 2**63.
__device__ __forceinline__ int residue64(unsigned low, unsigned high, int plane)
{
    return reduced(dot_bytes(high, HIGH_BYTES[plane], dot_bytes(low, LOW_BYTES[plane], MAGIC_BITS - OFFSET64[plane])), plane);
}

// s mod m_p, canonical, with its sign.
__device__ __forceinline__ int residue32(int s, int plane)
{
    const int biased = dot_bytes((unsigned)s ^ 0x80000000u, LOW_BYTES[plane], MAGIC_BITS - OFFSET32[plane]);
    return (int)(signed char)reduced(biased, plane);
}

__device__ __forceinline__ int folded(int s, int plane) { return residue32(s, plane); }

// A residue that is canonical already.
__device__ __forceinline__ int folded(signed char s, int) { return s; }

// A kernel that reconstructs from sums of one type, so many blocks of it on a multiprocessor.
#define RECONSTRUCT(name, S, BLOCKS) \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name( \
        const S* __restrict__ s, long long stride, long long plane, ENTRY* __restrict__ a, long long a_stride, int rows, int cols, \
        const int* __restrict__ row_exponents, const int* __restrict__ col_exponents) \
    { \
        reconstruct_from<S>(s, stride, plane, a, a_stride, rows, cols, row_exponents, col_exponents); \
    }

// exponents[i] = e_i, limits[i] = A_ii 4**e_i (1 + ROW_SLACK) of one row, from its diagonal entry of A. first_flagged is the
// smallest row whose diagonal entry is not a positive finite number, or what it was.
__device__ __forceinline__ void scale_row(double a_ii, long long row, int* exponents, double* limits, u64* first_flagged)
{
    int exponent = 0;
    double limit = 0.0;
    if (a_ii > 0.0 && a_ii < __longlong_as_double(0x7FF0000000000000ll)) {
        int power;
        const double mantissa = frexp(a_ii, &power);
        exponent = (LIMIT_POWER - power - (mantissa > LIMIT_MANTISSA)) >> 1;
        limit = a_ii * power_of_two(exponent) * power_of_two(exponent) * (1.0 + ROW_SLACK);
    } else {
        atomicMin(first_flagged, (u64)row);
    }
    exponents[row] = exponent;
    limits[row] = limit;
}

// The sum over the block, for thread 0, always added up in the same order.
__device__ __forceinline__ double block_sum(double value)
{
    __shared__ double of_warp[THREADS / 32];
    for (int distance = 16; distance > 0; distance >>= 1) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) {
        value += of_warp[warp];
    }
    return value;
}

// Add the squares of a block's threads to the running sum of one row, and flag it unless the sum is within its limit, which a NaN
// is not. All threads of the block must call it.
__device__ __forceinline__ void add_squares(
    double squares, long long row, const double* __restrict__ limits, double* sums, u64* first_flagged)
{
    const double total = block_sum(squares);
    if (threadIdx.x == 0) {
        const double sum = sums[row] + total;
        sums[row] = sum;
        if (!(sum <= limits[row])) {
            atomicMin(first_flagged, (u64)row);
        }
    }
}

// (number 2**-e) rounded once to nearest even, subnormal results too; |number| < 2**127.
__device__ __forceinline__ double scaled(__int128 number, int e)
{
    const u64 sign = number < 0 ? 0x8000000000000000ull : 0;
    const u128 magnitude = number < 0 ? -(u128)number : (u128)number;
    if (magnitude == 0) {
        return 0.0;
    }
    // The upper 64 bits, the first of them set; the last one tells whether anything is left below.
    const u64 upper = (u64)(magnitude >> 64), lower = (u64)magnitude;
    const int zeros = upper != 0 ? __clzll((long long)upper) : 64 + __clzll((long long)lower);
    const u128 shifted = magnitude << zeros;
    const u64 top = (u64)(shifted >> 64) | ((u64)shifted != 0);
    const int last = 64 - zeros - e; // the value is top * 2**last
    u64 bits;
    if (last >= -1085) { // at least 2**-1022: normal, or too large
        const int half = last >> 1;
        const double value = __ull2double_rn(top) * power_of_two(half) * power_of_two(last - half);
        bits = (u64)__double_as_longlong(value);
    } else { // a multiple of 2**-1074 below 2**-1022, whose bits are the multiple itself
        const int drop = -1074 - last; // at least 12
        bits = 0;
        if (drop < 64) {
            const u64 rest = top << (64 - drop), half = 0x8000000000000000ull;
            bits = top >> drop;
            bits += rest > half || (rest == half && (bits & 1));
        } else if (drop == 64) {
            bits = top > 0x8000000000000000ull;
        }
    }
    return __longlong_as_double((long long)(sign | bits));
}

// X in (-P/2, P/2] from sum_p t_p w_p, given by the sums over the 32-bit digits of the w_p: that sum less k P, where k comes from
// the leading bits of all digits and is off by one at most, near +-P/2.
__device__ __forceinline__ __int128 remainder_of(double digit0, double digit1, double digit2, double digit3)
{
    const __int128 product = (__int128)(((u128)PRODUCT_HIGH << 64) | PRODUCT_LOW);
    const double multiples = __fma_rn(digit3, SHARE3, __fma_rn(digit2, SHARE2, __fma_rn(digit1, SHARE1, digit0 * SHARE0)));
    const __int128 lower = (__int128)__double2ll_rn(digit0) + ((__int128)__double2ll_rn(digit1) << 32);
    const u64 upper = (u64)__double2ll_rn(digit2) + ((u64)__double2ll_rn(digit3) << 32);
    // Unsigned: these words wrap, modulo 2**128, which is larger than P.
    __int128 x = (__int128)((u128)lower + ((u128)upper << 64) - (u128)product * (u128)(__int128)__double2ll_rn(multiples));
    if (x > product / 2) {
        x -= product;
    } else if (x <= -(product / 2)) {
        x += product;
    }
    return x;
}

// (A_ij 2**e - x) 2**-e, where A_ij 2**e is first rounded to an integer: then one rounding is all. From 2**126 on, which says
// that A is not positive definite or that this is above the diagonal, x 2**-e is taken from A_ij with two roundings.
__device__ __forceinline__ double difference(double a_ij, __int128 x, int e)
{
    const int half = e >> 1;
    const double t = a_ij * power_of_two(half) * power_of_two(e - half), magnitude = rint(fabs(t));
    const bool is_integer = magnitude < 0x1p126;
    __int128 exact = -x;
    if (is_integer) {
        const u64 high = __double2ull_rz(magnitude * 0x1p-64);
        const u64 low = __double2ull_rz(__fma_rn((double)high, -0x1p64, magnitude));
        const __int128 integer = (__int128)(((u128)high << 64) | low);
        exact += t < 0.0 ? -integer : integer;
    }
    return (is_integer ? 0.0 : a_ij) + scaled(exact, e);
}

