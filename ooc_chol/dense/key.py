"""The arithmetic key: everything that the bits of a factor depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass

#: Tiles of one K-segment: each update multiplies operands of one tile's K, at absolute multiples of the tile size.
K_SEGMENT_TILES = 1


@dataclass(frozen=True)
class ArithmeticKey:
    """Two runs with equal keys on equal input give the same factor, to the bit.

    Budget, eviction, panel widths, number of devices of one kind, row order and policy are not in the key.
    """

    n: int  #: Orders of the matrix and of a tile
    nb: int
    formats: str  #: Storage formats of the tiles
    engine: str  #: How products are computed; ``"native"`` is the device's own arithmetic
    k_segment_tiles: int  #: Tiles of K that one product sums; 0 where sums are exact, in any order
    trsm: str  #: How the triangular solve is done
    kernels: str  #: Shapes of the calls into which a tile kernel is divided
    device_model: str  #: Kind of the device
    library: str  #: BLAS library, version and kernel architecture
    threads_per_call: int  #: Threads that share one BLAS call

    def to_dict(self) -> dict[str, str | int]:
        """The key as plain data, as stored with a factor."""
        return asdict(self)
