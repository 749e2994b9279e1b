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
        return self.i, self.j

    @property
    def reads(self) -> tuple[tuple[int, int], ...]:
        """The final tiles that the task reads besides its output."""
        if self.kind is TaskKind.GEMM:
            return (self.i, self.k), (self.j, self.k)
        if self.kind is TaskKind.SYRK:
            return ((self.i, self.k),)
        if self.kind is TaskKind.TRSM:
            return ((self.j, self.j),)
        return ()

    def __str__(self) -> str:
        where = f"({self.i}, {self.j})"
        return f"{self.kind.name} {where} k={self.k}" if self.kind >= TaskKind.SYRK else f"{self.kind.name} {where}"


def update(i: int, j: int, k: int) -> Task:
    """The task ``A[i, j] -= L[i, k] @ L[j, k].T``: SYRK on the diagonal, GEMM below it."""
    return Task(TaskKind.SYRK if i == j else TaskKind.GEMM, i, j, k)


def finish(i: int, j: int) -> Task:
    """The task that makes tile ``(i, j)`` final: POTRF on the diagonal, TRSM below it."""
    return Task(TaskKind.POTRF if i == j else TaskKind.TRSM, i, j, j)


def flops(task: Task, grid: TileGrid) -> int:
    """Flops counted for ``task``: the leading terms ``m³/3``, ``m n²``, ``m² k`` and ``2 m n k``."""
    m, n, k = grid.size(task.i), grid.size(task.j), grid.size(task.k)
    if task.kind is TaskKind.GEMM:
        return 2 * m * n * k
    if task.kind is TaskKind.SYRK:
        return m * m * k
    if task.kind is TaskKind.TRSM:
        return m * n * n
    return m**3 // 3
