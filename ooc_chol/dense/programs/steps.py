"""Steps and programs: what one device does, in the order in which it is enqueued."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ooc_chol.dense.programs.layouts import AbstractMemoryLayout
from ooc_chol.display.prints import brief_repr, one_line
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import LOWER_SHARE, Link, Operation, Place, Potrf, Product, StepKind, StreamKind, label_of, link_of
from ooc_chol.tasks.tiling import Index


class Step(NamedTuple):
    """One operation on one stream, with all that it touches.

    ``block`` is the value that it makes, brings or writes: of L a tile, with the number of its updates as version (that of A has
    version 0); of a product the tile row and the first tile column; of a strip its row and chunk.
    """

    kind: StepKind
    stream: StreamKind
    block: BlockKey
    operation: Operation
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    columns: tuple[int, int]  #: Of strips it reads or writes the tile columns from the first to before the second
    drops: tuple[Place, ...]  #: Places that are given up just before it
    nbytes: int  #: Bytes over its link
    flops: int  #: Flops that the algorithm counts for it, whatever the kernel executes
    waits: tuple[int, ...]  #: Earlier steps of the same program, on other streams, that must be complete
    awaits: tuple[BlockKey, ...]  #: Tiles in the store, and steps of other devices, that must be enqueued before
    resident: int  #: Bytes of blocks on the device behind it
    announced: bool = False  #: Whether another device awaits it

    def __repr__(self) -> str:
        facts = {"label": self.label, "stream": self.stream, "waits": self.waits, "awaits": self.awaits, "drops": self.drops}
        return one_line(self, {**facts, "nbytes": self.nbytes, "flops": self.flops, "resident": self.resident})

    @property
    def tile(self) -> Index:
        """Tile row and column of its block."""
        return self.block.coords  # type: ignore[return-value]

    @property
    def version(self) -> int:
        """The version of its block, which for a tile is its number of updates."""
        return self.block.version

    @property
    def link(self) -> Link | None:
        """The link that its bytes cross."""
        return link_of(self.kind, self.block.version)

    @property
    def is_pivot(self) -> bool:
        """True if it may find that A is not positive definite."""
        return type(self.operation) is Potrf

    @property
    def needs_store(self) -> bool:
        """True if it reads a value that some device must have written to the store before."""
        return self.kind is StepKind.FETCH and self.block.version > 0

    @property
    def label(self) -> str:
        """The short name that traces show."""
        return label_of(self.kind, self.tile, self.operation)


def tile_key(tile: Index, version: int) -> BlockKey:
    """Name of a tile with so many updates."""
    key: BlockKey = tuple.__new__(BlockKey, ("L", tile, version))  # in half the time that its class takes; there are millions
    return key


def final_keys(tiles: Iterable[Index]) -> list[BlockKey]:
    """Names of the final values of tiles of L."""
    return [tile_key((i, j), j + 1) for i, j in tiles]


@dataclass(frozen=True)
class Program:
    """All steps of one device in the order in which they are enqueued."""

    steps: tuple[Step, ...]
    layout: AbstractMemoryLayout  #: How the device's memory is divided into slots
    peak_bytes: int  #: Most bytes of slots in use at once
    peak_resident: int  #: Most bytes of blocks in them
    flops: int  #: Flops that the algorithm counts for all steps

    __repr__ = brief_repr

    def with_bytes(self, stored_bytes: Callable[[Index], int]) -> Program:
        """The same steps where tiles of L take other bytes on a link and in their store."""
        moved = Link.FETCH, Link.WRITE
        steps = [step._replace(nbytes=stored_bytes(step.tile)) if step.link in moved else step for step in self.steps]
        return replace(self, steps=tuple(steps))

    @cached_property
    def streams(self) -> tuple[StreamKind, ...]:
        """The streams that it uses, in their order."""
        return tuple(sorted({step.stream for step in self.steps}))

    @cached_property
    def link_bytes(self) -> tuple[int, ...]:
        """Planned bytes over each :class:`Link`."""
        totals = [0] * len(Link)
        for step in self.steps:
            if (link := step.link) is not None:
                totals[link] += step.nbytes
        return tuple(totals)


def executed_flops(program: Program) -> int:
    """Flops that steps through residues execute or stand for: their kernels compute more of diagonal tiles than is counted."""
    products = [step for step in program.steps if type(step.operation) is Product]
    lower = [step.flops for step in products if step.operation.lower]  # type: ignore[union-attr]
    return program.flops + sum(round(2 * LOWER_SHARE * counted) - counted for counted in lower)
