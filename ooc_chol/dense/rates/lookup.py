"""Looking up the rates that a plan predicts seconds from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from ooc_chol.dense.programs.cost import Rates, RatesOrigin
from ooc_chol.dense.rates.nearby import rates_nearby
from ooc_chol.dense.rates.nominal import nominal_rates
from ooc_chol.dense.rates.types import scaled_to, single_speed, typed_rates_of
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.rates_file import usable_rates, warn_of
from ooc_chol.hardware.registry import is_here
from ooc_chol.kernels import identity
from ooc_chol.kernels.identity import as_names
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.tasks.tiling import TileGrid

#: Order of what a tile function makes to be measured, where the matrix is one tile: that would take as long as making it.
_MOST_SAMPLED = 512


def stored_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates of a type measured on this machine at ``grid``'s tile size, else those of float64 scaled to it, or None."""
    names = as_names(devices)
    if not all(map(is_here, names)) or source == "slices":
        return None  # what is behind slices brings A as fast as it does
    everything = usable_rates()
    measured = [
        everything.get(identity.machine_identity(those), {}).get(str(grid.nb)) for those in dict.fromkeys((names, names[:1]))
    ]
    figures = next((found for found in measured if found is not None), None)
    try:
        return None if figures is None else typed_rates_of(figures, grid.nb, source, store, fmt, names[0])
    except ValueError as error:
        warn_of(error)
        return None


def nearby_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates at ``grid``'s tile size from those measured on this machine near it, or None."""
    names = as_names(devices)
    if not all(map(is_here, names)) or source == "slices":
        return None
    everything = usable_rates()
    for those in dict.fromkeys((names, names[:1])):
        try:
            measured = {
                int(nb): typed_rates_of(found, int(nb), source, store, fmt, those[0])
                for nb, found in everything.get(identity.machine_identity(those), {}).items()
            }
        except ValueError as error:
            warn_of(error)
            continue
        if (found := rates_nearby(measured, grid.nb)) is not None:
            return found
    return None


def known_rates(
    grid: TileGrid, source: str, store: str, devices: str | Sequence[str] = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """Rates of a type measured on this machine at ``grid``'s tile size or near it, else nominal ones of its GPUs, else None."""
    names = as_names(devices)
    measured = stored_rates(grid, source, store, names, fmt) or nearby_rates(grid, source, store, names, fmt)
    if measured is not None:
        return measured
    nominal = nominal_rates(names, grid.nb, source, store) if all(map(is_here, names)) else None
    if nominal is not None and fmt != FP64:
        nominal = scaled_to(nominal, fmt, single_speed(names[0]))
    if nominal is not None and nominal.model is not None:
        say_nominal(nominal.model)
    return nominal


def rates_for(
    source: AbstractSource, grid: TileGrid, store: str, devices: str | Sequence[str] = "host:0", fmt: PrecisionFormat = FP64
) -> Rates | None:
    """As :func:`known_rates`, with the rate of a tile function measured on the first device, unless that was done before.

    Beside nominal rates nothing is measured: that would open the device before a plan is made.
    """
    rates = known_rates(grid, source.name, store, devices, fmt)
    if rates is None or rates.origin is RatesOrigin.NOMINAL or source.name != "function":
        return rates
    from ooc_chol.dense.rates.generation import generation_rate  # it opens devices, which other sources need not

    if grid.nt == 1:
        grid = TileGrid(grid.n, min(grid.nb, _MOST_SAMPLED))
    # What is made is then checked for NaN, which is the cheapest generation that was measured.
    seconds_an_entry = 1 / generation_rate(source, grid, as_names(devices)[0], fmt) + 1 / rates.generate
    return replace(rates, generate=1 / seconds_an_entry)


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
