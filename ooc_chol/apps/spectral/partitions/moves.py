"""Many vertices moved at once between any parts: rounds of array operations over all edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.apps.spectral.partitions.clusters import Level, indicator

#: Rounds without a better partition after which moves end, and the share of the cut that makes one better.
_PATIENCE, _BETTER = 12, 1e-3
#: Parts below this place between what they weigh evenly and at most take vertices of those that are too heavy.
_OPEN = 0.5


class Bonds(NamedTuple):
    """Edges of every vertex, summed by the parts where they end."""

    sums: csr_array  #: (n, parts)
    rows: NDArray[np.intp]  #: Of its entries
    own: NDArray[np.float64]  #: Of each vertex, to its own part
    is_own: NDArray[np.bool_]  #: Of the entries

    def best(
        self, labels: NDArray[Any], is_open: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Most edges of each vertex to another open part, and that part, any of equal ones; 0 and its own where there is none."""
        parts, starts = self.sums.indices, self.sums.indptr
        values = np.where(self.is_own | ~is_open[parts], 0.0, self.sums.data)
        most, filled = np.zeros(len(labels)), np.flatnonzero(np.diff(starts))
        if len(filled):
            most[filled] = np.maximum.reduceat(values, starts[filled])
        is_best, where = random.permutation(np.flatnonzero((values > 0) & (values == most[self.rows]))), labels.copy()
        where[self.rows[is_best]] = parts[is_best]
        return most, where


def bonds_of(level: Level, labels: NDArray[Any], n_parts: int) -> Bonds:
    """Edges of every vertex by parts."""
    sums = csr_array(level.matrix @ indicator(labels, n_parts, level.matrix))
    rows = np.repeat(np.arange(len(labels)), np.diff(sums.indptr))
    is_own, own = sums.indices == labels[rows], np.zeros(len(labels))
    own[rows[is_own]] = sums.data[is_own]
    return Bonds(sums, rows, own, is_own)


def moved(level: Level, most: NDArray[np.float64], boldness: float, random: np.random.Generator) -> NDArray[Any]:
    """Labels of the least cut that was met among those whose parts weigh the least above ``most``.

    In a round all vertices move that gain, or lose less than this share of their edges within the part, if they still do once
    neighbours that gain more have moved; those of the round before rest. Where parts became too heavy, vertices leave them that
    cost little. Source: Gilbert, Madduri, Boman and Rajamanickam (2024).
    """
    rounds = _Rounds(level, most, boldness, random)
    labels = found = level.labels
    bonds = bonds_of(level, labels, len(most))
    best = rank = rounds.rank(labels, bonds)
    idle, rests = 0, np.zeros(len(labels), np.bool_)
    while idle < _PATIENCE:
        idle += 1
        if rank[0] == 0:
            moves, where = rounds.gaining(labels, bonds, rests)
            if not (moves | rests).any():
                break
            rests = moves
        else:
            moves, where = rounds.leaving(labels, bonds)
        labels = np.where(moves, where, labels)
        bonds = bonds_of(level, labels, len(most))
        rank = rounds.rank(labels, bonds)
        if rank < best:
            idle = 0 if rank[0] < best[0] or rank[1] < (1 - _BETTER) * best[1] else idle
            best, found = rank, labels
    return found


@final
@dataclass(frozen=True, eq=False)
class _Rounds:
    """Rounds of moves of one graph."""

    level: Level
    most: NDArray[np.float64]
    boldness: float
    random: np.random.Generator

    @cached_property
    def _rows(self) -> NDArray[np.intp]:
        """Rows of the entries of the matrix."""
        return np.repeat(np.arange(len(self.level.weights)), np.diff(self.level.matrix.indptr))

    def _sizes(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Weights of the parts."""
        return np.bincount(labels, self.level.weights, len(self.most)).astype(np.float64)

    def rank(self, labels: NDArray[Any], bonds: Bonds) -> tuple[float, float]:
        """By how much parts are too heavy in all, and twice the cut."""
        return float(np.maximum(self._sizes(labels) - self.most, 0).sum()), float(bonds.sums.data[~bonds.is_own].sum())

    def gaining(self, labels: NDArray[Any], bonds: Bonds, rests: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which vertices move, and where each would."""
        value, where = bonds.best(labels, np.ones(len(self.most), np.bool_), self.random)
        gains = value - bonds.own
        wants = (where != labels) & ~rests & ((gains >= 0) | (-gains < self.boldness * bonds.own))
        is_asked = wants[self._rows]
        rows, ends, data = self._rows[is_asked], self.level.matrix.indices[is_asked], self.level.matrix.data[is_asked]
        is_before = wants[ends] & ((gains[ends] > gains[rows]) | ((gains[ends] == gains[rows]) & (ends < rows)))
        then = np.where(is_before, where[ends], labels[ends])
        signs = (then == where[rows]).astype(np.float64) - (then == labels[rows])
        return wants & (np.bincount(rows, data * signs, len(labels)) >= 0), where

    def leaving(self, labels: NDArray[Any], bonds: Bonds) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which vertices leave parts that are too heavy, and where they go: the cheapest for their weight."""
        sizes, weights = self._sizes(labels), self.level.weights
        even = self.most * min(1.0, weights.sum() / self.most.sum())
        is_open = sizes < even + _OPEN * (self.most - even)
        if not is_open.any():
            is_open[np.argmin(sizes - self.most)] = True
        value, where = bonds.best(labels, is_open, self.random)
        moves, parts = np.zeros(len(labels), np.bool_), np.flatnonzero(is_open)
        for part in np.flatnonzero(sizes > self.most):
            over = sizes[part] - self.most[part]
            own = np.flatnonzero((labels == part) & (weights <= 1.5 * over + weights.min()))
            own = own[np.argsort((bonds.own[own] - value[own]) / weights[own], kind="stable")]
            go = own[: np.searchsorted(np.cumsum(weights[own]), over) + 1]
            moves[go] = True
            homeless = go[where[go] == part]
            others = parts[parts != part]
            where[homeless] = np.resize(others, len(homeless)) if len(others) else part
        return moves, where
