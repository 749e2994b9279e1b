// What kernels on panels share: types, products of small matrices, and how rows and columns are found.
//
// Defines: STORE, the type of vectors; SUM, that in which is computed; B, columns of a panel: 1, 2, 4 or 8; MMA, 16 or 8 where SUM
// is double and the device multiplies matrices of it (16 or 8 rows at once), else 0.
//
// A basis is (p, rows, B): column c of all its columns is column c % B of panel c / B. Kernels take 8 columns at a time, a *tile*:
// 8 / B panels. Where the last tile has fewer, lanes read the last panel once more, and nobody takes what comes of it.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP = 32, TILE = 8;

template <int BYTES> struct WordOf;
template <> struct WordOf<4> { typedef u32 type; };
template <> struct WordOf<8> { typedef uint2 type; };
template <> struct WordOf<16> { typedef uint4 type; };

// So many neighbouring numbers, read and written at once.
template <int COUNT> union Numbers {
    typename WordOf<COUNT * sizeof(STORE)>::type word;
    STORE number[COUNT];
};

// Numbers of a row of a panel that are read at once, at most 16 bytes.
[[maybe_unused]] constexpr int WIDTH = B * sizeof(STORE) > 16 ? 16 / sizeof(STORE) : B;

#if MMA && defined(__CUDACC__)
// C += A Bk for two tiles of 8 rows: a lane has A[lane / 4][lane % 4] of both, Bk[lane % 4][lane / 4], and of C row lane / 4 and
// columns 2 (lane % 4) and the next.
__device__ __forceinline__ void multiply_add(double (&c)[2][2], double a0, double a1, double b) {
#if MMA == 16
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(c[0][0]), "+d"(c[0][1]), "+d"(c[1][0]), "+d"(c[1][1])
                 : "d"(a0), "d"(a1), "d"(b));
#else
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0][0]), "+d"(c[0][1])
                 : "d"(a0), "d"(b));
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[1][0]), "+d"(c[1][1])
                 : "d"(a1), "d"(b));
#endif
}
#endif

// Where column `column` of a basis begins, or of its last panel if it has fewer.
template <class T> __device__ __forceinline__ T* column_at(T* basis, int p, u64 rows, int column) {
    return basis + (u64)min(column / B, p - 1) * rows * B + column % B;
}
