// Entries of random graphs: the same whole numbers as on the host, see tasks/random_graphs.py, which has the constants, too.
// Defined before: SCALE, IS_RMAT, IS_DIRECTED, BUCKET_BITS, FOLD, and those constants.

typedef unsigned long long word;
typedef unsigned int u32;

#define THREADS 256
// Edges that a block draws, and sorted entries that it looks at, before its threads meet.
#define EDGES 1024
#define ENTRIES 4096

struct Graph {
    word key;
    u32 a, ab, abc;     // thresholds of R-MAT's quadrants
    u32 offsets[4];     // of the rounds of relabelling
};

struct Ends {
    u32 u, v;
};

#define GRAPH word key, u32 a, u32 ab, u32 abc, u32 offset0, u32 offset1, u32 offset2, u32 offset3
#define MAKE_GRAPH {key, a, ab, abc, {offset0, offset1, offset2, offset3}}

__device__ __forceinline__ word mixed(word x) {
    x = (x ^ (x >> SHIFT_0)) * MULTIPLIER_0;
    x = (x ^ (x >> SHIFT_1)) * MULTIPLIER_1;
    return x ^ (x >> SHIFT_2);
}

__device__ __forceinline__ u32 relabelled(u32 x, const Graph& graph) {
    const u32 multipliers[4] = {ROUND_0, ROUND_1, ROUND_2, ROUND_3};
#pragma unroll
    for (int round = 0; round < 4; ++round) {
        x = (x * multipliers[round] + graph.offsets[round]) & ((1u << SCALE) - 1);
        x ^= x >> FOLD;
    }
    return x;
}

__device__ __forceinline__ Ends drawn(word edge, const Graph& graph) {
    word x = graph.key + (WORDS * edge + 1) * GOLDEN;
#if IS_RMAT
    u32 u = 0, v = 0;
#pragma unroll
    for (int first = 0; first < SCALE; first += DRAWS, x += GOLDEN) {
        const word bits = mixed(x);
#pragma unroll
        for (int i = 0; i < DRAWS; ++i) {
            if (first + i < SCALE) {
                const u32 draw = (u32)(bits >> (DRAW_BITS * i)) & ((1u << DRAW_BITS) - 1);
                const u32 is_low = draw >= graph.ab;
                u |= is_low << (first + i);
                v |= ((u32)(draw >= graph.a) ^ is_low ^ (u32)(draw >= graph.abc)) << (first + i);
            }
        }
    }
    return {relabelled(u, graph), relabelled(v, graph)};
#else
    const word bits = mixed(x);
    return {(u32)(bits >> 32) >> (32 - SCALE), (u32)bits >> (32 - SCALE)};
#endif
}

// counts[bucket] += entries of the bucket's rows; counts[2^BUCKET_BITS] += loops. Any number of blocks.
extern "C" __global__ void count_entries(GRAPH, word n_edges, word* counts) {
    __shared__ u32 own[1 << BUCKET_BITS];
    const Graph graph = MAKE_GRAPH;
    for (u32 i = threadIdx.x; i < (1u << BUCKET_BITS); i += blockDim.x) own[i] = 0;
    __syncthreads();
    word loops = 0;
    for (word edge = (word)blockIdx.x * blockDim.x + threadIdx.x; edge < n_edges; edge += (word)gridDim.x * blockDim.x) {
        const Ends ends = drawn(edge, graph);
        if (ends.u == ends.v) {
            ++loops;
        } else {
            atomicAdd(&own[ends.u >> (SCALE - BUCKET_BITS)], 1u);
            if (!IS_DIRECTED) atomicAdd(&own[ends.v >> (SCALE - BUCKET_BITS)], 1u);
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < (1u << BUCKET_BITS); i += blockDim.x) {
        if (own[i]) atomicAdd(&counts[i], (word)own[i]);
    }
    if (loops) atomicAdd(&counts[1 << BUCKET_BITS], loops);
}

__device__ __forceinline__ void hold(u32 row, u32 column, u32 n_rows, word* held, u32* n_held) {
    if (row < n_rows) held[atomicAdd(n_held, 1u)] = ((word)row << SCALE) | column;
}

// Entries of n_rows rows as keys (row - first_row) * 2^SCALE + column, in any order; *n_keys begins at 0. Blocks of THREADS.
extern "C" __global__ void gather_entries(GRAPH, word n_edges, u32 first_row, u32 n_rows, word* keys, word most, word* n_keys) {
    __shared__ word held[2 * EDGES];
    __shared__ u32 n_held;
    __shared__ word target;
    const Graph graph = MAKE_GRAPH;
    for (word start = (word)blockIdx.x * EDGES; start < n_edges; start += (word)gridDim.x * EDGES) {
        if (threadIdx.x == 0) n_held = 0;
        __syncthreads();
        for (word edge = start + threadIdx.x; edge < start + EDGES && edge < n_edges; edge += THREADS) {
            const Ends ends = drawn(edge, graph);
            if (ends.u != ends.v) {
                hold(ends.u - first_row, ends.v, n_rows, held, &n_held);
                if (!IS_DIRECTED) hold(ends.v - first_row, ends.u, n_rows, held, &n_held);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0 && n_held) target = atomicAdd(n_keys, (word)n_held);
        __syncthreads();
        for (u32 i = threadIdx.x; i < n_held; i += THREADS) {
            if (target + i < most) keys[target + i] = held[i];
        }
        __syncthreads();
    }
}

__device__ __forceinline__ bool is_first(const word* keys, word at, word n) {
    return at < n && (at == 0 || keys[at] != keys[at - 1]);
}

// counts[block] = keys of the block's ENTRIES that differ from the one before.
extern "C" __global__ void count_distinct(const word* keys, word n, u32* counts) {
    u32 total = 0;
    for (u32 i = threadIdx.x; i < ENTRIES; i += THREADS) {
        total += __syncthreads_count(is_first(keys, (word)blockIdx.x * ENTRIES + i, n));
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Columns of distinct keys in order, and where the entries of each row that has any begin; others keep what starts had.
extern "C" __global__ void write_distinct(const word* keys, word n, const u32* offsets, int* columns, u32* starts) {
    __shared__ u32 found[THREADS / 32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 base = offsets[blockIdx.x];
    for (u32 i = threadIdx.x; i < ENTRIES; i += THREADS) {
        const word at = (word)blockIdx.x * ENTRIES + i;
        const bool wanted = is_first(keys, at, n);
        const u32 votes = __ballot_sync(~0u, wanted);
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        u32 place = base + __popc(votes & ((1u << lane) - 1));
        for (u32 other = 0; other < THREADS / 32; ++other) {
            if (other < warp) place += found[other];
            base += found[other];
        }
        if (wanted) {
            columns[place] = (int)(keys[at] & ((1u << SCALE) - 1));
            const word row = keys[at] >> SCALE;
            if (at == 0 || keys[at - 1] >> SCALE != row) starts[row] = place;
        }
        __syncthreads();
    }
}
