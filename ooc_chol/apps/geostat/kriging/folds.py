"""Folds of a cross-validation: which observations are left out together."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.data.ordering import morton_order

#: How observations are put into folds.
FoldKind = Literal["random", "tiles", "kmeans"]


def fold_labels(observations: Observations, k: int, *, how: FoldKind = "random", seed: int = 0) -> NDArray[np.intp]:
    """Put observations into ``k`` folds.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    k : int
        Number of folds.
    how : {"random", "tiles", "kmeans"}
        At random, of sizes that differ by at most one; as ``k`` compact pieces of a Morton curve, of such sizes too; or as
        clusters of k-means, rounder but of any size. Compact folds ask for prediction at a distance, as in a gap of a map;
        random ones for prediction among neighbours.
    seed : int
        Seed of random folds and of k-means.

    Returns
    -------
    (n,) array
        Labels 0 to ``k - 1``, none without an observation.

    Raises
    ------
    ValueError
        ``k`` is below 2 or above ``n``, there is no such way, or k-means finds fewer than ``k`` clusters.
    """
    n = observations.n
    if not 2 <= k <= n:
        raise ValueError(f"{k} folds of {n} observations are asked for, but 2 to {n} are possible")
    if how == "kmeans":
        return _clusters(observations, k, seed)
    if how not in ("random", "tiles"):
        raise ValueError(f"how is {how!r}, but there are 'random', 'tiles' and 'kmeans'")
    sequence = np.random.default_rng(seed).permutation(n) if how == "random" else morton_order(observations.coordinates)
    labels = np.empty(n, dtype=np.intp)
    for fold, members in enumerate(np.array_split(sequence, k)):
        labels[members] = fold
    return labels


def _clusters(observations: Observations, k: int, seed: int) -> NDArray[np.intp]:
    """Labels by k-means of the sites."""
    from scipy.cluster.vq import ClusterError, kmeans2  # 0.02 s, which only such folds need

    sites, problem = observations.coordinates, f"k-means finds fewer than {k} clusters of these sites; ask for fewer folds"
    if observations.n - observations.duplicates < k:
        raise ValueError(problem)
    try:
        labels = kmeans2(sites, k, minit="++", seed=np.random.default_rng(seed), missing="raise")[1]
    except ClusterError as error:
        raise ValueError(problem) from error
    return np.asarray(labels, dtype=np.intp)


def as_labels(observations: Observations, folds: int | ArrayLike, how: FoldKind, seed: int) -> NDArray[np.intp]:
    """Labels from 0 on, of each observation."""
    if isinstance(folds, int | np.integer):
        return fold_labels(observations, int(folds), how=how, seed=seed)
    given = np.array(folds)
    if given.shape != (observations.n,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"folds have shape {given.shape} and type {given.dtype}, but a number of folds, or a whole number for each of the "
            f"{observations.n} observations, is needed"
        )
    labels = np.unique(given, return_inverse=True)[1]
    if labels.max() == 0:
        raise ValueError("all observations are in one fold, so that none is left to predict it from")
    return np.asarray(labels, dtype=np.intp)
