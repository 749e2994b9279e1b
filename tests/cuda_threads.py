"""C++ that stands for what CUDA gives a thread block, for kernels compiled on the host."""

#: A thread block whose threads run in turn, each up to where it waits for others: those of its warp or all.
ON_THE_HOST = r"""
#include <cstddef>
#include <cstdint>
#include <csetjmp>
#include <cstring>
#include <ucontext.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct Place { unsigned x; };
static Place blockIdx, threadIdx, blockDim, gridDim;
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldcs(const T* at) { return *at; }
template <class T> T __ldcg(const T* at) { return *at; }
static void __threadfence() {}
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T atomicCAS(T* at, T expected, T x) { T before = *at; if (before == expected) *at = x; return before; }
template <class T> T atomicAdd(T* sum, T x) { T before = *sum; *sum += x; return before; }

struct Barrier { unsigned arrived, passed; };
static jmp_buf scheduler, waiting[1024];
static char stacks[1024][1 << 16];
static bool is_begun[1024], is_done[1024];
// Without the mask of signals, for which swapcontext calls the system twice.
__attribute__((noinline)) static void change(jmp_buf from, jmp_buf to) { if (!_setjmp(from)) _longjmp(to, 1); }
static Barrier whole, of_warp[32];
static double words[32][32];
static void wait_for(Barrier& barrier, unsigned count) {
    const unsigned before = barrier.passed;
    if (++barrier.arrived == count) { barrier.arrived = 0; ++barrier.passed; }
    while (barrier.passed == before) change(waiting[threadIdx.x], scheduler);
}
static void __syncthreads() { wait_for(whole, blockDim.x); }
template <class T> T __shfl_xor_sync(unsigned, T x, int lanes) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    std::memcpy(&words[warp][lane], &x, sizeof x);
    wait_for(of_warp[warp], 32);
    std::memcpy(&x, &words[warp][lane ^ lanes], sizeof x);
    wait_for(of_warp[warp], 32);
    return x;
}
"""

#: Launches of kernels behind :data:`ON_THE_HOST`, one thread block after the other; arguments are found by their addresses.
LAUNCH = r"""
static const void* const* given;
template <class T> T argument(int at) { return *(const T*)given[at]; }
static void (*body)();
static void one_thread() {
    for (;;) {
        body();
        is_done[threadIdx.x] = true;
        change(waiting[threadIdx.x], scheduler);
    }
}
static ucontext_t first;
__attribute__((noinline)) static void begin(unsigned t) {
    is_begun[t] = true;
    getcontext(&first);
    first.uc_stack = {stacks[t], 0, sizeof stacks[t]};
    makecontext(&first, one_thread, 0);
    if (!_setjmp(scheduler)) setcontext(&first);
}
static void launch(void (*what)(), unsigned blocks, unsigned threads, const void* const* arguments) {
    given = arguments, body = what, blockDim.x = threads, gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        for (unsigned t = 0; t < threads; ++t) is_done[t] = false;
        for (unsigned left = threads; left;)
            for (unsigned t = 0; t < threads; ++t)
                if (!is_done[t]) {
                    threadIdx.x = t;
                    if (is_begun[t]) change(scheduler, waiting[t]); else begin(t);
                    left -= is_done[t];
                }
    }
}
"""
