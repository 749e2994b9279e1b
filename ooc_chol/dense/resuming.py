"""Going on from a checkpoint: an unfinished file whose tiles are those of this call, or the finished one of the same call."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.key import differences
from ooc_chol.dense.checkpoint import CheckpointRecord
from ooc_chol.dense.disk_tier import over_file
from ooc_chol.dense.keeping import keep_unfinished
from ooc_chol.dense.key import arithmetic_key
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.request import Request, options_of_plan
from ooc_chol.dense.store_opening import own_store
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.choice import open_kept, open_unfinished
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.dense.stores.tiered import TieredStore, file_of
from ooc_chol.errors import CheckpointError, DamagedFileError
from ooc_chol.formats import FP64
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces import NORM_COLUMNS
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.team import ThreadTeam


@dataclass(frozen=True)
class Resumption:
    """A checkpoint that belongs to a call."""

    store: AbstractKeptStore
    record: CheckpointRecord
    options: FactorOptions  #: Those of the call, with what they leave open as it is in the checkpoint
    good: frozenset[tuple[int, int]]  #: Tiles whose bytes are what was written

    @property
    def is_complete(self) -> bool:
        """True if the factor was finished before."""
        return self.store.is_complete

    @property
    def key(self) -> dict[str, str | int]:
        """The arithmetic key of the factor."""
        return dict(self.store.arithmetic_key)

    def store_for(self, plan: Plan, request: Request, owned: ExitStack) -> AbstractStore:
        """The store for what is left to do, of which host memory keeps what ``plan`` says."""
        if self.is_complete or not isinstance(store := over_file(self.store, plan, request.source, self.options), TieredStore):
            return self.store
        keep_unfinished(store, owned)
        return store

    def check_key(self, plan: Plan) -> None:
        """Raise ``CheckpointError`` where ``plan`` would give the factor other bits."""
        if differing := differences(self.key, arithmetic_key(plan).to_dict()):
            raise CheckpointError(self._path, differing)

    def norms(self, precision: PrecisionMap) -> NDArray[np.float64]:
        """Norms of final tiles measured by a run, of those that are there.

        What rounding took away from a tile is not known any more: it is taken to be the format's unit roundoff of its norm.
        """
        grid, rows = self.store.grid, np.zeros((self.store.grid.n_tiles, len(NORM_COLUMNS)))
        for index in self.good:
            tile, row = np.empty(grid.shape(*index)), rows[grid.packed(*index)]
            self.store.read(index, tile)
            norm, fmt = float(np.linalg.norm(tile)), precision.format_of(index)
            magnitudes = np.abs(tile)
            row[0], row[1], row[4] = norm, 0.0 if fmt == FP64 else fmt.unit_roundoff * norm, magnitudes.max()
            if index[0] == index[1]:
                row[2], row[3] = magnitudes.sum(axis=1).max(), magnitudes.sum(axis=0).max()
        return rows

    @property
    def _path(self) -> str:
        return self.store.path if self.is_complete else self.store.partial_path


def resumed(request: Request, owned: ExitStack) -> Resumption | None:
    """Find the tiles to resume from, which ``owned`` keeps unless it is emptied first; None where all is to be computed.

    Raises ``CheckpointError`` for another matrix, other options, or a factor that no checkpoint was requested for, and
    ``TierError`` where another run is writing it, or it cannot be read.
    """
    if not request.checkpoint or request.replaces:
        return None
    assert isinstance(request.store, str | os.PathLike)
    store = _opened(request.store)
    if store is None:
        return None
    with ExitStack() as until_known:
        until_known.callback(store.close)
        record = _record_of(store)
        if record is None:
            return None
        options = _options(request, store, record)
        good = _good_tiles(store)
        with HeldInterrupts():
            until_known.pop_all()
            keep_unfinished(store, owned)
        store.keep_unfinished()
    return Resumption(store, record, options, good)


def own_plan_and_store(request: Request, owned: ExitStack) -> tuple[Plan, AbstractStore, int]:
    """The plan in FP64 and its store, which ``owned`` discards or keeps, and how many tiles of a checkpoint it goes on from."""
    found = resumed(request, owned)
    if found is None:
        plan = request.plan or make_plan(request.problem, request.options, request.rates_at, request.machine)
        return plan, own_store(request, plan, owned), 0
    plan = make_plan(replace(request.problem, given=found.good), found.options, request.rates_at, request.machine)
    found.check_key(plan)
    return plan, found.store_for(plan, request, owned), len(found.good)


def save_record(store: AbstractStore, plan: Plan, record: CheckpointRecord | None) -> None:
    """Let a checkpoint say, durably, what the tiles that are to come are computed by, and what was tried before."""
    if record is not None:
        file = file_of(store)
        file.describe(arithmetic_key(plan).to_dict())
        file.save_checkpoint(record.to_dict())


def _opened(path: str | os.PathLike[str]) -> AbstractKeptStore | None:
    """The unfinished file or group, or else the finished one; None where there is neither."""
    with suppress(FileNotFoundError):
        return open_unfinished(path)
    with suppress(FileNotFoundError):
        return open_kept(path)
    return None


def _record_of(store: AbstractKeptStore) -> CheckpointRecord | None:
    """The record in a header; None for what a killed run without a checkpoint has left."""
    content: Any = store.checkpoint
    if content is None and not store.is_complete:
        return None
    path = store.path if store.is_complete else store.partial_path
    if content is None:
        raise CheckpointError(path, {"kind of file": ("a finished factor without a checkpoint", "a checkpoint")})
    try:
        return CheckpointRecord.from_dict(content)
    except (KeyError, TypeError, ValueError) as error:
        written = f"written by version {store.created_by} of the package"
        text = f"{path}: what it says of its checkpoint makes no sense ({error!r}), {written}; start afresh with replace=True"
        raise DamagedFileError(text, path) from error


def _options(request: Request, store: AbstractKeptStore, record: CheckpointRecord) -> FactorOptions:
    """The options of the call with what the checkpoint pins; ``CheckpointError`` for what cannot go together."""
    path, grid = store.path if store.is_complete else store.partial_path, store.grid
    asked = request.options if request.plan is None else options_of_plan(request.plan, request.options)
    differing = record.conflicts(asked, grid.nb)
    if grid.n != request.source.n:
        differing = {"n": (str(grid.n), str(request.source.n)), **differing}
    elif store.fmt != request.problem.fmt:
        differing = {"dtype": (store.fmt.dtype.name, request.problem.fmt.dtype.name), **differing}
    else:
        differing = {**record.fingerprint.differences(request.fingerprint), **differing}
    if differing:
        raise CheckpointError(path, differing)
    pinned = record.pinned(asked, grid.nb)
    if asked.memory_budget is not None or asked.precision_threshold is None:
        return pinned
    # What is computed again where a pivot fails in narrow formats depends on panels, and these on the budget.
    return replace(pinned, memory_budget=min(record.budget_bytes, request.machine.steady_budget_bytes))


def _good_tiles(store: AbstractKeptStore) -> frozenset[tuple[int, int]]:
    """The tiles whose bytes agree with their checksums, read by all threads; a finished factor has no others."""
    with closing(ThreadTeam(host_threads(1))) as team:
        states = store.verify_tiles(team=team)
    if store.is_complete and states.bad:
        i, j = min(states.bad)
        text = f"{store.path}: the finished factor is damaged in tile {(i, j)} ({len(states.bad)} in all)"
        raise DamagedFileError(f"{text}; compute it anew with replace=True", store.path, tile=(int(i), int(j)))
    return frozenset((int(i), int(j)) for i, j in states.good)
