"""The rule of formats at its boundaries, its map and how that is shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.precision import (
    FORMATS,
    FP8,
    FP16,
    FP32,
    FP64,
    LEAST_RESIDUE_PART,
    MOST_MODULI,
    PROBES,
    PRODUCTS_PART,
    RULES,
    SAFETY,
    STORING_PART,
    FactorNorms,
    MatrixNorms,
    PrecisionFormat,
    PrecisionMap,
    ResidueBasis,
    choose_formats,
    enough_moduli,
    foreseen_pivot,
    most_moduli_needed,
    pivot_threshold,
    rounding_of_rows,
    safety_factor,
)
from tests.inside.tasks import TileGrid
from tests.plan.norms import EXACT, ONE_BELOW, norms_of
from tests.tolerances import gamma

NARROW = (FP32, FP16, FP8)
thresholds = st.floats(-13.0, -0.01).map(lambda decades: 10.0**decades)


@st.composite
def random_norms(draw: st.DrawFn, *, most_rows: int = 8) -> MatrixNorms:
    """Norms of tiles over many decades, as near those of a matrix as the rule cares."""
    nt, nb = draw(st.integers(1, most_rows)), draw(st.integers(1, 6))
    grid = TileGrid(nt * nb - draw(st.integers(0, nb - 1)), nb)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tiles = 10.0 ** rng.uniform(-draw(st.sampled_from([0, 6, 14])), 0, grid.n_tiles)
    scale = 10.0 ** draw(st.integers(-20, 25))
    diagonals = scale * 10.0 ** rng.uniform(-2, 0, nt)
    return MatrixNorms(grid, scale * tiles, diagonals * [grid.size(i) for i in range(nt)], 0.5 * diagonals, 2 * diagonals)


def widths(formats: tuple[PrecisionFormat, ...]) -> np.ndarray:
    return np.array([fmt.itemsize for fmt in formats])


# the rule


@pytest.mark.parametrize(("rule", "factor"), [("unit-roundoff", 1.0), ("paper", 2.0)])
@pytest.mark.parametrize(("fmt", "wider"), [(FP8, FP16), (FP16, FP32), (FP32, FP64)], ids=lambda fmt: fmt.name)
def test_a_format_begins_where_its_error_is_the_threshold(rule, factor, fmt, wider):
    assert ONE_BELOW.total == 16.0
    boundary = factor * fmt.unit_roundoff
    assert choose_formats(ONE_BELOW, boundary, rule=rule).format_of((1, 0)) is fmt
    assert choose_formats(ONE_BELOW, np.nextafter(boundary, 0.0), rule=rule).format_of((1, 0)) is wider


@pytest.mark.parametrize("power", [-70, -4, -3, 5, 6, 90])
def test_the_rule_does_not_see_a_power_of_two(power):
    """Of the whole matrix: as far as float32 reaches."""
    scale = 2.0**power
    scaled = norms_of(ONE_BELOW.grid, scale * ONE_BELOW.tiles, traces=scale * ONE_BELOW.traces, least=scale, largest=scale)
    for fmt in NARROW:
        for threshold in (fmt.unit_roundoff, np.nextafter(fmt.unit_roundoff, 0.0)):
            there, here = choose_formats(scaled, threshold), choose_formats(ONE_BELOW, threshold)
            assert (there.formats, there.products) == (here.formats, here.products)
            # Rows are scaled by powers of two, the diagonal by their squares.
            assert there.moduli == here.moduli or power % 2


def test_products_run_in_float32_from_their_own_threshold_on():
    """``nt u sqrt(tr A_00 tr A_11) / ||A||_F`` is ``2 u`` with traces of 4."""
    boundary = 2 * FP32.unit_roundoff
    assert choose_formats(ONE_BELOW, boundary).product_of((1, 0)) is FP32
    below = choose_formats(ONE_BELOW, np.nextafter(boundary, 0.0))
    assert below.product_of((1, 0)) is FP64
    assert below.format_of((1, 0)) is FP32  # stored in less than it is computed in


@pytest.mark.parametrize("fields", [{"least": [1.0, 0.9e-30]}, {"largest": [1.1e30, 1.0]}, {"least": -1.0}, {"least": 0.0}])
def test_what_float32_may_not_hold_stays_in_fp64(fields):
    chosen = choose_formats(norms_of(EXACT.grid, EXACT.tiles, **fields), 0.5)
    assert set(chosen.formats) == set(chosen.products) == {FP64}


def test_the_rows_in_range_are_narrow_beside_one_that_is_not():
    grid = TileGrid(16, 4)
    chosen = choose_formats(norms_of(grid, np.ones(10), least=[1, 1, 1e-31, 1]), 0.5)
    narrow = {tuple(index) for index in grid.tiles() if chosen.format_of(index) is not FP64}
    assert narrow == {(1, 0), (3, 0), (3, 1)}


def test_norms_that_are_no_numbers_leave_fp64():
    nan = np.nan
    chosen = choose_formats(norms_of(EXACT.grid, [2.0, nan, 2.0], traces=[nan, 4.0], largest=[nan, 1.0]), 0.5)
    assert set(chosen.formats) == {FP64}


def test_one_tile_is_fp64():
    chosen = choose_formats(norms_of(TileGrid(5, 8), [1.0]), 0.9)
    assert (chosen.counts, chosen.estimate, chosen.largest_stored_bytes) == ({"fp64": 1}, 0.0, 0)


@given(norms=random_norms(), threshold=thresholds)
def test_all_tiles_together_keep_the_threshold(norms, threshold):
    for rule in RULES:
        chosen = choose_formats(norms, threshold, rule=rule)
        errors = [
            2 * (fmt.unit_roundoff * norm) ** 2
            for fmt, norm in zip(chosen.formats, norms.tiles / norms.total, strict=True)
            if fmt is not FP64
        ]
        assert np.sqrt(sum(errors)) <= threshold * (1 + gamma(100))
        assert chosen.estimate <= threshold


def roundoff(fmt: PrecisionFormat, rule: str) -> float:
    return fmt.machine_epsilon if rule == "paper" else fmt.unit_roundoff


def by_rule(norms: MatrixNorms, part: float, rule: str) -> tuple[PrecisionFormat, ...]:
    """The narrowest formats that the rule allows for ``part`` of ``||A||_F``, whatever all together come to."""
    shares = norms.grid.nt * norms.tiles / norms.total
    allowed = [[fmt for fmt in NARROW if share * roundoff(fmt, rule) <= part] for share in shares]
    on_diagonal = [i == j for i, j in norms.grid.tiles()]
    return tuple(FP64 if diagonal or not fits else fits[-1] for diagonal, fits in zip(on_diagonal, allowed, strict=True))


@pytest.mark.parametrize("rule", RULES)
@given(norms=random_norms(), threshold=thresholds)
def test_formats_are_the_rules_for_what_keeps_storing_within_its_part(rule, norms, threshold):
    """For the whole threshold where that does; else for one smaller part, the same for all tiles."""
    chosen, grid, certified = choose_formats(norms, threshold, rule=rule), norms.grid, safety_factor(PROBES)
    assert certified * chosen.estimate <= STORING_PART * threshold * (1 + gamma(100))
    whole = replace(chosen, formats=by_rule(norms, threshold, rule))
    if certified * whole.estimate <= STORING_PART * threshold:
        assert chosen.formats == whole.formats
        return
    assert np.all(widths(chosen.formats) >= widths(whole.formats))
    shares = grid.nt * norms.tiles / norms.total
    below = [(share, fmt) for (i, j), share, fmt in zip(grid.tiles(), shares, chosen.formats, strict=True) if i != j]
    taken = max((share * roundoff(fmt, rule) for share, fmt in below if fmt is not FP64), default=0.0)
    choices = list(FORMATS.values())
    refused = min(share * roundoff(choices[choices.index(fmt) + 1], rule) for share, fmt in below if fmt is not FP8)
    assert taken <= refused * (1 + gamma(8))
    # Not far less than the part that would do: what all take together is at most 0.58 times the part of each.
    assert refused >= STORING_PART * threshold / (2 * certified)


@given(norms=random_norms(), threshold=thresholds)
def test_the_diagonal_is_fp64_and_only_narrow_tiles_are_computed_so(norms, threshold):
    chosen = choose_formats(norms, threshold)
    for i, j in norms.grid.tiles():
        if i == j:
            assert chosen.format_of((i, j)) is chosen.product_of((i, j)) is FP64
        assert chosen.product_of((i, j)) in ((FP64,) if chosen.format_of((i, j)) is FP64 else (FP64, FP32))


@given(norms=random_norms(), threshold=thresholds)
def test_a_threshold_ten_times_larger_never_widens(norms, threshold):
    strict, loose = choose_formats(norms, threshold / 10), choose_formats(norms, threshold)
    assert np.all(widths(loose.formats) <= widths(strict.formats))
    assert np.all(widths(loose.products) <= widths(strict.products))
    assert loose.total_bytes <= strict.total_bytes + 16 * norms.grid.n_tiles  # a scale may take more than a narrow entry saves


@given(norms=random_norms(), threshold=thresholds, share=st.floats(1e-6, 1.0))
def test_less_than_the_threshold_is_as_a_smaller_one(norms, threshold, share):
    """Where the certificate's rounding takes some of it; the threshold that is shown is that of the call."""
    part, smaller = choose_formats(norms, threshold, within=share * threshold), choose_formats(norms, share * threshold)
    assert (part.formats, part.products, part.moduli) == (smaller.formats, smaller.products, smaller.moduli)
    assert (part.threshold, part.within) == (threshold, share * threshold)


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1e-3, 2.0, np.nan, np.inf])
def test_a_threshold_that_makes_no_sense_is_refused(threshold):
    with pytest.raises(ValueError, match=r"precision_threshold is .* more than 0 and less than 1"):
        choose_formats(ONE_BELOW, threshold)


def test_a_rule_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"'golden'.*unit-roundoff, paper"):
        choose_formats(ONE_BELOW, 1e-3, rule="golden")


# moduli


def covariance(n: int, correlation_range: float) -> np.ndarray:
    """Exponential covariance of random points in the plane, with a nugget; variances differ by up to 16."""
    rng = np.random.default_rng(n)
    x = rng.random((n, 2))
    scale = 2.0 ** rng.uniform(-1, 1, n)
    a = np.exp(-np.linalg.norm(x[:, None] - x[None], axis=2) / correlation_range) + 1e-2 * np.eye(n)
    return scale * a * scale[:, None]


def measured(a: np.ndarray, nb: int, pivot: float | None = None) -> MatrixNorms:
    """Norms of a matrix."""
    grid = TileGrid(len(a), nb)
    tiles = np.array([np.linalg.norm(a[np.ix_(grid.span(i), grid.span(j))]) for i, j in grid.tiles()])
    diagonals = [a.diagonal()[list(grid.span(k))] for k in range(grid.nt)]
    traces, least, largest = (np.array([f(each) for each in diagonals]) for f in (np.sum, np.min, np.max))
    return MatrixNorms(grid, tiles, traces, least, largest, diagonal=a.diagonal(), pivot=pivot)


def rounding_error(a: np.ndarray, nb: int, moduli: int) -> float:
    """Change of all products by rounding rows in front of diagonal tiles to integers, in Frobenius norm."""
    basis, grid = ResidueBasis(moduli), TileGrid(len(a), nb)
    factor = np.linalg.cholesky(a)
    exponents = np.array([basis.exponent(a_ii) for a_ii in a.diagonal()])[:, None]
    rounded = np.ldexp(np.rint(np.ldexp(factor, exponents)), -exponents)
    square = 0.0
    for i, j in grid.tiles():
        rows, columns, ks = grid.span(i), grid.span(j), slice(0, grid.start(j))
        lost = rounded[rows, ks] @ rounded[columns, ks].T - factor[rows, ks] @ factor[columns, ks].T
        square += (1 if i == j else 2) * float(np.square(lost).sum())
    return float(np.sqrt(square))


@pytest.mark.parametrize("correlation_range", [1e-3, 0.05, 1.0])
@pytest.mark.parametrize("moduli", [4, 5, 6])
def test_rows_really_lose_what_is_expected_of_them_or_less(moduli, correlation_range):
    a = covariance(320, correlation_range)
    norms, lost = measured(a, 32), rounding_error(a, 32, moduli)
    eigenvalues = np.linalg.eigvalsh(a)
    by_pivot = replace(norms, pivot=float(eigenvalues[0] / a.diagonal().mean()))
    assert lost <= rounding_of_rows(norms, moduli)
    assert lost <= rounding_of_rows(by_pivot, moduli) <= rounding_of_rows(norms, moduli)
    if correlation_range == 1.0:  # rows are nearly all in front of the diagonal: the expectation is not far too large
        assert rounding_of_rows(norms, moduli) <= 4 * lost
    if correlation_range == 1e-3:  # and hardly anything of them where points are independent
        assert rounding_of_rows(by_pivot, moduli) < 0.3 * rounding_of_rows(norms, moduli)


@given(norms=random_norms(), threshold=thresholds)
def test_moduli_are_enough_and_hardly_more(norms, threshold):
    chosen, certified = choose_formats(norms, threshold), safety_factor(PROBES)
    assert 4 <= chosen.moduli <= MOST_MODULI
    # Errors of storing, rows and products in FP16 are independent: their squares add up to less than the threshold's.
    if chosen.moduli < MOST_MODULI:
        squares = (certified * chosen.expected_error(chosen.moduli)) ** 2 + (PRODUCTS_PART * threshold) ** 2
        assert squares <= threshold**2 * (1 + gamma(100))
    if chosen.moduli > 4:
        fewer = certified * rounding_of_rows(norms, chosen.moduli - 1) / norms.total
        assert fewer > LEAST_RESIDUE_PART * threshold * (1 - gamma(100))
        assert enough_moduli(norms, fewer * (1 + 1e-9)) == chosen.moduli - 1
    assert chosen.expected_error(None) == chosen.estimate <= chosen.expected_error(chosen.moduli)


@given(norms=random_norms(), threshold=thresholds, power=st.integers(-40, 40), data=st.data())
def test_no_matrix_of_an_even_diagonal_takes_more_moduli_than_are_assumed(norms, threshold, power, data):
    """Whatever is off its diagonal, and whatever pivots are foreseen."""
    grid = norms.grid
    sizes, entry = np.array([grid.size(i) for i in range(grid.nt)]), data.draw(st.floats(1.0, 4.0)) * 2.0**power
    tiles = norms.tiles * entry / norms.total
    on_diagonal = [grid.packed(i, i) for i in range(grid.nt)]
    tiles[on_diagonal] = np.hypot(tiles[on_diagonal], entry * np.sqrt(sizes))
    pivot = data.draw(st.none() | st.floats(1e-12, 1.0))
    even = replace(norms_of(grid, tiles, traces=entry * sizes, least=entry, largest=entry), pivot=pivot)
    most = most_moduli_needed(grid.n, threshold)
    if pivot_threshold(even) >= threshold:  # else the threshold is smaller than what was asked for
        assert choose_formats(even, threshold).moduli <= most
    plain = norms_of(grid, np.where([i == j for i, j in grid.tiles()], np.sqrt(np.repeat(1.0, grid.n_tiles)), 0.0))
    unit = replace(plain, tiles=plain.tiles * np.sqrt([grid.size(i) for i, _ in grid.tiles()]))
    assert choose_formats(unit, threshold).moduli >= most - 1  # the unit matrix, with no pivot foreseen, takes nearly as many


@given(norms=random_norms(), threshold=thresholds)
def test_a_threshold_that_is_ten_times_smaller_never_takes_fewer_moduli(norms, threshold):
    assert choose_formats(norms, threshold / 10).moduli >= choose_formats(norms, threshold).moduli


# pivots


@pytest.mark.parametrize("correlation_range", [0.02, 0.2, 1.0])
def test_noise_within_the_pivots_threshold_leaves_a_positive_definite(correlation_range):
    n, rng = 384, np.random.default_rng(7)
    a = covariance(n, correlation_range)
    norms = measured(a, 64, foreseen_pivot(np.tril(a), n))
    limit = pivot_threshold(norms)
    assert 0.0 < limit < 1.0
    for _ in range(4):
        noise = rng.standard_normal((n, n))
        noise += noise.T
        np.linalg.cholesky(a + noise * (limit * norms.total / np.linalg.norm(noise)))
    # So much is no guess far on the safe side: with 1000 times as much noise it is lost.
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(a + noise * (1000 * limit * norms.total / np.linalg.norm(noise)))


def test_pivots_cap_what_of_the_threshold_is_taken():
    a = covariance(384, 1.0)
    norms = measured(a, 64, foreseen_pivot(np.tril(a), 384))
    limit = pivot_threshold(norms)
    capped, same = choose_formats(norms, 0.1), choose_formats(norms, limit / 2)
    assert (capped.threshold, capped.within) == (0.1, limit) and same.within == limit / 2
    free = choose_formats(replace(norms, pivot=None), limit)
    assert capped.formats == free.formats and pivot_threshold(replace(norms, pivot=None)) == np.inf
    lost = choose_formats(replace(norms, pivot=0.0), 0.1)  # a sample without a factor: FP64 for all
    assert 0.0 < lost.within < 1e-14 and set(lost.formats) == {FP64} and lost.moduli > capped.moduli


def test_pivots_of_a_sample_of_all_rows_are_those_of_the_matrix():
    """In an order of its own: the least is at least the least eigenvalue, and at most the least diagonal entry."""
    a = covariance(300, 0.3)
    scale = np.sqrt(a.diagonal())
    pivot = foreseen_pivot(np.tril(a), 300)
    assert np.linalg.eigvalsh(a / scale / scale[:, None])[0] <= pivot <= 1.0
    assert pivot == pytest.approx(foreseen_pivot(np.tril(2.0**40 * a), 300), rel=1e-12)
    assert foreseen_pivot(np.eye(50), 50) == foreseen_pivot(np.eye(50), 5000) == 1.0
    assert foreseen_pivot(np.diag([1.0, -1.0]), 2) == foreseen_pivot(np.zeros((0, 0)), 10) == 0.0


@pytest.mark.parametrize("correlation_range", [0.02, 0.2, 1.0])
def test_pivots_are_foreseen_from_a_part_of_the_rows(correlation_range):
    n = 1600
    a = covariance(n, correlation_range)
    order = np.random.default_rng(3).permutation(n)
    shares = np.square(np.linalg.cholesky(a[np.ix_(order, order)]).diagonal()) / a.diagonal()[order]
    true = np.quantile(shares[n // 2 :], 0.1)
    rows = np.sort(order[:400])
    assert true / 3 <= foreseen_pivot(np.tril(a[np.ix_(rows, rows)]), n) <= 3 * true


@pytest.mark.parametrize("condition", [1e6, 1e8, 1e10])
def test_pivots_of_a_spectrum_without_end_are_foreseen_from_half_of_the_rows(condition):
    """They fall by the same factor for each so many rows, which no power of the number does."""
    n, rng = 512, np.random.default_rng(8)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = (q * np.geomspace(1.0, 1.0 / condition, n)) @ q.T
    a = (a + a.T) / 2
    shares = np.square(np.linalg.cholesky(a).diagonal()) / a.diagonal()
    true = np.quantile(shares[-n // 4 :], 0.1)
    foreseen = foreseen_pivot(np.tril(a[::2, ::2]), n)
    assert true / 30 <= foreseen <= 30 * true


def test_a_tile_that_fills_in_weighs_what_l_has_there():
    grid = TileGrid(8, 4)
    plain = norms_of(grid, [4.0, 1e-6, 4.0], traces=[16.0, 4.0])
    assert np.array_equal(plain.weights, plain.tiles)
    filled = replace(plain, expected=FactorNorms(SAFETY * np.array([[1.0, 0.0], [0.5, 1.0]]), np.zeros((2, 2))))
    assert filled.weights == pytest.approx([4.0, 0.5 * 2.0, 4.0])
    narrow, wide = (choose_formats(norms, 1e-4).format_of((1, 0)) for norms in (plain, filled))
    assert narrow.unit_roundoff > wide.unit_roundoff
    chosen = choose_formats(plain, 1e-4)
    assert replace(chosen, norms=filled).estimate > 1e5 * chosen.estimate


# norms


@given(norms=random_norms())
def test_the_norm_of_the_matrix_counts_tiles_below_the_diagonal_twice(norms):
    twice = [1 if i == j else 2 for i, j in norms.grid.tiles()]
    squares = np.asarray(norms.tiles, np.longdouble) ** 2
    assert abs(norms.total - np.sqrt(np.sum(squares * twice))) <= gamma(100) * norms.total


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_norm_of_the_matrix_neither_overflows_nor_vanishes(scale):
    assert norms_of(ONE_BELOW.grid, scale * ONE_BELOW.tiles).total == pytest.approx(16.0 * scale, rel=gamma(100))


def test_norms_of_nothing():
    assert norms_of(EXACT.grid, np.zeros(3)).total == 0.0
    assert np.isnan(norms_of(EXACT.grid, [1.0, np.nan, 1.0]).total)


@pytest.mark.parametrize(("tiles", "rows"), [(2, 2), (4, 2), (3, 1), (3, 3)])
def test_norms_of_another_grid_are_refused(tiles, rows):
    with pytest.raises(ValueError, match="3 tiles in 2 rows"):
        MatrixNorms(EXACT.grid, np.ones(tiles), np.ones(rows), np.ones(rows), np.ones(rows))


# the map


def map_of(grid: TileGrid, formats: list[PrecisionFormat]) -> PrecisionMap:
    return PrecisionMap(
        grid,
        1e-3,
        RULES[0],
        norms_of(grid, np.ones(grid.n_tiles)),
        tuple(formats),
        (FP64,) * grid.n_tiles,
        moduli=8,
        within=1e-3,
    )


@given(norms=random_norms(), threshold=thresholds)
def test_counts_and_bytes_are_those_of_the_tiles(norms, threshold):
    chosen, grid = choose_formats(norms, threshold), norms.grid
    assert sum(chosen.counts.values()) == sum(chosen.product_counts.values()) == grid.n_tiles
    assert list(chosen.counts) == [name for name in FORMATS if name in chosen.counts]
    stored = {index: chosen.format_of(index).stored_bytes(grid.entries(*index)) for index in grid.tiles()}
    assert all(chosen.stored_bytes(index) == nbytes for index, nbytes in stored.items())
    assert chosen.total_bytes == sum(stored.values())
    narrow = [nbytes for index, nbytes in stored.items() if chosen.format_of(index) is not FP64]
    assert chosen.largest_stored_bytes == max(narrow, default=0)


@given(norms=random_norms(), threshold=thresholds, data=st.data())
def test_widening_leaves_all_other_tiles(norms, threshold, data):
    before = choose_formats(norms, threshold)
    tiles = data.draw(st.sets(st.sampled_from(list(norms.grid.tiles()))))
    after = before.widened(tiles)
    for index in norms.grid.tiles():
        assert after.format_of(index) is (FP64 if index in tiles else before.format_of(index))
        assert after.product_of(index) is (FP64 if index in tiles else before.product_of(index))
    assert set(before.without_float32().products) == {FP64}
    assert before.without_float32().formats == before.formats


def test_the_text_of_a_small_map_shows_every_tile():
    text = str(map_of(TileGrid(10, 4), [FP64, FP32, FP64, FP8, FP16, FP64]))
    heading, *rows = text.splitlines()
    assert rows == ["8", "48", "128"]
    assert heading.startswith("threshold 0.001 (unit-roundoff): 3 fp64, 1 fp32, 1 fp16, 1 fp8; ")


@pytest.mark.parametrize(("nt", "lines"), [(40, 40), (41, 21), (64, 32), (129, 33), (200, 40)])
def test_the_text_of_a_large_map_shows_the_widest_of_each_block(nt, lines):
    grid = TileGrid(nt, 1)
    formats = [FP64 if i == j else FP8 for i, j in grid.tiles()]
    formats[grid.packed(nt - 1, 0)] = FP16
    rows = map_of(grid, formats).rows_of_text()
    assert [len(row) for row in rows] == list(range(1, lines + 1))
    assert all(row[-1] == "8" for row in rows)
    assert rows[-1][0] == "2"
    assert set("".join(row[:-1] for row in rows[:-1])) == {"1"}
