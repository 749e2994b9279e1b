"""Memory and threads that are refused, and Ctrl-C, at every call in turn: nothing is left, and the next call is right."""

from __future__ import annotations

import pytest

from tests.faults import kinds
from tests.faults.scenarios import ENGINES, PASSES
from tests.host.faults import check

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


def named(scenarios):
    """One test for each scenario."""
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name.replace(" ", "-"))


MAKERS = {"memory": kinds.memory, "threads": kinds.threads, "interrupts": kinds.interrupts}
MOST = {"memory": 3, "threads": 2, "interrupts": 3}


@pytest.mark.parametrize("fault", MAKERS)
@named(ENGINES + PASSES)
def test_what_is_refused_or_interrupted_leaves_nothing(scenario, fault, tmp_path):
    check(scenario, MAKERS[fault], tmp_path, MOST[fault])


@pytest.mark.thorough
@pytest.mark.parametrize("fault", MAKERS)
@named(ENGINES + PASSES)
def test_what_is_refused_or_interrupted_at_every_call(scenario, fault, tmp_path):
    check(scenario, MAKERS[fault], tmp_path, None)
