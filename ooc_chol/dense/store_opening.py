"""The store of a call's L: whether its file may be made, and making it."""

from __future__ import annotations

import os
from contextlib import ExitStack

import numpy as np

from ooc_chol.config import format_bytes, parse_bytes, whole_pages
from ooc_chol.dense.checkpoint import CheckpointRecord
from ooc_chol.dense.disk_tier import over_file
from ooc_chol.dense.execution.page_locking import lock_store
from ooc_chol.dense.keeping import keep_unfinished
from ooc_chol.dense.key import arithmetic_key
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import SURELY_FREE
from ooc_chol.dense.request import Request
from ooc_chol.dense.stores.array import MemoryStore, OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.choice import check_place, checkpoint_at, create_kept
from ooc_chol.dense.stores.device import DeviceStore
from ooc_chol.dense.stores.places import Place, is_file
from ooc_chol.errors import BudgetError, OutputError
from ooc_chol.files.zarr_names import is_url
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.registry import device_kind
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.release import RELEASER
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.tasks.tiling import TileGrid


def check_store(request: Request) -> None:
    """Refuse a file for L that is A's own, or exists and is no factor; before anything is measured or planned.

    Under a ``host_budget`` A stays out of the system's cache from its first reading on.
    """
    request.source.is_bounded = request.options.host_budget is not None
    if is_file(request.store):
        inputs: list[tuple[str, str]] = [("A", file) for file in request.source.files]
        if is_url(request.a):
            inputs.append(("A", request.a))
        check_place(request.store, inputs, replace=request.replaces, goes_on=request.checkpoint)
        if not request.checkpoint and not request.replaces:
            _refuse_checkpoint(request.store)


def _refuse_checkpoint(path: str | os.PathLike[str]) -> None:
    """Raise ``OutputError`` where the unfinished file that a new one would replace is a checkpoint."""
    if (there := checkpoint_at(path)) is not None:
        text = f"store: {there} is a checkpoint, which would be lost; go on from it with checkpoint=True, or remove it"
        raise OutputError(f"{text}, or replace it by replace=True", "store", there)


def own_store(request: Request, plan: Plan, owned: ExitStack, record: CheckpointRecord | None = None) -> AbstractStore:
    """An empty store for the L of ``plan``, which ``owned`` discards unless it is emptied first; a checkpoint it keeps.

    ``record`` is what a checkpoint says where runs came before this one.
    """
    store = _create_store(request, plan, record, owned)
    if request.checkpoint:
        keep_unfinished(store, owned)
    else:
        owned.callback(store.discard)  # of no effect on one that was discarded before
    return store


def own_empty_store(request: Request, owned: ExitStack) -> AbstractStore:
    """A store for the L of order 0, in host memory or in a file, which ``owned`` discards unless it is emptied first."""
    grid = TileGrid(0, 1)
    store: AbstractStore
    with HeldInterrupts():
        if is_file(request.store):
            store = create_kept(request.store, grid, replace=request.replaces)
        else:
            store = MemoryStore(grid, None, request.memory)
        owned.callback(store.discard)
    return store


def whole_store(request: Request, grid: TileGrid, device: str) -> AbstractStore:
    """An empty store in memory, or on ``device``, for an L of one tile."""
    fmt = request.problem.fmt
    if request.problem.keeps_on_device:
        return DeviceStore(grid, (device,), (0,), fmt=fmt)
    needed = whole_pages(fmt.stored_bytes(grid.entries(0, 0)))
    _make_room(needed, request.memory, request.options, asks_from=SURELY_FREE)
    return MemoryStore(grid, None, request.memory, fmt=fmt)


def _create_store(request: Request, plan: Plan, record: CheckpointRecord | None, owned: ExitStack) -> AbstractStore:
    """Where L goes: over A, into a file, or into memory, page-locked from now on as long as L is there when a GPU factors."""
    a, place, fmt = request.a, request.store, plan.fmt
    if request.overwrite:
        if not isinstance(a, np.ndarray):
            raise TypeError(
                f"overwrite=True keeps L in A's own memory, but A is a {type(a).__name__}; give a writable {fmt.dtype} array"
            )
        return OverwriteStore(a, plan.grid, fmt)
    formats = None if plan.precision is None else plan.precision.formats
    if plan.kept_bytes:
        return DeviceStore(plan.grid, plan.devices, plan.owners, formats, fmt)
    if is_file(place):
        key, checkpoint = arithmetic_key(plan).to_dict(), None
        if request.checkpoint:
            checkpoint = (record or CheckpointRecord.of(plan, request.options, request.fingerprint)).to_dict()
        replace = request.replaces
        with HeldInterrupts():
            file = create_kept(place, plan.grid, key, formats, fmt=fmt, replace=replace, checkpoint=checkpoint)
            # Before anything is put over it: an interrupt may come there.
            if request.checkpoint:
                file.keep_unfinished()
                keep_unfinished(file, owned)
            else:
                owned.callback(file.discard)
        return over_file(file, plan, request.source, request.options)
    _make_room(plan.host_bytes, request.memory, request.options, arenas=_host_arena_bytes(plan))
    store = MemoryStore(plan.grid, formats, request.memory, fmt=fmt)
    lock_store(plan, store)
    return store


def check_host_budget(plan: Plan, place: Place, options: FactorOptions, *, overwrite: bool = False) -> None:
    """Raise ``BudgetError`` where the L of ``plan`` stays in host memory and is more than ``options`` allow."""
    if overwrite or plan.kept_bytes or is_file(place):
        return
    _check_bytes(plan.host_bytes, options, arenas=_host_arena_bytes(plan))


def _make_room(needed: int, place: HostMemory | None, options: FactorOptions, *, arenas: int = 0, asks_from: int = 0) -> None:
    """Let there be so many bytes for L in host memory beside ``arenas``; ``BudgetError`` where that cannot be.

    Up to ``asks_from`` bytes the system is not asked what is free.
    """
    held = 0 if place is None else place.nbytes
    if needed <= asks_from:
        _check_bytes(needed, options)
        return
    free = free_host_bytes() - arenas + held
    # What waits for its release is free for L: the store takes it over, or it is released before anything is allocated.
    _check_bytes(needed, options, arenas=arenas, free=free + RELEASER.pending_bytes)
    if not held:
        RELEASER.make_room(needed, free)
    elif needed > max(held, free):
        RELEASER.release_now()


def _check_bytes(needed: int, options: FactorOptions, *, arenas: int = 0, free: int | None = None) -> None:
    """Raise ``BudgetError`` where so many bytes of L are more than ``options`` allow, or than is free."""
    budget = None if options.host_budget is None else parse_bytes(options.host_budget, "host_budget")
    allowed = min((most for most in (free, budget) if most is not None), default=needed)
    if needed > allowed:
        what, more = "host memory for L", f"lower memory_budget ({format_bytes(arenas)} in use)" if arenas else "free some"
        if allowed == budget:
            what, more = "host_budget for L", "give a larger host_budget"
        advice = f"keep L in a file (store=) or over A (overwrite=True), or {more}"
        raise BudgetError(what, needed, max(0, allowed), advice)


def _host_arena_bytes(plan: Plan) -> int:
    """Bytes of host memory that the slots of all devices take."""
    if not device_kind(plan.devices[0]).is_in_host_memory:
        return 0
    return len(plan.devices) * plan.layout.arena_bytes
