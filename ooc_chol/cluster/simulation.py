"""A discrete simulation of a run on a cluster: list scheduling as Dask does it, each task on the worker that owns its block."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

from ooc_chol.cluster.blocks import BlockPlace
from ooc_chol.cluster.model import ORDERS, BlockCosts, ClusterRates, PartCost, WorkerRates, part_bounds
from ooc_chol.cluster.owners import BlockOwners
from ooc_chol.display.prints import brief_repr


class Part(NamedTuple):
    """A task: a block, or a part of its sum, on its worker."""

    place: BlockPlace
    first: int
    stop: int
    worker: int
    cost: PartCost

    @property
    def is_last(self) -> bool:
        """True if it finishes its block."""
        return self.stop == self.place.column


@dataclass(frozen=True)
class Case:
    """Input of a simulation."""

    costs: BlockCosts  #: The blocks, their flops and bytes
    owners: BlockOwners  #: The worker of each block
    workers: tuple[WorkerRates, ...]  #: What each worker does and holds; all rates known
    rates: ClusterRates  #: Network, storage and scheduler
    store: str = "memory"
    reach: int = 0  #: Blocks nearer to the diagonal than this are summed in parts; 0 is the plain order
    a_is_sent: bool = False  #: Whether blocks of A cross the network to the tasks
    order: str = "columns"  #: Which of the tasks that are ready a worker takes first

    __repr__ = brief_repr

    @property
    def fan_out_rounds(self) -> int:
        """Hops that a block takes beyond the first one, to all workers that need it: those that have it pass it on."""
        return ceil(log2(max(2, self.owners.n_row_groups))) - 1

    def working_bytes(self) -> int:
        """Bytes of the task that runs: the block of A, the one that is made of it; one that is all of L is its share."""
        side = min(self.costs.blocks.height * self.costs.blocks.tiles.nb, self.costs.blocks.tiles.n)
        blocks = int(self.a_is_sent) if self.store == "memory" and self.costs.blocks.n_blocks == 1 else 2
        return blocks * side * side * self.costs.itemsize

    def parts(self) -> list[Part]:
        """All tasks, in a valid order."""
        found = []
        for place in self.costs.blocks.places():
            bounds, worker = part_bounds(place, reach=self.reach), self.owners.of(place)
            for first, stop in pairwise(bounds):
                found.append(Part(place, first, stop, worker, self.costs.part(place, first, stop)))
        return found


@dataclass
class Outcome:
    """Outcome of a simulation; bytes and seconds of each worker."""

    seconds: float
    n_tasks: int
    busy_seconds: list[float]
    received_bytes: list[int]
    read_bytes: list[int]
    written_bytes: list[int]
    peak_bytes: list[int]


def simulate(case: Case) -> Outcome:
    """Run the tasks of a case in simulated time: when each is ready, has its operands, and finds its worker free."""
    return _Simulation(case).run()


@dataclass
class _Worker:
    """State of a worker: its queue, its network, and what it holds."""

    queue: list[tuple[int, int]] = field(default_factory=list)
    is_busy: bool = False
    network_free: float = 0.0
    held: dict[int, tuple[int, float]] = field(default_factory=dict)  #: Of each row: how many blocks, and when they are there
    diagonals: dict[int, float] = field(default_factory=dict)
    replica_bytes: Counter[int] = field(default_factory=Counter)
    bytes_now: int = 0
    cached: OrderedDict[int, int] = field(default_factory=OrderedDict)  #: Of each row, least recently used first: blocks
    cached_bytes: int = 0


class _Simulation:
    """Events in the order of their times; everything that changes is here."""

    def __init__(self, case: Case) -> None:
        self._case, self._parts = case, case.parts()
        n_workers = len(case.workers)
        self._workers = [_Worker() for _ in range(n_workers)]
        self._events: list[tuple[float, int, bool, int]] = []  # time, number, whether it ends the task, the task
        self._n_events, self._now = 0, 0.0
        self._final = {part.place: number for number, part in enumerate(self._parts) if part.is_last}
        self._waits = [0] * len(self._parts)
        self._next: list[list[int]] = [[] for _ in self._parts]
        self._uses: Counter[tuple[int, int]] = Counter()
        self._urgency = [ORDERS[case.order](part.place) for part in self._parts]
        self._working_bytes = case.working_bytes()
        self._storage_rate = case.rates.storage_rate(n_workers)
        self.outcome = Outcome(0.0, len(self._parts), *([0] * n_workers for _ in range(5)))  # type: ignore[arg-type]
        for number, part in enumerate(self._parts):
            self._connect(number, part)

    def run(self) -> Outcome:
        """Go through all events."""
        for number, waits in enumerate(self._waits):
            if waits == 0:
                self._ready(number)
        while self._events:
            self._now, _, is_end, number = heappop(self._events)
            worker = self._workers[self._parts[number].worker]
            if is_end:  # the worker goes on with what it has: a task that this one makes ready comes a message later
                worker.is_busy = False
                self._finish(number, worker)
            else:
                heappush(worker.queue, (self._urgency[number], number))
            if worker.queue and not worker.is_busy:
                self._start(heappop(worker.queue)[1], worker)
        self.outcome.seconds = self._now
        return self.outcome

    def _connect(self, number: int, part: Part) -> None:
        """Let a task wait for the last of its operands: with them, all others are there."""
        (row, column), stop = part.place, part.stop
        before = {number - 1} if part.first else set()
        if stop:
            before |= {self._final[BlockPlace(row, stop - 1)], self._final[BlockPlace(column, stop - 1)]}
        if part.is_last and row > column:
            before.add(self._final[BlockPlace(column, column)])
        self._waits[number] = len(before)
        for earlier in before:
            self._next[earlier].append(number)
        for operand in {row, column}:
            self._uses[part.worker, operand] += 1

    def _ready(self, number: int) -> None:
        """All operands exist: fetch those that the worker lacks, one fetch after the other."""
        part = self._parts[number]
        worker = self._workers[part.worker]
        missing = self._fetch(part, worker) if self._case.store == "memory" else 0
        if self._case.a_is_sent and part.first == 0:
            missing += self._case.costs.nbytes(part.place)
        if missing:
            worker.network_free = max(worker.network_free, self._now) + missing / self._case.rates.network_bytes_per_second
            self.outcome.received_bytes[part.worker] += missing
        self._push(self._arrival(part, worker, has_fetched=missing > 0), number, is_end=False)

    def _fetch(self, part: Part, worker: _Worker) -> int:
        """Bytes of L that a task's worker lacks, and note that they come."""
        total, costs, owners = 0, self._case.costs, self._case.owners
        for row in {part.place.row, part.place.column}:
            held = worker.held.get(row, (0, 0.0))[0]
            if part.stop > held:
                foreign = owners.count_of_others(row, held, part.stop, part.worker)
                missing = foreign * costs.row_bytes(row, 1) if part.stop else 0
                worker.held[row] = part.stop, -1.0 if missing else 0.0
                total += self._keep(worker, part.worker, row, missing)
        column = part.place.column
        if part.is_last and part.place.row > column and column not in worker.diagonals:
            place = BlockPlace(column, column)
            missing = 0 if owners.of(place) == part.worker else costs.nbytes(place)
            worker.diagonals[column] = -1.0 if missing else 0.0
            total += self._keep(worker, part.worker, column, missing)
        return total

    def _keep(self, worker: _Worker, number: int, row: int, nbytes: int) -> int:
        """Count bytes of a replica for as long as tasks need its row."""
        worker.replica_bytes[row] += nbytes
        self._grow(number, nbytes)
        return nbytes

    def _grow(self, number: int, nbytes: int) -> None:
        worker = self._workers[number]
        worker.bytes_now += nbytes
        self.outcome.peak_bytes[number] = max(self.outcome.peak_bytes[number], worker.bytes_now + self._working_bytes)

    def _arrival(self, part: Part, worker: _Worker, *, has_fetched: bool) -> float:
        """When the operands of a task are there; what was just asked for comes once the network has brought it."""
        if self._case.store != "memory":
            return worker.network_free if has_fetched else self._now
        costs, rounds = self._case.costs, self._case.fan_out_rounds
        hops = rounds * costs.row_bytes(part.place.column, 1) / self._case.rates.network_bytes_per_second if part.stop else 0.0
        arrival = worker.network_free if has_fetched else self._now
        for row in {part.place.row, part.place.column}:
            count, time = worker.held.get(row, (0, 0.0))
            if time < 0:
                time = worker.network_free + hops
                worker.held[row] = count, time
            arrival = max(arrival, time)
        time = worker.diagonals.get(part.place.column, 0.0)
        if time < 0:
            time = worker.diagonals[part.place.column] = worker.network_free + hops
        return max(arrival, time)

    def _start(self, number: int, worker: _Worker) -> None:
        part, case = self._parts[number], self._case
        worker.is_busy = True
        seconds = part.cost.seconds(case.workers[part.worker])
        if case.store == "zarr":
            seconds = self._through_storage(part, worker, seconds)
        seconds += case.rates.overhead_seconds
        self.outcome.busy_seconds[part.worker] += seconds
        self._push(self._now + seconds, number, is_end=True)

    def _through_storage(self, part: Part, worker: _Worker, seconds: float) -> float:
        """Seconds of a task that reads its operands while it computes, and writes its block afterwards."""
        assert self._storage_rate is not None
        read = sum(self._read(part, worker, row) for row in sorted({part.place.row, part.place.column}))
        if part.is_last and part.place.row > part.place.column:
            read += self._case.costs.nbytes(BlockPlace(part.place.column, part.place.column))
        written = self._case.costs.nbytes(part.place) if part.is_last else 0
        self.outcome.read_bytes[part.worker] += read
        self.outcome.written_bytes[part.worker] += written
        return max(seconds, read / self._storage_rate) + written / self._storage_rate

    def _read(self, part: Part, worker: _Worker, row: int) -> int:
        """Bytes of a row's blocks that the worker's cache lacks; the cache keeps what was used last, rows as a whole."""
        each, held = self._case.costs.row_bytes(row, 1) if part.stop else 0, worker.cached.pop(row, 0)
        missing = max(0, part.stop - max(held, part.first)) * each
        worker.cached[row] = max(held, part.stop)
        worker.cached_bytes += (worker.cached[row] - held) * each
        room = self._case.workers[part.worker].memory_bytes - self._working_bytes
        while worker.cached_bytes > room and worker.cached:
            other, blocks = worker.cached.popitem(last=False)
            worker.cached_bytes -= blocks * self._case.costs.row_bytes(other, 1)
        peak = worker.cached_bytes + self._working_bytes
        self.outcome.peak_bytes[part.worker] = max(self.outcome.peak_bytes[part.worker], peak)
        return missing

    def _finish(self, number: int, worker: _Worker) -> None:
        part = self._parts[number]
        if part.is_last and self._case.store == "memory":
            self._grow(part.worker, self._case.costs.nbytes(part.place))
        for row in {part.place.row, part.place.column}:
            self._uses[part.worker, row] -= 1
            if self._uses[part.worker, row] == 0:
                worker.bytes_now -= worker.replica_bytes.pop(row, 0)
        for later in self._next[number]:
            self._waits[later] -= 1
            if self._waits[later] == 0:
                self._ready(later)

    def _push(self, time: float, number: int, *, is_end: bool) -> None:
        self._n_events += 1
        heappush(self._events, (time, self._n_events, is_end, number))
