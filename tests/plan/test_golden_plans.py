"""Plans are what they were: a change of one is a decision, not an accident."""

from __future__ import annotations

import random
from functools import cache

import pytest

from ooc_chol import Plan
from tests.inside.dense import Program
from tests.inside.tasks import Convert
from tests.plan.golden import FILE, cases, digest
from tests.plan.replay import Replay

pytestmark = pytest.mark.plan

GOLDEN = FILE.read()
CASES = dict(cases())
RESIDUES = pytest.mark.parametrize("name", [name for name in CASES if "residue" in name])


@cache
def planned(name: str) -> Plan:
    """The plan of a problem, made once for all tests."""
    return CASES[name].plan()


def test_every_digest_has_its_plan():
    assert set(GOLDEN) == set(CASES) and len(set(GOLDEN.values())) == len(GOLDEN)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was(name):
    different = FILE.differences({name: digest(planned(name))}, {name: GOLDEN[name]})
    assert not different, different


@RESIDUES
def test_waits_are_enough_for_streams_of_any_speed(name):
    plan = planned(name)
    chance = random.Random(0)
    Replay(plan.programs, plan.grid).run([10 ** chance.uniform(-6, 0) for _ in range(30)], 0)


def behind(program: Program) -> list[dict[int, int]]:
    """For each step the latest step of each stream of its device that is complete before it starts, by waits alone."""
    clocks: list[dict[int, int]] = []
    last: dict[int, int] = {}
    for position, step in enumerate(program.steps):
        clock: dict[int, int] = {}
        for earlier in (*step.waits, *([last[step.stream]] if step.stream in last else [])):
            before = {**clocks[earlier], program.steps[earlier].stream: earlier}
            clock = {stream: max(before.get(stream, -1), clock.get(stream, -1)) for stream in before.keys() | clock.keys()}
        clocks.append(clock)
        last[step.stream] = position
    return clocks


@RESIDUES
def test_squares_of_a_row_are_added_one_tile_after_the_other(name):
    for program in planned(name).programs:
        clocks, last = behind(program), dict[int, int]()
        for position, step in enumerate(program.steps):
            if isinstance(step.operation, Convert) and step.operation.is_first:
                row = step.tile[0]
                if row in last:
                    assert clocks[position].get(program.steps[last[row]].stream, -1) >= last[row], step.label
                last[row] = position
