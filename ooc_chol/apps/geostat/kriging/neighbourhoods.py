"""Which data a prediction is made from: groups of sites that lie together, and the neighbours that each group shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import coarse_to_fine_order

if TYPE_CHECKING:
    from scipy.spatial import cKDTree  # 0.03 s, which only neighbourhoods need

#: Parts of a spread neighbourhood: from every so many of the data, evenly over all of them, this share of the neighbours; the
#: rest are the nearest of all data.
_FAR = ((100, 0.25), (10, 0.25))

#: Data that a thinned set must have, in neighbours that are looked for in it.
_LEAST_THINNED = 2

_Indices = NDArray[np.intp]
_Array = NDArray[np.float64]


def site_groups(sites: _Array, size: int) -> list[_Indices]:
    """As few groups of at most ``size`` sites as there can be, of sites that lie together: cut along their widest extent.

    Their numbers of sites are equal but for rounding. Cost ``O(m log m)``.
    """
    if size == 1:
        return list(morton_order(sites)[:, np.newaxis])
    return _cut(sites, np.arange(len(sites)), math.ceil(len(sites) / size))


def _cut(sites: _Array, group: _Indices, count: int) -> list[_Indices]:
    """Cut a group into ``count`` parts; sites at one place stay in their order."""
    if count <= 1:
        return [group]
    places = sites[group]
    along = group[np.argsort(places[:, np.argmax(np.ptp(places, axis=0))], kind="stable")]
    middle = len(group) * (count // 2) // count
    return _cut(sites, along[:middle], count // 2) + _cut(sites, along[middle:], count - count // 2)


@dataclass(frozen=True, eq=False)
class _Level:
    """Some of the data, evenly spread, and how many neighbours are taken among them."""

    tree: cKDTree
    data: _Indices  #: Index of each of them into all data
    nearest: int  #: Neighbours that are taken among them, besides those that coarser levels have given


class NeighbourSearch:
    """Finds the neighbours of groups of sites: the nearest data, and where these are spread a share of farther ones.

    Shapes: ``sites`` (n, q).
    """

    def __init__(self, sites: _Array, count: int, *, spread: bool) -> None:
        self.count = min(count, len(sites))
        self._n = len(sites)
        self._levels = _levels(sites, self.count, spread)

    def __call__(self, sites: _Array) -> _Indices:
        """The neighbours of a group of sites, (count,) ascending: near ones of each of its sites, from far levels first."""
        chosen: _Indices = np.empty(0, dtype=np.intp)
        for level in self._levels:
            chosen = np.concatenate([chosen, _nearest_others(level, sites, chosen)])
        return np.sort(chosen)

    def divided(self, sites: _Array, groups: Sequence[_Indices]) -> list[_Indices]:
        """Groups cut further until the box of none holds many data, the larger ones first.

        Between sites that are far apart lie many data, and of the neighbours that they share each has few near itself.
        """
        most, done, left = self._levels[-1].nearest // 2, [], list(groups)
        while left:
            ends = np.array([[sites[group].min(axis=0), sites[group].max(axis=0)] for group in left])
            widths = np.ptp(ends, axis=1).max(axis=1)
            inside = self._levels[-1].tree.query_ball_point(
                ends.mean(axis=1), widths / 2, p=np.inf, return_length=True, workers=-1
            )
            is_done = (inside <= most) | (widths == 0.0)
            done += [group for group, is_small in zip(left, is_done, strict=True) if is_small]
            wide = [group for group, is_small in zip(left, is_done, strict=True) if not is_small]
            left = [half for group in wide for half in _cut(sites, group, 2)]
        return sorted(done, key=len, reverse=True)

    def of_single_sites(self, sites: _Array) -> _Indices:
        """The neighbours of each site by itself, (m, count): one query of each level for all of them."""
        near: list[_Array] = []
        for level in self._levels:
            asked = np.arange(1, min(self.count, level.tree.n) + 1)
            near.append(level.data[level.tree.query(sites, k=asked, workers=-1)[1]])
        if len(near) == 1:
            return np.sort(near[0], axis=1)
        return np.stack([self._picked([rows[i] for rows in near]) for i in range(len(sites))])

    def _picked(self, candidates: Sequence[_Indices]) -> _Indices:
        """The neighbours of one site among the candidates of each level, nearest first."""
        chosen: _Indices = np.empty(0, dtype=np.intp)
        for level, some in zip(self._levels, candidates, strict=True):
            chosen = np.concatenate([chosen, some[~np.isin(some, chosen)][: level.nearest]])
        return np.sort(chosen)


def _levels(sites: _Array, count: int, spread: bool) -> list[_Level]:
    """Thinned data from coarse to fine, then all of them."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree

    levels, left = [], count
    if spread and count < len(sites):
        order = coarse_to_fine_order(sites)
        for every, share in _FAR:
            some, wanted = np.sort(order[: len(order) // every]), int(share * count)
            if wanted and len(some) >= _LEAST_THINNED * wanted:
                levels.append(_Level(cKDTree(sites[some]), some, wanted))
                left -= wanted
    return [*levels, _Level(cKDTree(sites), np.arange(len(sites)), left)]


def _nearest_others(level: _Level, sites: _Array, chosen: _Indices) -> _Indices:
    """Data of a level that are not chosen yet: the nearest one of each site, then the second nearest of each, and so on."""
    count = level.nearest
    asked = min(level.tree.n, (count + len(chosen)) // math.isqrt(len(sites)) + 8)
    while True:
        distances, near = level.tree.query(sites, k=np.arange(1, asked + 1))
        # by rank, and in each rank by distance; of each of the data its first place counts
        by_rank = near.T.ravel()[np.argsort(distances.T, axis=1).ravel() + np.repeat(np.arange(asked) * len(sites), len(sites))]
        found, first = np.unique(by_rank, return_index=True)
        ranked = level.data[found[np.argsort(first)]]
        new = ranked[~np.isin(ranked, chosen)]
        if len(new) >= count or asked == level.tree.n:
            return np.asarray(new[:count])
        asked = min(level.tree.n, 2 * asked)
