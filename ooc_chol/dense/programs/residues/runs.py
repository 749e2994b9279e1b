"""Which rows use which strips, and which of them one product takes."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.dense.programs.residues.strips import Strip
from ooc_chol.schedulers.residues import Job
from ooc_chol.tasks.panels import Panel


def uses_of(jobs: Sequence[Job], panels: Sequence[Panel], chunk: int) -> dict[Strip, list[int]]:
    """The jobs that use each strip of ``chunk`` tile columns, ascending."""
    uses: dict[Strip, list[int]] = {}
    for at, job in enumerate(jobs):
        panel = panels[job.panel]
        columns = range(panel.k0, min(job.row, panel.k0 + panel.width - 1) + 1)
        for number in range(panel.k0 // chunk + 1):
            for row in {job.row, *columns}:
                uses.setdefault(Strip(row, number), []).append(at)
    return uses


def runs(slots: Sequence[int], last_apart: bool) -> list[tuple[int, int]]:
    """First position and length of each run of consecutive slots; with ``last_apart`` the last one, the row's own, alone."""
    runs: list[tuple[int, int]] = []
    end = len(slots) - 1 if last_apart else len(slots)
    for at in range(end):
        if runs and slots[at] == slots[at - 1] + 1:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((at, 1))
    return [*runs, (end, 1)] if last_apart else runs
