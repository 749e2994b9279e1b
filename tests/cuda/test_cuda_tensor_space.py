"""A tensor on GPUs: the same bits for every budget and number of GPUs, bytes as planned, and what the host finds."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol import BudgetError
from tests import tensor_problems as make
from tests.inside.tensors import DeviceTensorSpace, HostTensorSpace

pytestmark = pytest.mark.cuda

PROBLEMS = {
    "FDF": make.problem(),
    "subspace": make.problem(svt="subspace", seed=1),
    "FFF": make.problem((20, 9, 50), precision="FFF", seed=2),
    "DDD by entry": make.problem(r=17, precision="DDD", by_entry=True, seed=3),
    "by entry, subspace": make.problem((31, 25, 15), r=31, svt="subspace", by_entry=True, seed=4),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


@pytest.fixture
def small(monkeypatch):
    make.small_pieces(monkeypatch)


def _same_bits(given, several):
    """On all of these devices, for budgets from the least to everything."""
    with DeviceTensorSpace(make.plan_for(given, "2 GiB", "cuda:0"), given.basis) as space:
        expected = make.run(space, given, momentum=0.3)
    for devices in several:
        for budget in make.budgets(given, devices, 5):
            plan = make.plan_for(given, budget, devices)
            with DeviceTensorSpace(plan, given.basis) as space:
                found = make.run(space, given, momentum=0.3)
                assert space.executed_bytes == space.planned_bytes
            assert found.bits() == expected.bits(), f"{devices} with {budget} bytes: {plan!r}"
            assert plan.peak_bytes <= budget


@every_problem
def test_bits_depend_on_no_budget(small, name):
    _same_bits(PROBLEMS[name], ["cuda:0"])


@pytest.mark.cuda(n=2)
@every_problem
def test_two_gpus_give_the_bits_of_one(small, name):
    _same_bits(PROBLEMS[name], [["cuda:0", "cuda:1"], ["cuda:1"]])


@pytest.mark.cuda(n=2)
def test_two_gpus_copy_from_each_other(small):
    given = PROBLEMS["FDF"]
    with DeviceTensorSpace(make.plan_for(given, "2 GiB", ["cuda:0", "cuda:1"]), given.basis) as space:
        make.run(space, given)
        assert {"peer->cuda:0", "peer->cuda:1"} <= set(space.executed_bytes)
        assert space.seconds.exchange > 0


@pytest.mark.cuda(n=2)
def test_few_small_slices_stay_on_one_gpu_and_large_ones_take_both():
    two = ["cuda:0", "cuda:1"]
    few, many = (make.plan_tensor(shape, precision="FFF", devices=two) for shape in ((64, 64, 2100), (1300, 512, 512)))
    assert few.devices == ("cuda:0",) and few.offered == many.devices == tuple(two)
    assert few.seconds < few.predicted[1] and many.seconds < many.predicted[0] / 1.9


@every_problem
def test_a_gpu_finds_what_the_host_finds(name):
    given = PROBLEMS[name]
    with HostTensorSpace(given.basis, given.observed.shape[1:], given.precision, given.svt) as space:
        expected = make.run(space, given)
    with DeviceTensorSpace(make.plan_for(given, "2 GiB", "cuda:0"), given.basis) as space:
        found = make.run(space, given)
    bound = 1e-11 if given.precision.value == "DDD" else 1e-5
    assert np.linalg.norm(found.tensor - expected.tensor) <= bound * np.linalg.norm(expected.tensor)
    assert [each[2] for each in found.figures] == [each[2] for each in expected.figures]
    assert found.largest == pytest.approx(expected.largest, rel=bound)


def test_panels_and_groups_of_true_size_pass_through_a_small_budget():
    given = make.problem((70, 80, 90), svt="subspace", seed=5)
    _same_bits(given, ["cuda:0"])


def test_files_hold_what_a_gpu_does_not_keep(small, tmp_path):
    given = PROBLEMS["by entry, subspace"]
    with DeviceTensorSpace(make.plan_for(given, "2 GiB", "cuda:0"), given.basis) as space:
        expected = make.run(space, given)
    plan = make.plan_for(given, make.least_budget(given, "cuda:0"), "cuda:0", "file")
    with DeviceTensorSpace(plan, given.basis, folder=tmp_path) as space:
        assert make.run(space, given).bits() == expected.bits()
        assert space.executed_bytes == space.planned_bytes


def test_a_run_goes_on_to_the_same_bits_with_another_budget(small):
    given = PROBLEMS["subspace"]
    with DeviceTensorSpace(make.plan_for(given, "2 GiB", "cuda:0"), given.basis) as space:
        make.run(space, given, 2)
        state = space.take(), [each.copy() for each in space.warm()]
        expected = make.go_on(space, range(2, 5))
    for budget in make.budgets(given, "cuda:0", 3):
        with DeviceTensorSpace(make.plan_for(given, budget, "cuda:0"), given.basis) as space:
            space.load(given.observed, given.mask, state[0])
            space.warm_up(state[1])
            assert make.go_on(space, range(2, 5)).bits() == expected.bits()


def test_the_trace_has_copies_and_work_of_a_gpu(small):
    given = PROBLEMS["FDF"]
    plan = make.plan_for(given, make.least_budget(given, "cuda:0"), "cuda:0")
    with DeviceTensorSpace(plan, given.basis, trace=True) as space:
        make.run(space, given, 3)
        records = space.trace.records
    assert {record.kind for record in records} == {"fetch", "write", "compute"}
    assert all(record.end_ns >= record.start_ns for record in records)


def test_the_singular_values_of_numpy_are_of_the_host_alone():
    given = make.problem(svt="svd")
    with pytest.raises(ValueError, match="reference on the host"):
        DeviceTensorSpace(make.plan_for(given, "2 GiB", "cuda:0"), given.basis)


def test_memory_that_a_gpu_does_not_have_is_told():
    plan = make.plan_tensor((80_000, 512, 512), precision="FFF", devices="cuda:0", memory_budget="1000 GiB")
    with pytest.raises(BudgetError, match="arena of cuda:0"):
        DeviceTensorSpace(plan, np.broadcast_to(np.float64(0), (80_000, 80_000)))
