"""Parts by bisections of bisections, and their refinement: moves between all parts at once, then between neighbours."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.cutting.refine import refine as refine_cut
from ooc_chol.apps.spectral.cutting.search import DEVICE_EDGES
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.partitions.bisection import give_each_a_vertex, split, timed
from ooc_chol.apps.spectral.partitions.multilevel import refined_together
from ooc_chol.apps.spectral.partitions.pieces import gathered
from ooc_chol.apps.spectral.partitions.settings import Settings, Tally
from ooc_chol.apps.spectral.partitions.shares import Shares
from ooc_chol.apps.spectral.solving.ways import IRREGULAR, unevenness

Labels = NDArray[np.int32]

#: Rounds of moves between all pairs of neighbouring parts; most end after two or three.
_MOST_ROUNDS = 6


def divided(graph: Graph, shares: Shares, settings: Settings, tally: Tally) -> Labels:
    """Labels by recursion."""
    labels = np.zeros(graph.n, np.int32)
    if len(shares) == 1:
        return labels
    first = len(shares) // 2
    sides = split(graph, shares.target(graph.vertex_weights, first), settings, tally)
    give_each_a_vertex(graph, sides, first, len(shares) - first)
    for side, parts in enumerate((slice(first), slice(first, None))):
        vertices = np.flatnonzero(sides == side)
        below = shares.of(parts)
        if len(below) > 1:
            labels[vertices] = divided(graph.subgraph(vertices), below, settings, tally)
        labels[vertices] += side * first
    return labels


def refined(graph: Graph, labels: Labels, shares: Shares, settings: Settings, tally: Tally) -> Labels:
    """Labels of a lesser cut; of two parts, which were refined as they were cut, where degrees are very uneven."""
    if not settings.refine or len(shares) < 2 or graph.n_edges == 0:
        return labels
    is_uneven = unevenness(graph.degrees) >= IRREGULAR
    if len(shares) == 2 and not is_uneven:
        return labels
    is_small = graph.n_edges < DEVICE_EDGES
    if graph.has_unit_vertices and is_small:
        coarse = partial(divided, settings=settings, tally=tally) if is_uneven else None
        with timed(tally):
            labels, is_coarse = refined_together(graph, labels, shares, settings.seed, coarse)
        if is_coarse:
            tally.note("Degrees are very uneven: the best of the parts began with those of a coarser graph.")
    labels = _refined_in_pairs(graph, labels, shares, tally)
    if not is_small:
        return labels
    with timed(tally):
        whole = gathered(graph, labels, *shares.bounds)
    return labels if np.array_equal(whole, labels) else _refined_in_pairs(graph, whole, shares, tally)


def _refined_in_pairs(graph: Graph, labels: Labels, shares: Shares, tally: Tally) -> Labels:
    """Labels after moves between pairs of neighbouring parts, until no pair gains."""
    tried: set[tuple[int, int]] = set()
    with timed(tally):
        for _ in range(_MOST_ROUNDS):
            changed: set[int] = set()
            for pair in _neighbours(graph, labels):
                if pair not in tried and _is_improved(graph, labels, pair, shares, tally):
                    changed.update(pair)
                tried.add(pair)
            if not changed:
                break
            tried = {pair for pair in tried if not changed & set(pair)}
    return labels


def _neighbours(graph: Graph, labels: Labels) -> list[tuple[int, int]]:
    """Pairs of parts with edges between them, ascending."""
    ends = np.repeat(labels, np.diff(graph.adjacency.indptr)), labels[graph.adjacency.indices]
    pairs = np.stack(ends, axis=1)[ends[0] < ends[1]]
    return [(int(a), int(b)) for a, b in np.unique(pairs, axis=0)]


def _is_improved(graph: Graph, labels: Labels, pair: tuple[int, int], shares: Shares, tally: Tally) -> bool:
    """Move vertices between two parts, in place; whether that made the cut, or the balance, better."""
    vertices = np.flatnonzero((labels == pair[0]) | (labels == pair[1]))
    both = graph.subgraph(vertices)
    parts = Shares(shares.targets[[*pair]], shares.least[[*pair]], shares.most[[*pair]], shares.unit, shares.balance)
    target = parts.target(both.vertex_weights, 1)
    before = (labels[vertices] == pair[1]).astype(np.int8)
    after = refine_cut(both, before, target)
    if after.is_limited:
        tally.note("The limit on moves ended a pass of the refinement of two neighbouring parts.")
    weight = float(both.vertex_weights[before == 0].sum())
    if (target.excess(after.weight), after.cut) >= (target.excess(weight), both.cut(before)):
        return False
    if not 0 < np.count_nonzero(after.labels) < both.n:
        return False
    labels[vertices] = np.where(after.labels == 0, pair[0], pair[1])
    return True
