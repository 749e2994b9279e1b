"""Plans are what they were: a change of one is a decision, not an accident."""

from __future__ import annotations

import json

import pytest

from tests.plan.golden import FILE, cases, digest

pytestmark = pytest.mark.plan

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))
CASES = dict(cases())


def test_every_digest_has_its_plan():
    assert set(GOLDEN) == set(CASES) and len(set(GOLDEN.values())) == len(GOLDEN)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was(name):
    assert digest(CASES[name].plan()) == GOLDEN[name], f"python -m tests.plan.golden writes {FILE.name} anew"
