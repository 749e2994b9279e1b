// Products that solves subtract from right-hand sides. The order of terms is that in which they lie.

struct Picked {
    unsigned char k[MOST_TARGETS];
};

// targets[k, e] -= products[k, 0, e], then products[k, 1, e] and so on; steps are in entries. Blocks along y take a k each.
template <typename Real>
__device__ void subtract(
    Real* targets, const Real* products, long long entries, long long step, long long of_products, long long of_terms, int terms,
    const Picked& picked)
{
    const long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= entries) {
        return;
    }
    const int k = picked.k[blockIdx.y];
    Real* target = targets + k * step + e;
    const Real* product = products + k * of_products + e;
    Real left = *target;
#pragma unroll 4
    for (int t = 0; t < terms; ++t) {
        left -= product[t * of_terms];
    }
    *target = left;
}

extern "C" __global__ void subtract_float64(
    double* targets, const double* products, long long entries, long long step, long long of_products, long long of_terms,
    int terms, const __grid_constant__ Picked picked)
{
    subtract(targets, products, entries, step, of_products, of_terms, terms, picked);
}

extern "C" __global__ void subtract_float32(
    float* targets, const float* products, long long entries, long long step, long long of_products, long long of_terms, int terms,
    const __grid_constant__ Picked picked)
{
    subtract(targets, products, entries, step, of_products, of_terms, terms, picked);
}
