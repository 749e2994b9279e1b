// Products of packed row blocks (tasks/row_blocks.py) with row-major panels of vectors: y = shift * y + left * (A x).
//
// Defines: VALUE, the type of the values; IS_PATTERN, 1 where all entries are one number and no values are stored; VECTOR, the
// type of x and y; SUM, that in which entries are multiplied and added; COLUMNS of the panels, 1, 2, 4 or 8.
//
// A thread block takes a work group. How the entries of a row are dealt out to lanes, and so the order in which they are added,
// is chosen by the number of its entries alone: the group, the block and the other rows are without influence.
//
// A lane reads at most 16 bytes of a row of x, so that PARTS neighbouring lanes read one row together: 8 columns of float are one
// sector of memory. There are two forms of the kernel:
//  - The columns of the group go to shared memory; then lanes gather rows of x, several before they add the first.
//  - IS_STREAM, for one column: all threads gather numbers of x, whatever rows of A they belong to, and put their products into
//    shared memory, where rows are added. No gather waits for a short row; more columns would take too much of the memory that
//    the first cache shares.

typedef unsigned int u32;

#define IS_STREAM (COLUMNS == 1)
constexpr int THREADS = 256;
// Thread blocks that a multiprocessor has at least, which bounds registers: 40, 64 or 32 of them. What they take of shared memory
// is no longer there to hold the lines of gathers in flight: 16 blocks of half as many threads take twice the time.
constexpr int BLOCKS = IS_STREAM ? 6 : sizeof(VECTOR) == 8 ? 4 : 8;
// Entries that a lane reads before it adds the first of them, and entries of a part of a row that one warp adds.
constexpr int UNROLL = 4, PIECE = 256;
constexpr int GROUP_ENTRIES = 2048, SEGMENT_ENTRIES = 4096, WARPS = THREADS / 32;
constexpr int ROW_BYTES = COLUMNS * sizeof(VECTOR);
// Lanes that read a row of x together, numbers that each reads, and entries that a warp takes at once.
constexpr int PARTS = ROW_BYTES > 16 ? ROW_BYTES / 16 : 1, WIDTH = COLUMNS / PARTS, LANES = 32 / PARTS;
// Entries of a row that one warp adds at most, and most parts of a group's rows of more.
constexpr int MOST = IS_STREAM ? GROUP_ENTRIES : PIECE;
constexpr int MOST_PARTIAL = 2 * (GROUP_ENTRIES / MOST);

template <int BYTES> struct WordOf;
template <> struct WordOf<4> { typedef u32 type; };
template <> struct WordOf<8> { typedef uint2 type; };
template <> struct WordOf<16> { typedef uint4 type; };
typedef WordOf<WIDTH * sizeof(VECTOR)>::type Word;

union Part {
    Word word;
    VECTOR number[WIDTH];
};

__device__ __forceinline__ Part gather(const VECTOR* __restrict__ x, int column, int part) {
    const Word* at = (const Word*)(x + (size_t)(u32)column * COLUMNS) + part;
    Part found;
    found.word = __ldg(at);
    return found;
}

// What all rows of a block share: left and shift, one number or one for each row.
struct Ends {
    const double* lefts;
    double left;
    const double* shifts;
    double shift;
};

// y = shift * y + left * sum for the part of row `row` that the lane has, rounded once; without a shift y is not read.
__device__ __forceinline__ void put(VECTOR* y, u32 row, int part, const SUM (&sum)[WIDTH], const Ends& ends) {
    Word* at = (Word*)(y + (size_t)row * COLUMNS) + part;
    const double left = ends.lefts ? ends.lefts[row] : ends.left;
    Part out;
    if (ends.shifts || ends.shift != 0) {
        const double shift = ends.shifts ? ends.shifts[row] : ends.shift;
        Part before;
        before.word = *at;
        for (int c = 0; c < WIDTH; ++c) out.number[c] = (VECTOR)(shift * before.number[c] + left * (double)sum[c]);
    } else {
        for (int c = 0; c < WIDTH; ++c) out.number[c] = (VECTOR)(left * (double)sum[c]);
    }
    *at = out.word;
}

// Adds what L neighbouring entry lanes hold, in a tree; every one of them has the sum.
template <int L> __device__ __forceinline__ void add_lanes(SUM (&sum)[WIDTH]) {
#pragma unroll
    for (int step = L * PARTS / 2; step >= PARTS; step /= 2)
#pragma unroll
        for (int c = 0; c < WIDTH; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], step);
}

// What a group has in shared memory.
struct Group {
#if IS_STREAM
    alignas(16) SUM product[GROUP_ENTRIES * COLUMNS];
#else
    int column[GROUP_ENTRIES];
    SUM partial[MOST_PARTIAL * COLUMNS];
#endif
    // Rows that 4 or 16 lanes add: row, first entry, entries.
    u32 few[GROUP_ENTRIES / (UNROLL + 1) + 1], some[GROUP_ENTRIES / (4 * UNROLL + 1) + 1];
    // Rows and parts of rows that a warp adds: row and first entry; entries, and for parts one more than the place of their sum.
    u32 many[GROUP_ENTRIES / (4 * UNROLL + 1) + 1 + MOST_PARTIAL], many_more[GROUP_ENTRIES / (4 * UNROLL + 1) + 1 + MOST_PARTIAL];
    u32 split[MOST_PARTIAL];  // rows of several parts: row, place of the first sum, parts
    int n_few, n_some, n_many, n_split, n_partial;
};

// What lanes need to read entries of a group.
struct Entries {
    const int* columns;
    const VALUE* values;
    const VECTOR* x;
    SUM value;
};

// Adds the entries of a row, or a part of one, from `first` on, of which an entry lane takes every L-th.
template <int L>
__device__ __forceinline__ void add_entries(SUM (&sum)[WIDTH], const Group& group, const Entries& entries, int first, int count,
                                            int lane, int part) {
    for (int base = lane; base < count; base += UNROLL * L) {
#if IS_STREAM
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * L < count)
#pragma unroll
                for (int c = 0; c < WIDTH; ++c) sum[c] += group.product[(first + base + u * L) * COLUMNS + part * WIDTH + c];
#else
        Part found[UNROLL];
        SUM value[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {  // all reads before the first addition
            const int at = base + u * L;
            const bool is_there = at < count;
            value[u] = entries.value;
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) found[u].number[c] = 0;
            if (is_there) {
                found[u] = gather(entries.x, group.column[first + at], part);
#if !IS_PATTERN
                value[u] = (SUM)__ldg(entries.values + first + at);
#endif
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) sum[c] += value[u] * (SUM)found[u].number[c];
#endif
    }
}

// Row and first entry, 11 bits each, and one entry less than there are of a short row in 10.
__device__ __forceinline__ u32 packed(int row, int first, int count = 1) {
    return (u32)row << 21 | (u32)first << 10 | (u32)(count - 1);
}

// Rows of a list, each added by L entry lanes.
template <int L>
__device__ __forceinline__ void add_rows(Group& group, const Entries& entries, const u32* list, const u32* more, int n, VECTOR* y,
                                         u32 row0, const Ends& ends) {
    constexpr int TEAM = L * PARTS, TEAMS = 32 / TEAM;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, in_team = lane % TEAM, part = lane % PARTS;
    for (int base = warp * TEAMS; base < n; base += WARPS * TEAMS) {
        const int at = base + lane / TEAM;
        const u32 item = at < n ? list[at] : 0;
        const u32 about = at >= n ? 0 : more ? more[at] : (item & 1023) + 1;
        SUM sum[WIDTH] = {};
        add_entries<L>(sum, group, entries, item >> 10 & 2047, about & 65535, in_team / PARTS, part);
        add_lanes<L>(sum);
        if (at >= n || in_team >= PARTS) continue;
#if !IS_STREAM
        if (more && about >> 16) {
            for (int c = 0; c < WIDTH; ++c) group.partial[((about >> 16) - 1) * COLUMNS + part * WIDTH + c] = sum[c];
            continue;
        }
#endif
        put(y, row0 + (item >> 21), part, sum, ends);
    }
}

// Puts a row of more than four entries into the list of those that as many lanes add.
__device__ __forceinline__ void enlist(Group& group, int row, int first, int count) {
    if (count <= 4 * UNROLL) {
        group.few[atomicAdd(&group.n_few, 1)] = packed(row, first, count);
    } else if (LANES > 16 && count <= 16 * UNROLL) {
        group.some[atomicAdd(&group.n_some, 1)] = packed(row, first, count);
    } else if (count <= MOST) {
        const int at = atomicAdd(&group.n_many, 1);
        group.many[at] = packed(row, first);
        group.many_more[at] = count;
    } else {
        const int parts = (count + MOST - 1) / MOST;
        const int at = atomicAdd(&group.n_many, parts), to = atomicAdd(&group.n_partial, parts);
        for (int p = 0; p < parts; ++p) {
            group.many[at + p] = packed(row, first + p * MOST);
            group.many_more[at + p] = (u32)(to + p + 1) << 16 | (u32)min(MOST, count - p * MOST);
        }
        group.split[atomicAdd(&group.n_split, 1)] = (u32)row << 16 | (u32)to << 8 | (u32)parts;
    }
}

// What a segment of a long row has in shared memory.
struct Segment {
    SUM of_warp[WARPS][COLUMNS];
    SUM read[THREADS], total[COLUMNS];
    int is_last;
};

// The entries of a long row in the block, and which segment of it this is.
struct LongRow {
    u32 row, first, count, segment;
};

// Sums of segments that wait to be added, and of each row how many there are. The places of a row begin at number e / 2,048 where
// its entries begin at e: rows of more than 2,048 entries, whose segments have up to 4,096, never share one.
struct Places {
    u32* arrived;
    SUM* sums;
};

// Adds the entries of a segment, by all threads.
__device__ __forceinline__ void add_segment(Segment& shared, const Entries& entries, int count, SUM* out) {
    const int thread = threadIdx.x, part = thread % PARTS;
    SUM sum[WIDTH] = {};
    for (int base = thread / PARTS; base < count; base += UNROLL * WARPS * LANES) {
        int column[UNROLL];
        SUM factor[UNROLL];
        Part found[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int at = base + u * WARPS * LANES;
            column[u] = at < count ? __ldcs(entries.columns + at) : -1;
            factor[u] = entries.value;
#if !IS_PATTERN
            if (at < count) factor[u] = (SUM)__ldcs(entries.values + at);
#endif
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            for (int c = 0; c < WIDTH; ++c) found[u].number[c] = 0;
            if (column[u] >= 0) found[u] = gather(entries.x, column[u], part);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) sum[c] += factor[u] * (SUM)found[u].number[c];
    }
    add_lanes<LANES>(sum);
    if (thread % 32 < PARTS)
        for (int c = 0; c < WIDTH; ++c) shared.of_warp[thread / 32][part * WIDTH + c] = sum[c];
    __syncthreads();
    if (thread < COLUMNS) {
        SUM total = 0;
        for (int w = 0; w < WARPS; ++w) total += shared.of_warp[w][thread];
        out[thread] = total;
    }
}

// Adds the sums of a row's segments in order, as many read at once as there are threads.
__device__ __forceinline__ void add_in_order(Segment& shared, const SUM* sums, u32 segments) {
    const int thread = threadIdx.x;
    const u32 count = segments * COLUMNS;
    SUM sum = 0;
    for (u32 base = 0; base < count; base += THREADS) {
        if (base + thread < count) shared.read[thread] = __ldcg(sums + base + thread);
        __syncthreads();
        if (thread < COLUMNS)
            for (u32 at = thread; at < min((u32)THREADS, count - base); at += COLUMNS) sum += shared.read[at];
        __syncthreads();
    }
    if (thread < COLUMNS) shared.total[thread] = sum;
    __syncthreads();
}

// One segment of a long row. Whichever thread block comes last to a row adds the sums of its segments:
// 1. a block writes its sum, and makes that seen by all; 2. it counts itself; 3. who finds all others counted sees their sums,
// adds them, and clears the count for the next product.
__device__ __forceinline__ void take_segment(Segment& shared, const LongRow& of, const Entries& entries, int count,
                                             const Places& places, VECTOR* y, const Ends& ends) {
    const int thread = threadIdx.x;
    const u32 place = of.first / GROUP_ENTRIES, segments = (of.count + SEGMENT_ENTRIES - 1) / SEGMENT_ENTRIES;
    SUM* sums = places.sums + (size_t)place * COLUMNS;
    add_segment(shared, entries, count, sums + (size_t)of.segment * COLUMNS);
    __threadfence();
    __syncthreads();
    if (thread == 0) shared.is_last = atomicAdd(places.arrived + place, 1u) == segments - 1;
    __syncthreads();
    if (!shared.is_last) return;
    __threadfence();
    add_in_order(shared, sums, segments);
    if (thread == 0) places.arrived[place] = 0;
    if (thread >= PARTS) return;
    SUM sum[WIDTH];
    for (int c = 0; c < WIDTH; ++c) sum[c] = shared.total[thread * WIDTH + c];
    put(y, of.row, thread, sum, ends);
}

// One thread block a work group.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
multiply(const u32* __restrict__ starts, const uint2* __restrict__ table, const int* __restrict__ columns,
       const VALUE* __restrict__ values, double value, const VECTOR* __restrict__ x, VECTOR* y, const double* lefts, double left,
       const double* shifts, double shift, u32* arrived, SUM* sums) {
    __shared__ union {
        Group group;
        Segment segment;
    } shared;
    const uint2 begin = __ldg(table + blockIdx.x), end = __ldg(table + blockIdx.x + 1);
    const int n_rows = end.x - begin.x, n_entries = end.y - begin.y, thread = threadIdx.x;
    const u32* own = starts + begin.x;
    const Ends ends = {lefts, left, shifts, shift};
    const Entries entries = {columns + begin.y, values + begin.y, x, (SUM)value};
    const u32 first = __ldg(own);
    if (n_rows == 0 || n_entries > GROUP_ENTRIES || begin.y != first) {
        const LongRow of = {begin.x, first, __ldg(own + 1) - first, (begin.y - first) / SEGMENT_ENTRIES};
        take_segment(shared.segment, of, entries, n_entries, {arrived, sums}, y, ends);
        return;
    }
    Group& group = shared.group;
    if (thread == 0) group.n_few = group.n_some = group.n_many = group.n_split = group.n_partial = 0;
    constexpr int ROUNDS = GROUP_ENTRIES / THREADS;
#if IS_STREAM
    constexpr int STEP = 8 / PARTS / WIDTH > 0 ? 8 / PARTS / WIDTH : 1;  // rows of x in flight, of each thread
    for (int r0 = 0; r0 < ROUNDS * PARTS; r0 += STEP) {
        if (r0 * THREADS >= n_entries * PARTS) break;
        int column[STEP];
        Part found[STEP];
#pragma unroll
        for (int r = 0; r < STEP; ++r) {
            const int at = ((r0 + r) * THREADS + thread) / PARTS;
            column[r] = at < n_entries ? __ldcs(entries.columns + at) : -1;
        }
#pragma unroll
        for (int r = 0; r < STEP; ++r)
            if (column[r] >= 0) found[r] = gather(x, column[r], thread % PARTS);
#pragma unroll
        for (int r = 0; r < STEP; ++r) {
            const int at = ((r0 + r) * THREADS + thread) / PARTS;
            if (column[r] < 0) continue;
#if IS_PATTERN
            const SUM factor = entries.value;
#else
            const SUM factor = (SUM)__ldcs(entries.values + at);
#endif
#pragma unroll
            for (int c = 0; c < WIDTH; ++c)
                group.product[at * COLUMNS + thread % PARTS * WIDTH + c] = factor * (SUM)found[r].number[c];
        }
    }
#else
    int column[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r)
        if (r * THREADS + thread < n_entries) column[r] = __ldcs(entries.columns + r * THREADS + thread);
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r)
        if (r * THREADS + thread < n_entries) group.column[r * THREADS + thread] = column[r];
#endif
    __syncthreads();
    for (int row = thread; row < n_rows; row += THREADS) {
        const int first = __ldg(own + row) - begin.y, count = __ldg(own + row + 1) - begin.y - first;
        if (count > UNROLL) enlist(group, row, first, count);
    }
    __syncthreads();
    add_rows<LANES>(group, entries, group.many, group.many_more, group.n_many, y, begin.x, ends);
    if (LANES > 16) add_rows<16>(group, entries, group.some, nullptr, group.n_some, y, begin.x, ends);
    add_rows<4>(group, entries, group.few, nullptr, group.n_few, y, begin.x, ends);
    // Rows of few entries are most rows, and are in no list: one entry lane each.
    for (int row = thread / PARTS; row < n_rows; row += THREADS / PARTS) {
        const int first = __ldg(own + row) - begin.y, count = __ldg(own + row + 1) - begin.y - first;
        if (count > UNROLL) continue;
        SUM sum[WIDTH] = {};
        add_entries<1>(sum, group, entries, first, count, 0, thread % PARTS);
        put(y, begin.x + row, thread % PARTS, sum, ends);
    }
#if !IS_STREAM
    if (group.n_split == 0) return;
    __syncthreads();
    for (int at = thread; at < group.n_split * PARTS; at += THREADS) {
        const u32 item = group.split[at / PARTS];
        SUM sum[WIDTH] = {};
        for (int p = 0; p < (int)(item & 255); ++p)
            for (int c = 0; c < WIDTH; ++c)
                sum[c] += group.partial[((item >> 8 & 255) + p) * COLUMNS + at % PARTS * WIDTH + c];
        put(y, begin.x + (item >> 16), at % PARTS, sum, ends);
    }
#endif
}

// x[i, :] *= factors[i], the product rounded once.
extern "C" __global__ void scale(const double* __restrict__ factors, VECTOR* x, size_t n) {
    for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (size_t)gridDim.x * blockDim.x)
        x[at] = (VECTOR)(factors[at / COLUMNS] * (double)x[at]);
}
