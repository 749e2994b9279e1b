// Vecchia's approximation: blocks of one warp, each for RUN values one after the other, so that sums have one order.
//
// A row of `index` has the neighbours of a value and then the value itself, K in all, and -1 behind where there are fewer. With L
// the factor of their correlation matrix and u the last column of inv(L).T, a value needs w = inv(L) (values, design) and, for each
// direction D, f = inv(L) D u (Guinness 2021). ENTRY_OF(form, i, j) is the correlation of observations i and j for form 0, and its
// derivatives for the following forms; DIAGONAL_OF likewise. Directions are these, the known errors, and the identity.
#define DIRECTIONS (DERIVED ? FORMS - 1 + HAS_NOISE + 1 : 0)
#define WIDTH (COLUMNS + DIRECTIONS)
#define SUMS (1 + DIRECTIONS * (1 + DIRECTIONS + COLUMNS * COLUMNS))
#define PACKED(i, j) ((i) * ((i) + 1) / 2 + (j))

// The factor over the lower triangle `a` of order k; returns 0, or the order of the leading minor that is not positive definite
// but for rounding errors, which are up to `least` of each pivot.
static __device__ int factor_packed(double* a, const double* least, int k)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int j = 0; j < k; ++j) {
        const double pivot = a[PACKED(j, j)];
        if (!(pivot > least[j] && pivot <= 1.7976931348623157e308)) return j + 1;  // NaN and infinite ones, too
        const double root = sqrt(pivot);
        __syncwarp();  // all have read the pivot
        for (int i = j + lane; i < k; i += lanes) a[PACKED(i, j)] = i == j ? root : a[PACKED(i, j)] / root;
        __syncwarp();
        // A[i, j+1:i+1] -= L[i, j] L[j+1:i+1, j].T
        for (int i = j + 1 + lane; i < k; i += lanes) {
            const double left = a[PACKED(i, j)];
            for (int c = j + 1; c <= i; ++c) a[PACKED(i, c)] -= left * a[PACKED(c, j)];
        }
        __syncwarp();
    }
    return 0;
}

#if DERIVED
// u with L.T u = the last unit vector.
static __device__ void last_of_inverse(const double* factor, double* u, int k)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int i = lane; i < k; i += lanes) u[i] = i == k - 1 ? 1.0 : 0.0;
    __syncwarp();
    for (int j = k - 1; j >= 0; --j) {
        const double solved = u[j] / factor[PACKED(j, j)];
        __syncwarp();  // all have read u[j]
        if (lane == 0) u[j] = solved;
        for (int i = lane; i < j; i += lanes) u[i] -= factor[PACKED(j, i)] * solved;
        __syncwarp();
    }
}

#endif

// X = inv(L) X in place, (k, WIDTH).
static __device__ void forward(const double* factor, double* x, int k)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int j = 0; j < k; ++j) {
        for (int c = lane; c < WIDTH; c += lanes) x[j * WIDTH + c] /= factor[PACKED(j, j)];
        __syncwarp();
        for (int e = lane; e < (k - 1 - j) * WIDTH; e += lanes) {
            const int i = j + 1 + e / WIDTH, c = e % WIDTH;
            x[i * WIDTH + c] -= factor[PACKED(i, j)] * x[j * WIDTH + c];
        }
        __syncwarp();
    }
}

// Correlations of all pairs.
static __device__ void fill_matrix(double* a, const int* own, int k, double nugget, const double* noise PARAMETERS)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int e = lane; e < k * k; e += lanes) {
        const int i = e / k, j = e % k;
        if (j < i) a[PACKED(i, j)] = ENTRY_OF(0, own[i], own[j]);
        if (j == i) a[PACKED(i, i)] = DIAGONAL_OF(0, own[i]) + (nugget + (HAS_NOISE ? noise[own[i]] : 0.0));
    }
}

#if DERIVED
// The columns of X of all directions: D u.
static __device__ void fill_images(double* x, const double* u, const int* own, int k, const double* noise PARAMETERS)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int i = lane; i < k; i += lanes) {
        double* row = x + i * WIDTH + COLUMNS;
#pragma unroll 1
        for (int form = 1; form < FORMS; ++form) {
            double sum = 0.0;
            for (int j = 0; j < k; ++j) sum += (i == j ? DIAGONAL_OF(form, own[i]) : ENTRY_OF(form, own[i], own[j])) * u[j];
            row[form - 1] = sum;
        }
        if (HAS_NOISE) row[FORMS - 1] = noise[own[i]] * u[i];
        row[DIRECTIONS - 1] = u[i];
    }
}

// Adds what one value gives: traces, crossed traces, and derivatives of the whitened columns times these. x has w and f.
static __device__ void add_sums(double* total, double* g, const double* x, int k)
{
    const int lane = threadIdx.x, lanes = blockDim.x;
    const double* last = x + (k - 1) * WIDTH;
    for (int e = lane; e < DIRECTIONS * COLUMNS; e += lanes) {
        const int d = e / COLUMNS, q = e % COLUMNS;
        double sum = -0.5 * last[COLUMNS + d] * last[q];
        for (int i = 0; i < k; ++i) sum += x[i * WIDTH + COLUMNS + d] * x[i * WIDTH + q];
        g[e] = sum;
    }
    __syncwarp();
    for (int e = lane; e < SUMS - 1; e += lanes) {
        double value;
        if (e < DIRECTIONS) {
            value = last[COLUMNS + e];
        } else if (e < DIRECTIONS * (1 + DIRECTIONS)) {
            const int d = (e - DIRECTIONS) / DIRECTIONS, other = (e - DIRECTIONS) % DIRECTIONS;
            double sum = 0.0;
            for (int i = 0; i < k; ++i) sum += x[i * WIDTH + COLUMNS + d] * x[i * WIDTH + COLUMNS + other];
            value = 2.0 * sum - last[COLUMNS + d] * last[COLUMNS + other];
        } else {
            const int place = e - DIRECTIONS * (1 + DIRECTIONS);
            value = g[place / COLUMNS] * last[place % COLUMNS];
        }
        total[1 + e] += value;
    }
}

#endif

extern "C" __global__ void vecchia(const int* index, double* whitened, double* sums, int* failed, const double* table,
                                   const double* noise, double nugget PARAMETERS)
{
    extern __shared__ double memory[];
    double *factor = memory, *x = factor + K * (K + 1) / 2, *u = x + K * WIDTH, *g = u + K;
    double* total = g + DIRECTIONS * COLUMNS;
    int* own = (int*)(total + SUMS);
    const int lane = threadIdx.x, lanes = blockDim.x;
    for (int e = lane; e < SUMS; e += lanes) total[e] = 0.0;
    for (int place = 0; place < RUN; ++place) {
        const int* row = index + ((long long)blockIdx.x * RUN + place) * K;
        int k = K;
        while (k > 0 && row[k - 1] < 0) --k;
        if (k == 0) break;  // the last block may have fewer
        __syncwarp();
        for (int i = lane; i < k; i += lanes) own[i] = row[i];
        __syncwarp();
        fill_matrix(factor, own, k, nugget, noise NAMES);
        __syncwarp();
        for (int i = lane; i < k; i += lanes) u[i] = LEAST * factor[PACKED(i, i)];
        __syncwarp();
        if (const int minor = factor_packed(factor, u, k)) {
            if (lane == 0) failed[blockIdx.x] = minor;
            break;
        }
        for (int e = lane; e < k * COLUMNS; e += lanes)
            x[e / COLUMNS * WIDTH + e % COLUMNS] = table[(long long)own[e / COLUMNS] * COLUMNS + e % COLUMNS];
#if DERIVED
        last_of_inverse(factor, u, k);
        fill_images(x, u, own, k, noise NAMES);
#endif
        __syncwarp();
        forward(factor, x, k);
#if DERIVED
        add_sums(total, g, x, k);
#endif
        if (lane == 0) total[0] += 2.0 * log(factor[PACKED(k - 1, k - 1)]);
        for (int q = lane; q < COLUMNS; q += lanes)
            whitened[((long long)blockIdx.x * RUN + place) * COLUMNS + q] = x[(k - 1) * WIDTH + q];
    }
    __syncwarp();
    for (int e = lane; e < SUMS; e += lanes) sums[(long long)blockIdx.x * SUMS + e] = total[e];
}
