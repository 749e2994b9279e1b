// Products of int8 planes on Hopper (sm_90a), reduced modulo m_p in registers: no int32 sum goes to memory.
//
//   S[p] = (S[p] +) left[p] @ right[p].T  modulo m_p, as int8,   S (planes, rows, cols), left (planes, rows, inner), right (planes, cols, inner)
//
// A thread block multiplies tiles of 128 x 256 one after the other. Its warp group 0 brings operands, 128 bytes of K a stage, by the
// bulk copy engine; warp groups 1 and 2 multiply 64 rows each, with sums of wgmma in registers. What lies outside of an array is
// read as zero and not written, up to a group of eight columns. Power is the limit (benchmarks/int8_ceiling.cu).
//
// In front of this text stands residue_hopper.cu.

constexpr int BM = 128, BN = 256, BK = 128;
constexpr int A_BYTES = BM * BK, B_BYTES = BN * BK, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CONSUMER_WARPS = BM / 16;
constexpr int OLD_BYTES = BM * BN; // a tile's residues before, two boxes of 128 columns
static_assert(THREADS == 128 + 2 * BM && SHARED_BYTES == STAGES * STAGE_BYTES + OLD_BYTES + 8 * (2 * STAGES + 2) + 1024);

// Where an array lies, as the driver encodes it: K, rows and planes.
struct __align__(64) Map {
    u64 words[16];
};

__device__ __forceinline__ void barrier_init(u32 bar, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// What this orders is the copy engine's reads, done by then, before its next writes.
__device__ __forceinline__ void barrier_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity)
{
    u32 done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred q;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2;\n"
            "selp.u32 %0, 1, 0, q;\n}"
            : "=r"(done)
            : "r"(bar), "r"(parity)
            : "memory");
    }
}

__device__ __forceinline__ void load_box(u32 to, const Map* map, int column, int row, int plane, u32 bar)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"((u64)map), "r"(column), "r"(row), "r"(plane), "r"(bar)
        : "memory");
}

// 4 x 4 transpose of words among the four lanes of a quad: lane q's word b becomes lane b's word q.
__device__ __forceinline__ void quad_transpose(u32 (&w)[4], int q)
{
    const bool odd = q & 1, high = q & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 got = __shfl_xor_sync(0xFFFFFFFFu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 got = __shfl_xor_sync(0xFFFFFFFFu, high ? w[i] : w[i + 2], 2);
        w[i] = high ? got : w[i];
        w[i + 2] = high ? w[i + 2] : got;
    }
}

__device__ __forceinline__ uint2 load_shared8(u32 at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

__device__ __forceinline__ int byte_of(u32 word, int i) { return (int)(signed char)(word >> (8 * i)); }

struct Block {
    int row, col, plane;
    bool is_above; // wholly above the diagonal
};

struct Shape {
    int rows, cols, inner, planes;
    int accumulates, lower;
};

// Block number t: planes one after the other, in each groups of GROUP rows of blocks, column by column.
__device__ __forceinline__ Block block_at(int t, int high, int wide, int lower)
{
    const int plane = t / (high * wide), in_plane = t - plane * high * wide;
    const int group = in_plane / (GROUP * wide), in_group = in_plane - group * GROUP * wide;
    const int rows = min(GROUP, high - group * GROUP), col = in_group / rows;
    const int first_row = (group * GROUP + in_group - col * rows) * BM;
    return {first_row, col * BN, plane, lower && col * BN >= first_row + BM};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) multiply_residues(
    const __grid_constant__ Map left, const __grid_constant__ Map right, const __grid_constant__ Map before,
    const __grid_constant__ Moduli moduli, const __grid_constant__ Shape shape, signed char* sums, long long row_bytes,
    long long plane_bytes)
{
    extern __shared__ unsigned char raw[];
    const u32 base = (shared_address(raw) + 1023u) & ~1023u;
    const u32 old = base + STAGES * STAGE_BYTES, full = old + OLD_BYTES, empty = full + 8 * STAGES;
    const u32 old_full = empty + 8 * STAGES, old_empty = old_full + 8;
    const int warp_group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);
    const int lane = threadIdx.x & 31;
    const int high = (shape.rows + BM - 1) / BM, wide = (shape.cols + BN - 1) / BN;
    const int blocks = shape.planes * high * wide, steps = (shape.inner + BK - 1) / BK;

    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"((u64)&left) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"((u64)&right) : "memory");
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, CONSUMER_WARPS);
        }
        barrier_init(old_full, 1);
        barrier_init(old_empty, CONSUMER_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (warp_group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) {
            return;
        }
        u32 s = 0, phase = 0, old_phase = 0;
        const int old_at = min(STAGES, steps - 1); // by then the consumers have left the block before
        for (int t = blockIdx.x; t < blocks; t += gridDim.x) {
            const Block block = block_at(t, high, wide, shape.lower);
            if (block.is_above) {
                continue;
            }
            for (int k = 0; k < steps; k++) {
                const u32 bar = full + 8 * s, a = base + s * STAGE_BYTES, b = a + A_BYTES;
                barrier_wait(empty + 8 * s, phase ^ 1);
                barrier_expect(bar, STAGE_BYTES);
                load_box(a, &left, k * BK, block.row, block.plane, bar);
                load_box(b, &right, k * BK, block.col, block.plane, bar);
                if (++s == STAGES) {
                    s = 0, phase ^= 1;
                }
                if (shape.accumulates && k == old_at) {
                    barrier_wait(old_empty, old_phase ^ 1);
                    barrier_expect(old_full, OLD_BYTES);
                    load_box(old, &before, block.col, block.row, block.plane, old_full);
                    load_box(old + OLD_BYTES / 2, &before, block.col + BN / 2, block.row, block.plane, old_full);
                    old_phase ^= 1;
                }
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int part = warp_group - 1, warp = (threadIdx.x / 32) & 3, quad = lane >> 2, q = lane & 3;
    const int my_row = part * 64 + warp * 16 + quad; // and my_row + 8
    const u64 left0 = descriptor(base + part * 64 * BK), right0 = descriptor(base + A_BYTES);
    u32 s = 0, phase = 0, old_phase = 0;
    int d[128];
#pragma unroll
    for (int i = 0; i < 128; i++) {
        d[i] = 0;
    }
    for (int t = blockIdx.x; t < blocks; t += gridDim.x) {
        const Block block = block_at(t, high, wide, shape.lower);
        if (block.is_above) {
            continue;
        }
        const bool works = block.row + part * 64 < shape.rows; // the others' products are not worth their time
        u32 last = 0;
        pin(d);
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            barrier_wait(full + 8 * s, phase);
            const u64 a = left0 + s * (STAGE_BYTES >> 4), b = right0 + s * (STAGE_BYTES >> 4);
            if (works) {
                wgmma_fence();
                multiply_step(d, a, b, k != 0);
                multiply_step(d, a + 2, b + 2, 1);
                multiply_step(d, a + 4, b + 4, 1);
                multiply_step(d, a + 6, b + 6, 1);
                wgmma_commit();
                wgmma_wait<1>(); // the products of the step before are done with their stage
            }
            if (k > 0 && lane == 0) {
                barrier_arrive(empty + 8 * last);
            }
            last = s;
            if (++s == STAGES) {
                s = 0, phase ^= 1;
            }
        }
        wgmma_wait<0>();
        pin(d);
        if (lane == 0) {
            barrier_arrive(empty + 8 * last);
        }
        if (shape.accumulates) {
            barrier_wait(old_full, old_phase);
            old_phase ^= 1;
        }
        // Lane q of a quad holds columns 32 g + 8 q to 32 g + 8 q + 7 of two rows: one 32-byte sector a quad.
        const Modulus m = moduli.of[block.plane];
        const int row = block.row + my_row, col = block.col + 8 * q;
        signed char* upper = sums + block.plane * plane_bytes + row * row_bytes + col;
        signed char* lower = upper + 8 * row_bytes;
        const u32 before0 = old + my_row * 128; // 128-byte swizzle: 16-byte pieces XOR row mod 8, which is quad
#pragma unroll
        for (int g = 0; g < 8; g++) {
            u32 w[4] = {0, 0, 0, 0};
            if (shape.accumulates) {
                const u32 at = before0 + (g / 4) * (OLD_BYTES / 2) + ((32 * (g % 4) + 8 * q) ^ (quad << 4));
                const uint2 x = load_shared8(at), y = load_shared8(at + 8 * 128);
                w[0] = __byte_perm(x.x, y.x, 0x5410), w[1] = __byte_perm(x.x, y.x, 0x7632);
                w[2] = __byte_perm(x.y, y.y, 0x5410), w[3] = __byte_perm(x.y, y.y, 0x7632);
                quad_transpose(w, q); // w[b]: residues before of this lane's four sums of block b
            }
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const int o = (4 * g + b) * 4;
                const int v0 = reduced(d[o], byte_of(w[b], 0), m), v1 = reduced(d[o + 1], byte_of(w[b], 1), m);
                const int v2 = reduced(d[o + 2], byte_of(w[b], 2), m), v3 = reduced(d[o + 3], byte_of(w[b], 3), m);
                w[b] = __byte_perm(__byte_perm(v0, v1, 0x0040), __byte_perm(v2, v3, 0x0040), 0x5410);
            }
            quad_transpose(w, q);
            if (col + 32 * g < shape.cols) {
                if (row < shape.rows) {
                    *(uint2*)(upper + 32 * g) = make_uint2(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410));
                }
                if (row + 8 < shape.rows) {
                    *(uint2*)(lower + 32 * g) = make_uint2(__byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
                }
            }
        }
        __syncwarp();
        if (shape.accumulates && lane == 0) {
            barrier_arrive(old_empty);
        }
    }
}
