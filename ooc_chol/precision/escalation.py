"""What is done when mixed precision is not good enough: compute less and less of the matrix in narrow formats.

Rounding may cost a matrix its positive definiteness. So a failed pivot is first taken for a fault of the formats: its row is
computed again in FP64; when another one of its panel fails, that panel with all its rows; then everything with a tenth of the
threshold, at most twice, and at last all in FP64. Only what fails there is not positive definite. A factor that is complete, but
not certified to be within the threshold, comes to the same end: everything with a smaller one, and at last FP64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import final

from ooc_chol.prints import brief_repr
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid

#: Most restarts with a smaller threshold, and by how much it is smaller.
MOST_RESTARTS = 2
RESTART_FACTOR = 0.1
#: Flops that rows and panels may be computed again for, all together, as a share of the factorization's.
LOCAL_WORK = 1.0
#: Factorizations that a call may cost at most: the first, one in rows and panels, two restarts, and FP64.
MOST_WORK = 1 + LOCAL_WORK + MOST_RESTARTS + 1


class Remedy(Enum):
    """What is computed again where a factor was not good enough: a row, a panel, or everything."""

    ROW = "row"
    PANEL = "panel"
    RESTART = "restart"
    FP64 = "fp64"


@dataclass(frozen=True)
class Escalation:
    """One step of escalation: what failed, and what was computed again because of it.

    Parameters
    ----------
    remedy : Remedy
        What was computed again: a tile row, a panel and its rows, or everything with a smaller threshold or in FP64.
    column : int or None
        Tile column of the failed pivot; None where none failed.
    minor : int or None
        Order of the leading minor that failed.
    threshold : float or None
        Threshold from there on; None for FP64.
    work : float
        Flops computed again, as a share of the factorization's, at most.
    bound : float or None
        What the error of a complete factor was certified to be at most: more than was asked for.
    """

    remedy: Remedy
    column: int | None
    minor: int | None
    threshold: float | None
    work: float
    bound: float | None = None

    __repr__ = brief_repr

    def __str__(self) -> str:
        what = {
            Remedy.ROW: f"tile row {self.column} in FP64",
            Remedy.PANEL: f"the panel of tile column {self.column} and its rows in FP64",
            Remedy.RESTART: f"everything with threshold {self.threshold}",
            Remedy.FP64: "everything in FP64",
        }[self.remedy]
        return f"{self._cause}: {what} again ({100 * self.work:.0f} % of the work at most)"

    @property
    def _cause(self) -> str:
        """What was not good enough, in words."""
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
    """What was tried already; :meth:`next` says what comes now."""

    grid: TileGrid
    restarts: int = 0
    local_work: float = 0.0
    failed: set[int] = field(default_factory=set)  # first columns of panels in which a row was widened
    rows: set[int] = field(default_factory=set)
    panels: set[int] = field(default_factory=set)

    def next(self, column: int, start: int, panel: Panel) -> tuple[Remedy, float]:
        """What to do about a failed pivot, and the share of the work that it costs at most."""
        if panel.k0 not in self.failed and column not in self.rows:
            work = self._rows_share(1, start) + self._columns_share(start, column)
            if self._takes(work):
                self.failed.add(panel.k0)
                self.rows.add(column)
                return Remedy.ROW, work
        if panel.k0 not in self.panels:
            first, own = min(start, panel.k0), range(panel.k0, panel.k0 + panel.width)
            work = self._rows_share(len(own), first) + self._columns_share(first, column)
            if self._takes(work):
                self.panels.add(panel.k0)
                self.rows.update(own)
                return Remedy.PANEL, work
        return self.restart(), 1.0

    def restart(self) -> Remedy:
        """What to do when nothing less than everything will do: a smaller threshold, then FP64."""
        if self.restarts < MOST_RESTARTS:
            self.restarts += 1
            for tried in (self.failed, self.rows, self.panels):
                tried.clear()
            return Remedy.RESTART
        return Remedy.FP64

    def _takes(self, work: float) -> bool:
        """Whether there is room for so much work; it counts then."""
        if self.local_work + work > LOCAL_WORK:
            return False
        self.local_work += work
        return True

    def _rows_share(self, count: int, start: int) -> float:
        """Share of the flops of ``count`` tile rows up to tile column ``start``: 2 k products make tile k of a row."""
        return 3.0 * count * start**2 / self.grid.nt**3

    def _columns_share(self, start: int, column: int) -> float:
        """Most of the flops that a run which failed at ``column`` spent behind tile column ``start``."""
        nt = self.grid.nt
        return 3.0 * sum(2 * k * (nt - k) for k in range(start, column + 1)) / nt**3


def threshold_for(threshold: float, bound: float, asked: float) -> float:
    """The threshold to plan with after one of ``threshold`` left ``bound`` where ``asked`` was asked for."""
    return threshold * min(RESTART_FACTOR, asked / (2.0 * bound))


def row_tiles(rows: Iterable[int]) -> list[tuple[int, int]]:
    """All tiles of some tile rows up to the diagonal."""
    return [(i, j) for i in rows for j in range(i + 1)]


def panel_tiles(grid: TileGrid, panel: Panel) -> list[tuple[int, int]]:
    """All tiles of a panel's own rows and of its columns."""
    own = range(panel.k0, panel.k0 + panel.width)
    below = [(i, j) for j in own for i in range(panel.k0 + panel.width, grid.nt)]
    return row_tiles(own) + below
