"""Triangular solves on several devices, or several streams of one: each reads its part of L, and takes solutions from the others.

``L y = x`` deals tile rows, ``L.T y = x`` tile columns: block k of the solution belongs to device ``k % g``, or to the one on
which tile row k of L lies. It reads only its own row or column. Of what it needs from others the newest block comes last, and a
device's blocks take turns in its streams, so that products of some, which leave most of a GPU idle, run while another waits for
its turn. The last product and the solve of each block are one chain through all: they are urgent. The order of subtractions, and
so every bit, is that of one device and one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple, TypeVar, final

from numpy.typing import NDArray

from ooc_chol.dense.factor.sweeps import AbstractTeamSolver, AbstractTeamSweeps, Left, Needs
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractEvent, Tile
from ooc_chol.runtime.passes import Pass, on_each_device
from ooc_chol.tasks.tiling import TileGrid, TileIndex

_Result = TypeVar("_Result")
#: Streams of each device that take its blocks in turn: a product of some columns leaves most of a GPU idle.
STREAMS = 4


@final
class TeamSweeps:
    """Sweeps of several devices over one store, enqueued by the calling thread."""

    def __init__(self, members: Sequence[AbstractTeamSweeps], store: AbstractStore) -> None:
        self._members = members
        self._owners = [_owner(store, k, members) for k in range(store.grid.nt)]

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
        nt = len(self._owners)
        order = range(nt - 1, -1, -1) if transposed else range(nt)
        parts = [_Part(member, x) for member in self._members]
        solved: dict[int, _Block] = {}
        for k in order:
            solved[k] = parts[self._owners[k]].solve_block(k, solved, transposed=transposed, left=left)
        for member in self._members:
            with member.current():
                member.finish()


def _owner(store: AbstractStore, k: int, members: Sequence[AbstractTeamSweeps]) -> int:
    """Which device block k of a solution belongs to: the one where tile row k lies, or each in turn."""
    here = (number for number, member in enumerate(members) if store.tile_on(member.device, (k, k)) is not None)
    return next(here, k % len(members))


class _Block(NamedTuple):
    """A block of the solution on a device."""

    rows: Tile
    there: AbstractEvent  #: Behind what makes it final there, or brings it


class _Part:
    """Right-hand sides on one device: its own blocks, and those of others that have come."""

    def __init__(self, member: AbstractTeamSweeps, x: NDArray[Any]) -> None:
        self._member, self._x = member, x
        self._there: dict[int, _Block] = {}
        self._begun = 0  # own blocks
        self._seen: set[tuple[int, int]] = set()  # streams, and blocks that they waited for
        with member.current():
            self._tile = member.array(*x.shape)

    def solve_block(self, k: int, solved: dict[int, _Block], *, transposed: bool, left: Left | None) -> _Block:
        """Enqueue all that makes block ``k`` final, in host memory too."""
        member, nt = self._member, self._member.grid.nt
        order = [TileIndex(i, k) for i in range(nt - 1, k - 1, -1)] if transposed else [TileIndex(k, j) for j in range(k + 1)]
        with member.current():
            turn, self._begun = member.turn_to(self._begun), self._begun + 1
            x_k, here = member.rows(self._tile, k), member.rows(self._x, k)
            member.bring_rows(here, x_k)
            self._subtract(x_k, order[:-2], solved, turn, transposed=transposed)
            urgent = member.hurry()
            self._subtract(x_k, order[-2:-1], solved, urgent, transposed=transposed)
            with closing(member.tiles(order[-1:], self._x.shape[1])) as tiles:
                for _, tile in tiles:  # x[k] = inv(L[k, k]) @ x[k]
                    member.solve_block(tile, x_k, k, transposed=transposed, left=left)
            block = self._there[k] = _Block(x_k, member.record())
            self._seen |= {(urgent, k), (turn, k)}
            member.turn_to(turn)
            member.wait(block.there)
            member.take_back(x_k, here)
            return block

    def _subtract(
        self, x_k: Tile, order: Sequence[TileIndex], solved: dict[int, _Block], stream: int, *, transposed: bool
    ) -> None:
        """``x[k] -= L[k, j] @ x[j]``, or ``x[k] -= L[i, k].T @ x[i]``, of tiles of row or column ``k``."""
        with closing(self._member.tiles(order, self._x.shape[1])) as tiles:
            for (i, j), tile in tiles:
                other = i if transposed else j
                self._member.subtract(x_k, tile, self._solved(other, solved[other], stream), transposed=transposed)

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
    needs = Needs(checks=checks, streams=1 if checks else STREAMS)  # checks have room for one block at a time
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
