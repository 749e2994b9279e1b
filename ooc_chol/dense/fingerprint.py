"""Fingerprint of a matrix: its order, its type, and hashes of a sample of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.array import MemoryStore
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.registry import open_tile_device
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.tasks.tiling import TileGrid

#: Order of a block that is read: 32 KiB of float64.
BLOCK = 64
#: Blocks that are drawn beside the three corners of the triangle; every third is on the diagonal, where nuggets are.
DRAWN = 13


@dataclass(frozen=True)
class Fingerprint:
    """A matrix as far as its order, the type of its entries and sixteen blocks of them tell.

    What changes elsewhere in A is not seen: no sample can. The blocks depend on the order alone, not on tiles.
    """

    n: int
    dtype: str
    blocks: tuple[tuple[int, int, str], ...]  #: First row and column of each block, and its hash

    def to_dict(self) -> dict[str, Any]:
        """The fingerprint as plain data."""
        return {"n": self.n, "dtype": self.dtype, "blocks": [list(block) for block in self.blocks]}

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """The fingerprint that :meth:`to_dict` told; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        blocks = tuple((int(row), int(col), str(digest)) for row, col, digest in content["blocks"])
        return cls(int(content["n"]), str(content["dtype"]), blocks)

    def differences(self, other: Fingerprint) -> dict[str, tuple[str, str]]:
        """Differences from ``other``, by name: the value here, and the one in the other."""
        found = {"n": (self.n, other.n), "dtype of A": (self.dtype, other.dtype)}
        differing = {name: (str(here), str(there)) for name, (here, there) in found.items() if here != there}
        changed = [pair for pair in zip(self.blocks, other.blocks, strict=False) if pair[0] != pair[1]]
        if not differing and changed:
            ((row, col, here), (*_, there)), order = changed[0], min(BLOCK, self.n)
            place = f"entries of A in A[{row}:{row + order}, {col}:{col + order}]"
            more = f" and in {len(changed) - 1} more of {len(self.blocks)} sampled blocks" if len(changed) > 1 else ""
            differing[place + more] = f"hash {here}", f"hash {there}"
        return differing


def fingerprint_of(source: AbstractSource, fmt: PrecisionFormat, devices: Sequence[str]) -> Fingerprint:
    """The fingerprint of ``source``; a tile function is called on the first of ``devices``, which makes its tiles in a run."""
    places = sampled_blocks(source.n)
    is_made_there = source.bytes_per_entry == 0 and not device_kind(devices[0]).is_in_host_memory
    read = _blocks_of_device(source, fmt, devices[0], places) if is_made_there else _blocks_of(source, fmt, places)
    return fingerprint_from(source.n, source.dtype, places, read)


def fingerprint_from(
    n: int, dtype: np.dtype[Any], places: Sequence[tuple[int, int]], read: Iterable[NDArray[Any]]
) -> Fingerprint:
    """The fingerprint by blocks that somebody read, in the type of the factor."""
    blocks = tuple((row, col, _digest(block, row == col)) for (row, col), block in zip(places, read, strict=True))
    return Fingerprint(n, dtype.name, blocks)


def sampled_blocks(n: int) -> list[tuple[int, int]]:
    """First row and column of the blocks that are looked at in a matrix of order ``n``: on the diagonal, or below it."""
    last = n - min(BLOCK, n)
    places = [(0, 0), (last, last), (last, 0)]
    for at in range(DRAWN):
        col = _drawn(n, 2 * at) % (last + 1)
        room = last - (col + BLOCK) + 1  # rows at which a block below the diagonal may begin
        places.append((col, col) if at % 3 == 0 or room < 1 else (col + BLOCK + _drawn(n, 2 * at + 1) % room, col))
    return [place for place in dict.fromkeys(places) if place[0] == place[1] or place[0] >= place[1] + BLOCK]


def _drawn(n: int, at: int) -> int:
    """A number that every version of everything draws alike."""
    return int(xxhash.xxh3_64_intdigest(f"{n} {at}".encode()))


def _blocks_of(source: AbstractSource, fmt: PrecisionFormat, places: Sequence[tuple[int, int]]) -> Iterator[NDArray[Any]]:
    """Blocks that the host reads or makes."""
    order = min(BLOCK, source.n)
    for row, col in places:
        block = np.empty((order, order), fmt.dtype)
        source.read_block(range(row, row + order), range(col, col + order), block)
        yield block


def _blocks_of_device(
    source: AbstractSource, fmt: PrecisionFormat, name: str, places: Sequence[tuple[int, int]]
) -> Iterator[NDArray[Any]]:
    """Blocks that a device makes."""
    order = min(BLOCK, source.n)
    store = MemoryStore(TileGrid(order, order), fmt=fmt)
    with closing(store), closing(open_tile_device(name, fmt=fmt)) as device:
        device.prepare(source.prepare)
        stream = device.create_stream("fingerprint")
        tile = device.allocate(1, whole_pages(fmt.itemsize * order**2), order).tile(0, (order, order), fmt.dtype.name)
        for row, col in places:
            with device.current():
                device.generate(stream, source.function, range(row, row + order), range(col, col + order), tile)
                device.copy_out(stream, tile, store, (0, 0))
                stream.synchronize()
            block = np.empty((order, order), fmt.dtype)
            store.read((0, 0), block)
            yield block


def _digest(block: NDArray[Any], is_diagonal: bool) -> str:
    """The hash of a block; above the diagonal anything may stand."""
    seen = np.tril(block) if is_diagonal else block
    return str(xxhash.xxh3_64_hexdigest(seen.tobytes()))
