"""A basis whose rows lie on the workers of a cluster: commands are gathered here, and run there in batches, in step."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.asking import asked_of_all, machine_of, told_before
from ooc_chol.cluster.exchange import PeerLostError, Seat, cancel_exchange
from ooc_chol.cluster.facts import WorkerState
from ooc_chol.cluster.held_space import (
    Answer,
    Batch,
    Command,
    Figures,
    Question,
    SharedArray,
    SpacePart,
    Taking,
    close_part,
    in_shared,
    open_part,
    run_batch,
    seat_of,
)
from ooc_chol.cluster.rows import rows_of
from ooc_chol.cluster.shared_blocks import beacon_here, sees_here, shares_memory
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.waiting import WorkersLeftError, asked_anew, gathered
from ooc_chol.cluster.workers import Workers
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.early_array import LEAST_BYTES, EarlyArray
from ooc_chol.eigen.elsewhere import DevicesElsewhere, SpacePlanned
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.memory.shared import SharedMemory, has_room
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.order import inverse, rows_taken

#: Between a device and the worker that has it, in names of plans.
OF = " of "
#: How many times what it takes to keep a restart must have passed since the last one, and the share of free memory that it takes.
_KEEP_AFTER, _KEEP_SHARE = 10.0, 4
#: Bytes in a second that a restart is taken to come here with, until one has.
_KEEP_RATE = 1e9
#: Bytes from which on an array goes by memory that workers of this machine map.
_LEAST_SHARED = 1 << 16
#: Seconds for workers to hear that a batch is over; one that does not hear it notices that others have ended.
_CANCEL_SECONDS = 1.0


@dataclass
class SpaceTotals:
    """All that was done for a basis until now."""

    rows: dict[str, str] = field(default_factory=dict)  #: By worker, in words, as they were in the end
    products: int = 0
    repeated: int = 0
    matrix_bytes: int = 0
    sent_bytes: int = 0  #: Of vectors, to workers
    returned_bytes: int = 0
    exchanged_bytes: int = 0  #: Of vectors and sums, between workers
    link_bytes: Counter[str] = field(default_factory=Counter)
    worker_seconds: float = 0.0
    seconds: float = 0.0


class _Brought(NamedTuple):
    """Columns of an array on their way to workers: in memory that others map where there is any."""

    whole: NDArray[Any]  #: Its rows in the order in which they are packed
    memory: SharedMemory | None
    columns: range

    def of(self, rows: range, is_near: bool) -> SharedArray | NDArray[Any]:
        """The array as the worker that has these rows is told of it."""
        if self.memory is None or not is_near:
            return np.ascontiguousarray(self.whole[rows.start : rows.stop, self.columns.start : self.columns.stop])
        return SharedArray(self.memory.address, self.whole.shape, self.whole.dtype.str, self.columns)


class _Part(NamedTuple):
    """The part of a basis that a worker has."""

    held: Any  #: Future of it
    rows: range


@dataclass
class _Placed:
    """A basis that lies on workers."""

    name: str
    parts: dict[str, _Part]  #: By address
    seats: tuple[Seat, ...] = ()
    near: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    shares: bool = False  #: Whether all workers map memory of this process
    batches: int = 0
    figures: dict[str, Figures] = field(default_factory=dict)


@final
class ClusterSpace(AbstractSpace, AbstractClosing):
    """A basis on the workers of a client, each with whole chunks of rows on its devices.

    Methods only note what is to be done. What waits sends all of it to every worker in one task, and all workers do it in step,
    as devices of one process do: so bits are those of one. What was done since the last restart that is kept here is done again,
    on other workers, where one has gone.
    """

    def __init__(self, workers: Workers, operator: Operator, planned: SpacePlanned, totals: SpaceTotals) -> None:
        self._workers, self._operator, self._planned, self._totals = workers, operator, planned, totals
        self._journal: list[Command] = []  # since the beginning, or the last restart that is kept
        self._pending: list[Command] = []  # not sent yet
        self._passes = 0
        self._placed: _Placed | None = None
        self._left: dict[str, Any] = {}  # parts that are of no use any more, by worker
        self._used: tuple[str, ...] = ()  # workers that had parts last
        self._early: EarlyArray | None = None
        self._early_memory: SharedMemory | None = None
        self._kept_at, self._keep_rate = time.perf_counter(), _KEEP_RATE
        with workers.answering():
            asked_anew(self._place)
        plan = self.plan
        self.n, self.block, self.capacity, self.precision = plan.sizes.n_rows, plan.block, plan.capacity, plan.precision

    # what is only noted

    @property
    def passes(self) -> int:
        """Products with A until now."""
        return self._passes

    @passes.setter
    def passes(self, count: int) -> None:
        self._passes = count
        self._note("passes", count)

    def _note(self, name: str, *given: Any, **options: Any) -> None:
        self._pending.append((name, given, options))

    def _multiplied(self, count: int) -> None:
        self._passes += count
        self._totals.products += count

    def fill(self, seed: int) -> None:
        self._note("fill", seed)

    def bring(self, x: NDArray[np.float64]) -> None:
        if x.shape != (self.n, self.block):
            raise ValueError(f"x has shape {x.shape}, but a panel of this space has shape {(self.n, self.block)}")
        order, dtype = self._operator.matrix.order, np.dtype(np.float64)
        memory, given = self._room(x.shape, dtype)
        given[...] = x if order is None else rows_taken(x, order, dtype)
        self._note("bring", _Brought(given, memory, range(self.block)))
        self._totals.sent_bytes += given.nbytes

    def load(self, panel: int) -> None:
        self._note("load", panel)

    def store(self, panel: int) -> None:
        self._note("store", panel)

    def move(self, panel: int, to: int) -> None:
        self._note("move", panel, to)

    def multiply_entries(self, panel: int) -> None:
        self._note("multiply_entries", panel)

    def product(self, panel: int) -> None:
        self._note("product", panel)
        self._multiplied(1)

    def recur(self, panel: int, previous: int | None, into: int | None, *, center: float, half: float) -> None:
        """A step of Chebyshev's recurrence with ``B = (A - center) / half``, into a panel, or W where ``into`` is None."""
        self._note("recur", panel, previous, into, center=center, half=half)
        self._multiplied(1)

    def filter(self, panel: int, scratch: range, degree: int, *, center: float, half: float) -> None:
        """``W = T_d(B) V[panel]``."""
        self._note("filter", panel, scratch, degree, center=center, half=half)
        self._multiplied(degree)

    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        self._note("project", panels, name, again=again)

    def inner(self, panels: range, name: str) -> None:
        self._note("inner", panels, name)

    def orthonormalize(self, panel: int, name: str, against: range, *, is_next: bool = False) -> None:
        self._note("orthonormalize", panel, name, against, is_next=is_next)

    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        shape = (len(panels) * self.block, len(into) * self.block)
        if coefficients.shape != shape:
            raise ValueError(f"coefficients have shape {coefficients.shape}, but these panels need {shape}")
        self._note("rotate", panels, np.array(coefficients, dtype=np.float64), into)

    # what waits

    def read(self) -> dict[str, NDArray[np.float64]]:
        found = self._ask(Question(reads=True))[0].found
        assert found is not None
        return found

    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        """``|| A v - value v ||_2 / || v ||_2`` of each column, computed and summed in float64 whatever the precision; waits."""
        answer = self._ask(Question(residuals=(panels, tuple(map(float, values)))))[0]
        assert answer.residuals is not None
        return answer.residuals

    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        found, _ = self._taken(panels, columns, np.dtype(dtype or np.float64))
        order = self._operator.matrix.order
        return found if order is None else rows_taken(found, inverse(order), found.dtype)

    def _taken(self, panels: range, columns: int | None, dtype: np.dtype[Any]) -> tuple[NDArray[Any], SharedMemory | None]:
        """Columns of panels as their rows are packed, and the memory that they lie in."""
        columns = len(panels) * self.block if columns is None else columns
        panels = panels[: -(-columns // self.block)]
        memory, found = self._room((self.n, columns), dtype)
        into = None if memory is None else SharedArray(memory.address, found.shape, dtype.str, range(columns))
        answers = self._ask(Question(taking=Taking(panels, columns, dtype.str, into)))
        assert self._placed is not None
        for part, answer in zip(self._placed.parts.values(), answers, strict=True):
            if answer.rows is not None:
                found[part.rows.start : part.rows.stop] = answer.rows
        self._totals.returned_bytes += found.nbytes
        return found, memory

    def expect_to_take(self, columns: int, dtype: np.dtype[Any]) -> None:
        """Ask the system for the memory of what :meth:`take` will return, while devices other than the host compute."""
        is_host = all(state.is_host for state in self._workers.states.values())
        if self._early is None and columns * self.n * dtype.itemsize >= LEAST_BYTES and not is_host:
            self._early_memory, room = self._new_room((self.n, columns), dtype)
            self._early = EarlyArray(room.shape, dtype, room)

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[SharedMemory | None, NDArray[Any]]:
        """A new array, and the memory that workers map where they can: those that are expected, or others."""
        early = self._early
        if early is None or (early.shape, early.dtype) != (shape, dtype):
            return self._new_room(shape, dtype)
        memory, self._early, self._early_memory = self._early_memory, None, None
        return memory, early.take()

    def _new_room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[SharedMemory | None, NDArray[Any]]:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if self._placed is None or not self._placed.shares or nbytes < _LEAST_SHARED or not has_room():
            return None, np.empty(shape, dtype)
        memory = SharedMemory.create(nbytes)
        return memory, in_shared(memory, shape, dtype)

    def settled(self, panels: range) -> None:
        """Keep the first panels here where that takes a tenth of the time since the last ones: what was done before is over."""
        nbytes, since = self.n * len(panels) * self.block * self.precision.storage.itemsize, time.perf_counter()
        if since - self._kept_at < _KEEP_AFTER * nbytes / self._keep_rate or nbytes > free_host_bytes() // _KEEP_SHARE:
            return
        found, memory = self._taken(panels, None, self.precision.storage)
        self._journal = []
        for number, panel in enumerate(panels):
            columns = range(number * self.block, (number + 1) * self.block)
            self._journal.append(("bring", (_Brought(found, memory, columns),), {}))
            self._journal.append(("store", (panel,), {}))
        self._journal.append(("passes", (self._passes,), {}))
        self._kept_at = time.perf_counter()
        self._keep_rate = nbytes / max(1e-3, self._kept_at - since)

    # batches

    def _ask(self, question: Question) -> list[Answer]:
        """Answers of all workers, in the order of their rows, once all that was noted is done."""
        since = time.perf_counter()
        with self._workers.answering():
            answers = asked_anew(partial(self._batch, question))
        self._totals.seconds += time.perf_counter() - since
        self._journal += self._pending
        self._pending.clear()
        if question.reads:  # which empties what is kept under names
            self._journal.append(("read", (), {}))
        if question.residuals is not None:
            self._totals.products += answers[0].passes - self._passes
            self._passes = answers[0].passes
            self._journal.append(("passes", (self._passes,), {}))
        return answers

    def _batch(self, question: Question) -> list[Answer]:
        """Send what was noted, and all before it where workers do not have that; ``WorkersLeftError`` where one has gone."""
        commands = self._pending
        if self._placed is None:
            self._place()
            commands = self._journal + self._pending
            self._totals.repeated += _products(self._journal)
        placed, futures = self._placed, dict[str, Any]()
        assert placed is not None
        if question.taking is not None and not placed.shares:
            question = question._replace(taking=question.taking._replace(into=None))
        try:
            for address, part in placed.parts.items():
                mine = tuple(_of(command, part.rows, placed.shares) for command in commands)
                batch = Batch(placed.batches, placed.seats, placed.near[address], mine, question)
                futures[address] = self._workers.submit(address, run_batch, part.held, batch, is_beside=True)
            answers = self._answers(futures)
        except BaseException as error:
            if isinstance(error, WorkersLeftError):
                self._totals.repeated += _products(self._pending)
            self._leave()
            self._workers.forget(futures)
            raise
        placed.batches += 1
        self._settle(placed, dict(zip(placed.parts, answers, strict=True)))
        return answers

    def _answers(self, futures: dict[str, Any]) -> list[Answer]:
        """All answers; errors of workers that others have left say nothing but that."""
        found = {each: gathered(self._workers.client, future, asked=list(futures)) for each, future in futures.items()}
        lost = dict[str, str]()
        for address, answer in found.items():
            if isinstance(answer, Verdict):
                if not isinstance(answer.error, PeerLostError):
                    answer.error.add_note(f"on worker {address}")
                    raise answer.error
                lost[address] = answer.error.problem
            elif answer.is_missing:
                lost[address] = "has lost its rows"
        if lost:
            raise WorkersLeftError("workers have lost others, or their rows", "look at what ended them, and call again", lost)
        return list(found.values())

    def _settle(self, placed: _Placed, answers: dict[str, Answer]) -> None:
        """Add what workers did in a batch."""
        slowest, totals = 0.0, self._totals
        for address, answer in answers.items():
            assert answer.figures is not None
            before, now = placed.figures.get(address, Figures(0, 0.0, 0.0, {})), answer.figures
            totals.exchanged_bytes += now.received_bytes - before.received_bytes
            for link, nbytes in now.link_bytes.items():
                totals.link_bytes[f"{link}{OF}{address}"] += nbytes - before.link_bytes.get(link, 0)
            slowest = max(slowest, now.seconds - before.seconds)
            placed.figures[address] = now
        totals.worker_seconds += slowest

    # placing

    @property
    def plan(self) -> SpacePlan:
        """The plan of the basis on the workers that are there."""
        return self._planned(devices_of(self._workers))

    def _place(self) -> None:
        """Open parts of the basis on the workers that are there."""
        self._close_left()
        self._workers.renew(self._used)
        try:
            plan = self.plan
        except BudgetError:
            if not self._workers.renew(self._used, len(self._used)):
                raise
            plan = self.plan  # by now others have come in place of those that went
        shares = dict[str, list[Any]]()
        for share in plan.products.shares:
            shares.setdefault(share.device.partition(OF)[2], []).append(share)
        rows = {address: range(own[0].rows.start, own[-1].rows.stop) for address, own in shares.items()}
        placed = self._placed = _Placed(uuid.uuid4().hex, {})
        self._used = tuple(shares)
        try:
            for rank, (address, own) in enumerate(shares.items()):
                mine = plan.of([_renamed(share) for share in own])
                part = SpacePart(placed.name, rank, tuple(rows.values()), mine, plan.piece_bytes)
                given = rows_of(self._operator, range(own[0].blocks.start, own[-1].blocks.stop))
                sent = 0 if given.data is None else given.data.nbytes
                check_sent(self._workers.states[address], address, sent)
                self._totals.matrix_bytes += sent
                placed.parts[address] = _Part(self._workers.submit(address, open_part, given, part), rows[address])
            seats = {each: self._workers.submit(each, seat_of, part.held) for each, part in placed.parts.items()}
            placed.seats = tuple(seat for _, seat in self._workers.gathered(seats))
            self._find_near(placed)
        except BaseException:
            self._leave()
            raise
        blocks = {address: sum(len(share.blocks) for share in own) for address, own in shares.items()}
        self._totals.rows = {
            address: f"rows {own.start} to {own.stop - 1}, {blocks[address]} blocks" for address, own in rows.items()
        }

    def _find_near(self, placed: _Placed) -> None:
        """Find out which workers map each other's memory, and whether all map this process's."""
        client, addresses = self._workers.client, list(placed.parts)
        near = told_before(client, "near", tuple(addresses), lambda: shares_memory(client, addresses))
        for one in addresses:
            placed.near[one] = tuple(near and one != other and machine_of(one) == machine_of(other) for other in addresses)
        beacon = beacon_here()
        if beacon is not None:
            ask = {each: (sees_here, ([beacon],)) for each in addresses}
            placed.shares = told_before(client, "shared", tuple(addresses), lambda: all(asked_of_all(client, ask).values()))

    def _leave(self) -> None:
        """Give up the parts that there are, and let nobody wait for another one."""
        placed, self._placed = self._placed, None
        client = self._workers.client
        if placed is None or client.status != "running":
            return
        there = client.nthreads()
        self._workers.lost |= dict.fromkeys(each for each in placed.parts if each not in there)
        here = [each for each in placed.parts if each in there]
        told = client._run(cancel_exchange, placed.name, workers=here, on_error="ignore")
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(told, client.loop.asyncio_loop).result(_CANCEL_SECONDS)
        for address in here:
            self._left[address] = self._workers.submit(address, close_part, placed.parts[address].held, is_beside=True)

    def _close_left(self) -> None:
        """Wait until workers have let go of parts that are of no use any more."""
        left, self._left = self._left, {}
        there = self._workers.client.nthreads() if left else {}
        for _ in self._workers.gathered({address: future for address, future in left.items() if address in there}):
            pass

    def close(self) -> None:
        if self._early is not None:
            self._early.close()
            self._early = None
        self._journal.clear()
        if self._placed is not None:
            self._leave()
        if self._workers.client.status == "running":
            with suppress(WorkersLeftError), self._workers.answering():
                self._close_left()

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.n, "block": self.block, "capacity": self.capacity}
        return one_line(self, facts | {"precision": self.precision.value, "workers": tuple(self._totals.rows)})


def devices_of(workers: Workers) -> DevicesElsewhere:
    """The devices of all workers."""
    addresses = sorted(workers.states)
    names = tuple(f"{device}{OF}{address}" for address in addresses for device in workers.states[address].devices)
    return DevicesElsewhere(names, workers.budget_bytes, min(map(workers.threads, addresses)), workers.rates)


def check_sent(state: WorkerState, address: str, nbytes: int) -> None:
    """Raise ``BudgetError`` where rows that are sent find no room beside the budget of a worker."""
    needed = nbytes + (state.budget_bytes if state.is_host else 0)
    if nbytes and needed > state.room_bytes:
        advice = "start more workers, give them more memory (--memory-limit), or let A lie in a file that all read (packed=)"
        raise BudgetError(f"memory of worker {address} for its rows of A", needed, state.room_bytes, advice)


def _renamed(share: Any) -> Any:
    """A share as its worker calls the device."""
    return replace(share, device=share.device.partition(OF)[0])


def _of(command: Command, rows: range, is_near: bool) -> Command:
    """A command as the worker that has these rows gets it."""
    name, given, options = command
    if name == "bring":
        return name, (given[0].of(rows, is_near),), options
    return command


def _products(commands: Sequence[Command]) -> int:
    """Products among some commands."""
    return sum({"product": 1, "recur": 1}.get(name, given[2] if name == "filter" else 0) for name, given, _ in commands)
