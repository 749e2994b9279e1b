"""Morton ordering against bits interleaved by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.apps.geostat import inverse_permutation, morton_order

pytestmark = pytest.mark.plan


def key_by_hand(cell):
    return sum(((int(c) >> bit) & 1) << (bit * len(cell) + axis) for axis, c in enumerate(cell) for bit in range(16))


@given(n=st.integers(1, 60), d=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_sites_on_the_lattice_are_sorted_by_interleaved_bits(n, d, seed):
    cells = np.random.default_rng(seed).integers(0, 2**16, size=(n, d))
    cells = np.vstack([np.zeros(d, dtype=int), cells, np.full(d, 2**16 - 1)])  # fixes origin and scale
    order = morton_order(cells / 65535.0 * 8 + 3)
    keys = [key_by_hand(cell) for cell in cells]
    assert [keys[k] for k in order] == sorted(keys)


@given(n=st.integers(1, 60), d=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_inverse_brings_back_the_callers_order(n, d, seed):
    sites = np.random.default_rng(seed).normal(size=(n, d))
    order = morton_order(sites)
    assert np.array_equal(sites[order][inverse_permutation(order)], sites)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_equal_sites_keep_their_order(d):
    assert morton_order(np.full((5, d), 3.25)).tolist() == [0, 1, 2, 3, 4]
    sites = np.tile(np.array([[0.0], [1.0], [0.5]]), (4, d))  # the last of 64 bits is used where d is 4
    assert morton_order(sites).tolist() == [0, 3, 6, 9, 2, 5, 8, 11, 1, 4, 7, 10]


def test_one_scale_for_all_axes_keeps_cells_square():
    # a strip 1 x 100: the short axis must not decide between far ends of the long one
    sites = np.column_stack([np.tile([0.0, 1.0], 50), np.repeat(np.arange(50) * 2.0, 2)])
    ordered = sites[morton_order(sites)]
    assert np.abs(np.diff(ordered[:, 1])).max() <= 4.0


@pytest.mark.parametrize("d", [5, 10, 80])
def test_many_dimensions_are_ordered_by_their_leading_bits(d):
    corners = np.random.default_rng(d).permutation(np.repeat([[0.0], [1.0]], 20, axis=0)) * np.ones(d)
    sites = corners + np.random.default_rng(0).uniform(0, 0.1, size=(40, d))
    near = corners[morton_order(sites)][:, 0]
    assert sorted(morton_order(sites)) == list(range(40))
    # one corner of the cube before the other, unless 64 bits hold none of an axis
    assert np.count_nonzero(np.diff(near)) == 1 or d > 64
