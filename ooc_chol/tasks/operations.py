"""Operations of a program's steps on places of a device, their kinds, streams and links.

An operation says *what*, on which slots; a step of a program adds *when*: its stream, what it waits on, its bytes and flops.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ooc_chol.interfaces import BlockKey


class StepKind(IntEnum):
    """Kind of a step, by the part of a device that performs it."""

    FETCH = 0  #: tier -> device over a link
    GENERATE = 1  #: a tile function fills the tile on the device
    COMPUTE = 2  #: a kernel, or a copy inside the device
    WRITE = 3  #: device -> store
    PULL = 4  #: another device -> device


class StreamKind(IntEnum):
    """The streams of a device, each of which runs its steps in order."""

    COPY_IN = 0
    COMPUTE = 1
    COPY_OUT = 2
    FINISH = 3  #: what makes tiles final, beside the sweeps of other rows
    CONVERT = 4  #: between formats of a tile; this one and the next two are for kernels on residues
    FINISH_1 = 5
    FINISH_2 = 6
    PEER = 7  #: copies from other devices, of strips those that long products need
    SOURCE = 8  #: tiles of A, read or made, where those of L must not wait for them
    EXCHANGE = 9  #: what the own rows of a panel take from each other, across devices, as soon as it is made


#: Names of the streams in traces and reports.
STREAM_NAMES = ("copy-in", "compute", "copy-out", "finish", "convert", "finish-1", "finish-2", "peer", "source", "exchange")
#: Streams whose kernels go first where streams share a device's processors: others wait for what they make.
URGENT_STREAMS = frozenset(StreamKind) - {StreamKind.COPY_IN, StreamKind.COMPUTE, StreamKind.COPY_OUT}


class Link(IntEnum):
    """The links whose bytes are planned and counted, per device."""

    SOURCE = 0  #: A -> device
    FETCH = 1  #: store of L -> device
    WRITE = 2  #: device -> store of L
    PEER = 3  #: another device -> device


def link_of(kind: StepKind, version: int) -> Link | None:
    """The link that a step's bytes cross; of a fetch, ``version`` 0 is a tile of A."""
    if kind is StepKind.FETCH:
        return Link.SOURCE if version == 0 else Link.FETCH
    if kind is StepKind.PULL:
        return Link.PEER
    return Link.WRITE if kind is StepKind.WRITE else None


class FileLink(IntEnum):
    """The ways to and from files whose bytes are planned and counted, per device, beside those of :class:`Link`."""

    SOURCE = 0  #: A, read from its file
    READ = 1  #: L, read from the file of its store
    WRITE = 2  #: L, written to the file of its store


class Pool(IntEnum):
    """Purpose of the slots of a device's memory, by the kind of block that they hold."""

    TILE = 0  #: tiles of A that become tiles of L, and tiles of L that kernels read
    TRANSIT = 1  #: FP64 tiles of L between the store and their conversion
    STRIP = 2  #: residues of one tile row by one chunk of tile columns
    ACCUMULATOR = 3  #: sums in residues of one tile row by a panel's tile columns
    INVERSE = 4  #: inverted diagonal blocks, kept by the kernels
    ROWS = 5  #: exponents and running sums of the matrix rows, kept by the kernels


class Place(NamedTuple):
    """One slot of one pool in a device's memory."""

    pool: Pool
    slot: int


class Load(NamedTuple):
    """A tile into ``place``: from its tier, or made there."""

    place: Place


class Store(NamedTuple):
    """The tile in ``place`` to its store."""

    place: Place


class Potrf(NamedTuple):
    """POTRF of the tile in ``place``; where it ``prepares``, TRSM prepares itself, else an :class:`Invert` does."""

    place: Place
    prepares: bool = False


class Invert(NamedTuple):
    """Preparation of the diagonal tile in ``place`` for TRSM, kept as number ``slot``."""

    place: Place
    slot: int


class Trsm(NamedTuple):
    """TRSM of the tile in ``place`` with the diagonal tile in ``diagonal``, and what inverse ``slot`` keeps of it."""

    place: Place
    diagonal: Place
    slot: int | None = None


class Syrk(NamedTuple):
    """``A[i, i] -= L[i, k] @ L[i, k].T`` for the tile in ``place``."""

    place: Place
    left: Place
    k: int


class Gemm(NamedTuple):
    """``A[i, j] -= L[i, k] @ L[j, k].T`` for the tile in ``place``."""

    place: Place
    left: Place
    right: Place
    k: int


class Diagonal(NamedTuple):
    """Exponents of the rows of the diagonal tile of A in ``place``."""

    place: Place


class Convert(NamedTuple):
    """The tile in ``place`` becomes tile column ``column`` of strip slot ``strip``."""

    place: Place
    strip: int
    column: int
    is_first: bool


class Product(NamedTuple):
    """``S[:, column:] (+)= strip[left] @ strips[right:].T`` for ``n_columns`` tile columns; K is tile columns ``start:stop``.

    Of residues; where strips hold entries in FP16, too, products of small norm run in that, as is decided then.
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
    k: int  #: The tile column of L that ``start`` is


class Fold(NamedTuple):
    """``S[:, column:column + n_columns]`` becomes its canonical residues."""

    accumulator: int
    column: int
    n_columns: int


class Reconstruct(NamedTuple):
    """``A[i, j] -= S[:, column]`` for the tile in ``place``: sums in residues, and those in FP32 where there are some."""

    accumulator: int
    column: int
    place: Place


class Pull(NamedTuple):
    """Copy from another device's ``source``: a tile, or tile columns ``start:stop`` of a strip."""

    device: int
    source: Place
    place: Place
    start: int = 0
    stop: int = 0


Operation: TypeAlias = (
    Load | Store | Potrf | Invert | Trsm | Syrk | Gemm | Diagonal | Convert | Product | Fold | Reconstruct | Pull
)

#: Share of a diagonal tile's square that its product computes: four strips of rows, each up to its diagonal block.
LOWER_SHARE = 0.625
#: Inverted diagonal tiles that the kernels keep, tile k in place k mod 24. A panel of residues is not wider, so that all of its
#: own are there; in a wider native one those of a tile are made again for each use.
INVERSES = 24

#: Name of the keys of steps that other devices await.
STEP = "step"


def step_key(device: int, position: int) -> BlockKey:
    """Name under which other devices await step ``position`` of ``device``."""
    return BlockKey(STEP, (device, position), 0)


def label_of(kind: StepKind, tile: tuple[int, int], operation: Operation) -> str:
    """Short name of a step for traces."""
    where = f"({tile[0]}, {tile[1]})"
    if kind is not StepKind.COMPUTE:
        return f"{kind.name.lower()} {where}"
    if isinstance(operation, Product):
        return f"product {where} x {operation.n_columns}, {operation.stop - operation.start} tiles of K"
    if isinstance(operation, Syrk | Gemm):
        return f"{type(operation).__name__.upper()} {where} k={operation.k}"
    name = type(operation).__name__
    return f"{name.upper() if isinstance(operation, Potrf | Trsm) else name.lower()} {where}"
