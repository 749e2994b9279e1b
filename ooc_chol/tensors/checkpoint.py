"""Checkpoints of an imputation: a file that each value of lambda replaces, from which a later call goes on to the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from typing import Any, NamedTuple, final

import numpy as np
import scipy
import xxhash
from numpy.typing import NDArray

from ooc_chol.eigen.checkpoint import key_differences
from ooc_chol.errors import CheckpointError, DamagedFileError
from ooc_chol.files.outputs import AnyPath, Output, check_outputs
from ooc_chol.files.positional_io import package_version
from ooc_chol.kernels.interfaces.tensors import Svt
from ooc_chol.kernels.registry import kernel_facts, kind_of
from ooc_chol.memory.block_files import BlockFile, BlockFileWriter, block_files
from ooc_chol.tensors.problem import Given
from ooc_chol.tensors.schedule import LambdaRow, Schedule
from ooc_chol.tensors.space import AbstractTensorSpace

#: Files that a new checkpoint may replace.
CHECKPOINTS = block_files(
    b"OOCIMPU\n",
    "checkpoint of an imputation",
    ".oocimp",
    becomes="checkpoint",
    opener="impute",
    option="checkpoint",
    ask="",
    again="remove it and begin anew",
)
#: What such a file holds: slices of which something is missing, and what thresholds keep.
_KIND = "graph-tensor"
_START_AFRESH = "another name for the checkpoint"
_OF = "imputation, whose result has other bits"
#: Bytes of a block, and entries that are hashed together.
_BLOCK_BYTES, _HASHED_ENTRIES = 16 << 20, 1 << 22


class Resumed(NamedTuple):
    """What a checkpoint holds."""

    history: list[LambdaRow]
    tensor: NDArray[Any]  #: (N, m, n): slices of which something is missing, zeros elsewhere
    warm: list[NDArray[np.float64]]


def arithmetic_key(
    given: Given,
    basis: NDArray[np.float64],
    schedule: Schedule,
    svt: Svt,
    first: float | None,
    start: NDArray[Any] | None,
    device: str,
) -> dict[str, Any]:
    """All that a result of :func:`ooc_chol.impute` depends on, to the bit; plain data that JSON can hold."""
    facts = kernel_facts([device])
    tensor = {"shape": list(given.observed.shape), "observed": _contents(given.observed, given.mask)}
    return {
        "tensor": tensor | ({"power": given.power} if given.power else {}),
        "mask": {"shape": list(given.mask.shape), "checksum": xxhash.xxh3_64_hexdigest(given.mask.data)},
        "graph": {"shape": list(basis.shape), "checksum": xxhash.xxh3_64_hexdigest(np.ascontiguousarray(basis).data)},
        "schedule": schedule.key(),
        "first_lambda": "s_1" if first is None else float(first).hex(),
        "start": "zero" if start is None else _contents(start, ~given.mask),
        "svt": svt,
        "precision": given.precision.value,
        "devices": f"{kind_of(device).name}: {facts.model}, {facts.library}",
        "versions": f"ooc_chol {package_version()}, numpy {np.__version__}, scipy {scipy.__version__}",
    }


def _contents(tensor: NDArray[Any], mask: NDArray[np.bool_]) -> str:
    """A checksum of what is where ``mask``."""
    found, step = xxhash.xxh3_64(), max(1, _HASHED_ENTRIES // tensor[0].size)
    for at in range(0, len(tensor), step):
        part, chosen = tensor[at : at + step], mask[at : at + step]
        found.update(np.ascontiguousarray(np.where(chosen if mask.ndim > 1 else chosen[:, None, None], part, 0)).data)
    return found.hexdigest()


@final
class Checkpoint:
    """The file of a run's checkpoints, each written aside and complete before it takes the place of the last one.

    Parameters
    ----------
    path : str or PathLike
        Name of the file. What is there is a checkpoint, or nothing.
    key : mapping
        From :func:`arithmetic_key`: what the result depends on.
    incomplete : (k,) array
        Slices of which something is missing: the others are not in the file.

    Raises
    ------
    OutputError
        There is a file that is no checkpoint.
    MissingFolderError
        There is no folder for it.

    Notes
    -----
    It holds these slices in the type of storage, what thresholds keep from step to step, and the history: all that later steps
    depend on. Blocks and the header have checksums.
    """

    def __init__(self, path: AnyPath, key: Mapping[str, Any], incomplete: NDArray[np.intp]) -> None:
        self.path, self.key, self._incomplete = os.fspath(path), dict(key), incomplete
        check_checkpoint(path)
        self.resumed_lambdas = 0  #: Values of lambda of the run that was gone on from
        self.written = 0  #: Checkpoints that were written

    @property
    def is_there(self) -> bool:
        """Whether this run has written a checkpoint, or went on from one."""
        return bool(self.written or self.resumed_lambdas)

    def read(self, space: AbstractTensorSpace, schedule: Schedule) -> Resumed | None:
        """What the file holds; None where there is none.

        Raises
        ------
        CheckpointError
            It is of another problem, or other arithmetic; the message says what differs.
        DamagedFileError
            It is not as it was written.
        """
        if not os.path.exists(self.path):
            return None
        with closing(BlockFile(self.path, _KIND, CHECKPOINTS)) as file:
            history, warm = self._read_header(file, space, schedule)
            n, _, rows, columns = space.shape
            tensor = np.zeros((n, rows, columns), space.precision.storage)
            parts = _parts(self._incomplete, tensor[0].nbytes)
            number = 0
            for part in parts:
                tensor[part] = _block(file, number, tensor.dtype).reshape(-1, rows, columns)
                number += 1
            for array in warm:
                for slices in _ranges(array):
                    array[slices.start : slices.stop] = _block(file, number, array.dtype).reshape(-1, *array.shape[1:])
                    number += 1
        self.resumed_lambdas = len(history)
        return Resumed(history, tensor, warm)

    def _read_header(
        self, file: BlockFile, space: AbstractTensorSpace, schedule: Schedule
    ) -> tuple[list[LambdaRow], list[NDArray[np.float64]]]:
        """The history, and empty arrays for the warm start; raise what does not belong to the key, and what makes no sense."""
        try:
            key = file.facts["key"]
            if not isinstance(key, dict):
                raise TypeError(f"key is a {type(key).__name__}")
            if differences := key_differences(key, self.key):
                raise CheckpointError(self.path, differences, _START_AFRESH, _OF)
            history = _history_of(file.facts["history"], schedule, space.shape.order)
            warm = [np.zeros_like(each) for each in space.warm()]
            slice_bytes = space.shape.width * space.precision.storage.itemsize
            expected = [len(part) * slice_bytes for part in _parts(self._incomplete, slice_bytes)]
            expected += [array[each.start : each.stop].nbytes for array in warm for each in _ranges(array)]
            if list(file.sizes) != expected:
                raise ValueError(f"{len(file.sizes)} blocks instead of {len(expected)}, or of other sizes")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{file.path}: its header is not that of a checkpoint ({error}); {file.advice}"
            raise DamagedFileError(what, file.path) from error
        return history, warm

    def save(self, space: AbstractTensorSpace, history: Sequence[LambdaRow]) -> None:
        """Write what a run is after a value of lambda; until that is complete, the last checkpoint stays.

        Raises
        ------
        TierError
            The disk does not take it, or another run is writing the same file.
        """
        with BlockFileWriter(self.path, kind=CHECKPOINTS) as writer:
            for data in self._blocks(space):
                room = writer.room(data.nbytes)
                room[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
                writer.put(room)
            writer.complete(_KIND, {"key": self.key, "history": [asdict(row) for row in history]})
        self.written += 1

    def _blocks(self, space: AbstractTensorSpace) -> Iterator[NDArray[Any]]:
        """What the file holds, block by block."""
        for part in _parts(self._incomplete, space.shape.width * space.precision.storage.itemsize):
            first = int(part[0])
            yield space.take(range(first, int(part[-1]) + 1))[part - first]
        for array in space.warm():
            for slices in _ranges(array):
                yield array[slices.start : slices.stop]


def _history_of(told: Any, schedule: Schedule, order: int) -> list[LambdaRow]:
    """The history that ``asdict`` told; TypeError or ValueError where it did not, or a run of that schedule has none such."""
    if type(told) is not list or not 1 <= len(told) <= schedule.n_lambdas:
        raise ValueError(f"history is {told!r:.80}")
    types = {each.name: int if each.name == "steps" else float for each in fields(LambdaRow)}
    found: list[LambdaRow] = []
    for number, each in enumerate(told):
        if type(each) is not dict or {name: type(value) for name, value in each.items()} != types:
            raise TypeError(f"value {number} of lambda is {each!r:.200}")
        row = LambdaRow(**each)
        most = {"steps": schedule.max_inner, "mean_rank": order, "full_route": 1}
        lam = schedule.lam(number, found[0].lam if found else row.lam)
        if min(each.values()) < 0 or any(each[name] > limit for name, limit in most.items()) or row.steps < 1 or row.lam != lam:
            raise ValueError(f"value {number} of lambda is {each!r:.200}")
        found.append(row)
    return found


def check_checkpoint(path: AnyPath) -> None:
    """Raise where a checkpoint cannot have that name, before anything is computed."""
    check_outputs([Output("checkpoint", path, CHECKPOINTS.files)], ask="")


def _parts(numbers: NDArray[np.intp], slice_bytes: int) -> list[NDArray[np.intp]]:
    """Slices of each block: those that lie within a range that is no larger than a block."""
    step = max(1, _BLOCK_BYTES // slice_bytes)
    return [part for part in np.split(numbers, np.flatnonzero(np.diff(numbers // step)) + 1) if len(part)]


def _ranges(array: NDArray[Any]) -> list[range]:
    """Ranges of the first axis, one for each block."""
    step = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
    return [range(at, min(at + step, len(array))) for at in range(0, len(array), step)]


def _block(file: BlockFile, number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A block, compared with its checksums; no run leaves NaN or infinity."""
    out = np.empty(file.sizes[number], np.uint8)
    file.read_stored((number, 0), out)
    found = out.view(dtype)
    if not np.isfinite(found).all():
        raise DamagedFileError(f"{file.path}: block {number} holds NaN or infinity; {file.advice}", file.path)
    return found
