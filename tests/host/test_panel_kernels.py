"""Kernels on panels of vectors on the host: within their bounds, with bits that no number of threads or devices changes."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol import Precision
from tests import panel_checks as check
from tests.inside.kernels import PANEL_COLUMNS, panel_kernels
from tests.inside.tasks import CHUNK_ROWS
from tests.panel_arrays import Host, combined, partials, subtracted, vectors
from tests.products import thorough

FFF, FDF, DDD = Precision
HOST = Host()
every_precision = pytest.mark.parametrize("precision", Precision)
every_block = pytest.mark.parametrize("block", PANEL_COLUMNS)


@every_precision
@every_block
@pytest.mark.parametrize("rows", check.ROWS[:-1])
def test_inner_products_and_updates_are_within_their_bounds(precision, block, rows):
    check.inner_products(HOST, precision, block, 3, rows)
    check.updates(HOST, precision, block, 3, rows)


@pytest.mark.parametrize("panels", [1, 17, *thorough(33)])
@every_precision
def test_wide_and_narrow_bases(precision, panels):
    for block in (1, 8):
        check.inner_products(HOST, precision, block, panels, 9000)
        check.updates(HOST, precision, block, panels, 9000)


@every_precision
@every_block
@pytest.mark.parametrize(("p", "q"), [(3, 2), (1, 1), (5, 5), (2, 3), (19, 11)])
def test_rotations_beside_and_in_place(precision, block, p, q):
    check.rotations(HOST, precision, block, p, q, 1100)


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize(("precision", "block"), [(FFF, 1), (FDF, 8), (DDD, 4), (DDD, 1)])
def test_devices_that_share_rows_make_the_same_bits(precision, block, devices):
    check.inner_products_of_ranges(HOST, precision, block, 3, 4 * CHUNK_ROWS + 777, devices)


@pytest.mark.parametrize(("precision", "block"), [(FFF, 2), (FDF, 8), (DDD, 1)])
def test_threads_change_no_bit(precision, block):
    basis, w = vectors((5, 100_000, block), precision), vectors((100_000, block), precision, 1)
    coefficients = vectors((5 * block, block), precision, 2).astype(precision.compute)
    made = [
        (
            partials(Host(threads), precision, basis, w).tobytes(),
            subtracted(Host(threads), precision, basis, coefficients, w).tobytes(),
            combined(Host(threads), precision, basis, coefficients, in_place=True).tobytes(),
        )
        for threads in (1, 2, 3)
    ]
    assert made[0] == made[1] == made[2]


@every_precision
@every_block
def test_nothing_is_done_where_it_is_not_wanted(precision, block):
    check.nothing_unless(HOST, precision, block)


@every_precision
@every_block
def test_factors_of_gram_matrices(precision, block):
    check.triangular_factors(HOST, precision, block)
    check.no_column_at_all(HOST, precision, block)


@every_precision
@every_block
def test_dependent_columns_are_found_and_do_not_spoil_the_others(precision, block):
    check.dependent_columns(HOST, precision, block)
    check.two_factors(HOST, precision, block)


@every_precision
@every_block
def test_clamped_factors_give_no_column_up(precision, block):
    check.clamped_factors(HOST, precision, block)
    check.clamped_factors_of_nothing(HOST, precision, block)
    check.clamped_factors_of_hardly_anything(HOST, precision, block)
    check.columns_by_what_they_were(HOST, precision, block)
    check.columns_that_fell(HOST, precision, block)


@every_precision
@every_block
def test_panels_are_widened_and_multiplied_where_told(precision, block):
    check.wide_panels(HOST, precision, block)


@every_precision
@every_block
def test_steps_of_chebyshevs_recurrence(precision, block):
    check.recurrences(HOST, precision, block)


@every_precision
@every_block
def test_panels_are_multiplied_entry_by_entry(precision, block):
    check.diagonals(HOST, precision, block)


@every_precision
@every_block
def test_random_panels(precision, block):
    check.random_panels(HOST, precision, block)


@every_precision
@every_block
def test_norms_that_fell(precision, block):
    check.norms_that_fell(HOST, precision, block)


def test_no_rows_at_all():
    empty = vectors((3, 0, 8), FDF)
    assert partials(HOST, FDF, empty, empty[0]).shape == (0, 24, 8)
    assert subtracted(HOST, FDF, empty, np.zeros((24, 8)), empty[0]).shape == (0, 8)


def test_wrong_types_and_shapes_are_refused():
    basis, w = vectors((3, 300, 4), FDF), vectors((300, 4), FDF)
    coefficients = np.zeros((12, 4))
    with pytest.raises(ValueError, match="panels of 3 columns, but there are kernels for 1, 2, 4, 8"):
        panel_kernels("host:0", FDF, 3)
    kernels, stream = panel_kernels("host:0", FDF, 4), HOST.stream()
    for bad in (basis.astype(float), basis[:, :200], basis[:, ::2], basis[0], basis[:, :, :2]):
        with pytest.raises(ValueError, match=r"panels in FDF are row-major float32 of shape|a basis is of shape"):
            kernels.subtract(stream, bad, coefficients, w)
    for bad in (coefficients.astype(np.float32), coefficients[:8], np.zeros((12, 8))):
        with pytest.raises(ValueError, match="coefficients here are row-major float64 of shape"):
            kernels.subtract(stream, basis, bad, w)
