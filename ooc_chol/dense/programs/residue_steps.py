"""What a device does in a factorization through residues: pools of slots, operations on them, and steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ooc_chol.dense.programs.program import Link, StepKind, StreamKind, bytes_by_link, link_of
from ooc_chol.interfaces import BlockKey
from ooc_chol.precision.moduli import ResidueBasis
from ooc_chol.tasks.tiling import Index, TileGrid


class Pool(IntEnum):
    """Kinds of slots."""

    TILE = 0  #: FP64 tiles of A that become tiles of L, and diagonal tiles
    TRANSIT = 1  #: FP64 tiles of L between the store and their conversion
    STRIP = 2  #: residues of one tile row by one chunk of tile columns
    ACCUMULATOR = 3  #: sums in residues of one tile row by a panel's tile columns
    INVERSE = 4  #: inverted diagonal blocks, kept by the kernels
    ROWS = 5  #: exponents and running sums of the matrix rows, kept by the kernels


class Place(NamedTuple):
    """One slot of one pool."""

    pool: Pool
    slot: int


@dataclass(frozen=True)
class ResidueLayout:
    """How the memory of a device is divided."""

    moduli: int
    nb: int  #: Order of a tile
    chunk: int  #: Tile columns of a strip: K of one product is at most ``chunk * nb``
    width: int  #: Most tile columns of a panel
    tiles: int  #: Slots of each pool
    transit: int
    strips: int
    accumulators: int
    halves: bool = False  #: Whether a strip holds its entries in FP16, too, and an accumulator sums of their products in FP32
    #: Whether a strip holds its entries in FP8, too, whose products add to the sums in FP32; only with ``halves``
    quarters: bool = False

    @property
    def tile_bytes(self) -> int:
        """Bytes of an FP64 tile."""
        return 8 * self.nb * self.nb

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a strip: one a modulus, two for FP16 and one for FP8."""
        return self.moduli + 2 * self.halves + self.quarters

    @property
    def strip_bytes(self) -> int:
        """Bytes of a strip."""
        return self.entry_bytes * self.nb * self.nb * self.chunk

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of an accumulator: four bytes an entry and modulus, and four for sums in FP32."""
        return 4 * (self.moduli + self.halves) * self.nb * self.nb * self.width

    @property
    def arena_bytes(self) -> int:
        """Bytes of all slots."""
        tiles = (self.tiles + self.transit) * self.tile_bytes
        return tiles + self.strips * self.strip_bytes + self.accumulators * self.accumulator_bytes

    @property
    def entries(self) -> int:
        """Matrix entries that the slots hold."""
        tiles = self.tiles + self.transit + self.strips * self.chunk + self.accumulators * self.width
        return tiles * self.nb * self.nb

    @property
    def basis(self) -> ResidueBasis:
        """The moduli."""
        return ResidueBasis(self.moduli)

    def slots(self, pool: Pool) -> int:
        """Slots of one pool; the kernels keep as many inverses as they need."""
        return {Pool.TILE: self.tiles, Pool.TRANSIT: self.transit, Pool.STRIP: self.strips, Pool.ACCUMULATOR: self.accumulators}[
            pool
        ]

    def slot_bytes(self, pool: Pool) -> int:
        """Bytes of one slot of a pool."""
        return {Pool.STRIP: self.strip_bytes, Pool.ACCUMULATOR: self.accumulator_bytes}.get(pool, self.tile_bytes)


class Load(NamedTuple):
    """A tile into ``place``: from its store, or made there."""

    place: Place


class Store(NamedTuple):
    """The tile in ``place`` to its store."""

    place: Place


class Diagonal(NamedTuple):
    """Exponents of the rows of the diagonal tile of A in ``place``."""

    place: Place


class Convert(NamedTuple):
    """The tile in ``place`` becomes tile column ``column`` of strip slot ``strip``; in FP8 divided by ``2**quarter``."""

    place: Place
    strip: int
    column: int
    is_first: bool
    quarter: int = 0


class Product(NamedTuple):
    """``S[:, column:] (+)= strip[left] @ strips[right:].T`` for ``n_columns`` tile columns; K is tile columns ``start:stop``.

    Of residues, or where ``half`` of the entries in FP16, with sums of their own in FP32; with ``quarter`` of those in FP8, times
    ``2**quarter``.
    """

    accumulator: int
    column: int
    n_columns: int
    left: int
    right: int
    start: int
    stop: int
    accumulates: bool
    lower: bool
    half: bool = False
    quarter: int | None = None


class Fold(NamedTuple):
    """``S[:, column:column + n_columns]`` becomes its canonical residues."""

    accumulator: int
    column: int
    n_columns: int


class Reconstruct(NamedTuple):
    """``A[i, j] -= S[:, column]`` for the tile in ``place``: sums in residues, those in FP32, or both."""

    accumulator: int
    column: int
    place: Place
    residues: bool = True
    halves: bool = False


class Potrf(NamedTuple):
    """POTRF of the tile in ``place``."""

    place: Place


class Invert(NamedTuple):
    """What TRSM needs of the diagonal tile in ``place``, kept as number ``slot``."""

    place: Place
    slot: int


class Trsm(NamedTuple):
    """TRSM of the tile in ``place`` with the diagonal tile in ``diagonal``."""

    place: Place
    diagonal: Place
    slot: int


class Pull(NamedTuple):
    """Copy from another device's ``source``: a tile, or tile columns ``start:stop`` of a strip."""

    device: int
    source: Place
    place: Place
    start: int
    stop: int


Operation: TypeAlias = Load | Store | Diagonal | Convert | Product | Fold | Reconstruct | Potrf | Invert | Trsm | Pull


class ResidueStep(NamedTuple):
    """One operation on one stream.

    ``tile`` is the tile that it makes, brings or writes; of a product the tile row and the first tile column; of a strip its row
    and chunk. ``waits`` are earlier steps of the same program, ``awaits`` values that must be enqueued: tiles in the store, or
    steps of other devices. ``resident`` are bytes of slots in use behind it; another device awaits an ``announced`` step.
    """

    kind: StepKind
    stream: StreamKind
    tile: Index
    version: int
    operation: Operation
    nbytes: int
    flops: int
    waits: tuple[int, ...]
    awaits: tuple[BlockKey, ...]
    resident: int
    announced: bool = False

    @property
    def block(self) -> BlockKey:
        """The value that the step brings, makes or writes."""
        return BlockKey("L", self.tile, self.version)

    @property
    def link(self) -> Link | None:
        """The link that its bytes cross."""
        return link_of(self.kind, self.version)

    @property
    def is_pivot(self) -> bool:
        """Whether it may find that A is not positive definite."""
        return isinstance(self.operation, Potrf)

    def counted_flops(self, grid: TileGrid) -> int:
        """Flops counted for it."""
        return self.flops

    @property
    def label(self) -> str:
        """Short name for traces."""
        name, where = type(self.operation).__name__.lower(), f"({self.tile[0]}, {self.tile[1]})"
        if isinstance(self.operation, Load):
            name = self.kind.name.lower()
        elif isinstance(self.operation, Store):
            name = "write"
        elif isinstance(self.operation, Product):
            work = self.operation
            kind = "product" if not work.half else "half product" if work.quarter is None else "quarter product"
            return f"{kind} {where} x {work.n_columns}, {work.stop - work.start} tiles of K"
        return f"{name} {where}"


#: Inverted diagonal tiles that the kernels keep; a panel is not wider, so that all of its own are there.
INVERSES = 24

#: Name of the keys of steps that other devices await.
STEP = "step"


def step_key(device: int, position: int) -> BlockKey:
    """Name under which other devices await step ``position`` of ``device``."""
    return BlockKey(STEP, (device, position), 0)


#: Share of a diagonal tile's square that its product computes: four strips of rows, each up to its diagonal block.
LOWER_SHARE = 0.625


def executed_flops(step: ResidueStep) -> int:
    """Flops that ``step`` executes or stands for, where a kernel computes more than is counted."""
    work = step.operation
    if isinstance(work, Product) and work.lower:
        return round(2 * LOWER_SHARE * step.flops)
    return step.flops


@dataclass(frozen=True)
class ResidueProgram:
    """All steps of one device in the order in which they are enqueued."""

    steps: tuple[ResidueStep, ...]
    layout: ResidueLayout
    peak_bytes: int  #: Most bytes of slots in use at once
    flops: int

    @property
    def streams(self) -> tuple[StreamKind, ...]:
        """The streams that it uses, in their order."""
        return tuple(sorted({step.stream for step in self.steps}))

    def link_bytes(self) -> tuple[int, ...]:
        """Planned bytes over each :class:`Link`."""
        return bytes_by_link((step.link, step.nbytes) for step in self.steps)
