"""Panel shapes: they cover the columns, they fit, and their memory needs are what the code says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.dense import POLICIES, FetchCounter, NextUse, ResidencyPlanner
from tests.inside.schedulers import balanced_rows
from tests.inside.tasks import Panel, Task, candidate_panels, own_rows_need, tallest_group, uniform_panels, varying_panels
from tests.plan.problems import fetches, make_schedule

PLANNED = POLICIES["planned"]


def fetched(tasks: list[Task], capacity: int) -> int:
    """Tiles fetched by these tasks alone, by next use."""
    counter = FetchCounter()
    ResidencyPlanner(tasks, capacity, PLANNED, NextUse()).run(counter)
    return counter.fetches


@given(nt=st.integers(1, 40), capacity=st.integers(3, 300), n_devices=st.integers(1, 4))
def test_candidates_cover_every_column_once_and_in_order(nt, capacity, n_devices):
    candidates = candidate_panels(nt, capacity, n_devices)
    assert uniform_panels(nt, 1, 1) in candidates
    assert len(set(candidates)) == len(candidates)
    for panels in candidates:
        assert [k for panel in panels for k in range(panel.k0, panel.k0 + panel.width)] == list(range(nt))
        assert all(panel.height >= 1 for panel in panels)


@given(nt=st.integers(1, 12), capacity=st.integers(3, 80), n_devices=st.integers(1, 3))
def test_candidates_fit_the_memory_they_were_made_for(nt, capacity, n_devices):
    owners = balanced_rows(nt, n_devices)
    for panels in candidate_panels(nt, capacity, n_devices):
        assert fetches(make_schedule(nt, panels, owners), capacity, PLANNED, NextUse()) is not None


@given(nt=st.integers(1, 40), width=st.integers(1, 45), height=st.integers(1, 45))
def test_uniform_panels_differ_only_at_the_end(nt, width, height):
    panels = uniform_panels(nt, width, height)
    assert sum(panel.width for panel in panels) == nt
    assert {panel.height for panel in panels} == {height}
    assert {panel.width for panel in panels[:-1]} <= {width}


@given(k0=st.integers(1, 6), width=st.integers(1, 4), height=st.integers(1, 4))
def test_the_tallest_group_reads_every_operand_once_and_a_taller_one_does_not(k0, width, height):
    nt = k0 + width + height
    tasks = make_schedule(nt, (*uniform_panels(k0, 1, 1), Panel(k0, width, height), Panel(k0 + width, height, 1))).tasks[0]
    group = [task for task in tasks if k0 <= task.j < k0 + width <= task.i]
    once = len({tile for task in group for tile in (task.output, *task.reads)} - {task.output for task in group})
    least = min(capacity for capacity in range(3, 60) if tallest_group(width, capacity) >= height)
    assert fetched(group, least) == width * height + once
    if k0 > 1 and height > 1 and width > 1:  # else accumulators come late, or each operand is needed in one go
        assert fetched(group, least - 1) > width * height + once


@given(k0=st.integers(0, 6), width=st.integers(1, 5))
def test_own_rows_fit_in_what_they_need(k0, width):
    tasks = make_schedule(k0 + width, (*uniform_panels(k0, 1, 1), Panel(k0, width, 1))).tasks[0]
    own = [task for task in tasks if task.j >= k0]
    assert fetched(own, max(own_rows_need(k0, width), 3)) == width * (width + 1) // 2 + width * k0


@pytest.mark.parametrize("nt", [3, 9, 20])
def test_with_room_for_everything_plain_columns_come_first(nt):
    assert candidate_panels(nt, nt * nt)[0] == uniform_panels(nt, 1, 1)


def test_widths_vary_with_the_column_when_memory_is_short():
    panels = varying_panels(40, 100)
    assert len({panel.width for panel in panels}) > 1
    assert any(panel.height > 1 for panel in varying_panels(40, 30))


@pytest.mark.parametrize(("nt", "capacity"), [(25, 37), (16, 10), (32, 27)])
def test_wide_panels_fetch_much_less_than_plain_columns(nt, capacity):
    best = min(fetches(make_schedule(nt, panels), capacity, PLANNED, NextUse()) for panels in candidate_panels(nt, capacity))
    plain = fetches(make_schedule(nt, uniform_panels(nt, 1, 1)), capacity, PLANNED, NextUse())
    assert best < 0.7 * plain
