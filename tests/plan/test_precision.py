"""The rule of formats at its boundaries, its map and how that is shown."""

from __future__ import annotations

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
    LEAST_RESIDUE_SHARE,
    MOST_MODULI,
    PROBES,
    RESIDUE_PART,
    RULES,
    MatrixNorms,
    PrecisionFormat,
    PrecisionMap,
    ResidueBasis,
    choose_formats,
    safety_factor,
)
from tests.inside.tasks import TileGrid
from tests.plan.norms import EXACT, norms_of
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
    assert EXACT.total == 4.0
    boundary = factor * fmt.unit_roundoff
    assert choose_formats(EXACT, boundary, rule=rule).format_of((1, 0)) is fmt
    assert choose_formats(EXACT, np.nextafter(boundary, 0.0), rule=rule).format_of((1, 0)) is wider


@pytest.mark.parametrize("power", [-70, -4, -3, 5, 6, 90])
def test_the_rule_does_not_see_a_power_of_two(power):
    """Of the whole matrix: as far as float32 reaches."""
    scale = 2.0**power
    scaled = norms_of(EXACT.grid, scale * EXACT.tiles, traces=scale * EXACT.traces, least=scale, largest=scale)
    for fmt in NARROW:
        for threshold in (fmt.unit_roundoff, np.nextafter(fmt.unit_roundoff, 0.0)):
            there, here = choose_formats(scaled, threshold), choose_formats(EXACT, threshold)
            assert (there.formats, there.products) == (here.formats, here.products)
            # Rows are scaled by powers of two, the diagonal by their squares.
            assert there.moduli == here.moduli or power % 2


def test_products_run_in_float32_from_their_own_threshold_on():
    """``nt u sqrt(tr A_00 tr A_11) / ||A||_F`` is ``2 u`` with traces of 4."""
    boundary = 2 * FP32.unit_roundoff
    assert choose_formats(EXACT, boundary).product_of((1, 0)) is FP32
    below = choose_formats(EXACT, np.nextafter(boundary, 0.0))
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


@given(norms=random_norms(), threshold=thresholds)
def test_each_tile_has_the_narrowest_format_that_is_allowed(norms, threshold):
    chosen, grid = choose_formats(norms, threshold), norms.grid
    for i, j in grid.tiles():
        share = grid.nt * norms.tiles[grid.packed(i, j)] / norms.total
        allowed = [fmt for fmt in NARROW if share * fmt.unit_roundoff <= threshold * (1 - gamma(8))]
        fmt = chosen.format_of((i, j))
        assert fmt is FP64 if i == j else fmt.itemsize <= min((other.itemsize for other in allowed), default=8)


@given(norms=random_norms(), threshold=thresholds)
def test_the_diagonal_is_fp64_and_only_narrow_tiles_are_computed_so(norms, threshold):
    chosen = choose_formats(norms, threshold)
    for i, j in norms.grid.tiles():
        if i == j:
            assert chosen.format_of((i, j)) is chosen.product_of((i, j)) is FP64
        assert chosen.product_of((i, j)) in ((FP64,) if chosen.format_of((i, j)) is FP64 else (FP64, FP32))


@given(norms=random_norms(), threshold=thresholds)
def test_the_paper_is_never_narrower(norms, threshold):
    ours, papers = (widths(choose_formats(norms, threshold, rule=rule).formats) for rule in RULES)
    assert np.all(papers >= ours)
    # Its machine epsilon is twice the unit roundoff: it takes what ours takes at half the threshold.
    assert choose_formats(norms, threshold, rule="paper").formats == choose_formats(norms, threshold / 2).formats


@given(norms=random_norms(), pair=st.tuples(thresholds, thresholds))
def test_a_larger_threshold_never_widens(norms, pair):
    strict, loose = (choose_formats(norms, threshold) for threshold in sorted(pair))
    assert np.all(widths(loose.formats) <= widths(strict.formats))
    assert np.all(widths(loose.products) <= widths(strict.products))
    assert loose.total_bytes <= strict.total_bytes + 8 * norms.grid.n_tiles  # a scale may take more than a narrow entry saves


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1e-3, 2.0, np.nan, np.inf])
def test_a_threshold_that_makes_no_sense_is_refused(threshold):
    with pytest.raises(ValueError, match=r"precision_threshold is .* more than 0 and less than 1"):
        choose_formats(EXACT, threshold)


def test_a_rule_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"'golden'.*unit-roundoff, paper"):
        choose_formats(EXACT, 1e-3, rule="golden")


# moduli


def rows_error(norms: MatrixNorms, moduli: int) -> float:
    """Root mean square of what rounding rows to integers changes A by, relative to ``||A||_F``."""
    return float(np.sqrt(2 / 12) * 2.0 ** (1 - ResidueBasis(moduli).bits) * norms.trace / norms.total)


@given(norms=random_norms(), threshold=thresholds)
def test_moduli_are_enough_and_hardly_more(norms, threshold):
    chosen = choose_formats(norms, threshold)
    count = chosen.moduli
    assert 4 <= count <= MOST_MODULI
    assert count == MOST_MODULI or rows_error(norms, count) <= threshold
    # Half of what storing leaves, as certified; steps are powers of two, of tiles whose largest diagonal entry is twice the mean.
    certified = safety_factor(PROBES)
    allowed = RESIDUE_PART * max(LEAST_RESIDUE_SHARE * threshold, threshold - certified * chosen.estimate) / certified
    assert count == 4 or rows_error(norms, count - 1) > allowed / (2 * np.sqrt(2))


@given(norms=random_norms(), threshold=thresholds)
def test_a_threshold_that_is_ten_times_smaller_never_takes_fewer_moduli(norms, threshold):
    assert choose_formats(norms, threshold / 10).moduli >= choose_formats(norms, threshold).moduli


# norms


@given(norms=random_norms())
def test_the_norm_of_the_matrix_counts_tiles_below_the_diagonal_twice(norms):
    twice = [1 if i == j else 2 for i, j in norms.grid.tiles()]
    squares = np.asarray(norms.tiles, np.longdouble) ** 2
    assert abs(norms.total - np.sqrt(np.sum(squares * twice))) <= gamma(100) * norms.total


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_norm_of_the_matrix_neither_overflows_nor_vanishes(scale):
    assert norms_of(EXACT.grid, scale * EXACT.tiles).total == pytest.approx(4.0 * scale, rel=gamma(10))


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
        grid, 1e-3, RULES[0], norms_of(grid, np.ones(grid.n_tiles)), tuple(formats), (FP64,) * grid.n_tiles, moduli=8
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
