"""The kernels of sparse products compile, and their arithmetic, as C++ whose threads take turns, is within its bounds."""

from __future__ import annotations

import ctypes
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from ooc_chol import Precision
from tests.cuda.product_blocks import FP64, INT8, N_COLUMNS, PATTERN, group_starts, lengths_of_all_sorts, matrix, panel
from tests.cuda_threads import LAUNCH, ON_THE_HOST
from tests.inside.kernels import cuda
from tests.inside.tasks import GROUP_ENTRIES, ValueKind
from tests.products import thorough
from tests.tolerances import sparse_product_bound

pytestmark = pytest.mark.nvcc

FFF, FDF, DDD = Precision
TYPES = {"F": "float", "D": "double"}
VALUES = {ValueKind.PATTERN: "float", ValueKind.INT8: "signed char", ValueKind.FP32: "float", ValueKind.FP64: "double"}
CASES = [(PATTERN, FDF, 8), (FP64, DDD, 1)]
MORE_CASES = [(ValueKind.FP32, FFF, 1), (INT8, FDF, 2), (FP64, DDD, 4), (FP64, DDD, 8), (PATTERN, FFF, 8), (FP64, FDF, 1)]

CALLED = r"""
#define POINTER(T, at) argument<T*>(at)
#define ENDS POINTER(VECTOR, 6), POINTER(const double, 7), argument<double>(8), POINTER(const double, 9), argument<double>(10)
#define OPERANDS POINTER(const int, 2), POINTER(const VALUE, 3), argument<double>(4), POINTER(const VECTOR, 5)
static void call_multiply() {
    multiply(POINTER(const u32, 0), POINTER(const uint2, 1), OPERANDS, ENDS, POINTER(u32, 11), POINTER(SUM, 12));
}
extern "C" void run(unsigned blocks, const void* const* arguments) { launch(call_multiply, blocks, THREADS, arguments); }
"""


def source():
    return files(cuda).joinpath("csr.cu").read_text(encoding="utf-8")


def defines(kind, precision, columns):
    """The defines of :class:`CudaProductKernels`."""
    storage, compute = (TYPES[letter] for letter in precision.value[:2])
    named = {"VALUE": VALUES[kind], "IS_PATTERN": int(kind is PATTERN), "VECTOR": storage, "SUM": compute, "COLUMNS": columns}
    return [f"-D{name}={value}" for name, value in named.items()]


def compiled(words):
    ran = subprocess.run(["nvcc", "-std=c++17", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("kind", "precision", "columns"), CASES)
@pytest.mark.usefixtures("compilers")
def test_kernels_compile_without_warnings(kind, precision, columns, tmp_path):
    (tmp_path / "csr.cu").write_text(source(), encoding="utf-8")
    to_cubin = ["-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / "csr.cu")]
    compiled([*defines(kind, precision, columns), *to_cubin])


@pytest.mark.parametrize("case", [*CASES, *thorough(*MORE_CASES)], ids=lambda case: "-".join(map(str, case)))
@pytest.mark.usefixtures("compilers")
def test_products_are_within_their_bounds(case, tmp_path):
    kind, precision, columns = case
    (tmp_path / "csr.cpp").write_text(ON_THE_HOST + source() + LAUNCH + CALLED, encoding="utf-8")
    as_library = ["-O1", "-shared", "-Xcompiler", "-fPIC,-w,-ffp-contract=off", "-o", str(tmp_path / "csr.so")]
    compiled([*defines(*case), *as_library, str(tmp_path / "csr.cpp")])
    a = matrix(lengths_of_all_sorts(short=300), N_COLUMNS, kind)
    x = panel(N_COLUMNS, columns, precision)
    n, rng = a.shape[0], np.random.default_rng(6)
    before, left, shift = panel(n, columns, precision, seed=7), rng.standard_normal(n), rng.standard_normal(n)
    y = before.copy()
    run(ctypes.CDLL(str(tmp_path / "csr.so")), a, kind, precision, x, y, left, shift)
    exact = shift[:, None] * before.astype(np.longdouble) + left[:, None] * (a.astype(np.longdouble) @ x.astype(np.longdouble))
    size = np.abs(shift[:, None] * before) + np.abs(left)[:, None] * (abs(a) @ np.abs(x).astype(np.longdouble))
    bound = sparse_product_bound(np.diff(a.indptr)[:, None] + 2, size, precision.compute, exact, precision.storage)
    assert np.all(np.abs(y - exact) <= bound)


def run(library, a, kind, precision, x, y, left, shift):
    """What a product launches, one thread block after the other."""
    table, n_segments = group_starts(a.indptr)
    starts, groups = a.indptr.astype(np.uint32), np.array(table, np.uint32)
    values = np.zeros(1) if kind is PATTERN else a.data.astype(kind.dtype)
    places = a.nnz // GROUP_ENTRIES
    arrived, sums = np.zeros(places, np.uint32), np.full((places, x.shape[1]), np.nan, precision.compute)
    value, number = ctypes.c_double(a.data[0]), ctypes.c_double(0.0)
    columns = a.indices.astype(np.int32)
    one = ctypes.c_double(1.0)
    arrays = [starts, groups, columns, values, value, x, y, left, one, shift, number, arrived, sums]
    held = [ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else each for each in arrays]
    arguments = (ctypes.c_void_p * len(held))(*[ctypes.addressof(each) for each in held])
    library.run(ctypes.c_uint(len(groups) - 1), arguments)
    assert n_segments and not arrived.any()
