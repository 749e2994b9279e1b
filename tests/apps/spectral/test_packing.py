"""Packing of components by weight, against every subset of small sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.spectral import fill, grain, nearest_sum, pack, packing, ways

pytestmark = pytest.mark.host

whole = st.lists(st.integers(1, 40), min_size=1, max_size=9)


def all_sums(weights):
    """The sum of every subset."""
    sums = {0.0}
    for weight in weights:
        sums |= {each + weight for each in sums}
    return sorted(sums)


@given(weights=whole, share=st.floats(0, 1))
def test_nearest_sum_is_that_of_all_subsets(weights, share):
    wanted = share * sum(weights)
    found = nearest_sum(np.array(weights, float), wanted)
    assert found in all_sums(weights)
    assert abs(found - wanted) == pytest.approx(min(abs(each - wanted) for each in all_sums(weights)))


@given(weights=whole, share=st.floats(0, 1), slack=st.floats(0, 3))
def test_packs_exactly_where_some_subset_does(weights, share, slack):
    wanted, array = share * sum(weights), np.array(weights, float)
    chosen = pack(array, wanted - slack, wanted + slack)
    best = min(abs(each - wanted) for each in all_sums(weights))
    if chosen is None:
        assert best > slack - 1e-6
    else:
        assert abs(array[chosen].sum() - wanted) == pytest.approx(best, abs=1e-6)


def test_packs_scaled_weights_as_whole_ones():
    weights = np.array([6.0, 10.0, 14.0, 22.0])
    assert grain(weights) == 2.0
    assert weights[pack(weights, 24.0, 24.0)].tolist() == [10.0, 14.0]
    assert pack(weights, 25.0, 25.0) is None and pack(weights, 25.0, 25.9) is None


def test_packs_weights_that_are_not_whole_largest_first():
    weights = np.array([0.5, 1.25, 2.25, 0.125])
    assert grain(weights) == 0.0 and nearest_sum(weights, 1.0) is None
    assert weights[pack(weights, 2.3, 2.4)].tolist() == [2.25, 0.125]
    assert pack(weights, 2.0, 2.2) is None


def test_packs_too_many_for_the_tables_largest_first(monkeypatch):
    weights = np.array([30.0, 20.0, 7.0, 3.0])
    monkeypatch.setattr(packing, "_TABLE_BYTES", 1)
    assert weights[pack(weights, 30.0, 30.0)].tolist() == [30.0]
    monkeypatch.setattr(packing, "_SHIFTED_BITS", 1)
    assert nearest_sum(weights, 30.0) is None


@given(weights=whole, share=st.floats(0, 1))
def test_every_way_can_be_filled_up(weights, share):
    array = np.array(weights, float)
    total, wanted = array.sum(), np.rint(share * array.sum())
    for way in ways(array, wanted, wanted, 1.0):
        placed = array[way.sides == 0].sum()
        own = array[way.straddler]
        assert 0 <= way.least <= way.most <= own
        assert np.sort(np.r_[np.flatnonzero(way.sides >= 0), way.fillers, way.straddler]).tolist() == [*range(len(array))]
        for weight in {np.ceil(way.least), np.floor(way.most)}:
            filled = array[way.fillers][fill(array[way.fillers], wanted - placed - weight)].sum()
            assert placed + weight + filled == wanted
        assert total - wanted >= array[way.sides == 1].sum()


def test_straddlers_are_the_one_left_over_and_others_that_do():
    # 50 | 30 30, of which 55 are wanted: half of the 50, or a sixth of a 30
    found = ways(np.array([50.0, 30.0, 30.0]), 55.0, 55.0, 1.0)
    assert [(way.straddler, way.least) for way in found] == [(2, 5.0), (0, 25.0)]


def test_isolated_vertices_fill_up():
    (way,) = ways(np.array([90.0, *[1.0] * 10]), 50.0, 50.0, 1.0)
    assert way.straddler == 0 and (way.least, way.most) == (40.0, 50.0) and len(way.fillers) == 10
