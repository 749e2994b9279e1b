// What follows cuSOLVER's POTRF of a row-major matrix: zeros above the diagonal, and the first pivot that is none.

// A complex number as NumPy stores it.
template <typename Real> struct __align__(2 * sizeof(Real)) Complex
{
    Real re, im;
};

template <typename Real> __device__ __forceinline__ Real real_part(Real a) { return a; }
template <typename Real> __device__ __forceinline__ Real real_part(Complex<Real> a) { return a.re; }

// One thread an entry, threads of a block along a row. verdict holds 2^32 - 1 before.
template <typename T> __device__ __forceinline__ void finish_lower(T* l, int n, unsigned int* verdict)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    for (int row = blockIdx.y; row < n; row += gridDim.y) {
        if (column >= n || column < row) continue;
        T* entry = l + (long long)row * n + column;
        if (column > row) {
            *entry = T{};
            continue;
        }
        const auto pivot = real_part(*entry);
        if (!(pivot > 0 && pivot - pivot == 0)) atomicMin(verdict, (unsigned int)row + 1u);
    }
}

extern "C" __global__ void finish_lower_float64(double* l, int n, unsigned int* verdict) { finish_lower(l, n, verdict); }
extern "C" __global__ void finish_lower_float32(float* l, int n, unsigned int* verdict) { finish_lower(l, n, verdict); }
extern "C" __global__ void finish_lower_complex128(Complex<double>* l, int n, unsigned int* verdict) { finish_lower(l, n, verdict); }
extern "C" __global__ void finish_lower_complex64(Complex<float>* l, int n, unsigned int* verdict) { finish_lower(l, n, verdict); }
