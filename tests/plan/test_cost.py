"""Seconds that rates predict for a step, added up by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.inside.dense import ResidueRates, Step, tile_key
from tests.inside.precision import FP32, FP64, MatrixNorms, PrecisionMap
from tests.inside.tasks import (
    LOWER_SHARE,
    Convert,
    Diagonal,
    Fold,
    Gemm,
    Invert,
    Place,
    Pool,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    StepKind,
    StreamKind,
    Syrk,
    TileGrid,
    Trsm,
    finish,
    flops,
    update,
)
from tests.plan.rates import UNIT_RATES

pytestmark = pytest.mark.plan

GRID = TileGrid(14, 4)  # the last tile row has 2 rows
RESIDUE = ResidueRates(moduli=10, product=64.0, accumulate=8.0, convert=16.0, reconstruct=4.0, pull=32.0)
RATES = replace(UNIT_RATES, residue=RESIDUE, invert=2.0)
PLACE = Place(Pool.TILE, 0)


def step_of(operation, tile=(2, 1), kind=StepKind.COMPUTE, nbytes=0, flops=0):
    return Step(kind, StreamKind.COMPUTE, tile_key(tile, 1), operation, (), (), (0, 0), (), nbytes, flops, (), (), 0)


def product(tile, n_columns, depth, *, lower=False):
    return step_of(Product(0, 0, n_columns, 0, 1, 0, depth, True, lower, 0), tile)


@pytest.mark.parametrize(
    ("step", "seconds"),
    [
        (product((2, 0), 2, 3), 4 * 8 * (2 * 12 / 64 + 1 / 8)),
        (product((3, 0), 1, 1), 2 * 4 * (2 * 4 / 64 + 1 / 8)),
        (product((2, 2), 2, 1), 4 * 6 * (2 * 4 / 64 + 1 / 8)),
        (product((2, 2), 1, 3, lower=True), LOWER_SHARE * 16 * (2 * 12 / 64 + 1 / 8)),
        (step_of(Fold(0, 0, 2), (2, 2)), 4 * 6 / 8),
        (step_of(Convert(PLACE, 0, 0, True)), 16 / 16),
        (step_of(Reconstruct(0, 0, PLACE)), 16 / 4),
        (step_of(Reconstruct(0, 0, PLACE), (3, 1)), 8 / 4),
        (step_of(Invert(PLACE, 0), (1, 1)), 16 / 2),
        (step_of(Diagonal(PLACE), (1, 1)), 0.0),
        (step_of(Potrf(PLACE), (1, 1), flops=21), 1.0),
        (step_of(Trsm(PLACE, PLACE, 0), flops=128), 2.0),
        (step_of(Pull(1, PLACE, PLACE, 0, 1), kind=StepKind.PULL, nbytes=96), 3.0),
    ],
)
def test_operations_on_residues(step, seconds):
    assert RATES.seconds(step, GRID) == pytest.approx(seconds)


def test_residues_without_rates_are_refused():
    with pytest.raises(ValueError, match="no rates of residues"):
        UNIT_RATES.seconds(product((2, 0), 1, 1), GRID)


def test_what_trsm_is_prepared_with_counts_natively_with_potrf():
    step = step_of(Potrf(PLACE, prepares=True), (1, 1), flops=flops(finish(1, 1), GRID))
    assert UNIT_RATES.invert == inf and UNIT_RATES.seconds(step, GRID) == pytest.approx(1.0)
    assert RATES.seconds(step, GRID) == pytest.approx(1.0 + 16 / 2)
    trsm = step_of(Trsm(PLACE, PLACE), (2, 1), flops=flops(finish(2, 1), GRID))
    assert RATES.seconds(trsm, GRID) == pytest.approx(1.0)


def test_an_inversion_leaves_processors_to_others_as_potrf_does():
    shares = RATES.shares()
    assert shares[Invert] == shares[Potrf] == 21 / 128
    assert shares[Product] == shares[Convert] == 1.0


def test_more_moduli_take_their_share_more_and_copies_of_bytes_do_not():
    other = RESIDUE.at(20)
    assert other == ResidueRates(20, product=32.0, accumulate=4.0, convert=8.0, reconstruct=2.0, pull=32.0)
    assert other.at(10) == RESIDUE


def precision_of(products):
    """A map of GRID's tiles whose products are in these formats, packed."""
    norms = MatrixNorms(GRID, np.ones(GRID.n_tiles), np.ones(4), np.ones(4), np.ones(4))
    return PrecisionMap(GRID, 1e-6, "unit-roundoff", norms, tuple(products), tuple(products), 8, 1e-6)


def of_task(operation, task):
    return step_of(operation, task.output, flops=flops(task, GRID))


def test_tiles_that_are_updated_in_float32_have_rates_of_their_own():
    in_float32 = replace(UNIT_RATES, trsm_float32=256.0, gemm_float32=512.0)
    products = [FP32 if index == (2, 1) else FP64 for index in GRID.tiles()]
    mixed = in_float32.of_formats(precision_of(products))
    gemm, trsm = of_task(Gemm(PLACE, PLACE, PLACE, 0), update(2, 1, 0)), of_task(Trsm(PLACE, PLACE), finish(2, 1))
    for rates, seconds in ((UNIT_RATES, 1.0), (in_float32, 1.0), (UNIT_RATES.of_formats(mixed.precision), 1.0), (mixed, 0.25)):
        assert rates.seconds(gemm, GRID) == rates.seconds(trsm, GRID) == pytest.approx(seconds)
    others = (
        of_task(Syrk(PLACE, PLACE, 1), update(2, 2, 1)),
        of_task(Trsm(PLACE, PLACE), finish(2, 0)),
        of_task(Potrf(PLACE, prepares=True), finish(1, 1)),
    )
    assert [mixed.seconds(step, GRID) for step in others] == [UNIT_RATES.seconds(step, GRID) for step in others]
    assert mixed.of_formats(None) == in_float32


@pytest.mark.parametrize("name", ["trsm_float32", "gemm_float32"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_rate_of_float32_is_more_than_zero(name, value):
    with pytest.raises(ValueError, match=f"rate {name} is"):
        replace(UNIT_RATES, **{name: value})


@pytest.mark.parametrize("name", ["product", "accumulate", "convert", "reconstruct", "pull"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_rate_of_residues_is_more_than_zero(name, value):
    with pytest.raises(ValueError, match=f"rate {name} is"):
        replace(RESIDUE, **{name: value})
