"""Matrices at the edges of FP64 and of positive definiteness: LAPACK's verdict, and a bound that holds, whatever they are."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import ooc_chol as oc
from tests.host import hostile_matrices as hostile
from tests.host.turns import in_turn

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: None is FP64 without a certificate. The others are above what rounding may change in the certificate itself.
THRESHOLDS = (None, 1e-2, 1e-5, 1e-9)
MORE_THRESHOLDS = (1e-1, 1e-3, 1e-4, 1e-7, 1e-10)
ENGINES = ("native", "residue")
#: Of the usual run: all thresholds with one engine, and two of them with the other; and which of four matrices in a row each
#: of these takes, so that every matrix meets two thresholds with one engine and one with the other.
USUAL = [
    ("native", None, {0, 2}),
    ("native", 1e-2, {1, 3}),
    ("native", 1e-5, {0, 3}),
    ("native", 1e-9, {1, 2}),
    ("residue", None, {1, 3}),
    ("residue", 1e-5, {0, 2}),
]
EVERY = {0, 1, 2, 3}
#: With ``--thorough``, every matrix meets all of them.
OTHERS = [pytest.param(engine, threshold, EVERY, marks=pytest.mark.thorough) for engine in ENGINES for threshold in THRESHOLDS]


def some(families, n, turns):
    """Those matrices whose turn it is, by name."""
    return [each for number, each in enumerate(hostile.every(families, n)) if number % len(EVERY) in turns]


#: A's entries are numbers of few bits there, and so are those of L L.T: FP64 itself is certified to be off by more.
SUBNORMAL = {f"{kind} times {scale:g}" for kind in ("ordinary", "decaying") for scale in (5e-318, 1e-320)}


def factored(a, threshold, engine, tile_size, strict=True):
    """The factor, and what was warned of; None with the error in words where A is refused."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            factor = oc.cholesky(a, threshold, tile_size=tile_size, fp64=engine, strict=strict)
        except oc.OocCholError as error:
            return None, type(error).__name__
    return factor, " ".join(str(one.message) for one in heard if isinstance(one.message, oc.errors.PrecisionWarning))


def check_factor(a, factor, threshold, name):
    """A factor of finite numbers, within its bound and, but for ``strict=False``, within the threshold."""
    with factor:
        lower = np.asarray(factor)
        assert np.isfinite(lower).all(), name
        if threshold is not None:
            error, bound = hostile.error_of(a, lower), factor.report.certified_bound
            assert error <= bound.total <= threshold, f"{name}: error {error}, bound {bound.total}, threshold {threshold}"


def check_clear(name, a, engine, threshold, tile_size):
    factor, word = factored(a, threshold, engine, tile_size)
    if factor is None and name in SUBNORMAL and threshold is not None:
        assert word == "PrecisionError", name
    elif hostile.lapack_accepts(a):
        assert factor is not None, f"{name}: {word}, but LAPACK factors it"
        check_factor(a, factor, threshold, name)
    else:
        assert factor is None and word == "NotPositiveDefiniteError", f"{name}: {word or 'a factor'}, but LAPACK refuses it"


def check_singular(name, a, engine, threshold, tile_size):
    """Either verdict; a factor is within its bound, so that A is as near to positive definite as the threshold says."""
    factor, word = factored(a, threshold, engine, tile_size)
    if factor is None:
        assert word == "NotPositiveDefiniteError", name
        assert abs(hostile.smallest_eigenvalue(a)) <= 1e-6, name
        return
    check_factor(a, factor, threshold, name)
    if threshold is not None:
        assert hostile.smallest_eigenvalue(a) >= -threshold, name


@pytest.mark.parametrize(("engine", "threshold", "turns"), USUAL + OTHERS)
def test_clear_verdicts_are_those_of_lapack(engine, threshold, turns):
    for name, a in some(hostile.CLEAR, 40, turns):
        check_clear(name, a, engine, threshold, 16)


@pytest.mark.parametrize(("engine", "threshold", "turns"), USUAL + OTHERS)
def test_factors_of_singular_matrices_are_within_their_bounds(engine, threshold, turns):
    for name, a in some(hostile.SINGULAR, 40, turns):
        check_singular(name, a, engine, threshold, 16)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("threshold", [*THRESHOLDS, *MORE_THRESHOLDS])
@pytest.mark.parametrize(("n", "tile_size"), [(7, 16), (40, 48), (96, 32), (150, 16)])
def test_every_verdict_and_bound(engine, threshold, n, tile_size):
    for name, a in hostile.every(hostile.CLEAR, n):
        check_clear(name, a, engine, threshold, tile_size)
    for name, a in hostile.every(hostile.SINGULAR, n):
        check_singular(name, a, engine, threshold, tile_size)


def test_narrow_products_of_large_entries_are_planned():
    """Squares of their norms are beyond FP64."""
    a = hostile.CLEAR["decaying times 5e+307"](80)
    with oc.cholesky(a, 1e-2, tile_size=16, fp64="residue", half_products=True) as factor:
        assert hostile.error_of(a, np.asarray(factor)) <= factor.report.certified_bound.total <= 1e-2


@pytest.mark.parametrize(
    ("engine", "turns"),
    [("native", {0, 3}), ("residue", {1, 2}), *(pytest.param(engine, EVERY, marks=pytest.mark.thorough) for engine in ENGINES)],
)
def test_bounds_hold_for_factors_that_miss_their_thresholds(engine, turns):
    for name, a in some(hostile.CLEAR, 40, turns):
        factor, _ = factored(a, 1e-9, engine, 16, strict=False)
        if factor is not None:
            bound, error = factor.report.certified_bound.total, hostile.error_of(a, np.asarray(factor))
            assert error <= bound < np.inf, f"{name}: error {error}, bound {bound}"
            assert not re.search(r"\bnan\b", str(factor.report)), name
            factor.close()


@pytest.mark.parametrize(("n", "engine"), in_turn([40, 96], ENGINES))
def test_an_exactly_singular_matrix_is_refused_or_doubted(engine, n):
    """Where rounding in narrow formats, or to fewer bits through residues, can have made the pivot; FP64's may be as LAPACK's."""
    a = hostile.SINGULAR["two equal rows"](n)
    for threshold in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9):
        factor, word = factored(a, threshold, engine, 16)
        if factor is None:
            assert word == "NotPositiveDefiniteError"
            continue
        precision = factor.report.plan.precision
        assert "A may be singular" in word or precision is None or (precision.is_fp64 and engine == "native"), threshold


def test_a_large_entry_off_the_diagonal_is_no_infinity():
    """What the formats cannot hold is computed in FP64, and FP64 says what is wrong."""
    a = hostile.CLEAR["one 1e200 off the diagonal"](96)
    for threshold in (1e-1, 1e-3, 1e-6):
        for engine in ENGINES:
            with pytest.raises(oc.NotPositiveDefiniteError) as caught:
                oc.cholesky(a, threshold, tile_size=32, fp64=engine)
            assert caught.value.minor == 96
