"""All front doors: one set of names, one way to plan, execute and explain."""

from __future__ import annotations

import inspect
import json
import time
from itertools import pairwise

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.conformance import same_bits
from tests.conformance.table import DOORS
from tests.inside.calls import COMMON

pytestmark = pytest.mark.host

doors = pytest.mark.parametrize("door", DOORS, ids=str)


def doors_with(*options):
    """The doors that have all these options."""
    return pytest.mark.parametrize("door", [door for door in DOORS if all(map(door.has, options))], ids=str)


def parameters(function):
    """The names of parameters without those that only refuse."""
    found = inspect.signature(function).parameters.values()
    return {each.name: each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}


@pytest.fixture
def run():
    """Run a door, and close what it returns at the end of the test."""
    opened = []

    def call(door, *arguments, **options):
        result = door.run(*arguments, **options)
        opened.append((door, result))
        return result

    yield call
    for door, result in reversed(opened):
        door.closes(result)


# names


@doors
def test_common_options_have_one_name_and_one_order(door):
    names = list(parameters(door.call))
    assert names[0] == door.first
    mine = [name for name in names if name in COMMON]
    assert mine == [name for name in COMMON if name not in door.lacks], "in the table's order, and all but those that it lacks"
    assert all(parameters(door.call)[name].kind is inspect.Parameter.KEYWORD_ONLY for name in mine)
    assert set(door.lacks) <= set(COMMON) and all(door.lacks.values()), "a reason for each"
    after = names[names.index(mine[-1]) + 1 :]
    assert set(after) <= {"client"}, "options of the system come before the common ones"


@doors
def test_the_docstring_has_every_parameter_in_order(door):
    text = inspect.getdoc(door.call)
    listed = text.split("Parameters\n----------\n")[1].split("\n\nReturns\n")[0]
    headings = [line.split(" : ")[0] for line in listed.splitlines() if line and not line.startswith(" ")]
    named = [name.strip("*") for heading in headings for name in heading.split(", ")]
    assert [name for name in named if name in parameters(door.call)] == list(parameters(door.call))
    flat = " ".join(listed.split())
    for name in COMMON.keys() - door.lacks.keys():
        assert " ".join(COMMON[name].text.split()) in flat, f"{name} has the text of the table"


@doors
def test_the_planning_function_has_the_signature_of_the_call(door):
    called, planning = parameters(door.call), parameters(door.plan)
    assert list(planning) == [name for name in called if name != "plan"]
    for name, each in planning.items():
        assert (each.kind, each.default) == (called[name].kind, called[name].default), name


# values that make no sense

WRONG = {
    "store": [3.5],
    "packed": [3.5, object()],
    "replace": ["yes", 2, None],
    "checkpoint": [3.5],
    "devices": [2.5, True, "nowhere:0", []],
    "memory_budget": [0, -1, "much", "16 parsecs", True, [1]],
    "host_budget": [0, -1, "much", True, [1]],
    "progress": ["bar", 1],
    "trace": ["yes", 2, None],
    "plan": ["a plan", 3, object()],
}


@pytest.mark.parametrize(
    ("door", "option", "value"),
    [(door, option, value) for door in DOORS for option, values in WRONG.items() if door.has(option) for value in values],
    ids=lambda each: str(each)[:20],
)
def test_a_wrong_value_is_refused_by_its_name(door, option, value):
    with pytest.raises((TypeError, ValueError), match=option.removesuffix("s")):
        door.closes(door.run(**{option: value}))


@doors
def test_an_unknown_option_is_refused(door):
    with pytest.raises(TypeError):
        door.closes(door.run(colour="blue"))


# plans


@doors
def test_a_plan_tells_the_common_facts(door):
    plan = door.planning(**door.planned)
    assert isinstance(plan, tb.AbstractPlan)
    assert (plan.call, plan.unit, plan.devices) == (door.name, door.unit, ("host:0",))
    assert 0 < plan.peak_bytes <= plan.budget_bytes
    assert plan.host_bytes >= 0 and all(nbytes >= 0 for nbytes in plan.bytes.values())
    assert plan.seconds is None or plan.seconds > 0
    told = plan.to_dict()
    common = ["version", "call", "unit", "devices", "budget_bytes", "peak_bytes", "host_bytes", "bytes", "seconds"]
    assert list(told)[: len(common)] == common
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@doors
def test_a_plan_and_a_report_are_pages(door, run):
    result = run(door, **door.planned)
    for record in (door.planning(**door.planned), door.report(result)):
        lines = str(record).splitlines()
        assert len(lines) > 2 and not lines[0].startswith(" ")
        assert len(repr(record)) < 200 and repr(record).startswith(f"{type(record).__name__}(")
        html = record._repr_html_()
        assert html is None or lines[0].split(":")[0].split(",")[0][:20] in html


@doors
def test_planning_computes_nothing_and_the_call_follows_the_plan(door, run):
    plan = door.planning(**door.planned)
    made = run(door, **door.planned)
    assert door.report(made).plan.to_dict() == plan.to_dict()
    again = run(door, plan=plan, **{name: value for name, value in door.planned.items() if name not in COMMON})
    assert same_bits(door.numbers(again), door.numbers(made))
    assert door.report(again).plan.to_dict() == plan.to_dict()


@doors
def test_the_plan_of_another_problem_is_refused(door):
    plan = door.planning(*door.others(), **door.planned)
    with pytest.raises(ValueError, match="plan"):
        door.closes(door.run(plan=plan))


@doors
def test_the_plan_of_another_call_is_refused(door):
    other = next(each for each in DOORS if each.name != door.name)
    with pytest.raises(TypeError, match="plan"):
        door.closes(door.run(plan=other.planning(**other.planned)))


# reports


@doors
def test_a_report_tells_the_common_facts(door, run):
    began = time.perf_counter()
    result = run(door, **door.planned)
    took = time.perf_counter() - began
    report = door.report(result)
    assert isinstance(report, tb.AbstractReport)
    assert (report.call, report.devices, report.resumed) == (door.name, ("host:0",), 0)
    seconds = report.seconds
    assert 0 < seconds.total <= took
    assert all(0 <= part <= took for part in seconds.parts.values()) and "run" in seconds.parts
    assert seconds.predicted is None or seconds.predicted > 0
    assert 0 < report.peak_bytes <= report.plan.budget_bytes
    assert set(report.bytes.executed) <= set(report.bytes.planned) | {name for name, n in report.bytes.executed.items() if not n}
    assert json.loads(json.dumps(dict(report.key))) == dict(report.key) and report.key
    told = report.to_dict()
    common = ["version", "call", "devices", "seconds", "bytes", "peak_bytes", "resumed", "key"]
    assert list(told)[: len(common)] == common
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@doors
def test_one_key_is_one_result_and_another_problem_has_another(door, run):
    one, other = run(door), run(door)
    assert door.report(one).key == door.report(other).key
    assert same_bits(door.numbers(one), door.numbers(other))
    assert door.report(run(door, *door.others())).key != door.report(one).key


# looking changes nothing


@doors_with("trace")
def test_a_trace_is_on_the_result_and_changes_nothing(door, run):
    without, watched = run(door, **door.planned), run(door, trace=True, **door.planned)
    assert door.trace(without) is None
    trace = door.trace(watched)
    assert isinstance(trace, oc.Trace) and trace.records
    assert same_bits(door.numbers(without), door.numbers(watched))
    one, other = door.report(without), door.report(watched)
    assert one.plan.to_dict() == other.plan.to_dict() and one.key == other.key
    assert one.bytes.executed == other.bytes.executed and one.peak_bytes == other.peak_bytes


@doors_with("progress")
def test_progress_counts_up_to_its_total_and_changes_nothing(door, run):
    told = []
    quiet, watched = run(door, **door.planned), run(door, progress=lambda *each: told.append(each), **door.planned)
    assert told and same_bits(door.numbers(quiet), door.numbers(watched))
    for done, total, seconds in told:
        assert isinstance(done, int) and isinstance(total, int) and 0 <= done <= total and seconds >= 0
    assert all(one[0] <= other[0] and one[2] <= other[2] for one, other in pairwise(told))


@doors_with("progress")
def test_progress_that_returns_true_ends_the_call(door):
    with pytest.raises(oc.errors.StoppedError) as caught:
        door.closes(door.run(progress=lambda *each: True, **door.planned))
    assert caught.value.unit == door.counts and caught.value.call == door.name and caught.value.done <= caught.value.total


@doors_with("progress")
def test_an_error_of_progress_is_the_callers(door):
    with pytest.raises(ZeroDivisionError):
        door.closes(door.run(progress=lambda *each: 1 // 0, **door.planned))


# memory


@doors_with("memory_budget")
def test_a_budget_that_is_too_small_says_what_would_do(door):
    with pytest.raises(oc.BudgetError, match="memory_budget") as caught:
        door.closes(door.run(memory_budget=64))
    needed = caught.value.needed_bytes
    assert needed > 64
    door.closes(door.run(memory_budget=needed))


@doors_with("memory_budget")
def test_bits_do_not_depend_on_the_budget(door, run):
    with pytest.raises(oc.BudgetError) as caught:
        door.closes(door.run(memory_budget=64))
    fixed = door.planned if "tile_size" in door.planned else {}
    small, ample = (run(door, **{**fixed, "memory_budget": nbytes}) for nbytes in (2 * caught.value.needed_bytes, "1 GiB"))
    assert same_bits(door.numbers(small), door.numbers(ample)) or door.report(small).key != door.report(ample).key


@doors_with("host_budget")
def test_host_memory_that_is_too_small_says_what_would_do(door):
    with pytest.raises(oc.BudgetError, match="host_budget") as caught:
        door.closes(door.run(host_budget=1, **door.planned))
    door.closes(door.run(host_budget=caught.value.needed_bytes, **door.planned))


# checkpoints


def stopped_at(door, path, share, **options):
    """Run a call that ends when it has done this share of its work, at the earliest at its second report."""
    seen = []

    def progress(done, total, seconds):
        seen.append(done)
        return len(seen) > 1 and done >= share * total

    with pytest.raises(oc.errors.StoppedError):
        door.closes(door.run(checkpoint=path, progress=progress, **options))


@doors_with("checkpoint", "progress")
def test_a_call_that_was_stopped_goes_on_to_the_same_bits(door, run, tmp_path):
    whole = door.numbers(run(door, **door.planned))
    for attempt in range(20):  # on a busy machine a run may be stopped before the first tile is in the file
        path = tmp_path / f"run-{attempt}.checkpoint"
        stopped_at(door, path, 0.0, **door.planned)
        again = run(door, checkpoint=path, **door.planned)
        assert same_bits(door.numbers(again), whole)
        if door.report(again).resumed > 0:
            return
    raise AssertionError("no call went on from what the one before had done")


@doors_with("checkpoint", "progress")
def test_a_checkpoint_of_another_problem_is_refused_and_stays(door, run, tmp_path):
    path = tmp_path / "run.checkpoint"
    stopped_at(door, path, 0.0, **door.planned)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(oc.errors.CheckpointError):
        door.closes(door.run(*door.others(), checkpoint=path, **door.planned))
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    result = run(door, *door.others(), checkpoint=path, replace=True, **door.planned)
    assert door.report(result).resumed == 0


@doors_with("checkpoint")
def test_a_checkpoint_does_not_replace_a_file_of_another_kind(door, tmp_path):
    path = tmp_path / "letter"  # an ending that promises another format is refused as such
    path.write_text("dear reader")
    with pytest.raises(oc.errors.OocCholError):
        door.closes(door.run(checkpoint=path))
    assert path.read_text() == "dear reader"


# files


@doors_with("packed")
def test_a_packed_file_is_no_other_file(door, run, tmp_path):
    path = tmp_path / "A.oocsr"
    in_memory, in_file = run(door, **door.planned), run(door, packed=path, **door.planned)
    assert path.stat().st_size > 0 and same_bits(door.numbers(in_memory), door.numbers(in_file))
    path.write_text("dear reader")
    with pytest.raises(oc.errors.OutputError, match="replace"):
        door.closes(door.run(packed=path))
    assert path.read_text() == "dear reader"
    assert same_bits(door.numbers(run(door, packed=path, replace=True, **door.planned)), door.numbers(in_memory))


@doors_with("devices")
def test_bits_do_not_depend_on_the_number_of_devices(door, run):
    options = {name: value for name, value in door.planned.items() if name != "devices"}
    one, two = run(door, devices="host:0", **options), run(door, devices="host:0,host:1", **options)
    assert door.report(two).devices[0] == "host:0"
    if door.report(one).key == door.report(two).key:
        assert same_bits(door.numbers(one), door.numbers(two))
    else:
        for a, b in zip(door.numbers(one), door.numbers(two), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
