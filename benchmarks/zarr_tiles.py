"""Tiles of L to a folder of this machine and back, from one thread: our Zarr groups, a factor file, and Zarr's own calls.

All write the same tiles of random numbers, one after the other, and read them again from the system's cache into memory that is
there; nothing waits for the disk. Zarr's own array has the chunks and the codecs of ours, and is given or asked for one chunk
at a time. Ways take turns. A line has bytes per second of each repeat, the best and the median of them, and how busy the
machine was with other work.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import Options, Parser, in_turn, seconds_of
from ooc_chol.dense.stores.choice import create_kept, open_kept
from ooc_chol.tasks.tiling import TileGrid

FOLDER = "cluster"
#: Each way, and the name of what it makes.
WAYS = {"group": "L.zarr", "file": "L.ooc", "zarr": "plain.zarr"}
Tile = np.ndarray


def ours(place: Path, grid: TileGrid, tile: Tile, out: Tile) -> Iterator[float]:
    """Seconds of writing all tiles to a store of ours, then of reading them; a group or a file, by its name."""
    store = create_kept(place, grid)

    def write() -> None:
        for index in grid.tiles():
            store.write(index, tile)

    yield seconds_of(write)[0]
    store.complete()
    store.close()
    found = open_kept(place)

    def read() -> None:
        for index in grid.tiles():
            found.read(index, out)

    yield seconds_of(read)[0]
    found.close()


def plain(place: Path, grid: TileGrid, tile: Tile, out: Tile) -> Iterator[float]:
    """The same by Zarr's own calls, on an array with chunks and codecs of ours."""
    import zarr
    from zarr.codecs import BytesCodec, Crc32cCodec

    codecs: dict[str, Any] = {"serializer": BytesCodec(endian="little"), "compressors": [Crc32cCodec()]}
    array = zarr.create_array(place, shape=(grid.n, grid.n), chunks=(grid.nb, grid.nb), dtype="float64", **codecs)
    parts = [
        (slice(grid.start(i), grid.start(i) + grid.nb), slice(grid.start(j), grid.start(j) + grid.nb)) for i, j in grid.tiles()
    ]

    def write() -> None:
        for part in parts:
            array[part] = tile

    yield seconds_of(write)[0]
    found = zarr.open_array(place, mode="r")

    def read() -> None:
        for part in parts:
            out[...] = found[part]

    yield seconds_of(read)[0]


def measured(n: int, nb: int, repeats: int, folder: Path) -> Iterator[dict[str, Any]]:
    """All ways with tiles of one order."""
    grid = TileGrid(n, nb)
    tile, out = np.random.default_rng(0).standard_normal((nb, nb)), np.zeros((nb, nb))

    def both(way: str) -> tuple[float, ...]:
        place = folder / WAYS[way]
        seconds = tuple((plain if way == "zarr" else ours)(place, grid, tile, out))
        assert np.array_equal(out, tile)
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        return seconds

    for way, seconds in in_turn({way: partial(both, way) for way in WAYS}, repeats).items():
        figures: dict[str, Any] = {"nb": nb, "way": way, "nbytes": (nbytes := grid.n_tiles * tile.nbytes)}
        for name, taken in zip(("write", "read"), zip(*seconds, strict=True), strict=True):
            rates = [nbytes / each for each in taken]
            figures[f"{name}_bytes_per_second"] = {"best": max(rates), "median": statistics.median(rates), "all": rates}
        yield figures


TAKES = {"tile_sizes": [512, 2048], "repeats": 7, "folder": Path}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--n", type=int, default=8192, help="a multiple of all orders of tiles")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Run all."""
    # load: processes that wanted a core; above 0 the machine was busy with other work
    what = "tiles from and to the system's cache, one thread"
    options.about = {"what": what, "load_before": os.getloadavg()[0], "n": options.n}
    for nb in options.tile_sizes:
        if options.n % nb:
            raise ValueError(f"--n {options.n} is no multiple of {nb}: all tiles are to be of one shape")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            yield from measured(options.n, nb, options.repeats, Path(folder))
