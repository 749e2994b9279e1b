"""Which tiles are on a device when: fetches, evictions and writes around an ordered list of tasks."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence

from ooc_chol.dense.programs.policy import Policy
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import AbstractEvictionPolicy
from ooc_chol.schedulers.schedule import NEVER
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.tiling import Index


class AbstractResidencySink(ABC):
    """Receives the moves of one device in program order."""

    @abstractmethod
    def fetch(self, index: Index, version: int) -> None:
        """Bring value ``version`` of a tile onto the device."""

    @abstractmethod
    def compute(self, task: Task) -> None:
        """Run a task on tiles that are on the device."""

    @abstractmethod
    def write(self, index: Index, version: int) -> None:
        """Write value ``version`` of a tile to the store."""

    @abstractmethod
    def evict(self, index: Index) -> None:
        """Drop the device's copy of a tile."""


class TooManyFetchesError(ScheduleError):
    """A count passed its limit: other panel shapes are known to fetch less."""


class FetchCounter(AbstractResidencySink):
    """Counts fetched tiles and nothing else: the cheap way to compare panel shapes."""

    def __init__(self, limit: float = float("inf")) -> None:
        self.fetches = 0
        self._limit = limit

    def fetch(self, index: Index, version: int) -> None:
        """Count the fetch, and give up at the limit."""
        self.fetches += 1
        if self.fetches > self._limit:
            raise TooManyFetchesError(f"more than {self._limit} tiles are fetched")

    def compute(self, task: Task) -> None:
        """Ignore the move: only fetches count."""

    def write(self, index: Index, version: int) -> None:
        """Ignore the move: only fetches count."""

    def evict(self, index: Index) -> None:
        """Ignore the move: only fetches count."""


def next_uses(outputs: Sequence[Index], reads: Sequence[Sequence[Index]]) -> list[tuple[int, ...]]:
    """For each task, the next position at which its output (once final) and each tile that it reads are read again."""
    upcoming: dict[Index, int] = {}
    following = upcoming.get
    uses: list[tuple[int, ...]] = [()] * len(outputs)
    for position in range(len(outputs) - 1, -1, -1):
        tiles = reads[position]
        uses[position] = (following(outputs[position], NEVER), *[following(tile, NEVER) for tile in tiles])
        for tile in tiles:
            upcoming[tile] = position
    return uses


class ResidencyPlanner:
    """Runs an ordered task list against a device of ``capacity`` tiles and tells a sink every move.

    With the rank of the next use this is Belady's rule on exactly the order that will run. Accumulators never leave before they
    are final. O(T log C) for T tasks.
    """

    def __init__(self, tasks: Sequence[Task], capacity: int, policy: Policy, eviction: AbstractEvictionPolicy | None) -> None:
        self._tasks = tasks
        self._capacity = capacity
        self._policy = policy
        self._eviction = eviction
        self._outputs: list[Index] = [(task.i, task.j) for task in tasks]
        self._reads: list[tuple[Index, ...]] = [task.reads for task in tasks]
        self._uses = next_uses(self._outputs, self._reads)
        self._accumulators: set[Index] = set()
        self._cached: dict[Index, int] = {}  # final tile -> stamp of its newest entry in the heap
        self._heap: list[tuple[int, int, Index]] = []
        self._stamp = 0

    def run(self, sink: AbstractResidencySink) -> None:
        """Tell ``sink`` every fetch, task, write and eviction in order."""
        settles_updates = not self._policy.keeps_accumulator or self._eviction is None
        finishing = (TaskKind.POTRF, TaskKind.TRSM)
        for position, task in enumerate(self._tasks):
            self._place(task, position, sink)
            sink.compute(task)
            if settles_updates or task.kind in finishing:
                self._settle(task, position, sink)
        for index in list(self._cached):
            self._drop(index, sink)

    def _place(self, task: Task, position: int, sink: AbstractResidencySink) -> None:
        """Bring the output and the operands of ``task`` onto the device."""
        output, reads, uses = self._outputs[position], self._reads[position], self._uses[position]
        if output not in self._accumulators:
            self._make_room(task, sink)
            sink.fetch(output, task.k)
            self._accumulators.add(output)
        for at, tile in enumerate(reads, start=1):
            if tile not in self._cached:
                self._make_room(task, sink)
                sink.fetch(tile, tile[1] + 1)
            self._touch(tile, position, uses[at])

    def _settle(self, task: Task, position: int, sink: AbstractResidencySink) -> None:
        """After ``task``: write what is final (or must not stay), and drop what the policy does not keep."""
        is_final = task.kind in (TaskKind.POTRF, TaskKind.TRSM)
        if is_final or not self._policy.keeps_accumulator:
            sink.write(task.output, task.k + 1)
            self._accumulators.discard(task.output)
            if is_final and self._eviction is not None:
                self._touch(task.output, position, self._uses[position][0])
            else:
                sink.evict(task.output)
        if self._eviction is None:
            for tile in list(self._cached):
                self._drop(tile, sink)

    def _touch(self, tile: Index, last_use: int, next_use: int) -> None:
        """Note a use of a final tile; older heap entries of it become stale."""
        self._stamp = stamp = self._stamp + 1
        self._cached[tile] = stamp
        rank = self._eviction.rank(last_use, next_use) if self._eviction else 0
        heapq.heappush(self._heap, (-rank, stamp, tile))

    def _make_room(self, task: Task, sink: AbstractResidencySink) -> None:
        """Evict until one more tile fits: never a tile of ``task``, and a held diagonal tile only when there is no other."""
        spared: list[tuple[int, int, Index]] = []
        needed = (task.output, *task.reads)
        held = (task.j, task.j) if self._policy.holds_diagonal else None
        while len(self._cached) + len(self._accumulators) >= self._capacity:
            if not self._heap:
                if held in self._cached and held not in needed:
                    self._drop(held, sink)
                    continue
                raise ScheduleError(
                    f"{self._capacity} tiles are too few for these panels; give more memory or a smaller tile_size"
                )
            entry = heapq.heappop(self._heap)
            if self._cached.get(entry[2]) != entry[1]:
                continue
            if entry[2] in needed or entry[2] == held:
                spared.append(entry)
            else:
                self._drop(entry[2], sink)
        for entry in spared:
            heapq.heappush(self._heap, entry)

    def _drop(self, tile: Index, sink: AbstractResidencySink) -> None:
        """Evict a final tile."""
        del self._cached[tile]
        sink.evict(tile)
