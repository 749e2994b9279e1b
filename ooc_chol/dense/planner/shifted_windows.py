"""The plan of a window made of that of another one, as many tile rows further down: the same steps on other rows."""

from __future__ import annotations

from dataclasses import replace

from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import Problem
from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.interfaces import BlockKey
from ooc_chol.schedulers.ownership import window_rows
from ooc_chol.tasks.operations import STEP, Place, Pool
from ooc_chol.tasks.windows import Window

_ROWS = Pool.ROWS
_new_tuple = tuple.__new__


def common_window(problem: Problem, nb: int) -> Window | None:
    """The window that stands for all whose plans are the same but for their rows; None for a run over all of A.

    These are windows below their columns, of whole tiles of one format: all steps move and compute as much.
    """
    window = problem.window
    if window is None or window.has_diagonal or problem.precision is not None or window.rows.stop * nb > problem.n:
        return window
    return window.below()


def shifted_plan(plan: Plan, problem: Problem) -> Plan:
    """``plan`` for the window of ``problem``, which has the same :func:`common_window`; in a tenth of the time of planning."""
    window, before = problem.window, plan.window
    assert window is not None and before is not None
    if window == before:
        return plan
    first, distance = before.rows.start, window.rows.start - before.rows.start
    programs = tuple(_shifted_program(program, first, distance) for program in plan.programs)
    owners = window_rows(plan.grid.nt, window, len(plan.devices))
    other = replace(plan, programs=programs, owners=owners, window=window, given=problem.given)
    for name in {"timeline", "flops", "half_share"} & vars(plan).keys():
        vars(other)[name] = vars(plan)[name]
    return other


def _shifted_program(program: Program, first: int, distance: int) -> Program:
    """A program on rows so much further down, of those from ``first`` on: the others are rows of the window's columns."""

    def block(key: BlockKey) -> BlockKey:
        name, (row, column), version = key
        if row < first or name == STEP:
            return key
        # Only a diagonal tile of A has a column there, too; a chunk's number is less than that of any column.
        moved: BlockKey = _new_tuple(
            BlockKey, (name, (row + distance, column + distance if column >= first else column), version)
        )
        return moved

    def places(those: tuple[Place, ...]) -> tuple[Place, ...]:
        if all(one.pool is not _ROWS for one in those):
            return those
        return tuple([Place(_ROWS, one.slot + distance) if one.pool is _ROWS and one.slot > first else one for one in those])

    def step(one: Step) -> Step:
        kind, stream, key, operation, reads, writes, *middle, waits, awaits, resident, announced = one
        awaited = tuple(map(block, awaits)) if awaits else awaits
        facts = (kind, stream, block(key), operation, places(reads), places(writes), *middle, waits, awaited, resident, announced)
        moved: Step = _new_tuple(Step, facts)
        return moved

    return replace(program, steps=tuple(map(step, program.steps)))
