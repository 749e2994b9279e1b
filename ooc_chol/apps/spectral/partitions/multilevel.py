"""Refinement of all parts at once: clusters move first, then smaller ones, and single vertices in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, vstack

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.partitions.clusters import Level
from ooc_chol.apps.spectral.partitions.moves import bonds_of, moved
from ooc_chol.apps.spectral.partitions.shares import Shares

#: Rounds from clusters to vertices, each with other clusters.
_CYCLES = 2
#: Vertices of the coarsest graph for each part, parts of the weight that a cluster may have, and the share of the vertices that a
#: coarser graph must be without.
_COARSEST, _CLUSTERS, _LESS = 20, 15, 0.1
#: Share by which parts may be too heavy while clusters move, and while vertices do, or a few; and the boldness of either.
_ROOM, _LAST_ROOM, _LAST_VERTICES, _BOLD, _LAST_BOLD = 0.03, 0.01, 3.0, 0.75, 0.25
#: Times that parts are brought to their bounds: more than one where parts pass on what they had not got yet.
_MOST_FLOWS = 8
#: What a vertex costs that goes anywhere, where one costs 1 that goes to a neighbouring part.
_FAR = 50.0


def refined_together(graph: Graph, labels: NDArray[np.int32], shares: Shares, seed: int) -> NDArray[np.int32]:
    """Labels of a lesser cut, whose parts have their shares; or the same ones.

    Vertices weigh 1 each. Cost: some 50 passes over the edges, in two cycles.
    """
    most = np.maximum(shares.most, np.floor((1 + shares.balance) * shares.targets))
    least = np.minimum(shares.least, np.maximum(1.0, np.ceil(2 * shares.targets - most)))
    random, best, cut = np.random.default_rng(seed), labels, graph.cut(labels)
    for _ in range(_CYCLES):
        found = _cycle(Level(graph.adjacency, graph.vertex_weights, best), most, random)
        evened = evened_parts(Level(graph.adjacency, graph.vertex_weights, found), least, most)
        if evened is not None and (less := graph.cut(evened)) < cut:
            best, cut = evened, less
    return best.astype(np.int32)


def _cycle(finest: Level, most: NDArray[np.float64], random: np.random.Generator) -> NDArray[Any]:
    """Labels after moves of clusters, the largest first, and of vertices; parts may be a bit too heavy."""
    level, finer = finest, list[tuple[Level, NDArray[np.intp]]]()
    largest = max(2.0, float(finest.weights.sum()) / (_CLUSTERS * len(most)))
    while len(level.weights) > _COARSEST * len(most):
        coarse, of_vertex = level.coarser(largest, random)
        if len(coarse.weights) > (1 - _LESS) * len(level.weights):
            break
        finer.append((level, of_vertex))
        level = coarse
    while finer:
        labels = moved(level, (1 + _ROOM) * most, _BOLD, random)
        level, of_vertex = finer.pop()
        level = level._replace(labels=labels[of_vertex])
    return moved(level, most + np.maximum(_LAST_ROOM * most, _LAST_VERTICES), _LAST_BOLD, random)


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
