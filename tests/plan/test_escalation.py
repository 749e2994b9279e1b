"""What comes after a failed pivot: in which order, how often, and never more work than promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.precision import (
    LOCAL_WORK,
    MOST_RESTARTS,
    MOST_WORK,
    Escalation,
    EscalationState,
    Remedy,
    panel_tiles,
    row_tiles,
)
from tests.inside.tasks import Panel, TileGrid, uniform_panels
from tests.plan.problems import panel_shapes
from tests.tolerances import gamma

GRID = TileGrid(160, 10)
PANELS = uniform_panels(16, 4, 1)


def state_of(grid: TileGrid = GRID, *, local_work: float = 0.0) -> EscalationState:
    return EscalationState(grid, local_work=local_work)


def panel_at(column: int, panels: tuple[Panel, ...] = PANELS) -> Panel:
    return next(panel for panel in panels if panel.k0 <= column < panel.k0 + panel.width)


def remedies(state: EscalationState, columns: list[int]) -> list[Remedy]:
    return [state.next(column, column, panel_at(column))[0] for column in columns]


# order


def test_a_row_then_its_panel_then_everything():
    assert remedies(state_of(), [1, 2, 3]) == [Remedy.ROW, Remedy.PANEL, Remedy.RESTART]


def test_a_row_that_fails_again_takes_its_panel():
    assert remedies(state_of(), [1, 1]) == [Remedy.ROW, Remedy.PANEL]


def test_each_panel_has_a_row_of_its_own():
    assert remedies(state_of(), [0, 4]) == [Remedy.ROW, Remedy.ROW]


def test_a_restart_begins_anew():
    state = state_of()
    assert remedies(state, [0, 1, 2]) == [Remedy.ROW, Remedy.PANEL, Remedy.RESTART]
    assert state.next(0, 0, panel_at(0))[0] is Remedy.ROW


def test_two_restarts_and_then_fp64():
    assert remedies(state_of(local_work=LOCAL_WORK), [3, 5, 7]) == [Remedy.RESTART, Remedy.RESTART, Remedy.FP64]


def test_rows_that_have_used_up_their_work_leave_restarts():
    state = state_of(local_work=0.99)
    assert state.next(8, 4, panel_at(8))[0] is Remedy.RESTART


# work


@given(data=st.data(), nt=st.integers(1, 14))
def test_it_ends_and_the_work_is_what_was_promised(data, nt):
    """Whatever fails, and however little is in the store then."""
    grid = TileGrid(3 * nt, 3)
    state, done, shares = state_of(grid), [], []
    panels = data.draw(panel_shapes(nt))
    while Remedy.FP64 not in done:
        column = data.draw(st.integers(0, nt - 1))
        remedy, work = state.next(column, data.draw(st.integers(0, column)), panel_at(column, panels))
        assert work >= 0.0
        done.append(remedy)
        shares.append(work)
        if remedy is Remedy.RESTART:
            panels = data.draw(panel_shapes(nt))
    assert done.count(Remedy.RESTART) == MOST_RESTARTS
    assert done.count(Remedy.FP64) == 1
    assert len(done) <= (MOST_RESTARTS + 1) * 2 * nt + MOST_RESTARTS + 1
    assert sum(shares) <= MOST_WORK - 1
    local = sum(work for remedy, work in zip(done, shares, strict=True) if remedy in (Remedy.ROW, Remedy.PANEL))
    assert local <= LOCAL_WORK


@given(nt=st.integers(1, 20), data=st.data())
def test_a_row_counts_all_that_is_computed_again(nt, data):
    """Its own tiles before the columns that are complete, and of those behind all that the failed run may have computed."""
    column = data.draw(st.integers(0, nt - 1))
    start = data.draw(st.integers(0, column))
    remedy, work = state_of(TileGrid(nt, 1)).next(column, start, Panel(column, 1, 1))
    row = sum(2 * k for k in range(start))
    columns = sum(2 * k for k in range(start, column + 1) for _ in range(k, nt))
    share = (row + columns) / (nt**3 / 3)
    assert work >= min(1.0, share * (1 - gamma(10)))
    assert remedy is Remedy.ROW or share > LOCAL_WORK - 3 / nt


# tiles


@given(nt=st.integers(1, 12), data=st.data())
def test_a_panel_is_its_rows_and_its_columns(nt, data):
    grid = TileGrid(2 * nt, 2)
    panel = data.draw(st.sampled_from(data.draw(panel_shapes(nt))))
    own = range(panel.k0, panel.k0 + panel.width)
    tiles = panel_tiles(grid, panel)
    assert len(tiles) == len(set(tiles))
    assert set(tiles) == {(i, j) for i, j in grid.tiles() if i in own or j in own}
    assert set(row_tiles(own)) <= set(tiles)


def test_a_row_ends_at_its_diagonal():
    assert row_tiles([2]) == [(2, 0), (2, 1), (2, 2)]


# text


@pytest.mark.parametrize(
    ("remedy", "threshold", "text"),
    [
        (Remedy.ROW, 1e-3, "minor 77 failed: tile row 3 in FP64 again (25 % of the work at most)"),
        (Remedy.PANEL, 1e-3, "minor 77 failed: the panel of tile column 3 and its rows in FP64 again (25 % of the work at most)"),
        (Remedy.RESTART, 1e-4, "minor 77 failed: everything with threshold 0.0001 again (25 % of the work at most)"),
        (Remedy.FP64, None, "minor 77 failed: everything in FP64 again (25 % of the work at most)"),
    ],
)
def test_a_step_says_what_failed_and_what_is_computed_again(remedy, threshold, text):
    assert str(Escalation(remedy, 3, 77, threshold, 0.25)) == text
