"""One device of a space: its rows of the basis, and what it computes of sums over all rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.space_kernels import SpaceKernels
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, AbstractStream, Tile
from ooc_chol.kernels.interfaces.panels import AbstractPanelKernels
from ooc_chol.runtime.passes import Pass
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.panels import bring_panel, bring_vectors, return_panel
from ooc_chol.sparse.plan import DeviceShare
from ooc_chol.sparse.products import DeviceProducts

#: Views that are kept: of some thousand steps.
_MOST_VIEWS = 1 << 15


class SmallMatrices(NamedTuple):
    """Matrices (block, block) that a device works with; all devices have the same."""

    before: Tile  #: Inner products of W as it came from a product
    now: Tile  #: Before a projection that was not the first
    after: Tile  #: After a projection
    gram: Tile  #: That is factored
    first: Tile  #: Inverse of its first factor
    inverse: Tile  #: Of its last one
    zeros: Tile


class Flags(NamedTuple):
    """Numbers of uint32 on a device, 0 or 1."""

    fell: Tile  #: A norm fell
    weak: Tile  #: A column of W nearly depends, or depends, on the others
    both: Tile
    dependent: Tile  #: For each column


class Section(NamedTuple):
    """Inner products of some columns with W, for each chunk of all rows, in one of the arrays of partial sums."""

    first: int  #: Where it begins, in columns times block
    columns: int
    turn: int  #: Which of the arrays


class Recurrence(NamedTuple):
    """A step of Chebyshev's recurrence: ``V[into] = 2 B V[panel] - V[previous]`` with ``B = (A - center) / half``."""

    panel: int
    previous: int | None  #: None for ``B V[panel]``
    into: int | None  #: None for W
    center: float
    half: float


@final
class SpaceDevice:
    """The memory of one device, and work on it; whoever calls has made the device current."""

    def __init__(
        self, device: AbstractDevice[SpaceKernels], plan: SpacePlan, share: DeviceShare, operator: Operator, run: Pass
    ) -> None:
        self.device, self.plan, self.rows = device, plan, share.rows
        self.products = DeviceProducts(device, plan.products, share, operator, run, device.kernels.products)
        self.computing: AbstractStream = self.products.streams.computing
        if device.kernels.wide_products is not device.kernels.products:
            self.products.widen(device.kernels.wide_products)
        self.basis, self.partial, self._log, self._scratch, small, flags, self.norms = self.products.others
        self.small = SmallMatrices(*small[: len(SmallMatrices._fields)])
        self.flags = Flags(flags[0:1], flags[1:2], flags[0:2], flags[2:])
        chunk_rows = plan.products.blocks.chunk_rows
        self.chunks = range(share.rows.start // chunk_rows, -(-share.rows.stop // chunk_rows))
        self._slot = share.slot_bytes
        self._views: dict[Hashable, Tile] = {}
        self.brought_bytes = 0  #: Bytes from the host
        self.returned_bytes = 0  #: Bytes to the host
        self.sum_bytes = 0  #: Bytes of partial sums of other devices
        self.bring(np.zeros((plan.block, plan.block)), self.small.zeros)

    @property
    def kernels(self) -> AbstractPanelKernels:
        """Sums and updates in the precision of the basis."""
        return self.device.kernels.panels

    @property
    def wide_kernels(self) -> AbstractPanelKernels:
        """The same in float64."""
        return self.device.kernels.wide_panels

    def view(self, key: Hashable, make: Callable[[], Tile]) -> Tile:
        """A view of an array; kept, since slicing takes longer than looking up, and steps are the same from cycle to cycle."""
        if key not in self._views:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            self._views[key] = make()
        return self._views[key]

    @property
    def w(self) -> Tile:
        """The device's rows of W."""
        self.products.use(0)
        return self.view("w", lambda: self.products.panels(1, (self.plan.block,))[0])

    def panels(self, panels: range) -> Tile:
        """The device's rows of panels of the basis."""
        return self.view(("basis", panels.start, panels.stop), lambda: self.basis[panels.start : panels.stop])

    def wide(self) -> tuple[Tile, Tile]:
        """All rows of X and its own of Y, as float64, where a panel and W lie."""
        self.products.use(1 if self.kernels is not self.wide_kernels else 0)
        width = (self.plan.needs.wide_columns,)
        return self.products.panels(0, width)[0], self.products.panels(1, width)[0]

    def log(self, first: int, columns: int) -> Tile:
        """Coefficients that are kept, (columns, block) from entry ``first`` on."""
        b = self.plan.block
        return self.view(("log", first, columns), lambda: self._log[first : first + columns * b].reshape(columns, b))

    def scratch(self, columns: int, width: int) -> Tile:
        """Coefficients of one step."""
        return self.view(("scratch", columns, width), lambda: self._scratch[: columns * width].reshape(columns, width))

    # sums over rows

    def section(self, section: Section, dtype: np.dtype[Any] | None = None, width: int | None = None) -> Tile:
        """Partial sums of a section, (chunks, columns, width), of all chunks."""
        return self.view(("sums", section, dtype), lambda: self._section(section, dtype, width or self.plan.block))

    def _section(self, section: Section, dtype: np.dtype[Any] | None, b: int) -> Tile:
        chunks, numbers = self.plan.sizes.chunks, self.partial[section.turn]
        if dtype is not None:
            numbers = numbers[: numbers.nbytes // dtype.itemsize * dtype.itemsize // numbers.itemsize].view(dtype)
        at, count = chunks * section.first * b, section.columns * b
        return numbers[at : at + chunks * count].reshape(chunks, section.columns, b)

    def own_section(self, section: Section, dtype: np.dtype[Any] | None = None, width: int | None = None) -> Tile:
        """Those of its own chunks."""
        return self.view(("own sums", section, dtype), lambda: self.own(self.section(section, dtype, width)))

    def own(self, sums: Tile) -> Tile:
        """Part of the sums of all chunks that belongs to its own chunks."""
        return sums[self.chunks.start : self.chunks.stop]

    def pull_sums(
        self,
        others: Sequence[tuple[SpaceDevice, AbstractEvent]],
        section: Section,
        dtype: np.dtype[Any] | None = None,
        width: int | None = None,
    ) -> None:
        """Enqueue: copy the sums of other devices' chunks, once these are there and its own are added no more."""
        peer, mine = self.products.peer, self.section(section, dtype, width)
        peer.wait(self.computing.record())
        for other, done in others:
            peer.wait(done)
            target = other.own(mine)
            source, flat = other.own(other.section(section, dtype, width)), (len(target), -1)
            self.products.copy_from(source.reshape(flat), target.reshape(flat), "pull sums")
            self.sum_bytes += target.nbytes

    # steps of a recurrence

    def recur(self, step: Recurrence) -> None:
        """Enqueue what follows the product of a step, which is in W."""
        x, before = self.basis[step.panel], None if step.previous is None else self.basis[step.previous]
        out, scale = self.w if step.into is None else self.basis[step.into], (1.0 if before is None else 2.0) / step.half
        self.kernels.recur(self.computing, self.w, x, before, out, scale=scale, shift=step.center)

    def multiply_and_recur(self, step: Recurrence) -> None:
        """Enqueue a step whole, on a device that works alone and has all blocks: kernels, and a copy within it."""
        widths = (self.plan.block,)
        self.products.use(0)
        self.copy(self.basis[step.panel], self.products.panels(0, widths)[0][self.rows.start : self.rows.stop])
        self.products.multiply_steadily(widths)
        self.recur(step)

    # numbers of the host

    def bring(self, x: NDArray[np.float64], tile: Tile) -> None:
        """Enqueue: ``tile`` becomes an array of the host, which nobody changes until then."""
        bring_panel(self.device, self.computing, x, 0, tile, self._slot)
        self.brought_bytes += tile.nbytes

    def bring_rows(self, x: NDArray[Any]) -> None:
        """W becomes the device's rows of an array of the host: enqueued, or read when this returns."""
        bring_vectors(self.device, self.computing, x, 0, self.w, self._slot)
        self.brought_bytes += self.w.nbytes

    def take(self, tile: Tile, out: NDArray[Any], first: int = 0) -> None:
        """Let columns of ``out`` from ``first`` on become a tile: enqueued, or done when this returns."""
        return_panel(self.device, self.computing, tile, out, first, self._slot)
        self.returned_bytes += tile.nbytes

    def take_panels(self, panels: range, out: NDArray[Any]) -> None:
        """As :meth:`take`: ``out`` becomes columns of panels, all or the first; several panels spoil W."""
        if len(panels) > 1 and len(out) * self.plan.block >= out.shape[1]:
            self.take_side_by_side(panels, out)
            return
        for number, panel in enumerate(panels):
            self.take(self.basis[panel], out, number * self.plan.block)

    def take_side_by_side(self, panels: range, out: NDArray[Any]) -> None:
        """As :meth:`take`: ``out`` becomes columns of panels, all or the first; W is spoilt.

        They are put side by side on the device: 8 of 24 columns at a time, 12.9 GB took a host 1.8 s, all together 1.2.
        """
        rows, columns = out.shape
        numbers, block = self.w.reshape(-1), self.plan.block
        most = numbers.size // columns
        for start in range(0, rows, most):
            part = slice(start, min(rows, start + most))
            height = part.stop - part.start
            together = numbers[: height * columns].reshape(height, columns)
            for panel, first in zip(panels, range(0, columns, block), strict=True):
                width = min(block, columns - first)
                self.copy(self.basis[panel][part, :width], together[:, first : first + width])
            self.take(together, out[part])

    def copy(self, source: Tile, target: Tile) -> None:
        """Enqueue a copy within the device."""
        self.device.copy_between(self.computing, source, target)

    # what is told

    def tell(self, label: str, begun: AbstractEvent) -> AbstractEvent:
        """Tell a trace what was enqueued on the computing stream since an event, which began it."""
        ended = self.computing.record()
        if self.products.track.now() is not None:
            self.products.track.ran("compute", (), self.products.streams.computes, (begun, ended), label=label)
        return ended
