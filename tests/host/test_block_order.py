"""Matrices numbered by degree: everything is in the caller's numbers, and products are the same within the bound."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from tests.host.packed_file_bytes import header_of, with_block, with_header
from tests.host.random_graphs import joined, same
from tests.host.turns import in_turn
from tests.inside.kernels import graphs
from tests.inside.sparse import RowCounts, host_runs
from tests.inside.tasks import CHUNK_ROWS, deals, dealt
from tests.sparse_matrices import many_chunks, product_bound
from tests.sparse_rows import RunsOf, assert_same

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang")]


@pytest.fixture(scope="module")
def a():
    return many_chunks()


@pytest.fixture(scope="module")
def ordered(a):
    with oc.block_csr(a, order="degree", block_bytes="512 KiB") as found:
        yield found


def small(seed=0, n=300):
    """A matrix with empty rows and columns, many ties, and values of all kinds."""
    found = scipy.sparse.random_array((n, n), density=0.02, rng=np.random.default_rng(seed), format="csr")
    found.data[::3] = 1.0
    return found


def by_columns(a):
    """The order that is promised of one stripe: by entries of columns, descending, ties by number."""
    return np.argsort(-np.bincount(a.indices, minlength=a.shape[1]), kind="stable")


# the order


@given(n=st.integers(0, 5000), chunk_rows=st.sampled_from([1, 16, 100]), stripes=st.integers(1, 30))
def test_vertices_are_dealt_evenly_and_none_is_lost(n, chunk_rows, stripes):
    number_of = np.full(n, -1)
    for deal in deals(n, chunk_rows, stripes):
        assert (number_of[deal.ranks] == -1).all()
        number_of[deal.ranks] = np.arange(n)[deal.numbers]
    assert np.array_equal(np.sort(number_of), np.arange(n))
    # Whoever has a higher rank has a lower number in its stripe: the falls of a rank's vertex are the beginnings of stripes.
    ranks = np.empty(n, int)
    ranks[number_of] = np.arange(n)
    falls = np.flatnonzero(np.diff(ranks) < 0) + 1
    assert len(falls) < max(1, min(stripes, -(-n // chunk_rows))) and (falls % chunk_rows == 0).all()


def test_a_power_law_is_dealt_in_equal_shares():
    degrees = np.sort(np.random.default_rng(0).pareto(1.2, 3 * 512 * 16))[::-1]
    by_degree, found = np.arange(degrees.size), np.empty(degrees.size, int)
    dealt(by_degree, found, chunk_rows=512)
    chunks = degrees[found].reshape(-1, 512).sum(axis=1)
    most = degrees[0] / degrees.sum()
    for count in (2, 3, 4, 6, 8):
        assert chunks.reshape(count, -1).sum(axis=1).max() / degrees.sum() <= 1 / count + most


def test_the_order_is_by_entries_of_columns_and_ties_stay(ordered, a):
    one = small()
    with oc.block_csr(one, order="degree") as packed:
        assert np.array_equal(packed.order, by_columns(one))
        assert np.array_equal(packed.parts(0).starts[1:], np.cumsum(np.diff(one.indptr)[packed.order]))
    entries = np.bincount(a.indices, minlength=a.shape[1])[ordered.order]
    rises = np.flatnonzero(np.diff(entries) > 0) + 1
    assert len(rises) == 4 and (rises % CHUNK_ROWS == 0).all()  # five chunks, of which each is a stripe


def test_the_order_depends_on_the_matrix_alone(a, ordered, tmp_path):
    scipy.io.mmwrite(tmp_path / "s.mtx", small())
    scipy.sparse.save_npz(tmp_path / "s.npz", small())
    for wanted, sources in (
        (ordered, (a.tocoo(), a.tocsc(), RunsOf(a, 70_000), oc.block_csr(a))),
        (oc.block_csr(small(), order="degree"), (tmp_path / "s.mtx", tmp_path / "s.npz", small().astype(np.float64)[:, :])),
    ):
        for source in sources:
            with oc.block_csr(source, order="degree", block_bytes="512 KiB") as found:
                assert np.array_equal(found.order, wanted.order)
                assert_same(found.tocsr(), wanted.tocsr())
                assert [found.parts(0)[i].tobytes() for i in (0, 2)] == [wanted.parts(0)[i].tobytes() for i in (0, 2)]


def test_rows_of_csr_need_not_be_canonical():
    indptr, indices = np.array([0, 3, 3, 5]), np.array([2, 0, 2, 1, 0])
    data = np.array([1.0, 2.0, 4.0, 0.0, 1.0])
    source = scipy.sparse.csr_array((data, indices, indptr), shape=(3, 3))
    with oc.block_csr(source, order="degree", zeros="drop") as packed:
        assert packed.tocsr().toarray().tolist() == [[2, 0, 5], [0, 0, 0], [1, 0, 0]]
        assert (packed.counts.duplicates, packed.counts.zeros, packed.nnz) == (1, 1, 3)
        assert packed.order.tolist() == [0, 2, 1]


# the caller's numbers


def test_rows_and_sums_are_those_of_the_source(a, ordered):
    assert_same(ordered.tocsr(), a)
    for rows in (range(5), range(70_000, 70_001), range(66_000, 200_000), range(7, 7)):
        assert_same(ordered.tocsr(rows=rows), a[rows.start : rows.stop])
    np.testing.assert_allclose(ordered.row_sums(), a.sum(axis=1), rtol=1e-12, atol=1e-12)
    runs = list(ordered.runs())
    assert np.array_equal(np.concatenate([run.columns for run in runs]), a.indices)
    assert "order        by degree" in ordered.info()


@pytest.mark.parametrize(("precision", "devices"), in_turn(oc.Precision, ["host:0", ["host:0", "host:1", "host:2"]]))
def test_products_are_within_the_bound(a, ordered, precision, devices):
    x = np.random.default_rng(2).standard_normal((a.shape[1], 5)).astype(precision.storage)
    for given_x in (x[:, 0], x, np.asfortranarray(x)):
        y = oc.multiply(ordered, given_x, precision=precision, devices=devices)
        assert (np.abs(y - a @ given_x.astype(np.float64)) <= product_bound(a, given_x, precision)).all()


@pytest.mark.parametrize("devices", ["host:0", ["host:0", "host:1"]])
def test_diagonals_and_powers_are_in_the_callers_numbers(a, ordered, devices):
    n, rng = a.shape[0], np.random.default_rng(1)
    left, right, shift = rng.uniform(0.5, 1.0, (3, n))
    x = rng.standard_normal((n, 3))
    operator = oc.Operator(ordered, left=left, right=right, shift=shift)
    with oc.multiplier(operator, 3, devices=devices) as m:
        y = m(x)
        wanted = shift[:, None] * x + left[:, None] * (a @ (right[:, None] * x))
        assert np.allclose(y, wanted, rtol=1e-13, atol=1e-12)
        assert (m.apply(x, times=3) == m(m(y))).all()
    graph = oc.testing.rmat(10)
    with oc.block_csr(graph) as plain, oc.block_csr(graph, order="degree") as packed:
        x = rng.standard_normal((1024, 2))
        pair = [oc.multiply(oc.laplacian(each, normalized=True), x, devices=devices) for each in (packed, plain)]
        assert np.allclose(*pair, rtol=1e-13, atol=1e-13)
    with oc.multiplier(ordered, devices=devices).aslinearoperator() as operator:
        assert np.allclose(operator @ np.ones(n), a.sum(axis=1), atol=1e-11)


def test_messages_name_rows_of_the_source():
    bad = small()
    rows = np.repeat(np.arange(300), np.diff(bad.indptr))
    for value, error in ((np.nan, oc.errors.NonFiniteError), (1e300, oc.errors.UnsupportedTypeError)):
        source = bad.copy()
        source.data[777] = value
        dtype = np.float32 if error is oc.errors.UnsupportedTypeError else None
        for form in (source, source.tocoo(), RunsOf(source, 100)):
            with pytest.raises(error) as told:
                oc.block_csr(form, order="degree", dtype=dtype)
            assert f"[{rows[777]}, {source.indices[777]}]" in str(told.value)


@pytest.mark.parametrize(
    "change", [lambda run: run._replace(columns=run.columns[::-1].copy()), lambda run: run._replace(first_row=1)]
)
def test_rows_that_are_none_are_refused(change):
    class Bad(RunsOf):
        def runs(self):
            return map(change, super().runs())

    with pytest.raises(oc.errors.SparseInputError, match=r"row \d+"):
        oc.block_csr(Bad(small(), 100), order="degree")


def test_only_square_matrices_and_known_orders(a, tmp_path):
    with pytest.raises(ValueError, match="is 300 x 200"):
        oc.block_csr(small()[:, :200], order="degree")
    with pytest.raises(ValueError, match="give 'degree'"):
        oc.block_csr(small(), order="rcm")
    with pytest.raises(ValueError, match="give 'degree'"):
        oc.testing.rmat(10, order=True)
    with pytest.raises(ValueError, match="numbered by degree already"):
        oc.block_csr(oc.testing.rmat(10, order="degree"), order="degree")
    for n in (0, 1):
        with oc.block_csr(scipy.sparse.csr_array((n, n)), order="degree", store=tmp_path / f"{n}.oocsr") as packed:
            assert packed.tocsr().shape == (n, n)
            assert oc.multiply(packed, np.ones(n), devices="host:0").tolist() == [0.0] * n


# files


@pytest.fixture
def path(tmp_path):
    oc.block_csr(small(), order="degree", store=tmp_path / "a.oocsr").close()
    return tmp_path / "a.oocsr"


def test_a_file_keeps_the_order_and_so_does_packing_anew(path, a, ordered, tmp_path):
    with oc.block_csr(path) as found:
        assert np.array_equal(found.order, by_columns(small()))
        assert_same(found.tocsr(), small())
        with pytest.raises(ValueError):
            found.order[0] = 1
    with oc.block_csr(ordered, store=tmp_path / "b.oocsr", block_bytes="1 MiB") as stored:
        assert np.array_equal(stored.order, ordered.order)
        x = np.random.default_rng(3).standard_normal(a.shape[0])
        wanted = oc.multiply(ordered, x, devices="host:0")
        assert (oc.multiply(stored, x, devices=["host:0", "host:1"], memory_budget="16 MiB") == wanted).all()
        with oc.block_csr(stored, order="degree") as again:
            assert np.array_equal(again.order, ordered.order)
            assert_same(again.tocsr(), a)


def changed_order(data, change):
    """The file with another order, the block behind those of rows, signed as it should be."""
    number = len(header_of(data)[1]["blocks"]) - 1
    padded = with_header(data, lambda header: header["facts"]["blocks"].append([]))
    signed = with_block(padded, number, lambda block, _: change(block.view(np.int32)))
    return with_header(signed, lambda header: header["facts"]["blocks"].pop())


@pytest.mark.parametrize("number", [-1, 300, 2**31 - 1, "twice"])
def test_an_order_that_is_no_permutation_is_refused(path, number):
    good = path.read_bytes()

    def change(order):
        order[17] = order[18] if number == "twice" else number

    path.write_bytes(changed_order(good, change))
    with pytest.raises(oc.errors.DamagedFileError, match="has not each of 0 to 299 once"):
        oc.block_csr(path)
    path.write_bytes(changed_order(good, lambda order: order.sort()))
    oc.block_csr(path).close()


def test_a_flipped_bit_and_another_header_are_refused(path):
    good = path.read_bytes()
    offset, header = header_of(good)
    stop = -(-offset // 4096) * 4096
    bad = bytearray(good)
    bad[stop - 4096 + 40] ^= 4
    path.write_bytes(bad)
    with pytest.raises(oc.errors.DamagedFileError, match="block 1 is damaged"):
        oc.block_csr(path)
    assert json.dumps(header["facts"]["order"]) == '"degree"'
    for order in (None, "rcm", 1, [], {}):
        path.write_bytes(with_header(good, lambda header, order=order: header["facts"].update(order=order)))
        with pytest.raises(oc.errors.DamagedFileError):
            oc.block_csr(path)
    path.write_bytes(with_header(good, lambda header: header["facts"].pop("order")))
    with pytest.raises(oc.errors.DamagedFileError):
        oc.block_csr(path)


# random graphs


@pytest.mark.parametrize("name", ["rmat", "urand"])
@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_numbered_by_degree_is_the_same_graph(name, directed):
    make = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}[name]
    plain, by_degree = (make(17, 3, seed=4, directed=directed, order=order, devices="host:0") for order in (None, "degree"))
    with oc.block_csr(plain) as one, oc.block_csr(by_degree) as other:
        assert other.order is None and other.counts == one.counts and other.nnz == one.nnz
        a, b = one.tocsr(), other.tocsr()
    drawn = np.bincount(graphs.read_ends(plain.draw, range(plain.draw.n_edges)), minlength=2**17)
    ranks = np.argsort(-drawn, kind="stable")
    order = np.concatenate([ranks[::2], ranks[1::2]])  # two chunks are two stripes
    wanted = a[order][:, order]
    wanted.sort_indices()
    assert_same(b, wanted)


def test_a_numbered_graph_is_the_same_in_any_number_of_ranges():
    source = oc.testing.rmat(14, seed=9, order="degree", devices="host:0")
    whole = joined(source.runs())
    counts = RowCounts()
    parts = list(host_runs(source.draw, counts, 16 * source.draw.n_drawn // 2, source.draw.n_drawn // 9, numbering="degree"))
    assert len(parts) > 4 and same(joined(parts), whole) and counts == source.counts
    with oc.block_csr(oc.testing.rmat(14, seed=9, devices="host:0"), order="degree") as packed, oc.block_csr(source) as other:
        assert packed.nnz == other.nnz
        found = np.diff(packed.parts(0).starts)
        assert all(first >= second for first, second in pairwise(found.tolist()))
