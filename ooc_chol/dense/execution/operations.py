"""What a step does on a device: tile kernels on FP64 tiles in slots of one size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.cache import BlockCache
from ooc_chol.dense.programs.program import Link, Program, Step, StepKind
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.errors import OocCholError
from ooc_chol.interfaces import AbstractStream, AbstractTier, BlockKey, Tile
from ooc_chol.kernels.interfaces import AbstractFlags, FinalTile, TileDevice
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.cholesky import TaskKind


class BadFlagError(OocCholError):
    """A worker saw a failure flag; replaced by the error that the flags of all devices tell."""


class Finisher:
    """Gives each final tile its one value, that of its storage format, and measures it."""

    def __init__(self, device: TileDevice, precision: PrecisionMap) -> None:
        self._kernels, self._precision = device.kernels, precision
        self._norms = device.kernels.create_norms(precision.grid.n_tiles)

    def finish(self, stream: AbstractStream, tile: Tile, index: tuple[int, int]) -> None:
        """Round ``tile`` in place and note its norms."""
        which = FinalTile(self._precision.grid.packed(*index), index[0] == index[1])
        self._kernels.finish(stream, tile, self._precision.format_of(index), self._norms, which)

    def norms(self, stream: AbstractStream) -> NDArray[np.float64]:
        """What was measured of this device's tiles; waits for ``stream``, which comes after all of them."""
        self._norms.copy_back(stream)
        stream.synchronize()
        return self.latest_norms()

    def latest_norms(self) -> NDArray[np.float64]:
        """What is known on the host."""
        return self._norms.values().copy()


class AbstractOperations(ABC):
    """Performs the steps of one device's program on its streams."""

    flags: AbstractFlags
    peak_bytes: int
    finisher: Finisher | None

    @abstractmethod
    def perform(self, step: Any, stream: AbstractStream) -> int:
        """Enqueue ``step``; returns the bytes that it moves over its link."""

    @property
    @abstractmethod
    def resident_bytes(self) -> int:
        """Bytes of blocks on the device behind the last step."""

    def flagged_row(self) -> int | None:
        """Smallest matrix row whose squares exceed its diagonal entry of A, as of the last copy of flags; None without one."""
        return None

    def flagged_row_is_due(self, columns: int) -> bool:
        """Whether the pivot of :meth:`flagged_row` is this device's and in the first ``columns`` tile columns."""
        return False

    def is_flagged(self, columns: int) -> bool:
        """Whether the run must end, once the pivots of this device's first ``columns`` tile columns are taken.

        Notes
        -----
        A flagged row does not end it at once: a smaller minor may fail, which that row has no part in, and is to be named.
        """
        is_set = self.flags.nonfinite() is not None or self.flags.failed_pivot() is not None
        return is_set or self.flagged_row_is_due(columns)


class TileOperations(AbstractOperations):
    """Operations of a program of FP64 tiles."""

    def __init__(
        self,
        device: TileDevice,
        plan: Plan,
        number: int,
        source: SourceTier,
        store: AbstractTier,
        others: Mapping[int, TileOperations],
    ) -> None:
        budget, program = plan.budgets[number], plan.programs[number]
        assert isinstance(program, Program)
        self._device, self._grid = device, plan.grid
        self._source, self._store, self._others = source, store, others
        self._source_itemsize = source.source.bytes_per_entry
        self._cache = BlockCache(budget.n_slots, budget.slot_bytes)
        self._precision = plan.precision
        narrow = 0 if plan.precision is None else plan.precision.largest_stored_bytes
        self._arena = device.allocate(budget.n_slots, budget.slot_bytes, plan.grid.size(0), narrow_bytes=narrow)
        self.finisher = None if plan.precision is None else Finisher(device, plan.precision)
        device.prepare(source.source.prepare)
        self.flags = device.kernels.create_flags(plan.grid.nt)

    @property
    def resident_bytes(self) -> int:
        """Bytes of tiles on the device."""
        return self._cache.resident_bytes

    @property
    def peak_bytes(self) -> int:  # type: ignore[override]
        """Most bytes of tiles at once."""
        return self._cache.peak_bytes

    def perform(self, step: Step, stream: AbstractStream) -> int:
        """The operation of ``step`` and its effect on the cache."""
        for index in step.evicts:
            self._cache.evict("L", index)
        tile = self.tile(step.slot, step.tile)
        if step.kind is StepKind.COMPUTE:
            self._compute(step, stream, tile)
        elif step.kind is StepKind.WRITE:
            self._device.copy_out(stream, tile, self._store, step.tile)
            self._cache.written(step.block)
            self._cache.release(step.block)
        else:
            self._bring(step, stream, tile)
        return 0 if step.link is None else self._moved_bytes(step, tile)

    def _moved_bytes(self, step: Step, tile: Tile) -> int:
        """Bytes that the issued copy moves; what is narrower on the link is widened on arrival."""
        if step.link is Link.SOURCE:
            return int(tile.size * self._source_itemsize)
        if step.link is Link.PEER:
            return int(tile.nbytes)
        return self._store.format_of(step.tile).stored_bytes(int(tile.size))

    def _bring(self, step: Step, stream: AbstractStream, tile: Tile) -> None:
        """Fetch or generate a tile; tiles of A are checked for NaN and infinity before anything uses them."""
        i, j = step.tile
        self._cache.reserve(step.block, step.slot, tile.nbytes)
        if step.kind is StepKind.GENERATE:
            self._device.generate(stream, self._source.generate, self._grid.span(i), self._grid.span(j), tile)
        elif step.source is not None:
            other, slot = step.source
            self._device.copy_between(stream, self._others[other].tile(slot, step.tile), tile)
        else:
            self._device.copy_in(stream, self._source if step.version == 0 else self._store, step.tile, tile)
        if step.version == 0:
            self._device.kernels.check_finite(stream, tile, i == j, self.flags, self._grid.packed(i, j))
        self._cache.loaded(step.block)
        if step.version <= j:  # an accumulator: it stays until it is written
            self._cache.hold(step.block)

    def _compute(self, step: Step, stream: AbstractStream, tile: Tile) -> None:
        """One tile kernel on tiles that the cache vouches for."""
        task = step.task
        assert task is not None
        kernels = self._device.kernels
        before = BlockKey("L", step.tile, step.version - 1)
        assert self._cache.slot(before) == step.slot
        reads = [BlockKey("L", (i, j), j + 1) for i, j in task.reads]
        operands = [self.tile(self._cache.slot(key), index) for key, index in zip(reads, task.reads, strict=True)]
        if task.kind is TaskKind.GEMM:
            kernels.gemm(stream, tile, operands[0], operands[1], k0=self._grid.start(task.k))
        elif task.kind is TaskKind.SYRK:
            kernels.syrk(stream, tile, operands[0], k0=self._grid.start(task.k))
        elif task.kind is TaskKind.TRSM:
            kernels.trsm(stream, operands[0], tile, task.k)
        else:
            kernels.potrf(stream, tile, self.flags, task.k)
            self.flags.copy_back(stream)
        if self.finisher is not None and task.kind <= TaskKind.TRSM:
            self.finisher.finish(stream, tile, step.tile)
        self._cache.modify(before)

    def tile(self, slot: int, index: tuple[int, int]) -> Tile:
        """The slot as tile ``index``."""
        if self._precision is None:
            return self._arena.tile(slot, self._grid.shape(*index))
        return self._arena.tile(slot, self._grid.shape(*index), self._precision.product_of(index).dtype.name)
