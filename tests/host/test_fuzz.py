"""Hostile files: only errors that are meant come of what is read, at once, and with no more memory than the file justifies.

``python -m tests.fuzz`` looks further.
"""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import fuzz
from tests.fuzz.corpus import readers

SEED = 18
#: Cases by chance; the others, written by hand, all run.
CASES, MANY = 15, 1500


def check(name: str, cases: int, seconds: float) -> None:
    found = fuzz(name, SEED, cases, seconds=seconds)
    assert not found.problems, "\n".join(f"{one['case']}: {one['problem']} {one['detail']}" for one in found.problems)
    assert found.cases >= cases


@pytest.mark.parametrize("name", [reader.name for reader in readers()])
@pytest.mark.usefixtures("processes")
def test_only_meant_errors_come_of_hostile_files(name):
    check(name, CASES, 300.0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [reader.name for reader in readers()])
@pytest.mark.usefixtures("processes")
def test_only_meant_errors_come_of_many_hostile_files(name):
    check(name, MANY, 1800.0)
