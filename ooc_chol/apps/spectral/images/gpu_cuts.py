"""Components and cuts of segments on a GPU: adjacencies stay there while segments that stand in their rows are looked at."""

from __future__ import annotations

from threading import Lock
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.subgraph import Subgraph
from ooc_chol.apps.spectral.solving.lowest import SolverOptions
from ooc_chol.apps.spectral.solving.ways import Size, is_for_host


@final
class GpuCuts:
    """Components and splits of segments on the first GPU, for several threads; :meth:`forget` gives its memory back.

    Segments whose eigenvectors the host finds are split there, and so are all with a ``memory_budget``, of which the
    eigensolver's plan counts on the whole.
    """

    def __init__(self, options: SolverOptions) -> None:
        self._options, self._lock = options, Lock()
        self._kept: WeakKeyDictionary[Graph, tb.SweepCuts | None] = WeakKeyDictionary()
        self.refused = 0  #: Graphs for which there was no room

    def takes(self, segment: Subgraph | Size) -> bool:
        """Tell whether a segment of that size is for the GPU, if there is room."""
        options = self._options
        is_gpu = options.machine.names[0].startswith("cuda")
        return is_gpu and options.memory_budget is None and not is_for_host(segment.n_entries, options)

    def measured(self, graph: Subgraph) -> Subgraph:
        """A segment whose degrees and lengths of rows a GPU that has its graph finds, with the bits of the host."""
        with self._lock:
            sweeps = None if graph.is_all else self._kept.get(graph.whole)
        if sweeps is not None:
            graph.lengths, graph.degrees = sweeps.rows(graph.vertices)
        return graph

    def best(
        self, graph: Subgraph, vectors: NDArray[np.float64], directions: NDArray[np.float64], allowed: NDArray[np.bool_]
    ) -> Any | None:
        """The best split, as :meth:`ooc_chol.toolbox.SweepCuts.best` returns it; None where the host is to find it."""
        sweeps = self._sweeps(graph)
        return None if sweeps is None else sweeps.best(graph.vertices, graph.degrees, vectors, directions, allowed)

    def components(self, graph: Subgraph, noticed: float, joins: float) -> tuple[NDArray[np.int32], NDArray[np.bool_]] | None:
        """Components, as :meth:`ooc_chol.toolbox.SweepCuts.components` returns them; None where the host is to find them."""
        sweeps = self._sweeps(graph)
        return None if sweeps is None else sweeps.components(graph.vertices, graph.degrees, noticed, joins)

    def across(self, graph: Subgraph, side: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float64]] | None:
        """Entries between sides, as :meth:`ooc_chol.toolbox.SweepCuts.across` returns them; None where the host finds them."""
        sweeps = self._sweeps(graph)
        return None if sweeps is None else sweeps.across(graph.vertices, side)

    def _sweeps(self, graph: Subgraph) -> tb.SweepCuts | None:
        """The graph that a segment is part of on the GPU; None where the segment is for the host, or it does not fit."""
        whole, device = graph.whole, self._options.machine.names[0]
        if not self.takes(graph):
            return None
        with self._lock:
            if whole not in self._kept:
                fits = tb.SweepCuts.fits(device, whole.n, int(whole.adjacency.nnz))
                self._kept[whole] = tb.SweepCuts(device, whole.adjacency) if fits else None
                self.refused += not fits
            return self._kept[whole]

    def forget(self) -> None:
        """Give back all memory of the GPU."""
        with self._lock:
            for sweeps in self._kept.values():
                if sweeps is not None:
                    sweeps.close()
            self._kept.clear()
