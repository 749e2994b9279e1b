"""Sparse matrices in memory as sources: the same rows as SciPy has, never a changed input, and bad input named by its place."""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from tests.host.sparse_rows import assembled, same
from tests.inside.sparse import RowCounts, canonical, compressed, rows_of, scattered

pytestmark = pytest.mark.host

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
WHOLE_TYPES = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", ">i4")
TYPES = (*WHOLE_TYPES, "float16", "float32", "float64", ">f8", "longdouble")


def entries(seed: int, shape: tuple[int, int] = (40, 23), count: int = 400, dtype: str = "float64") -> sp.coo_array:
    """Entries in any order, many of them repeated, some zero."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 5, count).astype(dtype)
    return sp.coo_array((values, (random.integers(0, shape[0], count), random.integers(0, shape[1], count))), shape=shape)


def tangled(seed: int = 3) -> sp.csr_array:
    """A matrix in CSR form whose columns are in no order, and repeated."""
    random = np.random.default_rng(seed)
    starts = np.sort(np.concatenate([[0, 200], random.integers(0, 200, 30)]))
    return sp.csr_array((random.standard_normal(200), random.integers(0, 17, 200), starts), shape=(31, 17))


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, groups and pieces of a few entries, so that every boundary is met."""
    monkeypatch.setattr(compressed, "RUN_ROWS", 7)
    monkeypatch.setattr(compressed, "RUN_ENTRIES", 11)
    monkeypatch.setattr(scattered, "RUN_ROWS", 7)
    monkeypatch.setattr(scattered, "RUN_ENTRIES", 11)
    monkeypatch.setattr(scattered, "_LEAST_ENTRIES", 32)
    monkeypatch.setattr(scattered, "_LEAST_ROWS", 4)
    monkeypatch.setattr(scattered, "_BUCKETS", 9)
    monkeypatch.setattr(canonical, "_PIECE", 5)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_are_those_of_scipy(fmt: str, index: type) -> None:
    matrix = entries(1).asformat(fmt)
    for part in ("indptr", "indices"):
        if hasattr(matrix, part):
            setattr(matrix, part, getattr(matrix, part).astype(index))
    rows = rows_of(matrix)
    assert same(assembled(rows), matrix)
    assert rows.name == (f"{fmt}_array" if fmt in ("csr", "csc", "coo") else f"{fmt}_array, converted to CSR")


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_rows_are_the_same_in_short_runs(fmt: str, short_runs: None) -> None:
    rows = rows_of(entries(2).asformat(fmt))
    assert same(assembled(rows), entries(2))
    assert same(assembled(rows), entries(2)), "a second time, too"
    assert sum(1 for _ in rows.runs()) > 5


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix])
def test_matrices_are_taken_as_arrays_are(kind: type) -> None:
    assert same(assembled(rows_of(kind(entries(4)))), entries(4))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("fmt", ["csr", "coo"])
def test_every_real_type_keeps_its_values(fmt: str, dtype: str) -> None:
    random = np.random.default_rng(5)
    values = random.integers(0, 2 if dtype == "bool" else 100, 60).astype(dtype)
    places = random.choice(40 * 23, 60, replace=False)
    row, col = places // 23, places % 23
    plain = sp.coo_array((values.astype(np.float64), (row, col)), shape=(40, 23))
    if fmt == "coo":
        matrix: Any = plain.copy()
        matrix.data = values
    else:
        matrix = plain.tocsr()
        order = np.lexsort((col, row))
        matrix.data = values[order]
    assert same(assembled(rows_of(matrix)), plain)


@given(
    st.integers(0, 2**32 - 1), st.sampled_from(["csr", "csc", "coo"]), st.integers(0, 60), st.integers(1, 9), st.integers(1, 9)
)
def test_any_matrix_of_whole_numbers_is_scipys(seed: int, fmt: str, count: int, n_rows: int, n_columns: int) -> None:
    matrix = entries(seed, (n_rows, n_columns), count, "int64")
    rows = rows_of(matrix.asformat(fmt))
    assert same(assembled(rows), matrix)


def test_columns_are_sorted_and_repeated_entries_added() -> None:
    matrix = tangled()
    rows = rows_of(matrix)
    summed = matrix.copy()
    summed.sum_duplicates()
    found = assembled(rows)
    assert np.array_equal(found.indices, summed.indices)
    np.testing.assert_allclose(found.data, summed.data, rtol=0, atol=64 * np.finfo(float).eps)
    assert rows.counts.duplicates == 200 - summed.nnz


def test_repeated_entries_of_float32_are_rounded_once() -> None:
    values = np.array([2.0**24, 1.0, 1.0, 1.0, -(2.0**24)], np.float32)  # in float32, sums to 0 or 2, not to 3
    rows = rows_of(sp.coo_array((values, (np.zeros(5, int), np.zeros(5, int))), shape=(1, 1)))
    (run,) = rows.runs()
    assert run.values.dtype == np.float32 and run.values.tolist() == [3.0]
    assert rows.counts == RowCounts(duplicates=4)


def test_whole_numbers_are_added_exactly() -> None:
    values = np.array([2**53, 1, 1, -(2**53)], np.int64)  # 0 or 2 in float64, by the order
    (run,) = rows_of(sp.coo_array((values, (np.zeros(4, int), np.zeros(4, int))), shape=(1, 1))).runs()
    assert run.values.tolist() == [2]
    small = sp.coo_array((np.full(300, 100, np.int8), (np.zeros(300, int), np.zeros(300, int))), shape=(1, 1))
    assert assembled(rows_of(small))[0, 0] == 30000


@pytest.mark.parametrize("count", [2, 5000])
def test_a_sum_beyond_2_to_53_is_refused(count: int) -> None:
    """5000 of them wrap around in int64."""
    matrix = sp.coo_array((np.full(count, 2**53), (np.full(count, 3), np.full(count, 1))), shape=(5, 2))
    with pytest.raises(oc.errors.SparseInputError, match=r"row 3: .*A\[3, 1\].*2\^53"):
        list(rows_of(matrix).runs())


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_zeros_are_kept_or_dropped_and_counted(fmt: str) -> None:
    matrix = entries(6)
    summed = matrix.tocsr()
    zeros = int(np.count_nonzero(summed.data == 0))
    assert zeros > 0
    kept, dropped = rows_of(matrix.asformat(fmt)), rows_of(matrix.asformat(fmt), zeros="drop")
    assert assembled(kept).nnz == summed.nnz
    summed.eliminate_zeros()
    assert same(assembled(dropped), summed)
    assert kept.counts.zeros == dropped.counts.zeros == zeros
    assert kept.counts.duplicates == (400 - assembled(kept).nnz if fmt == "coo" else 0)


def test_counts_are_those_of_one_reading() -> None:
    rows = rows_of(entries(7))
    for _ in range(2):
        assembled(rows)
        assert rows.counts.duplicates == 400 - entries(7).tocsr().nnz


@pytest.mark.parametrize("make", [lambda: tangled(), lambda: entries(8), lambda: entries(8).tocsc()])
def test_the_users_matrix_stays_as_it_is(make: Any) -> None:
    matrix = make()
    before = {name: (value, copy.deepcopy(value)) for name, value in vars(matrix).items()}
    assembled(rows_of(matrix, zeros="drop"))
    assert vars(matrix).keys() == before.keys()
    for name, (value, kept) in before.items():
        assert getattr(matrix, name) is value or name.startswith("_"), name
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, kept), name


def test_canonical_rows_are_handed_over_where_they_lie() -> None:
    matrix = entries(9).tocsr()
    matrix.indices = matrix.indices.astype(np.int32)
    for run in rows_of(matrix).runs():
        assert np.shares_memory(run.columns, matrix.indices) and np.shares_memory(run.values, matrix.data)


def test_a_column_matrix_is_never_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight groups of rows, one at a time is held, and held again while it is sorted."""
    n, count = 4096, 1 << 21
    random = np.random.default_rng(0)
    starts = np.linspace(0, count, n + 1).astype(np.int64)
    matrix = sp.csc_array((np.ones(count), random.integers(0, n, count, dtype=np.int32), starts), shape=(n, n))
    for module in (compressed, scattered):
        monkeypatch.setattr(module, "RUN_ENTRIES", 1 << 16)
    monkeypatch.setattr(scattered, "_LEAST_ENTRIES", 1)
    rows = rows_of(matrix)
    tracemalloc.start()
    try:
        assert sum(run.columns.size for run in rows.runs()) + rows.counts.duplicates == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * count * 12


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (3, 2**31 - 1)])
@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_matrices_without_entries(shape: tuple[int, int], fmt: str) -> None:
    if fmt == "csc" and shape[1] > 100:
        shape = (2**20, 3)
    assert assembled(rows_of(sp.coo_array(shape).asformat(fmt))).nnz == 0


def test_rows_far_apart_cost_no_memory() -> None:
    matrix = sp.coo_array(([2.0, 3.0], ([0, 2**31 - 2], [5, 7])), shape=(2**31 - 1, 9))
    runs = [run for run in rows_of(matrix).runs() if run.columns.size]
    found = [(run.first_row + int(np.argmax(run.starts > 0)) - 1, run.columns.tolist()) for run in runs]
    assert found == [(0, [5]), (2**31 - 2, [7])]


# bad input


def broken(indptr: Any = (0, 1, 3), indices: Any = (0, 1, 2), data: Any = (1.0, 2.0, 3.0)) -> sp.csr_array:
    """A 2 x 3 matrix with these arrays, which SciPy has not looked at."""
    matrix = sp.csr_array(([1.0, 2.0, 3.0], [0, 1, 2], [0, 1, 3]), shape=(2, 3))
    matrix.indptr, matrix.indices, matrix.data = np.array(indptr), np.array(indices), np.array(data)
    return matrix


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"indptr": (0, 3, 1)}, r"indptr\[2\] = 1: it decreases from 3"),
        ({"indptr": (0, 1, 4)}, r"indptr\[2\] = 4: only 3 entries"),
        ({"indptr": (0, -1, 3)}, r"indptr\[1\] = -1: it decreases from 0"),
        ({"indptr": (1, 2, 3)}, r"indptr\[0\]: it begins with 1"),
        ({"indptr": (0, 3)}, "indptr: it has 2 numbers, but 3 are needed"),
        ({"indptr": (0.0, 1.0, 3.0)}, "indptr: it is of type float64"),
        ({"indptr": ((0, 1, 3),)}, "indptr: it has 2 dimensions"),
        ({"indices": (0, 1, 3)}, "row 1: column 3 is outside of the matrix, whose columns are 0 to 2"),
        ({"indices": (-1, 1, 2)}, "row 0: column -1 is outside"),
        ({"indices": (0.0, 1.0, 2.0)}, "indices: it is of type float64"),
        ({"indices": (0, 1)}, "data: 3 values, but 2 indices"),
        ({"data": (2**53, 2**53 + 1, 0)}, r"row 1: A\[1, 1\] is 9007199254740993"),
        ({"data": np.array([0, 2**64 - 1, 0], np.uint64)}, r"A\[1, 1\] is 18446744073709551615"),
        ({"data": (-(2**63), 0, 0)}, r"A\[0, 0\] is -9223372036854775808"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_their_place(arrays: dict[str, Any], said: str) -> None:
    with pytest.raises(oc.errors.SparseInputError, match=said) as caught:
        list(rows_of(broken(**arrays)).runs())
    assert caught.value.source == "csr_array" and caught.value.advice


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_not_finite_is_named(value: float, fmt: str, dtype: type) -> None:
    matrix = sp.coo_array((np.array([1, value, 3]), ([0, 4, 5], [1, 2, 0])), shape=(6, 3)).asformat(fmt)
    matrix.data = matrix.data.astype(dtype)
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[4, 2\] is NaN or infinite; all entries") as caught:
        list(rows_of(matrix).runs())
    assert (caught.value.row, caught.value.col, caught.value.tile) == (4, 2, None)


def test_a_sum_that_is_not_finite_is_named() -> None:
    large = np.finfo(np.float32).max
    matrix = sp.coo_array((np.array([large, large]), ([1, 1], [0, 0])), shape=(2, 1), dtype=np.float32)
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[1, 0\]"):
        list(rows_of(matrix).runs())


def test_large_finite_values_are_taken() -> None:
    """Their sum is infinite, which the check by sums must not take for one of them."""
    matrix = sp.csr_array(np.full((1, 4), np.finfo(float).max))
    assert same(assembled(rows_of(matrix)), matrix)


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_complex_values_are_refused(fmt: str) -> None:
    with pytest.raises(oc.errors.UnsupportedTypeError, match=r"complex128.*A\.real"):
        rows_of(entries(1).astype(complex).asformat(fmt))


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(oc.errors.UnsupportedTypeError, match="object"):
        rows_of(broken(data=np.array([1, 2, 3], object)))


def test_long_doubles_beyond_float64_are_refused() -> None:
    with pytest.raises(oc.errors.UnsupportedTypeError, match=r"astype\(np.float64\)"):
        list(rows_of(broken(data=np.array([1, 2, 3], np.longdouble) / 3)).runs())


@pytest.mark.parametrize("matrix", [sp.coo_array((2, 2**31)), sp.csr_array((2, 2**31))])
def test_more_than_2_to_31_columns_are_refused(matrix: Any) -> None:
    with pytest.raises(oc.errors.SparseInputError, match="2147483648 columns, but at most 2147483647"):
        rows_of(matrix)


def test_rows_without_end_are_refused() -> None:
    with pytest.raises(oc.errors.SparseInputError, match="1000000000000 rows for 0 entries"):
        rows_of(sp.coo_array((10**12, 3)))


@pytest.mark.parametrize(("row", "col"), [(5, 0), (-1, 0), (0, 3), (0, -1)])
def test_coordinates_outside_are_refused(row: int, col: int) -> None:
    matrix = sp.coo_array(([1.0, 2.0], ([1, 2], [1, 2])), shape=(5, 3))
    matrix.coords = (np.array([1, row]), np.array([1, col]))
    with pytest.raises(oc.errors.SparseInputError, match=rf"entry 1: A\[{row}, {col}\] is outside"):
        list(rows_of(matrix).runs())


class _Graph:
    """Stands for what is no matrix at all."""


@pytest.mark.parametrize(
    ("what", "advice"),
    [
        (_Graph(), "csr_array"),
        (None, "csr_array"),
        (sp.linalg.aslinearoperator(np.eye(2)), "the matrix behind it"),
    ],
)
def test_what_is_no_sparse_matrix_is_refused_with_what_would_do(what: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        rows_of(what)


def test_vectors_are_refused() -> None:
    with pytest.raises(oc.errors.SparseInputError, match="1 dimensions"):
        rows_of(sp.coo_array(np.ones(3)))


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="zeros is 'maybe'"):
        rows_of(entries(1), zeros="maybe")  # type: ignore[arg-type]


def test_an_empty_indptr_has_no_row_ends(tmp_path: Any) -> None:
    np.save(tmp_path / "indptr.npy", np.zeros(0, np.int64))
    np.save(tmp_path / "indices.npy", np.zeros(0, np.int32))
    with pytest.raises(oc.errors.SparseInputError, match="it has 0 numbers, but 1 are needed"):
        oc.block_csr(tmp_path)


@pytest.mark.parametrize("shape", [(3.0, 3.0), ("3", 3), (True, 3), (None, None)])
def test_a_shape_of_edges_is_two_whole_numbers(tmp_path: Any, shape: Any) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(TypeError, match=r"shape\[0\] is a \w+; give an int"):
        oc.edge_list(tmp_path / "edges.txt", shape=shape)


@pytest.mark.parametrize("call", [oc.block_csr, lambda a: oc.eigsh(a, 2), lambda a: oc.svds(a, 2)])
def test_facts_are_for_plans(call: Any) -> None:
    with pytest.raises(TypeError, match="plans are made of facts; pass the matrix"):
        call(((100, 100), 500, "pattern"))


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's own, at the first sparse tensor of a process
@pytest.mark.package("torch")
@pytest.mark.usefixtures("foreign")
def test_what_numpy_makes_no_array_of_is_taken_from_pytorch_or_refused() -> None:
    import torch

    grown, turned = torch.eye(30, requires_grad=True), torch.full((3, 3), 1 + 2j).conj().imag
    assert oc.block_csr(grown).nnz == 30 and oc.eigsh(grown, 1).eigenvalues == pytest.approx([1])
    assert np.array_equal(oc.block_csr(turned).tocsr().toarray(), np.full((3, 3), -2.0))
    for call in (oc.block_csr, lambda a: oc.eigsh(a, 1)):
        with pytest.raises(oc.errors.UnsupportedTypeError, match="bfloat16"):
            call(torch.eye(30, dtype=torch.bfloat16))
    hybrid = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, 3), (3, 3))
    with pytest.raises(oc.errors.SparseInputError, match="of which 1 dense"):
        oc.block_csr(hybrid)


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's own, at the first sparse tensor of a process
@pytest.mark.package("torch")
@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.commit
def test_tensors_of_pytorch(layout: str) -> None:
    import torch

    plain = entries(11)
    if layout == "coo":
        tensor = torch.sparse_coo_tensor(np.stack([plain.row, plain.col]), plain.data, plain.shape)
    else:
        matrix = plain.tocsr()
        tensor = torch.sparse_csr_tensor(*map(torch.from_numpy, (matrix.indptr, matrix.indices, matrix.data)), size=matrix.shape)
    assert same(assembled(rows_of(tensor)), plain)
