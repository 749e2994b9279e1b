"""Rates at a tile order that nobody measured follow from those near it, and from nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.dense import NO_RATES, Rates, RatesOrigin, rates_nearby
from tests.plan.rates import H200_RATES, UNIT_RATES

#: Figures of rates; None, as of float32 here, stays so.
NUMBERS = [
    entry.name for entry in fields(Rates) if entry.name not in (*NO_RATES, "tile_size") and getattr(UNIT_RATES, entry.name)
]


def at(nb: int, factor: float = 1.0, rates: Rates = UNIT_RATES) -> Rates:
    """Rates at an order, all numbers multiplied."""
    numbers = {name: getattr(rates, name) for name in NUMBERS}
    return replace(rates, tile_size=nb, **{name: value * factor for name, value in numbers.items()})


@given(below=st.integers(1, 4096), times=st.floats(1.5, 4.0), share=st.floats(0.01, 0.99), factor=st.floats(0.1, 10))
def test_between_two_orders_rates_are_between_theirs(below, times, share, factor):
    above = int(below * times)
    nb = int(below + share * (above - below))
    if not below < nb < above:
        return
    one, other = at(below), at(above, factor)
    found = rates_nearby({below: one, above: other}, nb)
    assert (found.tile_size, found.origin) == (nb, RatesOrigin.NEARBY)
    for name in NUMBERS:
        ends = sorted((getattr(one, name), getattr(other, name)))
        assert ends == [inf, inf] or ends[0] * (1 - 1e-12) <= getattr(found, name) <= ends[1] * (1 + 1e-12)


@pytest.mark.parametrize(
    ("orders", "nb"),
    [((), 64), ((64,), 65), ((64,), 48), ((512,), 1024), ((64, 512), 128), ((64, 128), 32), ((64, 128, 512), 2048)],
)
def test_far_from_what_was_measured_there_are_none(orders, nb):
    assert rates_nearby({order: at(order) for order in orders}, nb) is None


def test_larger_tiles_have_the_rates_of_the_largest_but_for_potrf():
    largest = replace(at(1024), gemm=100.0, potrf=10.0)
    found = rates_nearby({256: at(256), 1024: largest}, 4096)
    assert 10.0 < found.potrf < 100.0
    assert 1 / found.potrf == pytest.approx(1 / 16 / 10 + 15 / 16 / 100)
    assert replace(found, potrf=10.0, tile_size=1024, origin=RatesOrigin.MEASURED) == largest


def test_the_smallest_tiles_have_the_rates_of_order_16():
    assert rates_nearby({16: at(16), 64: at(64)}, 10) == replace(at(16), tile_size=10, origin=RatesOrigin.NEARBY)


def test_residues_are_told_where_both_orders_have_them_in_as_many_moduli():
    one, other = at(1024, rates=H200_RATES), at(4096, rates=H200_RATES)
    assert rates_nearby({1024: one, 4096: other}, 2048).residue.product == pytest.approx(one.residue.product)
    fewer = replace(other, residue=one.residue.at(10))
    assert rates_nearby({1024: one, 4096: fewer}, 2048).residue.product == pytest.approx(one.residue.product)
    assert rates_nearby({1024: one, 4096: replace(other, residue=None)}, 2048).residue is None


def test_what_was_measured_quickly_stays_so():
    quick = replace(at(64), origin=RatesOrigin.QUICK)
    assert rates_nearby({64: quick, 128: at(128)}, 100).origin is RatesOrigin.QUICK
