"""Triangular solves on several devices, or several streams of one: each reads its part of L, and takes solutions from the others.

``L y = x`` deals tile rows, ``L.T y = x`` tile columns: block k of the solution belongs to device ``k % g``, or to the one on
which tile row k of L lies. It reads only its own row or column. Of what it needs from others the newest block comes last, and a
device's blocks take turns in its streams, so that products of some, which leave most of a GPU idle, run while another waits for
its turn. The last product and the solve of each block are one chain through all: they are urgent. The order of subtractions, and
so every bit, is that of one device and one stream.

Where the rows of L lie on the devices, the tiles of a row are taken in batches, counted from its first one, on any number of
devices. For ``L.T y = x`` a device then multiplies with its own rows, and others take products, which are smaller than tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple, TypeVar, final

from numpy.typing import NDArray

from ooc_chol.dense.factor.sweeps import BATCH, AbstractTeamSolver, AbstractTeamSweeps, Left, Needs
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractEvent, Tile
from ooc_chol.runtime.passes import Pass, on_each_device
from ooc_chol.tasks.tiling import TileGrid, TileIndex

_Result = TypeVar("_Result")
#: Streams of each device that take its blocks in turn: a product of some columns leaves most of a GPU idle.
STREAMS = 4
#: Right-hand sides up to which products of several tiles are taken at once. On an H200 a tile and 16 of them take 9 us for 15 to
#: 17 one by one, and 128 take 20 for 23; of 52 tile rows a sweep has 108 calls of cuBLAS for 1,326.
MOST_IN_BATCHES = 128


@final
class TeamSweeps:
    """Sweeps of several devices over one store, enqueued by the calling thread."""

    def __init__(self, members: Sequence[AbstractTeamSweeps], store: AbstractStore) -> None:
        self._members = members
        self._owners = [_owner(store, k, members) for k in range(store.grid.nt)]
        self._in_rows = all(members[owner].has_row(k) for k, owner in enumerate(self._owners) if k)

    def columns_that_fit(self) -> int:
        """Right-hand sides that every device has room for."""
        return min(member.columns_that_fit() for member in self._members)

    def allocate(self, columns: int) -> None:
        """Make room for so many on every device."""
        for member in self._members:
            with member.current():
                member.allocate(columns)

    def solve(self, x: NDArray[Any], *, transposed: bool, left: Left | None = None) -> None:
        """Solve ``L y = x``, or with L's adjoint, in place of a host array; it is complete when this returns, and ``left`` is."""
        parts = [_Part(member, x, in_rows=self._in_rows) for member in self._members]
        if transposed and self._in_rows:
            self._solve_by_rows(parts, left)
        else:
            nt = len(self._owners)
            solved: dict[int, _Block] = {}
            for k in range(nt - 1, -1, -1) if transposed else range(nt):
                solved[k] = parts[self._owners[k]].solve_block(k, solved, transposed=transposed, left=left)
        for member in self._members:
            with member.current():
                member.finish()

    def _solve_by_rows(self, parts: Sequence[_Part], left: Left | None) -> None:
        """Solve ``L.T y = x``: once a block is final, products with its row of L go to all blocks above, the next one first."""
        for k, owner in enumerate(self._owners):
            parts[owner].bring_block(k)
        for i in range(len(self._owners) - 1, -1, -1):
            own = parts[self._owners[i]]
            own.finish_block(i, left)
            for first in range((i - 1) // BATCH * BATCH, -1, -BATCH):
                tiles = range(first, min(first + BATCH, i))
                products = own.multiply_row(i, tiles)
                for number, part in enumerate(parts):
                    targets = [j for j in tiles if self._owners[j] == number]
                    if targets:
                        part.subtract_from(targets, products)


def _owner(store: AbstractStore, k: int, members: Sequence[AbstractTeamSweeps]) -> int:
    """Which device block k of a solution belongs to: the one where tile row k lies, or each in turn."""
    here = (number for number, member in enumerate(members) if store.tile_on(member.device, (k, k)) is not None)
    return next(here, k % len(members))


class _Block(NamedTuple):
    """A block of the solution on a device."""

    rows: Tile
    there: AbstractEvent  #: Behind what makes it final there, or brings it


class _Products(NamedTuple):
    """Products with tiles of a row, on the device where the row lies."""

    of: _Part
    tiles: range
    is_next: bool  #: Whether the block that is solved for next takes one of them
    array: Tile
    there: AbstractEvent
    read: list[AbstractEvent]  #: Behind what other devices have read of it


class _Part:
    """Right-hand sides on one device: its own blocks, and those of others that have come."""

    def __init__(self, member: AbstractTeamSweeps, x: NDArray[Any], *, in_rows: bool) -> None:
        self._member, self._x, self._in_rows = member, x, in_rows
        self._there: dict[int, _Block] = {}
        self._begun = 0  # own blocks
        self._seen: set[tuple[int, int]] = set()  # streams, and blocks that they waited for
        self._hurried: set[int] = set()  # batches of which only urgent products are left
        self._read: dict[int, list[AbstractEvent]] = {}  # by stream: what the next products that it takes wait for
        with member.current():
            self._tile = member.array(*x.shape)
            nb, count = member.grid.nb, max(0, member.grid.nt - 1)
            self._whole = self._tile[: nb * count].reshape(count, nb, x.shape[1])  # blocks but for the last

    def solve_block(self, k: int, solved: dict[int, _Block], *, transposed: bool, left: Left | None) -> _Block:
        """Enqueue all that makes block ``k`` final, in host memory too."""
        member, nt = self._member, self._member.grid.nt
        order = [TileIndex(i, k) for i in range(nt - 1, k, -1)] if transposed else [TileIndex(k, j) for j in range(k)]
        early, batch = max(0, len(order) - 1), BATCH if self._in_rows else 1
        early -= early % batch  # what is left for the urgent stream begins with a batch
        with member.current():
            turn, self._begun = member.turn_to(self._begun), self._begun + 1
            x_k = member.rows(self._tile, k)
            member.bring_rows(member.rows(self._x, k), x_k)
            self._subtract(x_k, order[:early], solved, turn, transposed=transposed)
            urgent = member.hurry()
            self._subtract(x_k, order[early:], solved, urgent, transposed=transposed)
            return self._substitute(k, (turn, urgent), transposed=transposed, left=left)

    def _substitute(self, k: int, streams: tuple[int, int], *, transposed: bool, left: Left | None) -> _Block:
        """Make block ``k`` final in the urgent stream, and give it back in the other one."""
        member, x_k = self._member, self._member.rows(self._tile, k)
        with closing(member.tiles([TileIndex(k, k)], self._x.shape[1])) as tiles:
            for _, tile in tiles:  # x[k] = inv(L[k, k]) @ x[k]
                member.solve_block(tile, x_k, k, transposed=transposed, left=left)
        block = self._there[k] = _Block(x_k, member.record())
        self._seen |= {(stream, k) for stream in streams}
        member.turn_to(streams[0])
        member.wait(block.there)
        member.take_back(x_k, member.rows(self._x, k))
        return block

    def _subtract(
        self, x_k: Tile, order: Sequence[TileIndex], solved: dict[int, _Block], stream: int, *, transposed: bool
    ) -> None:
        """``x[k] -= L[k, j] @ x[j]``, or ``x[k] -= L[i, k].T @ x[i]``, of tiles of row or column ``k``."""
        if self._in_rows:
            for first in range(0, len(order), BATCH):
                self._subtract_batch(x_k, order[first : first + BATCH], solved, stream)
            return
        with closing(self._member.tiles(order, self._x.shape[1])) as tiles:
            for (i, j), tile in tiles:
                other = i if transposed else j
                self._member.subtract(x_k, tile, self._solved(other, solved[other], stream), transposed=transposed)

    def _subtract_batch(self, x_k: Tile, order: Sequence[TileIndex], solved: dict[int, _Block], stream: int) -> None:
        """``x[k] -= L[k, j] @ x[j]`` of adjacent tiles of row ``k``, whose products are taken at once."""
        tiles = range(order[0].j, order[-1].j + 1)
        for j in tiles:
            self._solved(j, solved[j], stream)
        products = self._member.multiply_each(order[0].i, tiles, self._whole[tiles.start : tiles.stop], transposed=False)
        self._member.subtract_products(x_k[None], products[None], [0])

    def _solved(self, k: int, block: _Block, stream: int) -> Tile:
        """A block of the solution here, which the stream may use from now on."""
        if (stream, k) in self._seen:
            return self._there[k].rows
        self._seen.add((stream, k))
        if (here := self._there.get(k)) is not None:
            self._member.wait(here.there)
            return here.rows
        self._member.wait(block.there)
        rows = self._member.rows(self._tile, k)
        self._member.copy(block.rows, rows)
        self._there[k] = _Block(rows, self._member.record())
        return rows

    # by rows, for ``L.T y = x``: a batch of blocks has a stream for all but its last products, which are urgent

    def bring_block(self, k: int) -> None:
        """Enqueue the copy of an own block of right-hand sides."""
        member = self._member
        with member.current():
            member.turn_to(k // BATCH)
            member.bring_rows(member.rows(self._x, k), member.rows(self._tile, k))

    def finish_block(self, k: int, left: Left | None) -> None:
        """Enqueue what makes an own block final, from which all products have been subtracted."""
        with self._member.current():
            streams = self._member.turn_to(k // BATCH), self._hurry(k // BATCH)
            self._substitute(k, streams, transposed=True, left=left)

    def multiply_row(self, i: int, tiles: range) -> _Products:
        """Enqueue ``L[i, j].T @ x[i]`` of adjacent tiles of row ``i``."""
        member, is_next = self._member, tiles.stop == i
        with member.current():
            stream = self._turn_to(tiles.start // BATCH, is_next=is_next)
            for event in self._read.pop(stream, ()):
                member.wait(event)
            array = member.multiply_each(i, tiles, self._solved(i, self._there[i], stream), transposed=True)
            read = self._read[stream] = []
            return _Products(self, tiles, is_next, array, member.record(), read)

    def subtract_from(self, targets: Sequence[int], products: _Products) -> None:
        """Enqueue ``x[j] -= L[i, j].T @ x[i]`` of own blocks ``targets``."""
        member, is_elsewhere = self._member, products.of is not self
        with member.current():
            self._turn_to(products.tiles.start // BATCH, is_next=products.is_next)
            if is_elsewhere:
                member.wait(products.there)
            first, last = products.tiles.start, products.tiles.stop
            array = member.from_elsewhere(products.array, products.of._member) if is_elsewhere else products.array
            member.subtract_products(self._whole[first:last], array[:, None], [j - first for j in targets])
            if is_elsewhere:
                products.read.append(member.record())

    def _turn_to(self, batch: int, *, is_next: bool) -> int:
        """Turn to the stream of a batch, or to the urgent one."""
        turn = self._member.turn_to(batch)
        return self._hurry(batch) if is_next else turn

    def _hurry(self, batch: int) -> int:
        """Turn to the urgent stream, once behind what the stream of a batch, which is turned to, has been given for it."""
        urgent = self._member.hurry(is_behind=batch not in self._hurried)
        self._hurried.add(batch)
        return urgent


@contextmanager
def opened_team(
    solvers: Sequence[AbstractTeamSolver],
    store: AbstractStore,
    run: Pass,
    locked: Sequence[NDArray[Any]],
    *,
    checks: bool = False,
) -> Iterator[TeamSweeps]:
    """Open all devices; ``locked`` are the host arrays that are solved for."""
    lies_in_rows = any(store.row_on(name, store.grid.nt - 1) is not None for name in store.devices)
    in_rows = lies_in_rows and max(x.shape[1] for x in locked) <= MOST_IN_BATCHES
    # checks have room for one block at a time
    needs = Needs(checks=checks, streams=1 if checks else STREAMS, batches=min(2, len(solvers)) if in_rows else 0)
    with ExitStack() as stack:
        stack.enter_context(solvers[0].reaching(store, locked))
        members = [
            stack.enter_context(
                each.without_locking().opened(store, run, needs, ranks=kept_first(store.grid, number, len(solvers)))
            )
            for number, each in enumerate(solvers)
        ]
        try:
            yield TeamSweeps(members, store)
        finally:
            for member in members:
                member.synchronize()  # others may still copy from its memory


def kept_first(grid: TileGrid, number: int, count: int) -> dict[TileIndex, int]:
    """Ranks of the tiles that a device needs for both systems: rows and columns are its own; the last in stored order first.

    >>> sorted(kept_first(TileGrid(4, 1), 1, 2))
    [TileIndex(i=1, j=1), TileIndex(i=3, j=1), TileIndex(i=3, j=3)]
    """
    own = [index for index in grid.tiles() if index.i % count == number and index.j % count == number]
    return {index: rank for rank, index in enumerate(reversed(own))}


def by_all(
    solvers: Sequence[AbstractTeamSolver], store: AbstractStore, locked: Sequence[NDArray[Any]], work: Callable[[int], _Result]
) -> list[_Result]:
    """``work(number)`` for every device at once, a thread each, while L and these arrays are page-locked for all of them."""
    with solvers[0].reaching(store, locked):
        return on_each_device(len(solvers), work)
