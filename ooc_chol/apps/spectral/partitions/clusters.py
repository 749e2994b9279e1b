"""Clusters of vertices within parts, and the graph whose vertices they are: what moves of single vertices cannot take over."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

#: Rounds in which vertices join others: each takes up to a quarter of them.
_ROUNDS = 4
#: Ratings of edges that differ by less than this share are shuffled.
_SHUFFLED = 0.01


class Level(NamedTuple):
    """A graph, its parts, and of a coarser one the cluster of every vertex of the finer."""

    matrix: csr_array
    weights: NDArray[np.float64]
    labels: NDArray[Any]

    def coarser(self, largest: float, random: np.random.Generator) -> tuple[Level, NDArray[np.intp]]:
        """The graph of clusters that weigh at most ``largest``, and the cluster of every vertex."""
        of_vertex = clusters(self, largest, random)
        count, matrix = int(of_vertex.max(initial=-1)) + 1, self.matrix
        to_cluster = indicator(of_vertex, count, matrix)
        joined = csr_array(to_cluster.T @ (matrix @ to_cluster))
        joined.setdiag(0)
        joined.eliminate_zeros()
        joined.sort_indices()
        labels = np.zeros(count, self.labels.dtype)
        labels[of_vertex] = self.labels
        return Level(joined, np.bincount(of_vertex, self.weights, count).astype(np.float64), labels), of_vertex


def indicator(of_vertex: NDArray[Any], count: int, like: csr_array) -> csr_array:
    """The matrix (n, count) of ones where a vertex belongs, with the index type of another."""
    n = len(of_vertex)
    starts = np.arange(n + 1, dtype=like.indptr.dtype)
    return csr_array((np.ones(n), of_vertex.astype(like.indices.dtype), starts), shape=(n, count))


def clusters(level: Level, largest: float, random: np.random.Generator) -> NDArray[np.intp]:
    """The cluster of every vertex, from 0: vertices of one part joined along edges that are heavy for the weights of their ends.

    In a round a coin says who may join: each vertex wants its best neighbour, and joins it where that one stays and has room.
    """
    matrix, weights = level.matrix, level.weights
    n = len(weights)
    rows, columns = np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices
    is_inside = level.labels[rows] == level.labels[columns]
    rows, columns = rows[is_inside], columns[is_inside]
    ratings = matrix.data[is_inside] / (weights[rows] * weights[columns]) * (1 + _SHUFFLED * random.random(len(rows)))
    root, sizes = np.arange(n), weights.copy()
    is_alone, is_root = np.ones(n, np.bool_), np.ones(n, np.bool_)
    for _ in range(_ROUNDS):
        can = is_alone[rows] & is_root[columns] & (sizes[rows] + sizes[columns] <= largest)
        who, whom = _best_of_each(rows[can], columns[can], ratings[can])
        stays = random.random(n) < 0.5
        goes = ~stays[who] & stays[whom]
        who, whom = _with_room(who[goes], whom[goes], sizes, largest)
        root[who] = whom
        np.add.at(sizes, whom, sizes[who])
        is_root[who] = is_alone[who] = is_alone[whom] = False
    return np.asarray(np.unique(root, return_inverse=True)[1], np.intp)


def _best_of_each(rows: NDArray[Any], columns: NDArray[Any], ratings: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each of the ascending rows once, and its column of the highest rating."""
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    if not len(first):
        return rows, columns
    highest = np.repeat(np.maximum.reduceat(ratings, first), np.diff(np.append(first, len(rows))))
    is_best = ratings == highest
    rows, columns = rows[is_best], columns[is_best]
    is_first = np.diff(rows, prepend=-1) > 0
    return rows[is_first], columns[is_first]


def _with_room(
    who: NDArray[Any], whom: NDArray[Any], sizes: NDArray[np.float64], largest: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Those who join, the first ones of every root, while there is room."""
    if not len(who):
        return who, whom
    order = np.argsort(whom, kind="stable")
    who, whom = who[order], whom[order]
    sums = np.cumsum(sizes[who])
    first = np.flatnonzero(np.append(True, whom[1:] != whom[:-1]))
    before = np.repeat(sums[first] - sizes[who[first]], np.diff(np.append(first, len(whom))))
    has_room = sizes[whom] + sums - before <= largest
    return who[has_room], whom[has_room]
