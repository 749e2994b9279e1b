"""Sweep cuts on a GPU: adjacencies stay there while segments that stand in their rows are looked at."""

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
from ooc_chol.apps.spectral.solving.ways import is_for_host


@final
class GpuCuts:
    """What splits segments on the first GPU, for several threads; :meth:`forget` gives its memory back.

    Segments whose eigenvectors the host finds are split there, and so are all with a ``memory_budget``, of which the
    eigensolver's plan counts on the whole.
    """

    def __init__(self, options: SolverOptions) -> None:
        self._options, self._lock = options, Lock()
        self._kept: WeakKeyDictionary[Graph, tb.SweepCuts | None] = WeakKeyDictionary()
        self.refused = 0  #: Segments that were split on the host since their graph was too large

    def best(
        self, graph: Subgraph, vectors: NDArray[np.float64], directions: NDArray[np.float64], allowed: NDArray[np.bool_]
    ) -> Any | None:
        """The best split, as :meth:`ooc_chol.toolbox.SweepCuts.best` returns it; None where the host is to find it."""
        options = self._options
        is_gpu = options.machine.names[0].startswith("cuda")
        if not is_gpu or options.memory_budget is not None or is_for_host(graph.n_entries, options):
            return None
        sweeps = self._sweeps(graph.whole)
        if sweeps is None:
            self.refused += 1
            return None
        return sweeps.best(graph.vertices, graph.degrees, vectors, directions, allowed)

    def _sweeps(self, whole: Graph) -> tb.SweepCuts | None:
        """The graph on the GPU; None where it does not fit."""
        device = self._options.machine.names[0]
        with self._lock:
            if whole not in self._kept:
                fits = tb.SweepCuts.fits(device, whole.n, int(whole.adjacency.nnz))
                self._kept[whole] = tb.SweepCuts(device, whole.adjacency) if fits else None
            return self._kept[whole]

    def forget(self) -> None:
        """Give back all memory of the GPU."""
        with self._lock:
            for sweeps in self._kept.values():
                if sweeps is not None:
                    sweeps.close()
            self._kept.clear()
