"""Conditioning sets of Vecchia's approximation: nearest neighbours before each observation, from coarse to fine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.estimation.whole_places import canonical_order, whole_places

if TYPE_CHECKING:
    from scipy.spatial import cKDTree  # 0.03 s, which only the approximation needs

#: Neighbours unless told otherwise.
NEIGHBOURS = 30

#: Cells of the finest level are 2**-20 of the widest extent; sites that share one of these come last, in the order given.
_LEVELS = 20

#: Neighbours are looked for among so many times as many sites as come before: few of those found are later ones.
_GROWTH = 1.25
_SPARE = 8

#: Rows whose neighbours one thread looks for, and distances that it has at once.
_ROWS = 1024
_DISTANCES = 1 << 18

#: So many times as many sites as neighbours are asked for at most to find the earliest of those that are as near.
_MOST_ASKED = 16

#: Pairs whose distances are compared, and the spread of their ratios from which neighbours are looked for anew.
_PAIRS = 2000
_OTHERWISE = 1.25

_Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Conditioning:
    """The graph of a Vecchia approximation: an order of the ``n`` observations, and the neighbours of each in it."""

    order: _Indices  #: (n,) index into the observations of each place of the order
    #: (n, m), by place: the places of the nearest earlier observations; place ``i < m`` has the first ``i`` only, and -1 behind
    neighbours: _Indices
    targets: _Indices  #: (t,) the places whose conditional densities count: all, or a sample; ascending

    @property
    def m(self) -> int:
        """Neighbours of an observation that has enough before it."""
        return int(self.neighbours.shape[1])

    def sampled(self, count: int) -> Conditioning:
        """The same neighbours, but only so many of the conditional densities, evenly over the order from coarse to fine."""
        if count >= len(self.targets):
            return self
        return replace(self, targets=self.targets[np.linspace(0, len(self.targets) - 1, count).astype(np.intp)])

    @property
    def leading(self) -> tuple[_Indices, _Indices]:
        """The observations that have all before them as neighbours, as far as the last target among them; and these targets."""
        rows = self.targets[self.targets < self.m]
        return self.order[: int(rows[-1]) + 1 if len(rows) else 0], rows

    @cached_property
    def rows(self) -> _Indices:
        """(t, m + 1): the observations that each target is conditioned on, then its own, and -1 behind where there are fewer."""
        found = np.full((len(self.targets), self.m + 1), -1, dtype=np.intp)
        has_all = self.targets >= self.m
        found[has_all, :-1] = self.order[self.neighbours[self.targets[has_all]]]
        found[has_all, -1] = self.order[self.targets[has_all]]
        for row, place in zip(found, self.targets[~has_all], strict=False):
            row[: place + 1] = self.order[np.append(self.neighbours[place, :place], place)]
        return found

    def blocks(self, entries: int) -> list[_Indices]:
        """The targets with all neighbours and these, in stacks."""
        rows = self.rows[self.targets >= self.m]
        size = max(1, entries // (self.m + 1) ** 2)
        return [rows[start : start + size] for start in range(0, len(rows), size)]


def conditioning(
    sites: NDArray[np.float64], neighbours: int = NEIGHBOURS, marks: NDArray[np.float64] | None = None
) -> Conditioning:
    """Order sites from coarse to fine and find the nearest earlier neighbours of each.

    Whatever is as near or as far is told apart by a rule: sites count as whole places (:func:`whole_places`), the first is the
    one with the smallest coordinates, of observations at one place the one with the smallest ``marks`` (n, q), and of neighbours
    as near the one that is earlier in the order. So neither the order of the rows nor the unit of the coordinates matters.

    Cost ``O(n log n)``.
    """
    return LastGraph().of(sites, neighbours, marks)


@final
class LastGraph:
    """The last graph that was asked for: who asks for the same places in the same order again has it at once."""

    def __init__(self) -> None:
        self._known: tuple[bytes, Conditioning] | None = None

    def of(self, sites: NDArray[np.float64], neighbours: int, marks: NDArray[np.float64] | None = None) -> Conditioning:
        """The graph of :func:`conditioning`."""
        check_neighbours(neighbours)
        places = whole_places(sites)
        first = canonical_order(places, marks)
        digest = hashlib.blake2b(repr((places.shape, neighbours)).encode())
        for array in (places, first):
            digest.update(array.tobytes())
        key = digest.digest()
        if self._known is None or self._known[0] != key:
            order = first[coarse_to_fine_order(places[first])]
            nearest = nearest_earlier(places[order], min(neighbours, len(sites) - 1))
            self._known = key, Conditioning(order, nearest, np.arange(len(sites)))
        return self._known[1]


def check_neighbours(count: int) -> None:
    """Raise ``ValueError`` unless there is a neighbour to condition on."""
    if count < 1:
        raise ValueError(f"{count} neighbours are asked for, but each observation needs at least 1; 30 are usual")


def coarse_to_fine_order(sites: NDArray[np.float64]) -> _Indices:
    """Order sites such that the first ones are spread evenly at every length of the order: one for each cell of finer grids.

    As the max-min order (Guinness 2018) this puts far ones first, so that later ones have neighbours on all sides; it takes
    ``O(n log n)`` operations in whole-array steps, and no random numbers. Of the sites of a cell the one nearest to the centre is
    taken, the first of several as near.
    """
    extent = np.ptp(sites, axis=0)
    widest = float(extent.max())
    left, chosen = np.arange(len(sites)), []
    if widest > 0.0:
        places = (sites - sites.min(axis=0)) / widest
        for level in range(_LEVELS + 1):
            firsts = _nearest_to_centres(places[left] * 2**level)
            chosen.append(_scattered(left[firsts]))
            left = np.delete(left, firsts)
            if not len(left):
                break
    return np.concatenate([*chosen, left])


def nearest_earlier(sites: NDArray[np.float64], m: int) -> _Indices:
    """Nearest neighbours of each site among those before it, ``(n, m)``; -1 where fewer than ``m`` come before."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree

    n = len(sites)
    found = np.full((n, m), -1, dtype=np.intp)
    for i in range(1, min(m, n)):
        found[i, :i] = np.arange(i)
    start = m
    while start < n:
        stop = min(n, max(start + 1, int(_GROWTH * start)))
        tree = cKDTree(sites[:stop])
        parts = [np.arange(at, min(at + _ROWS, stop)) for at in range(start, stop, _ROWS)]
        tb.map_in_threads(partial(_search, tree, sites, found), parts)
        start = stop
    return found


def _nearest_to_centres(places: NDArray[np.float64]) -> _Indices:
    """Site nearest to the centre of each unit cell."""
    cells = np.floor(places)
    off = np.sum((places - cells - 0.5) ** 2, axis=1)
    by_cell = np.lexsort((off, *cells.T))
    sorted_cells = cells[by_cell]
    is_first = np.ones(len(by_cell), dtype=bool)
    is_first[1:] = np.any(sorted_cells[1:] != sorted_cells[:-1], axis=1)
    return np.asarray(by_cell[is_first])


def _scattered(row: _Indices) -> _Indices:
    """Cells that were counted row by row in a scattered order: by the bits of their number, the lowest first."""
    count = len(row)
    bits = max(1, (count - 1).bit_length())
    number, key = np.arange(count), np.zeros(count, dtype=np.intp)
    for bit in range(bits):
        key |= ((number >> bit) & 1) << (bits - 1 - bit)
    return row[np.argsort(key, kind="stable")]


def _search(tree: cKDTree, sites: NDArray[np.float64], found: _Indices, own: _Indices) -> None:
    """Fill the rows ``own`` of ``found`` from a tree of earlier and some later sites; ask for more where too many were later."""
    asked = min(tree.n, int(_GROWTH * found.shape[1]) + _SPARE)
    while len(own):
        step = max(1, _DISTANCES // asked)
        pieces = [own[start : start + step] for start in range(0, len(own), step)]
        own = np.concatenate([_settle(tree, sites, found, piece, asked) for piece in pieces])
        asked = min(tree.n, 2 * asked)


def _settle(tree: cKDTree, sites: NDArray[np.float64], found: _Indices, own: _Indices, asked: int) -> _Indices:
    """Fill the rows whose neighbours are among so many nearest sites; returns the others."""
    m = found.shape[1]
    near = np.sort(tree.query(sites[own], k=np.arange(1, asked + 1))[1], axis=1)
    squares = np.sum((sites[near] - sites[own][:, np.newaxis]) ** 2, axis=2)
    reach = squares.max(axis=1)
    squares[near >= own[:, np.newaxis]] = np.inf
    # of several as near the earliest; of very many at one place those that the tree gives
    taken = np.argsort(squares, axis=1, kind="stable")[:, :m]
    furthest = np.take_along_axis(squares, taken[:, -1:], axis=1)[:, 0]
    done = (furthest < reach) | ((furthest < np.inf) & (asked >= min(tree.n, _MOST_ASKED * m)))
    found[own[done]] = np.take_along_axis(near, taken, axis=1)[done]
    return np.asarray(own[~done])


def compare_otherwise(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    """Tell whether distances compare so differently in two sets of coordinates that other neighbours are nearest."""
    n = len(before)
    first = np.linspace(0, n - 1, min(n, _PAIRS)).astype(np.intp)
    ratios = []
    for step in (1, n // 3 + 1):
        lengths = [np.linalg.norm(sites[first] - sites[(first + step) % n], axis=1) for sites in (before, after)]
        is_apart = (lengths[0] > 0.0) & (lengths[1] > 0.0)
        ratios.append(lengths[1][is_apart] / lengths[0][is_apart])
    together = np.concatenate(ratios)
    low, high = np.quantile(together, (0.1, 0.9)) if len(together) else (1.0, 1.0)
    return bool(high > _OTHERWISE * low)
