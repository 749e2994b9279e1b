"""Checkpoints in a file of their own, which each replaces: a later call goes on from it to the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.key import differences
from ooc_chol.errors import CheckpointError, DamagedFileError
from ooc_chol.files.outputs import REPLACE, AnyPath, Output, check_outputs
from ooc_chol.memory.block_files import BlockFile, BlockFiles, BlockFileWriter, block_files

_Header = TypeVar("_Header")
_START_AFRESH = f"another name for the checkpoint, or {REPLACE}"


@dataclass(frozen=True)
class CheckpointKind:
    """The checkpoints of one system."""

    files: BlockFiles  #: Files that a new one may replace
    content: str  #: A word for what they hold
    of: str  #: What a checkpoint with another key is of, in words

    @classmethod
    def named(cls, magic: bytes, what: str, ending: str, *, opener: str, content: str, of: str) -> CheckpointKind:
        """Checkpoints ``what``, in files that begin with ``magic`` and that ``opener`` reads."""
        files = block_files(
            magic,
            what,
            ending,
            becomes="checkpoint",
            opener=opener,
            option="checkpoint",
            ask=REPLACE,
            again="remove it and begin anew",
        )
        return cls(files, content, f"{of}, whose result has other bits")

    def check(self, path: AnyPath, inputs: Sequence[tuple[str, AnyPath | None]] = (), *, replace: bool = False) -> None:
        """Raise where a checkpoint cannot have that name: OutputError, or MissingFolderError."""
        check_outputs([Output("checkpoint", path, self.files.files)], list(inputs), replace=replace, ask=self.files.ask)


class CheckpointFile:
    """The file of a run's checkpoints, each written aside and complete before it takes the place of the last one.

    Blocks and the header have checksums. ``inputs`` are files that are read meanwhile, behind the arguments that name them; one
    of these, a file that is no checkpoint and a missing folder are refused. With ``replace`` the run begins anew whatever is
    there, and its first checkpoint replaces that.
    """

    def __init__(
        self,
        path: AnyPath,
        key: Mapping[str, Any],
        kind: CheckpointKind,
        inputs: Sequence[tuple[str, AnyPath | None]] = (),
        *,
        replace: bool = False,
    ) -> None:
        self.path, self.key = os.fspath(path), dict(key)
        self.kind, self._inputs, self._replace = kind, list(inputs), replace
        kind.check(path, self._inputs, replace=replace)
        self.resumed = 0  #: Steps of the run that was gone on from, in the unit of the system
        self.written = 0  #: Checkpoints that were written

    @property
    def is_there(self) -> bool:
        """True where this run has written a checkpoint, or went on from one."""
        return bool(self.written or self.resumed)

    @contextmanager
    def opened(self, header: Callable[[BlockFile], _Header]) -> Iterator[tuple[BlockFile, _Header] | None]:
        """The file of this key with what ``header`` makes of its facts; None where there is none.

        CheckpointError is raised for another key, DamagedFileError where ``header`` raises KeyError, TypeError, ValueError or
        OverflowError.
        """
        if self._replace or not os.path.exists(self.path):
            yield None
            return
        with closing(BlockFile(self.path, self.kind.content, self.kind.files)) as file:
            yield file, self._header(file, header)

    def _header(self, file: BlockFile, header: Callable[[BlockFile], _Header]) -> _Header:
        """The header of a file of this key."""
        try:
            key = file.facts["key"]
            if not isinstance(key, dict):
                raise TypeError(f"key is a {type(key).__name__}")
            if differing := differences(key, self.key):
                raise CheckpointError(self.path, differing, _START_AFRESH, self.kind.of)
            return header(file)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{file.path}: its header is not that of a checkpoint ({error}); {file.advice}"
            raise DamagedFileError(what, file.path) from error

    @contextmanager
    def writing(self, facts: Mapping[str, Any]) -> Iterator[BlockFileWriter]:
        """A new file for blocks, which takes the place of the last one at the end of the block."""
        with BlockFileWriter(self.path, self._inputs, replace=self._replace, kind=self.kind.files) as writer:
            yield writer
            writer.complete(self.kind.content, {"key": self.key, **facts})
        self.written += 1


def blocks_of(file: BlockFile) -> Iterator[NDArray[np.uint8]]:
    """The blocks of a checkpoint in order, each compared with its checksums; one takes the place of the one before."""
    room = np.empty(max(file.sizes, default=0), np.uint8)
    for number, size in enumerate(file.sizes):
        file.read_stored((number, 0), room[:size])
        yield room[:size]
