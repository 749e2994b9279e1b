"""Rows of packed matrices at a worker, as its tasks hold them between products, with open devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.machine import Machine
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.worker_state import task_room, worker_address, worker_threads
from ooc_chol.errors import ClusterError, OocCholError, TierError
from ooc_chol.memory.blocks import AbstractBlockTier, BlockMemory
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import memory_errors_typed
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.multiplier import Multiplier, multiplier_of
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.packed_files import Facts, opened_packed
from ooc_chol.sparse.planning import Known, diagonals_of, planned

#: Number of a matrix among those of a call, and of a part of its blocks.
RowsKey: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class RowsOf:
    """Some blocks of a matrix as they are sent to a worker: their bytes, or the file that it reads."""

    facts: Facts  #: Of the whole matrix, numbered as it is packed
    blocks: range
    left: float | NDArray[np.float64]  #: Diagonals of the operator, in the order of packed rows
    right: NDArray[np.float64] | None
    shift: float | NDArray[np.float64]
    data: NDArray[np.uint8] | None = None  #: Bytes of the blocks, as they lie in memory
    path: str = ""
    fingerprint: str = ""  #: Of the file's blocks

    def opened(self) -> Operator:
        """The operator of a matrix that has these blocks alone, or reads them."""
        tier = self._file() if self.data is None else self._memory(self.data)
        return Operator(BlockCSR(tier, self.facts), left=self.left, right=self.right, shift=self.shift)

    def _memory(self, data: NDArray[np.uint8]) -> AbstractBlockTier:
        blocks = [self.facts.blocks.blocks[number] for number in self.blocks]
        tier = BlockMemory(data.size, first=self.blocks.start)
        for block in blocks:
            first = block.offset - blocks[0].offset
            room = tier.room(block.nbytes)
            room[...] = data[first : first + block.nbytes]
            tier.put(room)
        return tier

    def _file(self) -> AbstractBlockTier:
        advice = "put it where all workers read it by that name, or give A itself, which is sent to them"
        try:
            tier, _ = opened_packed(self.path)
        except FileNotFoundError:
            raise ClusterError(f"{self.path} is not there on a worker", advice, {worker_address(): "has no such file"}) from None
        if tier.fingerprint != self.fingerprint:
            tier.close()
            raise ClusterError(f"{self.path} is another file on a worker", advice, {worker_address(): "has other blocks"})
        return tier


class Wanted(NamedTuple):
    """A product that a worker is asked for."""

    matrix: int
    precision: Precision
    columns: int
    keys: tuple[RowsKey, ...]  #: All that the worker is to hold, of all matrices of the call


class Piece(NamedTuple):
    """Rows of a product."""

    part: int
    y: NDArray[Any]
    link_bytes: dict[str, int]  #: Bytes of blocks since the rows were opened


class Answer(NamedTuple):
    """Pieces of a product that a worker made."""

    pieces: tuple[Piece, ...]
    seconds: float
    missing: tuple[RowsKey, ...] = ()  #: Rows that it does not have; nothing is made then


class _Open(NamedTuple):
    """Open devices, and what they were opened for."""

    multiplier: Multiplier
    how: tuple[Precision, int, int]


@final
class HeldRows:
    """Result of a task that stays at its worker as long as the client wants it; a copy that Dask makes of it is empty."""

    def __init__(self, devices: Any, budget_bytes: int) -> None:
        self._devices, self._budget_bytes = devices, budget_bytes
        self._operators: dict[RowsKey, tuple[Operator, range]] = {}
        self._open: dict[RowsKey, _Open] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldRows, (self._devices, self._budget_bytes)

    def put(self, key: RowsKey, rows: RowsOf, keys: Sequence[RowsKey]) -> None:
        """Hold rows, and none but ``keys``."""
        self._keep(keys)
        self._forget(key)
        self._operators[key] = rows.opened(), rows.blocks

    def multiply(self, wanted: Wanted, x: NDArray[Any]) -> Answer:
        """The worker's rows of a product."""
        began = time.perf_counter()
        self._keep(wanted.keys)
        if missing := tuple(key for key in wanted.keys if key not in self._operators):
            return Answer((), 0.0, missing)
        pieces = []
        for key in wanted.keys:
            if key[0] == wanted.matrix:
                product = self._multiplier(key, wanted)
                rows = [share.rows for share in product.plan.shares]
                y = np.array(product(x)[rows[0].start : rows[-1].stop])
                pieces.append(Piece(key[1], y, dict(product.report.executed)))
        return Answer(tuple(pieces), time.perf_counter() - began)

    def _multiplier(self, key: RowsKey, wanted: Wanted) -> Multiplier:
        """Open devices for some rows; those of another precision, or with other budgets, are closed: they share the memory."""
        budget = self._budget_bytes // len(wanted.keys)
        how = wanted.precision, wanted.columns, budget
        there = self._open.get(key)
        if there is not None and there.how == how and not there.multiplier.closed:
            return there.multiplier
        for other in [other for other, each in self._open.items() if other == key or each.how[::2] != how[::2]]:
            self._open.pop(other).multiplier.close()
        operator, blocks = self._operators[key]
        machine, matrix = Machine(self._devices, budget), operator.matrix
        threads = max(1, (worker_threads() or 1) // len(machine.names)) if machine.kind.is_in_host_memory else 1
        known = Known(matrix.blocks, matrix.tier.name, diagonals_of(operator), matrix.dtype)
        plan = planned(known, wanted.columns, wanted.precision, machine, of=blocks, threads=threads)
        self._open[key] = _Open(multiplier_of(operator, plan), how)
        return self._open[key].multiplier

    def _keep(self, keys: Sequence[RowsKey]) -> None:
        for key in set(self._operators) - set(keys):
            self._forget(key)

    def _forget(self, key: RowsKey) -> None:
        if key in self._open:
            self._open.pop(key).multiplier.close()
        if key in self._operators:
            self._operators.pop(key)[0].matrix.close()


def _zeros(nbytes: int) -> NDArray[np.uint8]:
    return np.zeros(nbytes, np.uint8)


def held_rows(devices: Any, budget_bytes: int) -> HeldRows:
    """Let a worker hold rows of a call."""
    return HeldRows(devices, budget_bytes)


def put_rows(held: HeldRows, key: RowsKey, rows: RowsOf, keys: Sequence[RowsKey]) -> Verdict | None:
    """Let a worker hold some rows more; errors of reading are raised, for Dask to try again."""
    with task_room().turn, ExitStack() as stack:
        stack.enter_context(memory_errors_typed("rows of a product on a worker"))
        try:
            held.put(key, rows, keys)
        except TierError:
            raise
        except OocCholError as error:
            return Verdict(error)
    return None


def multiply_rows(held: HeldRows, wanted: Wanted, x: NDArray[Any]) -> Answer | Verdict:
    """A worker's rows of a product; errors of reading are raised, for Dask to try again."""
    with task_room().turn:
        try:
            with memory_errors_typed("a product on a worker"):
                return held.multiply(wanted, x)
        except TierError:
            raise
        except OocCholError as error:
            return Verdict(error)


def rows_of(operator: Operator, blocks: range, room: Callable[[int], NDArray[np.uint8]] = _zeros) -> RowsOf:
    """Some blocks of an operator's matrix, to be sent; ``room`` gives memory for the bytes of those that are in no file."""
    matrix = operator.matrix
    facts, tier, order = replace(matrix.facts, order=None), matrix.tier, matrix.order

    def packed(part: Any) -> Any:
        return part[order] if order is not None and isinstance(part, np.ndarray) else part

    diagonals = packed(operator.left), packed(operator.right), packed(operator.shift)
    if matrix.path is not None:
        return RowsOf(facts, blocks, *diagonals, path=matrix.path, fingerprint=tier.fingerprint)  # type: ignore[attr-defined]
    own = [facts.blocks.blocks[number] for number in blocks]
    data = room(own[-1].offset + own[-1].nbytes - own[0].offset)
    for number, block in zip(blocks, own, strict=True):
        first = block.offset - own[0].offset
        tier.read_stored((number, 0), data[first : first + block.nbytes])
    return RowsOf(facts, blocks, *diagonals, data=data)
