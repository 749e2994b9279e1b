"""Rates of this machine: measured once on request, stored, and looked up by every later plan."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import cache_directory
from ooc_chol.interfaces import AbstractStream
from ooc_chol.kernels.blas import blas_threads
from ooc_chol.machine import device_facts, host_threads, is_here, open_device, page_locked
from ooc_chol.memory.sources import as_source
from ooc_chol.memory.sources_base import AbstractSource, SourceTier
from ooc_chol.memory.store import FileStore
from ooc_chol.memory.store_array import MemoryStore
from ooc_chol.planning.cost import Rates
from ooc_chol.tiling import TileGrid

#: Seconds that each figure is measured for, at least.
MEASURE_SECONDS = 0.2
#: Tile columns in front of those at which products are measured: whole segments of K for any tile size.
_FAR = 1 << 20
#: Tile rows of the matrix that is read and written for the links.
_LINK_TILE_ROWS = 6


def rates_path() -> Path:
    """File that holds the measured rates of this user's machines."""
    return cache_directory() / "rates.json"


def machine_identity(device: str = "host:0") -> str:
    """What the rates belong to: model and library, and for the host its cores and the threads that share a tile."""
    facts = device_facts((device,))
    on_host = f" threads={host_threads(1)} cores={os.cpu_count()}" if facts.model == "host" else ""
    return f"{facts.model} {facts.library}{on_host}"


def stored_rates(grid: TileGrid, source: str, store: str, device: str = "host:0") -> Rates | None:
    """Rates measured on this machine at ``grid``'s tile size, or None.

    Parameters
    ----------
    grid : TileGrid
        The tiles.
    source : str
        Kind of source, ``"array"``, ``"file"``, ``"slices"`` or ``"function"``; a matrix behind slices has no rate that could
        be known before.
    store : str
        Kind of store, ``"memory"`` or ``"file"``.
    device : str
        Name of the device; one that is not here has no rates.

    Raises
    ------
    ValueError
        The file of rates is damaged; the text names it.
    """
    if not is_here(device):
        return None
    figures = _stored().get(machine_identity(device), {}).get(str(grid.nb))
    if figures is None or source in ("slices", "device-array"):
        return None
    try:
        links = figures["links"]
        read = links["array" if source == "function" else source]
        kernels = {name: figures[name] for name in ("potrf", "trsm", "syrk", "gemm", "launch", "generate")}
        return Rates(tile_size=grid.nb, source=read, fetch=links[f"{store}-read"], write=links[f"{store}-write"], **kernels)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(repr(error)) from error


def rates_for(source: AbstractSource, grid: TileGrid, store: str, device: str = "host:0") -> Rates | None:
    """As :func:`stored_rates`, with the rate of a tile function measured by two calls on the device, the first to warm up."""
    rates = stored_rates(grid, source.name, store, device)
    if rates is None or source.name != "function":
        return rates
    rows, cols = grid.span(grid.nt - 1), grid.span(0)
    with closing(open_device(device)) as opened:
        opened.prepare(source.prepare)
        stream = opened.create_stream("rates")
        tile = opened.allocate(1, _page(8 * len(rows) * len(cols)), grid.size(0)).tile(0, (len(rows), len(cols)))
        seconds = [_timed(stream, lambda: opened.generate(stream, source.function, rows, cols, tile)) for _ in range(2)]
    return replace(rates, generate=len(rows) * len(cols) / seconds[-1])


def measure_rates(tile_size: int, device: str = "host:0") -> Rates:
    """Measure kernels and links of a device at one tile size, and store them; a few seconds.

    Parameters
    ----------
    tile_size : int
        Order of a tile.
    device : str
        Name of the device.

    Returns
    -------
    Rates
        For a matrix in memory and L in memory; the figures for files are stored with them.

    Raises
    ------
    ValueError
        ``tile_size`` is smaller than 1, or the file of rates is damaged.
    OSError
        The folder of :func:`rates_path` cannot be written.
    """
    if tile_size < 1:
        raise ValueError(f"tile_size is {tile_size}, but a tile has at least 1 row")
    everything, identity, threads = _stored(), machine_identity(device), host_threads(1)
    with blas_threads(1):
        figures = _measure_kernels(tile_size, device, threads) | {"links": _measure_links(tile_size, device)}
    everything.setdefault(identity, {})[str(tile_size)] = figures
    path = rates_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.partial")
    unfinished.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    rates = stored_rates(TileGrid(tile_size, tile_size), "array", "memory", device)
    assert rates is not None
    return rates


def _stored() -> dict[str, dict[str, dict[str, Any]]]:
    """Everything measured so far: figures by machine and tile size."""
    try:
        loaded = json.loads(rates_path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # neither UTF-8 nor JSON
        raise _damaged(str(error)) from error
    machines = list(loaded.values()) if isinstance(loaded, dict) else [None]
    if not all(isinstance(sizes, dict) and all(isinstance(figures, dict) for figures in sizes.values()) for sizes in machines):
        raise _damaged("it does not hold figures by machine and tile size")
    return dict(loaded)


def _damaged(why: str) -> ValueError:
    """Describe a file of rates that cannot be used."""
    return ValueError(f"{rates_path()} is damaged ({why}); remove it and measure again with `ooc-chol bench rates`")


def _page(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages."""
    return -(-nbytes // 4096) * 4096


def _timed(stream: AbstractStream, enqueue: Callable[[], None]) -> float:
    """Seconds of what ``enqueue`` enqueues, between two events of its stream."""
    start = stream.record()
    enqueue()
    end = stream.record()
    end.synchronize()
    return (end.time_ns() - start.time_ns()) / 1e9


def _seconds_each(stream: AbstractStream, enqueue: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """Median seconds of one operation, over :data:`MEASURE_SECONDS` and at least three, after one that warms up."""
    times: list[float] = []
    while len(times) < 4 or (sum(times) < MEASURE_SECONDS and len(times) < 1000):
        before()
        times.append(_timed(stream, enqueue))
    return float(np.median(times[1:]))


def _random_tile(rng: np.random.Generator, nb: int) -> NDArray[np.float64]:
    """A positive definite tile without the cost of a product: a symmetric random matrix, its diagonal made heavy."""
    a = rng.uniform(-1.0, 1.0, (nb, nb))
    return a + a.T + 2 * nb * np.eye(nb)


def _measure_kernels(nb: int, name: str, threads: int) -> dict[str, float]:
    """Flops per second of each kernel, seconds between operations, and entries per second of the device's cheapest generation."""
    rng = np.random.default_rng(0)
    grid = TileGrid(2 * nb, nb)
    store = MemoryStore(grid)
    for index in grid.tiles():
        store.write(index, _random_tile(rng, nb))
    with page_locked([name], filled=store.host_memory()), closing(open_device(name, threads)) as device:
        arena = device.allocate(grid.n_tiles, _page(8 * nb * nb), nb)
        stream, kernels, flags = device.create_stream("rates"), device.kernels, device.create_flags(1)
        spd, left, work = (arena.tile(slot, (nb, nb)) for slot in range(3))

        def reload() -> None:
            device.copy_in(stream, store, (0, 0), work)

        device.copy_in(stream, store, (0, 0), spd)
        device.copy_in(stream, store, (1, 0), left)
        potrf = _seconds_each(stream, lambda: kernels.potrf(stream, work, flags, 0), reload)
        kernels.potrf(stream, spd, flags, 0)
        trsm = _seconds_each(stream, lambda: kernels.trsm(stream, spd, work, 0), reload)
        far = nb * _FAR  # from the first columns, whose products are divided most
        syrk = _seconds_each(stream, lambda: kernels.syrk(stream, work, left, k0=far), reload)
        gemm = _seconds_each(stream, lambda: kernels.gemm(stream, work, spd, left, k0=far), reload)
        check = _seconds_each(stream, lambda: kernels.check_finite(stream, work, False, flags, 0), reload)
        launch = _measure_launch(stream)
    cube = float(nb) ** 3
    rates = {"potrf": cube / 3 / potrf, "trsm": cube / trsm, "syrk": cube / syrk, "gemm": 2 * cube / gemm}
    return rates | {"launch": launch, "generate": nb * nb / check}


def _measure_launch(stream: AbstractStream) -> float:
    """Seconds between two operations of one stream, each recorded as a worker records it."""
    count = 200
    began = time.perf_counter()
    for _ in range(count):
        stream.record()
    stream.synchronize()
    return (time.perf_counter() - began) / count


def _measure_links(nb: int, name: str) -> dict[str, float]:
    """Bytes per second of reading A from memory and file, and of both stores: in isolation, files in the page cache."""
    grid = TileGrid(_LINK_TILE_ROWS * nb, nb)
    a = np.ones((grid.n, grid.n))
    memory, array = MemoryStore(grid), SourceTier(as_source(a), grid)
    with (
        tempfile.TemporaryDirectory(prefix="ooc_chol_rates_") as folder,
        page_locked([name], fresh=memory.host_memory(), filled=array.host_memory()),
        closing(open_device(name)) as device,
    ):
        np.save(f"{folder}/a.npy", a)
        file = FileStore.create(f"{folder}/l.ooc", grid)
        with_file = SourceTier(as_source(f"{folder}/a.npy"), grid)
        tile = device.allocate(1, _page(8 * nb * nb), nb).tile(0, (nb, nb))
        stream = device.create_stream("rates")
        reads = {"array": array, "file": with_file, "memory-read": memory, "file-read": file}
        links = {
            f"{store.name}-write": _link_rate(stream, grid, partial(device.copy_out, stream, tile, store))
            for store in (memory, file)
        }
        for kind, tier in reads.items():
            links[kind] = _link_rate(stream, grid, lambda index, tier=tier: device.copy_in(stream, tier, index, tile))  # type: ignore[misc]
        with_file.close()
        file.discard()
    return links


def _link_rate(stream: AbstractStream, grid: TileGrid, move: Callable[[tuple[int, int]], None]) -> float:
    """Rate of ``move`` over all tiles of the lower triangle, the second time round."""

    def move_all() -> None:
        for index in grid.tiles():
            move(index)

    _timed(stream, move_all)
    return grid.n_tiles * 8 * grid.nb * grid.nb / _timed(stream, move_all)
