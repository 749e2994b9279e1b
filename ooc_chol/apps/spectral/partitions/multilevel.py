"""Refinement of all parts at once: clusters move first, then smaller ones, and single vertices in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, vstack

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.partitions.clusters import Level
from ooc_chol.apps.spectral.partitions.moves import bonds_of, moved
from ooc_chol.apps.spectral.partitions.shares import Shares, shares_of

Labels = NDArray[np.int32]
#: Cuts a graph into parts of these shares.
Divided = Callable[[Graph, Shares], Labels]

#: Rounds from clusters to vertices, each with other clusters.
_CYCLES = 2
#: Partitions of coarse graphs where these are small, for few parts; one else.
_STARTS, _FEW_PARTS = 3, 8
#: Vertices of the coarsest graph for each part, and at least; parts of the weight that a cluster may have; the share of the
#: vertices that a coarser graph must be without.
_COARSEST, _LEAST_COARSE, _CLUSTERS, _LESS = 20, 200, 15, 0.1
#: Share by which parts may be too heavy while clusters move, and while vertices do, or a few; and the boldness of either.
_ROOM, _LAST_ROOM, _LAST_VERTICES, _BOLD, _LAST_BOLD = 0.03, 0.01, 3.0, 0.75, 0.25
#: Times that parts are brought to their bounds: more than one where parts pass on what they had not got yet.
_MOST_FLOWS = 8
#: What a vertex costs that goes anywhere, where one costs 1 that goes to a neighbouring part.
_FAR = 50.0


def refined_together(
    graph: Graph, labels: Labels, shares: Shares, seed: int, divided: Divided | None = None
) -> tuple[Labels, bool]:
    """Labels of a lesser cut, whose parts have their shares, or the same ones; and whether a coarser graph began them.

    Vertices weigh 1 each. Graphs of very uneven degrees, whose eigenvectors are of a few vertices, are coarsened and ``divided``
    as well. Cost: some 50 passes over the edges for each start, in two cycles.
    """
    moves = _Moves(graph, shares, np.random.default_rng(seed))
    best = moves.cycled(labels)
    is_coarse = False
    for found in moves.starts(divided) if divided is not None and graph.cut(best) > 0 else ():
        if graph.cut(found) < graph.cut(best):
            best, is_coarse = found, True
    return best.astype(np.int32), is_coarse


@final
class _Moves:
    """Cycles of moves of one graph, from clusters to vertices."""

    def __init__(self, graph: Graph, shares: Shares, random: np.random.Generator) -> None:
        self.graph, self.shares, self.random = graph, shares, random
        least, self.most = shares.bounds
        self.least = np.maximum(1.0, least)

    def _level(self, labels: NDArray[Any]) -> Level:
        return Level(self.graph.adjacency, self.graph.vertex_weights, labels)

    def cycled(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Labels after cycles, each with other clusters, in parts within their bounds where that can be had."""
        evened = self._evened(labels)
        best = labels if evened is None else evened
        for _ in range(_CYCLES):
            level, finer = self._coarsened(self._level(best))
            best = self._better(best, self._uncoarsened(level, finer) if finer else self._last(level))
        return best

    def starts(self, divided: Divided) -> Iterator[NDArray[Any]]:
        """Labels that begin with a partition of a coarse graph."""
        shares, n_parts = self.shares, len(self.shares)
        for _ in range(_STARTS if n_parts <= _FEW_PARTS else 1):
            level, finer = self._coarsened(self._level(np.zeros(self.graph.n, np.int64)))
            if not finer:
                return
            coarse = Graph(level.matrix, level.weights)
            loose = shares_of(level.weights, n_parts, shares.targets, max(shares.balance, _ROOM))
            labels = divided(coarse, loose).astype(np.int64)
            labels = self._uncoarsened(level._replace(labels=labels), finer)
            if (evened := self._evened(labels)) is not None:
                yield self.cycled(evened)

    def _better(self, labels: NDArray[Any], moved_ones: NDArray[Any]) -> NDArray[Any]:
        """The labels after moves where their parts can be evened and cut less."""
        evened = self._evened(moved_ones)
        return labels if evened is None or self.graph.cut(evened) >= self.graph.cut(labels) else evened

    def _evened(self, labels: NDArray[Any]) -> NDArray[Any] | None:
        return evened_parts(self._level(labels), self.least, self.most)

    def _coarsened(self, level: Level) -> tuple[Level, list[tuple[Level, NDArray[np.intp]]]]:
        """The coarsest graph of clusters within parts, and all finer ones."""
        n_parts, finer = len(self.most), list[tuple[Level, NDArray[np.intp]]]()
        largest = max(2.0, float(level.weights.sum()) / (_CLUSTERS * n_parts))
        while len(level.weights) > max(_COARSEST * n_parts, _LEAST_COARSE):
            coarse, of_vertex = level.coarser(largest, self.random)
            if len(coarse.weights) > (1 - _LESS) * len(level.weights):
                break
            finer.append((level, of_vertex))
            level = coarse
        return level, finer

    def _uncoarsened(self, level: Level, finer: list[tuple[Level, NDArray[np.intp]]]) -> NDArray[Any]:
        """Labels after moves of clusters, the largest first, and of vertices."""
        while finer:
            labels = moved(level, (1 + _ROOM) * self.most, _BOLD, self.random)
            level, of_vertex = finer.pop()
            level = level._replace(labels=labels[of_vertex])
        return self._last(level)

    def _last(self, level: Level) -> NDArray[Any]:
        """Labels after moves of vertices, which leave parts a bit too heavy, and then within what a balance allows."""
        labels = moved(level, self.most + np.maximum(_LAST_ROOM * self.most, _LAST_VERTICES), _LAST_BOLD, self.random)
        return moved(level._replace(labels=labels), self.most, _LAST_BOLD, self.random) if self.shares.balance else labels


def evened_parts(level: Level, least: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[Any] | None:
    """Labels whose parts are within their bounds, by as few moves as possible; None where parts have too few to pass on."""
    labels, n_parts = level.labels, len(most)
    for _ in range(_MOST_FLOWS):
        sizes = np.bincount(labels, minlength=n_parts)
        if np.all((sizes >= least) & (sizes <= most)):
            return labels
        bonds = bonds_of(level, labels, n_parts)
        between = np.unique(np.stack([labels[bonds.rows], bonds.sums.indices], axis=1)[~bonds.is_own], axis=0)
        labels, moves = labels.copy(), np.zeros(len(labels), np.bool_)
        # Vertices that go anywhere wait in a part of their own, the last one.
        for start, end, count in _flows(sizes, least, most, between):
            free = np.flatnonzero((labels == start) & (~moves | (start == n_parts)))
            to = bonds.sums[free][:, [end]].toarray().ravel() if end < n_parts else 0.0
            go = free[np.argsort(bonds.own[free] - to, kind="stable")[:count]]
            labels[go], moves[go] = end, True
    return None


def _flows(
    sizes: NDArray[np.intp], least: NDArray[np.float64], most: NDArray[np.float64], between: NDArray[Any]
) -> list[tuple[int, int, int]]:
    """How many vertices go from which part to which; ``n_parts`` is anywhere, to which they go first and from which last."""
    with tb.guarded_imports():
        from scipy.optimize import linprog

    n_parts, parts = len(sizes), np.arange(len(sizes))
    anywhere = np.full(n_parts, n_parts)
    arcs = np.concatenate([np.stack([parts, anywhere], axis=1), between, np.stack([anywhere, parts], axis=1)])
    costs, number = np.ones(len(arcs)), np.arange(len(arcs))
    costs[:n_parts] = costs[-n_parts:] = _FAR / 2
    signs, ends = np.repeat([1.0, -1.0], len(arcs)), arcs.T.ravel()
    out = coo_array((signs, (ends, np.tile(number, 2))), shape=(n_parts + 1, len(arcs))).tocsr()
    of_parts = out[:n_parts]
    bounds = np.concatenate([sizes - least, most - sizes])
    done = linprog(costs, A_ub=vstack([of_parts, -of_parts]), b_ub=bounds, A_eq=out[n_parts:], b_eq=[0.0], method="highs")
    counts = np.rint(done.x).astype(int)
    return [(int(arcs[i, 0]), int(arcs[i, 1]), int(counts[i])) for i in np.flatnonzero(counts)]
