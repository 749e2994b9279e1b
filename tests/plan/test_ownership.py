"""Which device owns which tile row, and how evenly the work falls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.schedulers import balanced_rows, imbalance
from tests.inside.tasks import flops, uniform_panels
from tests.ownership import cyclic_rows
from tests.plan.problems import make_schedule


def flops_over_mean(owners: tuple[int, ...], n_devices: int) -> float:
    """Flops of the busiest device over the mean, counted task by task."""
    schedule = make_schedule(len(owners), uniform_panels(len(owners), 1, 1), owners, nb=8)
    work = [sum(flops(task, schedule.grid) for task in tasks) for tasks in schedule.tasks]
    return max(work) * n_devices / sum(work)


def test_balanced_rows_share_forty_rows_on_four_devices_evenly():
    assert flops_over_mean(balanced_rows(40, 4), 4) <= 1.005
    assert imbalance(balanced_rows(40, 4), 4) <= 1.005


def test_plain_cyclic_rows_are_a_tenth_out_of_balance():
    assert flops_over_mean(cyclic_rows(40, 4), 4) == pytest.approx(1.1, abs=0.02)
    assert imbalance(cyclic_rows(40, 4), 4) == pytest.approx(1.1, abs=0.02)


@given(nt=st.integers(1, 40), n_devices=st.integers(1, 6), rule=st.sampled_from([balanced_rows, cyclic_rows]))
def test_imbalance_is_that_of_the_flops(nt, n_devices, rule):
    owners = rule(nt, n_devices)
    # Equal but for the tail of the POTRF count: m³/3 is rounded down to whole flops.
    assert imbalance(owners, n_devices) == pytest.approx(flops_over_mean(owners, n_devices), rel=1e-3)


@given(nt=st.integers(1, 120), n_devices=st.integers(1, 8))
def test_every_device_owns_as_many_rows_as_any_other_or_one_more(nt, n_devices):
    for owners in (balanced_rows(nt, n_devices), cyclic_rows(nt, n_devices)):
        assert len(owners) == nt
        counts = [owners.count(device) for device in range(n_devices)]
        assert max(counts) - min(counts) <= 1
    assert imbalance(balanced_rows(nt, n_devices), n_devices) <= imbalance(cyclic_rows(nt, n_devices), n_devices) + 1e-12


def test_one_device_owns_everything():
    assert balanced_rows(5, 1) == cyclic_rows(5, 1) == (0,) * 5
    assert imbalance(balanced_rows(5, 1), 1) == 1.0
