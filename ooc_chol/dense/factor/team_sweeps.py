"""Triangular solves on several devices: each reads its part of L over its own link, and solutions pass through host memory.

``L y = x`` deals tile rows, ``L.T y = x`` tile columns: block k of the solution belongs to device ``k % g``, or to the one on
which tile row k of L lies. It reads only its own row or column. Of what it needs from others the newest block comes last, so that
all devices stay busy; the order of subtractions, and so every bit, is that of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar, final

from numpy.typing import NDArray

from ooc_chol.dense.factor.sweeps import AbstractTeamSolver, AbstractTeamSweeps, Left, Needs
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractEvent, Tile
from ooc_chol.runtime.passes import Pass, on_each_device
from ooc_chol.tasks.tiling import TileGrid, TileIndex

_Result = TypeVar("_Result")


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
        final: dict[int, AbstractEvent] = {}
        for k in order:
            final[k] = parts[self._owners[k]].solve_block(k, final, transposed=transposed, left=left)
        for member in self._members:
            with member.current():
                member.finish()


def _owner(store: AbstractStore, k: int, members: Sequence[AbstractTeamSweeps]) -> int:
    """Which device block k of a solution belongs to: the one where tile row k lies, or each in turn."""
    here = (number for number, member in enumerate(members) if store.tile_on(member.device, (k, k)) is not None)
    return next(here, k % len(members))


class _Part:
    """Right-hand sides on one device: its own blocks, and those of others that have come."""

    def __init__(self, member: AbstractTeamSweeps, x: NDArray[Any]) -> None:
        self._member, self._x = member, x
        self._there: dict[int, Tile] = {}
        with member.current():
            self._tile = member.array(*x.shape)

    def solve_block(self, k: int, final: dict[int, AbstractEvent], *, transposed: bool, left: Left | None) -> AbstractEvent:
        """Enqueue all that makes block ``k`` final, in host memory too; returns the event behind that."""
        member, nt = self._member, self._member.grid.nt
        order = [TileIndex(i, k) for i in range(nt - 1, k - 1, -1)] if transposed else [TileIndex(k, j) for j in range(k + 1)]
        with member.current():
            x_k = self._bring(k)
            with closing(member.tiles(order, self._x.shape[1])) as tiles:
                for (i, j), tile in tiles:
                    other = i if transposed else j
                    if other == k:  # x[k] = inv(L[k, k]) @ x[k]
                        member.solve_block(tile, x_k, k, transposed=transposed, left=left)
                        continue
                    if (x_other := self._there.get(other)) is None:
                        member.wait(final[other])
                        x_other = self._bring(other)
                    # x[k] -= L[k, j] @ x[j], or x[k] -= L[i, k].T @ x[i]
                    member.subtract(x_k, tile, x_other, transposed=transposed)
            member.take_back(x_k, member.rows(self._x, k))
            return member.record()

    def _bring(self, k: int) -> Tile:
        """Copy a block of the host array to the device."""
        part = self._there[k] = self._member.rows(self._tile, k)
        self._member.bring_rows(self._member.rows(self._x, k), part)
        return part


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
    needs = Needs(checks=checks)
    with ExitStack() as stack:
        stack.enter_context(solvers[0].reaching(store, locked))
        members = [
            stack.enter_context(
                each.without_locking().opened(store, run, needs, ranks=kept_first(store.grid, number, len(solvers)))
            )
            for number, each in enumerate(solvers)
        ]
        yield TeamSweeps(members, store)


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
