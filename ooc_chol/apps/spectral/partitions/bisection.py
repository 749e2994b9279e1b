"""One bisection: components are packed, the one that straddles is cut in the span of its eigenvectors, and moves refine it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.spectral.cutting.best import best_cut
from ooc_chol.apps.spectral.cutting.refine import refine
from ooc_chol.apps.spectral.cutting.target import Target
from ooc_chol.apps.spectral.graphs.components import components, joined
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.packing import Way, fill, grain, pack, ways
from ooc_chol.apps.spectral.partitions.settings import Settings, Tally
from ooc_chol.apps.spectral.partitions.shares import Shares
from ooc_chol.apps.spectral.plans import largest_size
from ooc_chol.apps.spectral.solving.eigenpairs import added, lowest_eigenpairs
from ooc_chol.apps.spectral.solving.lowest import Lowest
from ooc_chol.apps.spectral.solving.ways import Size

Labels = NDArray[np.int8]

#: Ways to pack components that are tried beside the first.
_MOST_WAYS = 6
#: Eigenvalues are one multiple one where they agree to this, relative to the first.
_SAME = 1e-4
_TIMES = {2: "double", 3: "triple", 4: "fourfold", 5: "fivefold", 6: "sixfold", 8: "eightfold"}
#: Vectors of a multiple eigenvalue that are computed at most.
_MOST_COPIES = 15


def split(graph: Graph, target: Target, settings: Settings, tally: Tally) -> Labels:
    """Sides 0 and 1 of all vertices of a graph, connected or not."""
    tally.bisections += 1
    of_vertex = components(graph)
    count = int(of_vertex.max(initial=-1)) + 1
    if tally.bisections == 1:
        tally.components = count
    if count <= 1:
        return _halves(graph, target, settings, tally)
    if (sides := _only_packed(graph, of_vertex, target)) is not None:
        return sides
    weights = graph.part_weights(of_vertex, count)
    low, high = target.weight - target.slack, target.weight + target.slack
    tried = _worth_trying(ways(weights, low, high, grain(graph.vertex_weights)), np.bincount(of_vertex))
    found = [_packed(graph, of_vertex, way, target, settings, tally) for way in tried]
    best = min(found, key=lambda labels: _rank(graph, labels, target))
    return _refined(graph, best, target, settings, tally)


def cut_size(graph: Graph, shares: Shares) -> Size:
    """Size of the largest component where one is cut to give parts their shares; of a vertex where all are only packed."""
    if len(shares) == 1 or graph.n <= 1:
        return Size(1, 0)
    first = len(shares) // 2
    sides = _only_packed(graph, components(graph), shares.target(graph.vertex_weights, first))
    if sides is None:
        return largest_size(graph)
    give_each_a_vertex(graph, sides, first, len(shares) - first)
    both = enumerate((shares.of(slice(first)), shares.of(slice(first, None))))
    return max(cut_size(graph.subgraph(np.flatnonzero(sides == side)), below) for side, below in both)


def _only_packed(graph: Graph, of_vertex: NDArray[np.int32], target: Target) -> Labels | None:
    """Sides where whole components add up to the target; None where they do not."""
    count = int(of_vertex.max(initial=-1)) + 1
    if count <= 1:
        return None
    chosen = pack(graph.part_weights(of_vertex, count), target.weight - target.slack, target.weight + target.slack)
    return None if chosen is None else np.where(chosen[of_vertex], 0, 1).astype(np.int8)


def in_units(graph: Graph) -> Graph:
    """The graph with vertices of weight 1, where all weigh the same: counts are exact, and sums of such weights are not."""
    weights = graph.vertex_weights
    is_even = len(weights) > 0 and bool(np.all(weights == weights[0]))
    return replace(graph, vertex_weights=np.ones(graph.n)) if is_even and not graph.has_unit_vertices else graph


def give_each_a_vertex(graph: Graph, sides: NDArray[np.int8], *n_parts: int) -> None:
    """Move the lightest vertices over where a side has fewer vertices than parts, as heavy ones can make it."""
    if graph.n < sum(n_parts):
        return
    for side in (0, 1):
        missing = n_parts[side] - int(np.count_nonzero(sides == side))
        if missing > 0:
            others = np.flatnonzero(sides != side)
            lightest = np.argsort(graph.vertex_weights[others], kind="stable")[:missing]
            sides[others[lightest]] = side


def _worth_trying(found: list[Way], vertices: NDArray[np.intp]) -> list[Way]:
    """The first way, and others while their straddlers have no more vertices together than the graph, and there are few."""
    others = np.cumsum([vertices[way.straddler] for way in found[1:]])
    return found[: 1 + min(_MOST_WAYS, int(np.searchsorted(others, vertices.sum(), side="right")))]


def _packed(graph: Graph, of_vertex: NDArray[np.int32], way: Way, target: Target, settings: Settings, tally: Tally) -> Labels:
    """Sides where components are packed in one way: the straddler is cut, and light components fill up."""
    inside = np.flatnonzero(of_vertex == way.straddler)
    straddler = graph.subgraph(inside)
    weights = graph.part_weights(of_vertex, len(way.sides))
    middle, half = (way.least + way.most) / 2, (way.most - way.least) / 2
    halves = _halves(straddler, Target(middle, straddler.total_weight, half + target.slack), settings, tally)
    taken = float(weights[way.sides == 0].sum()) + float(straddler.vertex_weights[halves == 0].sum())
    sides = way.sides.copy()
    sides[way.fillers] = np.where(fill(weights[way.fillers], target.weight + target.slack - taken), 0, 1)
    labels = sides[of_vertex]
    labels[inside] = halves
    return labels


def _rank(graph: Graph, labels: Labels, target: Target) -> tuple[float, float]:
    """The smaller, the better: first balance, then the cut."""
    return target.excess(float(graph.vertex_weights[labels == 0].sum())), graph.cut(labels)


def _halves(graph: Graph, target: Target, settings: Settings, tally: Tally) -> Labels:
    """Sides of a connected graph."""
    if graph.n <= 1:
        return np.full(graph.n, 0 if 2 * target.weight >= target.total else 1, np.int8)
    is_first = tally.first is None
    best = best_cut(
        graph,
        _eigenvectors(joined(graph), settings, tally),
        target,
        search=settings.search,
        seed=settings.seed,
        refine=settings.refine,
        devices=settings.solver.devices,
    )
    tally.search_seconds += best.search_seconds
    tally.refine_seconds += best.refine_seconds if settings.refine else 0.0
    tally.note(*best.notes)
    if is_first:
        tally.candidates = best.candidates
    return best.cut.labels


def _eigenvectors(graph: Graph, settings: Settings, tally: Tally) -> NDArray[np.float64]:
    """The lowest nontrivial eigenvectors of the Laplacian, counted; the first ones are told of, and traced."""
    solver = replace(settings.solver, trace=settings.solver.trace and tally.first is None)
    count = min(settings.vectors, graph.n - 1)
    lowest = _counted(lowest_eigenpairs(graph, count, solver), tally)
    trace = lowest.trace
    while 1 < count == _copies(lowest.eigenvalues) and count < min(_MOST_COPIES, graph.n - 1):
        count = min(2 * count + 1, _MOST_COPIES, graph.n - 1)
        try:
            lowest = _counted(lowest_eigenpairs(graph, count, replace(solver, trace=False)), tally)
        except oc.BudgetError:  # more vectors than the plan counts on: that there may be copies beyond is told
            break
    if tally.first is None and (told := multiple_text(lowest.eigenvalues)) is not None:
        tally.note(told)
    kept = max(min(settings.vectors, graph.n - 1), _copies(lowest.eigenvalues))
    pairs = lowest.eigenvalues[:kept], lowest.vectors[:, :kept], lowest.residuals[:kept]
    if tally.first is None:
        tally.first = Lowest(*pairs, lowest.method, lowest.reason, lowest.passes, lowest.seconds, trace)
    return pairs[1]


def _counted(lowest: Lowest, tally: Tally) -> Lowest:
    """Eigenpairs whose passes, seconds and bytes are added to those of the call."""
    tally.solve_seconds += lowest.seconds
    tally.passes += lowest.passes
    tally.planned, tally.executed = added(tally.planned, lowest.planned), added(tally.executed, lowest.executed)
    return lowest


def _copies(eigenvalues: NDArray[np.float64]) -> int:
    """How many of the eigenvalues are the lowest; one where that is rounding."""
    return max(1, int(np.count_nonzero(np.abs(eigenvalues - eigenvalues[0]) <= _SAME * eigenvalues[0])))


def multiple_text(eigenvalues: NDArray[np.float64]) -> str | None:
    """A sentence where lambda_2 is multiple; None where it is not."""
    first, same = float(eigenvalues[0]), _copies(eigenvalues)
    if same < 2:
        return None
    times = _TIMES.get(same, f"{same}-fold")
    more = " at least: no further eigenvalue was computed" if same == len(eigenvalues) else ""
    return (
        f"lambda_2 = {first:.6g} is {times}{more}; one vector of its space is as good as another, so that a median cut of one is "
        "a matter of luck, and the best cut of the space was looked for."
    )


def _refined(graph: Graph, labels: Labels, target: Target, settings: Settings, tally: Tally) -> Labels:
    """Sides after moves of single vertices, where they are wanted."""
    if not settings.refine:
        return labels
    with timed(tally):
        refined = refine(graph, labels, target)
    if refined.is_limited:
        tally.note("The limit on moves ended a pass of the refinement of the whole graph.")
    return min(labels, refined.labels, key=lambda each: _rank(graph, each, target))


@contextmanager
def timed(tally: Tally) -> Iterator[None]:
    """Count the seconds of a refinement, without those of bisections within."""
    start, before = perf_counter(), tally.seconds
    yield
    tally.refine_seconds += perf_counter() - start - (tally.seconds - before)
