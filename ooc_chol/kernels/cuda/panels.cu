// Inner products of panels chunk by chunk, and what is done with small matrices and single panels. Behind panel_words.cu.
//
// Defines: CLUSTER, thread blocks that share a chunk and read each other's shared memory, 1 where the device knows none; and
// MOST_PARTS, devices whose sums of chunks are added.
//
// A chunk has STRIPS strips of rows, each added by the warps of a thread block: a warp takes every eighth run of RUN rows in
// order (without MMA and of 8 columns every second, for a quarter of the panels). Then the sums of warps are added in order, and those of strips. So the order is that of the rows of the chunk, whatever
// the grid, the cluster, and the columns that a thread block has.

constexpr int THREADS = 256, WARPS = THREADS / WARP, STRIPS = 8, STRIP_ROWS = 8192, RUN = 64;
constexpr int CHUNK_ROWS = STRIPS * STRIP_ROWS, OWN_STRIPS = STRIPS / CLUSTER;
static_assert(CLUSTER == 1 || CLUSTER == STRIPS, "a thread block of a cluster has one strip");
#if MMA
constexpr int ABREAST = 1, MOST_TILES = 8;
#else
// Panels of which a thread has all products with W, and how many such sets of panels the warps of a thread block share: what one
// of them reads of W, the others find in the first cache.
constexpr int PANELS = B == 8 ? 1 : B == 4 ? 4 : 8, ABREAST = B == 8 ? 4 : 1, MOST_TILES = ABREAST * PANELS * B / TILE;
#endif
constexpr int TILE_SUMS = TILE * TILE, MOST_SUMS = MOST_TILES * TILE_SUMS;
// Rows from one run of a warp to its next.
constexpr int STEP = WARPS / ABREAST * RUN;

struct Basis {
    const STORE* v;
    const STORE* w;
    u64 rows;
    int p;
};

#if MMA
// Adds what the columns of G tiles and W have in some rows of a strip; a lane has a column of each tile and a quarter of the rows.
template <int G>
__device__ __forceinline__ void add_rows(double (&sum)[(G + 1) / 2][2][2], const Basis& basis, int tile, u64 first, u64 stop) {
    constexpr int U = G == 1 ? 16 : G <= (sizeof(STORE) == 4 ? 4 : 2) ? 8 : G <= (sizeof(STORE) == 4 ? 8 : 4) ? 4 : 2;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, k = lane % 4, m = lane / 4;
    const STORE* at[G];
#pragma unroll
    for (int g = 0; g < G; ++g) at[g] = column_at(basis.v, basis.p, basis.rows, (tile + g) * TILE + m);
    const STORE* w = basis.w + m % B;
    for (u64 run = first + warp * RUN; run < stop; run += STEP) {
        if (run + RUN <= stop) {
#pragma unroll 1
            for (u64 row = run + k; row < run + RUN; row += 4 * U) {
                STORE a[U][G], b[U];
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    b[u] = w[(row + 4 * u) * B];
#pragma unroll
                    for (int g = 0; g < G; ++g) a[u][g] = at[g][(row + 4 * u) * B];
                }
#pragma unroll
                for (int u = 0; u < U; ++u)
#pragma unroll
                    for (int g = 0; g < G; g += 2) multiply_add(sum[g / 2], a[u][g], g + 1 < G ? a[u][g + 1 < G ? g + 1 : g] : 0, b[u]);
            }
        } else {
            for (u64 row = run + k; row < run + RUN; row += 4) {
                const bool is_there = row < stop;
                const double b = is_there ? w[row * B] : 0;
#pragma unroll
                for (int g = 0; g < G; g += 2) {
                    const double a0 = is_there ? at[g][row * B] : 0;
                    const double a1 = g + 1 < G && is_there ? at[g + 1 < G ? g + 1 : g][row * B] : 0;
                    multiply_add(sum[g / 2], a0, a1, b);
                }
            }
        }
    }
}

// The sums of a strip, (G tiles of 8 columns, 8 columns of W), in shared memory.
template <int G> __device__ void add_strip(SUM* out, const Basis& basis, int tile, u64 first, u64 stop) {
    double sum[(G + 1) / 2][2][2] = {};
    add_rows<G>(sum, basis, tile, first, stop);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, k = lane % 4, m = lane / 4;
    for (int turn = 0; turn < WARPS; ++turn) {
        if (turn == warp)
#pragma unroll
            for (int g = 0; g < G; ++g)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    SUM* to = out + (g * TILE + m) * TILE + 2 * k + e;
                    *to = (turn ? *to : 0) + sum[g / 2][g % 2][e];
                }
        __syncthreads();
    }
}

__device__ __forceinline__ void add_tiles(SUM* out, const Basis& basis, int tile, int tiles, u64 first, u64 stop) {
    switch (tiles) {
        case 1: return add_strip<1>(out, basis, tile, first, stop);
        case 2: return add_strip<2>(out, basis, tile, first, stop);
        case 3: return add_strip<3>(out, basis, tile, first, stop);
        case 4: return add_strip<4>(out, basis, tile, first, stop);
        case 5: return add_strip<5>(out, basis, tile, first, stop);
        case 6: return add_strip<6>(out, basis, tile, first, stop);
        case 7: return add_strip<7>(out, basis, tile, first, stop);
        default: return add_strip<8>(out, basis, tile, first, stop);
    }
}
#else
// A row of a panel in the type of computing.
__device__ __forceinline__ void read_row(SUM (&out)[B], const STORE* row) {
#pragma unroll
    for (int part = 0; part < B / WIDTH; ++part) {
        Numbers<WIDTH> found;
        found.word = ((const decltype(found.word)*)row)[part];
#pragma unroll
        for (int c = 0; c < WIDTH; ++c) out[part * WIDTH + c] = (SUM)found.number[c];
    }
}

typedef SUM Sums[PANELS][B][B];

// Adds a run of rows, of which a lane has two; those from `stop` on are nothing.
template <bool IS_WHOLE>
__device__ __forceinline__ void add_run(Sums& sum, const Basis& basis, int tile, u64 run, u64 stop) {
#pragma unroll
    for (int half = 0; half < RUN / WARP; ++half) {
        const u64 row = run + half * WARP + threadIdx.x % WARP;
        if (!IS_WHOLE && row >= stop) continue;
        SUM w[B];
        read_row(w, basis.w + row * B);
#pragma unroll
        for (int g = 0; g < PANELS; ++g) {
            SUM v[B];
            read_row(v, column_at(basis.v, basis.p, basis.rows, tile * TILE + g * B) + row * B);
#pragma unroll
            for (int i = 0; i < B; ++i)
#pragma unroll
                for (int j = 0; j < B; ++j) sum[g][i][j] += v[i] * w[j];
        }
    }
}

// The sums of a strip: a lane adds a row at a time for all columns of its panels, and what lanes have is added in a tree.
__device__ __forceinline__ void add_tiles(SUM* out, const Basis& basis, int tile, int tiles, u64 first, u64 stop) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, which = warp % ABREAST, nth = warp / ABREAST;
    const bool has_panels = which * (MOST_TILES / ABREAST) < tiles;
    tile += which * (MOST_TILES / ABREAST);
    Sums sum = {};
    for (u64 run = first + nth * RUN; has_panels && run < stop; run += STEP) {
        if (run + RUN <= stop)
            add_run<true>(sum, basis, tile, run, stop);
        else
            add_run<false>(sum, basis, tile, run, stop);
    }
#pragma unroll
    for (int step = WARP / 2; step; step /= 2)
#pragma unroll
        for (int g = 0; g < PANELS; ++g)
#pragma unroll
            for (int i = 0; i < B; ++i)
#pragma unroll
                for (int j = 0; j < B; ++j) sum[g][i][j] += __shfl_xor_sync(0xffffffffu, sum[g][i][j], step);
    for (int turn = 0; turn < WARPS / ABREAST; ++turn) {
        if (turn == nth && lane == 0)
#pragma unroll
            for (int g = 0; g < PANELS; ++g)
#pragma unroll
                for (int i = 0; i < B; ++i)
#pragma unroll
                    for (int j = 0; j < B; ++j) {
                        SUM* to = out + ((which * PANELS + g) * B + i) * TILE + j;
                        *to = (turn ? *to : 0) + sum[g][i][j];
                    }
        __syncthreads();
    }
}
#endif

#if CLUSTER == 1
// What a strip has at a place of its sums.
__device__ __forceinline__ SUM sum_of(const SUM* sums, int strip, int at) { return sums[strip * MOST_SUMS + at]; }

// All thread blocks that share a chunk have come here, and what they wrote is seen.
__device__ __forceinline__ void meet() { __syncthreads(); }
#elif defined(__CUDACC__)
__device__ __forceinline__ void read_there(u32 there, double& found) {
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(found) : "r"(there));
}

__device__ __forceinline__ void read_there(u32 there, float& found) {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(there));
}

// The same from the shared memory of the cluster's thread block that has the strip.
__device__ __forceinline__ SUM sum_of(const SUM* sums, int strip, int at) {
    const u32 here = (u32)__cvta_generic_to_shared(sums + at);
    u32 there;
    SUM found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(strip));
    read_there(there, found);
    return found;
}

__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

// partial[c] = V[c].T W[c]. Thread blocks: for each chunk, for each `tiles` tiles, CLUSTER.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        gram(const STORE* __restrict__ v, const STORE* __restrict__ w, SUM* __restrict__ partial, u64 rows, int p, int tiles,
             const u32* unless) {
    if (unless && !*unless) return;
    __shared__ SUM sums[OWN_STRIPS * MOST_SUMS];
    const int all = (p * B + TILE - 1) / TILE, groups = (all + tiles - 1) / tiles;
    const int rank = blockIdx.x % CLUSTER, tile = blockIdx.x / CLUSTER % groups * tiles, count = min(tiles, all - tile);
    const u64 chunk = blockIdx.x / CLUSTER / groups;
    const Basis basis = {v, w, rows, p};
    for (int own = 0; own < OWN_STRIPS; ++own) {
        const u64 first = chunk * CHUNK_ROWS + (rank + own) * STRIP_ROWS;
        add_tiles(sums + own * MOST_SUMS, basis, tile, count, first, min(first + STRIP_ROWS, rows));
    }
    meet();
    for (int at = rank * THREADS + threadIdx.x; at < count * TILE_SUMS; at += CLUSTER * THREADS) {
        SUM total = 0;
        for (int strip = 0; strip < STRIPS; ++strip) total += sum_of(sums, strip, at);
        const int column = tile * TILE + at / TILE;
        if (column < p * B && at % TILE < B) partial[(chunk * (p * B) + column) * B + at % TILE] = total;
    }
    meet();  // nobody leaves while others read what it has
}

// Sums of chunks as they lie on one device after the other.
struct Parts {
    const SUM* at[MOST_PARTS];
    u64 chunks[MOST_PARTS], count;
};

// out = sum of all chunks in order, or out += that. A lane has one number; all warps read, since another device's memory is far
// away, and the first one adds.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_partials(const Parts parts, SUM* out, u32 count, int adds, const u32* unless) {
    constexpr int HELD = 128;
    __shared__ SUM held[HELD][WARP];
    if (unless && !*unless) return;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 at = blockIdx.x * WARP + lane;
    SUM total = 0;
    for (u64 part = 0; part < parts.count; ++part)
        for (u64 first = 0; first < parts.chunks[part]; first += HELD) {
            const int here = (int)min((u64)HELD, parts.chunks[part] - first);
            SUM found[HELD / WARPS];
#pragma unroll
            for (int u = 0; u < HELD / WARPS; ++u) {
                const int c = warp + u * WARPS;
                found[u] = at < count && c < here ? parts.at[part][(first + c) * count + at] : 0;
            }
#pragma unroll
            for (int u = 0; u < HELD / WARPS; ++u) held[warp + u * WARPS][lane] = found[u];
            __syncthreads();
            if (warp == 0)
#pragma unroll 8
                for (int c = 0; c < here; ++c) total += held[c][lane];
            __syncthreads();
        }
    if (warp == 0 && at < count) out[at] = adds ? out[at] + total : total;
}

// G = R.T R by one warp: lane j has column j. A row of R that a dependent column would have is 0, as is its row of the inverse.
// A column also depends whose pivot is not above tolerance, nor times scale^2 above floor times what it was before. Where one
// depends, or has a pivot below a share, weak becomes 1.
extern "C" __global__ void factor(const SUM* g, SUM* r, SUM* inverse, u32* dependent, SUM tolerance, const SUM* scale,
                                  const SUM* before, double floor, SUM share, u32* weak) {
    __shared__ SUM root[B][B], solved[B][B];
    __shared__ int is_kept[B];
    const int lane = threadIdx.x;
    for (int j = 0; j < B; ++j) {
        SUM sum = 0;
        if (lane < B) {
            sum = g[j * B + lane];
            for (int k = 0; k < j; ++k) sum -= root[k][j] * root[k][lane];
        }
        const SUM pivot = __shfl_sync(0xffffffffu, sum, j);
        const int diagonal_at = j * B + j;
        bool keeps = isfinite(pivot) && pivot > tolerance * g[diagonal_at];
        if (keeps && scale) {
            const double was = scale[diagonal_at];
            keeps = !(pivot <= tolerance && (double)pivot <= floor * (double)before[diagonal_at] / (was * was));
        }
        const SUM diagonal = keeps ? sqrt(pivot) : 1;
        if (lane < B) root[j][lane] = !keeps || lane < j ? 0 : lane == j ? diagonal : sum / diagonal;
        if (lane == j) is_kept[j] = keeps;
        __syncwarp();
    }
    if (lane >= B) return;
    for (int i = B - 1; i >= 0; --i) {
        SUM sum = i == lane ? 1 : 0;
        for (int k = i + 1; k <= lane; ++k)
            if (is_kept[k]) sum -= root[i][k] * solved[k][lane];
        solved[i][lane] = i <= lane && is_kept[i] && is_kept[lane] ? sum / root[i][i] : 0;
    }
    for (int i = 0; i < B; ++i) {
        r[i * B + lane] = root[i][lane];
        inverse[i * B + lane] = solved[i][lane];
    }
    dependent[lane] = !is_kept[lane];
    if (weak && (!is_kept[lane] || root[lane][lane] * root[lane][lane] < share)) *weak = 1;
}

// The smallest normal number.
constexpr SUM TINY = sizeof(SUM) == 4 ? 0x1p-126 : 0x1p-1022;

// The same in an order of columns, those that come last behind all others, with no pivot below tolerance times its entry of G's
// diagonal, or the smallest number that is normal; weak = whether there was one; fell = weak, or whether an entry of the diagonal
// is below a share of what it was before, or a pivot below `least` of its entry.
extern "C" __global__ void factor_clamped(const SUM* g, SUM* r, SUM* inverse, u32* weak, SUM tolerance, const SUM* before,
                                          SUM share, SUM least_share, u32* fell, const u32* last, const u32* unless) {
    if (unless && !*unless) return;
    __shared__ SUM root[B][B], solved[B][B];
    __shared__ int order[B], is_good[B];
    const int lane = threadIdx.x;
    if (lane == 0) {
        int count = 0;
        for (int pass = 0; pass < 2; ++pass)
            for (int j = 0; j < B; ++j)
                if ((last && last[j]) == pass) order[count++] = j;
    }
    __syncwarp();
    if (lane < B) {
        const SUM diagonal = g[order[lane] * (B + 1)];
        is_good[lane] = isfinite(diagonal) && diagonal > 0;
    }
    __syncwarp();
    bool is_clamped = false, is_low = false;
    for (int j = 0; j < B; ++j) {
        SUM sum = 0;
        if (lane < B && is_good[j] && is_good[lane]) {
            sum = g[order[j] * B + order[lane]];
            for (int k = 0; k < j; ++k) sum -= root[k][j] * root[k][lane];
        }
        const SUM pivot = __shfl_sync(0xffffffffu, sum, j), noise = tolerance * g[order[j] * (B + 1)];
        const SUM least = noise > TINY ? noise : TINY;
        is_clamped |= is_good[j] && !(pivot > least);
        const SUM diagonal = is_good[j] ? sqrt(pivot > least ? pivot : least) : 1;
        if (before) {
            const SUM square = g[order[j] * (B + 1)];
            is_low |= square < share * before[order[j] * (B + 1)] || (is_good[j] && diagonal * diagonal < least_share * square);
        }
        if (lane < B) root[j][lane] = !is_good[j] || lane < j ? 0 : lane == j ? diagonal : sum / diagonal;
        __syncwarp();
    }
    if (lane == 0 && weak) *weak = is_clamped;
    if (lane == 0 && fell) *fell = is_clamped || is_low;
    if (lane >= B) return;
    for (int i = B - 1; i >= 0; --i) {
        SUM sum = i == lane ? 1 : 0;
        for (int k = i + 1; k <= lane; ++k) sum -= root[i][k] * solved[k][lane];
        solved[i][lane] = i <= lane && is_good[i] && is_good[lane] ? sum / root[i][i] : 0;
    }
    for (int i = 0; i < B; ++i) {
        r[order[i] * B + order[lane]] = root[i][lane];
        inverse[order[i] * B + order[lane]] = solved[i][lane];
    }
}

// flag = whether the square of a column's norm fell below a share of what it was.
extern "C" __global__ void fell(const SUM* before, const SUM* after, u32* flag, SUM share) {
    const int at = threadIdx.x * (B + 1);
    const bool has = threadIdx.x < B && after[at] < share * before[at];
    const bool any = __any_sync(0xffffffffu, has);
    if (threadIdx.x == 0) *flag = any;
}

// A small matrix that rows are multiplied by, upper triangular, and which of their numbers are taken: not those whose row is 0.
struct Factor {
    SUM number[B][B];
    int is_kept[B];
};

// Brings a factor to shared memory, by all threads.
__device__ __forceinline__ void bring(Factor& factor, const SUM* __restrict__ given) {
    if (threadIdx.x < B * B) factor.number[threadIdx.x / B][threadIdx.x % B] = given[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < B) {
        bool keeps = false;
        for (int j = 0; j < B; ++j) keeps |= factor.number[threadIdx.x][j] != 0;
        factor.is_kept[threadIdx.x] = keeps;
    }
    __syncthreads();
}

// A row of a panel as it is read and written.
struct Row {
    Numbers<WIDTH> words[B / WIDTH];

    __device__ __forceinline__ void read(const STORE* at) {
        for (int part = 0; part < B / WIDTH; ++part) words[part].word = ((const decltype(words->word)*)at)[part];
    }

    __device__ __forceinline__ void write(STORE* at) const {
        for (int part = 0; part < B / WIDTH; ++part) ((decltype(words->word)*)at)[part] = words[part].word;
    }

    // Becomes the row times a factor, each number rounded.
    __device__ __forceinline__ void multiply(const Factor& factor) {
        SUM made[B] = {};
#pragma unroll
        for (int k = 0; k < B; ++k)
            if (factor.is_kept[k])
#pragma unroll
                for (int j = 0; j < B; ++j) made[j] += (SUM)words[k / WIDTH].number[k % WIDTH] * factor.number[k][j];
        for (int j = 0; j < B; ++j) words[j / WIDTH].number[j % WIDTH] = (STORE)made[j];
    }
};

// out = W inverse, upper triangular. A thread has a row.
extern "C" __global__ void multiply_right(const STORE* w, const SUM* __restrict__ inverse, STORE* out, u64 rows,
                                          const u32* unless) {
    if (unless && !*unless) return;
    __shared__ Factor factor;
    bring(factor, inverse);
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
        Row found;
        found.read(w + row * B);
        found.multiply(factor);
        found.write(out + row * B);
    }
}

// W = (W first) second; or what another device made of it, where one of two flags is not 0.
extern "C" __global__ void multiply_right_twice(STORE* w, const SUM* __restrict__ first, const SUM* __restrict__ second,
                                                const STORE* made, u64 rows, const u32* flags) {
    __shared__ Factor factors[2];
    const bool is_made = flags[0] != 0 || flags[1] != 0;
    bring(factors[0], first);
    bring(factors[1], second);
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
        Row found;
        found.read((is_made ? made : w) + row * B);
        if (!is_made)
            for (int turn = 0; turn < 2; ++turn) found.multiply(factors[turn]);
        found.write(w + row * B);
    }
}

// Of the three-term recurrence of Chebyshev polynomials: out = scale (W - shift X) - previous, which may be nothing; `out` may be
// `w` or `previous`.
extern "C" __global__ void recur(const STORE* w, const STORE* x, const STORE* previous, STORE* out, u64 count, SUM scale,
                                 SUM shift) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) {
        const SUM found = scale * ((SUM)w[at] - shift * (SUM)x[at]);
        out[at] = (STORE)(previous ? found - (SUM)previous[at] : found);
    }
}

// W's columns that are chosen, or all, become random: see tasks/random_panels.py, which has the constants, too.
extern "C" __global__ void fill_random(STORE* w, u64 rows, u64 first_row, u64 key, const u32* columns) {
    if (columns) {
        bool any = false;
        for (int j = 0; j < B; ++j) any |= columns[j] != 0;
        if (!any) return;
    }
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < rows * B; at += (u64)gridDim.x * blockDim.x) {
        if (columns && !columns[at % B]) continue;
        u64 x = key + ((first_row + at / B) * ROW_WORDS + at % B + 1) * GOLDEN;
        x = (x ^ (x >> SHIFT_0)) * MULTIPLIER_0;
        x = (x ^ (x >> SHIFT_1)) * MULTIPLIER_1;
        x ^= x >> SHIFT_2;
        w[at] = (STORE)((double)(x >> (64 - NUMBER_BITS)) / (double)(1ull << (NUMBER_BITS - 1)) - 1);
    }
}
