"""Which steps of a program read or write a file: A's, or that of an L which host memory holds in part."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.memory.sources.file import NpySource
from ooc_chol.tasks.operations import FileLink, Link
from ooc_chol.tasks.tiling import Index

#: What sources of A in files are called.
FILE = NpySource.name


@dataclass(frozen=True)
class FileTraffic:
    """Steps of a run that read or write files."""

    reads_source: bool  #: Whether A is in a file
    has_store: bool  #: Whether L goes to one
    kept: frozenset[Index] = frozenset()  #: Tiles of that L that host memory holds as well once they are written

    @property
    def is_none(self) -> bool:
        """True if no step reads or writes a file."""
        return not (self.reads_source or self.has_store)

    def link_of(self, step: Step) -> FileLink | None:
        """The way to or from a file that the bytes of ``step`` take; None for those that take none."""
        link = step.link
        if link is Link.SOURCE:
            return FileLink.SOURCE if self.reads_source else None
        if not self.has_store:
            return None
        if link is Link.FETCH:
            return None if step.tile in self.kept else FileLink.READ
        return FileLink.WRITE if link is Link.WRITE else None

    def link_bytes(self, program: Program) -> tuple[int, ...]:
        """Planned bytes of one device over each :class:`FileLink`."""
        totals = [0] * len(FileLink)
        if not self.is_none:
            for step in program.steps:
                if step.nbytes and (link := self.link_of(step)) is not None:
                    totals[link] += step.nbytes
        return tuple(totals)
