"""All front doors on a GPU, and on two: planned, executed and explained as on the host."""

from __future__ import annotations

import json

import pytest

import ooc_chol.toolbox as tb
from tests.conformance import same_bits
from tests.conformance.table import DOORS
from tests.inside.calls import COMMON

pytestmark = pytest.mark.cuda

#: An operator that the caller wrote multiplies on the host.
ON_GPUS = [door for door in DOORS if str(door) != "eigsh an operator"]
doors = pytest.mark.parametrize("door", ON_GPUS, ids=str)


@pytest.fixture
def run():
    """Run a door on a GPU, and close what it returns at the end of the test."""
    opened = []

    def call(door, *arguments, **options):
        result = door.run(*arguments, **{"devices": "cuda:0", **options})
        opened.append((door, result))
        return result

    yield call
    for door, result in reversed(opened):
        door.closes(result)


def planned(door):
    """Options of a run in several steps, in memory as a GPU has it: workspaces of its libraries alone take 64 MiB."""
    return _without_budget(door.planned)


def _without_budget(options):
    kept = {name: value for name, value in options.items() if name not in ("devices", "memory_budget")}
    return {name: _without_budget(value) if name == "settings" else value for name, value in kept.items()}


@doors
def test_a_report_tells_the_common_facts(door, run):
    report = door.report(run(door, **planned(door)))
    assert isinstance(report, tb.AbstractReport) and report.call == door.name
    assert report.seconds.total > 0 and "run" in report.seconds.parts
    assert 0 < report.peak_bytes <= report.plan.budget_bytes and report.devices
    told = report.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told and str(report) and repr(report)


@doors
def test_the_call_follows_its_plan(door, run):
    plan = door.planning(devices="cuda:0", **planned(door))
    made = run(door, **planned(door))
    again = run(door, plan=plan, **{name: value for name, value in planned(door).items() if name not in COMMON})
    assert same_bits(door.numbers(again), door.numbers(made))
    assert door.report(again).plan.devices == plan.devices == door.report(made).plan.devices


@doors
def test_a_trace_changes_nothing(door, run):
    without, watched = run(door, **planned(door)), run(door, trace=True, **planned(door))
    assert door.trace(without) is None and door.trace(watched).records
    assert same_bits(door.numbers(without), door.numbers(watched))
    assert door.report(without).bytes.executed == door.report(watched).bytes.executed


@pytest.mark.parametrize("door", [door for door in ON_GPUS if door.has("progress")], ids=str)
def test_progress_counts_and_changes_nothing(door, run):
    told = []
    quiet = run(door, **planned(door))
    watched = run(door, progress=lambda *each: told.append(each), **planned(door))
    assert told and all(0 <= done <= total for done, total, _ in told)
    assert same_bits(door.numbers(quiet), door.numbers(watched))


@pytest.mark.cuda(2)
@doors
def test_two_gpus_give_the_bits_of_one_where_the_key_is_the_same(door, run):
    one, two = run(door, **planned(door)), run(door, **{**planned(door), "devices": "cuda:0,cuda:1"})
    if door.report(one).key == door.report(two).key:
        assert same_bits(door.numbers(one), door.numbers(two))
    else:
        assert [each.shape for each in door.numbers(one)] == [each.shape for each in door.numbers(two)]
