"""Kernels on panels of vectors on a GPU: the promises of those on the host, and their random numbers to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol import Precision
from tests import panel_checks as check
from tests.inside.kernels import PANEL_COLUMNS, DeviceFacts, gram_shape
from tests.inside.tasks import CHUNK_ROWS
from tests.panel_arrays import Gpu, Host, filled, partials, vectors

pytestmark = pytest.mark.cuda

FFF, FDF, DDD = Precision
every_precision = pytest.mark.parametrize("precision", Precision)
every_block = pytest.mark.parametrize("block", PANEL_COLUMNS)


@every_precision
@every_block
@pytest.mark.parametrize("rows", check.ROWS)
def test_inner_products_and_updates_are_within_their_bounds(precision, block, rows):
    check.inner_products(Gpu(), precision, block, 3, rows)
    check.updates(Gpu(), precision, block, 3, rows)


@pytest.mark.parametrize("panels", [1, 2, 5, 7, 8, 9, 17, 45])
@every_precision
@every_block
def test_wide_and_narrow_bases(precision, block, panels):
    check.inner_products(Gpu(), precision, block, panels, 9000)
    check.updates(Gpu(), precision, block, panels, 9000)


@every_precision
@every_block
@pytest.mark.parametrize(("p", "q"), [(3, 2), (1, 1), (5, 5), (2, 3), (9, 9), (19, 11), (45, 39)])
def test_rotations_beside_and_in_place(precision, block, p, q):
    check.rotations(Gpu(), precision, block, p, q, 1100)


@pytest.mark.parametrize("precision", [FDF, DDD])
def test_rotations_of_more_coefficients_than_shared_memory_holds(precision):
    check.rotations(Gpu(), precision, 8, 100, 99, 1000)


@pytest.mark.parametrize("devices", [2, 4])
@every_precision
@every_block
def test_devices_that_share_rows_make_the_same_bits(precision, block, devices):
    check.inner_products_of_ranges(Gpu(), precision, block, 11, 4 * CHUNK_ROWS + 777, devices)


@pytest.mark.parametrize(("precision", "block"), [(FDF, 8), (FDF, 2), (DDD, 8), (DDD, 4)])
def test_sums_do_not_depend_on_how_columns_are_shared_by_thread_blocks(precision, block):
    """Few chunks are shared by more thread blocks, of fewer columns each: here of 8 and of 16."""
    p, chunks = 16 // block, 36
    facts = DeviceFacts(90, 132, 232448)
    assert gram_shape(facts, precision, block, p, 1)[0] == 1 and gram_shape(facts, precision, block, p, chunks)[0] == 2
    basis, w = vectors((p, chunks * CHUNK_ROWS, block), precision), vectors((chunks * CHUNK_ROWS, block), precision, 1)
    whole = partials(Gpu(), precision, basis, w)
    for chunk in (0, 17):
        rows = slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
        alone = partials(Gpu(), precision, np.ascontiguousarray(basis[:, rows]), w[rows])
        assert whole[chunk].tobytes() == alone[0].tobytes()


@every_precision
@every_block
def test_nothing_is_done_where_it_is_not_wanted(precision, block):
    check.nothing_unless(Gpu(), precision, block)


@every_precision
@every_block
def test_factors_of_gram_matrices(precision, block):
    check.triangular_factors(Gpu(), precision, block)
    check.no_column_at_all(Gpu(), precision, block)


@every_precision
@every_block
def test_dependent_columns_are_found_and_do_not_spoil_the_others(precision, block):
    check.dependent_columns(Gpu(), precision, block)
    check.two_factors(Gpu(), precision, block)


@every_precision
@every_block
def test_clamped_factors_give_no_column_up(precision, block):
    check.clamped_factors(Gpu(), precision, block)
    check.clamped_factors_of_nothing(Gpu(), precision, block)
    check.clamped_factors_of_hardly_anything(Gpu(), precision, block)
    check.columns_by_what_they_were(Gpu(), precision, block)
    check.columns_that_fell(Gpu(), precision, block)


@every_precision
@every_block
def test_panels_are_widened_and_multiplied_where_told(precision, block):
    check.wide_panels(Gpu(), precision, block)


@every_precision
@every_block
def test_steps_of_chebyshevs_recurrence(precision, block):
    check.recurrences(Gpu(), precision, block)


@every_precision
@every_block
def test_panels_are_multiplied_entry_by_entry(precision, block):
    check.diagonals(Gpu(), precision, block)


@every_precision
@every_block
def test_random_panels(precision, block):
    check.random_panels(Gpu(), precision, block)
    w = np.zeros((100_000, block), precision.storage)
    assert filled(Gpu(), precision, w, 12345, -7).tobytes() == filled(Host(), precision, w, 12345, -7).tobytes()


@every_precision
@every_block
def test_norms_that_fell(precision, block):
    check.norms_that_fell(Gpu(), precision, block)


def test_no_rows_at_all():
    empty = vectors((3, 0, 8), FDF)
    assert partials(Gpu(), FDF, empty, empty[0]).shape == (0, 24, 8)
