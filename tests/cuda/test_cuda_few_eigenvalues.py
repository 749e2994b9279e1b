"""Matrices with few distinct eigenvalues on GPUs: the values that the host tests have, by theory, on one and on two."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests import few_eigenvalues as few
from tests.few_eigenvalues import Case, check_case, check_cases

pytestmark = pytest.mark.cuda

PARTS = 8
DEVICES = ["cuda:0", pytest.param(["cuda:0", "cuda:1"], marks=pytest.mark.cuda(n=2))]
every_device = pytest.mark.parametrize("devices", DEVICES)


@pytest.fixture(scope="module")
def drawn():
    return few.cases()


@every_device
@pytest.mark.parametrize("part", range(PARTS))
def test_values_are_those_of_theory(drawn, part, devices):
    check_cases(drawn[part::PARTS], devices)


@every_device
@pytest.mark.parametrize("precision", oc.Precision)
@pytest.mark.parametrize("block", [1, 8])
def test_several_chunks_and_a_start_within_one_component(precision, block, devices):
    """Of 140,000 rows, so that each of two devices has some; the space of the start ends after two products."""
    made, v0 = few.copies(few.complete(4), 35_000), np.zeros(140_000)
    v0[3] = 1.0
    options = {"which": "LA", "block": block, "precision": precision.value}
    check_case(Case("components", made, 12, options), oc.eigsh(made.a, 12, devices=devices, v0=v0, **options))
