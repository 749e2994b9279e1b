"""Measuring the rates of a machine, and storing them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ooc_chol.config import whole_number
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.rates.lookup import stored_rates
from ooc_chol.dense.rates.stored import TYPES_FIGURES
from ooc_chol.dense.rates.together import Measurement, measure_at_once, measure_types, pulled_from
from ooc_chol.hardware.rates_file import check_writable, kept_rates, write_rates
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.kernels import identity
from ooc_chol.kernels.host.blas import blas_threads, host_threads
from ooc_chol.kernels.registry import kind_of
from ooc_chol.precision.moduli import TENSOR_MULTIPLE, ResidueBasis
from ooc_chol.tasks.tiling import TileGrid

#: Seconds that each figure is measured for, at least: on the host, and of links; of kernels on a GPU under load.
MEASURE_SECONDS, SUSTAINED_SECONDS = 0.2, 1.0
#: Seconds of DGEMM before the first figure of a GPU: its clock settles.
WARM_SECONDS = 10.0
#: The same where rates are measured quickly: of figures on any device and of links, and of DGEMM before.
QUICK_SECONDS, QUICK_WARM_SECONDS = 0.02, 0.1
#: Number of moduli at which residues are measured on GPUs; rates at others follow.
MODULI = 13


def measure_rates(
    tile_size: int,
    devices: str | Sequence[str] = "host:0",
    moduli: int | None = None,
    *,
    warm_seconds: float | None = None,
    quick: bool = False,
) -> Rates:
    """Measure kernels and links of a device at one tile order, and store them: later plans predict seconds from them.

    Kernels are measured in float64, float32, complex128 and complex64; the rates that are returned are those of float64.

    Parameters
    ----------
    tile_size : int
        Order of a tile, such as ``oc.plan(A).grid.nb``.
    devices : str or sequence of str
        The device, or several GPUs at once.
    moduli : int, optional
        Moduli at which products through residues are measured; 13 on GPUs when not given, none on the host.
    warm_seconds : float, optional
        Seconds of DGEMM before a GPU is measured: its clock settles.
    quick : bool
        Measure for a second or two: a GPU at the clock of its first moments, which may be a tenth higher than that of a long
        run, and links with little data. Such rates are stored as any others, in place of those at the same tile order, and
        plans say that they are used.

    Returns
    -------
    Rates
        Flops, bytes and entries per second.

    Raises
    ------
    ValueError
        The tile order is not positive, or no multiple of 16 where residues are asked for, or there are several host devices.
    OSError
        The folder of rates cannot be written.

    Notes
    -----
    A few seconds on the host, 30 to 60 on GPUs, which are brought into the state of a long run and kept there. Every kernel works
    on tiles of a covariance factor, and its figure is the mean of the second half of a second. What devices copy from each other
    is measured from the next device; where there is only one, from itself. A file of rates that cannot be read or is damaged is
    replaced.
    """
    names = resolve_devices(devices)
    is_number = isinstance(warm_seconds, int | float) and not isinstance(warm_seconds, bool)
    if warm_seconds is not None and not (is_number and 0 <= warm_seconds < math.inf):
        raise ValueError(f"warm_seconds is {warm_seconds!r:.40}; give a number of seconds, at least 0")
    moduli = _checked(tile_size, names, moduli)
    check_writable()
    belongs_to, threads = identity.machine_identity(names), host_threads(1)
    seconds, link_seconds, warm = _lengths(names[0], warm_seconds, quick=quick)
    with blas_threads(1):
        what = Measurement(
            names,
            tile_size,
            moduli=moduli,
            threads=threads,
            seconds=seconds,
            link_seconds=link_seconds,
            warm_seconds=warm,
            quick=quick,
        )
        figures = measure_at_once(what) | {TYPES_FIGURES: measure_types(what)}
    everything = kept_rates()
    about: dict[str, object] = {"pulled_from": pulled_from(names)} | ({"quick": True} if quick else {})
    everything.setdefault(belongs_to, {})[str(tile_size)] = figures | about
    write_rates(everything)
    rates = stored_rates(TileGrid(tile_size, tile_size), "array", "memory", names)
    assert rates is not None
    return rates


def _lengths(name: str, warm_seconds: float | None, *, quick: bool) -> tuple[float, float, float]:
    """Seconds of each figure of kernels and of links, and of load before."""
    if quick:
        return QUICK_SECONDS, QUICK_SECONDS, QUICK_WARM_SECONDS if warm_seconds is None else warm_seconds
    seconds = SUSTAINED_SECONDS if device_kind(name).slows_under_load else MEASURE_SECONDS
    return seconds, MEASURE_SECONDS, WARM_SECONDS if warm_seconds is None else warm_seconds


def _checked(tile_size: int, names: tuple[str, ...], moduli: int | None) -> int | None:
    """The number of moduli to measure, once the arguments are found to make sense."""
    if whole_number(tile_size, "tile_size") < 1:
        raise ValueError(f"tile_size is {tile_size}, but a tile has at least 1 row")
    if len(names) > 1 and device_kind(names[0]).shares_processor:
        raise ValueError(f"devices is {list(names)}; host devices share the host's cores, so measure one of them")
    fits = tile_size % TENSOR_MULTIPLE == 0
    if moduli is not None and not fits:
        raise ValueError(f"tile_size is {tile_size}, but products through residues take multiples of {TENSOR_MULTIPLE}")
    if moduli is not None:
        ResidueBasis(whole_number(moduli, "moduli"))  # refuses a number that cannot be had
    return MODULI if moduli is None and fits and kind_of(names[0]).gains_by_residues else moduli
