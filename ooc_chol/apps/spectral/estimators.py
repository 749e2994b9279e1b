"""Partitions and normalized cuts as estimators of scikit-learn, which work without it, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.spatial import KDTree

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.shared.estimators import BaseEstimator, ClusterMixin, refuse_gaps
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.habits import OF_ESTIMATORS, OF_PARTITIONS, OF_SEGMENTATIONS
from ooc_chol.apps.spectral.images.normalized import normalized_cut
from ooc_chol.apps.spectral.partitions.kway import partition
from ooc_chol.apps.spectral.results import Partition, Segmentation

if TYPE_CHECKING:
    from sklearn.utils import Tags

#: Samples whose largest feature is within so many powers of two from 1 are compared as they are.
_POWERS = 400
_AFFINITIES = ("precomputed", "nearest_neighbors")

try:
    from sklearn.utils.validation import check_non_negative, validate_data
except ImportError:
    validate_data = None


def _checked(estimator: SpectralPartition, X: Any) -> Any:
    """An array or matrix as scikit-learn checks it, where that is installed; packed matrices, graphs and paths as they are."""
    is_matrix = not isinstance(X, Graph | oc.BlockCSR | str | PathLike) and type(X).__module__.partition(".")[0] != "networkx"
    refuse_gaps(X=X)
    if validate_data is None or not is_matrix:
        return X
    of_samples = estimator.affinity == "precomputed"
    checked = validate_data(estimator, X, accept_sparse="csr" if of_samples else False, dtype=np.float64, ensure_min_samples=2)
    if of_samples:
        check_non_negative(checked, type(estimator).__name__)
    return checked


def neighbour_graph(sites: ArrayLike, n_neighbors: int) -> csr_array:
    """Samples joined where one is among the nearest of the other: by an edge of 2 where each is, of 1 else; (n, n)."""
    sites = tb.plain_array("X", sites, np.float64)
    if sites.ndim != 2 or not len(sites) or not np.all(np.isfinite(sites)):
        raise ValueError(f"X has shape {sites.shape}; give finite numbers, a row for each sample")
    n = len(sites)
    count = min(tb.whole_number(n_neighbors, "n_neighbors", least=1), n - 1)
    power = math.frexp(float(np.abs(sites).max(initial=0.0)))[1]
    if abs(power) > _POWERS:  # squares of distances are numbers of float64
        sites = np.ldexp(sites, -power)
    # of samples at the same place any may come first, and not always the sample itself
    _, nearest = KDTree(sites).query(sites, k=[*range(1, count + 2)])
    others = nearest != np.arange(n)[:, None]
    others &= np.cumsum(others, axis=1) <= count
    rows = np.nonzero(others)[0]
    directed = csr_array((np.ones(len(rows)), (rows, nearest[others])), shape=(n, n))
    return csr_array(directed + directed.T)


class SpectralPartition(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters of equal, or given, size with a small cut: :func:`partition` as an estimator.

    Parameters
    ----------
    n_parts : int
        Clusters.
    affinity : {"precomputed", "nearest_neighbors"}
        Contents of ``X``: the affinity of samples with samples, or their features, of which the nearest neighbours are joined.
    n_neighbors : int
        Neighbours of each sample that it is joined with, where affinities are not precomputed.
    target_sizes : (n_parts,) array_like, optional
        Shares of 1; by default all clusters have the same size.
    balance, vectors, search, refine, seed
        As of :func:`partition`.
    tol, preconditioner, precision, max_passes, devices, memory_budget, host_budget
        Options of the eigenvectors, as of :func:`bisect`.

    Attributes
    ----------
    labels_ : (n,) array of int32
        The cluster of every sample.
    partition_ : Partition
        Cut, sizes, eigenvalues and the report.
    n_features_in_ : int
        Columns of an array or matrix X; only where scikit-learn is installed.

    Notes
    -----
    A precomputed ``X`` is the adjacency of a graph, or an affinity: symmetric, not negative. Entries are weights of edges: large
    ones hold samples together. Its diagonal is not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.spectral import SpectralPartition
    >>> x = np.array([0.0, 1.0, 0.1, 1.1])
    >>> labels = SpectralPartition(2).fit_predict(
    ...     np.exp(-((x[:, None] - x) ** 2))
    ... )
    >>> bool(labels[0] == labels[2] != labels[1] == labels[3])
    True
    """

    labels_: NDArray[np.int32]
    partition_: Partition

    @tb.answering(OF_PARTITIONS | OF_ESTIMATORS | {"vertex_weights": "give them to fit"})
    def __init__(
        self,
        n_parts: int = 2,
        *,
        affinity: str = "precomputed",
        n_neighbors: int = 10,
        target_sizes: ArrayLike | None = None,
        balance: float = 0.0,
        vectors: int = 3,
        search: int = 60,
        refine: bool = True,
        seed: int = 0,
        tol: float = 1e-7,
        preconditioner: str = "auto",
        precision: str | oc.Precision | None = None,
        max_passes: int | None = None,
        devices: str | Sequence[str] | int | None = None,
        memory_budget: int | str | None = None,
        host_budget: int | str | None = None,
    ) -> None:
        self.n_parts = n_parts
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.target_sizes = target_sizes
        self.balance = balance
        self.vectors = vectors
        self.search = search
        self.refine = refine
        self.seed = seed
        self.tol = tol
        self.preconditioner = preconditioner
        self.precision = precision
        self.max_passes = max_passes
        self.devices = devices
        self.memory_budget = memory_budget
        self.host_budget = host_budget

    def fit(self, X: Any, y: None = None, vertex_weights: ArrayLike | None = None) -> Self:
        """Cut the graph.

        Parameters
        ----------
        X : (n, n) array or sparse matrix, or anything that :func:`as_graph` takes; or (n, d) array
            Affinity, or adjacency; or features, with ``affinity="nearest_neighbors"``.
        y : None
            Not looked at.
        vertex_weights : (n,) array_like, optional
            Positive weights of the samples.

        Returns
        -------
        SpectralPartition
            Itself, with ``labels_``.

        Raises
        ------
        ValueError
            X is not square or symmetric, or a parameter makes no sense.
        TypeError
            X is no graph.
        """
        if self.affinity not in _AFFINITIES:
            raise ValueError(f"affinity is {self.affinity!r:.40}; give one of {', '.join(map(repr, _AFFINITIES))}")
        checked = _checked(self, X)
        own = {"affinity", "n_neighbors"}
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in own}
        source = checked if self.affinity == "precomputed" else neighbour_graph(checked, self.n_neighbors)
        self.partition_ = partition(source, vertex_weights=vertex_weights, **options)
        self.labels_ = self.partition_.labels
        return self

    def __sklearn_tags__(self) -> Tags:
        """A precomputed X is an affinity of samples with samples, sparse or not."""
        tags = super().__sklearn_tags__()
        of_samples = self.affinity == "precomputed"
        tags.input_tags.pairwise = tags.input_tags.positive_only = tags.input_tags.sparse = of_samples
        return tags


class NormalizedCut(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Segments of an image, or clusters of an affinity, by normalized cuts: :func:`normalized_cut` as an estimator.

    Parameters
    ----------
    radius, sigma_i, sigma_x, max_ncut, n_segments, max_depth, min_size, split_points, vectors, search, features, seed
        As of :func:`normalized_cut`.
    tol, preconditioner, precision, max_passes, devices, memory_budget, host_budget
        Options of the eigenvectors, as of :func:`bisect`.

    Attributes
    ----------
    labels_ : array of int32
        The segment of every pixel, in the shape of the image, or the cluster of every sample of an affinity, (n,).
    segmentation_ : Segmentation
        Cuts, the tree of splits and the report.

    Notes
    -----
    ``X`` is an image, or a sparse affinity: see :func:`normalized_cut`. Without ``n_segments`` their number follows from
    ``max_ncut``.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.spectral import NormalizedCut
    >>> image = np.zeros((12, 12), np.uint8)
    >>> image[3:9, 3:9] = 200
    >>> labels = NormalizedCut(
    ...     radius=2, sigma_i=60, max_ncut=0.1
    ... ).fit_predict(image)
    >>> bool(np.array_equal(labels == 1, image == 200))
    True
    """

    labels_: NDArray[np.int32]
    segmentation_: Segmentation

    @tb.answering(OF_SEGMENTATIONS | OF_ESTIMATORS | {"mask": "give it to fit"})
    def __init__(
        self,
        *,
        radius: float = 5,
        sigma_i: float | None = None,
        sigma_x: float | None = None,
        max_ncut: float | None = None,
        n_segments: int | None = None,
        max_depth: int | None = None,
        min_size: int = 1,
        split_points: int | None = None,
        vectors: int = 2,
        search: int | None = None,
        features: str | ArrayLike = "grey",
        seed: int = 0,
        tol: float = 1e-7,
        preconditioner: str = "auto",
        precision: str | oc.Precision | None = None,
        max_passes: int | None = None,
        devices: str | Sequence[str] | int | None = None,
        memory_budget: int | str | None = None,
        host_budget: int | str | None = None,
    ) -> None:
        self.radius = radius
        self.sigma_i = sigma_i
        self.sigma_x = sigma_x
        self.max_ncut = max_ncut
        self.n_segments = n_segments
        self.max_depth = max_depth
        self.min_size = min_size
        self.split_points = split_points
        self.vectors = vectors
        self.search = search
        self.features = features
        self.seed = seed
        self.tol = tol
        self.preconditioner = preconditioner
        self.precision = precision
        self.max_passes = max_passes
        self.devices = devices
        self.memory_budget = memory_budget
        self.host_budget = host_budget

    def fit(self, X: Any, y: None = None, mask: ArrayLike | None = None) -> Self:
        """Segment the image.

        Parameters
        ----------
        X : (h, w) or (h, w, channels) array, path, or sparse matrix
            An image, or an affinity.
        y : None
            Not looked at.
        mask : (h, w) array_like, optional
            Where it is true, or not zero, a pixel takes part; others have label -1.

        Returns
        -------
        NormalizedCut
            Itself, with ``labels_``.

        Raises
        ------
        ValueError
            The image, the affinity or a parameter makes no sense.
        TypeError
            X is neither.
        """
        self.segmentation_ = normalized_cut(X, mask=mask, **self.get_params(deep=False))
        self.labels_ = self.segmentation_.labels
        return self
