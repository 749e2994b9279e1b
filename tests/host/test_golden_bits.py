"""Factors are what they were, to the bit, and so are the arithmetic keys that say what bits depend on."""

from __future__ import annotations

import pytest

from tests.host.golden import FILE, cases, factor, facts

pytestmark = [pytest.mark.golden_bits(FILE.path), pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning")]

GOLDEN = FILE.read()["cases"]


def test_every_digest_has_its_case():
    assert set(GOLDEN) == set(cases())


@pytest.mark.parametrize("name", cases())
def test_a_factor_is_what_it_was(name, tmp_path):
    with factor(name, tmp_path) as one:
        different = FILE.differences(facts(one), GOLDEN[name])
        assert not different, different


def test_narrow_products_and_failed_pivots_are_among_them():
    assert "fp16 by norms" in GOLDEN["mixed residue, FP16"]["key"]["engine"]
    assert all(GOLDEN[name]["escalations"] for name in GOLDEN if name.startswith("escalated"))
