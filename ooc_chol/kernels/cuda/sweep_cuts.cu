// Sweep cuts of a graph: split points of orders of its vertices, several orders at once. Sums are made in a fixed order. And its
// components by edges that weigh enough, and degrees within a part of it.
//
// Defines: LANES, orders that lie beside each other; CHUNK, positions of an order that are one thread's; THREADS of a block.

typedef long long i64;

__device__ i64 own_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// Vectors (n, k) along directions (orders, k): keys (orders, n).
extern "C" __global__ void project(const double* vectors, const double* directions, double* keys, int n, int k, int orders) {
    const i64 at = own_index(), d = at / n, i = at % n;
    if (d >= orders) return;
    double sum = 0.0;
    for (int j = 0; j < k; ++j) sum += vectors[i * k + j] * directions[d * k + j];
    keys[at] = sum + 0.0;  // no zero has a sign
}

// Positions of vertices in one order, beside those in others.
extern "C" __global__ void rank(const i64* order, const int* vertices, int* ranks, int n, int d) {
    const i64 t = own_index();
    if (t < n) ranks[(i64)vertices[order[t]] * LANES + d] = (int)t;
}

// Weights of the edges of each vertex to those before it, (n, LANES).
extern "C" __global__ void weights_before(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const int* ranks, double* before, int n
) {
    const i64 i = own_index() / LANES, d = threadIdx.x % LANES;
    if (i >= n) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    const int own = ranks[row * LANES + d];
    double sum = 0.0;
    for (i64 at = starts[row]; at < stop; ++at)
        if (ranks[(i64)columns[at] * LANES + d] < own) sum += weights[at];
    before[i * LANES + d] = sum;
}

// What a prefix cuts is the sum of degrees less twice the weights to those before.
struct Sums {
    double degrees, inner;
};

__device__ void add(Sums& sum, Sums each) { sum.degrees += each.degrees, sum.inner += each.inner; }

__device__ Sums at_position(const i64* orders, const double* degrees, const double* before, i64 d, int n, int t) {
    const i64 i = orders[d * n + t];
    return {degrees[i], degrees[i] - 2 * before[i * LANES + d]};
}

// Sums of each chunk of each order, (orders, chunks).
extern "C" __global__ void sum_chunks(
    const i64* orders, const double* degrees, const double* before, Sums* sums, int n, int chunks, int count
) {
    const i64 at = own_index(), d = at / chunks;
    if (d >= count) return;
    const int first = (int)(at % chunks) * CHUNK, last = min(n, first + CHUNK);
    Sums sum = {0.0, 0.0};
    for (int t = first; t < last; ++t) add(sum, at_position(orders, degrees, before, d, n, t));
    sums[at] = sum;
}

// Sums of all chunks before each, and of all behind it; a thread block for each order.
extern "C" __global__ void scan_chunks(const Sums* sums, Sums* left, Sums* right, int chunks) {
    __shared__ Sums totals[THREADS], from_left[THREADS], from_right[THREADS];
    const int share = (chunks + THREADS - 1) / THREADS, first = min(chunks, (int)threadIdx.x * share);
    const int last = min(chunks, first + share);
    const i64 own = (i64)blockIdx.x * chunks;
    Sums sum = {0.0, 0.0};
    for (int c = first; c < last; ++c) add(sum, sums[own + c]);
    totals[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < 2) {
        Sums* into = threadIdx.x ? from_right : from_left;
        sum = {0.0, 0.0};
        for (int j = 0; j < THREADS; ++j) {
            const int at = threadIdx.x ? THREADS - 1 - j : j;
            into[at] = sum;
            add(sum, totals[at]);
        }
    }
    __syncthreads();
    sum = from_left[threadIdx.x];
    for (int c = first; c < last; ++c) {
        left[own + c] = sum;
        add(sum, sums[own + c]);
    }
    sum = from_right[threadIdx.x];
    for (int c = last - 1; c >= first; --c) {
        right[own + c] = sum;
        add(sum, sums[own + c]);
    }
}

__device__ double share_of(double cut, double assoc) { return cut == 0 ? 0.0 : assoc > 0 ? cut / assoc : 1.0; }

// The smallest normalized cut of each chunk and after how many vertices it is, of those that are allowed; 4 where there is none.
extern "C" __global__ void best_of_chunks(
    const i64* orders, const double* degrees, const double* before, const Sums* left, const Sums* right,
    const unsigned char* allowed, double* ncuts, int* sizes, int n, int chunks, int count
) {
    const i64 at = own_index(), d = at / chunks;
    if (d >= count) return;
    const int first = (int)(at % chunks) * CHUNK, length = min(CHUNK, n - first);
    Sums each[CHUNK], after[CHUNK], sum = right[at];
    for (int t = 0; t < length; ++t) each[t] = at_position(orders, degrees, before, d, n, first + t);
    for (int t = length - 1; t >= 0; --t) {
        after[t] = sum;
        add(sum, each[t]);
    }
    double best = 4.0;
    int size = 0;
    sum = left[at];
    for (int t = 0; t < length; ++t) {
        add(sum, each[t]);
        if (!allowed[first + t]) continue;
        // From the shorter end: a small side has small errors.
        const double found = sum.degrees <= after[t].degrees ? sum.inner : -after[t].inner, cut = found > 0 ? found : 0.0;
        const double ncut = share_of(cut, sum.degrees) + share_of(cut, after[t].degrees);
        if (ncut < best) best = ncut, size = first + t + 1;
    }
    ncuts[at] = best, sizes[at] = size;
}

// Vertices that come behind the first ones of an order: 1, others 0.
extern "C" __global__ void sides_of(const int* ranks, const int* vertices, unsigned char* sides, int n, int d, int size) {
    const i64 i = own_index();
    if (i < n) sides[vertices[i]] = ranks[(i64)vertices[i] * LANES + d] >= size;
}

// Weights of the edges of each vertex to the other side.
extern "C" __global__ void weights_across(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const unsigned char* sides, double* across,
    int n
) {
    const i64 i = own_index();
    if (i >= n) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    const int other = 1 - sides[row];
    double sum = 0.0;
    for (i64 at = starts[row]; at < stop; ++at)
        if (sides[columns[at]] == other) sum += weights[at];
    across[i] = sum;
}

// How many edges each vertex has to the other side.
extern "C" __global__ void count_across(
    const i64* starts, const int* columns, const int* vertices, const unsigned char* sides, int* counts, int n
) {
    const i64 i = own_index();
    if (i >= n) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    const int other = 1 - sides[row];
    int count = 0;
    for (i64 at = starts[row]; at < stop; ++at) count += sides[columns[at]] == other;
    counts[i] = count;
}

// Their weights, those of each vertex from its place on.
extern "C" __global__ void list_across(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const unsigned char* sides,
    const i64* places, double* across, int n
) {
    const i64 i = own_index();
    if (i >= n) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    const int other = 1 - sides[row];
    i64 place = places[i];
    for (i64 at = starts[row]; at < stop; ++at)
        if (sides[columns[at]] == other) across[place++] = weights[at];
}

// The number of each vertex; -1 stays that of others.
extern "C" __global__ void number(const int* vertices, int* numbers, int n) {
    const i64 i = own_index();
    if (i < n) numbers[vertices[i]] = (int)i;
}

// Weights of a row that lead to numbered vertices, one after the other.
struct Inner {
    const int *columns, *numbers;
    const double* weights;
    i64 at;
    __device__ double next() {
        while (numbers[columns[at]] < 0) ++at;
        return weights[at++];
    }
};

// The sum of the next weights, up to 128 of them: in eight sums side by side, if there are as many.
__device__ double sum_of_few(Inner& inner, int count) {
    double sum = -0.0, sums[8];
    int i = 0;
    if (count >= 8) {
        for (; i < 8; ++i) sums[i] = inner.next();
        for (; i + 8 <= count; i += 8)
            for (int j = 0; j < 8; ++j) sums[j] += inner.next();
        sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; i < count; ++i) sum += inner.next();
    return sum;
}

// The sum of so many, of which halves are summed while they are more than 128: as NumPy sums, to the bit.
__device__ double sum_by_halves(Inner& inner, int count) {
    int second[32], depth = 0;  // counts of second halves, 0 for those that are being summed
    double first[32];           // sums of first halves
    for (;;) {
        while (count > 128) {
            const int half = count / 2 - count / 2 % 8;
            second[depth++] = count - half, count = half;
        }
        double sum = sum_of_few(inner, count);
        while (depth && !second[depth - 1]) sum = first[--depth] + sum;
        if (!depth) return sum;
        first[depth - 1] = sum, count = second[depth - 1], second[depth - 1] = 0;
    }
}

// How many entries of each vertex's row lead to numbered vertices, and their sum, with the bits of np.add.reduceat.
extern "C" __global__ void rows_inside(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const int* numbers, int* lengths,
    double* sums, int n
) {
    const i64 i = own_index();
    if (i >= n) return;
    const i64 row = vertices[i], start = starts[row], stop = starts[row + 1];
    int length = 0;
    for (i64 at = start; at < stop; ++at) length += numbers[columns[at]] >= 0;
    Inner inner = {columns, numbers, weights, start};
    double sum = length ? inner.next() : 0.0;
    if (length > 1) sum += sum_by_halves(inner, length - 1);
    lengths[i] = length, sums[i] = sum;
}

// Vertices that some edge makes noticed by its other end, and those without edges.
extern "C" __global__ void notice(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const int* numbers, const double* degrees,
    unsigned char* noticed, int* parents, int n, double least
) {
    const i64 i = own_index();
    if (i >= n) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    bool is = degrees[i] == 0;
    for (i64 at = starts[row]; at < stop && !is; ++at) {
        const int end = numbers[columns[at]];
        is = end >= 0 && weights[at] > least * degrees[end];
    }
    noticed[i] = is, parents[i] = (int)i;
}

// Root of a tree, whose vertices are moved up on the way: other threads may do the same, or hook the root to a smaller one.
__device__ int root_of(volatile int* parents, int i) {
    for (int up = parents[i]; up != i; up = parents[i]) {
        const int next = parents[up];
        if (next != up) parents[i] = next;
        i = up;
    }
    return i;
}

// Joins the trees of both ends of each edge that joins: the larger root becomes a child of the smaller.
extern "C" __global__ void join_ends(
    const i64* starts, const int* columns, const double* weights, const int* vertices, const int* numbers, const double* degrees,
    const unsigned char* noticed, int* parents, int n, double least
) {
    const i64 i = own_index();
    if (i >= n || !noticed[i]) return;
    const i64 row = vertices[i], stop = starts[row + 1];
    for (i64 at = starts[row]; at < stop; ++at) {
        const int end = numbers[columns[at]];
        if (end < 0 || end >= i || !noticed[end]) continue;  // its other row has it too
        if (!(weights[at] > least * (degrees[i] < degrees[end] ? degrees[i] : degrees[end]))) continue;
        int one = root_of(parents, (int)i), other = root_of(parents, end);
        while (one != other) {
            const int larger = one > other ? one : other, smaller = one > other ? other : one;
            const int before = atomicCAS(parents + larger, larger, smaller);
            if (before == larger) break;
            one = root_of(parents, before), other = smaller;
        }
    }
}

// The first vertex of the component of each.
extern "C" __global__ void label(const int* parents, int* labels, int n) {
    const i64 i = own_index();
    if (i >= n) return;
    int root = (int)i;
    while (parents[root] != root) root = parents[root];
    labels[i] = root;
}
