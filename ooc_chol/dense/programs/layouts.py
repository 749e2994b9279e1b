"""How the memory of a device is divided into slots: equal tiles, or what products through residues need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

from ooc_chol.config import format_bytes, whole_pages
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.precision.moduli import ResidueBasis
from ooc_chol.tasks.operations import Pool
from ooc_chol.tasks.tiling import TileGrid


def slot_bytes_of(grid: TileGrid, fmt: PrecisionFormat = FP64) -> int:
    """Bytes of a slot of tiles: the largest one in its widest format, in whole pages."""
    return whole_pages(fmt.itemsize * grid.size(0) ** 2)


class AbstractMemoryLayout(ABC):
    """The pools of slots of one device; it names the engine that works on them."""

    #: How products are computed: ``"native"``, ``"residue"``, or ``"library"`` where a library's routine factors the whole.
    engine: ClassVar[str]
    #: Whose order the engine's steps follow, a name in :data:`ooc_chol.schedulers.SCHEDULERS`.
    scheduler: ClassVar[str]
    #: Number of moduli; None where products are the device's own.
    moduli: int | None

    @abstractmethod
    def slots(self, pool: Pool) -> int:
        """Slots of one pool."""

    @abstractmethod
    def slot_bytes(self, pool: Pool) -> int:
        """Bytes of one slot of a pool."""

    @property
    @abstractmethod
    def arena_bytes(self) -> int:
        """Bytes of all slots."""

    @abstractmethod
    def taken_bytes(self, peak_bytes: int) -> int:
        """Bytes that a program takes of the device whose slots in use are never more than ``peak_bytes``."""

    @abstractmethod
    def capacity_bytes(self, prefetch: int) -> int:
        """Bytes of matrix entries, in the matrix's own type, that the slots hold beside ``prefetch`` tiles in transit."""

    @abstractmethod
    def describe(self, prefetch: int) -> str:
        """The slots in words, of which ``prefetch`` are for tiles in transit."""

    @abstractmethod
    def products_text(self, half_share: float) -> str | None:
        """How products are computed, ``half_share`` of them in FP16, in words; None where as the device does."""

    @abstractmethod
    def key_text(self, widths: Sequence[int]) -> str:
        """How products are computed, as far as bits depend on it; ``widths`` are those of the panels."""


@final
@dataclass(frozen=True)
class TileSlots(AbstractMemoryLayout):
    """Equal slots, each as large as the largest tile."""

    engine = "native"
    scheduler = "left-looking"

    moduli = None

    n_slots: int
    tile_bytes: int  #: Bytes of a slot

    @property
    def arena_bytes(self) -> int:
        return self.n_slots * self.tile_bytes

    def slots(self, pool: Pool) -> int:
        """Slots of one pool: all of them hold tiles."""
        return self.n_slots if pool is Pool.TILE else 0

    def slot_bytes(self, pool: Pool) -> int:
        return self.tile_bytes

    def taken_bytes(self, peak_bytes: int) -> int:
        """Bytes of the slots in use: the rest of the memory is left to others."""
        return peak_bytes

    def capacity_bytes(self, prefetch: int) -> int:
        return (self.n_slots - prefetch) * self.tile_bytes

    def products_text(self, half_share: float) -> None:
        """None, as the device's own arithmetic needs no words."""
        return

    def key_text(self, widths: Sequence[int]) -> str:
        """The engine's name, which is all that bits depend on."""
        return self.engine

    def describe(self, prefetch: int) -> str:
        return f"{self.n_slots} tiles of {format_bytes(self.tile_bytes)} ({prefetch} for prefetch)"


@final
@dataclass(frozen=True)
class WholeMatrix(AbstractMemoryLayout):
    """The matrix as one tile, and a library's routine that factors it where it lies; nothing is cut into steps."""

    engine = "library"
    scheduler = "left-looking"

    moduli = None

    matrix_bytes: int  #: Bytes of the square
    routine: str  #: The routine, as a reader knows it

    @property
    def arena_bytes(self) -> int:
        """Bytes of the square."""
        return self.matrix_bytes

    def slots(self, pool: Pool) -> int:
        """Slots of one pool: one tile."""
        return 1 if pool is Pool.TILE else 0

    def slot_bytes(self, pool: Pool) -> int:
        """Bytes of the square."""
        return self.matrix_bytes

    def taken_bytes(self, peak_bytes: int) -> int:
        """Bytes of the square."""
        return self.matrix_bytes

    def capacity_bytes(self, prefetch: int) -> int:
        """Bytes of the square."""
        return self.matrix_bytes

    def products_text(self, half_share: float) -> str:
        """The routine."""
        return f"{self.routine} of the whole matrix"

    def key_text(self, widths: Sequence[int]) -> str:
        """The routine, which decides on the bits."""
        return f"{self.engine}, {self.routine}"

    def describe(self, prefetch: int) -> str:
        return f"the matrix in {format_bytes(self.matrix_bytes)}"


@final
@dataclass(frozen=True)
class ResidueLayout(AbstractMemoryLayout):
    """Strips of residues, accumulators of their sums, and tiles of the matrix's own type."""

    engine = "residue"
    scheduler = "residues"

    moduli: int
    nb: int  #: Order of a tile
    chunk: int  #: Tile columns of a strip: K of one product is at most ``chunk * nb``
    width: int  #: Most tile columns of a panel
    tiles: int  #: Slots for tiles that are made final, or that TRSM reads
    transit: int  #: Slots for tiles between the store and their conversion
    strips: int  #: Slots for strips
    accumulators: int  #: Slots for the sums of a row
    has_fp16: bool = False  #: Whether a strip holds its entries in FP16, too, and an accumulator sums of their products in FP32
    #: Format of the tiles; a complex entry has two residues a modulus
    fmt: PrecisionFormat = field(default=FP64, repr=False)
    folds: bool = False  #: Whether products leave residues in an accumulator, and not sums that a step of its own folds

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile, a multiple of 8: what an arena is made of."""
        return -(-self.fmt.itemsize * self.nb * self.nb // 8) * 8

    @property
    def planes(self) -> int:
        """Residues of an entry."""
        return self.moduli * (2 if self.fmt.is_complex else 1)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a strip: one a residue, and two for FP16."""
        return self.planes + 2 * self.has_fp16

    @property
    def strip_bytes(self) -> int:
        """Bytes of a strip."""
        return self.entry_bytes * self.nb * self.nb * self.chunk

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of an accumulator: one an entry and residue, or four of sums that are not folded, and four for sums in FP32."""
        return ((1 if self.folds else 4) * self.planes + 4 * self.has_fp16) * self.nb * self.nb * self.width

    @property
    def arena_bytes(self) -> int:
        tiles = (self.tiles + self.transit) * self.tile_bytes
        return tiles + self.strips * self.strip_bytes + self.accumulators * self.accumulator_bytes

    @property
    def entries(self) -> int:
        """Matrix entries that the slots hold."""
        tiles = self.tiles + self.transit + self.strips * self.chunk + self.accumulators * self.width
        return tiles * self.nb * self.nb

    @cached_property
    def basis(self) -> ResidueBasis:
        """The moduli as a basis, with their product and the bits that it holds."""
        return ResidueBasis(self.moduli, self.fmt.is_complex)

    def slots(self, pool: Pool) -> int:
        """Slots of one pool; the kernels keep as many inverses as they need."""
        return {Pool.TILE: self.tiles, Pool.TRANSIT: self.transit, Pool.STRIP: self.strips, Pool.ACCUMULATOR: self.accumulators}[
            pool
        ]

    def capacity_bytes(self, prefetch: int) -> int:
        """Bytes of all entries as those of a tile, whatever they are held as."""
        return self.fmt.itemsize * self.entries

    def products_text(self, half_share: float) -> str:
        """Residues, and what is not."""
        residues = f"residues of {self._moduli_text()} ({self.basis.bits} bits)"
        if not self.has_fp16:
            return f"products through {residues}"
        return f"products in FP16 where norms of L allow it, {100 * half_share:.0f} % expected, the rest through {residues}"

    def key_text(self, widths: Sequence[int]) -> str:
        """The moduli. Which products run in FP16, and their sums in FP32, depend on panels and on the lengths of K."""
        text = f"residue, {self._moduli_text()}"
        if not self.has_fp16:
            return text
        return f"{text}, fp16 by norms, chunks of {self.chunk}, panels {','.join(map(str, widths))}"

    def _moduli_text(self) -> str:
        """The moduli in words: split ones are others."""
        return f"{self.moduli} {'split ' if self.basis.is_split else ''}moduli"

    def taken_bytes(self, peak_bytes: int) -> int:
        """All: residues have the device's memory to themselves from the start."""
        return self.arena_bytes

    def describe(self, prefetch: int) -> str:
        return (
            f"{self.strips} strips of {format_bytes(self.strip_bytes)} ({self.chunk} tiles), "
            f"{self.accumulators} accumulators of {format_bytes(self.accumulator_bytes)} ({self.width} tiles), "
            f"{self.tiles + self.transit} tiles of {format_bytes(self.tile_bytes)} ({self.transit} in transit)"
        )

    def slot_bytes(self, pool: Pool) -> int:
        return {Pool.STRIP: self.strip_bytes, Pool.ACCUMULATOR: self.accumulator_bytes}.get(pool, self.tile_bytes)
