"""The lowest eigenpairs of Laplacians: against formulas, LAPACK and recorded values, with every preconditioner."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import csr_array, triu
from scipy.sparse.csgraph import connected_components

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral import Graph
from tests.apps.spectral.spectral_graphs import (
    affinity_matrix,
    clique_matrix,
    graph_of,
    grid_matrix,
    irregular_matrix,
    joined,
    path_matrix,
    torus_matrix,
    weighted_matrix,
)
from tests.inside.spectral import (
    Lowest,
    Near,
    SmoothedAggregation,
    SolverOptions,
    TooDenseError,
    Within,
    check_scales,
    chosen_way,
    features_of,
    lowest_eigenpairs,
    pixel_affinity,
    precision_for,
)

pytestmark = [pytest.mark.commit, pytest.mark.host]

HOST = SolverOptions(devices="host:0")
AMG = "LOBPCG with smoothed aggregation"
DIAGONAL = "LOBPCG with the diagonal"


def check(graph: Graph, found: Lowest, *, normalized: bool = False, tol: float = 1e-7) -> None:
    """That pairs are pairs: residuals as told, vectors orthonormal in their norm, and orthogonal to what is trivial."""
    y, w, d = found.vectors, found.eigenvalues, graph.degrees
    root = np.sqrt(d)[:, None] if normalized else np.ones((graph.n, 1))
    laplacian = graph.laplacian()
    off = np.linalg.norm((laplacian @ y) / root - (root * y) * w, axis=0)
    size = 2.0 if normalized else 2 * d.max()  # bounds of the norm
    assert np.all(off <= tol * size)
    assert np.all(found.residuals <= tol)
    assert np.allclose((root * y).T @ (root * y), np.eye(len(w)), atol=1e-10)
    assert np.abs((root * y).T @ root).max() <= 1e-9 * np.linalg.norm(root)
    assert np.all(np.diff(w) >= 0)
    assert w[0] > 0


def grid_values(rows: int, columns: int, count: int) -> np.ndarray:
    """The lowest nontrivial eigenvalues of a grid."""
    one, other = (2 - 2 * np.cos(np.pi * np.arange(size) / size) for size in (rows, columns))
    return np.sort(np.add.outer(one, other).ravel())[1 : count + 1]


def normalized_values(graph: Graph) -> np.ndarray:
    """All eigenvalues of the normalized Laplacian, by LAPACK."""
    return eigh(graph.laplacian().toarray(), np.diag(graph.degrees), eigvals_only=True)


@pytest.mark.package("pyamg")
@pytest.mark.parametrize("preconditioner", ["auto", "amg", "diagonal"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_grid_has_the_eigenvalues_of_the_formula(preconditioner: str, count: int) -> None:
    graph = graph_of(grid_matrix(41, 23))
    found = lowest_eigenpairs(graph, count, SolverOptions(devices="host:0", preconditioner=preconditioner))
    check(graph, found)
    assert found.method == (DIAGONAL if preconditioner == "diagonal" else AMG)
    assert np.allclose(found.eigenvalues, grid_values(41, 23, count), rtol=1e-8)
    assert found.passes > 0
    assert found.trace is None


@pytest.mark.package("pyamg")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_multiple_eigenvalues_are_complete(seed: int) -> None:
    graph = graph_of(grid_matrix(30, 30))
    for preconditioner in ("amg", "diagonal"):
        options = SolverOptions(devices="host:0", seed=seed, preconditioner=preconditioner)
        found = lowest_eigenpairs(graph, 3, options)
        assert np.allclose(found.eigenvalues, grid_values(30, 30, 3), rtol=1e-8)
        assert np.isclose(found.eigenvalues[0], found.eigenvalues[1], rtol=1e-9)
        check(graph, found)


@pytest.mark.package("pyamg")
@pytest.mark.parametrize("preconditioner", ["auto", "diagonal"])
@pytest.mark.parametrize("n", [300, 900])
def test_normalized_problems(preconditioner: str, n: int) -> None:
    graph = graph_of(affinity_matrix(n // 30, 30))
    found = lowest_eigenpairs(graph, 4, SolverOptions(devices="host:0", preconditioner=preconditioner), normalized=True)
    check(graph, found, normalized=True)
    assert np.allclose(found.eigenvalues, normalized_values(graph)[1:5], rtol=1e-8)
    if n == 300:
        assert found.method == "LAPACK"
    else:
        assert found.method == (AMG if preconditioner == "auto" else "block Lanczos")


@pytest.mark.parametrize(
    "matrix", [grid_matrix(30, 30), grid_matrix(1500, 1), weighted_matrix(1200)], ids=["square", "path", "weights"]
)
def test_lanczos_leaves_the_trivial_pair_out(matrix: csr_array) -> None:
    graph = graph_of(matrix)
    found = lowest_eigenpairs(graph, 3, SolverOptions(devices="host:0", preconditioner="diagonal"), normalized=True)
    assert found.method == "block Lanczos"
    check(graph, found, normalized=True)
    assert np.allclose(found.eigenvalues, normalized_values(graph)[1:4], rtol=1e-5)


@pytest.mark.parametrize("precision", ["FFF", "FDF", "DDD"])
def test_residuals_of_lanczos_are_bounds_and_vectors_orthogonal_in_every_precision(precision: str) -> None:
    graph = graph_of(weighted_matrix(1200))
    options = SolverOptions(devices="host:0", preconditioner="diagonal", tol=1e-4, precision=precision)
    found = lowest_eigenpairs(graph, 3, options, normalized=True)
    root = np.sqrt(graph.degrees)
    u = root[:, None] * found.vectors
    product = u - (graph.adjacency @ found.vectors) / root[:, None]
    off = np.linalg.norm(product - u * found.eigenvalues, axis=0) / np.linalg.norm(u, axis=0)
    assert np.all(off <= 2 * found.residuals + 1e-14)  # relative to the norm, which is 2 at most
    assert found.residuals.max() <= 2e-4
    np.testing.assert_allclose(u.T @ u, np.eye(3), atol=1e-13)
    assert np.abs(u.T @ root).max() <= 1e-13 * np.linalg.norm(root)


@pytest.mark.parametrize("seed", range(3))
def test_a_part_within_a_packed_whole_has_the_pairs_it_has_alone(seed: int) -> None:
    whole = graph_of(weighted_matrix(1800, seed))
    rng = np.random.default_rng(seed)
    vertices = np.sort(rng.choice(whole.n, 1500, replace=False))
    part = whole.subgraph(vertices)
    label = connected_components(part.adjacency)[1]
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    vertices, part = vertices[kept], part.subgraph(kept)
    options = SolverOptions(devices="host:0", preconditioner="diagonal", tol=1e-8)
    alone = lowest_eigenpairs(part, 3, options, normalized=True)
    with oc.block_csr(whole.adjacency) as packed:
        found = lowest_eigenpairs(part, 3, options, normalized=True, within=lambda: Within(packed, vertices))
    assert found.method == alone.method == "block Lanczos"
    check(part, found, normalized=True, tol=2e-8)
    np.testing.assert_allclose(found.eigenvalues, alone.eigenvalues, atol=1e-12)


def test_a_part_starts_with_the_vectors_and_the_cycle_of_the_whole() -> None:
    size = 50
    image = np.random.default_rng(0).normal(0, 0.1, (size, size))
    for number, (y, x) in enumerate([(10, 10), (12, 36), (36, 14), (38, 38)]):
        image[np.hypot(*np.ogrid[-y : size - y, -x : size - x]) < 7] += 2 + number / 2
    graph = pixel_affinity(features_of(image, "grey", None), check_scales(4, 1.0, None))
    options = replace(HOST, sharp=False)
    whole = lowest_eigenpairs(graph, 2, options, normalized=True, near=Near(np.zeros((graph.n, 0))))
    check(graph, whole, normalized=True)
    kept = np.flatnonzero(image.ravel() < 3.25)  # without the last disc
    part = graph.subgraph(kept)
    near = whole.near.within(kept)
    warm, cold = (lowest_eigenpairs(part, 2, options, normalized=True, near=each) for each in (near, None))
    check(part, warm, normalized=True)
    np.testing.assert_allclose(warm.eigenvalues, cold.eigenvalues, atol=1e-10)
    assert near.cycle is not None and "segment before" in warm.reason and warm.passes < cold.passes
    assert whole.near.within(kept[: graph.n // 3]) is None


def test_segments_on_gpus_have_vectors_in_float32_where_their_tolerance_allows_it() -> None:
    options = SolverOptions(devices="cuda:0", tol=1e-6, sharp=False)
    assert precision_for("block Lanczos", 2, options) == "FDF"
    assert precision_for("block Lanczos", 2, replace(options, precision="FFF")) == "FFF"
    for other in ({"tol": 1e-7}, {"sharp": True}, {"devices": "host:0", "machine": None}):
        assert precision_for("block Lanczos", 2, replace(options, **other)) is None
    assert precision_for("LOBPCG with the diagonal", 2, options) is None


@pytest.mark.parametrize("normalized", [False, True])
def test_small_graphs(normalized: bool) -> None:
    for matrix in (path_matrix(2), path_matrix(3), clique_matrix(5), grid_matrix(7, 9), 1e-9 * weighted_matrix(40)):
        graph = graph_of(csr_array(matrix))
        found = lowest_eigenpairs(graph, 3, HOST, normalized=normalized)
        count = min(3, graph.n - 1)
        assert len(found.eigenvalues) == count
        assert found.vectors.shape == (graph.n, count)
        d = np.diag(graph.degrees) if normalized else np.eye(graph.n)
        expected = eigh(graph.laplacian().toarray(), d, eigvals_only=True)
        assert np.allclose(found.eigenvalues, expected[1 : count + 1], rtol=1e-9, atol=0)
        assert np.abs(found.vectors.T @ np.diag(d)).max() <= 1e-9
        assert found.residuals.max() < 1e-12


@pytest.mark.package("pyamg")
def test_vectors_of_long_paths_are_no_guess() -> None:
    """A residual of 1e-7 says nothing of an eigenvalue of 2e-8: the vector must be a half of a cosine nevertheless."""
    n = 20_000
    found = lowest_eigenpairs(graph_of(path_matrix(n)), 2, HOST)
    cosine = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    cosine /= np.linalg.norm(cosine)
    assert abs(float(cosine @ found.vectors[:, 0])) > 1 - 1e-6
    assert np.isclose(found.eigenvalues[0], 2 - 2 * np.cos(np.pi / n), rtol=1e-4)
    assert "and were made" in found.reason


@pytest.mark.package("pyamg")
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("preconditioner", ["amg", "diagonal"])
def test_parts_that_are_hardly_joined(normalized: bool, preconditioner: str) -> None:
    """As in affinities of images: two pixels like each other, and 1e-30 of that like the rest."""
    matrix = joined(grid_matrix(30, 40), path_matrix(2)).tolil()
    matrix[0, 1200] = matrix[1200, 0] = 1e-30
    graph = graph_of(csr_array(matrix))
    options = SolverOptions(devices="host:0", preconditioner=preconditioner)
    found = lowest_eigenpairs(graph, 2, options, normalized=normalized)
    assert "cannot be told from 0" in found.reason
    assert found.residuals.max() <= 1e-7
    assert abs(found.eigenvalues[0]) < 1e-12
    vector = found.vectors[:, 0]
    assert np.ptp(vector[:1200]) < 1e-3 * np.ptp(vector)
    if not normalized:
        assert np.isclose(found.eigenvalues[1], grid_values(30, 40, 1)[0], rtol=1e-6)


@pytest.mark.package("pyamg")
def test_same_bits_for_a_seed_on_one_and_two_host_devices() -> None:
    graph = graph_of(affinity_matrix(50, 60))
    first = lowest_eigenpairs(graph, 3, SolverOptions(devices="host:0", seed=5))
    np.random.seed(3)
    state = np.random.get_state()[1].copy()
    for devices in ("host:0", ["host:0", "host:1"]):
        again = lowest_eigenpairs(graph, 3, SolverOptions(devices=devices, seed=5))
        assert np.array_equal(again.vectors, first.vectors)
        assert np.array_equal(again.eigenvalues, first.eigenvalues)
    assert np.array_equal(state, np.random.get_state()[1])
    other = lowest_eigenpairs(graph, 3, SolverOptions(devices="host:0", seed=6))
    assert not np.array_equal(other.vectors, first.vectors)


@pytest.mark.package("pyamg")
def test_irregular_graphs_take_the_diagonal_and_say_why() -> None:
    graph = graph_of(irregular_matrix(12), "hubs.graph")
    found = lowest_eigenpairs(graph, 2, HOST)
    assert found.method == DIAGONAL
    assert "operator complexity" in found.reason
    check(graph, found)
    with pytest.raises(ValueError, match=r"does not suit hubs\.graph"):
        lowest_eigenpairs(graph, 2, SolverOptions(devices="host:0", preconditioner="amg"))
    with pytest.raises(TooDenseError):
        SmoothedAggregation(graph.laplacian())


@pytest.mark.package("pyamg")
def test_on_gpus_even_degrees_take_lanczos_and_irregular_ones_the_diagonal() -> None:
    """The choice alone, which needs no GPU: a plan for one is made of its name and a budget."""
    for matrix, normalized, method in (
        (grid_matrix(30, 31), False, "block Lanczos"),
        (irregular_matrix(12), False, DIAGONAL),
        (irregular_matrix(12), True, "block Lanczos"),
    ):
        graph = graph_of(matrix)
        options = SolverOptions(devices="cuda:0", memory_budget="1 GiB")
        way = chosen_way(graph, options, normalized=normalized)
        asked = replace(options, preconditioner="amg")
        if matrix.shape[0] == 930:
            assert chosen_way(graph, asked, normalized=False).method == AMG
        assert way.method == method
        assert way.reason.startswith("on GPUs a pass")


def test_without_pyamg_the_diagonal_is_taken_and_the_gain_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyamg", None)
    graph = graph_of(grid_matrix(30, 31))
    found = lowest_eigenpairs(graph, 2, HOST)
    assert found.method == DIAGONAL
    assert "PyAMG is not installed" in found.reason
    assert tb.install_hint("spectral") in found.reason
    check(graph, found)
    with pytest.raises(ImportError, match="PyAMG is not installed"):
        lowest_eigenpairs(graph, 2, SolverOptions(devices="host:0", preconditioner="amg"))


@pytest.mark.parametrize("spread", [0, 3])
def test_without_pyamg_the_inverse_is_taken_where_its_factor_is_small(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    """Also where weights of six magnitudes leave the Laplacian singular to roundoff, so that a shift beside 0 is factored."""
    monkeypatch.setitem(sys.modules, "pyamg", None)
    upper = triu(torus_matrix(40, 50), format="csr")
    upper.data = 10 ** np.random.default_rng(0).uniform(-spread, spread, upper.nnz)
    graph = graph_of(csr_array(upper + upper.T))
    found = lowest_eigenpairs(graph, 3, HOST)
    assert found.method == "block Lanczos on the inverse" and found.passes < 100
    assert "PyAMG is not installed" in found.reason and "factor of the Laplacian is small" in found.reason
    check(graph, found, tol=1e-12)
    values = eigh(graph.laplacian().toarray(), eigvals_only=True, subset_by_index=(1, 3))
    assert np.allclose(found.eigenvalues, values, rtol=1e-6)
    asked = SolverOptions(devices="host:0", preconditioner="diagonal")
    assert lowest_eigenpairs(graph, 3, replace(asked, tol=1e-3)).method == DIAGONAL


@pytest.mark.package("pyamg")
def test_weights_of_six_magnitudes_take_a_cycle_without_weak_edges() -> None:
    """A torus and a cube on which plain aggregates grow dense: thousands of passes with the diagonal, here some dozens."""
    for sides, most_passes in (((40, 50), 60), ((12, 12, 12), 40)):
        upper = triu(torus_matrix(*sides), format="csr")
        upper.data = 10 ** np.random.default_rng(1).uniform(-3, 3, upper.nnz)
        graph = graph_of(csr_array(upper + upper.T))
        with pytest.raises(TooDenseError):
            SmoothedAggregation(graph.laplacian())
        found = lowest_eigenpairs(graph, 3, HOST)
        assert found.method == AMG and found.passes <= most_passes
        assert "and up to 6 a cycle" in found.reason
        check(graph, found)
        values = eigh(graph.laplacian().toarray(), eigvals_only=True, subset_by_index=(1, 3))
        assert np.allclose(found.eigenvalues, values, rtol=1e-4)
        x = np.random.default_rng(0).standard_normal((graph.n, 20))
        x -= x.mean(axis=0)
        form = x.T @ SmoothedAggregation(graph.laplacian(), is_filtered=True)(x)
        assert np.allclose(form, form.T, rtol=1e-10, atol=1e-12 * np.abs(form).max())
        assert np.linalg.eigvalsh((form + form.T) / 2)[0] > 0


@pytest.mark.package("pyamg")
def test_cycles_are_symmetric_positive_and_save_passes() -> None:
    graph = graph_of(affinity_matrix(40, 50))
    for scaling in (None, np.sqrt(graph.degrees)):
        cycle = SmoothedAggregation(graph.laplacian(), scaling)
        assert 1 < cycle.complexity <= 3
        null = np.ones(graph.n) if scaling is None else scaling
        null = (null / np.linalg.norm(null))[:, None]
        x = np.random.default_rng(0).standard_normal((graph.n, 30))
        x -= null @ (null.T @ x)
        kept = x.copy()
        form = x.T @ cycle(x)
        assert np.array_equal(x, kept)
        assert np.allclose(form, form.T, rtol=1e-10, atol=1e-12 * np.abs(form).max())
        assert np.linalg.eigvalsh((form + form.T) / 2)[0] > 0
    passes = [lowest_eigenpairs(graph, 3, SolverOptions(devices="host:0", preconditioner=p)).passes for p in ("amg", "diagonal")]
    assert 5 * passes[0] < passes[1]


def test_what_did_not_converge_is_never_handed_on() -> None:
    graph = graph_of(grid_matrix(40, 40), "the grid")
    options = SolverOptions(devices="host:0", preconditioner="diagonal", max_passes=5)
    with pytest.raises(oc.errors.NoConvergenceError, match=r"lowest eigenpairs of the grid \(1600 vertices.*max_passes") as error:
        lowest_eigenpairs(graph, 3, options)
    assert error.value.worst > error.value.tol


def test_traces_and_progress() -> None:
    seen: list[int] = []
    options = SolverOptions(devices="host:0", trace=True, progress=lambda done, total, seconds: seen.append(done))
    found = lowest_eigenpairs(graph_of(grid_matrix(30, 31)), 2, options)
    assert isinstance(found.trace, oc.Trace)
    assert seen


def test_what_makes_no_sense() -> None:
    grid = graph_of(grid_matrix(3, 3))
    with pytest.raises(ValueError, match="has 1 vertices"):
        lowest_eigenpairs(graph_of(csr_array((1, 1))), 1, HOST)
    with pytest.raises(ValueError, match="count is 0"):
        lowest_eigenpairs(grid, 0, HOST)
    with pytest.raises(ValueError, match="preconditioner is 'ilu'; give one of 'auto', 'amg', 'diagonal'"):
        lowest_eigenpairs(grid, 1, SolverOptions(preconditioner="ilu"))
    with pytest.raises(ValueError, match=r"vertex 1 of .* has no edges"):
        lowest_eigenpairs(graph_of(csr_array((np.ones(2), ([0, 2], [2, 0])), shape=(3, 3))), 1, HOST)


def test_many_eigenpairs_of_a_graph_are_those_of_lapack() -> None:
    graph = graph_of(grid_matrix(29, 30))
    found = lowest_eigenpairs(graph, 200, SolverOptions(devices="host:0"))
    check(graph, found)
    assert found.method == "LAPACK" and "200 eigenpairs" in found.reason
