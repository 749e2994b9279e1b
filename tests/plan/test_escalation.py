"""What comes after a failed pivot: in which order, how often, and never more work than promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.precision import LOCAL_WORK, MOST_WORK, Escalation, EscalationState, Remedy, row_tiles
from tests.inside.tasks import TileGrid
from tests.tolerances import gamma

GRID = TileGrid(160, 10)


def remedies(state: EscalationState, columns: list[int]) -> list[Remedy]:
    """Remedies where these columns fail, one after the other, and all before each is complete."""
    return [state.next(column, column)[0] for column in columns]


# order


@pytest.mark.parametrize("again", [1, 2, 0])
def test_a_row_and_then_fp64(again):
    """A failure again at the row that was computed in FP64, behind it, or before it."""
    assert remedies(EscalationState(GRID), [1, again]) == [Remedy.ROW, Remedy.FP64]


def test_a_row_that_is_dear_is_not_tried():
    """Row 12 of 16 and column 12 are 0.18 of the work; all columns up to that one nearly everything."""
    assert EscalationState(GRID).next(12, 12)[0] is Remedy.ROW
    assert EscalationState(GRID).next(12, 0) == (Remedy.FP64, 1.0)


def test_what_a_checkpoint_says_was_tried_counts():
    state = EscalationState(GRID, rows={3})
    assert remedies(state, [3]) == remedies(state, [9]) == [Remedy.FP64]
    assert state.rows == {3}


# work


@given(data=st.data(), nt=st.integers(1, 200))
def test_it_ends_and_the_work_is_what_was_promised(data, nt):
    """Whatever fails, and however little is in the store then: FP64 at the second failure at the latest."""
    state, done = EscalationState(TileGrid(3 * nt, 3)), list[tuple[Remedy, float]]()
    while not done or done[-1][0] is not Remedy.FP64:
        column = data.draw(st.integers(0, nt - 1))
        done.append(state.next(column, data.draw(st.integers(0, column))))
    local = [work for remedy, work in done if remedy is Remedy.ROW]
    assert len(local) == len(done) - 1 <= 1
    assert all(0.0 <= work <= LOCAL_WORK for work in local)
    assert 1 + sum(work for _, work in done) <= MOST_WORK == 2.25


@given(nt=st.integers(1, 40), data=st.data())
def test_a_row_counts_all_that_is_computed_again(nt, data):
    """Its own tiles before the columns that are complete, and of those behind all that the failed run may have computed."""
    column = data.draw(st.integers(0, nt - 1))
    start = data.draw(st.integers(0, column))
    remedy, work = EscalationState(TileGrid(nt, 1)).next(column, start)
    row = sum(2 * k for k in range(start))
    columns = sum(2 * k for k in range(start, column + 1) for _ in range(k, nt))
    share = (row + columns) / (nt**3 / 3)
    if remedy is Remedy.ROW:
        assert share * (1 - gamma(10)) <= work <= LOCAL_WORK
    else:
        assert share > LOCAL_WORK * (1 - gamma(10)) - 3 / nt**2  # a row's tiles are counted as if it had one more


# tiles


def test_a_row_ends_at_its_diagonal():
    assert row_tiles([2]) == [(2, 0), (2, 1), (2, 2)]


# text


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Escalation(Remedy.ROW, 3, 77, 0.25), "minor 77 failed: tile row 3 in FP64 again (25 % of the work at most)"),
        (Escalation(Remedy.FP64, 3, 77, 1.0), "minor 77 failed: everything in FP64 again (100 % of the work at most)"),
        (
            Escalation(Remedy.FP64, None, None, 1.0, bound=2.5e-4),
            "the error was certified to be at most 0.00025 only: everything in FP64 again (100 % of the work at most)",
        ),
        (
            Escalation(Remedy.FP64, None, None, 1.0),
            "numbers left the range of a format: everything in FP64 again (100 % of the work at most)",
        ),
    ],
    ids=["row", "pivot", "bound", "range"],
)
def test_a_step_says_what_failed_and_what_is_computed_again(step, text):
    assert str(step) == text
