"""Random graphs: the same entries however they are made, canonical, symmetric, with the degrees that they should have."""

from __future__ import annotations

import math
import threading
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from tests.host.random_graphs import digest, joined, matrix, same
from tests.inside.kernels import graphs
from tests.inside.sparse import RowCounts, host_runs, made_ahead, ranges_within
from tests.inside.tasks import MULTIPLIERS, SHIFTS, EdgeDraw, mix
from tests.products import thorough
from tests.running_threads import running_threads

#: Hashes of the edges of scale 10 and of the rows made of them: who changes them changes everybody's graphs.
RECORDED = {
    "rmat": (
        "aeada7c74a98b2590a8b4efd709ae116769c15f4469bee8d62040e7ce1dc044a",
        "97cfea90da0af2c11cb39b5993c2a61b605fcfd5cd286e9beaac6aa3f968d9ed",
    ),
    "urand": (
        "f6bfb7a899751996cf4e6888a5badb0d5e9019c03f6f591188a942642db75b2e",
        "08d76254ddd00e74b498b4ef3d6e6c3827e780d0ccd5a1a871256bb10fa233c4",
    ),
}
MAKERS = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}


@pytest.fixture(scope="module", params=MAKERS)
def graph(request):
    """A graph of scale 16, and the matrix that it makes."""
    source = MAKERS[request.param](16, seed=3, devices="host:0")
    return request.param, source, matrix(source)


def edges_of(source):
    return graphs.edges(source.draw, range(source.draw.n_edges))


@pytest.mark.parametrize("name", MAKERS)
def test_the_graph_of_a_seed_is_recorded(name):
    source = MAKERS[name](10, seed=42)
    rows = joined(source.runs())
    assert (digest(*edges_of(source)), digest(rows.starts, rows.columns)) == RECORDED[name]


def test_a_graph_is_packed_as_a_pattern(graph):
    _, source, made = graph
    with oc.block_csr(source, block_bytes="1 MiB") as packed:
        assert len(packed.blocks.blocks) > 3 and {block.kind.value for block in packed.blocks.blocks} == {"pattern"}
        assert packed.counts == source.counts
        found = packed.tocsr()
    assert np.array_equal(found.indptr, made.indptr) and np.array_equal(found.indices, made.indices)
    assert np.all(found.data == 1)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, *thorough(7, 2**63, 12345)])
def test_entries_are_the_same_from_one_range_and_from_seven(name, seed):
    draw = MAKERS[name](14, seed=seed).draw
    once, counts = RowCounts(), RowCounts()
    whole = joined(host_runs(draw, once, 1 << 30))
    parts = list(host_runs(draw, counts, 16 * draw.n_drawn // 3, run_entries=draw.n_drawn // 6))
    assert len(parts) >= 7  # in four groups, each of which draws all edges
    assert same(joined(parts), whole)
    assert counts == once


def test_edges_do_not_depend_on_where_a_piece_begins():
    draw = oc.testing.rmat(14, seed=5).draw
    u, v = graphs.edges(draw, range(draw.n_edges))
    for start, stop in [(0, 1), (1, 3), (32767, 32770), (100_001, 200_003)]:
        some = graphs.edges(draw, range(start, stop))
        assert np.array_equal(some[0], u[start:stop]) and np.array_equal(some[1], v[start:stop])


def test_rows_are_those_of_the_edges_summed_by_scipy(graph):
    import scipy.sparse

    _, source, made = graph
    u, v = (end.astype(np.int64) for end in edges_of(source))
    proper = u != v
    rows, columns = np.concatenate([u[proper], v[proper]]), np.concatenate([v[proper], u[proper]])
    wanted = scipy.sparse.coo_array((np.ones(len(rows), np.int64), (rows, columns)), shape=source.shape).tocsr()
    assert np.array_equal(wanted.indptr, made.indptr) and np.array_equal(wanted.indices, made.indices)
    assert source.counts == RowCounts(duplicates=len(rows) - wanted.nnz, loops=int((~proper).sum()))
    assert source.expected_entries == made.nnz + source.counts.duplicates + 2 * source.counts.loops


def test_rows_are_canonical_without_loops_and_symmetric(graph):
    _, _, made = graph
    rows = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr))
    keys = rows * made.shape[1] + made.indices
    assert np.all(np.diff(keys) > 0)
    assert not np.any(rows == made.indices)
    turned = made.T.tocsr()
    turned.sort_indices()
    assert np.array_equal(turned.indptr, made.indptr) and np.array_equal(turned.indices, made.indices)


def test_a_directed_graph_has_its_edges_in_one_direction():
    source = oc.testing.rmat(12, 4, seed=9, directed=True)
    u, v = edges_of(source)
    made = matrix(source)
    assert source.expected_entries == 4 << 12
    wanted = np.unique(u[u != v].astype(np.int64) << 12 | v[u != v])
    assert np.array_equal(wanted, np.repeat(np.arange(1 << 12), np.diff(made.indptr)) << 12 | made.indices)


@pytest.mark.parametrize("scale", range(1, 17))
def test_relabelling_is_a_bijection(scale):
    for seed in (0, 1, 2**64 - 1):
        draw = EdgeDraw(scale, 1, seed, (1, 2, 3), directed=False)
        labels = graphs.relabelled(draw, np.arange(1 << scale, dtype=np.uint32))
        assert np.array_equal(np.sort(labels), np.arange(1 << scale))


@pytest.mark.parametrize("scale", [17, 24, 30])
def test_relabelling_is_a_bijection_where_all_labels_would_be_many(scale):
    draw = EdgeDraw(scale, 1, 5, (1, 2, 3), directed=False)
    some = np.arange(1 << 16, dtype=np.uint32) * np.uint32((1 << scale) // (1 << 16))
    labels = graphs.relabelled(draw, some)
    assert len(np.unique(labels)) == 1 << 16 and labels.max() < 1 << scale


def test_hubs_are_not_where_r_mat_puts_them():
    made = matrix(oc.testing.rmat(14, seed=1))
    hubs = np.argsort(np.diff(made.indptr))[-64:]
    assert 0 not in hubs
    # 64 labels drawn at random: each half of the numbers has 32 +- 5 standard deviations of 4.
    assert 12 <= np.count_nonzero(hubs < 1 << 13) <= 52


def test_degrees_of_r_mat_follow_its_quadrants(graph):
    name, source, made = graph
    if name != "rmat":
        return
    degrees, levels = np.diff(made.indptr), source.draw.scale
    # A vertex with k of its bits set is either end of an edge with probability 0.76**(levels - k) * 0.24**k.
    drawn = {k: source.draw.n_drawn * 0.76 ** (levels - k) * 0.24**k for k in range(levels + 1)}
    empty = sum(math.comb(levels, k) * math.exp(-mean) for k, mean in drawn.items())
    assert abs(np.count_nonzero(degrees == 0) - empty) <= 0.02 * empty
    # The hub is the vertex without bits: another with k bits is drawn beside it so often, and is one entry however often.
    beside = [source.draw.n_drawn * 0.57 ** (levels - k) * 0.19**k for k in range(levels + 1)]
    hub = sum(math.comb(levels, k) * -math.expm1(-mean) for k, mean in enumerate(beside))
    assert abs(degrees.max() - hub) <= 0.03 * hub
    assert np.sort(degrees)[-len(degrees) // 100 :].sum() > 0.25 * degrees.sum()


def test_quadrants_of_r_mat_have_their_probabilities_at_every_level():
    # Without relabelling: the labels of the quadrants' bits are looked up backwards.
    draw = oc.testing.rmat(12, 64, 0.5, 0.25, 0.15, seed=2).draw
    back = np.argsort(graphs.relabelled(draw, np.arange(1 << 12, dtype=np.uint32)))
    u, v = (back[end] for end in graphs.edges(draw, range(draw.n_edges)))
    for level in range(12):
        quadrants = 2 * (u >> level & 1) + (v >> level & 1)
        shares = np.bincount(quadrants, minlength=4) / draw.n_edges
        np.testing.assert_allclose(shares, [0.5, 0.25, 0.15, 0.1], atol=5 / math.sqrt(draw.n_edges))
        above = 2 * (u >> (level + 1) % 12 & 1) + (v >> (level + 1) % 12 & 1)
        together = np.bincount(4 * quadrants + above, minlength=16) / draw.n_edges
        np.testing.assert_allclose(together, np.outer(shares, [0.5, 0.25, 0.15, 0.1]).ravel(), atol=5 / math.sqrt(draw.n_edges))


def test_degrees_of_a_uniform_graph_are_poissons(graph):
    name, _, made = graph
    if name != "urand":
        return
    degrees = np.diff(made.indptr)
    n = len(degrees)
    assert abs(degrees.mean() - 32) < 0.05
    assert abs(degrees.var() / 32 - 1) < 6 * math.sqrt(2 / n)
    assert 52 <= degrees.max() <= 72  # 32 + 3.5 and 7 standard deviations


def test_probabilities_of_one_quadrant_make_one_edge():
    made = matrix(oc.testing.rmat(5, 4, 0.0, 1.0, 0.0, seed=3))
    assert made.nnz == 2 and abs(made - made.T).nnz == 0


def test_a_graph_of_loops_has_no_entries():
    source = oc.testing.rmat(5, 4, 1.0, 0.0, np.float32(0))
    rows = joined(source.runs())
    assert rows.columns.size == 0 and np.array_equal(rows.starts, np.zeros(33))
    assert source.counts == RowCounts(loops=128)


@given(sizes=st.lists(st.integers(0, 9)), most=st.integers(1, 20), first=st.integers(0, 5))
def test_ranges_cover_all_and_hold_no_more_than_they_may(sizes, most, first):
    ranges = ranges_within(sizes, most, first)
    assert [number for part in ranges for number in part] == list(range(first, first + len(sizes)))
    for part, following in pairwise(ranges):
        held = sum(sizes[part.start - first : part.stop - first])
        assert held <= most or held == max(sizes[part.start - first : part.stop - first])
        assert held + sizes[following.start - first] > most


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_the_smallest_graphs(scale):
    for make in MAKERS.values():
        made = matrix(make(scale))
        assert made.shape == (1 << scale, 1 << scale)
        assert made.nnz <= (1 << scale) * ((1 << scale) - 1)


def test_rows_can_be_had_once_more_and_dropped_on_the_way():
    source = oc.testing.rmat(14, seed=1, devices="host:0", memory_budget="4 MiB")
    before = running_threads()
    with closing(source.runs()) as runs:
        next(runs)
    assert running_threads() == before
    first = matrix(source), source.counts
    again = matrix(source), source.counts
    assert abs(first[0] - again[0]).nnz == 0 and first[1] == again[1]


def test_mixing_is_split_mix():
    # The first outputs of SplitMix64 from state 0, as published with it.
    golden = 0x9E3779B97F4A7C15
    assert [mix(golden * (i + 1) % 2**64) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert len(SHIFTS) == len(MULTIPLIERS) + 1


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ((0,), {}, ValueError, "scale is 0"),
        ((31,), {}, ValueError, "give 1 to 30"),
        ((3.0,), {}, TypeError, "scale is a float"),
        ((3, 0), {}, ValueError, "degree is 0"),
        ((3, True), {}, TypeError, "degree is a bool"),
        ((30, 2**40), {}, ValueError, "degree is"),
        ((3, 16, -0.1), {}, ValueError, "give probabilities"),
        ((3, 16, math.nan), {}, ValueError, "give probabilities"),
        ((3, 16, "0.5"), {}, ValueError, "give probabilities"),
        ((3, 16, 0.5, 0.5, 0.5), {}, ValueError, "add to 1"),
        ((3,), {"seed": -1}, ValueError, "seed is -1"),
        ((3,), {"seed": 2**64}, ValueError, "give 0 to"),
        ((3,), {"devices": "cuda:99"}, ValueError, "there is no device 'cuda:99'"),
        ((3,), {"memory_budget": "much"}, ValueError, "is not a size"),
    ],
)
def test_wrong_arguments_are_refused(arguments, options, error, says):
    with pytest.raises(error, match=says):
        oc.testing.rmat(*arguments, **options)


def test_a_budget_that_does_not_hold_a_bucket_says_what_would():
    source = oc.testing.rmat(12, devices="host:0", memory_budget="4 KiB")
    with pytest.raises(oc.BudgetError, match="memory_budget of a random graph") as caught:
        list(source.runs())
    needed = caught.value.needed_bytes
    assert same(joined(oc.testing.rmat(12, devices="host:0", memory_budget=needed).runs()), joined(oc.testing.rmat(12).runs()))


def test_what_is_made_ahead_comes_in_order_and_errors_come_where_they_belong():
    def make(item):
        if item == 5:
            raise ValueError("five")
        return item, threading.current_thread().name

    assert [item for item, _ in made_ahead([make, make, make], range(5))] == [0, 1, 2, 3, 4]
    taken = []
    with pytest.raises(ValueError, match="five"):
        for item, name in made_ahead([make, make], [1, 2, 3, 4, 5, 6]):
            assert name != threading.current_thread().name
            taken.append(item)
    assert taken == [1, 2, 3, 4]
    assert list(made_ahead([make], [])) == []


def test_one_item_is_made_ahead_and_no_more():
    made = []
    with closing(made_ahead([made.append], list(range(10)))) as items:
        next(items)
        next(items)
        threading.Event().wait(0.05)
        assert made == [0, 1, 2]


def test_a_graph_prints_what_it_is():
    assert repr(oc.testing.urand(10, devices="host:0")) == (
        "RandomGraph(name='urand(10, 16, seed=0)', shape=(1024, 1024), expected_entries=32768, devices=('host:0',))"
    )
