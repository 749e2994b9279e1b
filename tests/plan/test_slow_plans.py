"""A plan that takes many times as long as its arithmetic is told beforehand, with a budget that would do."""

from __future__ import annotations

import logging
import re

import pytest

import ooc_chol as oc
from tests.inside.dense import slow_plans
from tests.inside.ground import parse_bytes

TOLD = re.compile(
    r"ooc_chol: tiles of (\d+) in a memory_budget of (.+) make (\d+) steps, about (.+) s; "
    r"tiles of (\d+) in (.+) would take about (.+) s"
)


@pytest.fixture(autouse=True)
def said(caplog):
    """What was said so far; nothing was before."""
    slow_plans._say.cache_clear()
    caplog.set_level(logging.WARNING, logger="ooc_chol")
    return lambda: list(caplog.messages)


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1000, {"memory_budget": 30_000}),
        (3000, {"memory_budget": "200 KiB"}),
        (1000, {"tile_size": 16, "memory_budget": "1 GB"}),
    ],
)
def test_a_plan_of_far_too_small_tiles_is_told_with_a_budget_that_would_do(said, n, options):
    plan = oc.plan(n, devices="host:0", **options)
    (found,) = (TOLD.fullmatch(line) for line in said())
    tile, _, steps, seconds, better_tile, budget, better_seconds = found.groups()
    assert (int(tile), int(steps)) == (plan.grid.nb, len(plan.programs[0].steps))
    assert float(seconds) > 2 * float(better_seconds)
    better = oc.plan(n, devices="host:0", tile_size=int(better_tile), memory_budget=parse_bytes(budget) * 101 // 100)
    assert len(said()) == 1, "who follows the advice hears nothing"
    assert len(better.programs[0].steps) < int(steps) / 5


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (100, {"memory_budget": "1 MB"}),
        (1000, {"memory_budget": "1 MB"}),
        (3000, {"memory_budget": "4 MB"}),
        (20_000, {"memory_budget": "100 MB"}),
        (200, {"tile_size": 16}),
        (5_000, {"devices": "cuda:0", "tile_size": 256, "memory_budget": "100 MB", "fp64": "native"}),
    ],
)
def test_what_is_worth_its_time_or_short_is_not(said, n, options):
    oc.plan(n, **{"devices": "host:0", **options})
    assert said() == []


def test_it_is_told_once(said):
    for _ in range(3):
        oc.plan(1000, devices="host:0", memory_budget=30_000)
    assert len(said()) == 1
