// What kernels of products of residues on Hopper (sm_90a) share: its tensor cores, whose operands are in shared memory, and sums modulo
// m_p.

typedef unsigned int u32;
typedef unsigned long long u64;

// A modulus p, the bytes 256**k mod p, -2**31 mod p above the bits of 1.5 * 2**23, and 1 / p: see residue_numbers.cu.
struct Modulus {
    int p, bytes, bias;
    float reciprocal;
};

struct Moduli {
    Modulus of[MOST_MODULI];
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Descriptor of an operand in shared memory: rows of 128 bytes, adjacent along K, 128-byte swizzle, eight rows from 1024 to 1024 bytes.
__device__ __forceinline__ u64 descriptor(u32 address)
{
    return (u64)((address & 0x3FFFFu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// What this thread wrote to shared memory is seen by tensor cores, once threads have met.
__device__ __forceinline__ void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Keeps the compiler from moving uses of the sums across this point.
__device__ __forceinline__ void pin(int& sum) { asm volatile("" : "+r"(sum)::"memory"); }
__device__ __forceinline__ void pin(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
template <class T, int N>
__device__ __forceinline__ void pin(T (&sums)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        pin(sums[i]);
    }
}

#define SUMS8(o) \
    "+r"(d[o]), "+r"(d[o + 1]), "+r"(d[o + 2]), "+r"(d[o + 3]), "+r"(d[o + 4]), "+r"(d[o + 5]), "+r"(d[o + 6]), "+r"(d[o + 7])
#define SUMS32(o) SUMS8(o), SUMS8(o + 8), SUMS8(o + 16), SUMS8(o + 24)

// d (+)= 64 rows of 32 bytes times 256 columns of 32 bytes.
__device__ __forceinline__ void multiply_step(int (&d)[128], u64 left, u64 right, int accumulate)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p;\n}\n"
        : SUMS32(0), SUMS32(32), SUMS32(64), SUMS32(96)
        : "l"(left), "l"(right), "r"(accumulate));
}

#define FLOATS8(o) \
    "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])

// d += 64 rows of 32 numbers in E4M3 times 64 columns of 32.
__device__ __forceinline__ void multiply_e4m3(float (&d)[32], u64 left, u64 right)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, 1, 1, 1;\n"
        : FLOATS8(0), FLOATS8(8), FLOATS8(16), FLOATS8(24)
        : "l"(left), "l"(right));
}

// E4M3 of each byte less eight, for bytes from 0 to 16: a byte behind 0x64 is 1024 more in FP16.
__device__ __forceinline__ u32 less_eight_in_e4m3(u32 bytes)
{
    u32 codes;
    asm("{\n.reg .b32 low, high;\n.reg .b16 first, last;\n"
        "prmt.b32 low, %1, 0x64646464, 0x4140;\nprmt.b32 high, %1, 0x64646464, 0x4342;\n"
        "sub.f16x2 low, low, %2;\nsub.f16x2 high, high, %2;\n" // 1032 from both
        "cvt.rn.satfinite.e4m3x2.f16x2 first, low;\ncvt.rn.satfinite.e4m3x2.f16x2 last, high;\n"
        "mov.b32 %0, {first, last};\n}"
        : "=r"(codes)
        : "r"(bytes), "r"(0x64086408u));
    return codes;
}

// (v + more) mod p, canonical, in the low byte, for |more| < 256.
__device__ __forceinline__ int reduced(int v, int more, const Modulus& m)
{
    int biased;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(biased) : "r"(v ^ 0x80000000), "r"(m.bytes), "r"(m.bias + more));
    const float quotient = __fmaf_rn(__fsub_rn(__int_as_float(biased), 12582912.0f), m.reciprocal, 12582912.0f);
    return biased - __float_as_int(quotient) * m.p;
}
