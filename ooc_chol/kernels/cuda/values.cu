// Sums over the entries of sparse patterns, and products sampled on them (ooc_chol/diff): one form for products A x, transposed
// products, sums of rows and the gather-multiply-add of sparse products.
//
//     out[r, c] = sum over t in [ends[r], ends[r + 1]) of a[of_a ? of_a[t] : t] * (HAS_B ? b[of_b[t], c] : 1)
//
// Defines: NUMBER, the type of what is stored; SUM, that in which it is multiplied and added; END, A_PLACE and B_PLACE, the types
// of ends and places; HAS_ORDER and HAS_B, 1 where of_a and b are given; LANES of a row of b and columns of each, WIDTH; and the
// sizes of term_groups.py: WINDOW, LONG.
//
// Nothing is atomic. How the terms of a row are dealt out to threads, and so the order in which they are added, is chosen by
// their number alone, and whether there is one column or several: of one column up to SHORT by a thread in order, up to LONG by a
// warp; of several up to LONG in order; more in segments of strands, whose sums are added in order.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int THREADS = 256, WARPS = THREADS / 32;
// Terms of a row that one thread adds, and terms of a group: less than a window before its last row.
constexpr int SHORT = 32, MOST = WINDOW + LONG;
// Terms whose numbers a thread reads before it multiplies the first; those of wide rows are added CHUNK at a time.
constexpr int UNROLL = 5, WIDE_UNROLL = sizeof(SUM) * WIDTH > 16 ? 5 : 6, CHUNK = 30;
// Columns that a thread block makes, rows that it makes, and strands of a segment, every STRANDS-th of its terms.
constexpr int PANEL = WIDTH * LANES, SUBS = THREADS / LANES, STRANDS = 32;
// Entries that a lane samples at once.
constexpr int SAMPLES = 4;

struct alignas(WIDTH * sizeof(NUMBER)) Part {
    NUMBER number[WIDTH];
};

struct Operands {
    const NUMBER* a;
    const A_PLACE* of_a;
    const NUMBER* b;
    const B_PLACE* of_b;
};

__device__ __forceinline__ u64 place_a(const Operands& given, u64 t) {
#if HAS_ORDER
    return (u64)__ldcs(given.of_a + t);
#else
    return t;
#endif
}

// Values are read once, in order; those that are read out of order may lie in a line that a neighbour wants.
__device__ __forceinline__ NUMBER value_a(const Operands& given, u64 place) {
#if HAS_ORDER
    return __ldg(given.a + place);
#else
    return __ldcs(given.a + place);
#endif
}

// The sum of a warp's lanes, the same in all.
__device__ __forceinline__ SUM sum_of_lanes(SUM sum, int lanes) {
    for (int apart = lanes / 2; apart; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

// One column: a thread block makes the terms of a group, whatever rows they belong to, and adds them in shared memory.
extern "C" __global__ void __launch_bounds__(THREADS, 6)
sums(const u32* __restrict__ group_rows, const END* __restrict__ group_terms, const END* __restrict__ ends, const NUMBER* a,
     const A_PLACE* of_a, const NUMBER* b, const B_PLACE* of_b, NUMBER* __restrict__ out) {
    __shared__ SUM terms[MOST];
    const Operands given = {a, of_a, b, of_b};
    const u32 first_row = __ldg(group_rows + blockIdx.x), last_row = __ldg(group_rows + blockIdx.x + 1);
    const u64 first = (u64)__ldg(group_terms + blockIdx.x);
    const u64 beyond = (u64)__ldg(group_terms + blockIdx.x + 1);
    const int thread = threadIdx.x;
    if (first_row == last_row) return;
    // More terms than fit are those of a long row at the end, which are added elsewhere.
    const int count = beyond - first > MOST ? MOST : (int)(beyond - first);
    for (int begin = thread; begin < count; begin += UNROLL * THREADS) {
        u64 from_a[UNROLL] = {};
        NUMBER of_a_here[UNROLL] = {};
        SUM of_b_here[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (begin + u * THREADS < count) from_a[u] = place_a(given, first + (begin + u * THREADS));
#if HAS_B
        B_PLACE from_b[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (begin + u * THREADS < count) from_b[u] = __ldcs(given.of_b + (first + (begin + u * THREADS)));
#endif
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (begin + u * THREADS < count) of_a_here[u] = value_a(given, from_a[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#if HAS_B
            if (begin + u * THREADS < count) of_b_here[u] = (SUM)__ldg(given.b + from_b[u]);
#else
            of_b_here[u] = (SUM)1;
#endif
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (begin + u * THREADS < count) terms[begin + u * THREADS] = (SUM)of_a_here[u] * of_b_here[u];
    }
    __syncthreads();
    const int rows = (int)(last_row - first_row);
    const END* own = ends + first_row;
    int longest = 0;
    for (int row = thread; row < rows; row += THREADS) {
        const u64 from = (u64)__ldg(own + row), length = (u64)__ldg(own + row + 1) - from;
        longest = length > SHORT ? 1 : longest;
        if (length > SHORT) continue;
        SUM sum = 0;
        for (int at = (int)(from - first), end = at + (int)length; at < end; ++at) sum += terms[at];
        out[first_row + row] = (NUMBER)sum;
    }
    if (!__syncthreads_or(longest)) return;
    for (int row = thread / 32; row < rows; row += WARPS) {
        const u64 from = (u64)__ldg(own + row), length = (u64)__ldg(own + row + 1) - from;
        if (length <= SHORT || length > LONG) continue;
        SUM sum = 0;
        for (int at = (int)(from - first) + thread % 32, end = (int)(from - first + length); at < end; at += 32) sum += terms[at];
        sum = sum_of_lanes(sum, 32);
        if (thread % 32 == 0) out[first_row + row] = (NUMBER)sum;
    }
}

// Adds terms from begin to end, those of every step-th, of WIDTH columns from column on.
__device__ __forceinline__ void add_wide(const Operands& given, u64 begin, u64 end, u32 step, int columns, int column,
                                         SUM* total) {
    while (begin < end) {
        const u64 stop = end - begin > (u64)CHUNK * step ? begin + (u64)CHUNK * step : end;
        SUM sum[WIDTH] = {};
        for (; begin < stop; begin += (u64)WIDE_UNROLL * step) {
            Part part[WIDE_UNROLL] = {};
            NUMBER value[WIDE_UNROLL] = {};
#pragma unroll
            for (int u = 0; u < WIDE_UNROLL; ++u) {
                const u64 t = begin + (u64)u * step;
                if (t < stop) {
                    value[u] = __ldg(given.a + place_a(given, t));
#if HAS_B
                    part[u] = *(const Part*)(given.b + (u64)__ldg(given.of_b + t) * (u64)columns + column);
#else
                    part[u].number[0] = (NUMBER)1;
#endif
                }
            }
#pragma unroll
            for (int u = 0; u < WIDE_UNROLL; ++u)
#pragma unroll
                for (int c = 0; c < WIDTH; ++c) sum[c] += (SUM)value[u] * (SUM)part[u].number[c];
        }
#pragma unroll
        for (int c = 0; c < WIDTH; ++c) total[c] += sum[c];
        begin = stop;
    }
}

// Several columns: LANES lanes take a row, WIDTH columns each; thread blocks of the first columns of all rows come first.
extern "C" __global__ void __launch_bounds__(THREADS)
wide_sums(u32 row_blocks, u32 n_rows, int columns, const END* __restrict__ ends, const NUMBER* a, const A_PLACE* of_a,
          const NUMBER* b, const B_PLACE* of_b, NUMBER* __restrict__ out) {
    const Operands given = {a, of_a, b, of_b};
    const u64 row = (u64)(blockIdx.x % row_blocks) * SUBS + threadIdx.x / LANES;
    const int column = (int)(blockIdx.x / row_blocks) * PANEL + (int)(threadIdx.x % LANES) * WIDTH;
    if (row >= n_rows || column >= columns) return;
    const u64 begin = (u64)__ldg(ends + row), end = (u64)__ldg(ends + row + 1);
    if (end - begin > LONG) return;
    SUM total[WIDTH] = {};
    add_wide(given, begin, end, 1, columns, column, total);
    Part sums;
    for (int c = 0; c < WIDTH; ++c) sums.number[c] = (NUMBER)total[c];
    *(Part*)(out + row * (u64)columns + column) = sums;
}

// The sum of each segment of long rows, of any number of columns: thread blocks of the first columns of all segments come first.
extern "C" __global__ void __launch_bounds__(STRANDS * LANES)
segment_sums(u32 n_segments, int columns, const u64* __restrict__ segment_terms, const NUMBER* a, const A_PLACE* of_a,
             const NUMBER* b, const B_PLACE* of_b, SUM* __restrict__ partial) {
    __shared__ SUM found[STRANDS * PANEL];
    const Operands given = {a, of_a, b, of_b};
    const u32 segment = blockIdx.x % n_segments, strand = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int panel = (int)(blockIdx.x / n_segments) * PANEL, column = panel + (int)lane * WIDTH;
    const u64 begin = __ldg(segment_terms + 2 * segment), end = __ldg(segment_terms + 2 * segment + 1);
    SUM total[WIDTH] = {};
    if (column < columns) add_wide(given, begin + strand, end, STRANDS, columns, column, total);
    for (int c = 0; c < WIDTH; ++c) found[strand * PANEL + lane * WIDTH + c] = total[c];
    __syncthreads();
    const int own = (int)threadIdx.x;
    if (own >= PANEL || panel + own >= columns) return;
    SUM sum = 0;
    for (int s = 0; s < STRANDS; ++s) sum += found[s * PANEL + own];
    partial[(u64)segment * (u64)columns + (panel + own)] = sum;
}

// Long rows: the sums of their segments, in order.
extern "C" __global__ void add_segments(u32 n_long, int columns, const u32* __restrict__ long_rows,
                                        const u32* __restrict__ row_segments, const SUM* __restrict__ partial,
                                        NUMBER* __restrict__ out) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (u64)n_long * (u64)columns) return;
    const u32 row = (u32)(at / (u64)columns);
    const u64 column = at % (u64)columns;
    SUM sum = 0;
    for (u32 s = __ldg(row_segments + row); s < __ldg(row_segments + row + 1); ++s)
        sum += partial[(u64)s * (u64)columns + column];
    out[(u64)__ldg(long_rows + row) * (u64)columns + column] = (NUMBER)sum;
}

// out[t] = sum over c of g[rows[t], c] * x[columns_of[t], c]: LANES lanes take SAMPLES entries, which mostly share a row of g.
extern "C" __global__ void __launch_bounds__(THREADS)
sampled(u64 n, int columns, const int* __restrict__ rows, const int* __restrict__ columns_of, const NUMBER* __restrict__ g,
        const NUMBER* __restrict__ x, NUMBER* __restrict__ out) {
    const u64 first = ((u64)blockIdx.x * SUBS + threadIdx.x / LANES) * SAMPLES;
    const int lane = (int)(threadIdx.x % LANES);
    const NUMBER *of_g[SAMPLES], *of_x[SAMPLES];
#pragma unroll
    for (int s = 0; s < SAMPLES; ++s) {
        const u64 t = first + s < n ? first + s : n - 1;
        of_g[s] = g + (u64)__ldg(rows + t) * (u64)columns;
        of_x[s] = x + (u64)__ldg(columns_of + t) * (u64)columns;
    }
    SUM sum[SAMPLES] = {};
    for (int column = lane * WIDTH; column < columns; column += PANEL) {
        Part left[SAMPLES], right[SAMPLES];
#pragma unroll
        for (int s = 0; s < SAMPLES; ++s) {
            left[s] = *(const Part*)(of_g[s] + column);
            right[s] = *(const Part*)(of_x[s] + column);
        }
#pragma unroll
        for (int s = 0; s < SAMPLES; ++s)
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) sum[s] += (SUM)left[s].number[c] * (SUM)right[s].number[c];
    }
#pragma unroll
    for (int s = 0; s < SAMPLES; ++s) {
        const SUM all = sum_of_lanes(sum[s], LANES);
        if (lane == 0 && first + s < n) out[first + s] = (NUMBER)all;
    }
}

// The same of one column: entries that neighbours share are SAMPLES times a thread block apart, so that all reads are in order.
extern "C" __global__ void sampled_once(u64 n, const int* __restrict__ rows, const int* __restrict__ columns_of,
                                        const NUMBER* __restrict__ g, const NUMBER* __restrict__ x, NUMBER* __restrict__ out) {
    const u64 first = (u64)blockIdx.x * (THREADS * SAMPLES) + threadIdx.x;
    int row[SAMPLES] = {}, column[SAMPLES] = {};
#pragma unroll
    for (int s = 0; s < SAMPLES; ++s)
        if (first + s * THREADS < n) {
            row[s] = __ldcs(rows + first + s * THREADS);
            column[s] = __ldcs(columns_of + first + s * THREADS);
        }
    NUMBER left[SAMPLES] = {}, right[SAMPLES] = {};
#pragma unroll
    for (int s = 0; s < SAMPLES; ++s)
        if (first + s * THREADS < n) {
            left[s] = __ldg(g + row[s]);
            right[s] = __ldg(x + column[s]);
        }
#pragma unroll
    for (int s = 0; s < SAMPLES; ++s)
        if (first + s * THREADS < n) out[first + s * THREADS] = left[s] * right[s];
}

// out[i] = v[places[i]], 0 where a place is negative.
extern "C" __global__ void gather(u64 n, const A_PLACE* __restrict__ places, const NUMBER* __restrict__ v,
                                        NUMBER* __restrict__ out) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= n) return;
    const A_PLACE place = __ldcs(places + at);
    out[at] = place < 0 ? (NUMBER)0 : __ldg(v + place);
}

// out[places[i]] = v[i], where that is not negative; no two places are equal.
extern "C" __global__ void scatter(u64 n, const A_PLACE* __restrict__ places, const NUMBER* __restrict__ v,
                                         NUMBER* __restrict__ out) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= n) return;
    const A_PLACE place = __ldcs(places + at);
    if (place >= 0) out[place] = __ldcs(v + at);
}
