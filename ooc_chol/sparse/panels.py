"""Columns of host arrays as panels: converted, and filled up with zeros, on their way to a device and back."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import TYPES, PrecisionFormat
from ooc_chol.interfaces import AbstractStream, AbstractTier, AnyDevice, BlockIndex, Tile
from ooc_chol.process.team import ThreadTeam

#: Bytes that pass at once where the device has no slot to take as the measure.
_PIECE_BYTES = 16 << 20


@final
class PanelRows(AbstractTier):
    """Some columns of a host array as blocks of rows of a panel: block ``(i, 0)`` has rows ``i height`` and so on.

    Shapes: ``x`` (n, m).
    """

    name = "vectors"

    def __init__(self, x: NDArray[Any], first: int, dtype: np.dtype[Any], height: int) -> None:
        self._x, self._first, self._dtype, self._height = x, first, dtype, height

    def rows(self, block: int) -> slice:
        """The rows of a block."""
        return slice(block * self._height, min((block + 1) * self._height, len(self._x)))

    def __len__(self) -> int:
        return -(-len(self._x) // self._height)

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        return TYPES[self._dtype.name]

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        part = self._x[self.rows(index[0]), self._first : self._first + out.shape[1]]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            out[:, : part.shape[1]] = part
        out[:, part.shape[1] :] = 0

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: NDArray[Any]) -> None:
        """Copy rows to the panel, some by each thread: one alone converts 4 GB/s, and the link takes 55."""
        team.run([partial(part.read, (0, 0), own) for part, own in self._parts(team, index, out)])

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        part = self._x[self.rows(index[0]), self._first : self._first + data.shape[1]]
        part[...] = data[:, : part.shape[1]]

    def write_by(self, team: ThreadTeam, index: BlockIndex, data: NDArray[Any]) -> None:
        """Copy rows of the panel back, some by each thread: an array that is new takes the system longer than the link."""
        team.run([partial(part.write, (0, 0), own) for part, own in self._parts(team, index, data)])

    def _parts(self, team: ThreadTeam, index: BlockIndex, data: NDArray[Any]) -> list[tuple[PanelRows, NDArray[Any]]]:
        """Rows of a block for each thread: of the array, and of the panel."""
        start = self.rows(index[0]).start
        return [
            (PanelRows(self._x[start + own.start : start + own.stop], self._first, self._dtype, own.stop - own.start), data[own])
            for own in team.shares(len(data), data.nbytes)
        ]


def bring_panel(device: AnyDevice, stream: AbstractStream, x: NDArray[Any], first: int, panel: Tile, slot: int) -> None:
    """Enqueue: fill ``panel`` with columns of ``x`` from ``first`` on, in pieces of at most ``slot`` bytes, unless that is 0."""
    pieces = _pieces(x, first, panel, slot)
    for piece in range(len(pieces)):
        device.copy_in(stream, pieces, (piece, 0), panel[pieces.rows(piece)])


def bring_vectors(device: AnyDevice, stream: AbstractStream, x: NDArray[Any], first: int, panel: Tile, slot: int) -> None:
    """The same in pieces of half of that, of columns of ``x`` that take long: enqueued, or read when this returns."""
    pieces = _pieces(x, first, panel, slot // 2)
    device.copy_all_in(stream, pieces, [panel[pieces.rows(piece)] for piece in range(len(pieces))])


def return_panel(device: AnyDevice, stream: AbstractStream, panel: Tile, y: NDArray[Any], first: int, slot: int) -> None:
    """Copy ``panel`` to columns of ``y``, in pieces of half of that: enqueued, or done when this returns."""
    pieces = _pieces(y, first, panel, slot // 2)
    device.copy_all_out(stream, [panel[pieces.rows(piece)] for piece in range(len(pieces))], pieces)


def _pieces(x: NDArray[Any], first: int, panel: Tile, slot: int) -> PanelRows:
    row_bytes = panel.dtype.itemsize * panel.shape[1]
    return PanelRows(x, first, panel.dtype, max(1, (slot or _PIECE_BYTES) // row_bytes))
