"""Tiles of L that the GPUs of a worker keep from task to task: what lies there does not cross their link again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import final

from ooc_chol.cluster.kept_tiles import RowDistances
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.programs.steps import Program
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import keep_on_device
from ooc_chol.interfaces import AbstractDeviceMemory, Tile
from ooc_chol.memory.release import RELEASER, DeviceMemoryBlock, MemoryBlock
from ooc_chol.tasks.operations import Link
from ooc_chol.tasks.tiling import Index, TileGrid
from ooc_chol.tasks.windows import Window

#: Seconds for which a worker without a task keeps them.
IDLE_SECONDS = 10.0


@final
class _DeviceTiles:
    """Those of one device, in slots; which ones stay is settled before a task, so that no slot changes hands within one."""

    def __init__(self, memory: AbstractDeviceMemory, n_slots: int) -> None:
        self.memory, self.n_slots = memory, n_slots
        self.slots: dict[Index, int] = {}  # of tiles that are here
        self.coming: dict[Index, int] = {}  # of those that the task brings or makes
        self.ahead: list[Index] = []  # of these, what the next task needs and nobody else
        self._leaving: list[Index] = []  # the task still reads them
        self._free = list(range(n_slots))

    def begin(self, met: Sequence[Index], distance: Callable[[int], int], ahead: Sequence[Index] = ()) -> None:
        """Choose what stays, of what is here, what a task meets and what is brought ahead for the next one.

        These are tiles of rows that come again first, old ones before new.
        """
        self.end()
        new = (index for index in dict.fromkeys([*met, *ahead]) if index not in self.slots)
        kept = dict.fromkeys(sorted([*self.slots, *new], key=lambda index: distance(index[0]))[: self.n_slots])
        read = set(met)
        going = [index for index in self.slots if index not in kept]
        self._leaving = [index for index in going if index in read]
        self._forget(index for index in going if index not in read)
        wanted = (index for index in kept if index not in self.slots)
        self.coming = dict(zip(wanted, self._free, strict=False))
        self._free = self._free[len(self.coming) :]
        self.ahead = [index for index in ahead if index in self.coming and index not in read]

    def end(self) -> None:
        """Let go of what the task was the last one to read, and of places that nothing came to."""
        self._free += self.coming.values()
        self.coming, self.ahead = {}, []
        self._forget(self._leaving)
        self._leaving = []

    def link_bytes(self, fetched: Iterable[Index], tile_bytes: Callable[[Index], int]) -> int:
        """Bytes that cross the link for the fetches of a task that has begun."""
        there, moved = set(self.slots), 0
        for index in fetched:
            if index not in there:
                moved += tile_bytes(index)
                if index in self.coming:
                    there.add(index)
        return moved

    def _forget(self, tiles: Iterable[Index]) -> None:
        self._free += [self.slots.pop(index) for index in tiles]


@final
class _Idle(DeviceMemoryBlock):
    """The tiles of all devices."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: dict[str, _DeviceTiles] = {}

    def release(self, pause: Callable[[float], bool]) -> bool:
        while self.devices:
            self.devices.popitem()[1].memory.close()
        return True


@final
class ResidentTiles:
    """Tiles of one run, on the devices of the worker that makes them; its tasks come one after the other.

    Between two of them the memory is given back after some seconds, or at once where the process asks for it. Raises
    ``BudgetError``: a device has too little memory.
    """

    def __init__(self, run: str, grid: TileGrid, fmt: PrecisionFormat, devices: Sequence[str], nbytes: int) -> None:
        self.run, self.grid, self.fmt, self.nbytes = run, grid, fmt, nbytes
        self._slot_bytes = slot_bytes_of(grid, fmt)
        self._distances = RowDistances(grid.nt)
        self._idle = _Idle()
        self._held: list[MemoryBlock] = [self._idle]
        self._idle.holder = self._held
        n_slots = min(nbytes // self._slot_bytes, grid.n_tiles)
        try:
            for name in devices:
                self._idle.devices[name] = _DeviceTiles(keep_on_device(name, max(1, n_slots * self._slot_bytes)), n_slots)
        except BaseException:
            self.close()
            raise

    def wake(self) -> bool:
        """Take them for a task; False where their memory was given back."""
        awake = bool(self._held) or RELEASER.take_named(lambda block: block is self._idle, self._held, IDLE_SECONDS)
        return awake and bool(self._idle.devices)

    def begin(self, plan: Plan, window: Window, coming: Plan | None = None, rows: Container[int] = ()) -> int:
        """Settle what stays on each device behind the task of a plan; the bytes that its fetches bring over the links.

        Beside the task devices bring what the ``coming`` one fetches of some rows of L left of the present columns, which are
        there.
        """
        self._distances.begin(window)
        moved = 0
        later = {} if coming is None else dict(zip(coming.devices, coming.programs, strict=True))
        for name, program in zip(plan.devices, plan.programs, strict=True):
            here = self._idle.devices[name]
            fetched, written = _tiles(program, Link.FETCH), _tiles(program, Link.WRITE)
            needed = _tiles(later[name], Link.FETCH) if name in later else ()
            ahead = [index for index in needed if index[0] in rows and index[1] < window.columns.start]
            here.begin(list(dict.fromkeys([*fetched, *written])), self._distances.of, ahead)
            moved += here.link_bytes(fetched, lambda index: self.fmt.stored_bytes(self.grid.entries(*index)))
        return moved

    def kept_on(self, device: str, index: Index) -> Tile | None:
        """A tile that is here."""
        here = self._idle.devices[device]
        return self._tile(here, index, here.slots.get(index))

    def place_on(self, device: str, index: Index) -> Tile | None:
        """The place that a tile is copied to now, if it is to stay."""
        here = self._idle.devices[device]
        if (slot := here.coming.pop(index, None)) is not None:
            here.slots[index] = slot
        return self._tile(here, index, slot)

    def ahead_on(self, device: str) -> Sequence[Index]:
        """Tiles that a device brings beside the task."""
        return tuple(self._idle.devices[device].ahead)

    def rest(self) -> None:
        """Wait for the next task."""
        for here in self._idle.devices.values():
            here.end()
        RELEASER.hand_over(self._held, IDLE_SECONDS)

    def close(self) -> None:
        """Give the memory back, unless it waits to be."""
        if self._held:
            self._held.clear()
            self._idle.release(lambda _: True)

    def _tile(self, here: _DeviceTiles, index: Index, slot: int | None) -> Tile | None:
        if slot is None:
            return None
        return here.memory.array(slot * self._slot_bytes, self.grid.shape(*index), self.fmt.dtype)


def _tiles(program: Program, link: Link) -> list[Index]:
    """Tiles that a program moves over a link, in its order."""
    return [step.tile for step in program.steps if step.link is link]
