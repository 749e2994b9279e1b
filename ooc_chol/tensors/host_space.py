"""A graph-tensor in the memory of the host: NumPy's arrays, or memory-mapped files, and the kernels of the host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.files.outputs import AnyPath
from ooc_chol.hardware.host import HostStream
from ooc_chol.kernels.interfaces.tensors import PANEL_COLUMNS, Shrinkage, Svt, TensorShape, group_ends, within_groups
from ooc_chol.kernels.registry import tensor_kernels
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room
from ooc_chol.runtime.passes import BlockNames, Pass
from ooc_chol.tensors.space import AbstractTensorSpace, StepFigures, TensorSeconds
from ooc_chol.tensors.storage import in_file
from ooc_chol.tracing.trace import Trace

#: Entries that are masked at a time.
_MASKED_ENTRIES = 1 << 22


@final
class HostTensorSpace(AbstractTensorSpace):
    """A tensor in the memory of the host, all of it at once; nothing crosses a link.

    Shapes: ``basis`` (N, r). It takes X and its transform, ``(N + r) m n`` numbers, N times 4,096 more, and the basis; for
    "subspace" the warm start of each slice. What was observed is read where it is. Raises ``BudgetError`` and ``TierError``.
    """

    def __init__(
        self,
        basis: NDArray[Any],
        slices: tuple[int, int],
        precision: Precision,
        svt: Svt = "auto",
        *,
        threads: int = 1,
        folder: AnyPath | None = None,
        device: str = "host:0",
        trace: bool = False,
        eigenspaces: Sequence[range] = (),
    ) -> None:
        self.shape, self.precision = TensorShape(len(basis), basis.shape[1], *slices), precision
        self._kernels = tensor_kernels(device, self.shape, precision, svt, threads)
        self.joined = within_groups(eigenspaces, group_ends(self.shape.components, self._kernels.group, eigenspaces))
        self.svt, self.devices, self.seconds = self._kernels.svt, (device,), TensorSeconds()
        self._is_traced, self._run = trace, Pass("impute", is_traced=trace)
        self._track = self._run.track(device, BlockNames("X", "memory" if folder is None else "file"))
        self._basis = np.ascontiguousarray(basis, precision.compute)
        (n, r), width, storage = basis.shape, self.shape.width, precision.storage
        self._panels = [slice(at, min(at + PANEL_COLUMNS, width)) for at in range(0, width, PANEL_COLUMNS)]
        warm = (r, self.shape.order, self._kernels.basis_columns)
        entries = n * min(width, PANEL_COLUMNS) + (0 if folder is not None else (n + r) * width)
        advice = "give work_folder, a folder on a disk" if folder is None else "take fewer components"
        check_room(entries * storage.itemsize + 8 * prod(warm), f"a tensor of {n} x {slices[0]} x {slices[1]}", advice)
        self._x, self._z = (_array((rows, width), storage, folder) for rows in (n, r))
        self._warm = np.zeros(warm) if warm[2] else None
        self._estimate = np.empty(n * min(width, PANEL_COLUMNS), storage)
        self._sums = np.zeros((len(self._panels), 2))
        self._ranks, self._flags = np.zeros(r, np.int32), np.zeros(r, np.int32)
        self._largest = 0.0
        warm_bytes = 0 if self._warm is None else self._warm.nbytes
        self._track.resident_bytes = (
            self._estimate.nbytes + warm_bytes + (0 if folder is not None else (n + r) * width * storage.itemsize)
        )
        self._stream = HostStream("tensors")
        self._stream.start()

    def load(
        self, observed: NDArray[Any], mask: NDArray[np.bool_], start: NDArray[Any] | None = None, *, center: float = 0.0
    ) -> None:
        """Take a problem, mask X, transform it, and find s_1."""
        n = self.shape.vertices
        given, self._mask = observed.reshape(n, -1), mask.reshape(n, -1)
        self._fill(given, center, None)
        self._transform()
        norms = np.zeros(self.shape.components)
        with self._timed("threshold"), self._told("norms"):
            self._kernels.norms(self._stream, self._slices, norms, joined=self.joined)
        self._largest = float(norms.max(initial=0.0))
        if not np.isfinite(self._largest):
            raise self._not_finite(np.flatnonzero(~np.isfinite(norms)))
        if start is not None:
            self._fill(given, center, start.reshape(n, -1))
            self._transform()

    def largest(self) -> float:
        """s_1, which :meth:`load` found."""
        return self._largest

    def step(self, lam: float, momentum: float = 0.0, shrinkage: Shrinkage = "soft", number: int = 0) -> StepFigures:
        """A threshold of all slices, and a scan of panels: back, fill in, forward."""
        figures = self._ranks, self._flags
        how: dict[str, Any] = {"shrinkage": shrinkage, "joined": self.joined, "across": self._is_across(number)}
        with self._timed("threshold"), self._told("threshold"):
            self._kernels.threshold(self._stream, self._slices, lam, *figures, basis=self._warm, **how)
        if (self._flags < 0).any():
            raise self._not_finite(np.flatnonzero(self._flags < 0))
        self._transform(momentum)
        change = size = 0.0
        for of_panel in self._sums.tolist():
            change, size = change + of_panel[0], size + of_panel[1]
        return StepFigures(change, size, self._ranks.copy(), int(self._flags.sum()))

    def take(self, rows: range | None = None) -> NDArray[Any]:
        """X itself, or rows of it."""
        part = self._x if rows is None else self._x[rows.start : rows.stop]
        return part.reshape(-1, self.shape.rows, self.shape.columns)

    def warm(self) -> Sequence[NDArray[np.float64]]:
        """The leading eigenvectors of Gram matrices, for the route of subspaces."""
        return [] if self._warm is None else [self._warm]

    def warm_up(self, arrays: Sequence[NDArray[np.float64]]) -> None:
        for mine, given in zip(self.warm(), arrays, strict=True):
            mine[...] = given

    @property
    def trace(self) -> Trace | None:  # type: ignore[override]
        """Every piece of work until now; None where none was asked for."""
        return self._trace_of(self._run) if self._is_traced else None

    @property
    def planned_bytes(self) -> Mapping[str, int]:
        """Nothing: there is no link."""
        return {}

    @property
    def executed_bytes(self) -> Mapping[str, int]:
        """Nothing: there is no link."""
        return {}

    def close(self) -> None:
        """End the threads; arrays go with their last owner."""
        self._stream.close()
        self._kernels.close()

    @property
    def _slices(self) -> NDArray[Any]:
        return self._z.reshape(self.shape.components, self.shape.rows, self.shape.columns)

    def _fill(self, observed: NDArray[Any], center: float, other: NDArray[Any] | None) -> None:
        """X becomes what was observed, less ``center``, and elsewhere ``other``, or zero."""
        step = max(1, _MASKED_ENTRIES // self.shape.width)
        for at in range(0, self.shape.vertices, step):
            part = slice(at, at + step)
            self._x[part] = 0 if other is None else other[part]
            np.subtract(observed[part], center, out=self._x[part], where=self._mask[part])

    def _transform(self, momentum: float | None = None) -> None:
        """X to Z, panel by panel; with ``momentum`` Z to X first."""
        with self._timed("transform"):
            for number, (panel, sums) in enumerate(zip(self._panels, self._sums, strict=True)):
                x, z = self._x[:, panel], self._z[:, panel]
                flops = 2 * self._basis.size * x.shape[1]
                if momentum is None:
                    with self._told(f"transform {number}", flops):
                        self._kernels.transform(self._stream, self._basis, x, z)
                else:
                    with self._told(f"panel {number}", 2 * flops):
                        self._enqueue_panel(panel, x, z, sums, momentum)

    def _enqueue_panel(self, panel: slice, x: NDArray[Any], z: NDArray[Any], sums: NDArray[np.float64], momentum: float) -> None:
        """Columns of Z to X, filled in, and to Z."""
        given, estimate = self._mask.view(np.uint8), self._estimate[: x.size].reshape(x.shape)
        mask = given[:, panel] if given.shape[1] > 1 or self.shape.width == 1 else given[:, 0]
        self._kernels.transform(self._stream, self._basis, z, estimate, inverse=True)
        # What is observed is in X already, and stays.
        self._kernels.fill(self._stream, estimate, x, mask, x, sums, momentum=momentum)
        self._kernels.transform(self._stream, self._basis, x, z)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the seconds of what is enqueued inside a block, which ends when it is done."""
        since = time.perf_counter()
        yield
        self._stream.synchronize()
        self._track.settle()
        setattr(self.seconds, what, getattr(self.seconds, what) + time.perf_counter() - since)

    @contextmanager
    def _told(self, label: str, flops: int = 0) -> Iterator[None]:
        """Tell a trace of what is enqueued inside a block."""
        begun = self._track.now(self._stream)
        yield
        self._track.ran("compute", (), "compute", (begun, self._track.now(self._stream)), flops=flops, label=label)


def _array(shape: tuple[int, int], dtype: np.dtype[Any], folder: AnyPath | None) -> NDArray[Any]:
    """Room in main memory, or in a file without a name, all of whose bytes the disk has granted."""
    return np.empty(shape, dtype) if folder is None else in_file(shape, dtype, folder)
