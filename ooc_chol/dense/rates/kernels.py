"""Rates of the tile kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np

from ooc_chol.dense.rates.opened import FAR, OpenedDevice
from ooc_chol.formats import FP32
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.interfaces import FinalTile
from ooc_chol.kernels.registry import kind_of


def measure_kernels(opened: OpenedDevice, warm_seconds: float) -> dict[str, float]:
    """Flops per second of each kernel, seconds between operations, and entries per second of what is done beside them.

    GEMM comes last, right behind the others, so that all refer to one state of the device.
    """
    timer, tiles, nb = opened.timer, opened.tiles, opened.nb
    stream, kernels, flags = opened.stream, opened.device.kernels, opened.device.kernels.create_flags(1)
    columns, first = count(FAR), nb * FAR
    gemm = partial(kernels.gemm, stream, l_ik=tiles.l_ik, l_jk=tiles.l_jk, k0=first)
    timer.put_under_load(partial(gemm, tiles.load), warm_seconds)
    reload = partial(_reload, opened)
    seconds = {
        "potrf": timer.seconds_each(lambda: kernels.potrf(stream, tiles.work, flags, 0), reload(tiles.a_kk)),
        "invert": timer.seconds_each(lambda: kernels.prepare_trsm(stream, tiles.l_kk, next(columns))),
        "trsm": timer.seconds_each(lambda: kernels.trsm(stream, tiles.l_kk, tiles.work, FAR), reload(tiles.a_ik)),
        "syrk": timer.seconds_each(lambda: kernels.syrk(stream, tiles.work, tiles.l_ik, k0=first)),
        "generate": timer.seconds_each(lambda: kernels.check_finite(stream, tiles.work, False, flags, 0)),
        "gemm": timer.seconds_each(partial(gemm, tiles.work)),
    }
    if kind_of(opened.device.name).computes_float32:
        seconds |= _float32_seconds(opened)
    cube = float(nb) ** 3
    work = {"potrf": cube / 3, "trsm": cube, "syrk": cube, "gemm": 2 * cube, "trsm_float32": cube, "gemm_float32": 2 * cube}
    rates = {name: work.get(name, float(nb) ** 2) / each for name, each in seconds.items()}
    return rates | {"launch": _launch_seconds(stream)}


def _float32_seconds(opened: OpenedDevice) -> dict[str, float]:
    """Seconds of kernels on the host that change a float32 tile; of TRSM with what makes the tile final."""
    timer, stream, device, tiles = opened.timer, opened.stream, opened.device, opened.tiles
    kernels, norms, final = device.kernels, device.kernels.create_norms(1), FinalTile(0, False)
    a_ik, l_ik, l_jk, work = (tile.astype(np.float32) for tile in (tiles.a_ik, tiles.l_ik, tiles.l_jk, tiles.work))

    def solve() -> None:
        kernels.trsm(stream, tiles.l_kk, work, FAR)
        kernels.finish(stream, work, FP32, norms, final)

    return {
        "trsm_float32": timer.seconds_each(solve, partial(device.copy_between, stream, a_ik, work)),
        "gemm_float32": timer.seconds_each(partial(kernels.gemm, stream, work, l_ik, l_jk, k0=opened.nb * FAR)),
    }


def measure_typed_kernels(opened: OpenedDevice) -> dict[str, float]:
    """The same of the kernels of one type: flops of real numbers per second, and entries per second of the check for NaN.

    The load between the calls are products of that type.
    """
    timer, tiles, nb, stream, kernels = opened.timer, opened.tiles, opened.nb, opened.stream, opened.device.kernels
    flags, first = kernels.create_flags(1), opened.nb * FAR
    gemm = partial(kernels.gemm, stream, l_ik=tiles.l_ik, l_jk=tiles.l_jk, k0=first)
    timer.put_under_load(partial(gemm, tiles.load))
    reload = partial(_reload, opened)
    seconds = {
        "potrf": timer.seconds_each(lambda: kernels.potrf(stream, tiles.work, flags, 0), reload(tiles.a_kk)),
        "trsm": timer.seconds_each(lambda: kernels.trsm(stream, tiles.l_kk, tiles.work, FAR), reload(tiles.a_ik)),
        "syrk": timer.seconds_each(lambda: kernels.syrk(stream, tiles.work, tiles.l_ik, k0=first)),
        "generate": timer.seconds_each(lambda: kernels.check_finite(stream, tiles.work, False, flags, 0)),
        "gemm": timer.seconds_each(partial(gemm, tiles.work)),
    }
    cube = opened.fmt.flops_factor * float(nb) ** 3
    work = {"potrf": cube / 3, "trsm": cube, "syrk": cube, "gemm": 2 * cube}
    return {name: work.get(name, float(nb) ** 2) / each for name, each in seconds.items()}


def _reload(opened: OpenedDevice, tile: Tile) -> Callable[[], None]:
    """Function that copies ``tile`` over the tile that kernels work on."""
    return partial(opened.device.copy_between, opened.stream, tile, opened.tiles.work)


def _launch_seconds(stream: AbstractStream) -> float:
    """Seconds between two operations of one stream, each recorded as a worker records it."""
    times = 200
    began = time.perf_counter()
    for _ in range(times):
        stream.record()
    stream.synchronize()
    return (time.perf_counter() - began) / times
