"""The kernels on panels compile, and their arithmetic, as C++ whose threads take turns, is within its bounds."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from ooc_chol import Precision
from tests.cuda_threads import ON_THE_HOST
from tests.inside.kernels import CLUSTER, PANELS, PRODUCTS, DeviceFacts, code, defines, gram_shape, parts_of, product_shape
from tests.inside.tasks import CHUNK_ROWS, panel_key, random_rows
from tests.kernel_calls import calls, types_of
from tests.panel_arrays import Host, as_matrix, clamped, fell_within, vectors
from tests.products import thorough
from tests.tolerances import sparse_product_bound

FFF, FDF, DDD = Precision
H200 = DeviceFacts(90, 132, 232448)
A100, OLD = DeviceFacts(80, 108, 166912), DeviceFacts(75, 40, 65536)
CASES = [(FDF, 8, A100)]
MORE_CASES = [
    *(
        (FFF, 1, H200),
        (DDD, 1, A100),
        (FFF, 8, H200),
        (FDF, 2, A100),
        (DDD, 4, A100),
        (DDD, 8, OLD),
        (FDF, 1, OLD),
        (FFF, 4, H200),
    ),
    (DDD, 2, OLD),
]
COMPILED = [(FDF, 8, H200), *thorough((DDD, 1, H200), (FFF, 8, H200), (FDF, 2, A100), (DDD, 4, OLD), (FFF, 1, H200))]

#: What the kernels use beyond the sparse products: votes and shuffles in a warp, and the product of small matrices.
MORE_ON_THE_HOST = r"""
#include <cmath>
using std::isfinite;
using std::sqrt;
#define __align__(n) alignas(n)
#undef __restrict__
#define __restrict__
#define __cluster_dims__(...)
struct alignas(16) double2 { double x, y; };
static double of_lane(double x, unsigned lane) {
    const unsigned warp = threadIdx.x / 32;
    words[warp][threadIdx.x % 32] = x;
    wait_for(of_warp[warp], 32);
    x = words[warp][lane];
    wait_for(of_warp[warp], 32);
    return x;
}
static double __shfl_sync(unsigned, double x, int lane) { return of_lane(x, lane); }
static void __syncwarp() { wait_for(of_warp[threadIdx.x / 32], 32); }
static bool __any_sync(unsigned, bool x) {
    bool any = false;
    for (unsigned lane = 0; lane < 32; ++lane) any |= of_lane(x, lane) != 0;
    return any;
}
template <class A> static void multiply_add(A& c, double a0, double a1, double b) {
    static double left[32][2][8][4], right[32][4][8];
    const unsigned warp = threadIdx.x / 32, k = threadIdx.x % 4, m = threadIdx.x % 32 / 4;
    left[warp][0][m][k] = a0, left[warp][1][m][k] = a1, right[warp][k][m] = b;
    wait_for(of_warp[warp], 32);
    for (int tile = 0; tile < 2; ++tile)
        for (int e = 0; e < 2; ++e)
            for (int at = 0; at < 4; ++at) c[tile][e] += left[warp][tile][m][at] * right[warp][at][2 * k + e];
    wait_for(of_warp[warp], 32);
}
"""
#: A cluster, whose thread blocks run one after the other, twice: the second time all find what each had the first time.
CLUSTERED = r"""
template <class T> T sum_of(const T* sums, int strip, int at);
template <class T> void meet_with(const T* sums);
#define meet() meet_with(sums)
"""
SUMS = r"""
static SUM held[64][MOST_SUMS];
template <class T> void meet_with(const T* sums) {
    __syncthreads();
    std::memcpy(held[blockIdx.x], sums, sizeof held[0]);
}
template <class T> T sum_of(const T*, int strip, int at) {
    return held[blockIdx.x / CLUSTER * CLUSTER + strip][at];
}
"""
#: Kernels and the types of their arguments: S of vectors, C of computing, u and l of whole numbers of 32 and 64 bits, i of int, P
#: of partial sums.
PANEL_KERNELS = {
    "gram": "S*S*C*liiu*",
    "add_partials": "PC*uiu*",
    "factor": "C*C*C*u*CC*C*dCu*",
    "factor_clamped": "C*C*C*u*CC*CCu*u*u*",
    "fell": "C*C*u*C",
    "multiply_right": "S*C*S*lu*",
    "multiply_right_twice": "S*C*C*S*lu*",
    "fill_random": "S*lllu*",
}
PRODUCT_KERNELS = {"product": "S*C*S*liiiiiu*"}
WORDS = {"S": "STORE", "C": "SUM", "u": "u32", "l": "u64", "i": "int", "d": "double", "P": "Parts"}
C_TYPES = {"u": ctypes.c_uint32, "l": ctypes.c_uint64, "i": ctypes.c_int, "d": ctypes.c_double}


class OnTheHost:
    """Kernels of a precision, a width and a device, whose launches run here."""

    def __init__(self, folder, precision, block, facts, cluster=1):
        self.precision, self.block, self.facts, self.cluster = precision, block, facts, cluster
        self._folder, self._libraries = folder, {}

    def launch(self, name, shape, *arguments, files=PANELS, extra=()):
        """Run a kernel on ``shape``: thread blocks and threads."""
        kernels = PANEL_KERNELS if files is PANELS else PRODUCT_KERNELS
        library = self._library(files, kernels, tuple(extra))
        held = [self._held(each, given) for each, given in zip(types_of(kernels[name]), arguments, strict=True)]
        pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(each) for each in held])
        getattr(library, f"run_{name}")(*map(ctypes.c_uint, shape), pointers)

    def _held(self, letter, given):
        if letter[1:]:
            return ctypes.c_void_p(None if given is None else given.ctypes.data)
        if letter == "P":
            return (ctypes.c_char * given.nbytes).from_buffer(given)
        if letter == "C":
            return (ctypes.c_float if self.precision.compute == np.float32 else ctypes.c_double)(given)
        return C_TYPES[letter](given)

    def _library(self, files, kernels, extra):
        key = files, extra
        if key not in self._libraries:
            macros = defines(self.facts, self.precision, self.block, files) | {"CLUSTER": self.cluster} | dict(extra)
            text = code(*files, **macros).replace("extern __shared__ __align__(16) unsigned char memory[]", MEMORY)
            source = self._folder / f"kernels{len(self._libraries)}.cpp"
            begin, end = (CLUSTERED, SUMS) if self.cluster > 1 and files is PANELS else ("", "")
            source.write_text(ON_THE_HOST + MORE_ON_THE_HOST + begin + text + end + calls(kernels, WORDS), encoding="utf-8")
            words = ["-O1", "-shared", "-Xcompiler", "-fPIC,-w,-ffp-contract=off,-fno-strict-aliasing"]
            compiled([*words, "-o", str(source.with_suffix(".so")), str(source)])
            self._libraries[key] = ctypes.CDLL(str(source.with_suffix(".so")))
        return self._libraries[key]


MEMORY = "alignas(16) static unsigned char memory[232448]"


def compiled(words):
    ran = subprocess.run(["nvcc", "-std=c++17", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def name_of(case):
    return "-".join(map(str, case))


@pytest.mark.nvcc
@pytest.mark.parametrize("case", COMPILED, ids=name_of)
@pytest.mark.usefixtures("compilers")
def test_kernels_compile_without_warnings(case, tmp_path):
    precision, block, facts = case
    shapes = [product_shape(facts, precision, block, 15, made) for made in (1, 9)]
    for files, extra in ((PANELS, ()), *((PRODUCTS, shape.defines) for shape in shapes)):
        (tmp_path / "source.cu").write_text(
            code(*files, **defines(facts, precision, block, files), **dict(extra)), encoding="utf-8"
        )
        # Every line of them; optimizing takes most of the seconds.
        to_cubin = [
            "-Xcicc=-O0",
            "-Xptxas=-O0",
            "-Werror",
            "all-warnings",
            "-cubin",
            "-o",
            str(tmp_path / "out"),
            str(tmp_path / "source.cu"),
        ]
        compiled([f"-arch=sm_{facts.capability}", *to_cubin])


@pytest.mark.nvcc
@pytest.mark.parametrize("case", [*CASES, *thorough(*MORE_CASES)], ids=name_of)
@pytest.mark.usefixtures("compilers")
def test_the_arithmetic_is_within_its_bounds(case, tmp_path):
    precision, block, _ = case
    kernels, rows, p = OnTheHost(tmp_path, *case), 8300, 3 if block == 8 else 11
    basis, w = vectors((p, rows, block), precision), vectors((rows, block), precision, 1)
    inner_products(kernels, basis, w)
    coefficients = vectors((p * block, block), precision, 2).astype(precision.compute)
    v, x = as_matrix(basis), w.astype(np.longdouble)
    for q, subtracts in ((1, 1), (p - 1, 0)):
        wide = vectors((p * block, q * block), precision, 3).astype(precision.compute)
        given = coefficients if subtracts else wide
        out = w.copy() if subtracts else basis.copy()
        product(kernels, basis if subtracts else out, given, out, p, q, subtracts)
        exact, size = v @ given.astype(np.longdouble), np.abs(v) @ np.abs(given)
        exact, size = (x - exact, np.abs(x) + size) if subtracts else (exact, size)
        bound = sparse_product_bound(p * block + 1, size, precision.compute, exact, precision.storage)
        assert np.all(np.abs((out if subtracts else as_matrix(out[:q])) - exact) <= bound)


@pytest.mark.nvcc
@pytest.mark.parametrize("block", [8, *thorough(1, 4)])
@pytest.mark.usefixtures("compilers")
def test_thread_blocks_of_a_cluster_and_one_alone_make_the_same_bits(block, tmp_path):
    """However many tiles each has: two groups of tiles, or one."""
    rows, p = 8192 + 77, 24 // block
    basis, w = vectors((p, rows, block), FDF), vectors((rows, block), FDF, 1)
    made = []
    for cluster, groups in ((1, (3,)), (CLUSTER, (2, 1))):
        (folder := tmp_path / str(cluster)).mkdir()
        kernels = OnTheHost(folder, FDF, block, H200, cluster)
        for tiles in groups if block > 1 else (1,):  # of single columns a thread block has one tile
            partial = np.full((1, p * block, block), np.nan)
            for _ in range(1 + (cluster > 1)):
                kernels.launch("gram", (cluster * -(-3 // tiles), 256), basis, w, partial, rows, p, tiles, None)
            made.append(partial.tobytes())
    assert len(set(made)) == 1
    exact, size = as_matrix(basis).T @ w.astype(np.longdouble), np.abs(as_matrix(basis)).T @ np.abs(w)
    assert np.all(np.abs(partial[0] - exact) <= sparse_product_bound(rows, size, float))


@pytest.mark.nvcc
@pytest.mark.usefixtures("compilers")
def test_warps_that_share_rows_read_all_before_they_write(tmp_path):
    """More columns than a warp makes, in place, with all coefficients in shared memory or some at a time."""
    kernels = OnTheHost(tmp_path, FDF, 8, A100)
    basis = vectors((11, 200, 8), FDF)
    coefficients = vectors((88, 80), DDD, 1)
    shape = product_shape(A100, FDF, 8, 11, 10)
    assert shape.across == 2
    v = as_matrix(basis)
    exact, size = v @ coefficients, np.abs(v) @ np.abs(coefficients)
    for kept in (11, 4):
        out = basis.copy()
        arguments = (out, coefficients, out, 200, 11, 10, shape.across, kept, 0, None)
        kernels.launch("product", (3, 32 * shape.warps), *arguments, files=PRODUCTS, extra=shape.defines)
        assert np.all(np.abs(as_matrix(out[:10]) - exact) <= sparse_product_bound(88, size, float, exact, np.float32))
        assert np.array_equal(out[10], basis[10])


def inner_products(kernels, basis, w):
    """Of each chunk, here one, by thread blocks of as many tiles as each may have."""
    p, rows, block = basis.shape
    compute = kernels.precision.compute
    v, x = as_matrix(basis), w.astype(np.longdouble)
    tiles, blocks = gram_shape(kernels.facts._replace(processors=1), kernels.precision, block, p, 1)
    blocks //= CLUSTER if kernels.facts.capability >= 90 else 1
    partial = np.full((1, p * block, block), np.nan, compute)
    kernels.launch("gram", (blocks, 256), basis, w, partial, rows, p, tiles, None)
    bound = sparse_product_bound(rows, np.abs(v).T @ np.abs(x), compute)
    assert np.all(np.abs(partial[0] - v.T @ x) <= bound)


def product(kernels, basis, coefficients, out, p, q, subtracts):
    """``W -= V C``, or ``out = V S`` in place, with coefficients in shared memory a tile at a time and all at once."""
    shape = product_shape(kernels.facts, kernels.precision, kernels.block, p, q)
    arguments = (basis, coefficients, out, basis.shape[1], p, q, shape.across)
    threads = 32 * shape.warps
    kept = 1 if subtracts else shape.kept
    kernels.launch("product", (2, threads), *arguments, kept, subtracts, None, files=PRODUCTS, extra=shape.defines)


@pytest.mark.nvcc
@pytest.mark.parametrize("case", CASES[:1], ids=name_of)
@pytest.mark.usefixtures("compilers")
@pytest.mark.commit
def test_small_matrices_and_random_panels(case, tmp_path):
    kernels = OnTheHost(tmp_path, *case)
    w = vectors((400, 8), FDF).astype(float)
    w[:, 2], w[:, 5] = w[:, 1], np.nan
    w[:, 6] *= 1e-20
    g, r, inverse, dependent = w.T @ w, np.empty((8, 8)), np.empty((8, 8)), np.empty(8, np.uint32)
    kernels.launch("factor", (1, 32), g, r, inverse, dependent, 1e-13, None, None, 0.0, 0.0, None)
    assert dependent.tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
    kept = np.flatnonzero(dependent == 0)
    stored = w.astype(np.float32)
    kernels.launch("multiply_right", (2, 256), stored, inverse, stored, 400, None)
    q = stored[:, kept].astype(float)
    assert np.abs(q.T @ q - np.eye(6)).max() < 1e-6
    assert not stored[:, [2, 5]].any()
    twice, made = w.astype(np.float32), np.ones_like(stored)
    again, flags = stored.copy(), np.zeros(2, np.uint32)
    kernels.launch("multiply_right", (2, 256), again, r, again, 400, None)
    kernels.launch("multiply_right_twice", (2, 256), twice, inverse, r, made, 400, flags)
    assert twice.tobytes() == again.tobytes()
    for flags[:] in ((0, 1), (1, 0)):
        kernels.launch("multiply_right_twice", (2, 256), twice, inverse, r, made, 400, flags)
        assert (twice == 1).all()
        twice[:] = 3
    kernels.launch("fill_random", (3, 256), stored, 400, 77, panel_key(4), dependent)
    assert np.array_equal(stored[:, [2, 5]], random_rows(4, 77, 400, 8)[:, [2, 5]])
    flag = np.array([9], np.uint32)
    for scale, expected in ((1.0, 0), (0.2, 1)):
        kernels.launch("fell", (1, 32), np.eye(8), scale * np.eye(8), flag, 0.25)
        assert flag[0] == expected
    partial = vectors((37, 16, 8), DDD)
    out = np.zeros((16, 8))
    for many in (partial, np.concatenate([partial] * 8)):
        out[:] = 0
        parts = [many[:5], many[5:6], many[6:]]
        given = parts_of([(part.ctypes.data, len(part)) for part in parts])
        kernels.launch("add_partials", (4, 256), given, out, 128, 1, None)
        assert np.array_equal(out, np.add.accumulate(many)[-1])


@pytest.mark.nvcc
@pytest.mark.parametrize("case", [(DDD, 8, OLD), (FFF, 4, OLD), (DDD, 1, OLD)], ids=name_of)
@pytest.mark.usefixtures("compilers")
def test_clamped_factors_are_those_of_the_host(case, tmp_path):
    precision, block, _ = case
    kernels, compute = OnTheHost(tmp_path, *case), precision.compute
    w = vectors((400, block), precision).astype(float)
    if block > 2:
        w[:, 2], w[:, 3] = w[:, 0], 0.0
    if block > 5:
        w[:, 5], w[:, 6] = np.nan, w[:, 0] - w[:, 1]
    g, tolerance = (w.T @ w).astype(compute), 100 * float(np.finfo(compute).eps)
    for last in (None, np.arange(block) % 3 == 0):
        behind = None if last is None else last.astype(np.uint32)
        wanted = clamped(Host(), precision, g, tolerance, last)
        r, inverse, weak = (
            np.full((block, block), np.nan, compute),
            np.full((block, block), np.nan, compute),
            np.array([7], np.uint32),
        )
        fell, before = np.array([7], np.uint32), np.diag(g.diagonal())
        given = g, r, inverse, weak, tolerance, None, 0.0, 0.0, None, behind
        kernels.launch("factor_clamped", (1, 32), *given, np.zeros(1, np.uint32))
        assert weak[0] == 7 and np.isnan(r).all()
        kernels.launch("factor_clamped", (1, 32), *given, None)
        assert weak[0] == wanted[2] == (block > 2)
        noise = 20 * np.finfo(compute).eps * len(w) ** 0.5 / tolerance**0.5  # of rows whose pivot was clamped
        assert np.allclose(r, wanted[0], rtol=1e-3, atol=noise)
        assert np.allclose(inverse @ r, wanted[1] @ wanted[0], atol=1e-4)
        for factor in (1.0, 2.0):
            more = factor * before, 0.81, 1e-3, fell
            kernels.launch("factor_clamped", (1, 32), g, r, inverse, weak, tolerance, *more, behind, None)
            assert fell[0] == fell_within(Host(), precision, g, tolerance, factor * before, 0.9, 1e-3**0.5)
            assert fell[0] == (block > 2 or factor == 2)


@pytest.mark.nvcc
@pytest.mark.usefixtures("compilers")
def test_columns_are_measured_by_what_they_were(tmp_path):
    kernels = OnTheHost(tmp_path, DDD, 4, OLD)
    scale, before = np.diag(10.0 ** -np.arange(4)), np.eye(4)
    for pivot, roundoff, expected in ((1e-14, 0.05, [0, 0, 1, 1]), (1.0, 0.05, [0] * 4), (1e-14, 1e-20, [0] * 4)):
        g = pivot * np.eye(4)
        r, inverse, dependent, weak = np.empty((4, 4)), np.empty((4, 4)), np.empty(4, np.uint32), np.zeros(1, np.uint32)
        kernels.launch("factor", (1, 32), g, r, inverse, dependent, 1e-13, scale, before, pivot * roundoff**2, 0.5, weak)
        assert dependent.tolist() == expected
        assert weak[0] == (pivot < 0.5)
        assert np.allclose(np.diag(r), pivot**0.5 * (1.0 - np.array(expected)))


def test_thread_blocks_of_inner_products():
    """As many tiles each as is good for W, fewer where there would be too few thread blocks; every tile has one."""
    assert gram_shape(H200, FDF, 8, 18, 512) == (6, 512 * 3 * 8)
    assert gram_shape(H200, FDF, 8, 18, 1) == (1, 18 * 8)
    assert gram_shape(H200, FFF, 8, 18, 512) == (4, 512 * 5 * 8)
    assert gram_shape(A100, DDD, 1, 3, 4) == (1, 4)


def test_products_that_no_thread_block_makes_are_refused():
    shape = product_shape(H200, FDF, 8, 15, 9)
    assert (shape.across, shape.warps, shape.block_rows, shape.kept) == (1, 8, 128, 15)
    assert product_shape(H200, FDF, 8, 300, 144).across == 16
    with pytest.raises(ValueError, match=r"a basis of 1160 columns cannot be made on .*: at most 1152"):
        product_shape(H200, FDF, 8, 300, 145)
    assert dict(product_shape(H200, FFF, 8, 300, 128).defines)["M"] == 1
    with pytest.raises(ValueError, match=r"a basis of 1032 columns cannot be made on .*: at most 1024"):
        product_shape(H200, FFF, 8, 300, 129)


def test_rows_of_a_chunk_are_those_of_the_source():
    text = code("panels.cu")
    assert "STRIPS = 8, STRIP_ROWS = 8192" in text and CHUNK_ROWS == 8 * 8192
