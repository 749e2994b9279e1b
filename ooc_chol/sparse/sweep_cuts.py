"""Sweep cuts of a graph and its subgraphs on a GPU, where its memory holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.display.prints import one_line
from ooc_chol.hardware.registry import driver_errors_typed, memory_info
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.process.fork_safety import new_lock

if TYPE_CHECKING:
    from ooc_chol.kernels.cuda.sweep_cuts import SweepCut, SweepKernels

#: Bytes that an entry takes, and a vertex: its positions, weights before it, keys and numbers in 16 orders.
_ENTRY_BYTES, _VERTEX_BYTES = 12, 600
#: The share of a GPU's free memory that it may take, beside an eigensolver.
_SHARE = 4
_STEP = "sweep cuts"


@final
class SweepCuts(AbstractClosing):
    """The adjacency of a graph on a GPU, whose orders are split there; several threads may share it.

    Parameters
    ----------
    device : str
        A GPU, such as ``"cuda:0"``.
    adjacency : (n, n) csr_array
        Symmetric, of at least 0.

    Notes
    -----
    It takes memory of the GPU from the first call on, until it is closed.
    """

    def __init__(self, device: str, adjacency: csr_array) -> None:
        self._device, self._adjacency, self._lock = device, adjacency, new_lock()
        self._kernels: SweepKernels | None = None

    def __repr__(self) -> str:
        return one_line(self, {"device": self._device, "n": self._adjacency.shape[0], "entries": self._adjacency.nnz})

    def _opened(self) -> SweepKernels:
        """The adjacency on the GPU, where it is copied once."""
        if self._kernels is None:
            from ooc_chol.hardware.cuda import device_number
            from ooc_chol.kernels.cuda.sweep_cuts import SweepKernels

            self._kernels = SweepKernels(device_number(self._device), self._adjacency)
        return self._kernels

    @staticmethod
    def fits(device: str, n: int, n_entries: int) -> bool:
        """Tell whether a quarter of the GPU's free memory holds a graph; others may use the rest meanwhile.

        Parameters
        ----------
        device : str
            A GPU.
        n : int
            Vertices.
        n_entries : int
            Entries of the adjacency.

        Returns
        -------
        bool
            True if it does.
        """
        needed = _VERTEX_BYTES * n + _ENTRY_BYTES * n_entries
        return n <= np.iinfo(np.int32).max and _SHARE * needed <= memory_info(device)[0]

    def best(
        self,
        vertices: NDArray[np.integer],
        degrees: NDArray[np.float64],
        vectors: NDArray[np.float64],
        directions: NDArray[np.float64],
        allowed: NDArray[np.bool_],
    ) -> SweepCut | None:
        """The split of a subgraph with the smallest normalized cut; None where none is allowed.

        Parameters
        ----------
        vertices : (m,) of integers
            Those of the subgraph, ascending.
        degrees : (m,) float64
            Sums of their edges' weights in it.
        vectors : (m, k) float64
            Numbers of each vertex.
        directions : (d, k) float64
            Vertices are put in order by ``vectors @ direction``, equal ones by their numbers.
        allowed : (m,) bool
            True if an order may be split behind each position.

        Returns
        -------
        SweepCut
            ``direction``, the first that has it; ``side`` (m,), true behind the split; ``cut``, the weights between the sides.

        Raises
        ------
        DeviceError
            A driver refused a call.
        """
        with self._lock, driver_errors_typed(self._device, _STEP):
            return self._opened().best(vertices, degrees, vectors, directions, allowed)

    def components(
        self, vertices: NDArray[np.integer], degrees: NDArray[np.float64], noticed: float, joins: float
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The components of a subgraph by edges that weigh enough beside degrees.

        Parameters
        ----------
        vertices, degrees : (m,)
            As of :meth:`best`.
        noticed : float
            An end of an edge that weighs more than this share of the degree of its other end is noticed.
        joins : float
            An edge joins two noticed ends if it weighs more than this share of one of their degrees.

        Returns
        -------
        (m,) int32, (m,) bool
            The first vertex of the component of each, and which are noticed; each of the others is alone.

        Raises
        ------
        DeviceError
            A driver refused a call.
        """
        with self._lock, driver_errors_typed(self._device, _STEP):
            return self._opened().components(vertices, degrees, noticed, joins)

    def rows(self, vertices: NDArray[np.integer]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Count the edges that each vertex of a subgraph has in it, and sum their weights.

        Parameters
        ----------
        vertices : (m,) of integers
            As of :meth:`best`.

        Returns
        -------
        (m,) int32, (m,) float64
            The sums have the bits of ``np.add.reduceat`` over rows of a copy of the subgraph.

        Raises
        ------
        DeviceError
            A driver refused a call.
        """
        with self._lock, driver_errors_typed(self._device, _STEP):
            return self._opened().rows(vertices)

    def across(self, vertices: NDArray[np.integer], side: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """List the entries of a subgraph between two sides of it.

        Parameters
        ----------
        vertices : (m,) of integers
            As of :meth:`best`.
        side : (m,) bool
            The side of each.

        Returns
        -------
        (m,) int32, (c,) float64
            How many there are in the row of each vertex, and the weights of all, row by row.

        Raises
        ------
        DeviceError
            A driver refused a call.
        """
        with self._lock, driver_errors_typed(self._device, _STEP):
            return self._opened().across(vertices, side)

    def close(self) -> None:
        """Give back memory of the GPU; a second call does nothing."""
        with self._lock:
            if self._kernels is not None:
                with driver_errors_typed(self._device, _STEP):
                    self._kernels.close()
                self._kernels = None
