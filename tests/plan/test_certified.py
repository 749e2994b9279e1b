"""The certified bound as a formula: how often it may be too small, for which matrices, and that it scales with A."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol import CertifiedBound
from tests.inside.precision import (
    PROBES,
    MatrixNorms,
    Probes,
    certified_bound,
    largest_share,
    least_bound,
    ordinary_power,
    safety_factor,
)
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.plan

seeds = st.integers(0, 2**32 - 1)


def norms_of(a: np.ndarray, nb: int, power: int = 0) -> MatrixNorms:
    """What a pass over ``a`` measures, scaled so that nothing overflows here."""
    grid, probes = TileGrid(len(a), nb), Probes.of(len(a), power)
    tiles = np.array([np.linalg.norm(a[np.ix_(grid.span(i), grid.span(j))]) for i, j in grid.tiles()])
    diagonals = [a.diagonal()[list(grid.span(k))] for k in range(grid.nt)]
    figures = [np.array([f(diagonal) for diagonal in diagonals]) for f in (np.sum, np.min, np.max)]
    return MatrixNorms(grid, tiles, *figures, probes=probes, form=form_of(a, probes), diagonal=a.diagonal())


def form_of(a: np.ndarray, probes: Probes) -> np.ndarray:
    """``U.T @ a @ V`` of the two sets of vectors."""
    u, v = np.hsplit(probes.vectors, 2)
    return u.T @ a @ v


def wrong(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric residual of norm 1."""
    v = rng.standard_normal(n)
    r = {"rank one": np.outer(v, v), "one entry": np.diag(np.eye(n)[rng.integers(n)]), "full": v * rng.standard_normal((n, n))}[
        kind
    ]
    return (r + r.T) / np.linalg.norm(r + r.T)


@given(seed=seeds, kind=st.sampled_from(["rank one", "one entry", "full"]), error=st.sampled_from([1e-2, 1e-6, 1e-9]))
def test_the_bound_exceeds_the_error_of_any_rank(seed, kind, error):
    n, rng = 40, np.random.default_rng(seed)
    a, r = 2 * np.eye(n), wrong(kind, n, rng)
    norms = norms_of(a, 8)
    bound = certified_bound(norms, form_of(a - error * np.linalg.norm(a) * r, norms.probes))
    assert error <= float(bound) <= 10 * error + least_bound(norms, PROBES)
    assert bound.measured == pytest.approx(error, rel=1.0)


@pytest.mark.parametrize(("probes", "failure"), [(4, 0.05), (8, 0.02), (16, 0.01), (48, 1e-3)])
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_bound_is_too_small_no_oftener_than_it_says(probes, failure, rank):
    """Rank one is the worst: U.T R V is a column times a row then, whose squares are two chi-squares."""
    rng = np.random.default_rng(rank)
    u, v = rng.standard_normal((2, 20_000, probes, rank))
    seen = np.sqrt(np.einsum("dpk,dpl,dqk,dql->d", u, u, v, v, optimize=True) / rank)
    assert (safety_factor(probes, failure) * seen / probes < 1.0).mean() <= failure
    if rank == 1:  # and it is not far too careful
        assert (safety_factor(probes, 60 * failure) * seen / probes < 1.0).mean() >= failure / 60 or 60 * failure >= 1


def test_a_norm_is_large_no_oftener_than_it_says():
    rng = np.random.default_rng(0)
    for probes, failure in ((4, 0.05), (16, 0.01), (48, 1e-3)):
        share = largest_share(probes, failure)
        assert share * np.exp(1 - share) == pytest.approx(failure ** (2 / probes), rel=1e-9)
        for rank in (1, 2, 5):
            draws = (rng.standard_normal((20_000, rank, probes)) ** 2).sum(axis=(1, 2)) / (rank * probes)
            assert (draws >= share).mean() <= failure


def test_the_safety_factor_falls_with_the_vectors():
    factors = [safety_factor(probes) for probes in (8, 16, 32, 64, 128)]
    assert factors == sorted(factors, reverse=True) and 1 < factors[-1] < safety_factor(PROBES) < 2.8


@given(seed=seeds, power=st.integers(-20, 20).map(lambda half: 2 * half))
def test_the_bound_does_not_depend_on_the_scale(seed, power):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((20, 20))
    a, r = g @ g.T, wrong("full", 20, rng)
    scaled = norms_of(np.ldexp(a, power), 8)
    product = np.ldexp(a - 1e-4 * r, power)
    first = certified_bound(scaled, form_of(product, scaled.probes))
    other = norms_of(np.ldexp(a, power), 8, -power)
    assert float(certified_bound(other, form_of(product, other.probes))) == pytest.approx(float(first), rel=1e-12)


def test_only_extreme_matrices_are_measured_twice():
    assert ordinary_power(norms_of(1e100 * np.eye(4), 2)) == ordinary_power(norms_of(1e-100 * np.eye(4), 2)) == 0
    assert ordinary_power(norms_of(1e-300 * np.eye(4), 2)) == 996
    assert ordinary_power(norms_of(1e-320 * np.eye(4), 2)) == 1000
    with np.errstate(over="ignore"):
        assert ordinary_power(norms_of(1e300 * np.eye(4), 2)) == -998
    with np.errstate(invalid="ignore"):
        assert ordinary_power(norms_of(np.full((4, 4), np.nan), 2)) == 0


def test_vectors_are_the_same_for_every_order_and_normal():
    large = Probes.of(20_000).vectors
    assert np.array_equal(Probes.of(50).vectors, large[:50])
    assert abs(large.mean()) < 5 / np.sqrt(large.size) and large.std() == pytest.approx(1, abs=5 / np.sqrt(2 * large.size))
    assert np.array_equal(Probes.of(50, 14).vectors, 128 * large[:50])


def test_what_is_no_number_is_within_no_threshold():
    norms = norms_of(np.eye(4), 2)
    for bad in (np.nan, np.inf):
        assert not certified_bound(norms, np.full((PROBES, PROBES), bad)).holds(1.0)


def test_norms_without_vectors_certify_nothing():
    norms = norms_of(np.eye(4), 2)
    bare = MatrixNorms(norms.grid, norms.tiles, norms.traces, norms.least, norms.largest)
    with pytest.raises(ValueError, match="measured without random vectors"):
        certified_bound(bare, np.zeros((PROBES, PROBES)))


def test_text_and_number():
    bound = CertifiedBound(1e-6, 3.2e-6, 32)
    assert float(bound) == 3.2e-6 and "1.0e-06 as 32 random vectors on either side measure it" in str(bound)
    assert bound.holds(3.2e-6) and not bound.holds(3.1e-6)
