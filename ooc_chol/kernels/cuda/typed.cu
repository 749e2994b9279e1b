// Tiles of float32 and complex numbers: what cuBLAS does not do of a factorization. Tiles are row-major, 64-bit indices throughout.

typedef long long i64;

// A complex number as NumPy stores it.
template <typename Real> struct __align__(2 * sizeof(Real)) Complex
{
    Real re, im;
};

template <typename T> struct RealOf
{
    typedef T type;
};
template <typename Real> struct RealOf<Complex<Real>>
{
    typedef Real type;
};

template <typename Real> __device__ __forceinline__ Real real_part(Real a) { return a; }
template <typename Real> __device__ __forceinline__ Real real_part(Complex<Real> a) { return a.re; }

template <typename Real> __device__ __forceinline__ void set_real(Real& a, Real value) { a = value; }
template <typename Real> __device__ __forceinline__ void set_real(Complex<Real>& a, Real value) { a = {value, Real(0)}; }

template <typename Real> __device__ __forceinline__ Real divided(Real a, Real by) { return a / by; }
template <typename Real> __device__ __forceinline__ Complex<Real> divided(Complex<Real> a, Real by) { return {a.re / by, a.im / by}; }

// c - a conj(b)
template <typename Real> __device__ __forceinline__ Real minus_product(Real c, Real a, Real b) { return c - a * b; }
template <typename Real> __device__ __forceinline__ Complex<Real> minus_product(Complex<Real> c, Complex<Real> a, Complex<Real> b)
{
    return {c.re - (a.re * b.re + a.im * b.im), c.im - (a.im * b.re - a.re * b.im)};
}

template <typename Real> __device__ __forceinline__ bool is_finite(Real a) { return a - a == Real(0); }
template <typename Real> __device__ __forceinline__ bool is_finite(Complex<Real> a) { return is_finite(a.re) && is_finite(a.im); }

// Find the smallest row-major position of a NaN or an infinity, in the lower triangle only when `lower` is set.
// `first` holds the largest 64-bit value before, and the position after.
template <typename T> __device__ __forceinline__ void find_nonfinite(const T* a, int rows, int cols, int lower, unsigned long long* first)
{
    const i64 total = (i64)rows * cols;
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        if (!is_finite(a[at]) && !(lower && at % cols > at / cols)) {
            atomicMin(first, (unsigned long long)at);
        }
    }
}

// L L.H = A for a block of order n <= ORDER at a, by one thread block of ORDER x ROWS threads; imaginary parts of the diagonal are not
// read. first_bad becomes the least of itself and, one-based from first on, the place of a pivot that is not a positive finite number.
constexpr int ORDER = 32, ROWS = 8;

template <typename T> __device__ __forceinline__ void factor_block(T* a, i64 stride, int n, int first, int* first_bad)
{
    typedef typename RealOf<T>::type Real;
    __shared__ __align__(16) unsigned char memory[ORDER * (ORDER + 1) * sizeof(T)];
    T(*block)[ORDER + 1] = reinterpret_cast<T(*)[ORDER + 1]>(memory);
    const int column = threadIdx.x, lane = threadIdx.y;
    for (int row = lane; row < n; row += ROWS) {
        if (column <= row) {
            block[row][column] = a[row * stride + column];
        }
    }
    __syncthreads();
    for (int j = 0; j < n; ++j) {
        const Real pivot = real_part(block[j][j]);
        const Real root = sqrt(pivot);
        __syncthreads(); // all have read the pivot
        if (lane == 0 && column > j && column < n) { // here a thread's number is that of a row
            block[column][j] = divided(block[column][j], root);
        }
        if (lane == 0 && column == j) {
            set_real(block[j][j], root);
            if (!(pivot > Real(0) && is_finite(pivot))) {
                atomicMin(first_bad, first + j + 1);
            }
        }
        __syncthreads();
        for (int row = j + 1 + lane; row < n; row += ROWS) {
            if (column > j && column <= row) {
                block[row][column] = minus_product(block[row][column], block[row][j], block[column][j]);
            }
        }
        __syncthreads();
    }
    for (int row = lane; row < n; row += ROWS) {
        if (column <= row) {
            a[row * stride + column] = block[row][column];
        }
    }
}

// Zeros above the diagonal of a square.
template <typename T> __device__ __forceinline__ void clear_upper(T* a, int n)
{
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < (i64)n * n; at += (i64)gridDim.x * blockDim.x) {
        if (at % n > at / n) {
            a[at] = T{};
        }
    }
}

// Find the first row whose diagonal entry has an imaginary part of more than `share` of its real one; `first` holds the largest int before.
template <typename Real> __device__ __forceinline__ void find_imaginary(const Complex<Real>* a, int n, Real share, int* first)
{
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < n; row += gridDim.x * blockDim.x) {
        const Complex<Real> entry = a[(i64)row * (n + 1)];
        if (fabs(entry.im) > share * fabs(entry.re)) {
            atomicMin(first, row);
        }
    }
}

// The kernels of one type, whose names end as NumPy calls it.
#define KERNELS(T, NAME) \
    extern "C" __global__ void check_finite_##NAME(const T* a, int rows, int cols, int lower, unsigned long long* first) \
    { \
        find_nonfinite(a, rows, cols, lower, first); \
    } \
    extern "C" __global__ void __launch_bounds__(ORDER* ROWS) \
        factor_block_##NAME(T* a, i64 stride, int n, int first, int* first_bad) \
    { \
        factor_block(a, stride, n, first, first_bad); \
    } \
    extern "C" __global__ void clear_upper_##NAME(T* a, int n) { clear_upper(a, n); }

KERNELS(float, float32)
KERNELS(Complex<float>, complex64)
KERNELS(Complex<double>, complex128)

extern "C" __global__ void check_real_complex64(const Complex<float>* a, int n, float share, int* first)
{
    find_imaginary(a, n, share, first);
}

extern "C" __global__ void check_real_complex128(const Complex<double>* a, int n, double share, int* first)
{
    find_imaginary(a, n, share, first);
}
