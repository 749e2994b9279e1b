"""Base of the stores that outlast a process: files, and Zarr groups."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.checked_tiles import TileStates
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.formats import PrecisionFormat
from ooc_chol.process.team import ThreadTeam


class AbstractKeptStore(AbstractStore):
    """A store with a name by which it is found again, complete or to be gone on from."""

    writes_file = True
    path: str  #: Its name once it is complete

    @property
    @abstractmethod
    def partial_path(self) -> str:
        """Its name until it is complete."""

    @property
    @abstractmethod
    def layout(self) -> TileLayout:
        """How its tiles are cut and stored."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that it takes, nearly."""

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self.layout.present_formats

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """True if it is a finished factor."""

    @property
    @abstractmethod
    def arithmetic_key(self) -> Mapping[str, Any]:
        """Everything that the bits of L depend on."""

    @property
    @abstractmethod
    def created_by(self) -> str:
        """Version of the package that wrote it."""

    @property
    @abstractmethod
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The JSON object that whoever resumes a run keeps in it."""

    @abstractmethod
    def save_checkpoint(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Keep a JSON object, durably, and with it which tiles were widened."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identity of a complete store's content."""

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
