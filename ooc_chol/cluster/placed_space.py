"""The parts of a basis on workers: opened, asked in step, and given up together."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
    close_part,
    in_shared,
    map_lent,
    open_part,
    run_batch,
    seat_of,
)
from ooc_chol.cluster.rows import RowsOf, rows_of
from ooc_chol.cluster.shared_blocks import beacon_here, sees_here, shares_memory
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.waiting import WorkersLeftError, gathered
from ooc_chol.cluster.workers import Workers
from ooc_chol.eigen.elsewhere import DevicesElsewhere
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.errors import BudgetError
from ooc_chol.memory.shared import SharedMemory, has_room
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.plan import DeviceShare

#: Between a device and the worker that has it, in names of plans.
OF = " of "
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
    exchanged_by: str = ""  #: Way that these take
    link_bytes: Counter[str] = field(default_factory=Counter)
    worker_seconds: float = 0.0
    seconds: float = 0.0


class Brought(NamedTuple):
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


@final
class PlacedSpace:
    """A basis that lies on workers, each with whole chunks of rows: ``WorkersLeftError`` where it does not any more."""

    def __init__(self, workers: Workers, operator: Operator, plan: SpacePlan, totals: SpaceTotals) -> None:
        self._workers, self._operator, self._totals, self.plan = workers, operator, totals, plan
        self._name = uuid.uuid4().hex  # of the exchange
        self._parts = dict[str, _Part]()
        self._batches = 0
        self._figures = dict[str, Figures]()
        self._leaving = dict[str, Any]()  # what closes parts
        self._left = dict[str, _Part]()  # which keep what they lend until all are closed
        self._by_device = False
        shares = dict[str, list[DeviceShare]]()
        for share in plan.products.shares:
            shares.setdefault(share.device.partition(OF)[2], []).append(share)
        self.addresses = tuple(shares)  #: Of the workers, in the order of their rows
        self._near, self.is_shared = self._found_near()
        try:
            self._seats = self._opened(shares)
            self._by_device = self._mapped()
            totals.exchanged_by = self._way()
        except BaseException as error:
            self.close()
            if isinstance(error, PeerLostError):
                raise WorkersLeftError(error.problem, error.advice) from error
            raise

    def _found_near(self) -> tuple[dict[str, tuple[bool, ...]], bool]:
        """Find out which workers map each other's memory, and whether all map this process's."""
        client, addresses = self._workers.client, self.addresses
        near = told_before(client, "near", addresses, lambda: shares_memory(client, addresses))
        found = {
            one: tuple(near and one != other and machine_of(one) == machine_of(other) for other in addresses) for one in addresses
        }
        beacon = beacon_here()
        if beacon is None:
            return found, False
        ask = {each: (sees_here, ([beacon],)) for each in addresses}
        return found, told_before(client, "shared", addresses, lambda: all(asked_of_all(client, ask).values()))

    def _opened(self, shares: dict[str, list[DeviceShare]]) -> tuple[Seat, ...]:
        """Let workers open their parts, and tell where each finds the others."""
        rows = {address: range(own[0].rows.start, own[-1].rows.stop) for address, own in shares.items()}
        plan, sent = self.plan, []  # memory of blocks, until workers have read it
        for rank, (address, own) in enumerate(shares.items()):
            blocks = range(own[0].blocks.start, own[-1].blocks.stop)
            memory, *given = self._rows(address, blocks)
            sent.append(memory)
            mine = plan.of([replace(share, device=share.device.partition(OF)[0]) for share in own])
            state = self._workers.states[address]
            kept = 0 if state.is_host else state.room_bytes // 2
            part = SpacePart(self._name, rank, tuple(rows.values()), mine, plan.piece_bytes, kept)
            self._parts[address] = _Part(self._workers.submit(address, open_part, *given, part), rows[address])
            told = f"rows {rows[address].start} to {rows[address].stop - 1}, {len(blocks)} blocks"
            self._totals.rows = {each: self._totals.rows.get(each, "") for each in self._parts} | {address: told}
        seats = {address: self._workers.submit(address, seat_of, part.held) for address, part in self._parts.items()}
        return tuple(seat for _, seat in self._workers.gathered(seats))

    def _way(self) -> str:
        """Way of vectors and sums between workers, in words."""
        if self._by_device:
            return "memory of GPUs"
        near, pairs = sum(map(sum, self._near.values())), len(self._parts) * (len(self._parts) - 1)
        return " and ".join(["memory of the host"] * (near > 0) + ["messages"] * (near < pairs))

    def _mapped(self) -> bool:
        """Let workers map what each lends on its devices, and tell whether all do."""
        if not all(sum(near) == len(self._parts) - 1 > 0 for near in self._near.values()):
            return False
        handles = [seat.handle for seat in self._seats]
        if not all(handles):
            return False
        asked = {address: self._workers.submit(address, map_lent, part.held, handles) for address, part in self._parts.items()}
        return all([is_mapped for _, is_mapped in self._workers.gathered(asked)])  # noqa: C419 - all are waited for

    def _rows(self, address: str, blocks: range) -> tuple[SharedMemory | None, RowsOf, SharedArray | None]:
        """Blocks for a worker: their facts, and their bytes unless it reads a file, in memory that it maps where it can."""
        memories = []

        def room(nbytes: int) -> NDArray[np.uint8]:
            check_sent(self._workers.states[address], address, nbytes)
            self._totals.matrix_bytes += nbytes
            memory, data = self.room((1, nbytes), np.dtype(np.uint8))
            memories.append(memory)
            return data.reshape(-1)

        rows = rows_of(self._operator, blocks, room)
        if rows.data is None or memories[0] is None:
            return None, rows, None
        data = SharedArray(memories[0].address, (1, rows.data.size), rows.data.dtype.str, range(rows.data.size))
        return memories[0], replace(rows, data=rows.data[:0]), data

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[SharedMemory | None, NDArray[Any]]:
        """Memory that workers map where they can, and a new array in it, or elsewhere."""
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if not self.is_shared or nbytes < _LEAST_SHARED or not has_room():
            return None, np.empty(shape, dtype)
        memory = SharedMemory.create(nbytes)
        return memory, in_shared(memory, shape, dtype)

    # batches

    @property
    def is_empty(self) -> bool:
        """True if nothing has been done with it."""
        return not self._batches

    def ask(self, commands: Sequence[Command], question: Question) -> dict[range, Answer]:
        """Answers of all workers by their rows, in the order of these; a batch that fails ends the parts."""
        futures = dict[str, Any]()
        try:
            for address, part in self._parts.items():
                mine = tuple(self._told(command, part.rows) for command in commands)
                batch = Batch(self._batches, self._seats, self._near[address], self._by_device, mine, question)
                futures[address] = self._workers.submit(address, run_batch, part.held, batch, is_beside=True)
            found = self._answers(futures)
        except BaseException:
            self.leave()
            self._workers.forget(futures)
            raise
        self._batches += 1
        self._settle(found)
        return {part.rows: found[address] for address, part in self._parts.items()}

    def _told(self, command: Command, rows: range) -> Command:
        """A command as the worker that has these rows is told of it."""
        name, given, options = command
        return command if name != "bring" else (name, (given[0].of(rows, self.is_shared),), options)

    def _answers(self, futures: dict[str, Any]) -> dict[str, Answer]:
        """All answers; errors of workers that others have left say nothing but that."""
        how: dict[str, Any] = {"asked": list(futures), "in_step": True}
        found = {each: gathered(self._workers.client, future, **how) for each, future in futures.items()}
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
        return found

    def _settle(self, answers: dict[str, Answer]) -> None:
        """Add what workers did in a batch."""
        slowest, totals = 0.0, self._totals
        for address, answer in answers.items():
            assert answer.figures is not None
            before, now = self._figures.get(address, Figures(0, 0.0, {})), answer.figures
            totals.exchanged_bytes += now.received_bytes - before.received_bytes
            for link, nbytes in now.link_bytes.items():
                totals.link_bytes[f"{link}{OF}{address}"] += nbytes - before.link_bytes.get(link, 0)
            slowest = max(slowest, now.seconds - before.seconds)
            self._figures[address] = now
        totals.worker_seconds += slowest

    # the end

    def leave(self) -> None:
        """Give up the parts, and let nobody wait for another one; :meth:`close` waits for that."""
        client = self._workers.client
        if client.status != "running":
            self._parts.clear()
            return
        there = client.nthreads()
        here = [address for address in self._parts if address in there]
        if len(self._parts) > 1:  # without waiting for a worker that stands still, as client.run does
            told = client._run(cancel_exchange, self._name, workers=here, on_error="ignore")
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(told, client.loop.asyncio_loop).result(_CANCEL_SECONDS)
        left = {address: self._workers.submit(address, close_part, self._parts[address].held, is_beside=True) for address in here}
        self._leaving, self._left, self._parts = left, self._parts, {}

    def close(self) -> None:
        """Wait until the workers have let go of their parts; a second call does nothing."""
        if self._parts:
            self.leave()
        if self._workers.client.status != "running":
            return
        left, self._leaving = self._leaving, {}
        there = self._workers.client.nthreads() if left else {}
        with suppress(WorkersLeftError):
            for _ in self._workers.gathered({address: future for address, future in left.items() if address in there}):
                pass
        self._left.clear()


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
