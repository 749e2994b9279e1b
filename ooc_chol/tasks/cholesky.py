"""The four tile tasks of a Cholesky factorization, their operands and their flops."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ooc_chol.tasks.tiling import TileGrid


class TaskKind(IntEnum):
    """LAPACK's names of the tile kernels."""

    POTRF = 0
    TRSM = 1
    SYRK = 2
    GEMM = 3


# Names of their own: to look up a member of an enumeration takes a tenth of a microsecond, and planning asks millions of times.
_POTRF, _TRSM, _SYRK, _GEMM = TaskKind
_new_tuple = tuple.__new__


class Task(NamedTuple):
    """One tile kernel call on output tile ``(i, j)``.

    ``POTRF``: ``A[i, i] -> L[i, i]``. ``TRSM``: ``L[i, j] = A[i, j] @ inv(L[j, j]).T``. ``SYRK`` (``i == j``) and ``GEMM``:
    ``A[i, j] -= L[i, k] @ L[j, k].T``. For POTRF and TRSM ``k == j``.
    """

    kind: TaskKind
    i: int
    j: int
    k: int

    @property
    def output(self) -> tuple[int, int]:
        """The tile that the task changes."""
        _, i, j, _ = self
        return i, j

    @property
    def reads(self) -> tuple[tuple[int, int], ...]:
        """The final tiles that the task reads besides its output."""
        kind, i, j, k = self
        if kind is _GEMM:
            return (i, k), (j, k)
        if kind is _SYRK:
            return ((i, k),)
        return ((j, j),) if kind is _TRSM else ()

    def __str__(self) -> str:
        where = f"({self.i}, {self.j})"
        return f"{self.kind.name} {where} k={self.k}" if self.kind >= TaskKind.SYRK else f"{self.kind.name} {where}"


def update(i: int, j: int, k: int) -> Task:
    """The task ``A[i, j] -= L[i, k] @ L[j, k].T``: SYRK on the diagonal, GEMM below it."""
    task: Task = _new_tuple(Task, (_SYRK if i == j else _GEMM, i, j, k))  # in half the time that its class takes
    return task


def finish(i: int, j: int) -> Task:
    """The task that makes tile ``(i, j)`` final: POTRF on the diagonal, TRSM below it."""
    return Task(_POTRF if i == j else _TRSM, i, j, j)


def flops(task: Task, grid: TileGrid) -> int:
    """Flops counted for ``task``: the leading terms ``m³/3``, ``m n²``, ``m² k`` and ``2 m n k``."""
    kind, i, j, k = task
    m = grid.size(i)
    if kind is _GEMM:
        return 2 * m * grid.size(j) * grid.size(k)
    if kind is _SYRK:
        return m * m * grid.size(k)
    if kind is _TRSM:
        return m * grid.size(j) ** 2
    return m**3 // 3


def tile_flops(i: int, j: int, grid: TileGrid) -> int:
    """Flops counted for all tasks of tile ``(i, j)``: its updates from the columns before, and the task that makes it final."""
    updates = (1 if i == j else 2) * grid.size(i) * grid.size(j) * grid.start(j)
    return updates + flops(finish(i, j), grid)
