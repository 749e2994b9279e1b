"""The tree of segments: each is looked at once, and kept for other thresholds."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.subgraph import Subgraph
from ooc_chol.apps.spectral.images.branches import grow
from ooc_chol.apps.spectral.images.gpu_cuts import GpuCuts
from ooc_chol.apps.spectral.images.parts import followed, parts_of
from ooc_chol.apps.spectral.images.sweep import SweepOptions, best_bipartition, count_directions, normalized_cut_of
from ooc_chol.apps.spectral.solving.eigenpairs import Within, lowest_eigenpairs
from ooc_chol.apps.spectral.solving.lowest import Lowest, SolverOptions
from ooc_chol.apps.spectral.solving.near import Near
from ooc_chol.apps.spectral.solving.ways import LANCZOS, Size, expected_way

#: A segment of this share of the vertices of one that is packed is not packed again: that takes about as long as all passes.
_SHARED = 0.5
#: Nor are its rows copied while the host looks at fewer others than so many times its own: a copy takes as long as four times.
_OTHERS = 2
#: Looks in place of these where a GPU searches cuts: below half of the rows, a copy packs the matrix again anyway.
_LOOKS_BESIDE_GPU = 2


class Threshold(NamedTuple):
    """How far the tree is wanted."""

    max_ncut: float
    max_depth: int | None
    n_segments: int | None = None  #: Segments that are wanted in place of the threshold

    def is_leaf(self, depth: int) -> bool:
        """Tell whether segments of this depth stay whole."""
        return self.max_depth is not None and depth >= self.max_depth


class Look(NamedTuple):
    """The best split of a segment."""

    side: NDArray[np.bool_]  #: For each of its vertices
    ncut: float
    how: str  #: A clause
    lowest: Lowest | None  #: Eigenpairs, without their vectors; None where it falls apart by itself
    seconds: float = 0.0  #: Of the search for it


class _Packing(NamedTuple):
    """A packed affinity of some vertices."""

    matrix: oc.BlockCSR
    vertices: NDArray[np.int32]


class _Base(NamedTuple):
    """The graph of a segment, in whose rows those of its parts stand, and its vertices."""

    graph: Graph
    vertices: NDArray[np.int32]


class _Known(NamedTuple):
    """Vectors and cycle that iterations for parts of a segment start with, and its vertices."""

    near: Near
    vertices: NDArray[np.int32]

    def within(self, vertices: NDArray[np.int32]) -> Near:
        """That for a part, if it has it and is large."""
        rows = np.minimum(np.searchsorted(self.vertices, vertices), len(self.vertices) - 1)
        near = self.near.within(rows) if np.array_equal(self.vertices[rows], vertices) else None
        return near or _nothing(len(vertices))


def _nothing(n: int) -> Near:
    """No vector yet."""
    return Near(np.zeros((n, 0)))


@final
@dataclass(eq=False)
class Region:
    """A segment, and what has been found out about it."""

    vertices: NDArray[np.int32]
    depth: int
    look: Look | None = None
    children: tuple[Region, Region] | None = None
    packing: _Packing | None = None  #: That of a segment which this one is part of, while the tree grows
    base: _Base | None = None  #: Of a segment which this one is part of, as long; None for the whole
    known: _Known | None = None  #: Of a segment which this one is part of, as long

    def split(self) -> tuple[Region, Region]:
        """Both sides of the best split."""
        assert self.look is not None
        if self.children is None:
            first, second = self.vertices[~self.look.side], self.vertices[self.look.side]
            self.children = Region(first, self.depth + 1), Region(second, self.depth + 1)
            for child in self.children:
                child.packing, child.base, child.known = self.packing, self.base, self.known
            self.forget()
        return self.children

    def forget(self) -> None:
        """Leave what was kept for parts of it."""
        self.packing = self.base = self.known = None


@final
@dataclass(eq=False)
class Regions:
    """The tree that grows from a whole affinity; thresholds only choose how much of it is wanted."""

    graph: Graph
    vectors: int
    sweep: SweepOptions
    solver: SolverOptions
    at_once: int = 1  #: Segments that are looked at together
    root: Region = field(init=False)
    refused: int = 0  #: Affinities for which a GPU had no room, as the tree grew last

    def __post_init__(self) -> None:
        self.root = Region(np.arange(self.graph.n, dtype=np.int32), 0)

    def visited(self, wanted: Threshold) -> Iterator[tuple[Region, bool, bool]]:
        """Segments breadth first, from the whole: with whether each is split, and whether it was looked at only now."""
        new: set[Region] = set()
        gpu = GpuCuts(self.solver)

        def looked(region: Region) -> Look | None:
            if len(region.vertices) < 2 * self.sweep.min_size or wanted.is_leaf(region.depth):
                return None
            if region.look is None:
                region.look = self._look(region, gpu)
                new.add(region)
            return region.look

        def sides(region: Region) -> Sequence[Region]:
            look = looked(region)
            found = region.split() if look is not None and look.ncut <= wanted.max_ncut else ()
            region.forget()
            return found

        best = None
        try:
            if wanted.n_segments is None:
                grow(self.root, sides, lambda region: len(region.vertices), self.at_once)
            else:
                best = self._best_first(wanted.n_segments, looked)
        finally:
            self.refused = gpu.refused
            gpu.forget()
        waiting = deque([self.root])
        while waiting:
            region = waiting.popleft()
            split = sides(region) if best is None else region.split() if region in best else ()
            region.forget()
            yield region, bool(split), region in new
            waiting.extend(split)

    def _best_first(self, n_segments: int, looked: Callable[[Region], Look | None]) -> set[Region]:
        """The segments to be split until there are so many, the smallest best cut next."""
        chosen: set[Region] = set()
        waiting: list[tuple[float, int, Region]] = []
        fresh: Sequence[Region] = (self.root,)
        while len(chosen) < n_segments - 1:
            for region, look in zip(fresh, tb.map_in_threads(looked, fresh, threads=self.at_once), strict=True):
                if look is not None and look.ncut < np.inf:
                    heapq.heappush(waiting, (look.ncut, int(region.vertices[0]), region))
            if not waiting:
                break
            region = heapq.heappop(waiting)[2]
            chosen.add(region)
            fresh = region.split()
        return chosen

    def _look(self, region: Region, gpu: GpuCuts) -> Look:
        """The best split of a segment: of what counts in it, whose sides all else follows."""
        graph = self._graph_of(region, gpu)
        part, sizes = parts_of(graph, gpu)
        least = self.sweep.min_size
        large = np.flatnonzero(sizes >= least)
        if len(sizes) == 1 and sizes[0] == graph.n:
            return self._by_eigenvectors(graph, region, region.vertices, gpu)
        if len(large) == 1:
            is_main = part == large[0]
            if np.count_nonzero(is_main) < 2 * least:
                return _whole(graph, "its parts are smaller than min_size")
            within = gpu.measured(Subgraph(graph.whole, graph.vertices[is_main]))
            main = self._by_eigenvectors(within, region, region.vertices[is_main], gpu)
            known = np.zeros(graph.n, np.int8)
            known[is_main] = np.where(main.side, 1, -1)
            side = followed(graph, part, known)
            return main._replace(side=side, ncut=normalized_cut_of(graph, side, gpu), how=f"{main.how}, {_loose(~is_main)}")
        packed = large if len(large) else np.arange(len(sizes))
        for_part = np.zeros(len(sizes) + 1, np.int8)  # the last one is that of vertices in no part
        for_part[packed] = np.where(_packed(sizes[packed]), 1, -1)
        known = for_part[part]
        side = followed(graph, part, known)
        if min(np.count_nonzero(side), np.count_nonzero(~side)) < least:
            return _whole(graph, "its parts are smaller than min_size")
        return Look(side, normalized_cut_of(graph, side, gpu), f"it falls into {len(packed)} parts that nothing joins", None)

    def _graph_of(self, region: Region, gpu: GpuCuts) -> Subgraph:
        """The graph of a segment: by the rows of one before it, unless that is much larger or the solver wants a copy."""
        base = region.base or _Base(self.graph, self.root.vertices)
        rows = _places(region.vertices, base.vertices)
        share, entries = len(rows) / len(base.vertices), base.graph.adjacency.nnz
        size = Size(len(rows), int(share * entries))
        is_copied = expected_way(size, self.vectors, self.solver, normalized=True) != LANCZOS
        looks = _LOOKS_BESIDE_GPU if gpu.takes(size) else count_directions(size.n_entries, self.vectors, self.sweep)
        if share == 1 or (not is_copied and looks * (1 - share) <= _OTHERS * share):
            return gpu.measured(Subgraph(base.graph, rows))
        graph = base.graph.subgraph(rows)
        if not is_copied:
            region.base = _Base(graph, region.vertices)
        return Subgraph(graph)

    def _within(self, graph: Subgraph, region: Region, vertices: NDArray[np.int32]) -> Within:
        """A packed affinity that has the graph's vertices: of a segment before, unless that is much larger."""
        packing = region.packing
        if packing is None or len(vertices) < _SHARED * len(packing.vertices):
            packing = region.packing = _Packing(oc.block_csr(graph.adjacency), vertices)
        return Within(packing.matrix, _places(vertices, packing.vertices))

    def _by_eigenvectors(self, graph: Subgraph, region: Region, vertices: NDArray[np.int32], gpu: GpuCuts) -> Look:
        """The best split that the lowest eigenvectors of a connected graph show."""
        try:
            within = partial(self._within, graph, region, vertices)
            near = _nothing(graph.n) if region.known is None else region.known.within(vertices)
            count = min(self.vectors, graph.n - 1)
            lowest = lowest_eigenpairs(graph, count, self.solver, normalized=True, within=within, near=near)
        except oc.errors.NoConvergenceError as error:
            error.add_note(f"of the segment of {len(region.vertices)} pixels at depth {region.depth}")
            raise
        region.known = None if lowest.near is None else _Known(lowest.near, vertices)
        started = time.perf_counter()
        best = best_bipartition(graph, lowest.vectors, self.sweep, gpu)
        seconds = time.perf_counter() - started
        return Look(best.side, best.ncut, best.how, lowest._replace(vectors=lowest.vectors[:0], near=None), seconds)


def _places(vertices: NDArray[np.int32], of: NDArray[np.int32]) -> NDArray[Any]:
    """Where vertices stand among more; both ascend, and the more may be all."""
    return vertices if of[-1] == len(of) - 1 else np.searchsorted(of, vertices)


def _whole(graph: Subgraph, why: str) -> Look:
    """A segment that cannot be split."""
    return Look(np.zeros(graph.n, np.bool_), np.inf, why, None)


def _loose(is_loose: NDArray[np.bool_]) -> str:
    """Text on the loose pixels that followed."""
    count = int(np.count_nonzero(is_loose))
    return f"{count} loose one{'s' * (count != 1)} followed"


def _packed(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Parts on two sides of about equal sizes, the largest first: whether each is on the second one."""
    is_second, weights = np.zeros(len(sizes), np.bool_), [0, 0]
    for part in np.argsort(-sizes, kind="stable"):
        lighter = int(weights[1] < weights[0])
        is_second[part] = bool(lighter)
        weights[lighter] += int(sizes[part])
    return is_second
