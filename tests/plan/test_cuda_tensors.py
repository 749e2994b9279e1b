"""The kernels of tensors for CUDA compile, and as C++ whose threads take turns make what those of the host make."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from ooc_chol import Precision
from tests import tensor_checks as check
from tests.cuda_threads import ON_THE_HOST
from tests.inside.kernels import TOLERANCES, PanelSlices, Rule, TensorShape, code, tensor_sizes, thresholds
from tests.inside.kernels import cuda as sizes
from tests.kernel_calls import calls, launch
from tests.panel_arrays import Host
from tests.products import thorough

FFF, FDF, DDD = Precision
#: Types of arguments: S of storage, C of computing, d, i, l and b of double, int, 64-bit int and byte.
SIGNATURES = {
    "widen": "S*llllld*",
    "narrow": "S*llllld*",
    "fill": "S*lS*lb*liS*liiCd*",
    "add_up": "d*lid*",
    "orthonormalize": "d*ii",
    "shrink": "d*iidii*d*i*i*",
    "recur": "d*d*d*d*iiidd",
    "retain": "d*iidd*",
    "definite": "d*idi*",
    "certify": "d*d*d*d*i*iiididii*l*d*d*i*i*",
}
WORDS = {"S": "STORE", "C": "COMPUTE", "d": "double", "i": "int", "l": "long long", "b": "unsigned char"}
MORE_ON_THE_HOST = r"""
#include <cmath>
using std::fabs; using std::isfinite; using std::sqrt; using std::nan;
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __dadd_rn(double a, double b) { return a + b; }
"""
LANES = 256


def compiled(words):
    ran = subprocess.run(["nvcc", "-std=c++17", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module", params=[FDF, *thorough(FFF, DDD)], ids=lambda each: each.value)
def library(compilers: None, request, tmp_path_factory):
    """The precision, and the kernels as C++."""
    folder = tmp_path_factory.mktemp("tensors")
    text = code("tensors.cu", **tensor_sizes.c_types(request.param))
    (folder / "tensors.cpp").write_text(ON_THE_HOST + MORE_ON_THE_HOST + text + calls(SIGNATURES, WORDS), encoding="utf-8")
    options = ["-O1", "-shared", "-Xcompiler", "-fPIC,-w,-ffp-contract=off,-fno-strict-aliasing"]
    compiled([*options, "-o", str(folder / "out.so"), str(folder / "tensors.cpp")])
    return request.param, ctypes.CDLL(str(folder / "out.so"))


def run(library, name, blocks, *arguments):
    precision, functions = library
    launch(functions, name, SIGNATURES[name], (blocks, LANES), arguments, precision.compute)


@pytest.mark.nvcc
@pytest.mark.parametrize("precision", [FDF, *thorough(FFF, DDD)])
@pytest.mark.usefixtures("compilers")
def test_kernels_compile_without_warnings(precision, tmp_path):
    (tmp_path / "source.cu").write_text(code("tensors.cu", **tensor_sizes.c_types(precision)), encoding="utf-8")
    words = ["-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / "source.cu")]
    compiled(["-arch=sm_90", *words])


@pytest.mark.nvcc
@pytest.mark.parametrize("by_entry", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_filling_has_the_bits_of_the_host(library, momentum, by_entry):
    precision, _ = library
    rng, rows, width = np.random.default_rng(0), 5, 530
    z, observed, x = (rng.standard_normal((rows, width)).astype(precision.storage) for _ in range(3))
    mask = rng.integers(0, 2, (rows, width) if by_entry else rows, np.uint8)
    observed[np.broadcast_to(mask if by_entry else mask[:, None], x.shape) == 0] = np.nan
    expected, expected_sums = check.filled(Host(), (z, observed, x), mask, precision, momentum)
    squares, sums = np.full((2, rows), np.nan), np.full(2, np.nan)
    strides = (width, width, width if by_entry else 1, width)
    run(library, "fill", rows, z, strides[0], observed, strides[1], mask, strides[2], by_entry, x, width, rows, width, momentum, squares)  # fmt: skip # noqa: E501
    run(library, "add_up", 2, squares, rows, 0, sums)
    assert x.tobytes() == expected.tobytes()
    assert sums.tobytes() == expected_sums.tobytes()


@pytest.mark.nvcc
def test_panels_whose_rows_lie_apart(library):
    precision, _ = library
    rng = np.random.default_rng(1)
    wide = [rng.standard_normal((4, 90)).astype(precision.storage) for _ in range(3)]
    mask = rng.integers(0, 2, (4, 77), np.uint8)
    part = np.ascontiguousarray(mask[:, :40])
    expected, _ = check.filled(Host(), [each[:, :40].copy() for each in wide], part, precision, 0.5)
    behind = wide[2][:, 40:].copy()
    run(library, "fill", 4, wide[0], 90, wide[1], 90, mask, 77, 1, wide[2], 90, 4, 40, 0.5, np.empty((2, 4)))
    assert np.array_equal(wide[2][:, :40], expected) and np.array_equal(wide[2][:, 40:], behind)


@pytest.mark.nvcc
@pytest.mark.parametrize(("columns", "chunk"), [(300, 128), (128, 128), (64, 32), (512, 128)])
def test_slices_are_widened_and_rounded_back_from_panels(library, columns, chunk):
    """The last panel is short, or the only one; slices of others stay as they are."""
    precision, _ = library
    rows, first, count, width = 7, 2, 4, 300
    whole = np.random.default_rng(11).standard_normal((rows, width)).astype(precision.storage)
    memory = np.concatenate([whole[:, at : at + columns].reshape(-1) for at in range(0, width, columns)])
    own = PanelSlices(memory, rows, columns, first, count)
    assert np.concatenate(list(own.panels()), axis=1).tobytes() == whole[first : first + count].tobytes()
    wide, blocks = np.full((count, width), np.nan), count * -(-width // chunk)
    run(library, "widen", blocks, memory, rows, first, width, columns, chunk, wide)
    assert wide.tobytes() == whole[first : first + count].astype(np.float64).tobytes()
    run(library, "narrow", blocks, memory, rows, first, width, columns, chunk, wide / 3)
    whole[first : first + count] = wide / 3
    everything = PanelSlices(memory, rows, columns, 0, rows)
    assert np.concatenate(list(everything.panels()), axis=1).tobytes() == whole.tobytes()


@pytest.mark.nvcc
@pytest.mark.commit
def test_squares_are_summed(library):
    terms = np.random.default_rng(2).standard_normal((3, 1000))
    out = np.empty(3)
    run(library, "add_up", 3, terms, 1000, 1, out)
    assert np.allclose(out, (terms**2).sum(axis=1), rtol=1e-14)


@pytest.mark.nvcc
def test_rows_become_orthonormal_and_keep_what_they_span(library):
    """Also where they are nearly dependent; one that depends on others, and a zero one, become zero."""
    rng, c, d = np.random.default_rng(3), 16, 50
    v = rng.standard_normal((3, c, d)) * np.geomspace(1e-12, 1, c)[None, :, None]
    v[1, 3] = v[1, 9] + v[1, 12]
    v[1, 5] = 0
    v[2, 4] = v[2, 15] + 1e-9 * v[2, 4] / np.linalg.norm(v[2, 4])
    given = v.copy()
    run(library, "orthonormalize", 3, v, c, d)
    for at, lost in ((0, []), (1, [3, 5]), (2, [])):
        products = v[at] @ v[at].T
        expected = np.eye(c)
        expected[lost, lost] = 0
        assert np.abs(products - expected).max() <= 1e-14
        assert np.abs(given[at] - given[at] @ v[at].T @ v[at]).max() <= 1e-14


@pytest.mark.nvcc
def test_factors_ranks_and_what_was_not_found(library):
    values = np.array([[0.0, 1e-18, 0.04, 1.0], [-1e-17, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, np.nan], [1.0, 1.0, 1.0, 1.0]])
    info, factors = np.array([0, 0, 0, 3], np.int32), np.empty((4, 4))
    ranks, flags = np.empty(4, np.int32), np.empty(4, np.int32)
    cases = ((0.1, 0, [0, 0, 1 - 0.1 / np.sqrt(0.04), 0.9]), (0.1, 1, [0, 0, 1 - 0.1 * 0.1 / 0.04, 0.99]), (0.0, 0, [0, 0, 1, 1]))
    kept = 2
    for lam, by_garrote, first in cases:
        run(library, "shrink", 4, values, 4, 4, lam, by_garrote, info, factors, ranks, flags)
        assert factors[0].tolist() == first and not factors[1].any() and np.isnan(factors[2:]).all()
        assert ranks.tolist() == [kept, 0, 0, 0]
        assert flags.tolist() == [1, 1, -1, -1]


@pytest.mark.nvcc
@pytest.mark.parametrize("shrinkage", ["soft", "garrote"])
def test_the_certificate_decides_as_on_the_host(library, shrinkage):
    """Slices that pass, that lack a vector, whose pairs are not accurate, that are below lambda, and without a start."""
    precision, _ = library
    rng, s, c, d, lam = np.random.default_rng(4), 6, 16, 50, 0.1
    q = np.linalg.qr(rng.standard_normal((s, d, d)))[0]
    spectrum = np.concatenate([np.linspace(1, 0.36, 5), np.full(d - 5, 4e-4)])
    scales = np.array([1.0, 1.0, 1.0, 1e-3, 1.0, 1.0])
    gram = (q * spectrum) @ q.transpose(0, 2, 1) * scales[:, None, None]
    v = q[:, :, :c].copy()
    v[1] = q[1][:, 1 : 1 + c]  # lacks the first
    v[2] = np.linalg.qr(v[2] + 1e-5 * rng.standard_normal((d, c)))[0]
    v[4] = 0
    values = np.diagonal(v.transpose(0, 2, 1) @ gram @ v, axis1=1, axis2=2)
    ascending, rows = np.ascontiguousarray(values[:, ::-1]), np.ascontiguousarray(v.transpose(0, 2, 1)[:, ::-1])
    product = rows @ gram
    outside = gram - rows.transpose(0, 2, 1) @ (ascending[:, :, None] * rows)
    norms = np.stack([(gram**2).sum(axis=(1, 2)), (outside**2).sum(axis=(1, 2))])
    info = np.array([0, 0, 0, 0, 0, 1], np.int32)
    factors, basis = np.full((s, c), np.nan), np.full((s, d, c), 9.0)
    ranks, flags = np.empty(s, np.int32), np.empty(s, np.int32)
    tolerance = TOLERANCES[precision.storage.name]
    numbers = s, c, d, lam, int(shrinkage == "garrote"), tolerance
    tries = 0, np.empty(1, np.int32), np.empty(1, np.int64)
    run(library, "certify", s, ascending, rows, product, norms, info, *numbers, *tries, factors, basis, ranks, flags)
    assert flags.tolist() == [0, 1, 1, 0, 2, 1]
    assert ranks.tolist() == [5, 0, 0, 0, 0, 0]
    kept = ascending[0] > lam**2
    assert np.array_equal(factors[0], np.where(kept, Rule(lam, shrinkage).factors(ascending[0]), 0)) and not factors[1:].any()
    assert np.array_equal(basis[0], rows[0].T) and (basis[1:] == 9).all()


@pytest.mark.nvcc
def test_the_second_certificate_goes_by_the_proof_and_to_the_places(library):
    """Slices with a proof, without one, with one but without accuracy, and without eigenpairs."""
    precision, _ = library
    rng, s, c, d, lam = np.random.default_rng(7), 4, 16, 50, 0.1
    rows = np.linalg.qr(rng.standard_normal((s, d, c)))[0].transpose(0, 2, 1).copy()
    ascending = np.tile(np.concatenate([np.full(c - 3, 4e-4), [0.36, 0.5, 1.0]]), (s, 1))
    product = ascending[:, :, None] * rows
    product[2] += 1e-4
    info, proved = np.array([0, 0, 0, 1], np.int32), np.array([1, 0, 1, 1], np.int32)
    places = np.array([5, 1, 2, 3])
    factors, basis = np.full((s, c), np.nan), np.full((6, d, c), 9.0)
    ranks, flags = np.full(6, 77, np.int32), np.full(6, 77, np.int32)
    numbers = s, c, d, lam, 1, TOLERANCES[precision.storage.name], 1, proved, places
    run(library, "certify", s, ascending, rows, product, np.full((2, s), np.nan), info, *numbers, factors, basis, ranks, flags)
    assert flags.tolist() == [77, 1, 1, 1, 77, 0] and ranks.tolist() == [77, 0, 0, 0, 77, 3]
    expected = np.where(ascending[0] > lam**2, Rule(lam, "garrote").factors(ascending[0]), 0)
    assert np.array_equal(factors[0], expected) and not factors[1:].any()
    assert np.array_equal(basis[5], rows[0].T) and (basis[:5] == 9).all()


@pytest.mark.nvcc
def test_filters_are_those_of_the_host(library):
    """Where the largest value allows all degrees, where it allows few, where the least is noise, and without a start."""
    rng, s, c, d = np.random.default_rng(8), 4, 16, 50
    q = np.linalg.qr(rng.standard_normal((s, d, d)))[0]
    spectrum = np.stack([np.linspace(4, 1, d), np.geomspace(1, 1e-7, d), np.r_[1, 0.5, np.full(d - 2, 1e-20)], np.ones(d)])
    gram = (q * spectrum[:, None, :]) @ q.transpose(0, 2, 1)
    v = np.linalg.qr(q[:, :, :c] + 0.01 * rng.standard_normal((s, d, c)))[0]
    pairs = thresholds._rayleigh_ritz(gram, v, 0.0)
    values, rows = pairs.values[:, ::-1].copy(), pairs.v.transpose(0, 2, 1)[:, ::-1].copy()
    values[3], rows[3] = 0, 0
    expected = thresholds._filtered(gram, pairs)
    before, product = np.full_like(rows, np.nan), np.empty_like(rows)
    for _ in range(thresholds.PASSES):
        for step in range(thresholds.DEGREE):
            np.matmul(rows, gram, out=product)
            numbers = c, d, step, thresholds.AMPLIFIED, thresholds.LEAST_SHARE
            run(library, "recur", s, values, product, rows, before, *numbers)
            rows, before = before, rows
        run(library, "orthonormalize", s, rows, c, d)
    for at, columns in ((0, c), (1, c), (2, 2)):  # the same subspace, and of the third what is not noise
        across = rows[at] @ expected[at][:, :columns]
        assert np.abs(np.linalg.svd(across, compute_uv=False) - 1).max() <= 1e-9
    assert not rows[3].any()


@pytest.mark.nvcc
def test_a_proof_is_there_where_the_largest_value_is_below_lambda(library):
    """Also where the norm of all together is not; a little above and below, in rounded, negative and missing numbers."""
    rng, d, square = np.random.default_rng(9), 50, 0.25
    q = np.linalg.qr(rng.standard_normal((6, d, d)))[0]
    largest = np.array([1 - 1e-9, 1 + 1e-9, 0.5, 0.0, 1 - 1e-9, 1 - 1e-9]) * square
    spectrum = largest[:, None] * np.linspace(1, 0.9, d)
    spectrum[4, 1:] *= -1
    rest = (q * spectrum[:, None, :]) @ q.transpose(0, 2, 1)
    rest[5, 3, 7] = rest[5, 7, 3] = np.nan
    rest[:, np.arange(1, d), 0] = np.nan  # below the diagonal nothing is read
    proved = np.full(6, 77, np.int32)
    run(library, "definite", 6, rest, d, thresholds.lowered_square(0.5, d), proved)
    assert proved.tolist() == [1, 0, 1, 1, 1, 0]


@pytest.mark.nvcc
def test_values_are_retained_above_lambda_and_above_noise(library):
    """Rounding makes values of up to 5.6e-15 of zero where the largest is 1."""
    values, kept = np.array([[-1.0, 1e-3, 0.01, 0.011], [0.0, 5e-15, 6e-15, 1.0]]), np.full((2, 4), np.nan)
    for lam, expected in ((0.1, [[0, 0, 0, 0.011], [0, 0, 0, 1]]), (1e-9, [[0, 1e-3, 0.01, 0.011], [0, 0, 6e-15, 1]])):
        run(library, "retain", 2, values, 4, 50, lam, kept)
        assert kept.tolist() == expected


def test_workspace_has_room_for_each_call_and_no_array_meets_another():
    for shape in (TensorShape(4039, 4039, 50, 50), TensorShape(2600, 300, 512, 512), TensorShape(3, 3, 1, 9)):
        for svt in ("gram64", "subspace"):
            nbytes = tensor_sizes.workspace_bytes(shape, FDF, svt) - sizes.CUBLAS_WORKSPACE_BYTES - tensor_sizes.ALIGNMENT
            sets = [tensor_sizes.transform_parts(shape, FDF), tensor_sizes.fill_parts(shape)]
            for parts in (*sets, tensor_sizes.threshold_parts(shape, svt)):
                end = 0
                for part in parts.values():
                    assert part.offset >= end and part.offset % tensor_sizes.ALIGNMENT == 0
                    end = part.offset + int(np.prod(part.shape)) * np.dtype(part.dtype).itemsize
                assert end <= nbytes
    assert tensor_sizes.threshold_parts(TensorShape(4039, 4039, 50, 50), "gram64")["gram"].shape == (1024, 50, 50)


def test_routines_and_columns_go_by_size():
    assert [tensor_sizes.eigen_routine(order) for order in (16, 32, 33, 512)] == ["syevj", "syevj", "xsyev", "xsyev"]
    columns = [tensor_sizes.transform_columns(TensorShape(n, 9, 9, 9)) for n in (8192, 8193)]
    assert columns == [4096, 1024]
