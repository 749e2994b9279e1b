"""A disk that fails at every call in turn: one error that names the file, the old file whole, and nothing left."""

from __future__ import annotations

import pytest

from tests.faults import kinds
from tests.faults.scenarios import ENGINES, PASSES
from tests.host.faults import check

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


def named(scenarios):
    """One test for each scenario."""
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name.replace(" ", "-"))


FILED = [scenario for scenario in ENGINES if "file" in scenario.name] + PASSES
#: Of reads and writes that are alike, and of the less likely errors, so many.
SOME = 4
#: Scenarios that meet the less likely errors, too.
OFTEN = ("native, file to file", "mixed, file to file", "save")


@named(FILED)
def test_a_fault_of_a_file_is_one_error_that_names_it(scenario, tmp_path):
    check(scenario, kinds.files, tmp_path, SOME)


@pytest.mark.parametrize("fault", [kinds.other_errors, kinds.full, kinds.short], ids=lambda make: make.__name__)
@named([each for each in FILED if each.name in OFTEN])
def test_the_less_likely_errors_and_short_reads(scenario, fault, tmp_path):
    check(scenario, fault, tmp_path, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [kinds.files, kinds.other_errors, kinds.full, kinds.short], ids=lambda make: make.__name__)
@named(FILED)
def test_a_fault_of_a_file_at_every_call(scenario, fault, tmp_path):
    check(scenario, fault, tmp_path, None)
