"""Products of residues by FP8 digits: the kernel itself on the host, where tensor cores keep 14 bits of a sum."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from tests.cuda_threads import LAUNCH, ON_THE_HOST
from tests.emulated_cuda import CALLED
from tests.inside.kernels import FP8_THREADS, FP8_TILE, code, divisions, fp8_source
from tests.inside.precision import MOST_MODULI, ResidueBasis

pytestmark = pytest.mark.nvcc

#: What stands in front of the kernel on the host: its tensor cores, which find operands by rows of 128 bytes that are swizzled.
TENSOR_CORES = r"""
#include <cmath>
#include <utility>
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
typedef unsigned int u32;
typedef unsigned long long u64;
struct Modulus { int p, bytes, bias; float reciprocal; };
struct Moduli { Modulus of[MOST_MODULI]; };
static u64 above; // bits of addresses beyond 32
static u32 shared_address(const void* p) { above = (u64)p >> 32 << 32; return (u32)(u64)p; }
static u64 descriptor(u32 address) { return address; }
static void wgmma_fence() {}
static void wgmma_commit() {}
template <int> static void wgmma_wait() {}
static void show_to_tensor_cores() {}
template <class T> static void pin(T&) {}

static struct E4M3 {
    double of[256];
    E4M3() {
        for (int code = 0; code < 256; ++code) {
            const int exponent = code >> 3 & 15, tail = code & 7;
            of[code] = (code & 128 ? -1 : 1) * (exponent ? std::ldexp(8 + tail, exponent - 10) : std::ldexp(tail, -9));
        }
    }
} e4m3;
static double operand(u64 address) {
    return e4m3.of[*(const unsigned char*)(above | (address ^ (address >> 7 & 7) << 4))];
}
static float kept(double sum) {
    int power;
    std::frexp(sum, &power);
    return (float)std::ldexp(std::trunc(std::ldexp(sum, 14 - power)), power - 14);
}
static void multiply_e4m3(float (&d)[32], u64 left, u64 right) {
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, in_group = threadIdx.x % 4;
    for (int i = 0; i < 32; ++i) {
        const int row = 16 * warp + group + (i & 2 ? 8 : 0), col = 8 * (i / 4) + 2 * in_group + (i & 1);
        double sum = d[i];
        for (int k = 0; k < 32; ++k) sum += operand(left + 128 * row + k) * operand(right + 128 * col + k);
        d[i] = kept(sum);
    }
}
static u32 less_eight_in_e4m3(u32 bytes) {
    u32 codes = 0;
    for (int at = 0; at < 4; ++at) {
        u32 code = 0;
        while (e4m3.of[code] != (int)(bytes >> 8 * at & 255) - 8) ++code;
        codes |= code << 8 * at;
    }
    return codes;
}
static int reduced(int v, int more, const Modulus& m) {
    const int residue = ((v + more) % m.p + m.p) % m.p;
    return residue > (m.p - 1) / 2 ? residue - m.p : residue;
}
"""
KERNELS = ("multiply_digits_int8", "multiply_digits_int32")


def compile_with_nvcc(file, *options):
    ran = subprocess.run(["nvcc", "-std=c++17", *options, str(file)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


@pytest.fixture(scope="module")
def library(compilers: None, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp8")
    kernel = code("residue_fp8.cu", TILE=FP8_TILE, THREADS=FP8_THREADS)
    callable_ones = "".join(f"CALLABLE({name})\n" for name in KERNELS)
    text = f"#define MOST_MODULI {MOST_MODULI}\n" + ON_THE_HOST + TENSOR_CORES + kernel + LAUNCH + CALLED + callable_ones
    (folder / "fp8.cpp").write_text(text, encoding="utf-8")
    compile_with_nvcc(folder / "fp8.cpp", "-O2", "-shared", "-Xcompiler", "-fPIC,-w", "-o", str(folder / "fp8.so"))
    return ctypes.CDLL(str(folder / "fp8.so"))


def multiply(library, sums, left, right, basis, *, accumulates=False, lower=False):
    """Thread blocks that a product launches, one after the other."""
    planes, rows, inner = left.shape
    cols = sums.shape[2]
    arrays = [np.array([each.ctypes.data, each.strides[1], each.strides[0]], np.int64) for each in (left, right, sums)]
    held = [*arrays, divisions(basis.moduli), np.array([rows, cols, inner, accumulates, lower], np.int32)]
    arguments = (ctypes.c_void_p * len(held))(*[each.ctypes.data for each in held])
    blocks = planes * -(-rows // FP8_TILE) * -(-cols // FP8_TILE)
    getattr(library, f"run_multiply_digits_{sums.dtype.name}")(ctypes.c_uint(blocks), ctypes.c_uint(FP8_THREADS), arguments)


def aligned(planes, rows, columns):
    """Residues at an address that is a multiple of 16."""
    room = np.zeros(planes * rows * columns + 16, np.int8)
    start = -room.ctypes.data % 16
    return room[start : start + planes * rows * columns].reshape(planes, rows, columns)


def exact_products(left, right):
    return left.astype(np.int64) @ right.astype(np.int64).transpose(0, 2, 1)


def test_all_pairs_of_residues(library):
    column = aligned(1, 256, 16)
    column[0, :, 0] = np.arange(-128, 128)
    sums = np.full((1, 256, 256), 7, np.int32)
    multiply(library, sums, column, column, ResidueBasis(4))
    assert np.array_equal(sums, exact_products(column, column))


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_near_the_largest_that_tensor_cores_meet(library, sign):
    """Almost all digits are 8 and -8, and sums odd: of ``a d + b c`` they need 13 bits."""
    rng = np.random.default_rng(1)
    left, right = aligned(1, 64, 1024), aligned(1, 64, 1024)
    left[:], right[:] = (rng.choice([104, 105, 120, 121], each.shape, p=[0.01, 0.01, 0.97, 0.01]) for each in (left, right))
    right *= sign
    sums = np.full((1, 64, 64), -5, np.int32)
    multiply(library, sums, left, right, ResidueBasis(4), accumulates=True)
    assert np.array_equal(sums, exact_products(left, right) - 5)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize(("rows", "cols", "inner"), [(1, 1, 16), (70, 130, 144), (130, 70, 240)])
def test_products_in_int32_and_in_int8(library, rows, cols, inner, accumulates, lower):
    rng, basis, planes = np.random.default_rng(rows), ResidueBasis(4), 2
    cols = rows if lower else cols
    left, right = aligned(planes, rows, inner + 32), aligned(planes, cols, inner + 32)
    left[:], right[:] = (rng.integers(-128, 128, each.shape, dtype=np.int8) for each in (left, right))
    left, right = left[:, :, 16:-16], right[:, :, 16:-16]
    exact = exact_products(left, right)
    inside = np.s_[:, 1:-1, 3:-2]
    for dtype in (np.int32, np.int8):
        before = rng.integers(-128, 128, (planes, rows + 2, cols + 5)).astype(dtype)
        sums = before.copy()
        multiply(library, sums[inside], left, right, basis, accumulates=accumulates, lower=lower)
        expected, found = exact + accumulates * before[inside].astype(np.int64), sums[inside].astype(np.int64)
        if lower:
            expected, found = np.tril(expected), np.tril(found)
        if dtype == np.int8:
            moduli = np.array(basis.moduli[:planes])[:, None, None]
            assert np.all((found >= -(moduli // 2)) & (found <= (moduli - 1) // 2))
            expected, found = expected % moduli, found % moduli
        assert np.array_equal(found, expected)
        sums[inside] = before[inside]
        assert np.array_equal(sums, before)


@pytest.mark.usefixtures("compilers")
def test_the_kernels_compile_without_warnings_or_spills(tmp_path):
    (tmp_path / "fp8.cu").write_text(fp8_source(), encoding="utf-8")
    options = ["-arch=sm_90a", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin", "-o", str(tmp_path / "out")]
    told = compile_with_nvcc(tmp_path / "fp8.cu", *options)
    assert told.count("0 bytes spill stores") == len(KERNELS)
