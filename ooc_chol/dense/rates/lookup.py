"""Looking up the rates that a plan predicts seconds from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from math import inf, log
from typing import Any

from ooc_chol.calls.machine import Machine
from ooc_chol.dense.programs.cost import NO_RATES, Rates, RatesOrigin, ResidueRates
from ooc_chol.dense.rates.nominal import nominal_rates
from ooc_chol.dense.rates.types import scaled_to, single_speed, typed_rates_of
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.rates_file import warn_of
from ooc_chol.hardware.registry import is_here
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.tasks.tiling import TileGrid

#: Order of what a tile function makes to be measured, where the matrix is one tile: that would take as long as making it.
_MOST_SAMPLED = 512


def stored_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] | Machine = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates of a type measured on this machine at ``grid``'s tile size, else those of float64 scaled to it, or None."""
    if source == "slices":
        return None  # what is behind slices brings A as fast as it does
    machine = _machine(devices)
    figures = next((found for each in machine.measured if (found := each.get(str(grid.nb))) is not None), None)
    try:
        return None if figures is None else typed_rates_of(figures, grid.nb, source, store, fmt, machine.names[0])
    except ValueError as error:
        warn_of(error)
        return None


def nearby_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] | Machine = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates at ``grid``'s tile size from those measured on this machine near it, or None."""
    if source == "slices":
        return None
    machine = _machine(devices)
    for figures in machine.measured:
        try:
            measured = {
                int(nb): typed_rates_of(found, int(nb), source, store, fmt, machine.names[0]) for nb, found in figures.items()
            }
        except ValueError as error:
            warn_of(error)
            continue
        if (found := rates_nearby(measured, grid.nb)) is not None:
            return found
    return None


def known_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] | Machine = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates of a type measured on this machine at ``grid``'s tile size or near it, else nominal ones of its GPUs, else None."""
    machine = _machine(devices)
    measured = stored_rates(grid, source, store, machine, fmt) or nearby_rates(grid, source, store, machine, fmt)
    if measured is not None:
        return measured
    nominal = nominal_rates(machine.names, grid.nb, source, store) if all(map(is_here, machine.names)) else None
    if nominal is not None and fmt != FP64:
        nominal = scaled_to(nominal, fmt, single_speed(machine.names[0]))
    if nominal is not None and nominal.model is not None:
        say_nominal(nominal.model)
    return nominal


def rates_for(source: AbstractSource, grid: TileGrid, store: str, machine: Machine, fmt: PrecisionFormat = FP64) -> Rates | None:
    """As :func:`known_rates`, with the rate of a tile function measured on the first device, unless that was done before.

    Beside nominal rates nothing is measured: that would open the device before a plan is made.
    """
    rates = known_rates(grid, source.name, store, machine, fmt)
    if rates is None or rates.origin is RatesOrigin.NOMINAL or source.name != "function":
        return rates
    from ooc_chol.dense.rates.generation import generation_rate  # it opens devices, which other sources need not

    if grid.nt == 1:
        grid = TileGrid(grid.n, min(grid.nb, _MOST_SAMPLED))
    # What is made is then checked for NaN, which is the cheapest generation that was measured.
    seconds_an_entry = 1 / generation_rate(source, grid, machine.names[0], fmt) + 1 / rates.generate
    return replace(rates, generate=1 / seconds_an_entry)


def _machine(devices: str | Sequence[str] | Machine) -> Machine:
    """The machine of a call, or of devices that may be elsewhere."""
    return devices if isinstance(devices, Machine) else Machine(devices, must_exist=False)


@cache
def say_nominal(model: str) -> None:
    """Say, once in a process, that plans use nominal rates.

    A message of the logger ``"ooc_chol"``, which Python prints where nobody configures logging. A warning would fail where
    warnings are errors, and nothing is wrong here.
    """
    import logging  # most processes never need it

    logging.getLogger("ooc_chol").warning(
        "ooc_chol: plans and predicted seconds follow nominal rates of %s; `ooc-chol bench rates` measures this machine's", model
    )


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
