"""Operations of steps on a device: those shared by both engines, and those of tiles in slots of one size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.execution.narrow_decisions import NarrowDecisions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.probing import ProbedSums
from ooc_chol.dense.programs.steps import Step
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.errors import OocCholError
from ooc_chol.interfaces import AbstractStream, BlockIndex, Tiers, Tile
from ooc_chol.kernels.interfaces import FinalTile, TileDevice, largest_imaginary
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.operations import Gemm, Load, Place, Pool, Potrf, Pull, StepKind, Store, Syrk, Trsm
from ooc_chol.tasks.tiling import Index


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

    def largest(self, index: Index) -> int | None:
        """Where the device has the largest magnitude of a final tile."""
        return self._norms.largest(self._precision.grid.packed(*index))

    def send(self, stream: AbstractStream, first: int, count: int) -> None:
        """Enqueue the way of what was measured of some packed tiles to the host."""
        self._norms.copy_rows(stream, first, count)

    def sent(self, first: int, count: int) -> NDArray[np.float64]:
        """Numbers that were measured of these tiles, once the copy is complete."""
        return self._norms.rows(first, count)

    def norms(self, stream: AbstractStream) -> NDArray[np.float64]:
        """Norms measured of this device's tiles; waits for ``stream``, which comes after all of them."""
        self._norms.copy_back(stream)
        stream.synchronize()
        return self.latest_norms()

    def latest_norms(self) -> NDArray[np.float64]:
        """Norms known on the host."""
        return self._norms.values().copy()


class AbstractOperations(ABC):
    """Performs the steps of one device's program on its streams.

    That each step finds in its slots what it needs is the plan's matter: the planner runs the programs of all devices in the
    simulator (:mod:`ooc_chol.dense.programs.simulate`), which raises if one does not.
    """

    #: What performs each operation and tells the bytes that it moves over a link: functions, as bound methods would tie an
    #: object to itself, and its device's memory with it.
    _PERFORM: ClassVar[Mapping[type, Callable[[Any, Step, Any, AbstractStream], int]]]

    def __init__(self, device: TileDevice, plan: Plan, number: int, *, tiers: Tiers, others: Mapping[int, Self]) -> None:
        self._device, self._grid, self._precision, self._fmt = device, plan.grid, plan.precision, plan.fmt
        self._number, self._owners = number, plan.owners
        self.decisions: NarrowDecisions | None = None  #: Of products in FP16; None where all are exact
        source, self._store, self._others = tiers["A"], tiers["L"], others
        assert isinstance(source, SourceTier)
        self._source, self._tile_function = source, source.function_on(device.name)
        self._source_itemsize = source.source.bytes_per_entry
        self._arena = self._allocate(plan)
        self.finisher = None if plan.precision is None else Finisher(device, plan.precision)
        self.probed = self._open_probes(plan)
        device.prepare(source.source.prepare)
        self.flags = device.kernels.create_flags(plan.grid.nt)
        self._imaginary = largest_imaginary(source.source.dtype, plan.fmt, plan.grid.n)

    @abstractmethod
    def _allocate(self, plan: Plan) -> Any:
        """The device's memory, as the plan divides it, the arrays of probes last."""

    def _open_probes(self, plan: Plan) -> ProbedSums | None:
        """Sums of final tiles' products with probes; None where the plan has none."""
        arrays = self._arena.arrays[-len(plan.probe_arrays) :] if plan.probe_arrays else ()
        return ProbedSums(plan.grid, self._device, arrays, self._arena.slot_bytes) if arrays else None

    @abstractmethod
    def tile(self, place: Place, index: Index) -> Tile:
        """The slot as tile ``index``."""

    @abstractmethod
    def flagged_row(self) -> int | None:
        """Smallest matrix row whose squares exceed its diagonal entry of A, as of the last copy of flags; None without one."""

    def perform(self, step: Step, stream: AbstractStream) -> int:
        """Enqueue ``step``; returns the bytes that it moves over its link."""
        return self._PERFORM[type(step.operation)](self, step, step.operation, stream)

    def must_end_after(self, step: Step) -> bool:
        """Tell whether the run must end once ``step`` is complete: flags are read at pivots."""
        return step.is_pivot and self.is_flagged(step.tile[1] + 1)

    def is_flagged(self, columns: int) -> bool:
        """Tell whether the run must end, once the pivots of this device's first ``columns`` tile columns are taken.

        A flagged row does not end it at once: a smaller minor may fail, which that row has no part in, and is to be named. The
        row counts when its pivot, this device's, has been taken with all before it.
        """
        flags = self.flags
        if flags.nonfinite() is not None or flags.failed_pivot() is not None or flags.imaginary() is not None:
            return True
        row = self.flagged_row()
        return row is not None and row // self._grid.nb < columns and self._owners[row // self._grid.nb] == self._number

    def _load(self, step: Step, work: Load, stream: AbstractStream) -> int:
        """Fetch or generate a tile; tiles of A are checked for NaN and infinity before anything uses them."""
        i, j = index = step.tile
        if step.block.version:
            return self._fetch_or_copy(work.place, index, stream)
        tile = self.tile(work.place, index)
        if step.kind is StepKind.GENERATE:
            self._device.generate(stream, self._tile_function, self._grid.span(i), self._grid.span(j), tile)
        else:
            self._device.copy_in(stream, self._source, index, tile)
        self._device.kernels.check_finite(stream, tile, i == j, self.flags, self._grid.packed(i, j))
        if i == j and self._fmt.is_complex:
            self._device.kernels.check_real_diagonal(stream, tile, self._imaginary, self.flags, i)
        return self._grid.entries(i, j) * self._source_itemsize

    def _fetch_or_copy(self, place: Place, index: Index, stream: AbstractStream) -> int:
        """Take a tile of L from what the device has kept of an earlier run, else fetch it, and keep it where it is to stay."""
        if (kept := self._store.kept_on(self._device.name, index)) is not None:
            self._device.copy_between(stream, kept, self.tile(place, index))
            return 0
        moved = self._fetch(place, index, stream)
        self._keep(place, index, stream)
        return moved

    def _keep(self, place: Place, index: Index, stream: AbstractStream) -> None:
        """Copy a tile to where the device keeps it for later runs, if it does."""
        if (target := self._store.place_on(self._device.name, index)) is not None:
            self._device.copy_between(stream, self.tile(place, index), target)

    def bring(self, index: BlockIndex, stream: AbstractStream) -> int:
        """Copy a tile of L from the store to where the device keeps it for later runs; the bytes that it moves over the link."""
        if (target := self._store.place_on(self._device.name, index)) is None:
            return 0
        self._device.copy_in(stream, self._store, index, target)
        return self._stored_bytes((index[0], index[1]))

    @abstractmethod
    def _fetch(self, place: Place, index: Index, stream: AbstractStream) -> int:
        """Fetch a tile of L from the store."""

    def _write(self, step: Step, work: Store, stream: AbstractStream) -> int:
        i, j = index = step.tile
        tile = self.tile(work.place, index)
        largest = None if self.finisher is None else self.finisher.largest(index)
        self._device.copy_out(stream, tile, self._store, index, largest=largest)
        self._keep(work.place, index, stream)
        if self.probed is not None:  # each tile leaves once, and keeps its place until then: nothing waits for this product
            self.probed.add(stream, tile, range(i, i + 1), j)
        return self._stored_bytes(index)

    def _potrf(self, step: Step, work: Potrf, stream: AbstractStream) -> int:
        tile = self.tile(work.place, step.tile)
        self._device.kernels.potrf(stream, tile, self.flags, step.tile[0])
        if self.finisher is not None:
            self.finisher.finish(stream, tile, step.tile)
        self.copy_flags_back(stream)
        return 0

    @abstractmethod
    def copy_flags_back(self, stream: AbstractStream) -> None:
        """Enqueue the copies of all flags to the host."""

    def _trsm(self, step: Step, work: Trsm, stream: AbstractStream) -> int:
        _, column = index = step.tile
        diagonal, tile = self.tile(work.diagonal, (column, column)), self.tile(work.place, index)
        self._device.kernels.trsm(stream, diagonal, tile, column)
        if self.finisher is not None:
            self.finisher.finish(stream, tile, index)
        return 0

    def _pull_tile(self, step: Step, work: Pull, stream: AbstractStream) -> int:
        """Copy a tile from another device."""
        tile = self.tile(work.place, step.tile)
        self._device.copy_between(stream, self._others[work.device].tile(work.source, step.tile), tile)
        return int(tile.nbytes)

    def _stored_bytes(self, index: Index) -> int:
        """Bytes of a tile of L on its way to and from the store: what is narrower there is widened on arrival."""
        return self._store.format_of(index).stored_bytes(self._grid.entries(*index))


@final
class TileOperations(AbstractOperations):
    """Operations of a program of tiles in the devices' own arithmetic."""

    def _allocate(self, plan: Plan) -> Any:
        narrow = 0 if plan.precision is None else plan.precision.largest_stored_bytes
        slots, nbytes = plan.layout.slots(Pool.TILE), plan.layout.slot_bytes(Pool.TILE)
        return self._device.allocate(slots, nbytes, plan.grid.size(0), plan.probe_arrays, narrow_bytes=narrow)

    def tile(self, place: Place, index: Index) -> Tile:
        """The slot as tile ``index``, in the format in which it is updated."""
        if self._precision is None:
            return self._arena.tile(place.slot, self._grid.shape(*index), self._fmt.type_name)
        return self._arena.tile(place.slot, self._grid.shape(*index), self._precision.product_of(index).type_name)

    def flagged_row(self) -> None:
        """Always None: only residues keep sums of squares, and native FP64 finds a row that fails at its pivot."""
        return

    def copy_flags_back(self, stream: AbstractStream) -> None:
        """Those of tiles and pivots."""
        self.flags.copy_back(stream)

    def _fetch(self, place: Place, index: Index, stream: AbstractStream) -> int:
        self._device.copy_in(stream, self._store, index, self.tile(place, index))
        return self._stored_bytes(index)

    def _syrk(self, step: Step, work: Syrk, stream: AbstractStream) -> int:
        i, _ = step.tile
        k0 = self._grid.start(work.k)
        self._device.kernels.syrk(stream, self.tile(work.place, step.tile), self.tile(work.left, (i, work.k)), k0=k0)
        return 0

    def _gemm(self, step: Step, work: Gemm, stream: AbstractStream) -> int:
        i, j = step.tile
        k, left, right = work.k, self.tile(work.left, (i, work.k)), self.tile(work.right, (j, work.k))
        self._device.kernels.gemm(stream, self.tile(work.place, step.tile), left, right, k0=self._grid.start(k))
        return 0

    _PERFORM: ClassVar[Mapping[type, Callable[[Any, Step, Any, AbstractStream], int]]] = {
        Load: AbstractOperations._load,
        Store: AbstractOperations._write,
        Potrf: AbstractOperations._potrf,
        Trsm: AbstractOperations._trsm,
        Syrk: _syrk,
        Gemm: _gemm,
        Pull: AbstractOperations._pull_tile,
    }
