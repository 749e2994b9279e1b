"""Rates of this machine: measured once on request, stored, and looked up by every later plan."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import cache_directory
from ooc_chol.devices.host import HostDevice, HostStream
from ooc_chol.interfaces import AbstractTier
from ooc_chol.kernels.blas import blas_identity, current_threads
from ooc_chol.kernels.host import HostFlags, HostKernels
from ooc_chol.memory.sources import as_source
from ooc_chol.memory.sources_base import AbstractSource, SourceTier
from ooc_chol.memory.store import FileStore
from ooc_chol.memory.store_array import MemoryStore
from ooc_chol.memory.store_base import AbstractStore
from ooc_chol.planning.cost import Rates
from ooc_chol.tiling import TileGrid

#: Seconds that each figure is measured for, at least.
MEASURE_SECONDS = 0.2
#: Tile rows of the matrix that is read and written for the links.
_LINK_TILE_ROWS = 6


def rates_path() -> Path:
    """File that holds the measured rates of this user's machines."""
    return cache_directory() / "rates.json"


def machine_identity() -> str:
    """What the rates belong to: library, threads per call and cores."""
    return f"host {' '.join(blas_identity().values())} threads={current_threads()} cores={os.cpu_count()}"


def stored_rates(grid: TileGrid, source: str, store: str) -> Rates | None:
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

    Raises
    ------
    ValueError
        The file of rates is damaged; the text names it.
    """
    figures = _stored().get(machine_identity(), {}).get(str(grid.nb))
    if figures is None or source == "slices":
        return None
    try:
        links = figures["links"]
        read = links["array" if source == "function" else source]
        kernels = {name: figures[name] for name in ("potrf", "trsm", "syrk", "gemm", "launch", "generate")}
        return Rates(tile_size=grid.nb, source=read, fetch=links[f"{store}-read"], write=links[f"{store}-write"], **kernels)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(repr(error)) from error


def rates_for(source: AbstractSource, grid: TileGrid, store: str) -> Rates | None:
    """As :func:`stored_rates`, with the rate of a tile function measured by one call of it, on a tile away from the diagonal."""
    rates = stored_rates(grid, source.name, store)
    if rates is None or source.name != "function":
        return rates
    tile = np.zeros(grid.shape(grid.nt - 1, 0))  # touched before, so that no page fault is timed
    began = time.perf_counter()
    source.read_block(grid.span(grid.nt - 1), grid.span(0), tile)
    return replace(rates, generate=tile.size / (time.perf_counter() - began))


def measure_rates(tile_size: int) -> Rates:
    """Measure kernels and links of the host at one tile size, and store them; a few seconds.

    Parameters
    ----------
    tile_size : int
        Order of a tile.

    Returns
    -------
    Rates
        For a matrix in memory and L in memory; the figures for files are stored with them.

    Raises
    ------
    OSError
        The folder of :func:`rates_path` cannot be written.
    """
    figures = _measure_kernels(tile_size) | {"links": _measure_links(TileGrid(_LINK_TILE_ROWS * tile_size, tile_size))}
    everything = _stored()
    everything.setdefault(machine_identity(), {})[str(tile_size)] = figures
    path = rates_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    rates = stored_rates(TileGrid(tile_size, tile_size), "array", "memory")
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


def _seconds_each(operation: Callable[[], None]) -> float:
    """Median seconds of one call, over :data:`MEASURE_SECONDS` and at least three calls, after one that warms up."""
    operation()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < MEASURE_SECONDS and len(times) < 1000):
        began = time.perf_counter()
        operation()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _measure_kernels(nb: int) -> dict[str, float]:
    """Flops per second of each kernel, seconds between operations, and entries per second of a nominal tile function."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((nb, nb)) for _ in range(3))
    spd = a @ a.T + nb * np.eye(nb)
    device = HostDevice("host:0", HostKernels(), HostFlags)
    try:
        stream, kernels, flags = device.create_stream("rates"), device.kernels, device.create_flags(1)

        def run(enqueue: Callable[[], None]) -> float:
            def operation() -> None:
                enqueue()
                stream.synchronize()

            return _seconds_each(operation)

        launch = _measure_launch(stream)
        work = spd.copy()
        copying = run(lambda: stream.enqueue(lambda: np.copyto(work, spd)))

        def factor() -> None:
            stream.enqueue(lambda: np.copyto(work, spd))
            kernels.potrf(stream, work, flags, 0)

        potrf = max(run(factor) - copying, 1e-9)
        syrk, gemm = run(lambda: kernels.syrk(stream, c, a)), run(lambda: kernels.gemm(stream, c, a, b))
        factor()
        trsm = run(lambda: kernels.trsm(stream, work, b, 0))
        cube = float(nb) ** 3
        generate = nb * nb / run(lambda: stream.enqueue(lambda: _fill(a, c)))
        return {
            "potrf": cube / 3 / potrf,
            "trsm": cube / trsm,
            "syrk": cube / syrk,
            "gemm": 2 * cube / gemm,
            "launch": launch,
            "generate": generate,
        }
    finally:
        device.close()


def _fill(a: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Stand for a cheap tile function: one exponential per entry."""
    np.exp(a, out=out)


def _measure_launch(stream: HostStream) -> float:
    """Seconds between two operations of one stream, both recorded as a worker records them."""
    count = 200
    began = time.perf_counter()
    for _ in range(count):
        stream.record()
        stream.enqueue(lambda: None)
    stream.synchronize()
    return (time.perf_counter() - began) / count


def _measure_links(grid: TileGrid) -> dict[str, float]:
    """Bytes per second of reading A from memory and file, and of both stores: in isolation, files in the page cache."""
    a = np.ones((grid.n, grid.n))
    links = {"array": _read_rate(SourceTier(as_source(a), grid), grid)}
    memory = MemoryStore(grid)
    links |= _store_rates("memory", memory, grid)
    with tempfile.TemporaryDirectory(prefix="ooc_chol_rates_") as folder:
        np.save(f"{folder}/a.npy", a)
        with_file = SourceTier(as_source(f"{folder}/a.npy"), grid)
        links["file"] = _read_rate(with_file, grid)
        with_file.close()
        store = FileStore.create(f"{folder}/l.ooc", grid)
        links |= _store_rates("file", store, grid)
        store.discard()
    return links


def _store_rates(name: str, store: AbstractStore, grid: TileGrid) -> dict[str, float]:
    """Write every tile, then read every tile."""
    tile = np.ones(grid.shape(0, 0))
    writes = _bytes_per_second(lambda index: store.write(index, tile), grid)
    return {f"{name}-write": writes, f"{name}-read": _read_rate(store, grid)}


def _read_rate(tier: AbstractTier, grid: TileGrid) -> float:
    """Bytes per second of reading every tile into one that is warm."""
    tile = np.ones(grid.shape(0, 0))
    return _bytes_per_second(lambda index: tier.read(index, tile), grid)


def _bytes_per_second(move: Callable[[tuple[int, int]], None], grid: TileGrid) -> float:
    """Rate of ``move`` over all tiles of the lower triangle, the second time round."""
    for index in grid.tiles():
        move(index)
    began = time.perf_counter()
    for index in grid.tiles():
        move(index)
    return grid.n_tiles * 8 * grid.nb * grid.nb / (time.perf_counter() - began)
