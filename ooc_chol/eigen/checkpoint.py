"""Checkpoints of an eigensolver: a file that each restart replaces, from which a later call goes on to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.checkpoint import CheckpointFile, CheckpointKind, blocks_of
from ooc_chol.eigen.lanczos import MOST_ASYMMETRY, Lanczos
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import LanczosState
from ooc_chol.errors import DamagedFileError
from ooc_chol.memory.block_files import BlockFile

#: Vectors of a basis, a panel in each block.
KIND = CheckpointKind.named(
    b"OOCEIGS\n", "checkpoint of an eigensolver", ".ooceig", opener="eigsh", content="krylov-basis", of="eigenproblem"
)
#: The same of a run on a square, whose tol depends on what was found, and is kept.
TRIPLETS = CheckpointKind.named(
    b"OOCSVDS\n", "checkpoint of singular triplets", ".oocsvd", opener="svds", content="krylov-basis", of="singular value problem"
)


class _Saved(NamedTuple):
    """Header of a checkpoint, beside its key."""

    block: int
    n: int
    storage: np.dtype[Any]
    state: LanczosState
    tol: float | None = None  #: That of the run


@final
class Checkpoint(CheckpointFile):
    """The checkpoints of a run.

    They hold the panels that a restart kept and those of the frontier, in the type in which they are stored, Ritz values and what
    couples them with the frontier, and counts: all that later passes depend on.
    """

    def resume(self, run: Lanczos) -> bool:
        """Let a run on a space that holds nothing yet go on from the file; False where there is none.

        DamagedFileError is raised where what it holds is no state of a run on this matrix, as one product shows.
        """
        with self.opened(lambda file: _saved(file, run.space)) as found:
            if found is None:
                return False
            file, saved = found
            if saved.tol is not None:
                run.wanted = replace(run.wanted, tol=saved.tol)
            deviation = run.resume(saved.state, _panels(file, saved))
            if not deviation <= MOST_ASYMMETRY[run.space.precision]:
                what = f"its vectors and numbers are those of no run on this matrix, by {deviation:.2g}"
                raise DamagedFileError(f"{file.path}: {what}; {file.advice}", file.path)
        self.resumed = saved.state.counts.passes
        return True

    def save(self, run: Lanczos) -> None:
        """Write what a run is just after a restart; until that is complete, the last checkpoint stays."""
        space, state = run.space, run.state()
        storage = space.precision.storage
        facts = {"n": space.n, "block": space.block, "storage": storage.name, "state": state.to_dict()}
        facts |= {"tol": run.wanted.tol.hex()} if self.kind is TRIPLETS else {}
        with self.writing(facts) as writer:
            for panel in range(state.panels(space.block)):
                room = writer.room(space.n * space.block * storage.itemsize)
                room.view(storage).reshape(space.n, space.block)[:] = space.take(range(panel, panel + 1))
                writer.put(room)


def _saved(file: BlockFile, space: AbstractSpace) -> _Saved:
    """The rest of a header, which must make sense for the space."""
    facts = {"block": space.block, "n": space.n, "storage": space.precision.storage.name}
    for name, wanted in facts.items():
        if type(file.facts[name]) is not type(wanted) or file.facts[name] != wanted:
            raise ValueError(f"{name} is {file.facts[name]!r:.80}, not {wanted}")
    state = LanczosState.from_dict(file.facts["state"], space.block)
    tol = float.fromhex(file.facts["tol"]) if "tol" in file.facts else None
    if tol is not None and not 0 < tol < 1:
        raise ValueError(f"tol is {tol}")
    saved = _Saved(space.block, space.n, space.precision.storage, state, tol)
    expected = [saved.n * saved.block * saved.storage.itemsize] * state.panels(saved.block)
    if file.sizes != expected or len(expected) >= space.capacity:
        raise ValueError(f"{len(file.sizes)} panels instead of {len(expected)}")
    return saved


def _panels(file: BlockFile, saved: _Saved) -> Iterator[NDArray[np.float64]]:
    """The panels of a checkpoint."""
    for block in blocks_of(file):
        yield block.view(saved.storage).reshape(saved.n, saved.block).astype(np.float64)
