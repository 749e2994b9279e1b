"""Checkpoints of an eigensolver: a file that each restart replaces, from which a later call goes on to the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.lanczos import MOST_ASYMMETRY, Lanczos
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import LanczosState
from ooc_chol.errors import CheckpointError, DamagedFileError
from ooc_chol.files.outputs import AnyPath, Output, check_outputs
from ooc_chol.memory.block_files import BlockFile, BlockFileWriter, block_files

#: Files that a new checkpoint may replace.
CHECKPOINTS = block_files(
    b"OOCEIGS\n",
    "checkpoint of an eigensolver",
    ".ooceig",
    becomes="checkpoint",
    opener="eigsh",
    option="checkpoint",
    ask="",
    again="remove it and begin anew",
)
#: What such a file holds: vectors of a basis, a panel in each block.
_KIND = "krylov-basis"
_START_AFRESH = "another name for the checkpoint"
_OF = "eigenproblem, whose result has other bits"


class _Saved(NamedTuple):
    """What a checkpoint says beside its vectors."""

    key: dict[str, Any]
    block: int
    n: int
    storage: np.dtype[Any]
    state: LanczosState


@final
class Checkpoint:
    """The file of a run's checkpoints, each written aside and complete before it takes the place of the last one.

    Parameters
    ----------
    path : str or PathLike
        Name of the file. What is there is a checkpoint, or nothing.
    key : mapping
        From :func:`ooc_chol.eigen.key.arithmetic_key`: what the result depends on.
    inputs : sequence of (str, path)
        Files that are read meanwhile, behind the arguments that name them.

    Raises
    ------
    OutputError
        ``path`` is one of ``inputs``, or a file that is no checkpoint.
    MissingFolderError
        There is no folder for it.

    Notes
    -----
    It holds the panels that the restart kept and those of the frontier, in the type in which they are stored, Ritz values and
    what couples them with the frontier, and counts: all that later passes depend on. Each panel and the header have checksums.
    """

    def __init__(self, path: AnyPath, key: Mapping[str, Any], inputs: Sequence[tuple[str, AnyPath | None]] = ()) -> None:
        self.path, self.key = os.fspath(path), dict(key)
        self._inputs = list(inputs)
        check_outputs([Output("checkpoint", path, CHECKPOINTS.files)], self._inputs, ask="")
        self.resumed_passes = 0  #: Products of the run that was gone on from
        self.written = 0  #: Checkpoints that were written

    @property
    def is_there(self) -> bool:
        """Whether this run has written a checkpoint, or went on from one."""
        return bool(self.written or self.resumed_passes)

    def resume(self, run: Lanczos) -> bool:
        """Let a run that was not begun go on from the file.

        Parameters
        ----------
        run : Lanczos
            On a space that holds nothing yet.

        Returns
        -------
        bool
            Whether there was a checkpoint.

        Raises
        ------
        CheckpointError
            It is of another problem, or other arithmetic; the message says what differs.
        DamagedFileError
            It is not as it was written, or what it holds is no state of a run on this matrix, as one product shows.
        """
        if not os.path.exists(self.path):
            return False
        with closing(BlockFile(self.path, _KIND, CHECKPOINTS)) as file:
            saved = self._read_header(file, run.space)
            deviation = run.resume(saved.state, _panels(file, saved))
            if not deviation <= MOST_ASYMMETRY[run.space.precision]:
                what = f"its vectors and numbers are those of no run on this matrix, by {deviation:.2g}"
                raise DamagedFileError(f"{file.path}: {what}; {file.advice}", file.path)
        self.resumed_passes = saved.state.counts.passes
        return True

    def _read_header(self, file: BlockFile, space: AbstractSpace) -> _Saved:
        """What the header says; raise what does not belong to the key, and what makes no sense."""
        try:
            key = file.facts["key"]
            if not isinstance(key, dict):
                raise TypeError(f"key is a {type(key).__name__}")
            if differences := key_differences(key, self.key):
                raise CheckpointError(self.path, differences, _START_AFRESH, _OF)
            facts = {"block": space.block, "n": space.n, "storage": space.precision.storage.name}
            for name, wanted in facts.items():
                if type(file.facts[name]) is not type(wanted) or file.facts[name] != wanted:
                    raise ValueError(f"{name} is {file.facts[name]!r:.80}, not {wanted}")
            state = LanczosState.from_dict(file.facts["state"], space.block)
            saved = _Saved(key, space.block, space.n, space.precision.storage, state)
            expected = [saved.n * saved.block * saved.storage.itemsize] * state.panels(saved.block)
            if file.sizes != expected or len(expected) >= space.capacity:
                raise ValueError(f"{len(file.sizes)} panels instead of {len(expected)}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{file.path}: its header is not that of a checkpoint ({error}); {file.advice}"
            raise DamagedFileError(what, file.path) from error
        return saved

    def save(self, run: Lanczos) -> None:
        """Write what a run is just after a restart; until that is complete, the last checkpoint stays.

        Parameters
        ----------
        run : Lanczos
            As it is while ``at_restart`` is called.

        Raises
        ------
        TierError
            The disk does not take it, or another run is writing the same file.
        """
        space, state = run.space, run.state()
        with BlockFileWriter(self.path, self._inputs, kind=CHECKPOINTS) as writer:
            storage = space.precision.storage
            for panel in range(state.panels(space.block)):
                room = writer.room(space.n * space.block * storage.itemsize)
                room.view(storage).reshape(space.n, space.block)[:] = space.take(range(panel, panel + 1))
                writer.put(room)
            facts = {"key": self.key, "n": space.n, "block": space.block, "storage": storage.name, "state": state.to_dict()}
            writer.complete(_KIND, facts)
        self.written += 1


def _panels(file: BlockFile, saved: _Saved) -> Iterator[NDArray[np.float64]]:
    """The panels of a checkpoint, each compared with its checksums."""
    out = np.empty(max(file.sizes, default=0), np.uint8)
    for number in range(len(file.sizes)):
        file.read_stored((number, 0), out)
        yield out.view(saved.storage).reshape(saved.n, saved.block).astype(np.float64)


def key_differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[str, str]]:
    """Fields of two arithmetic keys that differ, by name: as they are here, and there; those of A each for itself.

    Examples
    --------
    >>> key_differences({"A": {"n": 3}, "k": 1}, {"A": {"n": 4}, "k": 1})
    {'A: n': ('3', '4')}
    """
    found: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys([*there, *here]):
        one, other = there.get(name), here.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= key_differences(one, other, f"{prefix}{name}: ")
        elif one != other:
            found[prefix + name] = (str(one), str(other))
    return found
