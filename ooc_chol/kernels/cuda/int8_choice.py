"""Which of cuBLASLt's kernels multiplies int8 planes fastest, by shape; pure, so that it is tested without a GPU.

Sums of int8 products in int32 are exact, so that the choice changes no bit. What cuBLAS takes by itself for a batch (tiles of
128 x 64) reaches 76 TFLOP/s of FP64 at 13 moduli on an H200; tiles of 128 x 256 in clusters of two reach 100. Planes multiplied
one by one at long K have 99.8 with cuBLAS's choice (256 x 128, clusters of 1 x 2), 103.7 with the same tile in clusters of
2 x 1, with 4 % less energy (``benchmarks/results/residue_rates/h200-narrow-shapes.json``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: From these columns and K on, planes are multiplied one by one.
_LEAST_COLUMNS, _LEAST_K = 8192, 16384
#: Least rows for which a kernel is wished.
_LEAST_ROWS = 1024


class Kernel(NamedTuple):
    """Identity of one of cuBLASLt's kernels, in its own numbers."""

    tile: int  #: Tile of a thread block: 20 is 128 x 128, 23 is 128 x 256 and 24 is 256 x 128
    cluster: int | None  #: Thread blocks of a cluster: 3 is 2 x 1 and 5 is 1 x 2; as a wish, None is any


#: Kernels for one plane, the fastest first, measured at 2048 x 8192 and K = 32,768: 103.7 and 100.4 TFLOP/s.
_OF_A_PLANE = (Kernel(24, 3), Kernel(24, 5))
#: Kernels for a batch of planes, by least K, measured at 2048 x 2048.
_OF_A_BATCH = ((6144, (Kernel(23, None),)), (3072, (Kernel(20, None),)))


def planes_in_a_call(planes: int, cols: int, inner: int) -> int:
    """Planes that one call multiplies: one where products are large, else all."""
    return 1 if cols >= _LEAST_COLUMNS and inner >= _LEAST_K else planes


def wished(planes: int, rows: int, inner: int) -> tuple[Kernel, ...]:
    """Kernels to take for a call, the fastest first; none where cuBLASLt's own choice is as good."""
    if rows < _LEAST_ROWS:
        return ()
    if planes == 1:
        return _OF_A_PLANE
    return next((kernels for least, kernels in _OF_A_BATCH if inner >= least), ())


def choose(offered: Sequence[Kernel], wishes: Sequence[Kernel]) -> int:
    """Index of the first kernel offered that fulfils the first wish that any fulfils; 0, the library's choice, if none does."""
    for tile, cluster in wishes:
        for at, kernel in enumerate(offered):
            if kernel.tile == tile and cluster in (None, kernel.cluster):
                return at
    return 0
