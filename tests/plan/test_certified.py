"""The certified bound as a formula: how often it may be too small, for which matrices, and that it scales with A."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.toolbox import CertifiedBound
from tests.inside.precision import (
    PROBES,
    MatrixNorms,
    Probes,
    ResidueBasis,
    certified_bound,
    fp64_bound,
    largest_share,
    least_bound,
    least_bound_of_order,
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


@given(seed=seeds, n=st.integers(1, 60), nb=st.integers(1, 20), kind=st.sampled_from(["any", "unit", "rank one"]))
def test_no_matrix_of_an_order_has_a_larger_least_bound(seed, n, nb, kind):
    """``trace(A) <= sqrt(n) ||A||_F`` with equality for the unit matrix."""
    g = np.random.default_rng(seed).standard_normal((n, {"any": n, "unit": n, "rank one": 1}[kind]))
    norms = norms_of(3.0 * np.eye(n) if kind == "unit" else g @ g.T, nb)
    least, most = least_bound(norms, PROBES), least_bound_of_order(norms.grid, PROBES)
    assert 0.0 < least <= most * (1 + 1e-12)
    assert kind != "unit" or least == pytest.approx(most, rel=1e-12)


# FP64 itself


def matrix(name: str, n: int) -> np.ndarray:
    """A positive definite matrix."""
    x = np.linspace(0.0, 1.0, n)
    if name == "random":
        g = np.random.default_rng(5).standard_normal((n, n))
        return g @ g.T
    if name == "weak":
        return np.exp(-np.abs(np.subtract.outer(x, x)) * 3 * n)
    return np.exp(-np.square(np.subtract.outer(x, x)) / 0.18) + 1e-7 * np.eye(n)  # of nearly one sign and direction


def tiled_factor(a: np.ndarray, nb: int, moduli: int | None) -> np.ndarray:
    """L tile by tile: updates one by one in FP64, or exact ones of rows that are rounded to integers."""
    grid, lower = TileGrid(len(a), nb), np.zeros_like(a)
    exponents = None if moduli is None else np.array([ResidueBasis(moduli).exponent(a_ii) for a_ii in a.diagonal()])[:, None]
    for j in range(grid.nt):
        columns, ks = grid.span(j), range(j)
        for i in range(j, grid.nt):
            rows = grid.span(i)
            tile = a[np.ix_(rows, columns)].copy()
            if exponents is None:
                for k in ks:
                    tile -= lower[np.ix_(rows, grid.span(k))] @ lower[np.ix_(columns, grid.span(k))].T
            elif j:
                left, right = (
                    np.rint(np.ldexp(lower[each, : grid.start(j)], exponents[each])).astype(np.longdouble)
                    for each in (rows, columns)
                )
                tile -= np.ldexp((left @ right.T).astype(float), -exponents[rows] - exponents[columns].T)
            if i == j:
                lower[np.ix_(rows, columns)] = diagonal = np.linalg.cholesky(tile)
            else:
                lower[np.ix_(rows, columns)] = np.linalg.solve(diagonal, tile.T).T
    return lower


@pytest.mark.parametrize("name", ["random", "weak", "strong"])
@pytest.mark.parametrize("moduli", [None, 8, 10, 13])
def test_fp64_errs_by_less_than_its_bound(name, moduli):
    """Through residues it errs by what rows of L are rounded to."""
    n, nb = 240, 24
    a = matrix(name, n)
    lower = tiled_factor(a, nb, moduli).astype(np.longdouble)
    error = float(np.linalg.norm((a - lower @ lower.T).astype(float)) / np.linalg.norm(a))
    bound = fp64_bound(n, nb, moduli)
    assert 0.0 < error <= float(bound) < 1e4 * error
    assert bound.probes == 0 and np.isnan(bound.measured) and bound.holds(float(bound))
    assert (
        str(bound)
        == f"{bound.total:.1e} ||A||_F (that of FP64 itself, as a model of rounding errors has it; nothing was measured)"
    )


def test_fewer_moduli_and_more_rows_are_less_accurate():
    bounds = [float(fp64_bound(40_000, 1024, moduli)) for moduli in range(5, 17)]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > 1e3 * bounds[-1]
    for moduli in (None, 6, 13):
        orders = [float(fp64_bound(n, 1024, moduli)) for n in (2048, 16_384, 131_072)]
        assert orders == sorted(orders)


# text


def test_text_and_number():
    bound = CertifiedBound(1e-6, 3.2e-6, 32)
    assert float(bound) == 3.2e-6 and "1.0e-06 as 32 random vectors on either side measure it" in str(bound)
    assert bound.holds(3.2e-6) and not bound.holds(3.1e-6)
