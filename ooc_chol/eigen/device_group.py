"""All devices of a space: what each gets of the others, and sums over the rows of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.exchange import AbstractExchange, Gathered, RemoteRows
from ooc_chol.eigen.space_device import Section, SpaceDevice
from ooc_chol.eigen.space_kernels import CERTIFYING
from ooc_chol.interfaces import AbstractEvent, Tile
from ooc_chol.kernels.interfaces.panels import MOST_PARTS
from ooc_chol.process.team import pieces
from ooc_chol.runtime.passes import side_by_side

#: In how many pieces a device copies rows of others ahead, at least.
_PIECES = 4
#: An array of each device.
OfDevice: TypeAlias = Callable[[SpaceDevice], Tile]


class _Piece(NamedTuple):
    """Rows of W that a device copies from another one ahead."""

    device: SpaceDevice
    other: SpaceDevice
    rows: slice  #: Of the other's
    target: Tile
    arrived: AbstractEvent


@final
class DeviceGroup:
    """The devices of a space, in the order of their rows; one thread enqueues for all. Other processes may have further rows."""

    def __init__(self, devices: Sequence[SpaceDevice], block: int, exchange: AbstractExchange | None = None) -> None:
        self.devices, self.block = devices, block
        #: What brings rows and sums of other processes; None where there are none.
        self.remote = None if exchange is None else RemoteRows(exchange, devices)
        #: Whether there are several, and kernels of each read the memory of all others.
        self.is_direct = (
            self.remote is None
            and 1 < len(devices) <= MOST_PARTS
            and all(each.device.reaches(other.device) for each in self.all() for other in devices)
        )
        self._turn = 0
        self._flags = dict[int, bool]()  # those that the host has looked at since devices shared sums
        self._reading: list[AbstractEvent] = []  # behind what a device may still read of others
        self._arriving: list[_Piece] = []

    @property
    def is_shared(self) -> bool:
        """True if no device has all rows."""
        return len(self.devices) > 1 or self.remote is not None

    def all(self) -> Iterator[SpaceDevice]:
        """Every device, current while it is dealt with."""
        for each in self.devices:
            with each.device.current():
                yield each

    def _others(self, each: SpaceDevice) -> list[SpaceDevice]:
        """Other devices, the next one first: where all copied from the same one, its link would be shared."""
        number = self.devices.index(each)
        return [*self.devices[number + 1 :], *self.devices[:number]]

    def on_each(self, work: Callable[[SpaceDevice], None]) -> None:
        """``work`` with every device, side by side."""
        side_by_side([each.device for each in self.devices], lambda number: work(self.devices[number]))

    def pull(self, own: OfDevice, x: OfDevice, ready: Sequence[AbstractEvent], label: str) -> None:
        """Enqueue: X of every device becomes the rows that the others have, once they have them and the last X is read."""
        for each in self.all():
            # All waits come first: the device's own product may still read what the first copy overwrites.
            for done in ready:
                each.products.peer.wait(done)
            for other in self._others(each):
                each.products.copy_from(own(other), x(each)[other.rows.start : other.rows.stop], label)
        if self.remote is not None:
            self.remote.gather([Gathered(own, x)], ready, of_chunks=False)
        if self.is_shared:
            self._reading += [each.products.peer.record() for each in self.all()]
        self.meet()

    def copy_ahead(self, x: OfDevice, label: str) -> None:
        """Enqueue: X of every device becomes the rows of W that the others have, which do not change before all :meth:`meet`."""
        ready = [each.computing.record() for each in self.all()]
        self._arriving = []
        number = -(-_PIECES // (len(self.devices) - 1))  # of each other device: the first are finished while the last is copied
        for each in self.all():
            for done in ready:
                each.products.peer.wait(done)
            for other in self._others(each):
                first, height = other.rows.start, -(-len(other.chunks) // number) * each.kernels.chunk_rows
                for rows in pieces(len(other.rows), height):
                    target = x(each)[first + rows.start : first + rows.stop]
                    each.products.copy_from(other.w[rows], target, label)
                    self._arriving.append(_Piece(each, other, rows, target, each.products.peer.record()))
            self._reading.append(each.products.peer.record())

    def meet(self) -> None:
        """Let every device wait until all have copied, and read, what they need of the others."""
        if self._reading:
            self._wait_for(self._reading)
            self._reading.clear()

    def finish_ahead(self, panel: int) -> None:
        """Enqueue: rows that were copied ahead become those of the panel that W was made, and all meet."""
        self._wait_for([each.computing.record() for each in self.all()])
        for each, other, rows, target, arrived in self._arriving:
            with each.device.current():
                each.computing.wait(arrived)
                made = other.basis[panel][rows]
                factors = each.small.first, each.small.inverse
                each.kernels.multiply_right_twice(each.computing, target, *factors, made=made, flags=each.flags.both)
        self.meet()
        self._arriving = []
        self._reading += [each.computing.record() for each in self.all()]

    def _wait_for(self, events: Sequence[AbstractEvent]) -> None:
        """Let every device wait for events of all."""
        for each in self.all():
            for event in events:
                each.computing.wait(event)

    # sums over rows

    def sections(self, *columns: int) -> list[Section]:
        """Places for inner products with W of so many columns each, made together.

        The next ones lie elsewhere: whoever makes them may find others behind, who read these. By the ones after that it has met
        them.
        """
        self._turn = (self._turn + 1) % len(self.devices[0].partial)
        ends = list(accumulate(columns, initial=0))
        return [Section(first, count, self._turn) for first, count in zip(ends, columns, strict=False)]

    def sum(
        self, sections: Sequence[Section], operands: Sequence[OfDevice], w: OfDevice, *, unless: OfDevice | None = None
    ) -> None:
        """Enqueue inner products with W, or another panel, for all chunks of rows, until every device has those of all.

        With ``unless``, nothing where that flag is 0: beside other processes the host looks at it first, which saves a step.
        """
        if unless is not None and self.remote is not None and not self._is_set(unless):
            return
        for each in self.all():
            for section, of in zip(sections, operands, strict=True):
                flag = None if unless is None else unless(each)
                each.kernels.gram(each.computing, of(each), w(each), each.own_section(section), unless=flag)
        self.share(sections)

    def _is_set(self, flag: OfDevice) -> bool:
        """Tell whether a flag is not 0; what sets one needs sums of all devices first."""
        assert self.remote is not None
        key = id(flag(self.devices[0]))
        if key not in self._flags:
            self._flags[key] = self.remote.is_set(flag)
        return self._flags[key]

    def share(self, sections: Sequence[Section], dtype: np.dtype[Any] | None = None, width: int | None = None) -> None:
        """Enqueue: every device waits for the partial sums of all others, and gets those that it cannot read where they lie."""
        if not self.is_shared:
            return
        ready = [each.computing.record() for each in self.all()]
        if self.is_direct:
            self._wait_for(ready)
            return
        for each in self.all():
            others = [(other, done) for other, done in zip(self.devices, ready, strict=True) if other is not each]
            for section in sections:
                each.pull_sums(others, section, dtype, width)
        if self.remote is not None:
            self._flags.clear()
            arrays = [
                Gathered(partial(_own_section, section, dtype, width), partial(_section, section, dtype, width))
                for section in sections
            ]
            self.remote.gather(arrays, ready, of_chunks=True)
        self._wait_for([each.products.peer.record() for each in self.all()])

    def add(self, each: SpaceDevice, section: Section, out: Tile, *, adds: bool = False, unless: Tile | None = None) -> None:
        """Enqueue: ``out`` becomes the sum of a section over all chunks, or gets it added."""
        each.kernels.add_partials(each.computing, self._parts(each, section), out, adds=adds, unless=unless)

    def _parts(
        self, each: SpaceDevice, section: Section, dtype: np.dtype[Any] | None = None, width: int | None = None
    ) -> list[Tile]:
        """Sums of all chunks where a device reads them."""
        if self.is_direct:
            return [other.own_section(section, dtype, width) for other in self.devices]
        return [each.section(section, dtype, width)]

    def gram(self, alone: OfDevice, w: OfDevice, out: OfDevice, *, unless: OfDevice | None = None) -> None:
        """Enqueue inner products of W, or another panel, with itself, which is also given as a basis of one panel."""
        [section] = self.sections(self.block)
        self.sum([section], [alone], w, unless=unless)
        for each in self.all():
            self.add(each, section, out(each), unless=None if unless is None else unless(each))

    # certificates, in float64

    def bring_wide(self, panel: int, first: int) -> None:
        """Enqueue: X becomes columns of a panel from ``first`` on, in float64, on every device."""
        for each in self.all():
            _widen(each, panel, first)
        ready = [each.computing.record() for each in self.all()]
        self.pull(lambda each: _own_wide(each)[0], lambda each: each.wide()[0], ready, f"pull V({panel})")

    def certify(self, panel: int, first: int, theta: NDArray[np.float64], group: int) -> None:
        """Enqueue squared norms of residuals ``Y - X theta``, and of vectors, behind the product of what was brought."""
        wide = len(theta)
        residual, vector = self.sections(wide, wide)
        dtype = CERTIFYING.storage
        for each in self.all():
            _widen(each, panel, first)  # it was scaled where the operator scales from the right
            x, y = _own_wide(each)
            at = each.norms[3 * group * wide : 3 * (group + 1) * wide]
            each.bring(theta, at[2 * wide :])
            each.wide_kernels.subtract(each.computing, x[None], at[2 * wide :], y)
            each.wide_kernels.gram(each.computing, y[None], y, each.own_section(residual, dtype, wide))
            each.wide_kernels.gram(each.computing, x[None], x, each.own_section(vector, dtype, wide))
        sections = residual, vector
        self.share(sections, dtype, wide)
        for each in self.all():
            for number, section in enumerate(sections):
                out = each.norms[(3 * group + number) * wide : (3 * group + number + 1) * wide]
                each.wide_kernels.add_partials(each.computing, self._parts(each, section, dtype, wide), out)
            each.products.use(0)


def own_basis(panels: range) -> OfDevice:
    """A device's rows of panels."""
    return lambda each: each.panels(panels)


def own_panel(panel: int) -> OfDevice:
    """A device's rows of one panel."""
    return lambda each: each.view(("panel", panel), lambda: each.basis[panel])


def own_w(each: SpaceDevice) -> Tile:
    """A device's rows of W."""
    return each.w


def w_alone(each: SpaceDevice) -> Tile:
    """W as a basis of one panel."""
    return each.view("w alone", lambda: each.w[None])


def _section(section: Section, dtype: np.dtype[Any] | None, width: int | None, each: SpaceDevice) -> Tile:
    return each.section(section, dtype, width)


def _own_section(section: Section, dtype: np.dtype[Any] | None, width: int | None, each: SpaceDevice) -> Tile:
    return each.own_section(section, dtype, width)


def _own_wide(each: SpaceDevice) -> tuple[Tile, Tile]:
    x, y = each.wide()
    return x[each.rows.start : each.rows.stop], y


def _widen(each: SpaceDevice, panel: int, first: int) -> None:
    each.kernels.widen(each.computing, each.basis[panel], first, _own_wide(each)[0])
