"""Exposed copies counted from the times of steps: the nanosecond that records give, at a fraction of their cost."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_chol import Plan
from ooc_chol.tracing import exposed_copy_seconds
from tests.builders import planned
from tests.inside.dense import executed_records, exposed_copy_ns
from tests.plan.rates import H200_RATES, UNIT_RATES

#: Seconds of a processor that a step may take at most: with its record it took ten microseconds.
MOST_SECONDS_A_STEP = 3e-6


SMALL = {"n": 20, "rates": UNIT_RATES, "tile_size": 4, "memory_budget": "16 KiB", "devices": "host:0"}
CASES = {
    **{policy: {**SMALL, "policy": policy} for policy in ("planned", "v1", "async", "sync")},
    "several": {**SMALL, "devices": ["host:0", "host:1", "host:2"]},
    "residues": {
        "n": 256, "rates": H200_RATES, "tile_size": 16, "memory_budget": "160 MiB", "devices": ["cuda:0", "cuda:1"],
        "fp64": "residue", "moduli": 4,
    },
}  # fmt: skip


@cache
def plan_of(case: str) -> Plan:
    """A small plan: of one host device, of several that wait for each other, through residues with steps that are awaited."""
    return planned(**CASES[case])


def by_records(plan: Plan, times: list[list[tuple[int, int]]]) -> int:
    """What the records of a run say."""
    return round(exposed_copy_seconds(executed_records(plan, times)) * 1e9)


def predicted_times(plan: Plan) -> list[list[tuple[int, int]]]:
    """When the simulator begins and ends each step."""
    both = zip(plan.timeline.starts, plan.timeline.ends, strict=True)
    return [[(round(start * 1e9), round(end * 1e9)) for start, end in zip(*of, strict=True)] for of in both]


@pytest.mark.parametrize("case", CASES)
def test_a_predicted_run_has_the_exposed_copies_of_its_records(case):
    plan = plan_of(case)
    exposed = exposed_copy_ns(plan.programs, times := predicted_times(plan))
    assert exposed == by_records(plan, times) and (exposed > 0 or case not in ("planned", "v1", "async"))


def test_steps_of_other_devices_may_be_awaited():
    plan = plan_of("residues")
    assert any(step.announced for program in plan.programs for step in program.steps)
    assert len(plan.programs) == 2


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(list(CASES)), seed=st.integers(0, 2**32 - 1), coarse=st.booleans())
def test_any_times_have_the_exposed_copies_of_their_records(case, seed, coarse):
    plan, rng = plan_of(case), np.random.default_rng(seed)
    times = []
    for program in plan.programs:  # streams run their steps in order, with gaps; a coarse clock lets some overlap
        free = dict.fromkeys(program.streams, int(rng.integers(0, 50)))
        spans = []
        for step in program.steps:
            start = free[step.stream] + int(rng.integers(-2 if coarse else 0, 6))
            free[step.stream] = end = max(start, start + int(rng.integers(0, 20)))
            spans.append((start, end))
        times.append(spans)
    assert exposed_copy_ns(plan.programs, times) == by_records(plan, times)


def test_a_run_without_copies_has_none():
    plan = plan_of("planned")
    ends = np.cumsum([1] * (1 + len(plan.programs[0].steps))).tolist()
    assert exposed_copy_ns((), ()) == 0
    one_by_one = [list(pairwise(ends))]
    assert exposed_copy_ns(plan.programs, one_by_one) == by_records(plan, one_by_one)


def test_a_step_takes_microseconds():
    plan = plan_of("planned")
    copies = -(-50_000 // len(plan.programs[0].steps))
    program = replace(plan.programs[0], steps=plan.programs[0].steps * copies)
    spans = predicted_times(plan)[0]
    later = [(start + at * spans[-1][1], end + at * spans[-1][1]) for at in range(copies) for start, end in spans]

    def seconds():
        began = time.process_time()
        exposed_copy_ns([program], [later])
        return time.process_time() - began

    assert min(seconds() for _ in range(3)) < MOST_SECONDS_A_STEP * len(program.steps)
