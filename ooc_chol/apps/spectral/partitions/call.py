"""Calls that cut a graph: the graph is read, the first cut is planned, and a report tells of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.cutting.search import DEVICE_EDGES
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.sources import as_graph
from ooc_chol.apps.spectral.partitions.bisection import cut_size, in_units
from ooc_chol.apps.spectral.partitions.pieces import text_of_pieces
from ooc_chol.apps.spectral.partitions.settings import Settings, Tally
from ooc_chol.apps.spectral.partitions.shares import Shares
from ooc_chol.apps.spectral.plans import PartitionPlan, arithmetic_key, planned_cut
from ooc_chol.apps.spectral.results import Partition, PartitionReport
from ooc_chol.apps.spectral.solving.lowest import passes_shown
from ooc_chol.apps.spectral.solving.ways import Size

#: By how much sums of weights may differ by rounding, relative to them.
_ROUNDING = 1e-9


@final
@dataclass
class CutCall:
    """One call, from its arguments to its partition."""

    name: str
    settings: Settings
    since: float
    host_budget: int | str | None
    progress: tb.Progress
    more: Mapping[str, Any] = field(default_factory=dict)  #: Of the key
    plan: PartitionPlan = field(init=False)
    graph: Graph = field(init=False)
    shares: Shares = field(init=False)
    parts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def begun(
        self, A: Any, vertex_weights: ArrayLike | None, plan: PartitionPlan | None, shares: Callable[[Graph], Shares]
    ) -> Iterator[tuple[Graph, Shares, Tally, Settings]]:
        """The graph and its shares in units, and settings that tell of passes; the block is the run."""
        began = perf_counter()
        self.graph = as_graph(A, vertex_weights=vertex_weights)
        self.parts["read"], began = perf_counter() - began, perf_counter()
        solver, self.shares = self.settings.solver, shares(self.graph)
        counted, counts = in_units(self.graph), self.shares.in_units()
        self.plan = planned_cut(plan, self.name, cut_size(counted, counts), self.settings.vectors, solver, self.host_budget)
        self.parts["plan"], began = perf_counter() - began, perf_counter()
        with passes_shown(self.progress, self.name) as shown:
            yield counted, counts, Tally(), replace(self.settings, solver=replace(solver, progress=shown))
        self.parts["run"] = perf_counter() - began

    def partition(self, labels: NDArray[np.int32], tally: Tally) -> Partition:
        """Partition made of the labels found, with its report and notes."""
        graph, shares = self.graph, self.shares
        sizes = graph.part_weights(labels, len(shares))
        _tell_of_sizes(graph, sizes, shares, tally)
        if graph.n_edges < DEVICE_EDGES and (told := text_of_pieces(graph, labels)) is not None:
            tally.note(told)
        first, cut, settings = tally.first, graph.cut(labels), self.settings.key() | dict(self.more)
        none = np.zeros(0)
        key = arithmetic_key(self.name, (graph.n, int(graph.adjacency.nnz)), self.settings.solver, self.plan, settings)
        spent = {"eigenpairs": tally.solve_seconds, "search": tally.search_seconds, "refinement": tally.refine_seconds}
        report = PartitionReport(
            self.plan,
            key,
            n=graph.n,
            n_edges=graph.n_edges,
            components=tally.components,
            loops=graph.loops,
            bisections=tally.bisections,
            method="packing" if first is None else first.method,
            reason="no component had to be cut" if first is None else first.reason,
            passes=tally.passes,
            seconds=tb.CallSeconds(perf_counter() - self.since, {**self.parts, **spent}),
            bytes=tb.CallBytes(tally.planned, tally.executed),
            notes=tally.notes,
        )
        return Partition(
            labels=labels,
            cut=cut,
            sizes=sizes,
            target_sizes=shares.targets,
            eigenvalues=none if first is None else first.eigenvalues,
            residuals=none if first is None else first.residuals,
            candidates=tally.candidates,
            report=report,
            trace=None if first is None else first.trace,
            names=graph.names,
        )


def _tell_of_sizes(graph: Graph, sizes: NDArray[np.float64], shares: Shares, tally: Tally) -> None:
    """Parts that are empty, and those that weigh more than they may."""
    if empty := np.flatnonzero(sizes == 0).tolist():
        vertices = "one vertex" if graph.n == 1 else f"{graph.n} vertices"
        parts = f"part {empty[0]} is" if len(empty) == 1 else f"{len(empty)} parts are"
        tally.note(f"The graph has {vertices}, so that {parts} empty.")
        return
    beyond = sizes / np.maximum(shares.most, (1 + shares.balance) * shares.targets) - 1
    worst = int(np.argmax(beyond))
    if beyond[worst] > _ROUNDING:
        over = 100 * (sizes[worst] / shares.targets[worst] - 1)
        tally.note(
            f"Part {worst} weighs {sizes[worst]:.6g}, which is {over:.3g} % more than its target of {shares.targets[worst]:.6g}: "
            "vertices that come nearer to it were not found, or would have cut more."
        )
    lightest = float(graph.vertex_weights.min(initial=np.inf))
    if (small := np.flatnonzero(shares.targets < lightest * (1 - _ROUNDING))).size:
        least = int(small[np.argmin(shares.targets[small])])
        told = f"Part {least} has a target of {shares.targets[least]:.6g}, but the lightest vertex weighs {lightest:.6g}"
        tally.note(f"{told}: each part has a vertex.")


def size_to_cut(A: Any, vertex_weights: ArrayLike | None, shares: Callable[[Graph], Shares]) -> Size:
    """Size of what a call cuts first."""
    graph = as_graph(A, vertex_weights=vertex_weights)
    return cut_size(in_units(graph), shares(graph).in_units())
