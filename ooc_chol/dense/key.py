"""The arithmetic key: everything that the bits of a factor depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ooc_chol.dense.planner.plan import Plan
from ooc_chol.kernels.registry import kernel_facts
from ooc_chol.precision.tile_formats import PrecisionMap

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


def arithmetic_key(plan: Plan) -> ArithmeticKey:
    """The key of ``plan`` on this machine."""
    return ArithmeticKey(
        n=plan.grid.n,
        nb=plan.grid.nb,
        formats=plan.fmt.name if plan.precision is None else _formats_text(plan.precision),
        k_segment_tiles=K_SEGMENT_TILES if plan.layout.moduli is None else 0,
        threads_per_call=1,
        **machine_part(plan),
    )


def machine_part(plan: Plan) -> dict[str, str]:
    """The part of the key of ``plan`` that its engine and this machine decide on, by the names of :class:`ArithmeticKey`."""
    facts = kernel_facts(plan.devices, plan.fmt)
    return {
        "engine": plan.layout.key_text([panel.width for panel in plan.panels]),
        "trsm": facts.trsm,
        "kernels": facts.kernels,
        "device_model": facts.model,
        "library": facts.library,
    }


def _formats_text(precision: PrecisionMap) -> str:
    """Storage and products of all tiles, packed, a digit each: bytes of an entry."""
    stored = "".join(str(fmt.itemsize) for fmt in precision.formats)
    return f"mixed {stored} products {''.join(str(fmt.itemsize) for fmt in precision.products)}"
