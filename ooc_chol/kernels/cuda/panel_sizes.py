"""How kernels on panels are compiled and launched; asks for no device and no CuPy."""

from __future__ import annotations

from typing import Any, NamedTuple

from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.random_graphs import GOLDEN, MULTIPLIERS, SHIFTS
from ooc_chol.tasks.random_panels import NUMBER_BITS, ROW_WORDS

PANELS, PRODUCTS = ("panel_words.cu", "panels.cu"), ("panel_words.cu", "panel_products.cu")
#: Columns that kernels take at a time, strips of a chunk, and thread blocks of a cluster; as in the source.
TILE, STRIPS, CLUSTER = 8, 8, 8
#: Tiles of V that a thread block of inner products takes at most.
MOST_TILES = 8
#: Tiles of the result that a warp makes at most, and warps of a thread block: more than 8 warps leave room for fewer registers.
_MOST_MADE, _WARPS, _MOST_WARPS = {True: 9, False: 4}, 8, 16
#: Shared memory that lets several thread blocks run on a multiprocessor.
_SHARED_BYTES = 96 << 10
_C_TYPES = {"float32": "float", "float64": "double"}


class DeviceFacts(NamedTuple):
    """What launches depend on."""

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


def matrix_rows(facts: DeviceFacts, precision: Precision) -> int:
    """Rows of the products of float64 matrices that the device has, or 0 where there are none of this precision's."""
    if precision.compute.itemsize == 4 or facts.capability < 80:
        return 0
    return 16 if facts.capability >= 90 else 8


def defines(facts: DeviceFacts, precision: Precision, block: int) -> dict[str, Any]:
    """Macros of both files."""
    names: dict[str, Any] = {
        "STORE": _C_TYPES[precision.storage.name],
        "SUM": _C_TYPES[precision.compute.name],
        "B": block,
        "MMA": matrix_rows(facts, precision),
        "CLUSTER": CLUSTER if facts.capability >= 90 else 1,
        "ROW_WORDS": ROW_WORDS,
        "NUMBER_BITS": NUMBER_BITS,
        "GOLDEN": f"{GOLDEN:#x}ull",
    }
    names |= {f"SHIFT_{number}": shift for number, shift in enumerate(SHIFTS)}
    return names | {f"MULTIPLIER_{number}": f"{each:#x}ull" for number, each in enumerate(MULTIPLIERS)}


def gram_shape(facts: DeviceFacts, precision: Precision, block: int, panels: int, chunks: int) -> tuple[int, int]:
    """Tiles of V that a thread block takes, and thread blocks: fewer tiles where there are too few blocks. Bits go by neither."""
    tiles = -(-panels * block // TILE)
    cluster = CLUSTER if facts.capability >= 90 else 1
    if not matrix_rows(facts, precision):
        most = 2 if block in (2, 4) else 1
    else:
        wanted = -(-2 * facts.processors // (chunks * cluster))  # groups of tiles
        most = max(1, min(MOST_TILES, tiles // wanted))
    groups = -(-tiles // most)
    per_group = most if not matrix_rows(facts, precision) else -(-tiles // groups)
    return per_group, chunks * -(-tiles // per_group) * cluster


def product_shape(facts: DeviceFacts, precision: Precision, block: int, panels: int, made: int) -> ProductShape:
    """How ``panels`` are multiplied to make ``made`` of them; ``ValueError`` where a thread block cannot make a row of these."""
    tiles, out = -(-panels * block // TILE), -(-made * block // TILE)
    uses_matrices = bool(matrix_rows(facts, precision))
    across = -(-out // _MOST_MADE[uses_matrices])
    if across > _MOST_WARPS:
        most = _MOST_WARPS * _MOST_MADE[uses_matrices] * TILE
        raise ValueError(f"a basis of {made * block} columns cannot be made on {facts}: at most {most}")
    each = -(-out // across)
    warps = across * max(1, _WARPS // across)
    tall = 4 if out == 1 else 2
    rows = (8 if uses_matrices else 32) * tall
    reads = (2 if precision.storage.itemsize == 8 else 4) if uses_matrices else 1
    place_bytes = TILE * TILE * precision.compute.itemsize * each * across
    kept = max(1, min(tiles, _SHARED_BYTES // place_bytes))
    names = (("NT", each), ("M", tall), ("WARPS", max(warps, _WARPS)), ("READS", reads))
    blocks = max(1, min(4 if out == 1 else 2, facts.shared_bytes // (kept * place_bytes + 1024)))
    return ProductShape(names, across, warps, warps // across * rows, kept, kept * place_bytes, blocks)
