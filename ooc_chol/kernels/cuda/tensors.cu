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

// Where slice k begins from column `at` on: panels of `columns` columns of all `rows` slices lie one behind the other, the last of
// which may have fewer.
__device__ __forceinline__ i64 place(i64 rows, i64 k, i64 width, i64 columns, i64 at)
{
    const i64 panel = at / columns * columns, across = columns < width - panel ? columns : width - panel;
    return rows * panel + k * across + at - panel;
}

// Slices `first` and following, however they lie, to wide (count, width). A thread block for `chunk` columns of a slice.
extern "C" __global__ void widen(
    const STORE* __restrict__ slices, i64 rows, i64 first, i64 width, i64 columns, i64 chunk, double* __restrict__ wide)
{
    const i64 chunks = (width + chunk - 1) / chunk, k = blockIdx.x / chunks, at = blockIdx.x % chunks * chunk;
    const int length = chunk < width - at ? chunk : width - at;
    const STORE* own = slices + place(rows, first + k, width, columns, at);
    for (int j = threadIdx.x; j < length; j += LANES) {
        wide[k * width + at + j] = double(own[j]);
    }
}

// The same back, rounded.
extern "C" __global__ void narrow(
    STORE* __restrict__ slices, i64 rows, i64 first, i64 width, i64 columns, i64 chunk, const double* __restrict__ wide)
{
    const i64 chunks = (width + chunk - 1) / chunk, k = blockIdx.x / chunks, at = blockIdx.x % chunks * chunk;
    const int length = chunk < width - at ? chunk : width - at;
    STORE* own = slices + place(rows, first + k, width, columns, at);
    for (int j = threadIdx.x; j < length; j += LANES) {
        own[j] = STORE(wide[k * width + at + j]);
    }
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

// A step of Chebyshev's recurrence for the rows of a basis: before = 2 (scale product - now) - before, or for step 0 scale product -
// now, with product = now G and 2 / scale the least of ascending values (c). Where one more step would amplify the largest of them
// by more than `amplified`, before = now. A thread block a slice.
extern "C" __global__ void recur(const double* __restrict__ values, const double* __restrict__ product,
    const double* __restrict__ now, double* before, int c, int d, int step, double amplified, double least_share)
{
    const i64 k = blockIdx.x, first = k * c * d;
    const double largest = values[k * c + c - 1], share = least_share * largest;
    const double least = values[k * c] > share ? values[k * c] : share;
    const double scale = largest > 0.0 ? 2.0 / least : 0.0, x = scale * largest - 1.0;
    double last = 1.0, value = x; // T_0 and T_1, and in the end T_step and T_(step + 1)
    for (int degree = 0; degree < step; ++degree) {
        const double next = 2.0 * x * value - last;
        last = value;
        value = next;
    }
    const bool goes_on = value <= amplified;
    for (i64 at = first + threadIdx.x; at < first + i64(c) * d; at += LANES) {
        const double turned = scale * product[at] - now[at];
        before[at] = step == 0 ? turned : goes_on ? 2.0 * turned - before[at] : now[at];
    }
}

// A lower bound of what is kept, of ascending values (c) of Gram matrices of order d.
__device__ __forceinline__ double least_kept(const double* values, int c, int d, double lam)
{
    const double noise = d * 0x1p-53 * values[c - 1], square = lam * lam;
    return noise > square ? noise : square;
}

// kept[k, j] = values[k, j] where it is kept, else 0. A thread block a slice.
extern "C" __global__ void retain(const double* __restrict__ values, int c, int d, double lam, double* kept)
{
    const double* own = values + blockIdx.x * i64(c);
    const double least = least_kept(own, c, d, lam);
    for (int j = threadIdx.x; j < c; j += LANES) {
        kept[blockIdx.x * i64(c) + j] = own[j] > least ? own[j] : 0.0;
    }
}

// proved[k] = 1 where square I - rest[k] is positive definite: L D L.T of it has positive pivots only, row by row of the upper
// triangle, which is overwritten. Nothing below the diagonal is read. A thread block a slice.
extern "C" __global__ void definite(double* rest, int d, double square, int* proved)
{
    double* own = rest + blockIdx.x * i64(d) * d;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = warp; i < d; i += LANES / 32) {
        for (int j = i + lane; j < d; j += 32) {
            own[i64(i) * d + j] = (i == j ? square : 0.0) - own[i64(i) * d + j];
        }
    }
    __syncthreads();
    bool is_definite = true;
    for (int k = 0; k < d; ++k) {
        const double* row = own + i64(k) * d; // final: no later step writes to it, so that all threads see the same pivot
        const double pivot = row[k];
        if (!(pivot > 0.0)) { // or it is NaN
            is_definite = false;
            break;
        }
        for (int i = k + 1 + warp; i < d; i += LANES / 32) {
            const double factor = row[i] / pivot;
            for (int j = i + lane; j < d; j += 32) {
                own[i64(i) * d + j] -= factor * row[j];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        proved[blockIdx.x] = is_definite;
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
// 0; else flag 1, or 2 where there was no basis to begin with. norms[0] are squares of ||G||, norms[1] those of
// ||G - sum t v v.T||; product is v G. In the second try norms are not read: proved says whether what is not kept is below lam**2,
// and basis, ranks and flags of slice k are those at places[k]. A thread block a slice.
extern "C" __global__ void certify(const double* __restrict__ values, const double* __restrict__ v,
    const double* __restrict__ product, const double* __restrict__ norms, const int* __restrict__ info, int slices, int c, int d,
    double lam, int by_garrote, double tolerance, int is_second, const int* __restrict__ proved, const i64* __restrict__ places,
    double* factors, double* basis, int* ranks, int* flags)
{
    __shared__ double residuals[1024]; // c is at most that
    __shared__ int verdict; // 0: below lam altogether, 1: certified, 2: the full route
    const i64 k = blockIdx.x, place = is_second ? places[k] : k;
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
    const double largest = own[c - 1], square = lam * lam, least = least_kept(own, c, d, lam);
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
        const bool is_accurate = info[k] == 0 && moved <= tolerance * tolerance * largest;
        if (is_second) {
            verdict = is_accurate && proved[k] ? 1 : 2;
        } else {
            const double outside = sqrt(norms[slices + k]);
            const double together = sqrt(outside * outside + others), apart = outside + most;
            const bool is_proved = is_accurate && (together < square || apart < square);
            verdict = sqrt(norms[k]) <= square ? 0 : is_proved ? 1 : 2;
        }
        ranks[place] = verdict == 1 ? kept : 0;
        flags[place] = verdict != 2 ? 0 : largest > 0.0 ? 1 : 2;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < c; j += LANES) {
        factors[k * c + j] = verdict == 1 && own[j] > least ? factor_of(own[j], lam, by_garrote) : 0.0;
    }
    if (verdict == 1) {
        for (int at = threadIdx.x; at < c * d; at += LANES) {
            basis[place * c * d + i64(at % d) * c + at / d] = rows[at];
        }
    }
}
