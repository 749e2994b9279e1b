"""Claim of one run on the Zarr group of an L: a lock in a local folder, and everywhere a token in the attributes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Self, final

from ooc_chol.dense.stores.zarr_header import read_zarr_header
from ooc_chol.errors import TierError
from ooc_chol.files.object_folders import AbstractObjectFolder

#: Least time between two looks at the token while tiles are written, as a multiple of what one look takes.
_LOOK_RATIO = 20


@final
class Claim:
    """The right of one run and its workers to write a group.

    Nobody else can lock a local folder until the run or its process ends. Object storage has no locks: a later run replaces the
    token, and an earlier one that is alive finds that out before it writes on.
    """

    def __init__(self, folder: AbstractObjectFolder, token: str | None) -> None:
        self.folder, self.token = folder, token
        self._unlock: Callable[[], object] | None = None
        self._next_look = 0.0

    @classmethod
    def locked(cls, folder: AbstractObjectFolder, *, make: bool = False) -> Self:
        """A claim of a new run; ``TierError`` where another has locked the folder, which ``make`` makes if it is not there."""
        claim = cls(folder, secrets.token_hex(8))
        claim._unlock = folder.lock(claim, make=make)
        return claim

    def check(self) -> None:
        """Raise ``TierError`` where the attributes are those of another run by now, or are gone."""
        try:
            found = read_zarr_header(self.folder)
        except FileNotFoundError:
            found = None
        if found is None or found.complete or found.writer != self.token:
            text = "another run is writing this group by now, or has completed or removed it"
            raise TierError(f"{self.folder.name}: {text}; wait for it, or choose another name")

    def look(self) -> None:
        """Check now and then, so that it costs next to nothing."""
        began = time.perf_counter()
        if began >= self._next_look:
            self.check()
            ended = time.perf_counter()
            self._next_look = ended + _LOOK_RATIO * (ended - began)

    def release(self) -> None:
        """Let others lock the folder; a second call does nothing."""
        if self._unlock is not None:
            self._unlock()
