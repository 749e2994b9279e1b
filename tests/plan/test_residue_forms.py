"""Strassen's products on residues, as the benchmark runs them: exact modulo every modulus, on the host and one thread."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from benchmarks.residue_forms import FACTORS, source
from tests.inside.precision import ResidueBasis

pytestmark = pytest.mark.nvcc
BASIS = ResidueBasis(13)
#: What C++ needs to run a kernel as one thread of the host, told its block.
ON_THE_HOST = """
#define __align__ alignas
#define __constant__ static const
#define __device__
#define __forceinline__ inline
#define __global__
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx;
static const Place blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
template <class T> static void atomicAdd(T* sum, T x) { *sum += x; }
extern "C" void choose_block(unsigned x, unsigned y, unsigned z) { blockIdx = {x, y, z}; }
"""


def compile_with_nvcc(code, *options):
    ran = subprocess.run(["nvcc", "-std=c++17", *options, str(code)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def kernels(compilers: None, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    (folder / "forms.cpp").write_text(ON_THE_HOST + source(BASIS), encoding="utf-8")
    compile_with_nvcc(folder / "forms.cpp", "-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(folder / "out.so"))
    return ctypes.CDLL(str(folder / "out.so"))


def call(kernels, name, blocks, *arguments):
    """Run a kernel block by block; integers are passed in 64 bits."""
    words = [ctypes.c_int64(a.ctypes.data if isinstance(a, np.ndarray) else a) for a in arguments]
    for block in np.ndindex(blocks):
        kernels.choose_block(*block)
        getattr(kernels, name)(*words)


def factors(kernels, strip, half, *, is_right):
    planes, rows, cols = strip.shape
    out = np.zeros((FACTORS * planes, rows // 2, cols // 2), np.int8)
    call(kernels, "factors", (cols // 32, 1, planes), strip, out, rows, cols, planes, half, half, int(is_right))
    return out


def combined(kernels, partial, shape, half):
    out = np.zeros((len(partial) // FACTORS, *shape), np.int32)
    call(kernels, "combine", (shape[1] // 2, 1, len(out)), partial, out, *shape, len(out), half, half)
    return out


def products(left, right):
    return np.einsum("pmk,pnk->pmn", left.astype(np.int32), right.astype(np.int32), dtype=np.int32)


def canonical(rng, rows, cols):
    """Residues from the least to the largest of each modulus, both of which occur."""
    planes = [rng.integers(-(m // 2), (m - 1) // 2 + 1, (rows, cols)) for m in BASIS.moduli]
    for plane, m in zip(planes, BASIS.moduli, strict=True):
        plane[0, :2] = -(m // 2), (m - 1) // 2
    return np.array(planes, dtype=np.int8)


@pytest.mark.parametrize("levels", [1, 2])
def test_seven_products_are_the_product_modulo_every_modulus(kernels, levels):
    rng, tile = np.random.default_rng(levels), 64
    left, right = canonical(rng, tile, 3 * tile), canonical(rng, 2 * tile, 3 * tile)
    expected = products(left, right)
    shapes = [(tile >> level, 2 * tile >> level) for level in range(levels)]
    for level in range(1, levels + 1):
        left = factors(kernels, left, tile >> level, is_right=False)
        right = factors(kernels, right, tile >> level, is_right=True)
    tables = np.tile(BASIS.moduli, FACTORS**levels)[:, None, None]
    for strip in (left, right):
        assert np.all((strip >= -(tables // 2)) & (strip <= (tables - 1) // 2))
    sums = products(left, right)
    for level in range(levels, 0, -1):
        sums = combined(kernels, sums, shapes[level - 1], tile >> level)
    moduli = np.array(BASIS.moduli)[:, None, None]
    assert not np.any((expected - sums) % moduli)
    found = np.zeros(1, np.uint64)
    sums[3, 5, 7] += 1 if sums[3, 5, 7] < 100 else -1
    call(kernels, "count_different", (1, BASIS.count, 1), expected, sums, sums[0].size, found)
    assert found[0] == 1


@pytest.mark.usefixtures("compilers")
def test_the_kernels_compile_without_warnings(tmp_path):
    code = tmp_path / "forms.cu"
    code.write_text(source(BASIS), encoding="utf-8")
    compile_with_nvcc(code, "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"))
