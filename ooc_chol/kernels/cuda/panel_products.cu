// Products of a basis with coefficients: W -= V C, and out = V S, which may be written over V. Behind panel_words.cu.
//
// Defines: NT, tiles of 8 columns of the result that a warp makes; M, with MMA tiles of 8 rows that it makes them for, without it
// rows of a lane; WARPS of a thread block at most, and BLOCKS on a multiprocessor at least, which bound registers; READS, tiles of V
// that are read before the first is used.
//
// A thread block keeps coefficients in shared memory, all of them or as many tiles of V as have room there, and takes rows after
// rows. `across` warps share the columns of the same rows: all have read before any writes. Each number of the result is added up
// in the order of the columns of V.

#if MMA
constexpr int WARP_ROWS = 8 * M;
#else
constexpr int WARP_ROWS = WARP * M;
#endif

struct Product {
    const STORE* v;
    const SUM* coefficients;
    STORE* out;
    u64 rows;
    int p, q;          // panels
    int tiles, wide;   // tiles of V, and of the result in shared memory: NT for each of the warps across
    int kept;          // tiles of V whose coefficients shared memory holds
};

// Coefficients for tiles of V from `tile` on, in the order in which lanes read them. A place is a tile of V, a tile of the result
// and a pair: with MMA that of a lane's two rows of coefficients, without it a row of 8.
__device__ __forceinline__ void keep(SUM* shared, const Product& of, int tile, bool negates) {
    const int count = min(of.kept, of.tiles - tile) * of.wide * TILE * TILE;
    for (int at = threadIdx.x; at < count; at += blockDim.x) {
        const int place = at / (TILE * TILE), in = at % (TILE * TILE);
#if MMA
        const int k = in / 2 % 4 * 2 + in % 2, n = in / 8;
#else
        const int k = in / TILE, n = in % TILE;
#endif
        const int row = (tile + place / of.wide) * TILE + k, column = place % of.wide * TILE + n;
        const bool is_there = row < of.p * B && column < of.q * B;
        const SUM number = is_there ? of.coefficients[(u64)row * (of.q * B) + column] : 0;
        shared[at] = negates ? -number : number;
    }
}

#if MMA
// A lane has columns 2 (lane % 4) and the next of a tile, of row lane / 4 of each of M tiles of rows.
typedef double Sums[M / 2][NT][2][2];
struct Part {
    STORE number[2];
};

__device__ __forceinline__ Part read_part(const STORE* basis, int p, u64 rows, int tile, u64 row) {
    const int column = tile * TILE + threadIdx.x % 4 * 2;
    Part part;
#if B > 1
    Numbers<2> found;
    found.word = *(const decltype(found.word)*)(column_at(basis, p, rows, column) + row * B);
    part.number[0] = found.number[0], part.number[1] = found.number[1];
#else
    part.number[0] = column_at(basis, p, rows, column)[row];
    part.number[1] = column_at(basis, p, rows, column + 1)[row];
#endif
    return part;
}

__device__ __forceinline__ void write_part(STORE* out, int q, u64 rows, int tile, u64 row, double first, double second) {
    const int column = tile * TILE + threadIdx.x % 4 * 2;
    if (column >= q * B) return;
#if B > 1
    Numbers<2> made;
    made.number[0] = (STORE)first, made.number[1] = (STORE)second;
    *(decltype(made.word)*)(column_at(out, q, rows, column) + row * B) = made.word;
#else
    column_at(out, q, rows, column)[row] = (STORE)first;
    if (column + 1 < q) column_at(out, q, rows, column + 1)[row] = (STORE)second;
#endif
}

// Row of a lane in tile t of rows; behind the last row the last one is read, and not written.
__device__ __forceinline__ u64 row_of(u64 base, int t) { return base + t * 8 + threadIdx.x % WARP / 4; }

__device__ __forceinline__ void add_tiles(Sums& sum, const Product& of, const SUM* shared, int tile, int first, u64 base) {
    const int count = min(of.kept, of.tiles - tile), lane = threadIdx.x % WARP;
    for (int t0 = 0; t0 < count; t0 += READS) {
        Part part[READS][M];
#pragma unroll
        for (int t = 0; t < READS; ++t)
#pragma unroll
            for (int r = 0; r < M; ++r)
                if (t0 + t < count) part[t][r] = read_part(of.v, of.p, of.rows, tile + t0 + t, min(row_of(base, r), of.rows - 1));
#pragma unroll
        for (int t = 0; t < READS; ++t) {
            if (t0 + t >= count) break;
            const double2* at = (const double2*)shared + ((t0 + t) * of.wide + first) * WARP + lane;
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                const double2 factor = at[n * WARP];
#pragma unroll
                for (int r = 0; r < M; r += 2) {
                    multiply_add(sum[r / 2][n], part[t][r].number[0], part[t][r + 1].number[0], factor.x);
                    multiply_add(sum[r / 2][n], part[t][r].number[1], part[t][r + 1].number[1], factor.y);
                }
            }
        }
    }
}

__device__ __forceinline__ void begin(Sums& sum, const Product& of, bool adds, u64 base) {
#pragma unroll
    for (int r = 0; r < M; ++r)
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            Part part = {};
            if (adds) part = read_part(of.out, of.q, of.rows, n, min(row_of(base, r), of.rows - 1));
            sum[r / 2][n][r % 2][0] = part.number[0], sum[r / 2][n][r % 2][1] = part.number[1];
        }
}

__device__ __forceinline__ void finish(const Sums& sum, const Product& of, int first, u64 base) {
#pragma unroll
    for (int r = 0; r < M; ++r)
#pragma unroll
        for (int n = 0; n < NT; ++n)
            if (row_of(base, r) < of.rows)
                write_part(of.out, of.q, of.rows, first + n, row_of(base, r), sum[r / 2][n][r % 2][0], sum[r / 2][n][r % 2][1]);
}
#else
// A lane has M rows, a warp's width apart, and all columns of its tiles.
typedef SUM Sums[M][NT][TILE];

__device__ __forceinline__ void read_tile(SUM (&out)[TILE], const STORE* basis, int p, u64 rows, int tile, u64 row) {
#pragma unroll
    for (int c = 0; c < TILE; c += WIDTH) {
        Numbers<WIDTH> found;
        found.word = *(const decltype(found.word)*)(column_at(basis, p, rows, tile * TILE + c) + row * B);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) out[c + i] = (SUM)found.number[i];
    }
}

__device__ __forceinline__ u64 row_of(u64 base, int t) { return base + t * WARP + threadIdx.x % WARP; }

__device__ __forceinline__ void add_tiles(Sums& sum, const Product& of, const SUM* shared, int tile, int first, u64 base) {
    const int count = min(of.kept, of.tiles - tile);
    for (int t0 = 0; t0 < count; t0 += READS) {
        SUM part[READS][M][TILE];
#pragma unroll
        for (int t = 0; t < READS; ++t)
#pragma unroll
            for (int r = 0; r < M; ++r)
                if (t0 + t < count) read_tile(part[t][r], of.v, of.p, of.rows, tile + t0 + t, min(row_of(base, r), of.rows - 1));
#pragma unroll
        for (int t = 0; t < READS; ++t) {
            if (t0 + t >= count) break;
            const SUM* at = shared + ((t0 + t) * of.wide + first) * TILE * TILE;
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int k = 0; k < TILE; ++k) {
                    SUM factor[TILE];
#pragma unroll
                    for (int c = 0; c < TILE; c += 16 / sizeof(SUM))
                        *(uint4*)(factor + c) = *(const uint4*)(at + (n * TILE + k) * TILE + c);
#pragma unroll
                    for (int r = 0; r < M; ++r)
#pragma unroll
                        for (int c = 0; c < TILE; ++c) sum[r][n][c] += part[t][r][k] * factor[c];
                }
        }
    }
}

__device__ __forceinline__ void begin(Sums& sum, const Product& of, bool adds, u64 base) {
#pragma unroll
    for (int r = 0; r < M; ++r)
#pragma unroll
        for (int n = 0; n < NT; ++n) {
#pragma unroll
            for (int c = 0; c < TILE; ++c) sum[r][n][c] = 0;
            if (adds) read_tile(sum[r][n], of.out, of.q, of.rows, n, min(row_of(base, r), of.rows - 1));
        }
}

__device__ __forceinline__ void finish(const Sums& sum, const Product& of, int first, u64 base) {
#pragma unroll
    for (int r = 0; r < M; ++r)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int c = 0; c < TILE; c += WIDTH) {
                const int column = (first + n) * TILE + c;
                if (row_of(base, r) >= of.rows || column >= of.q * B) continue;
                Numbers<WIDTH> made;
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) made.number[i] = (STORE)sum[r][n][c + i];
                *(decltype(made.word)*)(column_at(of.out, of.q, of.rows, column) + row_of(base, r) * B) = made.word;
            }
}
#endif

// Thread blocks take rows in turn; `subtracts` makes W -= V C of it, in one tile of columns. V may be out.
extern "C" __global__ void __launch_bounds__(WARPS * WARP, BLOCKS)
    product(const STORE* v, const SUM* __restrict__ coefficients, STORE* out, u64 rows, int p, int q, int across, int kept,
            int subtracts, const u32* unless) {
    if (unless && !*unless) return;
    extern __shared__ __align__(16) unsigned char memory[];
    SUM* shared = (SUM*)memory;
    const Product of = {v, coefficients, out, rows, p, q, (p * B + TILE - 1) / TILE, across * NT, kept};
    const int warp = threadIdx.x / WARP, down = blockDim.x / WARP / across, first = warp % across * NT;
    const u64 block_rows = (u64)down * WARP_ROWS, step = gridDim.x * block_rows;
    if (of.kept >= of.tiles) {
        keep(shared, of, 0, subtracts);
        __syncthreads();
    }
    for (u64 from = blockIdx.x * block_rows; from < rows; from += step) {
        const u64 base = from + warp / across * WARP_ROWS;
        Sums sum;
        begin(sum, of, subtracts, base);
        for (int tile = 0; tile < of.tiles; tile += of.kept) {
            if (of.kept < of.tiles) {
                __syncthreads();
                keep(shared, of, tile, subtracts);
                __syncthreads();
            }
            add_tiles(sum, of, shared, tile, first, base);
        }
        if (across > 1) __syncthreads();
        finish(sum, of, first, base);
    }
}
