"""Folds of a cross-validation: which observations are left out together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.observations import Observations, as_sites, check_is_observations
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.kriging.distance_matching import held_out_distances, matched_labels, places_tree, wasserstein

#: How a number of folds is made of the places of the observations alone.
FoldKind = Literal["random", "tiles", "kmeans"]

#: All ways of :func:`folds`.
FOLD_WAYS = (*get_args(FoldKind), "distance", "gaps")

#: Number of folds when none is given.
FOLDS = 10


@dataclass(frozen=True, eq=False)
class Folds:
    """Which observations are predicted together, and which others are left out with them; made by :func:`folds`.

    Parameters
    ----------
    labels : (n,) array
        Fold of each observation, 0 to ``n_folds - 1``: it is predicted once, from what its fold does not leave out.
    places : (n, d) array
        Coordinates of the observations.
    buffer : float
        Observations nearer than this to one of a fold are left out with it, in the unit of the coordinates; 0 leaves out the
        fold alone.
    site_distances : (m,) array or None
        Distances from the sites to predict to the nearest observation, which those of the folds are to match.
    """

    labels: NDArray[np.intp]
    places: NDArray[np.float64]
    buffer: float = 0.0
    site_distances: NDArray[np.float64] | None = None

    __repr__ = tb.brief_repr

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.labels.max()) + 1

    def left_out(self) -> Iterator[NDArray[np.intp]]:
        """Indices, ascending, of what each fold leaves out: its own observations, and those nearer to them than the buffer."""
        order = np.argsort(self.labels, kind="stable")
        tree = places_tree(self.places) if self.buffer > 0 else None
        for own in np.split(order, np.cumsum(np.bincount(self.labels))[:-1]):
            if tree is None:
                yield own
            else:
                # a distance equal to the buffer is outside
                near = tree.query_ball_point(self.places[own], np.nextafter(self.buffer, 0.0))
                yield np.unique(np.concatenate([own, *(np.asarray(each, dtype=np.intp) for each in near)]))

    @cached_property
    def distances(self) -> NDArray[np.float64]:
        """From each observation to the nearest one that its fold does not leave out, shape ``(n,)``; infinite where none is."""
        if self.buffer == 0.0:
            return held_out_distances(self.places, self.labels)
        found = np.full(len(self.places), np.inf)
        order = np.argsort(self.labels, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(self.labels))[:-1])
        for own, out in zip(members, self.left_out(), strict=True):
            if len(out) < len(self.places):
                found[own] = places_tree(np.delete(self.places, out, axis=0)).query(self.places[own])[0]
        return found

    @property
    def mismatch(self) -> float | None:
        """Wasserstein distance of :attr:`distances` and ``site_distances`` over the mean of these: 0 where they agree."""
        if self.site_distances is None:
            return None
        return wasserstein(self.distances, self.site_distances) / float(np.mean(self.site_distances))


def folds(
    observations: Observations,
    k: int | None = None,
    *,
    how: FoldKind | Literal["distance", "gaps"] = "random",
    sites: ArrayLike | None = None,
    buffer: float | None = None,
    seed: int = 0,
) -> Folds:
    """Make folds that ask a cross-validation for the kind of prediction that is wanted.

    Parameters
    ----------
    observations : Observations
        Values at sites, in any order.
    k : int, optional
        Number of folds; when not given 10, and with ``how="distance"`` every observation is a fold of its own.
    how : {"random", "tiles", "kmeans", "distance", "gaps"}
        As :func:`fold_labels`; leaving out, too, what is nearer than ``buffer`` to the observation, or to the cluster of
        k-means, that is predicted; or matching the distances at which ``sites`` are predicted.
    sites : (m, d) array, optional
        With ``how="gaps"``: Cartesian coordinates of the sites to predict. Those at places of observations are left out of the
        comparison.
    buffer : float, optional
        With ``how="distance"``: the least distance from what is predicted to what predicts it, in the unit of the coordinates.
    seed : int
        Seed of random folds and of k-means.

    Returns
    -------
    Folds
        For :func:`cross_validate`. With ``how="gaps"`` its ``mismatch`` says how well the distances are matched.

    Raises
    ------
    ValueError
        ``k`` is below 2 or above ``n``, there is no such way, or what a way needs is not given, or is given to another one.

    Notes
    -----
    ``"gaps"`` is nearest-neighbour distance matching by clusters. It follows Milà, Mateu, Pebesma and Meyer (2022, Methods in
    Ecology and Evolution 13), and kNNDM of Linnenbrink, Milà, Ludwig and Meyer (2024, Geoscientific Model Development 17).
    Trials are random folds and clusters of k-means of 24 sizes, merged into ``k`` folds. Those are taken whose distances to
    the nearest remaining observation are nearest in distribution, by Wasserstein's distance, to those of the sites. Other
    than there, clusters are made by k-means alone, no fold is limited in size, and random folds are one of the trials instead
    of the outcome of a test.

    ``"distance"`` without ``k`` is leave-one-out with a buffer (Le Rest, Pinaud, Monestiez, Chadoeuf and Bretagnolle 2014,
    Global Ecology and Biogeography 23).

    Examples
    --------
    >>> from ooc_chol.apps import geostat
    >>> places = np.random.default_rng(0).uniform(size=(400, 2))
    >>> observations = geostat.make_observations(places, places[:, 0])
    >>> # beyond a corner of the data
    >>> gap = np.random.default_rng(1).uniform(1.0, 1.2, size=(50, 2))
    >>> near, far = (
    ...     folds(observations, how="random"),
    ...     folds(observations, how="gaps", sites=gap),
    ... )
    >>> bool(np.median(far.distances) > 2 * np.median(near.distances))
    True
    """
    check_is_observations(observations)
    if how not in FOLD_WAYS:
        raise ValueError(f"how is {how!r}, but there are {', '.join(FOLD_WAYS)}")
    if (sites is None) == (how == "gaps"):
        raise ValueError(
            "how='gaps' needs the sites to predict" if sites is None else f"sites are for how='gaps', but how is {how!r}"
        )
    if (buffer is None) == (how == "distance"):
        raise ValueError("how='distance' needs a buffer" if buffer is None else f"a buffer is for how='distance', not {how!r}")
    places = observations.places
    if how == "distance":
        assert buffer is not None, "looked at above"
        return _buffered(observations, k, buffer, seed)
    if how == "gaps":
        assert sites is not None, "looked at above"
        return _matched(observations, FOLDS if k is None else k, as_sites(sites), seed)
    return Folds(fold_labels(observations, FOLDS if k is None else k, how=how, seed=seed), places)


def _buffered(observations: Observations, k: int | None, buffer: float, seed: int) -> Folds:
    """Every observation, or ``k`` clusters, with what is nearer than the buffer."""
    if not (math.isfinite(buffer) and buffer > 0):
        raise ValueError(f"buffer is {buffer}, but a positive distance is needed")
    n = observations.n
    labels = np.arange(n) if k is None else fold_labels(observations, k, how="kmeans", seed=seed)
    return Folds(labels, observations.places, buffer)


def _matched(observations: Observations, k: int, sites: NDArray[np.float64], seed: int) -> Folds:
    """Folds that match the distances of sites, but of those at places of observations."""
    places, n = observations.places, observations.n
    if sites.shape[1] != places.shape[1]:
        raise ValueError(f"the sites have {sites.shape[1]} coordinates, but the observations {places.shape[1]}")
    if not 2 <= k <= n:
        raise ValueError(f"{k} folds of {n} observations are asked for, but 2 to {n} are possible")
    distances = places_tree(places).query(sites)[0]
    distances = distances[distances > 0]
    if not len(distances):
        raise ValueError(f"all {len(sites)} sites are places of observations: there is no distance to match")
    return Folds(matched_labels(places, distances, k, seed), places, site_distances=distances)


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
    check_is_observations(observations)
    n = observations.n
    if not 2 <= k <= n:
        raise ValueError(f"{k} folds of {n} observations are asked for, but 2 to {n} are possible")
    if how == "kmeans":
        return _clusters(observations, k, seed)
    if how not in ("random", "tiles"):
        raise ValueError(f"how is {how!r}, but there are 'random', 'tiles' and 'kmeans'")
    sequence = np.random.default_rng(seed).permutation(n) if how == "random" else morton_order(observations.places)
    labels = np.empty(n, dtype=np.intp)
    for fold, members in enumerate(np.array_split(sequence, k)):
        labels[members] = fold
    return labels


def _clusters(observations: Observations, k: int, seed: int) -> NDArray[np.intp]:
    """Labels by k-means of the sites."""
    with tb.guarded_imports():
        from scipy.cluster.vq import ClusterError, kmeans2  # 0.02 s, which only such folds need

    sites, problem = observations.places, f"k-means finds fewer than {k} clusters of these sites; ask for fewer folds"
    if observations.n - observations.duplicates < k:
        raise ValueError(problem)
    try:
        labels = kmeans2(sites, k, minit="++", seed=np.random.default_rng(seed), missing="raise")[1]
    except ClusterError as error:
        raise ValueError(problem) from error
    return np.asarray(labels, dtype=np.intp)


def as_folds(observations: Observations, given: int | ArrayLike | Folds, how: FoldKind, seed: int) -> Folds:
    """Folds as they are given, or of a number, or of a whole number for each observation."""
    if isinstance(given, Folds):
        if not np.array_equal(given.places, observations.places):
            raise ValueError("the folds were made of other observations, or of these in another order")
        return given
    if isinstance(given, int | np.integer):
        return Folds(fold_labels(observations, int(given), how=how, seed=seed), observations.places)
    labels = tb.plain_array("folds", given)
    if labels.shape != (observations.n,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"folds have shape {labels.shape} and type {labels.dtype}, but a number of folds, or a whole number for each of the "
            f"{observations.n} observations, is needed"
        )
    labels = np.unique(labels, return_inverse=True)[1]
    if labels.max() == 0:
        raise ValueError("all observations are in one fold, so that none is left to predict it from")
    return Folds(np.asarray(labels, dtype=np.intp), observations.places)
