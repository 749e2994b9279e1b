"""Every form of A on every choice of host devices, in every arithmetic and place for L: LAPACK's factor, and A as it was."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
import zarr

import ooc_chol as oc
from tests.host.source_checks import check, check_unchanged
from tests.host.source_table import (
    ARITHMETIC,
    HOST_SOURCES,
    SINGLE,
    Lazy,
    Tensor,
    h5py_data,
    is_single,
    lapack,
    marked,
    matrix,
    needed_packages,
    part_of_map,
    reversed_twice,
    saved,
    spread,
    triangle,
    unaligned,
    wrong_above,
    wrong_below,
    zarr_array,
)
from tests.host.turns import in_turn
from tests.products import pairwise
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

N, NB = 150, 48
NAMES = list(HOST_SOURCES)
NEEDS = needed_packages(NAMES)
DEVICES = ["host:0", ("host:1", "host:0"), ("host:0", "host:1", "host:2"), 2]


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Zarr reads and writes by threads of its own, which nothing ends; many chunks at once start all that it will have."""
    array = zarr.create_array(store=str(tmp_path_factory.mktemp("zarr")), shape=(400,), chunks=(1,), dtype="float64")
    array[:] = 1.0
    array[:]


@pytest.mark.parametrize(
    ("source", "devices", "how", "in_file"), marked(in_turn(NAMES, DEVICES, list(ARITHMETIC), [False, True]), NEEDS)
)
def test_the_factor_is_lapacks(tmp_path, source, devices, how, in_file):
    place = tmp_path / "L" if in_file else None
    a = HOST_SOURCES[source](tmp_path, N)
    with oc.cholesky(
        a, devices=devices, tile_size=NB, memory_budget="2 MiB", store=place, **triangle(source), **ARITHMETIC[how]
    ) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"), source)
    check_unchanged(a, HOST_SOURCES[source], tmp_path / "again", N)


@pytest.mark.parametrize(("source", "n"), marked(pairwise(NAMES, [2, N]), NEEDS))
def test_without_any_option(tmp_path, source, n):
    """As most people call it; small matrices may take another way then."""
    a = HOST_SOURCES[source](tmp_path, n)
    with warnings.catch_warnings():
        warnings.simplefilter("error", oc.errors.AsymmetryWarning)  # of none that is symmetric, nor where the triangle was named
        factor = oc.cholesky(a, **triangle(source))
    with factor:
        check(factor, None, source)
    check_unchanged(a, HOST_SOURCES[source], tmp_path / "again", n)


ORDERS = [1, 2, NB, NB + 1, 3 * NB + 1]


@pytest.mark.parametrize(("source", "n", "how"), marked(in_turn(NAMES, ORDERS, list(ARITHMETIC)), NEEDS))
def test_orders_that_are_no_multiple_of_the_tile_size(tmp_path, source, n, how):
    a = HOST_SOURCES[source](tmp_path, n)
    with oc.cholesky(a, devices="host:0", tile_size=NB, **triangle(source), **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"), source)


@pytest.mark.parametrize(("n", "devices", "how"), pairwise([1, 2, 3], DEVICES, ["native", "mixed"]))
def test_tiles_of_one_entry(n, devices, how):
    with oc.cholesky(matrix(n), devices=devices, tile_size=1, **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"))


# refinement and residual


@pytest.mark.parametrize("source", marked(map(pytest.param, NAMES), NEEDS))
def test_refinement_and_residual_read_every_source(tmp_path, source):
    a, b = HOST_SOURCES[source](tmp_path, N), np.random.default_rng(0).standard_normal((N, 3))
    expected = scipy.linalg.cho_solve((lapack(N, is_single(source)), True), b)
    with oc.cholesky(a, precision_threshold=1e-4, devices="host:0", tile_size=NB, **triangle(source)) as factor:
        assert np.abs(factor.solve(b, refine=True) - expected).max() <= 1e-9 * np.abs(expected).max()
    with oc.cholesky(matrix(N, is_single(source)), devices="host:0", tile_size=NB, **triangle(source)) as factor:
        assert np.abs(factor.solve(b, refine=True, a=a) - expected).max() <= 1e-9 * np.abs(expected).max()
        assert factor.residual(a).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
    check_unchanged(a, HOST_SOURCES[source], tmp_path / "again", N)


# L over A itself

WRITABLE = {
    "C": lambda folder: matrix(N).copy(),
    "F": lambda folder: matrix(N).copy(order="F"),
    "C, wrong above": lambda folder: wrong_above(matrix(N)),
    "strided": lambda folder: spread(matrix(N)),
    "F, reversed": lambda folder: reversed_twice(np.asfortranarray(matrix(N))),
    "unaligned": lambda folder: unaligned(folder, N),
    "numpy matrix": lambda folder: matrix(N).copy().view(np.matrix),
    "memmap": lambda folder: np.load(saved(folder, matrix(N)), mmap_mode="r+"),
    "memmap F": lambda folder: np.load(saved(folder, np.asfortranarray(matrix(N))), mmap_mode="r+"),
    "memmap, part": lambda folder: part_of_map(folder, N, "r+"),
    "memmap, copy-on-write": lambda folder: np.load(saved(folder, matrix(N)), mmap_mode="c"),
}


@pytest.mark.parametrize("kind", WRITABLE)
def test_over_its_upper_triangle(tmp_path, kind):
    a = WRITABLE[kind](tmp_path)
    a[...] = wrong_below(matrix(N))
    with oc.cholesky(a, devices="host:0", tile_size=NB, overwrite=True, lower=False) as factor:
        check(factor, None)
        assert np.array_equal(np.triu(a), np.asarray(factor).T)
    assert np.isnan(a[np.tril_indices(N, -1)]).all()


@pytest.mark.parametrize(("kind", "devices", "how"), in_turn(WRITABLE, DEVICES, ["native", "residue"]))
def test_over_a_itself(tmp_path, kind, devices, how):
    a = WRITABLE[kind](tmp_path)
    above = np.array(a[np.triu_indices(N, 1)])
    with oc.cholesky(a, devices=devices, tile_size=NB, memory_budget="2 MiB", overwrite=True, **ARITHMETIC[how]) as factor:
        check(factor, None)
        assert np.array_equal(np.tril(a), np.asarray(factor))
        assert np.array_equal(a[np.triu_indices(N, 1)], above, equal_nan=True)


def test_over_a_itself_writes_a_part_of_a_file_and_nothing_beside_it(tmp_path):
    a = part_of_map(tmp_path, N, "r+")
    with oc.cholesky(a, devices="host:0", tile_size=NB, overwrite=True) as factor:
        check(factor, None)
        ours = np.asarray(factor)
    whole = np.load(tmp_path / "a.npy")
    inner = whole[3:-2, 5:-1]
    assert np.array_equal(np.tril(inner), ours)
    inner[...] = 7.0
    assert np.array_equal(whole, np.pad(inner, ((3, 2), (5, 1)), constant_values=7.0))


NOT_WRITABLE = {
    "numpy C, read-only": ValueError,
    "numpy float32": TypeError,
    "memmap": ValueError,
    "dlpack": TypeError,
    "npy": TypeError,
    "h5py": TypeError,
    "zarr 3": TypeError,
    "lazy": TypeError,
    "function": TypeError,
}


@pytest.mark.parametrize("source", NOT_WRITABLE)
def test_l_is_not_written_over_what_is_no_writable_float64_array(tmp_path, source):
    a = HOST_SOURCES[source](tmp_path, N)
    with pytest.raises(NOT_WRITABLE[source], match=r"overwrite=True|written over"):
        oc.cholesky(a, devices="host:0", tile_size=NB, overwrite=True)
    check_unchanged(a, HOST_SOURCES[source], tmp_path / "again", N)


def test_l_is_not_written_over_entries_that_share_memory():
    with pytest.raises(ValueError, match="share memory"):
        oc.cholesky(np.lib.stride_tricks.as_strided(np.eye(3), strides=(24, 0)), devices="host:0", overwrite=True)


# what is refused

FORMS = {
    "numpy": lambda folder, a: a,
    "numpy F": lambda folder, a: np.asfortranarray(a),
    "dlpack": lambda folder, a: Tensor(a),
    "lazy": lambda folder, a: Lazy(a),
    "npy": saved,
    "memmap": lambda folder, a: np.load(saved(folder, a), mmap_mode="r"),
    "h5py": h5py_data,
    "zarr": lambda folder, a: zarr_array(folder, a, chunks=(37, 23)),
}


@pytest.mark.parametrize("form", ["numpy", "numpy F", "lazy", "npy", "memmap"])
def test_other_dtypes_are_refused_by_name_in_every_form_that_has_them(tmp_path, form):
    dtype = np.dtype(np.clongdouble)
    with pytest.raises(TypeError, match=f"holds {dtype.name}, but A holds real numbers"):
        oc.cholesky(FORMS[form](tmp_path, np.eye(10).astype(dtype)), devices="host:0")


@pytest.mark.parametrize(
    ("form", "dtype", "lower"),
    pairwise(list(FORMS), ["bool", "int8", "uint16", "int64", "uint64", "float16"], [None, True, False]),
)
def test_real_numbers_of_every_dtype_are_read_as_float64_in_every_form(tmp_path, form, dtype, lower):
    a = np.eye(40, dtype=dtype) if dtype == "bool" else (np.eye(40) * 80 + 1).astype(dtype)
    for options in ({}, {"tile_size": 16}, {"tile_size": 32, "precision_threshold": 1e-5}):
        folder = tmp_path / str(len(options))
        folder.mkdir()
        with oc.cholesky(FORMS[form](folder, a), devices="host:0", lower=lower, **options) as factor:
            ours, exact = np.asarray(factor), a.astype(np.float64)
        assert ours.dtype == np.float64
        threshold = options.get("precision_threshold", 1e-14)
        assert np.linalg.norm(ours @ ours.T - exact) <= threshold * np.linalg.norm(exact)


@pytest.mark.parametrize("form", FORMS)
def test_a_nan_in_the_lower_triangle_is_named_in_every_form(tmp_path, form):
    a = matrix(N).astype(SINGLE)
    a[140, 70] = np.nan
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[140, 70\] .* is NaN or infinite; only the lower") as caught:
        oc.cholesky(FORMS[form](tmp_path, a), devices="host:0", tile_size=NB)
    assert (caught.value.row, caught.value.col) == (140, 70)


@pytest.mark.parametrize("how", ARITHMETIC)
@pytest.mark.parametrize("form", FORMS)
def test_a_nan_in_the_upper_triangle_is_named_as_it_stands_where_that_is_read(tmp_path, form, how):
    a = matrix(N).copy()
    a[70, 140] = np.nan
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[70, 140\] .* is NaN or infinite; only the upper") as caught:
        oc.cholesky(FORMS[form](tmp_path, a), devices="host:0", tile_size=NB, lower=False, **ARITHMETIC[how])
    assert (caught.value.row, caught.value.col) == (70, 140)
