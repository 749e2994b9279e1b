"""Promises of mixed precision that were broken once."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.escalation_cases import FP64, IN_A_PANEL, ROW, TWO_ROWS, factor_of
from tests.host.matrices import covariance, exponential
from tests.host.mixed_precision import A, factored, measured
from tests.inside.dense import default_moduli
from tests.inside.precision import FP64 as FP64_FORMAT
from tests.inside.precision import choose_formats, fp64_bound
from tests.plan.norms import EXACT, norms_of

#: Matrices of these tests are made to be at the limit of what a format can do.
pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (70, 3), (120, 120), (199, 198)])
def test_an_infinity_is_named(bad, place):
    a = np.array(A)
    a[place] = bad
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        factored(a)
    assert (caught.value.row, caught.value.col) == place


def test_norms_that_are_infinite_leave_fp64():
    bad = np.inf
    chosen = choose_formats(norms_of(EXACT.grid, [2.0, bad, 2.0], traces=[bad, 4.0], largest=[bad, 1.0]), 0.5)
    assert set(chosen.formats) == {FP64_FORMAT}


@pytest.mark.parametrize("case", [ROW, IN_A_PANEL])
def test_a_file_has_the_key_of_the_widened_formats(case, tmp_path):
    with case.factor(store=tmp_path / "L.ooc") as factor:
        key = factor.arithmetic_key
    with oc.load(tmp_path / "L.ooc") as back:
        assert back.arithmetic_key == key


def test_the_same_call_gives_the_same_factor():
    """Which remedies are tried must not depend on how far the threads of a failed run happened to get."""
    for case in (IN_A_PANEL, TWO_ROWS):
        factors = [factor_of(case), *(case.factor() for _ in range(2))]
        assert len({str(factor.report.to_dict()["escalations"]) for factor in factors}) == 1
        assert all(np.array_equal(np.asarray(factor), np.asarray(factors[0])) for factor in factors)


def test_the_bound_holds_where_float32_is_subnormal():
    n, nb = 512, 32
    off = np.tril(np.random.default_rng(0).uniform(1, 4, (n, n)), -1) * 2.0**-149
    a = 2.0**-98 * np.eye(n) + off + off.T
    factor = oc.cholesky(a, precision_threshold=1e-3, tile_size=nb, memory_budget="64 MB", devices="host:0")
    total = factor.report.certified_bound.total
    assert measured(np.asarray(factor), a, total) <= total


def test_fp64s_model_says_nothing_of_entries_below_its_range():
    """A plan in FP64 of a matrix before runs at once: but entries that are subnormal are none of what its bound is for."""
    with FP64.factor() as factor:
        plan = factor.report.plan
    a, options = FP64.matrix(), {"plan": plan, "devices": "host:0", "tile_size": FP64.nb, "memory_budget": FP64.budget}
    with oc.cholesky(a, FP64.threshold, **options) as factor:
        assert factor.report.certified_bound.probes == 0 and not factor.report.passes.totals
    with oc.cholesky(a * 2.0**-1050, FP64.threshold, strict=False, lower=True, **options) as factor:
        assert factor.report.certified_bound.probes and float(factor.report.certified_bound) > 1e-6


def test_a_threshold_that_only_residues_keep_is_fp64s_at_once_through_residues():
    """Nothing is measured of A where FP64's plan runs through residues; a native run is measured."""
    n, nb = 512, 64
    a = covariance(exponential, 0.01)(n)
    native, residue = (float(fp64_bound(n, nb, moduli)) for moduli in (None, default_moduli(n, FP64_FORMAT)))
    threshold, options = (native * residue) ** 0.5, {"devices": "host:0", "tile_size": nb}
    assert residue < threshold < native
    with oc.cholesky(a, threshold, fp64="residue", **options) as factor:
        bound = float(factor.report.certified_bound)
        assert factor.report.plan.precision is None and not factor.report.passes.totals and bound == residue
        assert measured(np.asarray(factor), a, bound) <= bound
        assert json.loads(json.dumps(factor.report.to_dict(), allow_nan=False))["certified_measured"] is None
    with oc.cholesky(a, threshold, fp64="native", **options) as factor:
        assert factor.report.passes.totals and float(factor.report.certified_bound) <= threshold
    planned = oc.plan(a, precision_threshold=threshold, fp64="residue", **options)
    assert planned.precision is None and [each.error for each in planned.candidates] == [residue]
