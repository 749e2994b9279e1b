"""Eigenpairs of batches of small symmetric matrices on the current CUDA device: cuSOLVER's batched routines."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np
from nvmath.bindings import cusolverDn

from ooc_chol.errors import BudgetError
from ooc_chol.hardware.cuda import no_capture
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.tensor_sizes import EigenRoutine

_VALUES, _VECTORS = 0, 1
_LOWER = 0
_DOUBLE = 1
#: Jacobi's method ends where what is off the diagonal is so small a share of the norm; the default is u.
_TOLERANCE, _MOST_SWEEPS = 2.0**-48, 100


class BatchedEigenpairs:
    """Eigenpairs of float64 matrices of one order, by one of cuSOLVER's routines, in a workspace that is given.

    A batch for which the routine wants more is computed in parts, halved until they fit: their size depends on the order, on
    ``most`` and on the version of cuSOLVER alone. Raises ``BudgetError``: the routine wants more than ``nbytes`` for a single
    matrix.
    """

    def __init__(self, order: int, most: int, routine: EigenRoutine, workspace: int, nbytes: int) -> None:
        self.order, self.routine = order, routine
        self._workspace, self._nbytes = workspace, nbytes
        self._uncaptured = no_capture(cp.cuda.Device().id)
        with self._uncaptured:
            self._handle: int | None = int(cusolverDn.create())
        self._parameters = _jacobi() if routine == "syevj" else int(cusolverDn.create_params())
        self._on_host = np.empty(0, np.uint8)
        self.batch = self._fitting(most)

    def run(self, stream: AbstractStream, matrices: Tile, values: Tile, info: Tile, *, vectors: bool = True) -> None:
        """Enqueue: ``values`` (s, d) become ascending eigenvalues, rows of ``matrices`` (s, d, d) the eigenvectors.

        ``info`` (s,), int32, becomes 0 for each matrix whose eigenpairs were found. Without vectors the matrices are spoilt.
        """
        assert self._handle is not None  # nothing is enqueued behind close
        cusolverDn.set_stream(self._handle, cupy_stream(stream).ptr)
        for at in range(0, len(matrices), self.batch):
            part = slice(at, min(at + self.batch, len(matrices)))
            self._enqueue(matrices[part], values[part], info[part], _VECTORS if vectors else _VALUES)

    def close(self) -> None:
        """Destroy the handle; a second call does nothing."""
        if self._handle is not None:
            destroy = cusolverDn.destroy_syevj_info if self.routine == "syevj" else cusolverDn.destroy_params
            destroy(self._parameters)
            with self._uncaptured:
                cusolverDn.destroy(self._handle)
        self._handle = None

    def _fitting(self, most: int) -> int:
        """Matrices of a part, and memory on the host for them."""
        batch = max(1, most)
        while True:
            needed, on_host = self._needs(batch)
            if needed <= self._nbytes:
                self._on_host = np.empty(on_host, np.uint8)
                return batch
            if batch == 1:
                what = f"workspace of cuSOLVER for eigenpairs of order {self.order}"
                raise BudgetError(what, needed, self._nbytes, 'threshold on the host, or by svt="subspace"')
            batch = -(-batch // 2)

    def _needs(self, batch: int) -> tuple[int, int]:
        """The most bytes that the routine wants on the device and on the host, with vectors or without."""
        found = [self._bytes(batch, job) for job in (_VALUES, _VECTORS)]
        return max(each[0] for each in found), max(each[1] for each in found)

    def _bytes(self, batch: int, job: int) -> tuple[int, int]:
        d, at = self.order, self._workspace  # an address that is not read
        if self.routine == "syevj":
            sizes = self._handle, job, _LOWER, d, at, d, at, self._parameters, batch
            return 8 * int(cusolverDn.dsyevj_batched_buffer_size(*sizes)), 0
        types = self._handle, self._parameters, job, _LOWER, d, _DOUBLE, at, d, _DOUBLE, at, _DOUBLE, batch
        on_device, on_host = cusolverDn.xsyev_batched_buffer_size(*types)
        return int(on_device), int(on_host)

    def _enqueue(self, matrices: Tile, values: Tile, info: Tile, job: int) -> None:
        d, count = self.order, len(matrices)
        a, w, found = _at(matrices), _at(values), _at(info)
        if self.routine == "syevj":
            words = self._nbytes // 8
            cusolverDn.dsyevj_batched(
                self._handle, job, _LOWER, d, a, d, w, self._workspace, min(words, 2**31 - 1), found, self._parameters, count
            )
            return
        cusolverDn.xsyev_batched(
            self._handle, self._parameters, job, _LOWER, d, _DOUBLE, a, d, _DOUBLE, w, _DOUBLE, self._workspace, self._nbytes,
            self._on_host.ctypes.data, self._on_host.size, found, count,
        )  # fmt: skip


def _jacobi() -> int:
    """Parameters of Jacobi's method: eigenvalues ascend."""
    parameters = int(cusolverDn.create_syevj_info())
    cusolverDn.xsyevj_set_tolerance(parameters, _TOLERANCE)
    cusolverDn.xsyevj_set_max_sweeps(parameters, _MOST_SWEEPS)
    cusolverDn.xsyevj_set_sort_eig(parameters, 1)
    return parameters


def _at(array: Any) -> int:
    return int(array.data.ptr)
