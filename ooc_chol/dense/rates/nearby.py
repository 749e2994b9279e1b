"""Rates at a tile order that nobody measured, from those that were measured near it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from math import inf, log
from typing import Any

from ooc_chol.dense.programs.cost import NO_RATES, Rates, RatesOrigin, ResidueRates

#: Most that two measured orders may differ by, as a factor, to tell what lies between.
MOST_GAP = 4
#: Order from which on larger tiles have the rates of the largest that was measured, and order up to which smaller ones have
#: those of the smallest: there hardly anything but the time between two operations counts.
LEAST_LARGE, MOST_SMALL = 1024, 16


def rates_nearby(measured: Mapping[int, Rates], nb: int) -> Rates | None:
    """Rates at tile order ``nb`` from those at other orders; None where none of these is near enough."""
    orders = sorted(measured)
    for below, above in pairwise(orders):
        if below < nb < above <= MOST_GAP * below:
            return _between(measured[below], measured[above], nb)
    if orders and nb > orders[-1] >= LEAST_LARGE:
        return _above(measured[orders[-1]], nb)
    if orders and nb < orders[0] <= MOST_SMALL:
        return replace(measured[orders[0]], tile_size=nb, origin=_origin(measured[orders[0]]))
    return None


def _above(rates: Rates, nb: int) -> Rates:
    """Those of the largest order; a POTRF is made of POTRF of that order and, for all else, of products."""
    blocks = (rates.tile_size / nb) ** 2
    return replace(rates, tile_size=nb, potrf=1 / (blocks / rates.potrf + (1 - blocks) / rates.gemm), origin=_origin(rates))


def _between(below: Rates, above: Rates, nb: int) -> Rates:
    """The geometric mean of both, weighted by the logarithms of their orders."""
    share = log(nb / below.tile_size) / log(above.tile_size / below.tile_size)
    residue = None
    if below.residue is not None and above.residue is not None:
        residue = _mean_residues(below.residue, above.residue.at(below.residue.moduli), share)
    means: dict[str, Any] = {
        entry.name: _mean(getattr(below, entry.name), getattr(above, entry.name), share)
        for entry in fields(Rates)
        if entry.name not in (*NO_RATES, "tile_size")
    }
    return replace(below, **means, tile_size=nb, residue=residue, origin=_origin(below, above))


def _mean_residues(below: ResidueRates, above: ResidueRates, share: float) -> ResidueRates:
    """The same of residues, of one number of moduli."""
    names = [entry.name for entry in fields(ResidueRates) if entry.name != "moduli"]
    means: dict[str, Any] = {name: _mean(getattr(below, name), getattr(above, name), share) for name in names}
    return replace(below, **means)


def _mean(below: float | None, above: float | None, share: float) -> float | None:
    """A mean of two rates; None and infinity, which say that one was not measured, stay."""
    if below is None or above is None:
        return None
    return inf if inf in (below, above) else float(below) ** (1 - share) * float(above) ** share


def _origin(*rates: Rates) -> RatesOrigin:
    """Scaled where one of them is of another type, quick where one of them was measured quickly."""
    origins = {each.origin for each in rates}
    return next((origin for origin in (RatesOrigin.SCALED, RatesOrigin.QUICK) if origin in origins), RatesOrigin.NEARBY)
