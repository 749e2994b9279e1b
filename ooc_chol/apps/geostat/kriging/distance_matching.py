"""Folds whose held-out values lie as far from the others as sites to predict lie from all data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

#: Numbers of clusters that are tried, from that of the folds up to one for every second site.
_TRIALS = 24

#: Steps of k-means.
_STEPS = 10

_Array = NDArray[np.float64]
_Labels = NDArray[np.intp]


def matched_labels(places: _Array, distances: _Array, k: int, seed: int) -> _Labels:
    """Folds whose distances to the nearest remaining site have the distribution of ``distances``, as nearly as clusters allow.

    Random folds, and clusters of all sizes from one for each fold to pairs; of these the ones of least Wasserstein distance.
    The clusters of one trial are dealt out to the folds along the first principal axis, so that neighbours go to different ones.
    """
    rng = np.random.default_rng(seed)
    best = _random_labels(len(places), k, rng)
    least = wasserstein(held_out_distances(places, best), distances)
    for count in np.unique(np.geomspace(k, max(k, len(places) // 2), _TRIALS).astype(int)):
        labels = _dealt_out(places, _clusters(places, int(count), rng), k)
        if labels is None:
            continue
        distance = wasserstein(held_out_distances(places, labels), distances)
        if distance < least:
            best, least = labels, distance
    return best


def held_out_distances(places: _Array, labels: _Labels) -> _Array:
    """From each site to the nearest one outside its fold, shape ``(n,)``."""
    distances = np.empty(len(places))
    for fold in range(labels.max() + 1):
        inside = labels == fold
        distances[inside] = places_tree(places[~inside]).query(places[inside])[0]
    return distances


def places_tree(places: _Array) -> cKDTree:
    """The tree that finds nearest places."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree  # 0.1 s, which only folds by distance need

    return cKDTree(places)


def wasserstein(first: _Array, second: _Array) -> float:
    """Area between two empirical distribution functions, in the unit of the values."""
    values = np.sort(np.concatenate([first, second]))
    shares = [np.searchsorted(np.sort(each), values[:-1], side="right") / len(each) for each in (first, second)]
    return float(np.sum(np.abs(shares[0] - shares[1]) * np.diff(values)))


def _random_labels(n: int, k: int, rng: np.random.Generator) -> _Labels:
    """Folds at random, of sizes that differ by at most one."""
    return np.asarray(rng.permutation(n) % k, dtype=np.intp)


def _clusters(places: _Array, count: int, rng: np.random.Generator) -> _Labels:
    """At most so many clusters by some steps of k-means, from centres at random sites.

    SciPy's k-means compares every site with every centre, which takes minutes for many of both.
    """
    centres = places[rng.permutation(len(places))[:count]]
    for _ in range(_STEPS):
        labels = np.asarray(places_tree(centres).query(places)[1], dtype=np.intp)
        sizes = np.bincount(labels, minlength=len(centres))
        sums = np.stack([np.bincount(labels, axis, minlength=len(centres)) for axis in places.T], axis=1)
        # a centre that no site is nearest to is one fewer
        centres = sums[sizes > 0] / sizes[sizes > 0, np.newaxis]
    return np.asarray(places_tree(centres).query(places)[1], dtype=np.intp)


def _dealt_out(places: _Array, clusters: _Labels, k: int) -> _Labels | None:
    """Folds of whole clusters: the large ones alone, the others in turn along the first principal axis; None if one is empty."""
    _, members, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    if len(sizes) < k:
        return None
    is_large = sizes >= len(places) / k
    fold = np.empty(len(sizes), dtype=np.intp)
    alone = int(is_large.sum())
    fold[is_large] = np.arange(alone)
    if alone < k:
        centred = places - places.mean(axis=0)
        along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
        centres = np.bincount(members, along) / sizes
        rest = np.flatnonzero(~is_large)
        fold[rest[np.argsort(centres[rest], kind="stable")]] = alone + np.arange(len(rest)) % (k - alone)
    labels = fold[members]
    return labels if len(np.unique(labels)) == k else None
