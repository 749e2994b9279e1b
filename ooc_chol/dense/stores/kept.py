"""Base of the stores that outlast a process: files, and Zarr groups."""

from __future__ import annotations

import json
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.checked_tiles import TileStates
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.formats import PrecisionFormat
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.team import ThreadTeam

if TYPE_CHECKING:  # Zarr's is imported where it is used
    from ooc_chol.dense.stores.header import FileHeader
    from ooc_chol.dense.stores.zarr_header import ZarrHeader


class AbstractKeptStore(AbstractStore):
    """A store with a name by which it is found again, complete or to be gone on from."""

    writes_file = True
    path: str  #: Its name once it is complete
    header: FileHeader | ZarrHeader  #: What it says of itself
    _written_at: dict[tuple[int, int], float]  #: When each tile was

    @property
    @abstractmethod
    def partial_path(self) -> str:
        """Its name until it is complete."""

    @property
    @abstractmethod
    def layout(self) -> TileLayout:
        """How its tiles are cut and stored."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, nearly."""
        return self.layout.end

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self.layout.present_formats

    @property
    def is_complete(self) -> bool:
        """True if it is a finished factor."""
        return self.header.complete

    @property
    def arithmetic_key(self) -> Mapping[str, Any]:
        """Everything that the bits of L depend on."""
        return self.header.arithmetic_key

    @property
    def created_by(self) -> str:
        """Version of the package that wrote it."""
        return self.header.created_by

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The JSON object that whoever resumes a run keeps in it."""
        return self.header.checkpoint

    @abstractmethod
    def save_checkpoint(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Keep a JSON object, durably, and with it which tiles were widened."""

    @property
    def identity(self) -> str:
        """Identity of a complete store's content: its order, its key, and the sum of its checksums."""
        key = zlib.crc32(json.dumps(dict(self.arithmetic_key), sort_keys=True).encode())
        signed = "unsigned" if self.header.index_hash is None else f"{self.header.index_hash:016x}"
        return f"{self.grid.n}-{self.grid.nb}-{self.nbytes}-{key:08x}-{signed}"

    def describe(self, arithmetic_key: Mapping[str, Any]) -> None:
        """Let the header say this key once it is written again."""
        self.header = replace(self.header, arithmetic_key=dict(arithmetic_key))

    def reads_file(self, index: BlockIndex) -> bool:
        """Always: no tile is elsewhere."""
        return True

    def distrust(self, since: float) -> None:
        """Let tiles that were written since then be unwritten: a device had failed, and others may have used what it gave."""
        if late := [tile for tile, at in self._written_at.items() if at >= since]:
            self.forget(late)

    @abstractmethod
    def is_there(self) -> bool:
        """Tell whether it is complete and its name still leads to it."""

    @abstractmethod
    def verify_tiles(self, indices: Iterable[tuple[int, int]] | None = None, team: ThreadTeam | None = None) -> TileStates:
        """Read tiles, all by default, and compare them with their checksums; nothing that is found is an error."""

    @abstractmethod
    def keep_unfinished(self) -> None:
        """Let a later run go on from what is written; a complete store stays as it is."""

    @property
    @abstractmethod
    def n_written(self) -> int:
        """How many tiles there are to go on from."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True if it is closed."""

    @abstractmethod
    def keep_out_of_cache(self) -> None:
        """Let no tile stay in the system's cache, as far as that has any."""


#: The path of a file, or the URL of a group.
AnyPlace = str | os.PathLike[str]
