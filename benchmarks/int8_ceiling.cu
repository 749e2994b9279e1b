// Sustained rate of int8 products on Hopper (sm_90a): wgmma m64n256k32 s32.s8.s8, operands in shared memory by TMA.
//
//   C (M x N) = A (M x K, K contiguous) * B^T (B is N x K, K contiguous)
//
// Warp group 0 is the producer (one thread issues TMA), warp groups 1 and 2 are the consumers (64 x 256 of the
// 128 x 256 tile each). Four stages of 128 bytes of K. Persistent over output tiles, tile rows in groups.
// With CL = 2, two CTAs (two tile rows, the same tile column) form a cluster: each loads one half of B for both.
//
// Epilogues: EPI_INT32 stores the sums; EPI_RESIDUE adds them modulo p to an int8 residue tile; EPI_NONE keeps them.
// LOADS = false: no TMA and no barriers, wgmma runs on what the stages hold (random bytes): the tensor cores' ceiling.
//
// Build: nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v -o int8_ceiling int8_ceiling.cu
// Run:   ./int8_ceiling [--p=251] [--seconds=3] [--warm=1.5] [--limit=300] [--group=16] [--check=2000] [--shape=M,N,K]
// One JSON line for each shape, epilogue and cluster size. Exit code: 4 where an entry is wrong, 2 on any other failure.
#include <cuda.h>  // types only; nothing of libcuda is linked
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

constexpr int BM = 128, BN = 256, BK = 128, STAGES = 4;
constexpr int A_BYTES = BM * BK, B_BYTES = BN * BK, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int THREADS = 384, CONSUMER_WARPS = 8;
constexpr int OLD_BYTES = BM * BN;  // EPI_RESIDUE: the tile's old residues, two boxes of 128 columns
constexpr int SMEM_BYTES = STAGES * STAGE_BYTES + OLD_BYTES + 8 * (2 * STAGES + 2) + 1024;  // 1024: to align
static_assert(SMEM_BYTES <= 227 * 1024);
enum { EPI_INT32 = 0, EPI_RESIDUE = 1, EPI_NONE = 2 };

struct Mod {  // q = (mulhi(v, magic) + half) >> shift is v / p rounded, off by at most one in the last place
    int p, h, magic, shift, half;
};

struct Params {
    int K, units_m, tiles_n, group;  // units_m: rows of tiles / CL; group: units of a group
    size_t ldc;
    int *c;
    int8_t *r;
    Mod mod;
    int never;           // EPI_NONE: a value that the sums' xor is not expected to take
    volatile int *diag;  // host-mapped: who waited in vain
};

// ---------------------------------------------------------------------------------------------- device: PTX
__device__ __forceinline__ uint32_t smem_u32(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// No wider release than the default: what the barrier orders is the async proxy's reads, done at wait_group, before the
// async proxy's writes. (A release at cluster scope costs a fence of the whole device on each step.)
template <int CL>
__device__ __forceinline__ void mbar_arrive(uint32_t bar, uint32_t cta) {
    if constexpr (CL == 1) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
    } else {
        asm volatile(
            "{\n.reg .b32 ra;\n"
            "mapa.shared::cluster.u32 ra, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [ra];\n}" ::"r"(bar), "r"(cta)
            : "memory");
    }
}

__device__ __forceinline__ bool mbar_try(uint32_t bar, uint32_t parity) {
    uint32_t ok;
    asm volatile(
        "{\n.reg .pred q;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2;\n"
        "selp.u32 %0, 1, 0, q;\n}"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return ok != 0;
}

// Waits at most about four seconds, then notes who waited and traps.
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity, volatile int *diag, int who) {
    uint32_t tries = 0;
    uint64_t first = 0;
    while (!mbar_try(bar, parity)) {
        if ((++tries & 63u) == 0) {
            uint64_t now;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
            if (first == 0) {
                first = now;
            } else if (now - first > 4000000000ull) {
                *diag = who | (int)(blockIdx.x << 8);
                __threadfence_system();
                __trap();
            }
        }
    }
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap *map, int k, int row, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            dst),
        "l"((uint64_t)map), "r"(k), "r"(row), "r"(bar)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap *map, int k, int row, uint32_t bar,
                                                   uint16_t mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%2, %3}], [%4], %5;" ::"r"(dst),
        "l"((uint64_t)map), "r"(k), "r"(row), "r"(bar), "h"(mask)
        : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Shared-memory matrix descriptor, K-major, 128-byte swizzle: start address, LBO 1 (unused), SBO 1024 bytes.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
    return (uint64_t)((addr & 0x3FFFFu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving uses of the sums across this point.
__device__ __forceinline__ void pin(int (&d)[128]) {
#pragma unroll
    for (int i = 0; i < 128; i++) asm volatile("" : "+r"(d[i])::"memory");
}

#define ACC8(o) \
    "+r"(d[o]), "+r"(d[o + 1]), "+r"(d[o + 2]), "+r"(d[o + 3]), "+r"(d[o + 4]), "+r"(d[o + 5]), "+r"(d[o + 6]), "+r"(d[o + 7])
#define ACC32(o) ACC8(o), ACC8(o + 8), ACC8(o + 16), ACC8(o + 24)

__device__ __forceinline__ void wgmma_s8(int (&d)[128], uint64_t desc_a, uint64_t desc_b, int accumulate) {
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
        : ACC32(0), ACC32(32), ACC32(64), ACC32(96)
        : "l"(desc_a), "l"(desc_b), "r"(accumulate));
}

// ---------------------------------------------------------------------------------------------- device: epilogues
__host__ __device__ __forceinline__ uint32_t hash32(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)(x >> 32);
}

// Four bytes in [-127, 127] from a 32-bit hash (each byte times 255 / 256, less 127).
__host__ __device__ __forceinline__ uint32_t residues4(uint32_t h, int span = 255) {
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        int v = (int)((((h >> (8 * i)) & 255u) * (uint32_t)span) >> 8) - (span - 1) / 2;
        out |= (uint32_t)(uint8_t)(int8_t)v << (8 * i);
    }
    return out;
}

__device__ __forceinline__ int reduce(int v, const Mod &m) {
    int q = (__mulhi(v, m.magic) + m.half) >> m.shift;
    int r = v - q * m.p;
    r = r > m.h ? r - m.p : r;
    r = r < -m.h ? r + m.p : r;
    return r;
}

// 4 x 4 transpose of words among the four lanes of a quad: lane q's word b becomes lane b's word q.
__device__ __forceinline__ void quad_transpose(uint32_t (&w)[4], int q) {
    const bool odd = q & 1, high = q & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, odd ? w[i] : w[i + 1], 1);
        if (odd) w[i] = got; else w[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, high ? w[i] : w[i + 2], 2);
        if (high) w[i] = got; else w[i + 2] = got;
    }
}

__device__ __forceinline__ uint2 load_shared8(uint32_t at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

__device__ __forceinline__ int byte_of(uint32_t w, int i) { return (int)(int8_t)(w >> (8 * i)); }

// ---------------------------------------------------------------------------------------------- device: the kernel
struct Tile {
    int row, col;
};

template <int CL>
__device__ __forceinline__ Tile tile_at(int t, uint32_t rank, const Params &pr) {
    int per_group = pr.group * pr.tiles_n;
    int g = t / per_group, in = t - g * per_group;
    int rows = min(pr.group, pr.units_m - g * pr.group);
    int c = in / rows;
    return {((g * pr.group + in - c * rows) * CL + (int)rank) * BM, c * BN};
}

template <int EPI, int CL, bool LOADS>
__global__ void __launch_bounds__(THREADS, 1)
    int8_gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
              const __grid_constant__ CUtensorMap map_r, const __grid_constant__ Params pr) {
    extern __shared__ uint8_t raw[];
    const uint32_t base = (smem_u32(raw) + 1023u) & ~1023u;
    const uint32_t old = base + STAGES * STAGE_BYTES, full = old + OLD_BYTES, empty = full + 8 * STAGES;
    const uint32_t old_full = empty + 8 * STAGES, old_empty = old_full + 8;
    const int warp_group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);
    const int lane = threadIdx.x & 31;
    const uint32_t rank = CL == 1 ? 0 : blockIdx.x % CL;  // the cluster is CL x 1 x 1
    const int first = blockIdx.x / CL, step = gridDim.x / CL;
    const int units = pr.units_m * pr.tiles_n, nk = pr.K / BK;

    if constexpr (LOADS) {
        if (threadIdx.x == 0) {
            asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)&map_a) : "memory");
            asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)&map_b) : "memory");
            for (int s = 0; s < STAGES; s++) {
                mbar_init(full + 8 * s, 1);
                mbar_init(empty + 8 * s, CONSUMER_WARPS * CL);
            }
            mbar_init(old_full, 1);
            mbar_init(old_empty, CONSUMER_WARPS);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
    } else {
        for (int i = threadIdx.x; i < STAGES * STAGE_BYTES / 4; i += THREADS) {
            uint32_t v = residues4(hash32((uint64_t)blockIdx.x << 32 | i));
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + 4 * i), "r"(v) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if constexpr (CL > 1) cluster_sync();

    if (warp_group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (LOADS && threadIdx.x == 0) {
            uint32_t s = 0, phase = 0, old_phase = 0;
            const int old_at = min(STAGES, nk - 1);  // by then the consumers have left the tile before
            for (int t = first; t < units; t += step) {
                const Tile tile = tile_at<CL>(t, rank, pr);
                for (int kt = 0; kt < nk; kt++) {
                    const uint32_t bar = full + 8 * s, a = base + s * STAGE_BYTES, b = a + A_BYTES;
                    mbar_wait(empty + 8 * s, phase ^ 1, pr.diag, 0x10 + s);
                    mbar_expect_tx(bar, STAGE_BYTES);
                    tma_load(a, &map_a, kt * BK, tile.row, bar);
                    if constexpr (CL == 1) {
                        tma_load(b, &map_b, kt * BK, tile.col, bar);
                    } else {
                        const uint32_t part = BN / CL * rank;  // the rows of B that this CTA loads for the cluster
                        tma_load_multicast(b + part * BK, &map_b, kt * BK, tile.col + (int)part, bar, (1u << CL) - 1);
                    }
                    if (++s == STAGES) s = 0, phase ^= 1;
                    if (EPI == EPI_RESIDUE && kt == old_at) {
                        mbar_wait(old_empty, old_phase ^ 1, pr.diag, 0x1E);
                        mbar_expect_tx(old_full, OLD_BYTES);
                        tma_load(old, &map_r, tile.col, tile.row, old_full);
                        tma_load(old + OLD_BYTES / 2, &map_r, tile.col + BN / 2, tile.row, old_full);
                        old_phase ^= 1;
                    }
                }
            }
        }
        if constexpr (CL > 1) cluster_sync();  // the peer may still write here or arrive here
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int cg = warp_group - 1, warp = (threadIdx.x / 32) & 3, quad = lane >> 2, q = lane & 3;
        const int my_row = cg * 64 + warp * 16 + quad;  // and my_row + 8
        const uint64_t desc_a0 = make_desc(base + cg * 64 * BK), desc_b0 = make_desc(base + A_BYTES);
        uint32_t s = 0, phase = 0, old_phase = 0;
        int d[128];
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] = 0;

        for (int t = first; t < units; t += step) {
            const Tile tile = tile_at<CL>(t, rank, pr);
            uint32_t last = 0;
            pin(d);
#pragma unroll 1
            for (int kt = 0; kt < nk; kt++) {
                if constexpr (LOADS) mbar_wait(full + 8 * s, phase, pr.diag, 0x20 + 0x10 * cg + s);
                const uint64_t desc_a = desc_a0 + s * (STAGE_BYTES >> 4), desc_b = desc_b0 + s * (STAGE_BYTES >> 4);
                wgmma_fence();
                wgmma_s8(d, desc_a, desc_b, kt != 0);
                wgmma_s8(d, desc_a + 2, desc_b + 2, 1);
                wgmma_s8(d, desc_a + 4, desc_b + 4, 1);
                wgmma_s8(d, desc_a + 6, desc_b + 6, 1);
                wgmma_commit();
                wgmma_wait<1>();  // the products of the step before are done with their stage
                if constexpr (LOADS) {
                    if (kt > 0 && lane < CL) mbar_arrive<CL>(empty + 8 * last, lane);
                }
                last = s;
                if (++s == STAGES) s = 0, phase ^= 1;
            }

            wgmma_wait<0>();
            pin(d);
            if constexpr (LOADS) {
                if (lane < CL) mbar_arrive<CL>(empty + 8 * last, lane);
            }
            if constexpr (EPI == EPI_RESIDUE) {
                // Lane q of a quad holds columns 32 g + 8 q .. + 7 of two rows: one 32-byte sector a quad.
                int8_t *r0 = pr.r + (size_t)(tile.row + my_row) * pr.ldc + tile.col + 8 * q;
                int8_t *r1 = r0 + 8 * pr.ldc;
                const uint32_t old0 = old + my_row * 128;  // 128-byte swizzle: 16-byte pieces XOR row mod 8 (= quad)
                mbar_wait(old_full, old_phase, pr.diag, 0x2E + 0x10 * cg);
                old_phase ^= 1;
#pragma unroll
                for (int g = 0; g < 8; g++) {
                    const uint32_t at = old0 + (g / 4) * (OLD_BYTES / 2) + ((32 * (g % 4) + 8 * q) ^ (quad << 4));
                    const uint2 lo = load_shared8(at), hi = load_shared8(at + 8 * 128);
                    uint32_t w[4] = {__byte_perm(lo.x, hi.x, 0x5410), __byte_perm(lo.x, hi.x, 0x7632),
                                     __byte_perm(lo.y, hi.y, 0x5410), __byte_perm(lo.y, hi.y, 0x7632)};
                    quad_transpose(w, q);  // w[b]: old residues of this lane's four sums of block b
#pragma unroll
                    for (int b = 0; b < 4; b++) {
                        const int o = (4 * g + b) * 4;
                        const int v0 = reduce(d[o] + byte_of(w[b], 0), pr.mod);
                        const int v1 = reduce(d[o + 1] + byte_of(w[b], 1), pr.mod);
                        const int v2 = reduce(d[o + 2] + byte_of(w[b], 2), pr.mod);
                        const int v3 = reduce(d[o + 3] + byte_of(w[b], 3), pr.mod);
                        w[b] = __byte_perm(__byte_perm(v0, v1, 0x0040), __byte_perm(v2, v3, 0x0040), 0x5410);
                    }
                    quad_transpose(w, q);
                    *(uint2 *)(r0 + 32 * g) = make_uint2(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410));
                    *(uint2 *)(r1 + 32 * g) = make_uint2(__byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
                }
                __syncwarp();
                if (lane == 0) mbar_arrive<1>(old_empty, 0);
            } else {
                if constexpr (EPI == EPI_INT32) {
                    // Neighbours swap halves: even lanes store four columns of block j, odd lanes of block j + 1.
                    const bool odd = q & 1;
                    int *c0 = pr.c + (size_t)(tile.row + my_row) * pr.ldc + tile.col + 8 * (q & 1) + 4 * (q >> 1);
#pragma unroll
                    for (int j = 0; j < 32; j += 2) {
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const int x0 = d[4 * j + 2 * half], x1 = d[4 * j + 2 * half + 1];
                            const int y0 = d[4 * j + 4 + 2 * half], y1 = d[4 * j + 5 + 2 * half];
                            const int g0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? x0 : y0, 1);
                            const int g1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? x1 : y1, 1);
                            const int4 v = odd ? make_int4(g0, g1, y0, y1) : make_int4(x0, x1, g0, g1);
                            __stcs((int4 *)(c0 + (size_t)(8 * half) * pr.ldc + 8 * j), v);
                        }
                    }
                } else {
                    int x = 0;
#pragma unroll
                    for (int i = 0; i < 128; i++) x ^= d[i];
                    if (x == pr.never) pr.c[tile.row] = x;
                }
            }
        }
        if constexpr (CL > 1) cluster_sync();
    }
}

// ---------------------------------------------------------------------------------------------- device: fill, check
__global__ void fill(uint32_t *out, size_t words, uint64_t seed, int span) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        out[i] = residues4(hash32(seed + i), span);
}

struct Check {
    int errors, row, col, got, want;
};

// One warp an entry. c != nullptr: c is the sum. Otherwise r is (old + times * sum) mod p, symmetric.
__global__ void check(const int8_t *a, const int8_t *b, int M, int N, int K, const int *c, const int8_t *r,
                      const int8_t *old, int p, long long times, int count, uint64_t seed, Check *out) {
    const int e = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (e >= count) return;
    int row = hash32(seed + 2 * (uint64_t)e) % M, col = hash32(seed + 2 * (uint64_t)e + 1) % N;
    if (e < 4) row = e & 1 ? M - 1 : 0, col = e & 2 ? N - 1 : 0;  // the corners
    const int *x = (const int *)(a + (size_t)row * K), *y = (const int *)(b + (size_t)col * K);
    int sum = 0;
    for (int i = lane; i < K / 4; i += 32) sum = __dp4a(x[i], y[i], sum);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, o);
    if (lane) return;
    const size_t at = (size_t)row * N + col;
    int want = sum, got;
    if (c) {
        got = c[at];
    } else {
        long long v = (old[at] + (times % p) * (long long)(sum % p)) % p;
        if (v < 0) v += p;
        if (v > (p - 1) / 2) v -= p;
        want = (int)v;
        got = r[at];
    }
    if (got != want && atomicAdd(&out->errors, 1) == 0) out->row = row, out->col = col, out->got = got, out->want = want;
}

// ---------------------------------------------------------------------------------------------- host
static volatile int *g_diag_host = nullptr;

static void fail(const char *what, const char *why) {
    int who = g_diag_host ? *g_diag_host : 0;
    printf("{\"error\": \"%s: %s\", \"waited\": \"0x%x\"}\n", what, why, who);
    fflush(stdout);
    _exit(2);
}
#define CK(call)                                                            \
    do {                                                                    \
        cudaError_t e_ = (call);                                            \
        if (e_ != cudaSuccess) fail(#call, cudaGetErrorString(e_));         \
    } while (0)

using EncodeTiled = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static EncodeTiled g_encode = nullptr;

static void load_encode() {
    void *fn = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    CK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found));
#else
    CK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &found));
#endif
    if (!fn || found != cudaDriverEntryPointSuccess) fail("cuTensorMapEncodeTiled", "not in this driver");
    g_encode = (EncodeTiled)fn;
}

// Rows of K bytes, boxes of 128 bytes by box_rows.
static CUtensorMap make_map(const void *ptr, int rows, int K, int box_rows) {
    CUtensorMap map;
    cuuint64_t dim[2] = {(cuuint64_t)K, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)K};
    cuuint32_t box[2] = {BK, (cuuint32_t)box_rows}, one[2] = {1, 1};
    CUresult e = g_encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)ptr, dim, stride, box, one,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e != CUDA_SUCCESS) fail("cuTensorMapEncodeTiled", std::to_string((int)e).c_str());
    return map;
}

// Clock and power through NVML, read by a thread while `on`.
struct Nvml {
    using Init = int (*)();
    using ByBus = int (*)(const char *, void **);
    using Clock = int (*)(void *, int, unsigned *);
    using Power = int (*)(void *, unsigned *);
    void *device = nullptr;
    Clock clock = nullptr;
    Power power = nullptr;
    std::atomic<bool> on{false}, stop{false};
    std::mutex lock;
    std::vector<double> mhz, watt;
    std::thread reader;

    void open(int cuda_device) {
        void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!lib) {
            fprintf(stderr, "NVML: %s; clock and power stay null\n", dlerror());
            return;
        }
        auto init = (Init)dlsym(lib, "nvmlInit_v2");
        auto by_bus = (ByBus)dlsym(lib, "nvmlDeviceGetHandleByPciBusId_v2");
        clock = (Clock)dlsym(lib, "nvmlDeviceGetClockInfo");
        power = (Power)dlsym(lib, "nvmlDeviceGetPowerUsage");
        char bus[32];
        CK(cudaDeviceGetPCIBusId(bus, sizeof bus, cuda_device));
        if (!init || !by_bus || !clock || !power || init() != 0 || by_bus(bus, &device) != 0) {
            fprintf(stderr, "NVML: the device %s does not answer; clock and power stay null\n", bus);
            device = nullptr;
            return;
        }
        reader = std::thread([this] {
            while (!stop) {
                if (on) {
                    unsigned c = 0, w = 0;
                    int ec = clock(device, 1 /* SM */, &c), ew = power(device, &w);
                    std::lock_guard<std::mutex> g(lock);
                    if (ec == 0) mhz.push_back(c);
                    if (ew == 0) watt.push_back(w * 1e-3);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
        });
    }
    void begin() {
        std::lock_guard<std::mutex> g(lock);
        mhz.clear(), watt.clear(), on = true;
    }
    void end() { on = false; }
    void close() {
        stop = true;
        if (reader.joinable()) reader.join();
    }
};

static double mean(const std::vector<double> &v) {
    double s = 0;
    for (double x : v) s += x;
    return v.empty() ? NAN : s / v.size();
}
static std::string num(double x, int digits = 1) {
    if (std::isnan(x)) return "null";
    char b[64];
    snprintf(b, sizeof b, "%.*f", digits, x);
    return b;
}

struct Options {
    int p = 251, group = 16, count = 2000;
    double seconds = 3, warm = 1.5, limit = 300;
};

static Mod make_mod(int p) {
    int k = 0;
    while ((2 << k) <= p) k++;  // 2^k <= p < 2^(k+1)
    Mod m;
    m.p = p, m.h = (p - 1) / 2, m.shift = k - 1;
    m.magic = (int)llround(std::ldexp(1.0, 32 + m.shift) / p);
    m.half = 1 << (m.shift - 1);  // shift >= 1 as p >= 5
    return m;
}

struct Problem {
    int M, N, K;
    int8_t *a, *b, *r, *old;
    int *c;
    Check *check;
    int *diag;
    int sms;
    uint64_t seed;
};

// Checks, times and prints one line; returns the number of wrong entries.
template <int EPI, int CL, bool LOADS>
static int bench(const Problem &q, const Options &o, Nvml &nvml) {
    auto kernel = int8_gemm<EPI, CL, LOADS>;
    CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    const CUtensorMap map_a = make_map(q.a, q.M, q.K, BM), map_b = make_map(q.b, q.N, q.K, BN / CL),
                      map_r = make_map(q.r, q.M, q.N, BM);
    Params pr{};
    pr.K = q.K, pr.units_m = q.M / (BM * CL), pr.tiles_n = q.N / BN, pr.group = o.group / CL > 0 ? o.group / CL : 1;
    pr.ldc = q.N, pr.c = q.c, pr.r = q.r, pr.mod = make_mod(o.p), pr.never = 0x5A5A1234, pr.diag = q.diag;

    cudaLaunchConfig_t cfg{};
    cudaLaunchAttribute attr[1];
    attr[0].id = cudaLaunchAttributeClusterDimension;
    attr[0].val.clusterDim.x = CL, attr[0].val.clusterDim.y = 1, attr[0].val.clusterDim.z = 1;
    cfg.blockDim = dim3(THREADS), cfg.dynamicSmemBytes = SMEM_BYTES, cfg.attrs = attr, cfg.numAttrs = CL > 1 ? 1 : 0;
    int clusters = q.sms;
    if (CL > 1) {
        cfg.gridDim = dim3(q.sms / CL * CL);
        CK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &cfg));
        if (clusters < 1) fail("cudaOccupancyMaxActiveClusters", "no cluster fits");
        if (clusters > q.sms / CL) clusters = q.sms / CL;
    }
    const int units = pr.units_m * pr.tiles_n;
    if (clusters > units) clusters = units;
    cfg.gridDim = dim3(clusters * CL);
    long long times = 0;
    auto launch = [&] {
        CK(cudaLaunchKernelEx(&cfg, kernel, map_a, map_b, map_r, pr));
        times++;
    };
    Check found{};
    int checked = 0, errors = 0;
    auto verify = [&](const char *when) {
        if constexpr (LOADS && EPI != EPI_NONE) {
        CK(cudaMemset(q.check, 0, sizeof(Check)));
        check<<<(o.count * 32 + 255) / 256, 256>>>(q.a, q.b, q.M, q.N, q.K, EPI == EPI_INT32 ? q.c : nullptr, q.r, q.old,
                                                   o.p, times, o.count, q.seed + 77 + (uint64_t)times, q.check);
        CK(cudaGetLastError());
        CK(cudaMemcpy(&found, q.check, sizeof found, cudaMemcpyDeviceToHost));
        checked += o.count, errors += found.errors;
        if (found.errors)
            fprintf(stderr, "%s: %d of %d entries wrong, for one (%d, %d): %d, should be %d\n", when, found.errors, o.count,
                    found.row, found.col, found.got, found.want);
        }
    };

    const size_t entries = (size_t)q.M * q.N;
    if (EPI == EPI_INT32) CK(cudaMemset(q.c, 0x55, entries * 4));
    if (EPI == EPI_RESIDUE) CK(cudaMemcpy(q.r, q.old, entries, cudaMemcpyDeviceToDevice));
    launch();
    CK(cudaDeviceSynchronize());
    verify("after one run");

    cudaEvent_t e0, e1;
    CK(cudaEventCreate(&e0));
    CK(cudaEventCreate(&e1));
    auto timed = [&](int n) {
        CK(cudaEventRecord(e0));
        for (int i = 0; i < n; i++) launch();
        CK(cudaEventRecord(e1));
        CK(cudaEventSynchronize(e1));
        float ms = 0;
        CK(cudaEventElapsedTime(&ms, e0, e1));
        return ms * 1e-3;
    };
    double one = timed(4) / 4;
    auto reps = [&](double s) { return (int)std::fmin(200000.0, std::fmax(2.0, std::ceil(s / one))); };
    one = timed(reps(o.warm * 0.5)) / reps(o.warm * 0.5);
    timed(reps(o.warm * 0.5));
    const int n = reps(o.seconds);
    nvml.begin();
    const double s = timed(n) / n;
    nvml.end();
    verify("after the timed runs");

    const double ops = 2.0 * q.M * q.N * (double)q.K, rate = ops / s;
    std::vector<double> mhz, watt;
    {
        std::lock_guard<std::mutex> g(nvml.lock);
        mhz = nvml.mhz, watt = nvml.watt;
    }
    const double clock = mean(mhz), waves = std::ceil((double)units / clusters);
    double lo = NAN, hi = NAN, wmax = NAN;
    for (double x : mhz) lo = std::isnan(lo) || x < lo ? x : lo, hi = std::isnan(hi) || x > hi ? x : hi;
    for (double x : watt) wmax = std::isnan(wmax) || x > wmax ? x : wmax;
    const char *names[] = {"int32", "residue", "none"};
    printf("{\"m\": %d, \"n\": %d, \"k\": %d, \"epilogue\": \"%s\", \"cluster\": %d, \"loads\": %s, \"tops\": %.1f, "
           "\"seconds\": %.6e, \"repeats\": %d, \"errors\": %d, \"checked\": %d, \"sm_mhz\": %s, \"sm_mhz_min\": %s, "
           "\"sm_mhz_max\": %s, \"watt\": %s, \"watt_max\": %s, \"grid\": %d, \"wave_use\": %.4f, \"of_peak_at_clock\": %s, "
           "\"p\": %d, \"group\": %d}\n",
           q.M, q.N, q.K, names[EPI], CL, LOADS ? "true" : "false", rate * 1e-12, s, n, errors, checked, num(clock).c_str(),
           num(lo).c_str(), num(hi).c_str(), num(mean(watt)).c_str(), num(wmax).c_str(), clusters * CL,
           units / (waves * clusters), num(rate / (8192.0 * q.sms * clock * 1e6), 4).c_str(), o.p, o.group);
    fflush(stdout);
    CK(cudaEventDestroy(e0));
    CK(cudaEventDestroy(e1));
    return errors;
}

int main(int argc, char **argv) {
    Options o;
    std::vector<std::vector<int>> shapes = {{4096, 32768, 65536}, {2048, 2048, 8192}, {4096, 8192, 4096}};
    for (int i = 1; i < argc; i++) {
        int m, n, k;
        if (sscanf(argv[i], "--p=%d", &o.p) == 1 || sscanf(argv[i], "--seconds=%lf", &o.seconds) == 1 ||
            sscanf(argv[i], "--warm=%lf", &o.warm) == 1 || sscanf(argv[i], "--limit=%lf", &o.limit) == 1 ||
            sscanf(argv[i], "--group=%d", &o.group) == 1 || sscanf(argv[i], "--check=%d", &o.count) == 1)
            continue;
        if (sscanf(argv[i], "--shape=%d,%d,%d", &m, &n, &k) == 3) {
            shapes = {{m, n, k}};
            continue;
        }
        fprintf(stderr, "unknown argument %s\n", argv[i]);
        return 1;
    }
    if (o.p < 5 || o.p > 255 || o.p % 2 == 0 || o.group < 1 || o.count < 1) {
        fprintf(stderr, "need an odd p from 5 to 255, group >= 1, check >= 1\n");
        return 1;
    }
    for (auto &s : shapes)
        if (s[0] < 1 || s[1] < 1 || s[2] < 1 || s[0] % (2 * BM) || s[1] % BN || s[2] % BK || s[2] > 65536) {
            fprintf(stderr, "need M %% 256 == 0, N %% 256 == 0, K %% 128 == 0, K <= 65536\n");
            return 1;
        }
    std::thread([limit = o.limit] {
        std::this_thread::sleep_for(std::chrono::duration<double>(limit));
        fail("time limit", "main ran past --limit seconds");
    }).detach();

    int dev = 0;
    cudaDeviceProp prop;
    CK(cudaSetDevice(dev));
    CK(cudaGetDeviceProperties(&prop, dev));
    if (prop.major != 9 || prop.minor != 0) fail(prop.name, "this program is for sm_90a");
    fprintf(stderr, "%s, %d SMs, L2 %d MB\n", prop.name, prop.multiProcessorCount, prop.l2CacheSize >> 20);
    load_encode();
    Nvml nvml;
    nvml.open(dev);

    int *diag_host, *diag_dev;
    CK(cudaHostAlloc((void **)&diag_host, sizeof(int), cudaHostAllocMapped));
    *diag_host = 0, g_diag_host = diag_host;
    CK(cudaHostGetDevicePointer((void **)&diag_dev, diag_host, 0));

    int wrong = 0;
    for (auto &sh : shapes) {
        Problem q{};
        q.M = sh[0], q.N = sh[1], q.K = sh[2], q.diag = diag_dev, q.sms = prop.multiProcessorCount, q.seed = 12345;
        const size_t na = (size_t)q.M * q.K, nb = (size_t)q.N * q.K, nc = (size_t)q.M * q.N;
        CK(cudaMalloc((void **)&q.a, na));
        CK(cudaMalloc((void **)&q.b, nb));
        CK(cudaMalloc((void **)&q.r, nc));
        CK(cudaMalloc((void **)&q.old, nc));
        CK(cudaMalloc((void **)&q.c, nc * 4));
        CK(cudaMalloc((void **)&q.check, sizeof(Check)));
        fill<<<2048, 256>>>((uint32_t *)q.a, na / 4, 1ull << 40, 255);
        fill<<<2048, 256>>>((uint32_t *)q.b, nb / 4, 2ull << 40, 255);
        fill<<<2048, 256>>>((uint32_t *)q.old, nc / 4, 3ull << 40, o.p);  // symmetric residues mod p
        CK(cudaGetLastError());
        CK(cudaDeviceSynchronize());
        wrong += bench<EPI_INT32, 1, true>(q, o, nvml);
        wrong += bench<EPI_INT32, 2, true>(q, o, nvml);
        wrong += bench<EPI_RESIDUE, 1, true>(q, o, nvml);
        wrong += bench<EPI_RESIDUE, 2, true>(q, o, nvml);
        wrong += bench<EPI_NONE, 1, true>(q, o, nvml);
        wrong += bench<EPI_NONE, 2, true>(q, o, nvml);
        wrong += bench<EPI_NONE, 1, false>(q, o, nvml);
        for (void *x : {(void *)q.a, (void *)q.b, (void *)q.r, (void *)q.old, (void *)q.c, (void *)q.check}) CK(cudaFree(x));
    }
    nvml.close();
    return wrong ? 4 : 0;
}
