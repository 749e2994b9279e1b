// Graph-tensor imputation: entries filled in, and what decides on singular values. STORE and COMPUTE are types of numbers.
//
// Products of matrices are cuBLAS's and eigenpairs cuSOLVER's. Sums here are of LANES partial sums each, folded in halves, in an
// order that depends on the shape alone; products that are added are rounded first, as on the host.

typedef unsigned char u8;
typedef long long i64;

constexpr int LANES = 256;

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }

// The sum of x over a thread block of LANES threads, for all of them.
__device__ double folded(double x, double* sums)
{
    const unsigned t = threadIdx.x;
    sums[t] = x;
    __syncthreads();
    for (unsigned half = LANES / 2; half; half /= 2) {
        if (t < half) {
            sums[t] = plus(sums[t], sums[t + half]);
        }
        __syncthreads();
    }
    const double sum = sums[0];
    __syncthreads();
    return sum;
}

// x = mask ? observed : z + momentum (z - x). A thread block a row; squares[0] of changes and squares[1] of x before, by rows.
extern "C" __global__ void fill(const STORE* __restrict__ z, i64 z_stride, const STORE* observed,
    i64 observed_stride, const u8* __restrict__ mask, i64 mask_stride, int by_entry, STORE* x, i64 x_stride, int rows, int width,
    COMPUTE momentum, double* squares)
{
    __shared__ double sums[LANES];
    const i64 row = blockIdx.x;
    double changed = 0.0, before = 0.0;
    for (int column = threadIdx.x; column < width; column += LANES) {
        const STORE old = x[row * x_stride + column];
        const bool is_given = mask[by_entry ? row * mask_stride + column : row] != 0;
        STORE made;
        if (is_given) {
            made = observed[row * observed_stride + column];
        } else {
            made = z[row * z_stride + column];
            if (momentum != COMPUTE(0)) {
                const COMPUTE wide = COMPUTE(made);
                made = STORE(plus(wide, times(momentum, plus(wide, -COMPUTE(old)))));
            }
            const double change = plus(double(made), -double(old));
            changed = plus(changed, times(change, change));
        }
        x[row * x_stride + column] = made;
        before = plus(before, times(double(old), double(old)));
    }
    changed = folded(changed, sums);
    before = folded(before, sums);
    if (threadIdx.x == 0) {
        squares[row] = changed;
        squares[rows + row] = before;
    }
}

// out[k] = sum of terms[k * count : (k + 1) * count], a thread block each; of their squares where `squared`.
extern "C" __global__ void add_up(const double* __restrict__ terms, i64 count, int squared, double* out)
{
    __shared__ double sums[LANES];
    const double* own = terms + blockIdx.x * count;
    double sum = 0.0;
    for (i64 at = threadIdx.x; at < count; at += LANES) {
        sum = plus(sum, squared ? times(own[at], own[at]) : own[at]);
    }
    sum = folded(sum, sums);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sum;
    }
}

// The rows of v (c, d), from the last one on, made orthonormal: each against those done, twice. A row that depends on them is 0.
extern "C" __global__ void orthonormalize(double* v, int c, int d)
{
    __shared__ double sums[LANES];
    __shared__ double dots[1024]; // c is at most that
    double* own = v + blockIdx.x * i64(c) * d;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int j = c - 1; j >= 0; --j) {
        double* row = own + i64(j) * d;
        double length = 0.0;
        for (int at = threadIdx.x; at < d; at += LANES) {
            length += row[at] * row[at];
        }
        const double first = folded(length, sums);
        for (int pass = 0; pass < 2; ++pass) {
            for (int i = j + 1 + warp; i < c; i += LANES / 32) {
                double dot = 0.0;
                for (int at = lane; at < d; at += 32) {
                    dot += own[i64(i) * d + at] * row[at];
                }
                for (int lanes = 16; lanes; lanes /= 2) {
                    dot += __shfl_xor_sync(0xffffffffu, dot, lanes);
                }
                if (lane == 0) {
                    dots[i] = dot;
                }
            }
            __syncthreads();
            for (int at = threadIdx.x; at < d; at += LANES) {
                double entry = row[at];
                for (int i = j + 1; i < c; ++i) {
                    entry -= dots[i] * own[i64(i) * d + at];
                }
                row[at] = entry;
            }
            __syncthreads();
        }
        length = 0.0;
        for (int at = threadIdx.x; at < d; at += LANES) {
            length += row[at] * row[at];
        }
        const double last = folded(length, sums);
        const double scale = last > 1e-26 * first && isfinite(last) ? 1.0 / sqrt(last) : 0.0;
        for (int at = threadIdx.x; at < d; at += LANES) {
            row[at] = scale != 0.0 ? row[at] * scale : 0.0;
        }
        __syncthreads();
    }
}

// What is left of a singular value s > lam, as a share of it: s - lam**2 / s by the garrote, else s - lam.
__device__ __forceinline__ double factor_of(double square, double lam, int by_garrote)
{
    return by_garrote ? 1.0 - lam * lam / square : 1.0 - lam / sqrt(square);
}

// factors[k, j] = f(s) with s**2 = values[k, j], ascending, of Gram matrices of order d; how many are kept, and where
// the eigenpairs were not found. A thread block a slice.
extern "C" __global__ void shrink(const double* __restrict__ values, int count, int d, double lam, int by_garrote,
    const int* __restrict__ info, double* factors, int* ranks, int* flags)
{
    __shared__ double sums[LANES];
    const i64 k = blockIdx.x;
    const double* own = values + k * count;
    const double noise = d * 0x1p-53 * own[count - 1], least = noise > lam * lam ? noise : lam * lam;
    double kept = 0.0, lost = info[k] != 0;
    for (int j = threadIdx.x; j < count; j += LANES) {
        kept += own[j] > least;
        lost += !isfinite(own[j]);
    }
    kept = folded(kept, sums);
    const bool is_found = folded(lost, sums) == 0.0;
    for (int j = threadIdx.x; j < count; j += LANES) {
        const double factor = own[j] > least ? factor_of(own[j], lam, by_garrote) : 0.0;
        factors[k * count + j] = is_found ? factor : nan("");
    }
    if (threadIdx.x == 0) {
        ranks[k] = is_found ? int(kept) : 0;
        flags[k] = is_found ? 1 : -1;
    }
}

// Whether pairs (values[k, j], rows of v[k]) are enough, as thresholds.py says on the host: factors and the basis (d, c) then, flag
// 0; else flag 1. norms[0] are squares of ||G||, norms[1] those of ||G - sum t v v.T||; product is v G. A thread block a slice.
extern "C" __global__ void certify(const double* __restrict__ values, const double* __restrict__ v,
    const double* __restrict__ product, const double* __restrict__ norms, const int* __restrict__ info, int slices, int c, int d,
    double lam, int by_garrote, double tolerance, double* factors, double* basis, int* ranks, int* flags)
{
    __shared__ double residuals[1024]; // c is at most that
    __shared__ int verdict; // 0: below lam altogether, 1: certified, 2: the full route
    const i64 k = blockIdx.x;
    const double *own = values + k * c, *rows = v + k * c * d, *products = product + k * c * d;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int j = warp; j < c; j += LANES / 32) {
        double sum = 0.0;
        for (int at = lane; at < d; at += 32) {
            const double r = products[i64(j) * d + at] - own[j] * rows[i64(j) * d + at];
            sum += r * r;
        }
        for (int lanes = 16; lanes; lanes /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        }
        if (lane == 0) {
            residuals[j] = sum;
        }
    }
    __syncthreads();
    const double largest = own[c - 1], square = lam * lam;
    const double noise = d * 0x1p-53 * largest, least = noise > square ? noise : square;
    if (threadIdx.x == 0) {
        double moved = 0.0, others = 0.0, most = 0.0;
        int kept = 0;
        for (int j = c - 1; j >= 0; --j) {
            if (own[j] > least) {
                moved += residuals[j] / own[j];
                ++kept;
            } else {
                others += own[j] * own[j];
                most = most > fabs(own[j]) ? most : fabs(own[j]);
            }
        }
        const double outside = sqrt(norms[slices + k]);
        const double together = sqrt(outside * outside + others), apart = outside + most;
        const bool is_accurate = info[k] == 0 && moved <= tolerance * tolerance * largest;
        const bool is_proved = is_accurate && (together < square || apart < square);
        verdict = sqrt(norms[k]) <= square ? 0 : is_proved ? 1 : 2;
        ranks[k] = verdict == 1 ? kept : 0;
        flags[k] = verdict == 2;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < c; j += LANES) {
        factors[k * c + j] = verdict == 1 && own[j] > least ? factor_of(own[j], lam, by_garrote) : 0.0;
    }
    if (verdict == 1) {
        for (int at = threadIdx.x; at < c * d; at += LANES) {
            basis[k * c * d + i64(at % d) * c + at / d] = rows[at];
        }
    }
}
