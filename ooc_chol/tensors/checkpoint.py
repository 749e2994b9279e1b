"""Checkpoints of an imputation: a file that each value of lambda replaces, from which a later call goes on to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple, final

import numpy as np
import scipy
import xxhash
from numpy.typing import NDArray

from ooc_chol.calls.checkpoint import CheckpointFile, CheckpointKind, blocks_of
from ooc_chol.errors import DamagedFileError
from ooc_chol.files.outputs import AnyPath
from ooc_chol.files.positional_io import package_version
from ooc_chol.kernels.interfaces.tensors import Svt
from ooc_chol.kernels.registry import kernel_facts, kind_of
from ooc_chol.memory.block_files import BlockFile
from ooc_chol.tensors.fourier import GraphFourier
from ooc_chol.tensors.problem import Given
from ooc_chol.tensors.schedule import LambdaRow, Schedule
from ooc_chol.tensors.space import AbstractTensorSpace

#: Slices of which something is missing, and what thresholds keep.
KIND = CheckpointKind.named(
    b"OOCIMPU\n", "checkpoint of an imputation", ".oocimp", opener="impute", content="graph-tensor", of="imputation"
)
#: Bytes of a block, and entries that are hashed together.
_BLOCK_BYTES, _HASHED_ENTRIES = 16 << 20, 1 << 22


class Resumed(NamedTuple):
    """Content of a checkpoint."""

    history: list[LambdaRow]
    tensor: NDArray[Any]  #: (N, m, n): slices of which something is missing, zeros elsewhere
    warm: list[NDArray[np.float64]]


def arithmetic_key(
    given: Given,
    fourier: GraphFourier,
    schedule: Schedule,
    svt: Svt,
    first: float | None,
    start: NDArray[Any] | None,
    device: str,
    *,
    entries: bool,
) -> dict[str, Any]:
    """All that a result of :func:`ooc_chol.impute` depends on, as plain data; to the bit with checksums of ``entries``."""
    facts = kernel_facts([device])

    def of(shape: tuple[int, ...], name: str, checksum: Callable[[], str]) -> dict[str, Any]:
        return {"shape": list(shape)} | ({name: checksum()} if entries else {})

    tensor = of(given.observed.shape, "observed", lambda: _contents(given.observed, given.mask))
    taken = {"power": given.power, "center": given.center and given.center.hex()}
    basis = fourier.basis
    joined: dict[str, Any] = {"slices": "groups by reversed bits"}
    joined |= {"eigenspaces": sum(map(len, fourier.eigenspaces))} if fourier.eigenspaces else {}
    begun = "zero" if start is None else _contents(start, ~given.mask) if entries else "given"
    return {
        "tensor": tensor | {name: value for name, value in taken.items() if value},
        "mask": of(given.mask.shape, "checksum", lambda: xxhash.xxh3_64_hexdigest(given.mask.data)),
        "graph": of(basis.shape, "checksum", lambda: xxhash.xxh3_64_hexdigest(np.ascontiguousarray(basis).data)) | joined,
        "schedule": schedule.key(),
        "first_lambda": "s_1" if first is None else float(first).hex(),
        "start": begun,
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
class Checkpoint(CheckpointFile):
    """The checkpoints of a run.

    They hold the slices of which something is missing, ``incomplete``, in the type of storage, what thresholds keep from step to
    step, and the history: all that later steps depend on.
    """

    def __init__(self, path: AnyPath, key: Mapping[str, Any], incomplete: NDArray[np.intp], *, replace: bool = False) -> None:
        super().__init__(path, key, KIND, replace=replace)
        self._incomplete = incomplete

    def read(self, space: AbstractTensorSpace, schedule: Schedule) -> Resumed | None:
        """Read the file; None where there is none."""
        with self.opened(lambda file: self._saved(file, space, schedule)) as found:
            if found is None:
                return None
            file, (history, warm) = found
            n, _, rows, columns = space.shape
            tensor: NDArray[Any] = np.zeros((n, rows, columns), space.precision.storage)
            parts = [(tensor, part) for part in _parts(self._incomplete, tensor[0].nbytes)]
            parts += [(array, np.arange(each.start, each.stop)) for array in warm for each in _ranges(array)]
            for number, ((array, part), block) in enumerate(zip(parts, blocks_of(file), strict=True)):
                array[part] = _finite(file, number, block.view(array.dtype)).reshape(-1, *array.shape[1:])
        self.resumed = len(history)
        return Resumed(history, tensor, warm)

    def _saved(
        self, file: BlockFile, space: AbstractTensorSpace, schedule: Schedule
    ) -> tuple[list[LambdaRow], list[NDArray[np.float64]]]:
        """The history, and empty arrays for the warm start."""
        history = _history_of(file.facts["history"], schedule, space.shape.order)
        warm = [np.zeros_like(each) for each in space.warm()]
        slice_bytes = space.shape.width * space.precision.storage.itemsize
        expected = [len(part) * slice_bytes for part in _parts(self._incomplete, slice_bytes)]
        expected += [array[each.start : each.stop].nbytes for array in warm for each in _ranges(array)]
        if list(file.sizes) != expected:
            raise ValueError(f"{len(file.sizes)} blocks instead of {len(expected)}, or of other sizes")
        return history, warm

    def save(self, space: AbstractTensorSpace, history: Sequence[LambdaRow]) -> None:
        """Write what a run is after a value of lambda; until that is complete, the last checkpoint stays."""
        with self.writing({"history": [asdict(row) for row in history]}) as writer:
            for data in self._blocks(space):
                room = writer.room(data.nbytes)
                room[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
                writer.put(room)

    def _blocks(self, space: AbstractTensorSpace) -> Iterator[NDArray[Any]]:
        """Content of the file, block by block."""
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


def _parts(numbers: NDArray[np.intp], slice_bytes: int) -> list[NDArray[np.intp]]:
    """Slices of each block: those that lie within a range that is no larger than a block."""
    step = max(1, _BLOCK_BYTES // slice_bytes)
    return [part for part in np.split(numbers, np.flatnonzero(np.diff(numbers // step)) + 1) if len(part)]


def _ranges(array: NDArray[Any]) -> list[range]:
    """Ranges of the first axis, one for each block."""
    step = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
    return [range(at, min(at + step, len(array))) for at in range(0, len(array), step)]


def _finite(file: BlockFile, number: int, block: NDArray[Any]) -> NDArray[Any]:
    """The block itself; no run leaves NaN or infinity."""
    if not np.isfinite(block).all():
        raise DamagedFileError(f"{file.path}: block {number} holds NaN or infinity; {file.advice}", file.path)
    return block
