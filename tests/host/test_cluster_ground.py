"""Mixed precision over blocks: the formats, factor and remedies of one machine, with tasks in the place of its passes."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions
from tests.host.block_loop import LoopWork
from tests.host.escalation_cases import CASES, factor_of
from tests.host.mixed_precision import matern, measured
from tests.inside.cluster import BlockPlace, ClusterGround
from tests.inside.dense import factor_mixed
from tests.inside.precision import Remedy

NB = 16
#: Cases of escalation end near a singular matrix, of which the factor on one machine warns.
pytestmark = pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning")


def dense_of(store) -> np.ndarray:
    """The lower triangle of a store."""
    grid, factor = store.grid, np.zeros((store.grid.n, store.grid.n))
    for i, j in grid.tiles():
        tile = np.empty(grid.shape(i, j))
        store.read((i, j), tile)
        rows, cols = grid.span(i), grid.span(j)
        factor[rows.start : rows.stop, cols.start : cols.stop] = np.tril(tile) if i == j else tile
    return factor


def by_blocks(a, height: int, **options):
    """A factorization in mixed precision whose blocks are made one by one."""
    work = LoopWork(a, height)
    return work, factor_mixed(ClusterGround(work, FactorOptions(devices="host:0", **options)))


@pytest.mark.parametrize(
    ("height", "fp64"),
    [
        *((height, "native") for height in (1, 3, 40)),
        (7, "residue"),
        pytest.param(7, "native", marks=pytest.mark.thorough),
        *(pytest.param(height, "residue", marks=pytest.mark.thorough) for height in (1, 3, 40)),
    ],
)
def test_formats_and_factor_are_those_of_one_machine_to_the_bit(height, fp64):
    a, nb = matern(150, 1.5, 0.1, 0.01), {"native": NB, "residue": 32}[fp64]
    with oc.cholesky(a, precision_threshold=1e-5, tile_size=nb, fp64=fp64, half_products=False, devices="host:0") as alone:
        whole, bound = dense_of(alone._store), alone.report.certified_bound
        formats = alone.report.plan.precision.formats
    work, result = by_blocks(a, height, precision_threshold=1e-5, tile_size=nb, fp64=fp64)
    assert result.plan.precision.formats == formats and not result.escalations
    assert np.array_equal(dense_of(work.store), whole)
    assert float(result.bound) == pytest.approx(float(bound), rel=1e-3)
    assert measured(whole, a, 1e-5) <= float(result.bound) <= 1e-5
    assert result.execution.norms.shape == (result.plan.grid.n_tiles, 5)
    assert work.made == [list(result.plan.blocks.places())]


def test_one_arithmetic_key_for_the_factor_of_blocks_and_of_one_machine():
    a = matern(150, 1.5, 0.1, 0.01)
    with oc.cholesky(a, precision_threshold=1e-5, tile_size=NB, devices="host:0") as alone:
        _, result = by_blocks(a, 3, precision_threshold=1e-5, tile_size=NB)
        assert result.plan.run.arithmetic_key == alone.arithmetic_key


@pytest.mark.parametrize("name", ["row", "in a panel", "two rows", "fp64"])
def test_a_failed_pivot_is_remedied_and_what_lies_left_of_it_stays(name):
    case = CASES[name]
    work, result = by_blocks(case.matrix(), 2, precision_threshold=case.threshold, tile_size=case.nb, memory_budget=case.budget)
    assert result.escalations and float(result.bound) <= case.threshold
    assert measured(dense_of(work.store), case.matrix(), float(result.bound)) <= float(result.bound)
    for step, (before, again) in zip(result.escalations, zip(work.made, work.made[1:], strict=False), strict=True):
        if step.column is None:
            continue
        failed = step.column // 2
        assert BlockPlace(failed, failed) in before and not any(place.column > failed for place in before)
        kept = {place for place in result.plan.blocks.places() if place.column < failed and place.row != failed}
        if step.remedy is Remedy.ROW:
            assert set(again).isdisjoint(kept) and set(again) >= {BlockPlace(failed, q) for q in range(failed)}
        else:
            assert again[0] == BlockPlace(0, 0)


def test_one_failed_row_gives_the_bits_of_one_machine():
    case = CASES["row"]
    alone = factor_of(case)
    assert [step.remedy for step in alone.report.escalations] == [Remedy.ROW]
    work, result = by_blocks(case.matrix(), 3, precision_threshold=case.threshold, tile_size=case.nb)
    assert [(step.remedy, step.column, step.minor) for step in result.escalations] == [
        (step.remedy, step.column, step.minor) for step in alone.report.escalations
    ]
    assert np.array_equal(dense_of(work.store), dense_of(alone._store))


def test_a_matrix_that_is_not_positive_definite_is_refused_with_its_minor():
    a = matern(150, 1.5, 0.1, 0.01)
    a[100, 100] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as found:
        by_blocks(a, 3, precision_threshold=1e-5, tile_size=NB)
    assert found.value.minor == 101
