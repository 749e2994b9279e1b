"""Which tasks run on the finish stream, beside the long sweeps of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ooc_chol.tasks.cholesky import Task
from ooc_chol.tasks.panels import Panel


@final
class FinishingTasks:
    """Divides the tasks of one device, told in program order, between the compute stream and the finish stream.

    The sweep over the columns left of the panel is the compute stream's. Of the tasks inside the panel

    - the panel's own rows depend on each other: POTRF, TRSM and the updates by the column just before are the finish stream's,
      and the updates by earlier columns run beside them (lookahead);
    - each other row goes as a whole to the finish stream, unless that has more flops of this panel already than the compute
      stream: a panel that starts at column 0 has no sweeps, and its rows are shared out.

    The order of the tasks of one tile is that of the schedule, so that the choice never changes the arithmetic.
    """

    def __init__(self, panels: Sequence[Panel]) -> None:
        self._panel_of = [panel for panel in panels for _ in range(panel.width)]
        self._first = panels[0].k0
        self._panel: Panel | None = None
        self._flops = [0, 0]  # of the compute stream and of the finish stream, in this panel
        self._row_is_beside: dict[int, bool] = {}

    def takes(self, task: Task, counted: int) -> bool:
        """Tell whether ``task``, the next one of the program, of so many flops, is the finish stream's."""
        panel = self._panel_of[task.j - self._first]
        if panel != self._panel:
            self._panel, self._flops, self._row_is_beside = panel, [0, 0], {}
        is_taken = task.k >= panel.k0 and self._finishes(task, panel)
        self._flops[is_taken] += counted
        return is_taken

    def _finishes(self, task: Task, panel: Panel) -> bool:
        """The same for a task inside its panel."""
        if task.i < panel.k0 + panel.width:
            return task.k >= task.j - 1
        if task.i not in self._row_is_beside:
            self._row_is_beside[task.i] = self._flops[True] <= self._flops[False]
        return self._row_is_beside[task.i]
