"""Which tasks run beside the sweeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.schedulers import FinishingTasks
from tests.inside.tasks import Panel, Task, TaskKind, flops, uniform_panels
from tests.plan.problems import make_schedule, panel_shapes


def divided(nt: int, panels: tuple[Panel, ...]) -> list[tuple[Task, bool]]:
    """The tasks of one device, and whether each is the finish stream's."""
    schedule = make_schedule(nt, panels)
    finishing = FinishingTasks(panels)
    return [(task, finishing.takes(task, flops(task, schedule.grid))) for task in schedule.tasks[0]]


def panel_of(panels: tuple[Panel, ...], column: int) -> Panel:
    return next(panel for panel in panels if panel.k0 <= column < panel.k0 + panel.width)


@given(data=st.data(), nt=st.integers(1, 12))
def test_sweeps_are_never_the_finish_streams(data, nt):
    panels = data.draw(panel_shapes(nt))
    for task, is_taken in divided(nt, panels):
        assert not (is_taken and task.k < panel_of(panels, task.j).k0)


@given(data=st.data(), nt=st.integers(1, 12))
def test_own_rows_are_finished_beside_the_updates_by_earlier_columns(data, nt):
    panels = data.draw(panel_shapes(nt))
    for task, is_taken in divided(nt, panels):
        panel = panel_of(panels, task.j)
        if task.i < panel.k0 + panel.width and task.k >= panel.k0:
            assert is_taken == (task.k >= task.j - 1)


@given(data=st.data(), nt=st.integers(1, 12))
def test_another_row_is_finished_on_one_stream(data, nt):
    panels = data.draw(panel_shapes(nt))
    streams: dict[tuple[Panel, int], set[bool]] = {}
    for task, is_taken in divided(nt, panels):
        panel = panel_of(panels, task.j)
        if task.i >= panel.k0 + panel.width and task.k >= panel.k0:
            streams.setdefault((panel, task.i), set()).add(is_taken)
    assert all(len(found) == 1 for found in streams.values())


def test_behind_long_sweeps_all_rows_are_finished_beside_them():
    panels = (Panel(0, 6, 1), Panel(6, 2, 1), Panel(8, 2, 1), Panel(10, 2, 1))
    assert all(is_taken for task, is_taken in divided(12, panels) if task.k >= panel_of(panels, task.j).k0 >= 6)


@pytest.mark.parametrize("width", [4, 8, 12])
def test_the_rows_of_a_panel_without_sweeps_are_shared_out(width):
    nt = 40
    panels = uniform_panels(nt, width, 1)
    grid = make_schedule(nt, panels).grid
    load = [0, 0]
    for task, is_taken in divided(nt, panels):
        if task.j < width:
            load[is_taken] += flops(task, grid)
    a_row = width * width * grid.nb**3
    assert abs(load[0] - load[1]) <= a_row


def test_columns_one_by_one_put_what_makes_tiles_final_beside_the_updates():
    for task, is_taken in divided(9, uniform_panels(9, 1, 1)):
        if task.j:
            assert is_taken == (task.kind in (TaskKind.POTRF, TaskKind.TRSM))
