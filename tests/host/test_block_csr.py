"""Packed matrices: what comes out is what went in, to the bit, in blocks that depend on the matrix alone."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import ooc_chol as oc
from tests.inside.sparse import How, block_csr, packed_in_memory
from tests.inside.tasks import GROUP_ENTRIES, GROUP_ROWS, SEGMENT_ENTRIES
from tests.sparse_rows import VALUES, RunsOf, assert_same, mixed_csr, random_csr

pytestmark = pytest.mark.host


def packed(matrix, length=1000, **how):
    return packed_in_memory(RunsOf(matrix, length), how=How(**how))


def kinds(a):
    return [block.kind.value for block in a.blocks.blocks]


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("block_bytes", [None, 4096, 50_000])
def test_the_narrowest_kind_holds_every_value(kind, block_bytes):
    matrix = random_csr(2000, 700, 5, kind)
    with packed(matrix, block_bytes=block_bytes, chunk_rows=64) as a:
        assert_same(a.tocsr(), matrix)
        assert set(kinds(a)) == {kind}
        assert (a.nnz, a.shape, a.dtype) == (matrix.nnz, matrix.shape, np.float64)
        np.testing.assert_array_equal(a.row_sums(), packed(matrix).row_sums())
        np.testing.assert_allclose(a.row_sums(), matrix.sum(axis=1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("entries", [1, 300, 1 << 18])
def test_bits_of_row_sums_are_those_of_each_row_by_itself(monkeypatch, kind, entries):
    matrix = random_csr(600, 700, 40, kind)
    monkeypatch.setattr(block_csr, "_ADDED_ENTRIES", entries)
    rows = [matrix.data[start:end].astype(np.float64) for start, end in pairwise(matrix.indptr)]
    wanted = [np.add.reduceat(row, [0])[0] if len(row) else 0.0 for row in rows]
    with packed(matrix, block_bytes=50_000, chunk_rows=64) as a:
        assert len(a.blocks.blocks) > 1
        assert a.row_sums().tobytes() == np.array(wanted).tobytes()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 1.0], "pattern"),
        ([-0.0, -0.0], "pattern"),
        ([0.0, -0.0], "fp32"),
        ([-0.0, 1.0], "fp32"),
        ([0.0, -128.0], "int8"),
        ([127.0, 128.0], "fp32"),
        ([1e-45, 1.0], "fp64"),
        ([float(np.float32(1e-45)), 1.0], "fp32"),
        ([5e-324, 1.0], "fp64"),
        ([3.5e38, 1.0], "fp64"),
        ([2.0**24, 2.0**24 + 1], "fp64"),
        ([1.7e308, 1.7e308, 1.0], "fp64"),
        (np.array([2**53, 1]), "fp32"),
        (np.array([2**53 - 1, 1]), "fp64"),
        (np.array([-(2**53), 2**24 + 1]), "fp64"),
        (np.array([True, True]), "pattern"),
        (np.array([True, False]), "int8"),
        (np.array([200, 1], np.uint8), "fp32"),
        (np.array([1e-40, 2.0], np.float32), "fp32"),
    ],
)
def test_values_at_the_edges_of_kinds(values, kind):
    values = np.asarray(values)
    matrix = csr_array((values, np.arange(len(values)), [0, len(values)]), shape=(1, 5))
    with packed(matrix) as a:
        assert kinds(a) == [kind]
        assert a.dtype == (np.float32 if values.dtype == np.float32 else np.float64)
        assert_same(a.tocsr(), matrix)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (1, 7), (9, 1), (70_000, 3)])
@pytest.mark.parametrize("is_empty", [False, True])
def test_shapes_without_much(shape, is_empty, tmp_path):
    matrix = random_array(shape, density=0 if is_empty else 0.5, format="csr", rng=1)
    matrix.sort_indices()
    for store in (None, tmp_path / "a.oocsr"):
        with oc.block_csr(matrix, store=store) as a:
            assert_same(a.tocsr(), matrix)
            assert len(a.blocks.blocks) == (shape[0] > 0)
            assert a.row_sums().shape == shape[:1] and str(shape[0]) in a.info() and repr(a)


def test_a_row_of_a_million_entries_is_one_block():
    long_row = csr_array((np.ones(10**6), np.arange(0, 2 * 10**6, 2), [0, 0, 10**6, 10**6 + 0]), shape=(3, 2 * 10**6))
    with packed(long_row, block_bytes=65536) as a:
        assert_same(a.tocsr(), long_row)
        assert max(block.n_rows for block in a.blocks.blocks if block.n_entries) == 1
        assert a.longest_row == 10**6 and a.blocks.most_segments >= -(-(10**6) // SEGMENT_ENTRIES)


def test_blocks_and_their_bytes_are_the_same_for_any_runs():
    matrix = mixed_csr()
    for block_bytes in (None, 20_000):
        reference = packed(matrix, 10**6, block_bytes=block_bytes, chunk_rows=256)
        for length in (1, 17, 255, 256, 1000):
            with packed(matrix, length, block_bytes=block_bytes, chunk_rows=256) as a:
                assert a.blocks == reference.blocks
                for number in range(len(a.blocks.blocks)):
                    assert a.tier.stored((number, 0)).tobytes() == reference.tier.stored((number, 0)).tobytes()
    assert set(kinds(reference)) == set(VALUES)


@pytest.mark.parametrize("block_bytes", [4096, 30_000, 10**6])
@pytest.mark.parametrize("chunk_rows", [50, 1000, 65536])
def test_blocks_keep_to_chunks_and_to_their_bytes(block_bytes, chunk_rows):
    matrix = mixed_csr()
    with packed(matrix, block_bytes=block_bytes, chunk_rows=chunk_rows) as a:
        blocks = a.blocks.blocks
        assert [row for block in blocks for row in block.rows] == list(range(matrix.shape[0]))
        for block in blocks:
            whole = block.first_row % chunk_rows == 0 and (
                block.rows.stop % chunk_rows == 0 or block.rows.stop == matrix.shape[0]
            )
            assert whole or block.first_row // chunk_rows == (block.rows.stop - 1) // chunk_rows
            assert block.nbytes <= block_bytes or block.n_rows == 1
        sizes = [min(block_bytes, 10**5)] if len(blocks) == 1 else [block.nbytes for block in blocks]
        assert chunk_rows == 50 or np.mean(sizes) > 0.2 * min(block_bytes, a.nbytes / len(blocks))
        assert_same(a.tocsr(), matrix)


def test_work_groups_cover_all_and_depend_on_rows_alone():
    matrix = mixed_csr()
    with packed(matrix, block_bytes=10**6) as a:
        for number, block in enumerate(a.blocks.blocks):
            parts = a.parts(number)
            groups, counts = parts.groups.astype(np.int64), np.diff(parts.starts.astype(np.int64))
            assert groups[0].tolist() == [0, 0] and groups[-1].tolist() == [block.n_rows, block.n_entries]
            segments = 0
            for (row, entry), (next_row, next_entry) in pairwise(groups):
                if counts[row] > GROUP_ENTRIES:
                    assert next_entry - entry == SEGMENT_ENTRIES or next_entry == parts.starts[row + 1]
                    assert next_row == row + (next_entry == parts.starts[row + 1])
                    segments += 1
                else:
                    assert entry == parts.starts[row] and next_entry == parts.starts[next_row]
                    assert 0 < next_row - row <= GROUP_ROWS and next_entry - entry <= GROUP_ENTRIES
                    assert (counts[row:next_row] <= GROUP_ENTRIES).all()
            assert segments == block.n_segments


@pytest.mark.parametrize("rows", [range(0), range(5, 5), range(10), range(700, 2100), range(2999, 3000), range(3000)])
def test_some_rows_are_those_of_scipy(rows, tmp_path):
    matrix = mixed_csr()
    for store in (None, tmp_path / "a.oocsr"):
        with oc.block_csr(matrix, store=store, block_bytes=20_000) as a:
            assert_same(a.tocsr(rows), matrix[rows.start : rows.stop])


@pytest.mark.parametrize("rows", [range(0, 10, 2), range(-1, 5), range(3001), range(5, 3005)])
def test_rows_that_there_are_not(rows):
    with packed(mixed_csr()) as a, pytest.raises(ValueError, match="rows is"):
        a.tocsr(rows)


@pytest.mark.parametrize("rows", [[1, 2], 3, slice(1, 2)])
def test_rows_that_are_no_range(rows):
    with packed(mixed_csr()) as a, pytest.raises(TypeError, match="as range"):
        a.tocsr(rows)


@pytest.mark.parametrize("number", [-1, 1000])
def test_blocks_that_there_are_not(number, tmp_path):
    for store in (None, tmp_path / "a.oocsr"):
        with oc.block_csr(mixed_csr(), store=store, block_bytes=8192) as a, pytest.raises(IndexError, match="no block"):
            a.parts(number)


def test_a_type_of_the_other_byte_order_is_that_type():
    with oc.block_csr(mixed_csr(50), dtype=np.dtype(np.float32).newbyteorder()) as a:
        assert a.dtype == np.float32


@pytest.mark.parametrize("name", ["there-is-none", "none.txt"])
def test_a_file_that_is_not_there(name):
    with pytest.raises(FileNotFoundError):
        oc.block_csr(name)


def test_an_empty_name_is_refused():
    with pytest.raises(ValueError, match="is empty; give a name"):
        oc.block_csr("")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("asked", [None, np.float32])
def test_an_entry_that_is_no_number_is_named(bad, dtype, asked):
    matrix = random_csr(500, 400, 5)
    matrix.data = matrix.data.astype(dtype)
    at = 777
    matrix.data[at] = bad
    row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        packed(matrix, 100, dtype=None if asked is None else np.dtype(asked))
    assert (caught.value.row, caught.value.col) == (row, matrix.indices[at])


def test_a_matrix_of_nan_alone_is_no_pattern():
    with pytest.raises(oc.errors.NonFiniteError):
        packed(csr_array((np.full(3, np.inf), [0, 1, 2], [0, 3]), shape=(1, 3)))


def spoilt(where, column):
    matrix = random_csr(500, 400, 9)
    matrix.indices[where] = column
    return matrix


@pytest.mark.parametrize("length", [1, 100, 500])
@pytest.mark.parametrize(("column", "words"), [(400, "outside"), (2**31 - 1, "outside"), (-1, "behind"), (0, "behind")])
def test_columns_that_are_not_there_or_not_ascending(length, column, words):
    matrix = random_csr(500, 400, 9)
    row = int(np.flatnonzero(np.diff(matrix.indptr) > 5)[30])
    matrix.indices[matrix.indptr[row + 1] - 1] = column
    with pytest.raises(oc.errors.SparseInputError, match=rf"row {row}: column {column} .*{words}"):
        packed(matrix, length)


def test_a_first_column_below_zero():
    with pytest.raises(oc.errors.SparseInputError, match="row 0: column -5 is outside"):
        packed(csr_array((np.ones(2), [-5, 1], [0, 2]), shape=(1, 3)))


def test_a_column_twice():
    with pytest.raises(oc.errors.SparseInputError, match="row 1: column 2 is there twice"):
        packed(csr_array((np.ones(3), [2, 2, 2], [0, 1, 3]), shape=(2, 3)))


def test_starts_that_decrease():
    matrix = csr_array((np.ones(4), [0, 1, 0, 1], [0, 2, 2, 4]), shape=(3, 2))
    matrix.indptr[1:3] = 3, 1
    with pytest.raises(oc.errors.SparseInputError, match=r"row 1: .* decrease from 3 to 1"):
        packed(matrix)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**62])
def test_a_whole_number_beyond_float64_is_named(number):
    matrix = csr_array((np.array([1, number, 3]), [0, 1, 2], [0, 1, 3]), shape=(2, 3))
    with pytest.raises(oc.errors.SparseInputError, match=rf"row 1: A\[1, 1\] is {number}"):
        packed(matrix)


def test_rounding_to_float32_is_once_and_counted():
    matrix = random_csr(300, 300, 5)
    matrix.data[::7] = 0.5
    with oc.block_csr(matrix, dtype=np.float32) as a:
        expected = matrix.astype(np.float32)
        assert_same(a.tocsr(), expected)
        assert a.rounded == np.count_nonzero(expected.data != matrix.data) and f"{a.rounded} values, to float32" in a.info()
        assert a.dtype == np.float32 and kinds(a) == ["fp32"]


def test_a_value_beyond_float32_is_not_rounded():
    with pytest.raises(oc.errors.UnsupportedTypeError, match=r"A\[0, 1\] is 1e\+300"):
        oc.block_csr(csr_array([[1.0, 1e300]]), dtype=np.float32)


def test_host_memory_is_taken_by_one_matrix_after_the_other():
    with oc.HostMemory() as memory:
        for seed in range(3):
            matrix = random_csr(1000, 1000, 5, seed=seed)
            with oc.block_csr(matrix, store=memory) as a:
                assert_same(a.tocsr(), matrix)
                with pytest.raises(ValueError, match="is open"):
                    oc.block_csr(matrix, store=memory)


def test_memory_that_is_not_needed_is_not_touched():
    """A source may expect far more entries than come, duplicates say."""
    rows = RunsOf(random_csr(1000, 1000, 5), 100)
    rows.expected_entries = 10**8
    before = resident_bytes()
    with packed_in_memory(rows) as a:
        assert resident_bytes() - before < 64 << 20
        assert a.tier.host_memory().size < 1 << 20


def test_more_entries_than_expected_are_refused():
    rows = RunsOf(random_csr(60_000, 1000, 40), 10_000)
    rows.expected_entries = 10
    with pytest.raises(oc.BudgetError, match="more entries than it said"):
        packed_in_memory(rows)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])


def test_a_closed_matrix_says_so():
    a = packed(mixed_csr(50))
    a.close()
    a.close()
    assert a.closed and "closed" in repr(a) and "closed" in a.info()
    for use in (a.tocsr, a.row_sums, lambda: a.tier):
        with pytest.raises(oc.errors.ClosedError):
            use()
    gc.collect()


def test_progress_counts_entries():
    told, matrix = [], random_csr(5000, 1000, 5)
    packed_in_memory(RunsOf(matrix, 1000), how=How(report=lambda *figures: told.append(figures)))
    assert [done for done, _, _ in told][-1] == matrix.nnz and len(told) == 5


@pytest.mark.parametrize(
    ("options", "error"),
    [({"block_bytes": 100}, ValueError), ({"block_bytes": "x"}, ValueError), ({"dtype": "int8"}, ValueError),
     ({"zeros": "lose"}, ValueError), ({"progress": 3}, TypeError)],
)  # fmt: skip
def test_options_that_mean_nothing(options, error):
    with pytest.raises(error):
        oc.block_csr(mixed_csr(50), **options)


def test_zeros_are_kept_or_dropped_and_counted():
    matrix = random_csr(200, 200, 4)
    matrix.data[::3] = 0.0
    with oc.block_csr(matrix) as kept, oc.block_csr(matrix, zeros="drop") as dropped:
        assert kept.counts.zeros == dropped.counts.zeros == np.count_nonzero(matrix.data == 0)
        assert_same(kept.tocsr(), matrix)
        assert dropped.nnz == matrix.nnz - dropped.counts.zeros


def test_packing_anew_changes_blocks_alone():
    matrix = mixed_csr()
    with oc.block_csr(matrix) as a, oc.block_csr(a, block_bytes=8192) as b:
        assert len(b.blocks.blocks) > 10
        assert_same(b.tocsr(), matrix)
