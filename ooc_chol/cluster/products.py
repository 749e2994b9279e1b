"""Products with packed matrices on the workers of a cluster: each holds rows, gets vectors, and gives its rows of products.

Bases lie there as a whole (:mod:`~ooc_chol.cluster.spaces`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.machine import Machine
from ooc_chol.cluster.connection import connected
from ooc_chol.cluster.placed_space import SpaceTotals, check_sent, devices_of
from ooc_chol.cluster.rows import Answer, Piece, RowsKey, Wanted, held_rows, multiply_rows, put_rows, rows_of
from ooc_chol.cluster.spaces import ClusterSpace
from ooc_chol.cluster.tasks import kept
from ooc_chol.cluster.waiting import WorkersLeftError, asked_anew
from ooc_chol.cluster.workers import Workers
from ooc_chol.dense.options import FactorOptions
from ooc_chol.eigen.elsewhere import AbstractElsewhere, DevicesElsewhere, SpacePlanned
from ooc_chol.errors import BudgetError
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.order import inverse, rows_taken
from ooc_chol.sparse.plan import DeviceShare, MultiplyPlan
from ooc_chol.sparse.planning import Known, planned
from ooc_chol.tasks.row_blocks import RowBlocks

#: Hears of each piece of a product: its rows, and how many there are.
Told = Callable[[int, int], None]


@dataclass(eq=False)
class _Shared:
    """A matrix whose blocks are shared out, and which worker has each part."""

    number: int
    operator: Operator
    parts: list[range]
    owners: list[str]
    pieces: dict[tuple[str, int], Piece] = field(default_factory=dict)  #: The last of each worker and part, without its rows


class _Product(NamedTuple):
    """Arguments of a product."""

    shared: _Shared
    precision: Precision
    columns: int  #: For which there is to be room
    told: Told | None


@contextmanager
def products_on_cluster(client: Any, devices: Any, memory_budget: int | str | None) -> Iterator[RowsOnCluster]:
    """Workers that make products with matrices until the end of the block; devices and budget are those of each."""
    with connected(client) as there:
        found = RowsOnCluster(there, FactorOptions(devices=devices, memory_budget=memory_budget))
        try:
            yield found
        finally:
            found.close()


@final
class RowsOnCluster(AbstractElsewhere):
    """Rows of matrices on the workers of a client.

    Blocks are sent once, or read by workers from a file that all see. Where a worker has gone, others are given its rows, and
    the product that is under way is begun again. Every row is a sum of its own, so that bits depend on nothing of this.
    """

    def __init__(self, client: Any, options: FactorOptions) -> None:
        self._workers = Workers(client, options)
        self._held: dict[str, Any] = {}  # by worker, the future of what it holds
        self._there: dict[str, set[RowsKey]] = {}  # by worker, the rows that it was given
        self._matrices: list[_Shared] = []
        self._spaces: list[SpaceTotals] = []
        self._is_placed = False
        self._products = self._tries = self._matrix_bytes = self._sent_bytes = self._returned_bytes = 0
        self._seconds = self._worker_seconds = 0.0

    def product(
        self, operator: Operator, precision: Precision, columns: int, *, told: Told | None = None
    ) -> Callable[[NDArray[Any]], NDArray[Any]]:
        shared, order = self._shared(operator), operator.matrix.order
        multiply = partial(self._multiplied, _Product(shared, precision, columns, told))
        if order is None:
            return multiply
        numbers, dtype = inverse(order), precision.storage
        return lambda x: rows_taken(multiply(rows_taken(x, order, dtype)), numbers, dtype)

    def done(self) -> ClusterProducts:
        rows: dict[str, list[str]] = {}
        for shared in self._matrices:
            blocks = shared.operator.matrix.blocks.blocks
            for owner, part in zip(shared.owners, shared.parts, strict=True):
                of = f" of matrix {shared.number + 1}" if len(self._matrices) > 1 else ""
                first, last = blocks[part.start].first_row, blocks[part.stop - 1].rows.stop - 1
                rows.setdefault(owner, []).append(f"rows {first} to {last}{of}, {len(part)} blocks")
        links = Counter[str]()
        for shared in self._matrices:
            for piece in shared.pieces.values():
                links.update(piece.link_bytes)
        for space in self._spaces:
            links.update(space.link_bytes)
            for address, told in space.rows.items():
                rows.setdefault(address, []).append(told)
        worker_seconds = self._worker_seconds + sum(space.worker_seconds for space in self._spaces)
        seconds = self._seconds + sum(space.seconds for space in self._spaces)

        def total(name: str) -> int:
            return sum(int(getattr(space, name)) for space in self._spaces)

        return ClusterProducts(
            workers=tuple(rows),
            rows=tuple("; ".join(each) for each in rows.values()),
            arithmetic=self.arithmetic,
            products=self._products + total("products"),
            repeated=self._tries - self._products + total("repeated"),
            lost_workers=tuple(self._workers.lost),
            matrix_bytes=self._matrix_bytes + total("matrix_bytes"),
            sent_bytes=self._sent_bytes + total("sent_bytes"),
            returned_bytes=self._returned_bytes + total("returned_bytes"),
            exchanged_bytes=total("exchanged_bytes"),
            link_bytes=dict(links),
            worker_seconds=worker_seconds,
            network_seconds=seconds - worker_seconds,
            exchanged_by=", ".join(dict.fromkeys(space.exchanged_by for space in self._spaces if space.exchanged_by)),
        )

    def planned(self, known: Known, columns: int, precision: Precision) -> MultiplyPlan:
        """Plan of products on the workers that are there: the devices of each, by its address."""
        plan = planned(known, columns, precision, Machine("host:0"), of=range(0))
        shares, rooms = list[DeviceShare](), []
        for (address, state), part in zip(sorted(self._workers.states.items()), self._parts(known.blocks), strict=False):
            machine = Machine(state.devices, state.budget_bytes, must_exist=False)
            try:
                mine = planned(known, columns, precision, machine, of=part, threads=self._workers.threads(address))
            except BudgetError as error:
                error.add_note(f"on worker {address}")
                raise
            shares += [replace(share, device=f"{share.device} of {address}") for share in mine.shares]
            rooms.append(mine.room)
        found: MultiplyPlan = replace(plan, shares=tuple(shares), budget_bytes=self._workers.budget_bytes, rates=None)
        return replace(found, room=min(rooms, default=plan.room))

    def _parts(self, blocks: RowBlocks) -> list[range]:
        """Blocks of each worker that has some, about equal in entries."""
        return [part for part in blocks.shares(len(self._workers.states), of_chunks=False) if len(part)]

    @property
    def devices(self) -> DevicesElsewhere:
        return devices_of(self._workers)

    def space(self, operator: Operator, planned: SpacePlanned) -> ClusterSpace:
        self._spaces.append(SpaceTotals())
        return ClusterSpace(self._workers, operator, planned, self._spaces[-1])

    @property
    def arithmetic(self) -> str:
        return self._workers.arithmetic

    def close(self) -> None:
        """Let the workers forget all rows."""
        self._held.clear()
        self._there.clear()

    # placing

    def _shared(self, operator: Operator) -> _Shared:
        """The matrix of an operator, shared out when it is first multiplied."""
        for each in self._matrices:
            if each.operator is operator:
                return each
        parts = self._parts(operator.matrix.blocks)
        self._matrices.append(_Shared(len(self._matrices), operator, parts, [""] * len(parts)))
        self._is_placed = False
        return self._matrices[-1]

    def _place(self) -> None:
        """Let the workers that are there hold all rows, each those that it held before wherever that is possible."""
        if self._workers.renew():
            self._is_placed = False
            for address in set(self._held) - set(self._workers.states):
                del self._held[address]
                self._there.pop(address, None)
        if not self._is_placed:
            self._choose_owners()
            self._is_placed = True
        self._put_all()

    def _choose_owners(self) -> None:
        """Give every part of each matrix a worker that has room for it."""
        for shared in self._matrices:
            shared.owners = placed(shared.owners, sorted(self._workers.states))
        self._check_memory()
        for address in sorted({owner for shared in self._matrices for owner in shared.owners}):
            if address not in self._held:
                state = self._workers.states[address]
                given = state.devices, state.budget_bytes
                self._held[address] = self._workers.submit(address, held_rows, *given)
                self._there[address] = set()

    def _check_memory(self) -> None:
        """Raise ``BudgetError`` where rows that are sent find no room beside the budget of a worker."""
        sent = Counter[str]()
        for shared in self._matrices:
            if shared.operator.matrix.path is None:
                blocks = shared.operator.matrix.blocks.blocks
                for part, owner in zip(shared.parts, shared.owners, strict=True):
                    sent[owner] += sum(blocks[number].nbytes for number in part)
        for address, nbytes in sent.items():
            check_sent(self._workers.states[address], address, nbytes)

    def _put_all(self) -> None:
        """Send rows to workers that do not have them yet, one part to each at a time."""
        while due := self._due():
            futures = {}
            for address, (shared, part) in due.items():
                rows = rows_of(shared.operator, shared.parts[part])
                key = shared.number, part
                given = self._held[address], key, rows, self._keys(address)
                futures[address] = self._workers.submit(address, put_rows, *given)
                self._matrix_bytes += 0 if rows.data is None else rows.data.nbytes
            for address, answer in self._workers.gathered(futures):
                assert answer is None
                shared, part = due[address]
                self._there[address].add((shared.number, part))

    def _due(self) -> dict[str, tuple[_Shared, int]]:
        """By worker, rows that it is to have and has not."""
        due: dict[str, tuple[_Shared, int]] = {}
        for shared in self._matrices:
            for part, owner in enumerate(shared.owners):
                if (shared.number, part) not in self._there[owner]:
                    due.setdefault(owner, (shared, part))
        return due

    def _keys(self, address: str) -> tuple[RowsKey, ...]:
        """All rows that a worker is to have."""
        return tuple(
            (shared.number, part) for shared in self._matrices for part, owner in enumerate(shared.owners) if owner == address
        )

    # products

    def _multiplied(self, product: _Product, x: NDArray[Any]) -> NDArray[Any]:
        """All rows of a product."""
        since, storage = time.perf_counter(), product.precision.storage
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            x = np.ascontiguousarray(x, dtype=storage)
        y = np.zeros((product.shared.operator.shape[0], x.shape[1]), storage)
        if y.size and x.size:
            with self._workers.answering():
                asked_anew(partial(self._multiply, product, x, y))
            self._products += 1
        self._seconds += time.perf_counter() - since
        return y

    def _multiply(self, product: _Product, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Make all rows of ``y``; ``WorkersLeftError`` where that is to be tried again."""
        shared = product.shared
        self._tries += 1
        self._place()
        given = self._workers.client.submit(kept, x, pure=False, priority=1)
        futures = {}
        for address in dict.fromkeys(shared.owners):
            wanted = Wanted(shared.number, product.precision, product.columns, self._keys(address))
            futures[address] = self._workers.submit(address, multiply_rows, self._held[address], wanted, given)
            self._sent_bytes += x.nbytes
        slowest, blocks, rows_done = 0.0, shared.operator.matrix.blocks.blocks, 0
        for address, answer in self._workers.gathered(futures):
            assert isinstance(answer, Answer)
            if answer.missing:
                self._there[address] -= set(answer.missing)
                raise WorkersLeftError(f"{address} has lost rows that it held", "look at what ended it, and call again")
            slowest = max(slowest, answer.seconds)
            for piece in answer.pieces:
                part = shared.parts[piece.part]
                first = blocks[part.start].first_row
                y[first : first + len(piece.y)] = piece.y
                rows_done += len(piece.y)
                self._returned_bytes += piece.y.nbytes
                shared.pieces[address, piece.part] = piece._replace(y=piece.y[:0].copy())
            if product.told is not None:
                product.told(rows_done, len(y))
        self._worker_seconds += slowest


def placed(owners: Sequence[str], workers: Sequence[str]) -> list[str]:
    """A worker for each part: the one that has it, if it is there and has no more than its share, else the one with fewest.

    >>> from ooc_chol.cluster.products import placed
    >>> placed(["a", "b"], ["b", "c"]), placed(["b", "b"], ["b"])
    (['c', 'b'], ['b', 'b'])
    """
    most = -(-len(owners) // len(workers))
    counts, found = Counter[str](), list[str]()
    for owner in owners:
        stays = owner in workers and counts[owner] < most
        found.append(owner if stays else "")
        counts[found[-1]] += 1
    for part, owner in enumerate(found):
        if not owner:
            found[part] = min(workers, key=lambda each: counts[each])
            counts[found[part]] += 1
    return found
