"""Graphs from whatever holds one, and what is refused."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_array, csr_array, csr_matrix, save_npz

import ooc_chol as oc
from ooc_chol.apps.spectral import Graph, as_graph, bisect, read_graph
from tests.apps.spectral.spectral_graphs import graph_of, grid_matrix, weighted_matrix
from tests.inside.spectral import runs

pytestmark = pytest.mark.host

#: A triangle with weights and a leaf.
MATRIX = np.array([[0.0, 2, 3, 0], [2, 0, 4, 0], [3, 4, 0, 1], [0, 0, 1, 0]])
METIS = "% a comment\n4 4 011\n5 2 2 3 3\n6 1 2 3 4\n7 1 3 2 4 4 1\n8 3 1\n"


def same(graph: Graph, matrix: object = MATRIX) -> bool:
    """Whether the graph has these weights, in the form that is promised."""
    held = graph.adjacency
    assert held.dtype == np.float64
    assert held.has_sorted_indices
    assert not held.diagonal().any()
    assert held.data.all()
    return bool(np.array_equal(held.toarray(), csr_array(matrix).toarray()))


def test_matrices() -> None:
    for source in (
        MATRIX,
        MATRIX.tolist(),
        MATRIX.astype(np.int32),
        csr_array(MATRIX),
        csr_matrix(MATRIX.astype(np.float32)),
        csr_array(MATRIX).tocsc(),
        csr_array(MATRIX).todia(),
        coo_array(MATRIX.astype(np.uint8)),
    ):
        graph = as_graph(source)
        assert same(graph)
        assert graph.loops == 0
        assert graph.has_unit_vertices
        assert graph.n_edges == 4
    assert same(as_graph(MATRIX > 0), MATRIX > 0)


def test_packed_matrices_and_rows(tmp_path: Path) -> None:
    with oc.block_csr(csr_array(MATRIX)) as packed:
        assert same(as_graph(packed))
    (tmp_path / "edges.txt").write_text("1 2 2\n1 3 3\n2 3 4\n3 4 1\n")
    assert same(as_graph(oc.edge_list(tmp_path / "edges.txt", base=1)))
    (tmp_path / "a.graph").write_text(METIS)
    assert as_graph(oc.metis_graph(tmp_path / "a.graph")).vertex_weights.tolist() == [5, 6, 7, 8]


def test_a_canonical_matrix_is_shared_and_never_changed() -> None:
    given = csr_array(MATRIX)
    assert np.shares_memory(as_graph(given).adjacency.data, given.data)
    unsorted = csr_array((np.array([3.0, 2, 4, 2, 1, 4, 3, 1]), [2, 1, 2, 0, 3, 1, 0, 2], [0, 2, 4, 7, 8]))
    kept = unsorted.indices.copy()
    assert same(as_graph(unsorted))
    assert np.array_equal(unsorted.indices, kept)
    lying = csr_array((unsorted.data, unsorted.indices, unsorted.indptr))
    lying.has_canonical_format = True
    assert same(as_graph(lying))


def test_loops_zeros_and_repeated_entries() -> None:
    matrix = csr_array(MATRIX + np.diag([1.0, 0, 5, 0])).tocoo()
    halves = coo_array(
        (
            np.concatenate([matrix.data / 2, matrix.data / 2, [0.0, 0.0]]),
            (np.concatenate([matrix.row, matrix.row, [0, 3]]), np.concatenate([matrix.col, matrix.col, [3, 0]])),
        ),
        shape=(4, 4),
    )
    graph = as_graph(halves)
    assert same(graph)
    assert graph.loops == 2
    assert graph.adjacency.nnz == 8


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.graph").write_text(METIS)
    with gzip.open(tmp_path / "b.graph.gz", "wt") as stream:
        stream.write(METIS)
    (tmp_path / "c.csv").write_text("from,to,weight\n0,1,2\n0,2,3\n1,2,4\n2,3,1\n")
    save_npz(tmp_path / "d.npz", csr_array(MATRIX))
    mmwrite(tmp_path / "e.mtx", coo_array(MATRIX))
    oc.block_csr(csr_array(MATRIX), store=tmp_path / "f.oocsr").close()
    for name in ("a.graph", "b.graph.gz", "c.csv", "d.npz", "e.mtx", "f.oocsr"):
        graph = read_graph(tmp_path / name)
        assert same(graph), name
        assert graph.name == str(tmp_path / name)
        expected = [5, 6, 7, 8] if ".graph" in name else [1, 1, 1, 1]
        assert graph.vertex_weights.tolist() == expected
    assert read_graph(tmp_path / "a.graph", vertex_weights=[1, 2, 3, 4]).total_weight == 10


def test_graphs_pass_through() -> None:
    graph = graph_of(grid_matrix(3, 4))
    assert as_graph(graph) is graph
    other = as_graph(graph, vertex_weights=np.arange(1, 13), name="grid")
    assert other.adjacency is graph.adjacency
    assert other.total_weight == 78
    assert other.name == "grid"


@pytest.mark.package("networkx")
def test_graphs_of_networkx() -> None:
    import networkx as nx

    graph = nx.Graph()
    graph.add_node("a", weight=5)
    graph.add_weighted_edges_from([("a", "b", 2.0), ("a", "c", 3.0), ("b", "c", 4.0), ("c", "c", 9.0)])
    graph.add_edge("c", "d")
    found = as_graph(graph)
    assert same(found)
    assert found.loops == 1
    assert found.vertex_weights.tolist() == [5, 1, 1, 1]
    assert found.names == ("a", "b", "c", "d")
    with pytest.raises(oc.errors.SparseInputError, match="edge of 'b' and 'e': the weight is -3"):
        as_graph(nx.Graph([("a", "b"), ("b", "e", {"weight": -3})]))
    with pytest.raises(oc.errors.SparseInputError, match="not symmetric"):
        as_graph(nx.DiGraph([(0, 1), (1, 2)]))
    with pytest.raises(ValueError, match="no vertices"):
        as_graph(nx.Graph())


@pytest.mark.package("networkx")
@pytest.mark.parametrize("weight", [None, "2", [2], "np.array"])
def test_weights_of_networkx_that_are_no_numbers(weight: object) -> None:
    import networkx as nx

    weight = np.ones(2) if weight == "np.array" else weight
    with pytest.raises(oc.errors.SparseInputError, match=r"edge of 'b' and 'e': the weight is .*; give a number"):
        as_graph(nx.Graph([("a", "b"), ("b", "e", {"weight": weight})]))
    graph = nx.Graph([("a", "b")])
    graph.nodes["b"]["weight"] = weight
    with pytest.raises(oc.errors.SparseInputError, match=r"vertex 'b': the weight is .*; give a positive number"):
        as_graph(graph)


@pytest.mark.package("networkx")
def test_fractions_of_networkx_are_those_of_float64() -> None:
    import networkx as nx

    graph = nx.Graph([("a", "b", {"weight": Fraction(1, 3)}), ("b", "c")])
    graph.nodes["b"]["weight"] = Fraction(1, 2)
    found = as_graph(graph)
    assert found.adjacency.data.tolist() == [1 / 3, 1 / 3, 1, 1] and found.vertex_weights.tolist() == [1, 0.5, 1]


@pytest.mark.parametrize("dtype", ["f2", ">f4", ">f8", ">i4", "?", "g"])
@pytest.mark.parametrize("form", ["csr", "coo", "csc", "bsr", "dok", "lil", "array"])
def test_numbers_of_any_type_and_form(form: str, dtype: str) -> None:
    given: Any = MATRIX.astype(dtype) if form == "array" else csr_array(MATRIX).asformat(form)
    if form not in ("array", "dok", "lil"):
        given.data = given.data.astype(dtype)
    assert same(as_graph(given), MATRIX > 0 if given.dtype == np.bool_ else MATRIX)


@pytest.mark.package("networkx")
def test_parts_of_a_graph_of_networkx_are_sets_of_its_vertices() -> None:
    import networkx as nx

    graph = nx.barbell_graph(4, 0)
    names = ["g", ("b", 1), 7, "a", "z", "y", 2.5, frozenset("q")]
    named = nx.relabel_nodes(graph, dict(enumerate(names)))
    found = bisect(named)
    assert sorted(found.parts, key=lambda part: "g" not in part) == [set(names[:4]), set(names[4:])]
    assert nx.community.is_partition(named, found.parts)
    assert all(names[vertex] in found.parts[label] for vertex, label in enumerate(found.labels))
    assert sorted(map(sorted, bisect(nx.to_numpy_array(graph)).parts)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.package("networkx")
def test_whole_weights_that_float64_would_round_are_refused() -> None:
    import networkx as nx

    large = 2**53 + 1
    for others in (3, 1.5):
        graph = nx.Graph([("a", "b", {"weight": others}), ("b", "c", {"weight": large})])
        with pytest.raises(oc.errors.SparseInputError, match=r"edge of 'b' and 'c': the weight is 9007199254740993, .* 2\^53"):
            as_graph(graph)
    heavy = nx.Graph([("a", "b")])
    heavy.nodes["b"]["weight"] = 10**30
    with pytest.raises(oc.errors.SparseInputError, match="vertex 'b'"):
        as_graph(heavy)
    assert as_graph(nx.Graph([("a", "b", {"weight": float(large)})])).adjacency.data.max() == 2.0**53
    dense = np.array([[0, large], [large, 0]])
    for source in (dense, csr_array(dense), csr_array(dense.astype(np.uint64))):
        with pytest.raises(oc.errors.SparseInputError, match="beyond 2"):
            as_graph(source)
    with pytest.raises(oc.errors.SparseInputError, match="vertex 1: the weight is"):
        as_graph(np.ones((2, 2)), vertex_weights=np.array([1, large]))


def test_rounding_is_averaged_to_the_bit() -> None:
    matrix = weighted_matrix(50)
    rounded = matrix.copy()
    rounded.data *= 1 + 1e-15 * np.random.default_rng(0).standard_normal(rounded.nnz)
    assert not np.array_equal(rounded.toarray(), rounded.T.toarray())
    held = as_graph(rounded).adjacency.toarray()
    assert np.array_equal(held, held.T)
    assert np.allclose(held, matrix.toarray(), rtol=1e-14)


def test_what_is_not_symmetric_says_how_far_and_where() -> None:
    wrong = MATRIX.copy()
    wrong[1, 2], wrong[0, 1] = 7.0, 2.5
    with pytest.raises(
        oc.errors.SparseInputError, match=r"entries \(1, 2\) and \(2, 1\) are 7 and 4, and differ the most of 2 pairs"
    ):
        as_graph(wrong)
    with pytest.raises(oc.errors.SparseInputError, match=r"\(0, 1\) and \(1, 0\) are 1 and 0"):
        as_graph(csr_array(np.triu(MATRIX > 0)))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-2.0, "edge of vertices 1 and 2 .*the weight is -2, and 2 entries are negative"),
        (np.nan, "weight is nan"),
        (np.inf, "weight is inf"),
    ],
)
def test_weights_that_are_wrong(value: float, said: str) -> None:
    wrong = MATRIX.copy()
    wrong[1, 2] = wrong[2, 1] = value
    for source in (wrong, csr_array(wrong)):
        with pytest.raises(oc.errors.SparseInputError, match=said):
            as_graph(source)


def test_matrices_that_are_none(tmp_path: Path) -> None:
    for shape in ((3, 4), (4,), (2, 2, 2)):
        with pytest.raises(oc.errors.SparseInputError, match="it is"):
            as_graph(np.ones(shape))
    with pytest.raises(oc.errors.SparseInputError, match="it is 3 x 4"):
        as_graph(csr_array(np.ones((3, 4))))
    with pytest.raises(ValueError, match="no vertices"):
        as_graph(csr_array((0, 0)))
    for source in (1j * MATRIX, csr_array(1j * MATRIX)):
        with pytest.raises(TypeError, match="complex"):
            as_graph(source)
    for source in (3.0, None, object(), lambda x: x):
        with pytest.raises(TypeError):
            as_graph(source)
    with pytest.raises(TypeError, match="real weights"):
        as_graph(np.array([["a", "b"], ["c", "d"]]))
    with pytest.raises(TypeError, match="masked"):
        as_graph(np.ma.masked_equal(MATRIX, 2.0))
    broken = csr_array(MATRIX)
    broken.indices[0] = 9
    with pytest.raises(oc.errors.SparseInputError, match="indices"):
        as_graph(broken)
    with oc.block_csr(csr_array(MATRIX)) as packed, pytest.raises(TypeError, match="diagonals around"):
        as_graph(oc.laplacian(packed))
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "nothing.graph")
    with pytest.raises(TypeError, match="take as_graph"):
        read_graph(MATRIX)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("4 5\n2 3\n1 3\n1 2 4\n3\n", "5 edges are promised"),
        ("5 4\n2 3\n1 3\n1 2 4\n3\n", "5 vertices are promised"),
        ("4 4\n2 3\n1 3\n1 2 4\n\n", "line 4: the edge of vertices 3 and 4 .* that of vertex 3 only"),
        ("2 1 011 2\n1 2 2 1\n1 2 1 1\n", "2 weights each"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.graph").write_text(content)
    with pytest.raises(oc.errors.SparseInputError, match=said):
        read_graph(tmp_path / "a.graph")


def test_edges_of_files_are_counted_as_the_file_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1 1\n1 2 -3\n")
    with pytest.raises(oc.errors.SparseInputError, match=r"a\.txt, edge of vertices 1 and 2 \(counted from 0\)"):
        read_graph(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [
        ([1, 1, 1], ValueError, r"shape \(3,\), but the graph has 4"),
        ([[1, 1, 1, 1]], ValueError, r"shape \(1, 4\)"),
        ([1, 0, 1, -2], ValueError, "that of vertex 1 is 0, and 2 in all"),
        ([1, 1, np.nan, 1], ValueError, "that of vertex 2 is nan"),
        (["a", "b", "c", "d"], TypeError, "real numbers"),
        ([1j, 1, 1, 1], TypeError, "real numbers"),
        (np.full(4, np.longdouble("1e-4000")), ValueError, "that of vertex 0 is"),
        (np.full(4, np.longdouble("1e4000")), ValueError, "that of vertex 0 is"),
    ],
)
def test_weights_of_vertices_that_are_wrong(weights: object, error: type[Exception], said: str) -> None:
    for source in (MATRIX, as_graph(MATRIX)):
        with pytest.raises(error, match=said):
            as_graph(source, vertex_weights=weights)  # type: ignore[arg-type]


def test_a_vertex_of_a_file_without_weight(tmp_path: Path) -> None:
    (tmp_path / "a.graph").write_text("2 1 010\n1 2\n0 1\n")
    with pytest.raises(ValueError, match="weights of its vertices: that of vertex 1 is 0"):
        read_graph(tmp_path / "a.graph")
    assert read_graph(tmp_path / "a.graph", vertex_weights=[1, 1]).n == 2


@pytest.mark.parametrize("entries", [1, 40, 1 << 17])
def test_subgraphs_and_degrees_are_those_of_the_dense_matrix(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """In runs of one row, of some, and of all; with vertices that lose all edges, have none, or stand in another order."""
    monkeypatch.setattr(runs, "_MOST_ENTRIES", entries)
    rng = np.random.default_rng(4)
    weights = np.triu(rng.random((50, 50)) * (rng.random((50, 50)) < 0.2), 1)
    weights += weights.T
    weights[7] = weights[:, 7] = 0
    graph = Graph(csr_array(weights), rng.random(50))
    np.testing.assert_allclose(graph.degrees, weights.sum(axis=1), rtol=1e-14)
    drawn = np.flatnonzero(rng.random(50) < 0.4)
    for vertices in (drawn, rng.permutation(drawn), np.arange(50), np.array([7]), np.arange(0)):
        part = graph.subgraph(vertices)
        np.testing.assert_array_equal(part.adjacency.toarray(), weights[np.ix_(vertices, vertices)])
        np.testing.assert_array_equal(part.vertex_weights, graph.vertex_weights[vertices])
        fresh = csr_array((part.adjacency.data, part.adjacency.indices, part.adjacency.indptr), shape=part.adjacency.shape)
        assert fresh.has_canonical_format
