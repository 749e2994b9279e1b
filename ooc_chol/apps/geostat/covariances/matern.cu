// Covariance functions from tables (radial_table.py), one thread an entry; errors of observations by index, never by distance.
//
// A table has a polynomial of degree 7 for each sixteenth of a binade: exponent and leading four bits of the mantissa of z number
// the piece, the other 48 bits are the place -1 <= s < 1 in it, exactly. The first and the last piece are constant, and hold for
// all smaller and all larger z. The variance of the field is in the coefficients.
#ifndef DIMENSIONS
#define DIMENSIONS 2  // coordinates of a site in all
#endif

static __device__ __forceinline__ double interpolate(const double* table, int before, int last, double z)
{
    const int high = __double2hiint(z), low = __double2loint(z);
    const int piece = min(max((high >> 16) - before, 0), last);
    // the mantissa without its leading four bits, under the exponent of 2, is 3 + s
    const double s = __hiloint2double(0x40000000 | (high & 0xffff) << 4 | (int)((unsigned)low >> 28), low << 4) - 3.0;
    const double2* p = (const double2*)table + 4 * piece;
    const double2 p67 = __ldg(p + 3), p45 = __ldg(p + 2), p23 = __ldg(p + 1), p01 = __ldg(p);
    double value = fma(p67.y, s, p67.x);
    value = fma(fma(value, s, p45.y), s, p45.x);
    value = fma(fma(value, s, p23.y), s, p23.x);
    return fma(fma(value, s, p01.y), s, p01.x);
}

static __device__ __forceinline__ double distance(const double* a, const double* b, int axes)
{
    double square = 0.0;
#pragma unroll
    for (int axis = 0; axis < axes; ++axis) {
        const double difference = __ldg(a + axis) - __ldg(b + axis);
        square = fma(difference, difference, square);
    }
    return sqrt(square);
}

// between unit vectors: 2 atan(|a - b| / |a + b|), accurate from 0 to pi
static __device__ __forceinline__ double angle(const double* a, const double* b)
{
    double minus = 0.0, plus = 0.0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const double x = __ldg(a + axis), y = __ldg(b + axis);
        minus = fma(x - y, x - y, minus);
        plus = fma(x + y, x + y, plus);
    }
    return 2.0 * atan2(sqrt(minus), sqrt(plus));
}

#ifndef KERNEL  // estimation/vecchia_cuda.py makes functions of a pair of sites of the same text
#define KERNEL(name, ...)                                                                                                       \
    extern "C" __global__ void name(double* out, int rows, int cols, long long row0, long long col0, const double* sites,       \
                                    const double* diagonal, __VA_ARGS__)
#define ENTRY                                                                                                                   \
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;                             \
    if (r >= rows || c >= cols) return;                                                                                         \
    const double *a = sites + DIMENSIONS * (row0 + r), *b = sites + DIMENSIONS * (col0 + c);
#define PUT(value) out[(long long)r * cols + c] = row0 + r == col0 + c ? __ldg(diagonal + row0 + r) : (value)
#endif

// Values of entries, of sites of so many coordinates in all: the kernels below are made of them, and those of sums are.

// table(|a - b| * scale)
static __device__ __forceinline__ double radial_at(const double* a, const double* b, int axes, double scale, const double* table,
                                                   int before, int last)
{
    return interpolate(table, before, last, distance(a, b, axes) * scale);
}

// table(angle * scale)
static __device__ __forceinline__ double great_circle_at(const double* a, const double* b, int axes, double scale,
                                                         const double* table, int before, int last)
{
    return interpolate(table, before, last, angle(a, b) * scale);
}

// space(h * scale) * time(|u| * time_scale); the last coordinate is the time
#define SEPARABLE_AT(name, h)                                                                                                   \
    static __device__ __forceinline__ double name(const double* a, const double* b, int axes, double scale,                     \
                                                  const double* table, int before, int last, double time_scale,                 \
                                                  const double* time_table, int time_before, int time_last)                     \
    {                                                                                                                           \
        const double u = fabs(__ldg(a + axes - 1) - __ldg(b + axes - 1));                                                       \
        return interpolate(table, before, last, (h) * scale) * interpolate(time_table, time_before, time_last, u * time_scale); \
    }
SEPARABLE_AT(separable_radial_at, distance(a, b, axes - 1))
SEPARABLE_AT(separable_great_circle_at, angle(a, b))

// w**-decay * table(h * scale * w**-shrink), w = 1 + (|u| * time_scale)**power
static __device__ __forceinline__ double gneiting_at(const double* a, const double* b, int axes, double scale, const double* table,
                                                     int before, int last, double time_scale, double power, double decay,
                                                     double shrink)
{
    const double u = fabs(__ldg(a + axes - 1) - __ldg(b + axes - 1));
    const double log_w = log1p(pow(u * time_scale, power));
    return exp(-decay * log_w) * interpolate(table, before, last, distance(a, b, axes - 1) * scale * exp(-shrink * log_w));
}

// table(|a - b| * scale) (a_p - b_p) (a_q - b_q) / |a - b|**2, the table zero at zero: derivatives by what turns and stretches
static __device__ __forceinline__ double radial_by_axes_at(const double* a, const double* b, int axes, double scale,
                                                           const double* table, int before, int last, int p, int q)
{
    const double h = distance(a, b, axes), square = fmax(h * h, 2.2250738585072014e-308);
    const double x = __ldg(a + p) - __ldg(b + p), y = __ldg(a + q) - __ldg(b + q);
    return interpolate(table, before, last, h * scale) * (x * y / square);
}

// the same times time(|u| * time_scale)
static __device__ __forceinline__ double separable_radial_by_axes_at(const double* a, const double* b, int axes, double scale,
                                                                     const double* table, int before, int last, int p, int q,
                                                                     double time_scale, const double* time_table,
                                                                     int time_before, int time_last)
{
    const double u = fabs(__ldg(a + axes - 1) - __ldg(b + axes - 1));
    return radial_by_axes_at(a, b, axes - 1, scale, table, before, last, p, q)
           * interpolate(time_table, time_before, time_last, u * time_scale);
}

// gneiting times log w (kind 0), 1 / w - 1 (kind 1), or that times log(|u| * time_scale) (kind 2): derivatives by what is in w
static __device__ __forceinline__ double gneiting_by_time_at(const double* a, const double* b, int axes, double scale,
                                                             const double* table, int before, int last, double time_scale,
                                                             double power, double decay, double shrink, int kind)
{
    const double u = fabs(__ldg(a + axes - 1) - __ldg(b + axes - 1)) * time_scale;
    const double log_w = log1p(pow(u, power));
    const double weight = kind == 0   ? log_w
                          : kind == 1 ? expm1(-log_w)
                                      : expm1(-log_w) * log(fmax(u, 2.2250738585072014e-308));
    return weight * exp(-decay * log_w)
           * interpolate(table, before, last, distance(a, b, axes - 1) * scale * exp(-shrink * log_w));
}

KERNEL(radial, double scale, const double* table, int before, int last)
{
    ENTRY
    PUT(radial_at(a, b, DIMENSIONS, scale, table, before, last));
}

KERNEL(great_circle, double scale, const double* table, int before, int last)
{
    ENTRY
    PUT(great_circle_at(a, b, DIMENSIONS, scale, table, before, last));
}

#define SEPARABLE(name)                                                                                                         \
    KERNEL(name, double scale, const double* table, int before, int last, double time_scale, const double* time_table,          \
           int time_before, int time_last)                                                                                      \
    {                                                                                                                           \
        ENTRY                                                                                                                   \
        PUT(name##_at(a, b, DIMENSIONS, scale, table, before, last, time_scale, time_table, time_before, time_last));           \
    }
SEPARABLE(separable_radial)
SEPARABLE(separable_great_circle)

KERNEL(radial_by_axes, double scale, const double* table, int before, int last, int p, int q)
{
    ENTRY
    PUT(radial_by_axes_at(a, b, DIMENSIONS, scale, table, before, last, p, q));
}

KERNEL(separable_radial_by_axes, double scale, const double* table, int before, int last, int p, int q, double time_scale,
       const double* time_table, int time_before, int time_last)
{
    ENTRY
    PUT(separable_radial_by_axes_at(a, b, DIMENSIONS, scale, table, before, last, p, q, time_scale, time_table, time_before,
                                    time_last));
}

KERNEL(gneiting_by_time, double scale, const double* table, int before, int last, double time_scale, double power, double decay,
       double shrink, int kind)
{
    ENTRY
    PUT(gneiting_by_time_at(a, b, DIMENSIONS, scale, table, before, last, time_scale, power, decay, shrink, kind));
}

KERNEL(gneiting, double scale, const double* table, int before, int last, double time_scale, double power, double decay,
       double shrink)
{
    ENTRY
    PUT(gneiting_at(a, b, DIMENSIONS, scale, table, before, last, time_scale, power, decay, shrink));
}

// table of the pair of variables; the last coordinate is the number of the variable, 0 or 1
KERNEL(bivariate, double scale, const double* first, int first_before, int first_last, const double* mixed, int mixed_before,
       int mixed_last, const double* second, int second_before, int second_last)
{
    ENTRY
    const double z = distance(a, b, DIMENSIONS - 1) * scale, pair = __ldg(a + DIMENSIONS - 1) + __ldg(b + DIMENSIONS - 1);
    const double* table = pair == 0.0 ? first : pair == 1.0 ? mixed : second;
    const int before = pair == 0.0 ? first_before : pair == 1.0 ? mixed_before : second_before;
    const int last = pair == 0.0 ? first_last : pair == 1.0 ? mixed_last : second_last;
    PUT(interpolate(table, before, last, z));
}

// s s' q**(-d/2) table(h / sqrt(q)), q = t + t'; a site is (d coordinates over the range, s, t), s = sd r**(d/2), t = r**2 / 2
static __device__ __forceinline__ double inverse_power(double q, int d)
{
    return d == 1 ? 1.0 / sqrt(q) : d == 2 ? 1.0 / q : d == 3 ? 1.0 / (q * sqrt(q)) : pow(q, -0.5 * d);
}
KERNEL(nonstationary, const double* table, int before, int last)
{
    ENTRY
    const int d = DIMENSIONS - 2;
    const double q = __ldg(a + d + 1) + __ldg(b + d + 1), weight = __ldg(a + d) * __ldg(b + d) * inverse_power(q, d);
    PUT(weight * interpolate(table, before, last, distance(a, b, d) / sqrt(q)));
}

// the same times x + x', the last coordinate of each site
KERNEL(nonstationary_by_variance, const double* table, int before, int last)
{
    ENTRY
    const int d = DIMENSIONS - 3;
    const double q = __ldg(a + d + 1) + __ldg(b + d + 1), weight = __ldg(a + d) * __ldg(b + d) * inverse_power(q, d);
    PUT(weight * (__ldg(a + d + 2) + __ldg(b + d + 2)) * interpolate(table, before, last, distance(a, b, d) / sqrt(q)));
}

// by a slope of the range: d ((x + x') / 2 - p) M - p z M', p = (t x + t' x') / q
KERNEL(nonstationary_by_range, const double* table, int before, int last, const double* slope, int slope_before, int slope_last)
{
    ENTRY
    const int d = DIMENSIONS - 3;
    const double t = __ldg(a + d + 1), u = __ldg(b + d + 1), q = t + u, x = __ldg(a + d + 2), y = __ldg(b + d + 2);
    const double p = (t * x + u * y) / q, z = distance(a, b, d) / sqrt(q);
    const double weight = __ldg(a + d) * __ldg(b + d) * inverse_power(q, d);
    PUT(weight * (d * (0.5 * (x + y) - p) * interpolate(table, before, last, z)
                  - p * interpolate(slope, slope_before, slope_last, z)));
}
