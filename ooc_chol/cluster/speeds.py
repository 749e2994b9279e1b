"""Rates of one worker: those known on its machine, else a quick measurement on its devices."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean, median

import numpy as np

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.facts import Sharing
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.making import make_block
from ooc_chol.cluster.worker_state import task_room, worker_threads
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.rates.folders import disk_rates
from ooc_chol.dense.rates.lookup import known_rates
from ooc_chol.dense.rates.opened import FAR, OpenedDevice, set_up
from ooc_chol.dense.rates.timing import Call, elapsed, nothing
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.interfaces import AbstractStream
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.registry import kind_of, open_tile_device
from ooc_chol.tasks.tiling import TileGrid

#: Seconds that each kernel is measured for, but three calls at least.
_SECONDS = 0.03
#: Tiles of K of a long product: what a product through residues takes beside its length is spread over so many.
_LONG_TILES = 8
#: Tile rows, their order, and runs of a block that is nearly all planning and opening.
_SMALL_TILE_ROWS, _SMALL_TILE, _SMALL_RUNS = 2, 16, 3


@dataclass(frozen=True)
class WorkerSpeed:
    """Rates of all devices of a worker together."""

    #: Of products, and of POTRF and TRSM of tiles, counted as ``n**3 / 3`` counts them whatever the type of the entries
    flops_per_second: float
    panel_flops_per_second: float
    link_bytes_per_second: float | None  #: From the worker's memory to its devices; None where they compute in it
    run_seconds: float  #: What a run of the engine takes beside its flops: planning and opening
    #: To or from the folder of the Zarr group, whichever is slower; None where that was not measured, or is no folder
    storage_bytes_per_second: float | None = None


def speed_here(
    options: FactorOptions, grid: TileGrid, fmt: PrecisionFormat, sharing: Sharing, store: str | None = None
) -> WorkerSpeed | None:
    """The speed of the worker that runs this, beside others; ``store`` is the path of a group for L.

    Known rates are those that a plan on this machine takes. On the host they hold where one worker has all threads that they were
    measured with; else kernels are measured now, by all workers of the machine at once. Workers of one GPU have a part of its
    rates each. None for products through residues of which no rates are known, and for a GPU whose link nobody knows.
    """
    speed = _computing(options, grid, fmt, sharing)
    disk = None if store is None or "://" in store else disk_rates(store)
    if speed is None or disk is None:
        return speed
    return replace(speed, storage_bytes_per_second=min(disk.read, disk.write) / sharing.machine)


def _computing(options: FactorOptions, grid: TileGrid, fmt: PrecisionFormat, sharing: Sharing) -> WorkerSpeed | None:
    """The speed but for storage."""
    names = resolve_devices(options.devices)
    known = _known(names, grid, fmt, sharing.machine)
    run_seconds = _run_seconds(names)
    if options.fp64 == "residue":
        if known is None or known.residue is None or options.moduli is None:
            return None
        products = _residue_rate(known, grid, options.moduli)
        return _shared(_of_rates(known, grid, names, fmt, products, run_seconds), sharing.gpu)
    if known is not None:
        return _shared(_of_rates(known, grid, names, fmt, known.gemm, run_seconds), sharing.gpu)
    if not device_kind(names[0]).is_in_host_memory:
        return None
    potrf, trsm, gemm = _measured(names[0], grid.nb, fmt, _threads(names))
    return _speed(grid, len(names) / fmt.flops_factor, (potrf, trsm, gemm), None, run_seconds)


def _shared(speed: WorkerSpeed, workers: int) -> WorkerSpeed:
    """The speed of each of so many workers on the same GPUs, which have nothing to themselves but their planning."""
    link = speed.link_bytes_per_second
    return replace(
        speed,
        flops_per_second=speed.flops_per_second / workers,
        panel_flops_per_second=speed.panel_flops_per_second / workers,
        link_bytes_per_second=None if link is None else link / workers,
    )


def _known(names: tuple[str, ...], grid: TileGrid, fmt: PrecisionFormat, sharing: int) -> Rates | None:
    """Rates of this machine, where they are those of this worker."""
    on_host = device_kind(names[0]).is_in_host_memory
    if on_host and (sharing > 1 or _threads(names) != host_threads(1)):
        return None
    return known_rates(grid, "array", "memory", names, fmt)


def _threads(names: tuple[str, ...]) -> int:
    """Threads of a host device, as a task's run has them."""
    return max(1, (worker_threads() or host_threads(1)) // len(names))


def _residue_rate(rates: Rates, grid: TileGrid, moduli: int) -> float:
    """Flops per second of long products through residues, which take ``2 K / product + 1 / accumulate`` seconds an entry."""
    assert rates.residue is not None
    residue, columns = rates.residue.at(moduli), _LONG_TILES * grid.nb
    return 2 * columns / (2 * columns / residue.product + 1 / residue.accumulate)


def _of_rates(
    rates: Rates, grid: TileGrid, names: tuple[str, ...], fmt: PrecisionFormat, products: float, run_seconds: float
) -> WorkerSpeed:
    """The speed by rates of one device."""
    link = None if device_kind(names[0]).is_in_host_memory else len(names) * (rates.memory_fetch or rates.fetch)
    share = len(names) / fmt.flops_factor
    return _speed(grid, share, (rates.potrf, rates.trsm, products), link, run_seconds)


def _speed(
    grid: TileGrid, share: float, kernels: tuple[float, float, float], link: float | None, run_seconds: float
) -> WorkerSpeed:
    """The speed by rates of kernels, POTRF and TRSM weighed as the whole matrix has them."""
    potrf, trsm, gemm = kernels
    flops_potrf, flops_trsm = 1 / 3, (grid.nt - 1) / 2  # in nb**3, for each tile column
    panel = (flops_potrf + flops_trsm) / (flops_potrf / potrf + flops_trsm / trsm)
    return WorkerSpeed(share * gemm, share * panel, link, run_seconds)


@cache
def _measured(name: str, nb: int, fmt: PrecisionFormat, threads: int) -> tuple[float, float, float]:
    """Flops per second of POTRF, TRSM and GEMM of tiles, once in a process; no task of this worker runs meanwhile."""
    with task_room().turn, kind_of(name).calling(), closing(open_tile_device(name, threads, fmt=fmt)) as device:
        device.activate()
        opened = set_up(device, nb, _SECONDS, quick=True, fmt=fmt)
        seconds = _kernel_seconds(opened)
        device.synchronize()
    cube = fmt.flops_factor * float(nb) ** 3
    potrf, trsm, gemm = seconds
    return cube / 3 / potrf, cube / trsm, 2 * cube / gemm


def _kernel_seconds(opened: OpenedDevice) -> tuple[float, float, float]:
    """Seconds of POTRF, TRSM and GEMM."""
    tiles, stream, device = opened.tiles, opened.stream, opened.device
    kernels = device.kernels
    flags = kernels.create_flags(1)
    gemm = partial(kernels.gemm, stream, l_ik=tiles.l_ik, l_jk=tiles.l_jk, k0=opened.nb * FAR)
    opened.timer.put_under_load(partial(gemm, tiles.load))
    each = opened.timer.seconds_each if device_kind(device.name).slows_under_load else partial(_mean_seconds, stream)
    reload = partial(device.copy_between, stream)
    potrf = each(lambda: kernels.potrf(stream, tiles.work, flags, 0), partial(reload, tiles.a_kk, tiles.work))
    trsm = each(lambda: kernels.trsm(stream, tiles.l_kk, tiles.work, FAR), partial(reload, tiles.a_ik, tiles.work))
    return potrf, trsm, each(partial(gemm, tiles.work), nothing)


def _mean_seconds(stream: AbstractStream, call: Call, before: Call) -> float:
    """Mean after one call that warms up: where workers share cores a median would leave out the time that others have them."""
    times: list[float] = []
    while len(times) < 4 or sum(times) < _SECONDS:
        before()
        times.append(elapsed(stream, call))
    return fmean(times[1:])


@cache
def _run_seconds(names: tuple[str, ...]) -> float:
    """Seconds of a run of the engine over a block that has hardly any flops, once in a process: the median of three."""
    grid = TileGrid(_SMALL_TILE_ROWS * _SMALL_TILE, _SMALL_TILE)
    options = FactorOptions(tile_size=_SMALL_TILE, devices=names, fp64="native")
    run = ClusterRun(grid, options, FP64, None, {})
    window, a = BlockGrid(grid, _SMALL_TILE_ROWS).window(BlockPlace(0, 0)), np.eye(grid.n)
    times = []
    for _ in range(_SMALL_RUNS + 1):
        began = time.perf_counter()
        make_block(run, window, [], a)
        times.append(time.perf_counter() - began)
    return median(times[1:])
