"""A basis whose rows lie on the workers of a cluster: commands are gathered here, and run there in batches, in step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.held_space import Answer, Command, Question, SharedArray, Taking
from ooc_chol.cluster.placed_space import Brought, PlacedSpace, SpaceTotals, devices_of
from ooc_chol.cluster.waiting import WorkersLeftError, asked_anew
from ooc_chol.cluster.workers import Workers
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.early_array import LEAST_BYTES, EarlyArray
from ooc_chol.eigen.elsewhere import SpacePlanned
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.memory.shared import SharedMemory
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.order import inverse, rows_taken

#: How many times what it takes to keep a restart must have passed since the last one, and the share of free memory that it takes.
_KEEP_AFTER, _KEEP_SHARE = 10.0, 4
#: Bytes in a second that a restart is taken to come here with until one has: by messages, and in memory that workers map.
_MESSAGE_RATE, _SHARED_RATE = 5e8, 2e9
#: Seconds of a batch beside what it does.
_BATCH_SECONDS = 0.01


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
        self._placed: PlacedSpace | None = None
        self._left: PlacedSpace | None = None  # that is of no use any more
        self._most = 0  # workers that were there
        self._early: EarlyArray | None = None
        self._early_memory: SharedMemory | None = None
        self._kept_at = time.perf_counter()
        self._keep_rate: float | None = None
        with workers.answering():
            plan = asked_anew(self._there).plan
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
        order, dtype = self._operator.matrix.order, self.precision.storage
        memory, given = self._room(x.shape, dtype)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            given[...] = x if order is None else rows_taken(x, order, dtype)
        self._note("bring", Brought(given, memory, range(self.block)))
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
        found = self._first(Question(reads=True)).found
        assert found is not None
        return found

    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        """``|| A v - value v ||_2 / || v ||_2`` of each column, computed and summed in float64 whatever the precision; waits."""
        answer = self._first(Question(residuals=(panels, tuple(map(float, values)))))
        assert answer.residuals is not None
        return answer.residuals

    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        found, _, _ = self._taken(panels, columns, np.dtype(dtype or np.float64))
        order = self._operator.matrix.order
        return found if order is None else rows_taken(found, inverse(order), found.dtype)

    def _taken(self, panels: range, columns: int | None, dtype: np.dtype[Any]) -> tuple[NDArray[Any], SharedMemory | None, float]:
        """Columns of panels as their rows are packed, the memory that they lie in, and the seconds that bringing them took."""
        columns = len(panels) * self.block if columns is None else columns
        panels = panels[: -(-columns // self.block)]
        memory, found = self._room((self.n, columns), dtype)
        into = None if memory is None else SharedArray(memory.address, found.shape, dtype.str, range(columns))
        since = time.perf_counter()
        answers = self._ask(Question(taking=Taking(panels, columns, dtype.str, into)))
        for rows, answer in answers.items():
            if answer.rows is not None:
                found[rows.start : rows.stop] = answer.rows
        self._totals.returned_bytes += found.nbytes
        seconds = time.perf_counter() - since  # with the way of messages, and with what had to be done before
        by_message = any(answer.rows is not None for answer in answers.values())
        return found, memory, seconds if by_message else max(answer.taking_seconds for answer in answers.values())

    def expect_to_take(self, columns: int, dtype: np.dtype[Any]) -> None:
        """Ask the system for the memory of what :meth:`take` will return, while devices other than the host compute."""
        is_host = all(state.is_host for state in self._workers.states.values())
        if self._early is None and columns * self.n * dtype.itemsize >= LEAST_BYTES and not is_host:
            self._early_memory, room = self._there().room((self.n, columns), dtype)
            self._early = EarlyArray(room.shape, dtype, room)

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[SharedMemory | None, NDArray[Any]]:
        """A new array, and the memory that workers map where they can: those that are expected, or others."""
        early = self._early
        if early is None or (early.shape, early.dtype) != (shape, dtype):
            return self._there().room(shape, dtype)
        memory, self._early, self._early_memory = self._early_memory, None, None
        return memory, early.take()

    def settled(self, panels: range) -> None:
        """Keep the first panels here where that takes a tenth of the time since the last ones: what was done before is over."""
        nbytes, since = self.n * len(panels) * self.block * self.precision.storage.itemsize, time.perf_counter() - self._kept_at
        rate = self._keep_rate or (_SHARED_RATE if self._there().is_shared else _MESSAGE_RATE)
        if since < _KEEP_AFTER * nbytes / rate or nbytes > free_host_bytes() // _KEEP_SHARE:
            return
        found, memory, seconds = self._taken(panels, None, self.precision.storage)
        self._journal = []
        for number, panel in enumerate(panels):
            columns = range(number * self.block, (number + 1) * self.block)
            self._journal.append(("bring", (Brought(found, memory, columns),), {}))
            self._journal.append(("store", (panel,), {}))
        self._journal.append(("passes", (self._passes,), {}))
        self._kept_at = time.perf_counter()
        self._keep_rate = nbytes / (seconds + _BATCH_SECONDS)

    # batches

    def _first(self, question: Question) -> Answer:
        """The answer of the worker that has the first rows."""
        return next(iter(self._ask(question).values()))

    def _ask(self, question: Question) -> dict[range, Answer]:
        """Answers of all workers by their rows, once all that was noted is done."""
        since = time.perf_counter()
        with self._workers.answering():
            answers = asked_anew(partial(self._batch, question))
        self._totals.seconds += time.perf_counter() - since
        self._journal += self._pending
        self._pending.clear()
        if question.reads:  # which empties what is kept under names
            self._journal.append(("read", (), {}))
        if question.residuals is not None:
            passes = next(iter(answers.values())).passes
            self._totals.products += passes - self._passes
            self._passes = passes
            self._journal.append(("passes", (passes,), {}))
        return answers

    def _batch(self, question: Question) -> dict[range, Answer]:
        """Send what was noted, and all before it where workers do not have that; ``WorkersLeftError`` where one has gone."""
        placed, commands = self._there(), self._pending
        if placed.is_empty:
            commands = self._journal + self._pending
            self._totals.repeated += _products(self._journal)
        if question.taking is not None and not placed.is_shared:
            question = question._replace(taking=question.taking._replace(into=None))
        try:
            return placed.ask(commands, question)
        except BaseException as error:
            self._placed, self._left = None, placed
            if isinstance(error, WorkersLeftError):
                self._totals.repeated += _products(self._pending)
            raise

    def _there(self) -> PlacedSpace:
        """The basis on the workers that have it, or on those that are there: empty then."""
        if self._placed is None:
            if self._left is not None:
                self._left.close()
            self._workers.renew()
            try:
                plan = self._planned(devices_of(self._workers))
            except BudgetError:
                if not self._workers.renew(self._most):
                    raise
                plan = self._planned(devices_of(self._workers))  # by now others have come in place of those that went
            self._most = max(self._most, len(self._workers.states))
            self._placed = PlacedSpace(self._workers, self._operator, plan, self._totals)
        return self._placed

    def close(self) -> None:
        if self._early is not None:
            self._early.close()
            self._early = None
        self._journal.clear()
        with self._workers.answering():
            for each in (self._placed, self._left):
                if each is not None:
                    each.close()
        self._placed = None

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.n, "block": self.block, "capacity": self.capacity}
        return one_line(self, facts | {"precision": self.precision.value, "workers": tuple(self._totals.rows)})


def _products(commands: Sequence[Command]) -> int:
    """Products among some commands."""
    return sum({"product": 1, "recur": 1}.get(name, given[2] if name == "filter" else 0) for name, given, _ in commands)
