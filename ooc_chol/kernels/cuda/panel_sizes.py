"""How kernels on panels are compiled and launched; asks for no device and no CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.kernels.interfaces.panels import MOST_PARTS
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.random_graphs import GOLDEN, MULTIPLIERS, SHIFTS
from ooc_chol.tasks.random_panels import NUMBER_BITS, ROW_WORDS

PANELS, PRODUCTS = ("panel_words.cu", "panels.cu"), ("panel_words.cu", "panel_products.cu")
#: Columns that kernels take at a time, strips of a chunk, thread blocks of a cluster, and threads of a warp; as in the source.
TILE, STRIPS, CLUSTER, WARP = 8, 8, 8, 32
#: Partial sums of several devices as a kernel takes them, by value.
_PARTS = np.dtype([("at", np.uint64, (MOST_PARTS,)), ("chunks", np.uint64, (MOST_PARTS,)), ("count", np.uint64)])
#: Tiles of V that a thread block of inner products takes at most.
MOST_TILES = 8
#: Tiles of V that a thread block of inner products takes without products of matrices, by columns of a panel.
_LANE_TILES = {1: 1, 2: 2, 4: 2, 8: 4}
#: Tiles of the result that a warp makes at most, and warps of a thread block: more than 8 warps leave room for fewer registers.
_MOST_MADE, _WARPS, _MOST_WARPS = 9, 8, 16
#: The same where lanes have whole rows: two rows each, or one where otherwise there would be too many warps.
_LANE_MADE, _MOST_LANE_MADE = 4, 8
#: Shared memory that lets several thread blocks run on a multiprocessor.
_SHARED_BYTES = 96 << 10
_C_TYPES = {"float32": "float", "float64": "double"}


class DeviceFacts(NamedTuple):
    """Facts of a device on which launches depend."""

    capability: int  #: Ten times the compute capability
    processors: int  #: Multiprocessors
    shared_bytes: int  #: Shared memory that a thread block may have


class ProductShape(NamedTuple):
    """How a product of a basis with coefficients is launched."""

    defines: tuple[tuple[str, int], ...]
    across: int  #: Warps that share the columns of the same rows
    warps: int
    block_rows: int
    kept: int  #: Tiles of V whose coefficients are in shared memory at once
    shared_bytes: int
    blocks: int  #: Thread blocks on a multiprocessor


def parts_of(parts: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """Addresses of partial sums, and chunks of each, as one argument of a kernel."""
    found = np.zeros(1, _PARTS)
    found["at"][0, : len(parts)], found["chunks"][0, : len(parts)] = zip(*parts, strict=True)
    found["count"] = len(parts)
    return found


def matrix_rows(facts: DeviceFacts, precision: Precision) -> int:
    """Rows of the products of float64 matrices that the device has, or 0 where there are none of this precision's."""
    if precision.compute.itemsize == 4 or facts.capability < 80:
        return 0
    return 16 if facts.capability >= 90 else 8


def defines(facts: DeviceFacts, precision: Precision, block: int, files: tuple[str, ...]) -> dict[str, Any]:
    """Macros of all kernels in some files."""
    names: dict[str, Any] = {
        "STORE": _C_TYPES[precision.storage.name],
        "SUM": _C_TYPES[precision.compute.name],
        "B": block,
        "MMA": _gram_rows(facts, precision, block) if files == PANELS else matrix_rows(facts, precision),
        "CLUSTER": _cluster(facts),
        "MOST_PARTS": MOST_PARTS,
        "ROW_WORDS": ROW_WORDS,
        "NUMBER_BITS": NUMBER_BITS,
        "GOLDEN": f"{GOLDEN:#x}ull",
    }
    names |= {f"SHIFT_{number}": shift for number, shift in enumerate(SHIFTS)}
    return names | {f"MULTIPLIER_{number}": f"{each:#x}ull" for number, each in enumerate(MULTIPLIERS)}


def _gram_rows(facts: DeviceFacts, precision: Precision, block: int) -> int:
    """As :func:`matrix_rows`, for inner products: those of single columns are none of matrices, and lanes read rows abreast."""
    return 0 if block == 1 else matrix_rows(facts, precision)


def _cluster(facts: DeviceFacts) -> int:
    """Thread blocks that share a chunk: those of a cluster, where the device has clusters."""
    return CLUSTER if facts.capability >= 90 else 1


def gram_shape(facts: DeviceFacts, precision: Precision, block: int, panels: int, chunks: int) -> tuple[int, int]:
    """Tiles of V that a thread block takes, and thread blocks: fewer tiles where there are too few blocks. Bits go by neither."""
    tiles, cluster = -(-panels * block // TILE), _cluster(facts)
    if not _gram_rows(facts, precision, block):
        per_group = _LANE_TILES[block]
    else:
        wanted = -(-2 * facts.processors // (chunks * cluster))  # groups of tiles
        groups = -(-tiles // max(1, min(MOST_TILES, tiles // wanted)))
        per_group = -(-tiles // groups)
    return per_group, chunks * -(-tiles // per_group) * cluster


def product_shape(facts: DeviceFacts, precision: Precision, block: int, panels: int, made: int) -> ProductShape:
    """How ``panels`` are multiplied to make ``made`` of them; ``ValueError`` where a thread block cannot make a row of these."""
    tiles, out = -(-panels * block // TILE), -(-made * block // TILE)
    uses_matrices = bool(matrix_rows(facts, precision))
    is_crowded = not uses_matrices and out > _MOST_WARPS * _LANE_MADE
    most_made = _MOST_MADE if uses_matrices else _MOST_LANE_MADE if is_crowded else _LANE_MADE
    across = -(-out // most_made)
    if across > _MOST_WARPS:
        most = _MOST_WARPS * most_made * TILE
        raise ValueError(f"a basis of {made * block} columns cannot be made on {facts}: at most {most}")
    each = -(-out // across)
    warps = across * max(1, _WARPS // across)
    tall = 4 if out == 1 else 1 if is_crowded else 2
    rows = (8 if uses_matrices else 32) * tall
    reads = (16 if each < 6 else 8) // precision.storage.itemsize if uses_matrices else 1
    place_bytes = TILE * TILE * precision.compute.itemsize * each * across
    kept = max(1, min(tiles, min(_SHARED_BYTES, facts.shared_bytes) // place_bytes))
    if warps > _WARPS or (precision.compute.itemsize == 8 and not uses_matrices):
        blocks = 1
    else:
        blocks = 3 if out == 1 and uses_matrices and precision.storage.itemsize == 4 else 2
    blocks = max(1, min(blocks, facts.shared_bytes // (kept * place_bytes + 1024)))
    names = (("NT", each), ("M", tall), ("WARPS", max(warps, _WARPS)), ("BLOCKS", blocks), ("READS", reads))
    return ProductShape(names, across, warps, warps // across * rows, kept, kept * place_bytes, blocks)
