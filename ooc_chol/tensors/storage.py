"""Parts of a tensor that devices do not keep: in host memory or in a file, as blocks that are copied."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import MissingFolderError
from ooc_chol.files.inputs import check_name
from ooc_chol.files.outputs import AnyPath, write_error
from ooc_chol.formats import TYPES, PrecisionFormat
from ooc_chol.interfaces import AbstractTier, BlockIndex
from ooc_chol.memory.pages import Purpose, allocate_aligned, copy_by
from ooc_chol.process.address_space import check_room
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tensors.plan import TensorPlan

#: Where arrays begin in their one allocation.
_ALIGNMENT = 4096
_ADVICE = "give a folder on a disk, or a larger memory_budget, so that devices keep more"


@final
class HostBlocks(AbstractTier):
    """Parts of a host array as blocks."""

    def __init__(self, name: str, memory: NDArray[Any], show: Callable[[BlockIndex], NDArray[Any]]) -> None:
        self.name, self._memory, self._show = name, memory, show
        self._in_place = name == "memory"

    def release(self) -> None:
        """Let go of the memory; nothing is copied any more."""
        self._memory = self._memory[:0].copy()

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """The rows, where copies may reach them in place."""
        return self._show(index) if self._in_place else None

    def host_memory(self) -> NDArray[Any] | None:
        """The array, where copies may reach it in place: it may be page-locked."""
        return self._memory if self._in_place else None

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """The type of the array."""
        return TYPES[self._memory.dtype.name]

    def stored(self, index: BlockIndex) -> NDArray[np.uint8] | None:
        return self._show(index).reshape(-1) if self._in_place else None

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        out[...] = self._show(index).reshape(-1)

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        out[...] = self._show(index)

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: NDArray[Any]) -> None:
        """Copy a block, some rows by each thread."""
        copy_by(team, out, self._show(index))

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        self._show(index)[...] = data

    def write_by(self, team: ThreadTeam, index: BlockIndex, data: NDArray[Any]) -> None:
        """Copy a block back, some rows by each thread."""
        copy_by(team, self._show(index), data)


class Given(NamedTuple):
    """Input of a caller: read panel by panel, where it is."""

    observed: NDArray[Any]  #: (N, m n)
    mask: NDArray[np.bool_]  #: (N, 1) or (N, m n)
    start: NDArray[Any] | None  #: (N, m n)
    center: float = 0.0  #: Taken off what was observed

    def panel(self, columns: slice, out: NDArray[Any]) -> None:
        """Columns of the tensor: what was observed, and elsewhere the start, or zero."""
        if self.mask.shape[1] > 1:
            out[...] = 0 if self.start is None else self.start[:, columns]
            np.subtract(self.observed[:, columns], self.center, out=out, where=self.mask[:, columns])
        else:  # rows as a whole, in half the time of a copy behind a mask
            missing = ~self.mask[:, 0]
            with np.errstate(all="ignore"):  # what is missing may be anything
                np.subtract(self.observed[:, columns], self.center, out=out)
            out[missing] = 0 if self.start is None else self.start[missing, columns]

    def rows(self, some: slice) -> Given:
        """The same of some slices."""
        start = None if self.start is None else self.start[some]
        return self._replace(observed=self.observed[some], mask=self.mask[some], start=start)

    def mask_panel(self, columns: slice) -> NDArray[np.uint8]:
        """Columns of the mask of entries; the only one for slices."""
        of = self.mask if self.mask.shape[1] == 1 else self.mask[:, columns]
        return np.ascontiguousarray(of).view(np.uint8)


@final
class GivenPanels(AbstractTier):
    """Panels of what a caller gave, made as they are read."""

    def __init__(self, plan: TensorPlan, given: Given, name: str) -> None:
        self.name, self._problem, self._given = name, plan.problem, given

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """The type of storage."""
        return TYPES[self._problem.precision.storage.name]

    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        """Make a panel of the tensor."""
        self._given.panel(self._problem.columns(index[0]), out)

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: NDArray[Any]) -> None:
        """The same, some slices by each thread: one alone does not keep up with the link."""
        columns = self._problem.columns(index[0])
        team.run([partial(self._given.rows(part).panel, columns, out[part]) for part in team.shares(len(out), out.nbytes)])

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        """Make a panel of the mask."""
        out[...] = self._given.mask_panel(self._problem.columns(index[0])).reshape(-1)

    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        """Do nothing: the input of a caller is not changed."""
        raise TypeError("what was observed is only read")


@final
class HostParts:
    """Arrays of what devices do not keep, and the blocks that devices copy.

    Raises ``BudgetError`` and ``TierError``.
    """

    def __init__(self, plan: TensorPlan, folder: AnyPath | None) -> None:
        problem, shape, storage = plan.problem, plan.problem.shape, plan.problem.precision.storage
        self._plan, self._problem = plan, problem
        rows, columns = plan.host_rows, plan.host_columns
        masked = shape.vertices * columns if problem.mask == "entries" else 0
        wanted: list[tuple[tuple[int, ...], Any]] = [
            ((rows, shape.width), storage),
            ((rows, problem.warm_entries), np.float64),
            ((shape.vertices * columns,), storage),
            ((masked,), np.uint8),
        ]
        #: The one allocation, to be page-locked; None for files, and where devices keep all.
        self.memory: NDArray[np.uint8] | None = None
        arrays = self._in_memory(wanted) if folder is None else [in_file(each, np.dtype(dtype), folder) for each, dtype in wanted]
        self.z, self.warm, self.x, self.mask = arrays
        self._row_of = dict[int, int]()  # of slices that no device keeps, where each run of them begins
        at = 0
        for passing in plan.passing_slices:
            self._row_of |= dict(zip(passing, range(at, at + len(passing)), strict=True))
            at += len(passing)
        self._column_of = dict[int, int]()  # where the columns of a panel begin that no device keeps
        at = 0
        for share in plan.shares:
            for panel in share.panels[share.kept_panels :]:
                self._column_of[panel] = at
                at += problem.columns_of(range(panel, panel + 1))
        self.z_tier = HostBlocks(plan.tier, self.z, self._slices)
        self.warm_tier = HostBlocks(plan.tier, self.warm, lambda index: self.warm[self.rows(index[0], index[1])])
        self.x_tier = HostBlocks(plan.tier, self.x, lambda index: self.x_panel(index[0]))
        self.mask_tier = HostBlocks(plan.tier, self.mask, lambda index: self.mask_panel(index[0]))

    def _in_memory(self, wanted: list[tuple[tuple[int, ...], Any]]) -> list[NDArray[Any]]:
        """Arrays one behind the other in one allocation."""
        sizes = [-(-prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT for shape, dtype in wanted]
        if total := sum(sizes):
            check_room(total, "what devices do not keep of the tensor", _ADVICE)
            self.memory = allocate_aligned(total, Purpose("host memory for a tensor", _ADVICE))
        found, at = [], 0
        for (shape, dtype), size in zip(wanted, sizes, strict=True):
            nbytes = prod(shape) * np.dtype(dtype).itemsize
            raw = np.empty(0, np.uint8) if self.memory is None else self.memory[at : at + nbytes]
            found.append(raw.view(dtype).reshape(shape))
            at += size
        return found

    def release(self) -> None:
        """Let go of all memory; nothing is copied any more."""
        self.memory = None
        self.z, self.warm, self.x, self.mask = (each[:0].copy() for each in (self.z, self.warm, self.x, self.mask))
        for tier in (self.z_tier, self.warm_tier, self.x_tier, self.mask_tier):
            tier.release()

    def rows(self, first: int, stop: int) -> slice:
        """Where adjacent slices are that no device keeps, all of one device."""
        return slice(self._row_of[first], self._row_of[stop - 1] + 1)

    def _slices(self, index: BlockIndex) -> NDArray[Any]:
        """Some columns of some slices: ``(first, stop, first column, stop column)``."""
        return self.z[self.rows(index[0], index[1]), index[2] : index[3]]

    def x_panel(self, panel: int) -> NDArray[Any]:
        """A panel of the tensor (N, w)."""
        return self._panel(self.x, panel)

    def mask_panel(self, panel: int) -> NDArray[np.uint8]:
        """A panel of the mask of entries (N, w)."""
        return self._panel(self.mask, panel)

    def _panel(self, flat: NDArray[Any], panel: int) -> NDArray[Any]:
        height, width = self._problem.shape.vertices, self._problem.columns_of(range(panel, panel + 1))
        at = height * self._column_of[panel]
        return flat[at : at + height * width].reshape(height, width)

    def fill(self, given: Given, team: ThreadTeam, *, has_mask: bool) -> None:
        """Panels become what a caller gave; those of the mask too."""

        def fill(panel: int) -> None:
            given.panel(self._problem.columns(panel), self.x_panel(panel))
            if has_mask and self._problem.mask == "entries":
                self.mask_panel(panel)[...] = given.mask_panel(self._problem.columns(panel))

        team.run([partial(fill, panel) for panel in self._column_of])

    def take(self, rows: range, out: NDArray[Any], team: ThreadTeam) -> None:
        """Columns of ``out`` become rows of the panels that no device keeps."""

        def take(panel: int) -> None:
            out[:, self._problem.columns(panel)] = self.x_panel(panel)[rows.start : rows.stop]

        team.run([partial(take, panel) for panel in self._column_of])


def check_work_folder(folder: AnyPath) -> None:
    """Refuse what is no folder before anything is computed."""
    if not os.path.isdir(check_name(folder, "work_folder")):
        text = f"work_folder: there is no folder {os.fspath(folder)} for working files; make it, or give another one"
        raise MissingFolderError(text, "work_folder", "", os.fspath(folder))


def in_file(shape: tuple[int, ...], dtype: np.dtype[Any], folder: AnyPath) -> NDArray[Any]:
    """Room in a file without a name, all of whose bytes the disk has granted."""
    if not prod(shape):
        return np.empty(shape, dtype)
    check_work_folder(folder)
    nbytes = prod(shape) * dtype.itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise write_error(os.path.join(folder, "a working file"), f"its {nbytes} bytes", error) from error
