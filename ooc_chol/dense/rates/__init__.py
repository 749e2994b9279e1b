"""Rates of this machine: measured once on request, stored, and looked up by every later plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.rates.generation import generation_rate
from ooc_chol.dense.rates.stored import (
    Everything,
    check_writable,
    rates_of,
    read_rates,
    usable_rates,
    warn_of,
    write_rates,
)
from ooc_chol.dense.rates.stored import rates_path as rates_path
from ooc_chol.dense.rates.together import Measurement, measure_at_once, pulled_from
from ooc_chol.hardware.registry import device_kind, is_here
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.registry import kernel_facts, kind_of
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.precision.moduli import TENSOR_MULTIPLE, ResidueBasis
from ooc_chol.tasks.tiling import TileGrid

#: Seconds that each figure is measured for, at least: on the host, and of links; of kernels on a GPU under load.
MEASURE_SECONDS, SUSTAINED_SECONDS = 0.2, 1.0
#: Seconds of DGEMM before the first figure of a GPU: its clock settles.
WARM_SECONDS = 10.0
#: Number of moduli at which residues are measured on GPUs; rates at others follow.
MODULI = 13


def machine_identity(devices: str | Sequence[str] = "host:0") -> str:
    """What the rates belong to: model, library, kernels, number of devices; of the host its cores and the threads on a tile."""
    names = _names(devices)
    facts = kernel_facts(names)
    several = f" devices={len(names)}" if len(names) > 1 else ""
    return f"{facts.model} {facts.library}, {facts.trsm}, {facts.kernels}{kind_of(names[0]).rate_facts()}{several}"


def stored_rates(grid: TileGrid, source: str, store: str, devices: str | Sequence[str] = "host:0") -> Rates | None:
    """Rates measured on this machine at ``grid``'s tile size, or None."""
    names = _names(devices)
    if not all(map(is_here, names)) or source in ("slices", "device-array"):
        return None
    everything = usable_rates()
    measured = [everything.get(machine_identity(those), {}).get(str(grid.nb)) for those in dict.fromkeys((names, names[:1]))]
    figures = next((found for found in measured if found is not None), None)
    try:
        return None if figures is None else rates_of(figures, grid.nb, source, store)
    except ValueError as error:
        warn_of(error)
        return None


def rates_for(source: AbstractSource, grid: TileGrid, store: str, devices: str | Sequence[str] = "host:0") -> Rates | None:
    """As :func:`stored_rates`, with the rate of a tile function measured on the first device, unless that was done before."""
    rates = stored_rates(grid, source.name, store, devices)
    if rates is None or source.name != "function":
        return rates
    # What is made is then checked for NaN, which is the cheapest generation that was measured.
    seconds_an_entry = 1 / generation_rate(source, grid, _names(devices)[0]) + 1 / rates.generate
    return replace(rates, generate=1 / seconds_an_entry)


def measure_rates(
    tile_size: int,
    devices: str | Sequence[str] = "host:0",
    moduli: int | None = None,
    *,
    warm_seconds: float | None = None,
) -> Rates:
    """Measure kernels and links of a device at one tile size, and store them.

    A few seconds on the host, 20 to 40 on GPUs: they are brought into the state of a long run and kept there, every kernel works
    on tiles of a covariance factor, and its figure is the mean of the second half of :data:`SUSTAINED_SECONDS`. What devices
    copy from each other is measured from the next device; where there is only one, from itself (:func:`pulled_from`). A file
    that cannot be read or is damaged is replaced.
    """
    names = _names(devices)
    moduli = _checked(tile_size, names, moduli)
    check_writable()
    identity, threads = machine_identity(names), host_threads(1)
    seconds = SUSTAINED_SECONDS if device_kind(names[0]).slows_under_load else MEASURE_SECONDS
    warm = WARM_SECONDS if warm_seconds is None else warm_seconds
    with blas_threads(1):
        figures = measure_at_once(
            Measurement(
                names, tile_size, moduli=moduli, threads=threads, seconds=seconds, link_seconds=MEASURE_SECONDS, warm_seconds=warm
            )
        )
    everything = _kept()
    everything.setdefault(identity, {})[str(tile_size)] = figures | {"pulled_from": pulled_from(names)}
    write_rates(everything)
    rates = stored_rates(TileGrid(tile_size, tile_size), "array", "memory", names)
    assert rates is not None
    return rates


def _names(devices: str | Sequence[str]) -> tuple[str, ...]:
    """One or more names as a tuple."""
    return (devices,) if isinstance(devices, str) else tuple(devices)


def _checked(tile_size: int, names: tuple[str, ...], moduli: int | None) -> int | None:
    """The number of moduli to measure, once the arguments are found to make sense."""
    if tile_size < 1:
        raise ValueError(f"tile_size is {tile_size}, but a tile has at least 1 row")
    if len(names) > 1 and device_kind(names[0]).shares_processor:
        raise ValueError(f"devices is {list(names)}; host devices share the host's cores, so measure one of them")
    fits = tile_size % TENSOR_MULTIPLE == 0
    if moduli is not None and not fits:
        raise ValueError(f"tile_size is {tile_size}, but products through residues take multiples of {TENSOR_MULTIPLE}")
    if moduli is not None:
        ResidueBasis(moduli)  # refuses a number that cannot be had
    return MODULI if moduli is None and fits and kind_of(names[0]).gains_by_residues else moduli


def _kept() -> Everything:
    """What was measured before; nothing where the file cannot be used."""
    try:
        return read_rates()
    except ValueError:
        return {}
