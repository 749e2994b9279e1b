"""Remedies where mixed precision is not good enough: FP64, so that no call takes a third factorization.

Rounding may cost a matrix its positive definiteness. So a failed pivot is first taken for a fault of the formats. Where that is
little work its row is computed again in FP64, once; what fails after that, and a factor that is complete but not certified to be
within the threshold, is computed in FP64 anew. Only what fails there is not positive definite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import final

from ooc_chol.display.prints import brief_repr
from ooc_chol.tasks.tiling import TileGrid

#: Flops that a row may be computed again for, as a share of the factorization's.
LOCAL_WORK = 0.25
#: Factorizations that a call may cost at most: the first, a row, and FP64.
MOST_WORK = 1 + LOCAL_WORK + 1


class Remedy(Enum):
    """Part that is computed again where a factor was not good enough: a row, or everything."""

    ROW = "row"
    FP64 = "fp64"


@dataclass(frozen=True)
class Escalation:
    """One step of escalation: what failed, and what was computed again because of it.

    Parameters
    ----------
    remedy : Remedy
        Part that was computed again in FP64: a tile row, or everything.
    column : int or None
        Tile column of the failed pivot; None where none failed.
    minor : int or None
        Order of the leading minor that failed.
    work : float
        Flops computed again, as a share of the factorization's, at most.
    bound : float or None
        Certified bound of a complete factor's error: more than was asked for.
    """

    remedy: Remedy
    column: int | None
    minor: int | None
    work: float
    bound: float | None = None

    __repr__ = brief_repr

    def __str__(self) -> str:
        what = "everything" if self.remedy is Remedy.FP64 else f"tile row {self.column}"
        return f"{self._cause}: {what} in FP64 again ({100 * self.work:.0f} % of the work at most)"

    @property
    def _cause(self) -> str:
        """Cause of the failure, in words."""
        if self.minor is not None:
            return f"minor {self.minor} failed"
        if self.bound is not None:
            return f"the error was certified to be at most {self.bound:.2g} only"
        return "numbers left the range of a format"


@final
class Escalations(tuple[Escalation, ...]):
    """All steps of one call, in their order: a tuple that says on one line how many there are, and printed, each on its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        steps = ", ".join(f"{count} x {remedy}" for remedy, count in Counter(step.remedy.value for step in self).items())
        return f"Escalations({steps})"

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing was computed again"

    def lines(self, most: int = 50) -> list[str]:
        """Each step on a line; where there are more than ``most`` lines, how many are left out."""
        shown = [str(step) for step in self]
        return shown if len(shown) <= most else [*shown[: most - 2], f"... and {len(shown) - most + 1} more, at last:", shown[-1]]


@dataclass
class EscalationState:
    """Attempts so far; :meth:`next` says what comes now."""

    grid: TileGrid
    rows: set[int] = field(default_factory=set)  # that were computed again

    def next(self, column: int, start: int) -> tuple[Remedy, float]:
        """Remedy of a failed pivot, where all before tile column ``start`` is complete, and the share of the work at most."""
        work = self._row_share(start) + self._columns_share(start, column)
        if self.rows or work > LOCAL_WORK:
            return Remedy.FP64, 1.0
        self.rows.add(column)
        return Remedy.ROW, work

    def _row_share(self, start: int) -> float:
        """Share of the flops of a tile row up to tile column ``start``: 2 k products make tile k of a row."""
        return 3.0 * start**2 / self.grid.nt**3

    def _columns_share(self, start: int, column: int) -> float:
        """Most of the flops that a run which failed at ``column`` spent behind tile column ``start``."""
        nt = self.grid.nt
        return 3.0 * sum(2 * k * (nt - k) for k in range(start, column + 1)) / nt**3


def row_tiles(rows: Iterable[int]) -> list[tuple[int, int]]:
    """All tiles of some tile rows up to the diagonal."""
    return [(i, j) for i in rows for j in range(i + 1)]
