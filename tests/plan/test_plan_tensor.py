"""Plans of tensors: memory within budgets, bytes over links, and what a refusal says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol import BudgetError
from tests.inside.dense import DATA_SHEETS
from tests.inside.interfaces import ArraySpec
from tests.inside.tensors import paying_count, planning, step_seconds
from tests.tensor_problems import plan_tensor

GIB = 1 << 30
#: 512 x 512 x 40,000 of the issue: 42 GB of float32.
LARGE = {"precision": "FFF", "svt": "gram64", "devices": "cuda:0"}


def test_what_a_budget_holds_stays_on_the_device():
    plan = plan_tensor((2600, 512, 512), precision="FFF", devices="cuda:0", memory_budget="16 GiB")
    assert plan.is_in_core and plan.peak_bytes <= 16 * GIB and plan.host_bytes == 0
    assert plan.step_bytes() == {"cuda:0->memory": 8 * 2600 + 16 * 64}
    assert plan.load_bytes()["memory->cuda:0"] == 2600 * 512 * 512 * 4 + 2600 + 8 * 85 * 512 * 64


def test_a_larger_tensor_passes():
    plan = plan_tensor((40_000, 512, 512), memory_budget="16 GiB", **LARGE)
    share, entries = plan.shares[0], 512 * 512 * 4
    kept = len(share.kept_slices)
    assert not plan.is_in_core and 15 * GIB < plan.peak_bytes <= 16 * GIB
    assert 0 < kept < 40_000 and share.kept_panels == 0 and share.ring_slots == 2
    assert plan.host_bytes == (2 * 40_000 - kept) * entries
    assert plan.step_bytes() == {
        "memory->cuda:0": (2 * (40_000 - kept) + 40_000) * entries,
        "cuda:0->memory": (2 * (40_000 - kept) + 40_000) * entries + 8 * 40_000 + 16 * 64,
    }


def test_slices_of_the_transform_are_kept_before_panels_of_the_tensor():
    budgets = range(13, 120, 4)
    shares = [plan_tensor((40_000, 512, 512), memory_budget=f"{budget} GiB", **LARGE).shares[0] for budget in budgets]
    for share in shares:
        assert share.kept_panels == 0 or share.kept_groups == len(share.groups)
    groups, panels = ([getattr(share, name) for share in shares] for name in ("kept_groups", "kept_panels"))
    assert groups == sorted(groups) and panels == sorted(panels)
    assert panels[-1] == 64 and 0 < groups[0] < groups[-1] == len(shares[-1].groups)
    moved = [sum(plan_tensor((40_000, 512, 512), memory_budget=f"{b} GiB", **LARGE).step_bytes().values()) for b in budgets]
    assert moved == sorted(moved, reverse=True)


@pytest.mark.parametrize("mask", ["slices", "entries"])
@pytest.mark.parametrize("svt", ["gram64", "subspace"])
def test_every_budget_is_used_and_none_exceeded(mask, svt):
    options = {"precision": "FDF", "svt": svt, "mask": mask, "devices": ["cuda:0", "cuda:1"]}
    for budget in range(4 * GIB, 24 * GIB, GIB):
        plan = plan_tensor((9000, 300, 400), memory_budget=budget, **options)
        for share in plan.shares:
            assert share.peak_bytes == sum(plan.memory()[share.device].values()) <= budget
            one_more = plan.problem.slice_bytes * plan.problem.group + plan.problem.tensor_bytes(4096)
            is_whole = share.kept_panels == len(share.panels) and share.kept_groups == len(share.groups)
            assert is_whole or budget - share.peak_bytes < one_more
            assert all(isinstance(spec, ArraySpec) and spec.nbytes for spec in share.arrays.values())


def test_devices_share_panels_and_groups():
    devices = [f"cuda:{number}" for number in range(3)]
    plan = plan_tensor((5000, 100, 90), precision="DDD", devices=devices, memory_budget="8 GiB")
    assert [panel for share in plan.shares for panel in share.panels] == list(plan.problem.panels)
    assert [row for share in plan.shares for row in share.slices] == list(range(5000))
    assert sum(share.columns for share in plan.shares) == 9000
    step = plan.step_bytes()
    # Each slice crosses to the devices of all its other columns, and back.
    moved = sum(len(share.slices) * (9000 - share.columns) * 8 for share in plan.shares)
    assert sum(nbytes for link, nbytes in step.items() if link.startswith("peer->")) == 2 * moved
    assert "memory->cuda:0" not in step


def test_more_devices_than_panels_leave_some_without():
    plan = plan_tensor((300, 50, 50), devices=["cuda:0", "cuda:1"], memory_budget="2 GiB")
    assert sorted(len(share.panels) for share in plan.shares) == [0, 1]
    assert "estimate" not in next(share for share in plan.shares if not share.panels).arrays


def _predicted(shape, most=8):
    problem = plan_tensor(shape, precision="FFF", devices="cuda:0", memory_budget="100 GiB").problem
    return [step_seconds(problem, count, DATA_SHEETS["NVIDIA H200"]) for count in range(1, most + 1)]


def test_few_small_slices_are_for_one_gpu_and_large_ones_for_all():
    assert paying_count(_predicted((64, 64, 2100))) == paying_count(_predicted((2100, 64, 64), 2)) == 1
    one, two, *_, eight = seconds = _predicted((2600, 512, 512))
    assert paying_count(seconds) == 8 and 1.9 < one / two < 2 and 6.5 < one / eight < 8


def test_more_gpus_must_save_a_tenth():
    assert paying_count([1.0, 0.95, 0.91, 0.8, 0.79]) == 4
    assert paying_count([1.0, 0.8, 0.75]) == 2 and paying_count([]) == paying_count([3.0]) == 1


def test_gpus_that_do_not_pay_take_no_part(monkeypatch):
    monkeypatch.setattr(planning, "predicted_steps", lambda problem, devices: (0.004, 0.005, 0.0039))
    devices = [f"cuda:{number}" for number in range(3)]
    plan = plan_tensor((2100, 64, 64), devices=devices, memory_budget="8 GiB")
    assert plan.devices == ("cuda:0",) and plan.offered == tuple(devices) and plan.seconds == 0.004
    assert "1 of 3 take part; a step is predicted to take 4 ms on 1, 5 ms on 2, 3.9 ms on 3" in str(plan)
    # What one does not keep is not predicted: all take part.
    plan = plan_tensor((2100, 64, 64), devices=devices, memory_budget=plan.peak_bytes - plan.shares[0].arrays["ring"].nbytes)
    assert plan.devices == tuple(devices)


def test_without_rates_all_devices_take_part():
    plan = plan_tensor((300, 50, 50), devices=["cuda:0", "cuda:1"], memory_budget="2 GiB")
    assert len(plan.devices) == 2 and plan.seconds is None and "take part" not in str(plan)


def test_a_budget_that_is_too_small_is_told_with_the_bytes_that_would_do():
    with pytest.raises(
        BudgetError, match=r"memory_budget of cuda:0: .* at least \d+ are needed; .*eigenvectors than 40000"
    ) as found:
        plan_tensor((40_000, 512, 512), memory_budget="4 GiB", **LARGE)
    needed = found.value.needed_bytes
    plan = plan_tensor((40_000, 512, 512), memory_budget=needed, **LARGE)
    assert plan.peak_bytes == needed and plan.shares[0].ring_slots == 1
    with pytest.raises(BudgetError):
        plan_tensor((40_000, 512, 512), memory_budget=needed - 1, **LARGE)


def test_fewer_eigenvectors_take_less():
    plan = plan_tensor((40_000, 512, 512), 2000, memory_budget="16 GiB", devices="cuda:0")
    assert plan.problem.shape.components == 2000 and plan.shares[0].kept_groups == len(plan.problem.groups)


def test_the_page_says_what_is_kept_and_what_moves():
    plan = plan_tensor((40_000, 512, 512), memory_budget="16 GiB", tier="file", **LARGE)
    page = str(plan)
    for part in ("40000 slices of 512 x 512", "'gram64'", "cuda:0 keeps 0 of 64 panels", "in files", "file->cuda:0: ", " a step"):
        assert part in page
    assert "host       nothing" in str(plan_tensor((100, 20, 20), devices="cuda:0", memory_budget="1 GiB"))
    figures = json.loads(json.dumps(plan.to_dict()))
    assert figures["bytes"] == plan.step_bytes() == plan.bytes and figures["peak_bytes"] == plan.peak_bytes
    assert len(repr(plan)) < 200


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (((10, 5),), {}, ValueError, "X is .10, 5., but the shape of a tensor has three"),
        (((10, 0, 5),), {}, ValueError, "X has 0"),
        (((10, 5.0, 5),), {}, TypeError, "X is a float"),
        (((10, 5, 5), 11), {}, ValueError, "graph has 11; give at least 1, at most 10"),
        (((10, 5, 5), True), {}, TypeError, "graph is a bool"),
        (((10, 5, 5),), {"mask": "rows"}, ValueError, "a mask is of 'slices' or 'entries'"),
        (((10, 5, 5),), {"svt": "fast"}, ValueError, "singular values are thresholded by"),
        (((10, 5, 5),), {"precision": "DFD"}, ValueError, "DFD"),
        (((10, 5, 5),), {"devices": "tpu:0"}, ValueError, "there is no device 'tpu:0'"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        plan_tensor(*arguments, **({"memory_budget": "1 GiB", "devices": "host:0"} | options))


def test_numpys_whole_numbers_are_whole_numbers():
    shape = tuple(np.array([10, 5, 6]))
    assert plan_tensor(shape, np.int32(4), memory_budget="1 GiB", devices="host:0").problem.shape == (10, 4, 5, 6)
