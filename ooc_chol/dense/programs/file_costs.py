"""Predicted seconds of steps that read or write a file, and of those that host memory spares one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.disk import Disk
from ooc_chol.dense.programs.files import FileTraffic
from ooc_chol.dense.programs.steps import Step
from ooc_chol.tasks.operations import FileLink, Link


class FileMove(NamedTuple):
    """One step's way between a device, host memory and a disk."""

    way: FileLink | None  #: None for a fetch that host memory answers
    link: float  #: Seconds between host memory and the device
    disk: float  #: Seconds of the disk, 0 where the link's say all
    is_behind: bool  #: Whether the disk follows when the step is over: host memory keeps what it writes


@dataclass(frozen=True)
class FileCosts:
    """Costs of files for a plan of these rates.

    Where nobody measured the disk, what is read or written goes at the rates of the page cache on each stream. Where it was
    measured, all devices share it.
    """

    rates: Rates
    traffic: FileTraffic
    is_staged: bool  #: Whether tiles pass through host memory on their way: the link begins where the disk ends

    def moves(self, steps: Sequence[Step]) -> dict[int, FileMove]:
        """File copy of each step that has to do with a file or is spared one, by its position."""
        found: dict[int, FileMove] = {}
        for position, step in enumerate(steps):
            if step.nbytes and (link := step.link) is not None and (move := self._move(step, link)) is not None:
                found[position] = move
        return found

    def _move(self, step: Step, link: Link) -> FileMove | None:
        rates, disk, way = self.rates, self.rates.disk, self.traffic.link_of(step)
        nbytes, launch = step.nbytes, self.rates.launch
        fetch, write = rates.memory_fetch or rates.fetch, rates.memory_write or rates.write
        if link is Link.WRITE and way is not None:
            if step.tile in self.traffic.kept:
                behind = nbytes / (rates.write if disk is None else disk.write)
                return FileMove(way, launch + nbytes / write, behind, True)
            return None if disk is None else FileMove(way, launch + nbytes / write, nbytes / disk.write, False)
        if link is Link.FETCH and way is None and self.traffic.has_store:
            return FileMove(None, launch + nbytes / fetch, 0.0, False)
        if way is None or disk is None:
            return None
        rate = disk.source if way is FileLink.SOURCE else disk.read
        return None if rate is None else FileMove(way, launch + nbytes / fetch, nbytes / rate, False)


@dataclass
class FileRun:
    """The disks of a run in the simulator, and when the last tile is in its file."""

    costs: FileCosts
    of_store: Disk = field(default_factory=Disk)
    of_writes: Disk = field(default_factory=Disk)
    of_source: Disk = field(default_factory=Disk)
    ends: float = 0.0

    def __post_init__(self) -> None:
        disk = self.costs.rates.disk
        if disk is None or disk.is_one:
            self.of_source = self.of_store
        if disk is None or not disk.is_duplex:
            self.of_writes = self.of_store

    def end(self, move: FileMove, start: float) -> float:
        """When a step ends that may start at ``start``; what host memory keeps follows to the file behind it."""
        if not move.disk:
            return start + move.link
        if move.is_behind:
            end = start + move.link
            self.ends = max(self.ends, self.of_writes.serve(end, move.disk))
            return end
        if move.way is FileLink.WRITE:
            return self.of_writes.serve(start + move.link if self.costs.is_staged else start, move.disk)
        served = (self.of_source if move.way is FileLink.SOURCE else self.of_store).serve(start, move.disk)
        return served + move.link if self.costs.is_staged else max(served, start + move.link)


def file_seconds(costs: FileCosts, programs: Iterable[Sequence[Step]]) -> dict[FileLink, float]:
    """Seconds for which files are read and written each way, all devices together, with nobody in each other's way."""
    totals = dict.fromkeys(FileLink, 0.0)
    rates = costs.rates
    through_cache = {FileLink.SOURCE: rates.source, FileLink.READ: rates.fetch, FileLink.WRITE: rates.write}
    for steps in programs:
        moves = costs.moves(steps)
        for position, step in enumerate(steps):
            if step.nbytes and (way := costs.traffic.link_of(step)) is not None:
                move = moves.get(position)
                totals[way] += move.disk if move is not None else step.nbytes / through_cache[way]
    return totals
