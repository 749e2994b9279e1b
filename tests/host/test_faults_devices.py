"""Devices that refuse, fail and are lost, at every call in turn: one error that names the step, and nothing left."""

from __future__ import annotations

import pytest

from tests.faults import kinds
from tests.faults.scenarios import ENGINES, PASSES
from tests.host.faults import check

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


def named(scenarios):
    """One test for each scenario."""
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name.replace(" ", "-"))


#: Scenarios in which every call fails in turn, also without ``--thorough``; of the others some calls do.
WHOLLY = ("native, memory", "solve on a device")
FEW = 4
MAKERS = {"refused": kinds.refused, "failed": kinds.failed, "lost": kinds.lost, "unlocked": kinds.unlocked}


@pytest.mark.parametrize("fault", MAKERS)
@named(ENGINES + PASSES[-2:])
def test_a_fault_of_a_device_is_one_error_that_names_the_step(scenario, fault, tmp_path):
    check(scenario, MAKERS[fault], tmp_path, None if scenario.name in WHOLLY else FEW)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", MAKERS)
@named(ENGINES + PASSES[-2:])
def test_a_fault_of_a_device_at_every_call(scenario, fault, tmp_path):
    check(scenario, MAKERS[fault], tmp_path, None)
