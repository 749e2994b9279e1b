"""Fourier transforms over graphs: orthonormal, of the Laplacian, component by component; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.stats
from scipy.sparse.csgraph import laplacian as scipy_laplacian

import ooc_chol as oc
from tests.inside.tensors import fourier as module
from tests.tensor_runs import INVERSE_RTOL, random_graph

RNG = np.random.default_rng(5)
WEIGHTED = random_graph(60, seed=1) * (lambda w: w + w.T)(RNG.random((60, 60)))
#: Two components, of which one is a pair, and three vertices alone; vertices are not in the order of components.
APART = scipy.linalg.block_diag(random_graph(20, 6, seed=2), [[0, 2.0], [2.0, 0]], np.zeros((3, 3)))
ORDER = RNG.permutation(len(APART))
GRAPHS = {"connected": random_graph(70), "weighted": WEIGHTED, "apart": APART[np.ix_(ORDER, ORDER)]}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
every_laplacian = pytest.mark.parametrize("normalized", [True, False])


@every_graph
@every_laplacian
def test_eigenvectors_are_those_of_scipys_laplacian(graph, normalized):
    fourier = oc.GraphFourier(graph, normalized=normalized)
    u, expected = fourier.basis, scipy_laplacian(graph, normed=normalized)
    n = len(graph)
    assert np.abs(u.T @ u - np.eye(n)).max() <= 1e-13
    assert np.abs((u * fourier.eigenvalues) @ u.T - expected).max() <= 1e-13 * np.abs(expected).max()
    assert np.all(np.diff(fourier.eigenvalues) >= 0)


@every_graph
@every_laplacian
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_inverse_gives_back_what_was_transformed(graph, normalized, dtype):
    fourier = oc.GraphFourier(graph, normalized=normalized)
    for shape in ((7, 5), (70, 60), ()):
        x = RNG.standard_normal((len(graph), *shape)).astype(dtype)
        xh = fourier.forward(x)
        back = fourier.inverse(xh)
        assert xh.dtype == back.dtype == dtype and xh.shape == back.shape == x.shape
        assert np.linalg.norm(back - x) <= INVERSE_RTOL[np.dtype(dtype).name] * np.linalg.norm(x)
        assert np.isclose(np.linalg.norm(xh), np.linalg.norm(x), rtol=1e-6)  # unitary


def test_a_graph_with_explicit_zeros_stays_as_it_was():
    """Rows out of order, a duplicate and two zeros: GraphFourier drops, sorts and adds in a copy."""
    data, indices, indptr = np.array([0.0, 1, 1, 0.5, 0.5, 1, 0]), np.array([2, 1, 2, 0, 0, 1, 0]), np.array([0, 2, 5, 7])
    graph = scipy.sparse.csr_array((data.copy(), indices.copy(), indptr.copy()), shape=(3, 3))
    fourier = oc.GraphFourier(graph)
    for kept, before in ((graph.data, data), (graph.indices, indices), (graph.indptr, indptr)):
        assert np.array_equal(kept, before)
    path = np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1)
    assert np.array_equal(fourier.basis, oc.GraphFourier(path).basis)


def test_no_eigenvector_mixes_components():
    fourier = oc.GraphFourier(GRAPHS["apart"])
    for number in range(fourier.labels.max() + 1):
        inside = fourier.labels == number
        touched = (fourier.basis[inside] != 0).any(axis=0)
        assert touched.sum() == inside.sum()
        assert not fourier.basis[np.ix_(~inside, touched)].any()


@every_graph
def test_a_part_is_orthonormal_and_that_of_the_smallest_eigenvalues(graph):
    whole, part = oc.GraphFourier(graph), oc.GraphFourier(graph, n_components=9)
    assert part.basis.shape == (len(graph), 9)
    assert np.abs(part.basis.T @ part.basis - np.eye(9)).max() <= 1e-13
    assert np.allclose(part.eigenvalues, whole.eigenvalues[:9], atol=1e-13)
    x = RNG.standard_normal((len(graph), 4))
    once = part.inverse(part.forward(x))
    assert np.allclose(part.inverse(part.forward(once)), once, atol=1e-13)  # a projection
    assert np.linalg.norm(once) < np.linalg.norm(x)


@every_laplacian
def test_a_part_of_a_large_graph_comes_from_eigsh(normalized, monkeypatch):
    monkeypatch.setattr(module, "_DENSE_ORDER", 100)
    graph = scipy.sparse.csr_array(scipy.linalg.block_diag(random_graph(300, 12, seed=3), random_graph(40, seed=4)))
    part = oc.GraphFourier(graph, normalized=normalized, n_components=12, devices="host:0")
    expected, _ = np.linalg.eigh(scipy_laplacian(graph.toarray(), normed=normalized))
    assert np.allclose(part.eigenvalues, expected[:12], atol=1e-8)
    assert np.abs(part.basis.T @ part.basis - np.eye(12)).max() <= 1e-10
    large = part.labels == part.labels[0]
    assert all(not column[large].any() or not column[~large].any() for column in part.basis.T)


def test_graphs_of_every_form_are_the_same(tmp_path):
    dense = random_graph(30)
    expected = oc.GraphFourier(dense)
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(dense))
    packed = oc.block_csr(scipy.sparse.csr_array(dense))
    for graph in (scipy.sparse.coo_array(dense), scipy.sparse.csc_matrix(dense), dense.astype(bool), packed, path):
        assert np.array_equal(oc.GraphFourier(graph).basis, expected.basis)
    assert not packed.closed
    packed.close()


def spoiled(row, column, value, *, both=True):
    graph = random_graph(20)
    graph[row, column] = value
    if both:
        graph[column, row] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "error", "words"),
    [
        (np.ones((4, 5)), ValueError, "4 x 5"),
        (spoiled(3, 7, -1.0), oc.errors.SparseInputError, r"entry \(3, 7\): the weight is -1"),
        (spoiled(3, 7, np.nan), oc.errors.SparseInputError, r"entry \(3, 7\): the weight is nan"),
        (spoiled(3, 7, np.inf), oc.errors.SparseInputError, "inf"),
        (spoiled(3, 7, 9.0, both=False), oc.errors.SparseInputError, r"entry \(3, 7\).* 9, .*A \+ A.T"),
        (np.eye(4, dtype=complex), TypeError, "complex128"),
        (np.ones(4), TypeError, "1 axes"),
        (object(), TypeError, "object"),
    ],
)
def test_what_is_no_graph_is_refused(graph, error, words):
    with pytest.raises(error, match=words):
        oc.GraphFourier(graph)


@pytest.mark.parametrize("dtype", ["f2", ">f4", ">f8", ">i4", "?", "g"])
@pytest.mark.parametrize("form", ["csr", "coo", "csc", "dia", "dok", "array"])
def test_weights_of_any_type_are_those_of_float64(form, dtype):
    graph = random_graph(9)
    given = graph.astype(dtype) if form == "array" else scipy.sparse.coo_array(graph).asformat(form)
    if form not in ("array", "dok"):
        given.data = given.data.astype(dtype)
    assert np.array_equal(oc.GraphFourier(given).basis, oc.GraphFourier(graph).basis)


@every_laplacian
@pytest.mark.parametrize("power", [-1060, -1030, 1000, 1020, 1023])
def test_weights_may_be_in_any_unit(normalized, power):
    """Beyond the range of eigenvalues there are none to tell."""
    if power == 1023 and not normalized:
        with pytest.raises(ValueError, match="divide all weights"):
            oc.GraphFourier(np.ldexp(GRAPHS["apart"], power - 1), normalized=False)
        return
    found, unit = (oc.GraphFourier(np.ldexp(APART, each), normalized=normalized) for each in (power - 1, -1))
    assert np.array_equal(found.labels, unit.labels) and found.eigenspaces == unit.eigenspaces
    assert np.abs(found.basis - unit.basis).max() <= 1e-12
    assert np.allclose(found.eigenvalues, unit.eigenvalues if normalized else np.ldexp(unit.eigenvalues, power), rtol=1e-12)


def test_a_part_of_far_smaller_weights_has_eigenvectors():
    graph = random_graph(9)
    graph[3:5] *= 1e-310
    graph[:, 3:5] = graph[3:5].T
    assert np.isfinite(oc.GraphFourier(graph).basis).all()


def test_wrong_arguments_are_refused():
    fourier = oc.GraphFourier(random_graph(12))
    for count in (0, 13):
        with pytest.raises(ValueError, match=f"n_components is {count}, but a graph of 12"):
            oc.GraphFourier(random_graph(12), n_components=count)
    for word in ("auto", None, 2):
        with pytest.raises(ValueError, match=f"normalized={word!r}: give True or False"):
            oc.GraphFourier(random_graph(12), normalized=word)
    with pytest.raises(TypeError, match="X holds int64"):
        fourier.forward(np.ones((12, 3), np.int64))
    with pytest.raises(ValueError, match=r"Xh has shape \(11, 3\).* 12 components"):
        fourier.inverse(np.ones((11, 3)))


class SmallGpu:
    """A kind of device that has some memory, and none of it in the host's."""

    is_in_host_memory = False


@pytest.fixture
def gpu_of(monkeypatch):
    """A GPU with so many bytes free, as far as the choice of where to compute looks at it."""

    def gpu_of(free_bytes):
        monkeypatch.setattr(module, "device_kind", lambda name: SmallGpu())
        monkeypatch.setattr(module, "memory_info", lambda name: (free_bytes, free_bytes))
        monkeypatch.setattr(module, "dense_eigenpairs_bytes", lambda name, n: 40 * n * n)

    return gpu_of


def test_a_gpu_computes_where_it_has_the_memory_and_there_is_enough_to_do(gpu_of):
    gpu_of(40 * 600**2)
    where = module._Where(("cuda:0", "cuda:1"), is_asked=False)
    assert [where.dense(n) for n in (511, 512, 600, 601)] == ["host:0", "cuda:0", "cuda:0", "host:0"]


def test_a_gpu_that_was_named_and_has_too_little_memory_is_refused(gpu_of):
    gpu_of(1000)
    with pytest.raises(oc.BudgetError, match=r"memory of cuda:0 for all eigenvectors of 600 vertices: 1000 bytes.*'host'"):
        module._Where(("cuda:0",), is_asked=True).dense(600)


def test_where_eigenvectors_were_computed_is_told():
    assert oc.GraphFourier(random_graph(30), devices="host:0").devices == ("host:0",)
    mostly_alone = scipy.linalg.block_diag(random_graph(5, 5, seed=1), np.zeros((20, 20)))
    assert oc.GraphFourier(mostly_alone, devices="host:0").devices == ("host:0",)
    assert oc.GraphFourier(np.zeros((4, 4)), devices="host:0").devices == ()


def test_the_basis_does_not_depend_on_what_the_library_chose():
    """Of a graph with eigenvalues of multiplicity 2 and 9, and of any sign of the others' eigenvectors."""
    tripartite = np.kron(np.ones((3, 3)) - np.eye(3), np.ones((4, 4)))
    w, v = np.linalg.eigh(scipy_laplacian(tripartite, normed=True))
    expected = module._chosen(w, v)
    rotated = v.copy()
    for space in np.split(np.arange(12), np.flatnonzero(np.diff(w) > 1e-9) + 1):
        rotated[:, space] = (
            v[:, space] @ scipy.stats.ortho_group.rvs(len(space), random_state=3) if len(space) > 1 else -v[:, space]
        )
    assert np.abs(rotated - v).max() > 0.1
    np.testing.assert_allclose(module._chosen(w, rotated), expected, atol=1e-12)
    np.testing.assert_allclose((expected * w) @ expected.T, (v * w) @ v.T, atol=1e-12)


def test_eigenvectors_of_a_multiple_eigenvalue_are_spread():
    """Twins have eigenvectors of their own, two vertices each; of ten pairs of twins none is at home at a pair."""
    star = np.zeros((21, 21))
    star[0, 1:] = star[1:, 0] = 1.0
    fourier = oc.GraphFourier(star)
    inner = fourier.basis[:, np.isclose(fourier.eigenvalues, 1.0)]
    assert inner.shape[1] == 19
    assert np.sort(inner**2, axis=0)[-2:].sum(axis=0).max() < 0.8


def test_a_truth_does_not_depend_on_the_eigenvectors_that_the_transform_chose():
    """Slices of a d-fold eigenvalue have d times the rank in any basis but one; those of simple eigenvalues keep theirs.

    Within a component: a pair that is apart, and vertices alone, share eigenvalues with others and no eigenvectors.
    """
    tripartite = np.kron(np.ones((3, 3)) - np.eye(3), np.ones((4, 4)))  # of multiplicities 1, 9 and 2
    graph = scipy.linalg.block_diag(tripartite, np.ones((2, 2)) - np.eye(2), [[0.0]])
    fourier = oc.GraphFourier(graph)
    x = oc.testing.low_rank_tensor(fourier, 24, 20, 2, dtype=np.float64)
    found = {rank: [] for rank in (2, 4, 18)}
    for value, column, rank in zip(
        fourier.eigenvalues, fourier.basis.T, np.linalg.matrix_rank(fourier.forward(x), tol=1e-9), strict=True
    ):
        found[int(rank)].append((round(float(value), 9), bool(column[:12].any())))
    assert sorted(found[2]) == [(0.0, False), (0.0, False), (0.0, True), (2.0, False)]
    assert found[18] == [(1.0, True)] * 9 and found[4] == [(1.5, True)] * 2
    assert np.isclose(x.var(), 1, rtol=0.2)


def test_of_simple_eigenvalues_a_truth_is_that_of_the_basis():
    fourier = oc.GraphFourier(random_graph(40, degree=12))
    x = oc.testing.low_rank_tensor(fourier, 9, 7, 3, seed=4, dtype=np.float64)
    rng = np.random.default_rng(4)
    left, right = rng.standard_normal((40, 9, 3)), rng.standard_normal((40, 7, 3))
    np.testing.assert_allclose(x, fourier.inverse(left @ right.transpose(0, 2, 1) / np.sqrt(3)), atol=1e-12)
