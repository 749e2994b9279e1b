"""Eigenpairs, singular triplets, partitions, segments, imputation and log-determinants beside their peers, whole calls.

    python -m benchmarks systems --devices host:0 --name host-2-cores
    python -m benchmarks systems --devices cuda:0 --name h200

All are given the same data in host memory, and calls take turns in one process. A line is one case: for each method the first
call, the median of the others, and how good its result is, in the unit that the line names. Peers are SciPy,
CuPy on a GPU, scikit-learn, scikit-image and SuperLU, with the options that their guides show.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array, kronsum, random_array

import ooc_chol as oc
from benchmarks.running import Later, Options, seconds_of
from benchmarks.segments import image_of
from ooc_chol.apps import imputation, spectral

FOLDER = "systems"
cp, cupyx = map(Later, ("cupy", "cupyx"))
cupy_sparse, cupy_linalg = map(Later, ("cupyx.scipy.sparse", "cupyx.scipy.sparse.linalg"))


class Case(NamedTuple):
    """Data that all methods of a case are given, and how their results are judged."""

    size: str
    methods: dict[str, Callable[[], Any]]
    judged: Callable[[Any], float]
    unit: str


def _residual(a: Any, values: NDArray[Any], vectors: NDArray[Any]) -> float:
    """Largest residual of pairs over the largest of their values."""
    return float(np.linalg.norm(a @ vectors - vectors * values, axis=0).max() / np.abs(values).max())


def _pairs(a: csr_array, k: int, which: str, device: str, **more: Any) -> Case:
    """The ``k`` pairs of one end, to 1e-8."""
    from scipy.sparse.linalg import eigsh

    methods: dict[str, Callable[[], Any]] = {
        "ours": lambda: tuple(oc.eigsh(a, k=k, which=which, tol=1e-8, devices=device, **more)),
        "SciPy": lambda: eigsh(a, k, which=which, tol=1e-8),
    }
    if which == "SA":
        methods["SciPy, sigma=-1e-3"] = lambda: eigsh(a, k, sigma=-1e-3, which="LM", tol=1e-8)
        del methods["SciPy"]  # which takes minutes
    if device.startswith("cuda") and which != "SA":
        methods["CuPy"] = lambda: [each.get() for each in cupy_linalg.eigsh(cupy_sparse.csr_matrix(a), k, which=which, tol=1e-8)]
    return Case(f"n = {a.shape[0]:,}, {a.nnz:,} entries, k = {k}", methods, lambda found: _residual(a, *found), "residual")


def graph_pairs(device: str) -> Case:
    """Eight pairs of largest magnitude of an R-MAT graph of scale 16."""
    with oc.block_csr(oc.testing.rmat(16)) as packed:
        a = packed.tocsr()
    return _pairs(csr_array(a, dtype=np.float64), 8, "LM", device)


def small_pairs(device: str) -> Case:
    """Six of the largest pairs of a random symmetric matrix of order 1,000."""
    half = random_array((1000, 1000), density=0.01, rng=np.random.default_rng(1), format="csr")
    return _pairs(csr_array(half + half.T), 6, "LA", device)


def grid_laplacian(rows: int, columns: int) -> csr_array:
    """The Laplacian of a grid with four neighbours."""
    paths = [diags_array([1.0, 1.0], offsets=[-1, 1], shape=(each, each)) for each in (rows, columns)]
    adjacency = csr_array(kronsum(*paths))
    return csr_array(diags_array(np.asarray(adjacency.sum(axis=1)).ravel()) - adjacency)


def low_pairs(device: str) -> Case:
    """The six lowest pairs of the Laplacian of a grid of 200 x 200, whose null vector is known."""
    a = grid_laplacian(200, 200)
    return _pairs(a, 6, "SA", device, null=np.ones(a.shape[0]))


def triplets(device: str) -> Case:
    """Six triplets of a random sparse matrix of 40,000 x 10,000."""
    from scipy.sparse.linalg import svds

    a = csr_array(random_array((40000, 10000), density=1e-3, rng=np.random.default_rng(2), format="csr"))
    methods: dict[str, Callable[[], Any]] = {
        "ours": lambda: tuple(oc.svds(a, k=6, tol=1e-8, devices=device)),
        "SciPy": lambda: svds(a, 6, tol=1e-8),
    }
    if device.startswith("cuda"):
        methods["CuPy"] = lambda: [each.get() for each in cupy_linalg.svds(cupy_sparse.csr_matrix(a), 6, tol=1e-8)]

    def judged(found: Any) -> float:
        u, s, vt = found
        return float(np.linalg.norm(a @ vt.T - u * s, axis=0).max() / s.max())

    return Case("40,000 x 10,000, k = 6", methods, judged, "residual")


def parts(device: str) -> Case:
    """A mesh of about 20,000 places into eight parts."""
    from scipy.spatial import Delaunay
    from sklearn.cluster import spectral_clustering

    places = np.random.default_rng(3).random((20000, 2))
    corners = Delaunay(places).simplices
    edges = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    ones = np.ones(len(edges))
    graph = csr_array((ones, edges.T), shape=(len(places),) * 2)
    graph = csr_array(((graph + graph.T) > 0).astype(np.float64))
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)

    def cut(labels: NDArray[Any]) -> float:
        upper = graph.tocoo()
        return float(np.count_nonzero(labels[upper.row] != labels[upper.col]) / 2)

    how = {"eigen_solver": "amg", "assign_labels": "cluster_qr", "random_state": 0}
    return Case(
        f"{graph.shape[0]:,} vertices, {graph.nnz // 2:,} edges",
        {
            "ours": lambda: spectral.partition(graph, 8, devices=device).labels,
            "scikit-learn, amg": lambda: spectral_clustering(graph, n_clusters=8, **how),
        },
        cut,
        "edges cut",
    )


def segments(device: str) -> Case:
    """Coins of 240 x 160 pixels into segments."""
    from skimage import graph as of_regions
    from skimage import segmentation

    image = image_of("coins", "240x160")

    def skimage() -> NDArray[Any]:
        labels = segmentation.slic(image / 255, n_segments=400, compactness=0.1, start_label=1, channel_axis=None)
        regions = of_regions.rag_mean_color(image[..., None].repeat(3, axis=2), labels, mode="similarity")
        return np.asarray(of_regions.cut_normalized(labels, regions))

    return Case(
        "240 x 160 pixels",
        {"ours": lambda: spectral.normalized_cut(image, devices=device).labels, "scikit-image, 400 superpixels": skimage},
        lambda labels: float(len(np.unique(labels))),
        "segments",
    )


def imputed(device: str) -> Case:
    """Slices of 24 x 24 of rank 3 at 200 places, of which 80 % are observed."""
    from sklearn.impute import KNNImputer

    graph = imputation.neighbour_graph(np.random.default_rng(0).random((200, 2)), 8)
    true = oc.testing.low_rank_tensor(graph, 24, 24, 3)
    mask = oc.testing.random_mask(true.shape, 0.8)
    gaps = np.where(mask[:, None, None], true, np.nan)
    weights = np.asarray(graph.todense()) * mask[None, :]

    def neighbours() -> NDArray[Any]:
        means = weights @ np.where(mask[:, None, None], true, 0.0).reshape(200, -1) / weights.sum(axis=1, keepdims=True)
        return np.where(mask[:, None, None], true, means.reshape(true.shape))

    def nearest() -> NDArray[Any]:
        rows = gaps.reshape(200, -1)
        basis = np.linalg.eigh(np.asarray(graph.todense()))[1][:, -8:]  # places by what the graph tells of them
        return KNNImputer(n_neighbors=8).fit_transform(np.hstack([basis, rows]))[:, 8:].reshape(true.shape)

    return Case(
        "200 x 24 x 24, rank 3",
        {"ours": lambda: oc.impute(gaps, None, graph, devices=device).tensor, "neighbours": neighbours, "scikit-learn": nearest},
        lambda found: float(imputation.relative_error(found, true, ~mask)),
        "error",
    )


def determinant(device: str) -> Case:
    """The log-determinant of a Gaussian Markov random field on a grid, and its gradient by each entry, beside the theory's.

    Every call has a precision matrix of its own, of one pattern.
    """
    from scipy.sparse.linalg import splu

    import ooc_chol.diff.torch as diff

    is_gpu = device.startswith("cuda")
    side, shifts = 1000 if is_gpu else 300, count(1)
    laplacian = grid_laplacian(side, side)
    waves = 2 - 2 * np.cos(np.pi * np.arange(side) / side)

    def field() -> tuple[csr_array, float]:
        """A precision matrix, and the log of its determinant."""
        shift = 0.01 * next(shifts)
        return csr_array(laplacian + shift * eye_array(side * side)), float(np.log(waves[:, None] + waves + shift).sum())

    def superlu() -> tuple[float, float]:
        a, exact = field()
        factor = splu(a.tocsc(), options={"SymmetricMode": True}, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0)
        return float(np.log(np.abs(factor.U.diagonal())).sum()), exact

    def with_gradient(on: str) -> tuple[float, float]:
        a, exact = field()
        matrix = diff.CSR.of(a).to(on).detach().requires_grad_()
        value = diff.logdet(matrix)
        value.backward()
        return float(value.detach()), exact

    methods: dict[str, Callable[[], Any]] = {"ours, with the gradient": lambda: with_gradient("cuda" if is_gpu else "cpu")}
    methods["ours on the host" if is_gpu else "SuperLU, the value alone"] = (lambda: with_gradient("cpu")) if is_gpu else superlu
    return Case(f"{side * side:,} unknowns", methods, lambda found: abs(found[0] / found[1] - 1), "difference")


CASES: dict[str, Callable[[str], Case]] = {
    "eigsh small": small_pairs,
    "eigsh graph": graph_pairs,
    "eigsh low": low_pairs,
    "svds": triplets,
    "partition": parts,
    "segments": segments,
    "impute": imputed,
    "logdet": determinant,
}
TAKES = {"devices": "host:0", "cases": tuple(CASES), "repeats": 3}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """All cases, each method in turn."""
    options.about = {"devices": list(options.devices)}
    for name in options.cases:
        case = CASES[name](options.device)
        seconds: dict[str, list[float]] = {method: [] for method in case.methods}
        found: dict[str, float] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(options.repeats + 1):
                for method, call in case.methods.items():
                    each, result = seconds_of(call)
                    seconds[method].append(each)
                    found[method] = case.judged(result)
        yield {
            "measured": name,
            "size": case.size,
            "first": {method: each[0] for method, each in seconds.items()},
            "again": {method: median(each[1:]) for method, each in seconds.items()},
            case.unit: found,
        }
