"""The Zarr group that L goes to, as the client sees it: made before the run, gone on from, completed behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ooc_chol.calls.key import differences
from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.matrices import AbstractClusterMatrix
from ooc_chol.cluster.waiting import gathered
from ooc_chol.dense.checkpoint import CheckpointRecord
from ooc_chol.dense.fingerprint import Fingerprint
from ooc_chol.dense.keeping import VERDICTS
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.stores.choice import check_place, checkpoint_at
from ooc_chol.errors import CheckpointError, DamagedFileError, OutputError
from ooc_chol.files.zarr_names import is_zarr, local_path
from ooc_chol.formats import PrecisionFormat
from ooc_chol.tasks.windows import Window

if TYPE_CHECKING:
    from ooc_chol.dense.stores.zarr_store import ZarrStore


@dataclass(frozen=True)
class Asked:
    """Arguments of a call on where L goes."""

    place: str
    checkpoint: bool
    replace: bool

    @classmethod
    def of(cls, store: Any, *, checkpoint: bool, replace: bool) -> Asked | None:
        """The group that a call names, by a name that all workers understand; None for the workers' memory."""
        if store is None:
            return None
        if not is_zarr(store):
            raise ValueError(
                f"on a cluster L goes to a Zarr group, which {os.fspath(store)!r} does not name: give a folder that ends in "
                ".zarr, or a URL such as 's3://bucket/L.zarr'; a single file has one writer"
            )
        if str(store).startswith("memory:"):
            raise ValueError(f"{store} is in the memory of one process: give a folder or a URL that all workers reach")
        local = local_path(store)
        return cls(os.fspath(store) if local is None else local, checkpoint, replace)


@dataclass(frozen=True)
class Found:
    """A group that an earlier run of the same call left."""

    store: ZarrStore
    options: FactorOptions  #: Those of the call, with what they leave open as it is there

    @property
    def height(self) -> int | None:
        """Tile rows of its blocks; None where one process left them, which are cut as the plan wants them."""
        return self.store.header.height if self.store.is_complete or self.store.has_windows else None

    def check_key(self, key: dict[str, str | int]) -> None:
        """Raise ``CheckpointError`` where the rest would have other bits."""
        if differing := differences(dict(self.store.arithmetic_key), key):
            raise CheckpointError(self.store.path, differing)


@final
class Group:
    """The group of a run, or none where L stays in the workers' memory."""

    def __init__(self, store: ZarrStore | None = None, done: frozenset[BlockPlace] = frozenset()) -> None:
        self.store = store
        self.done = done  #: Blocks that it holds already, and that are right

    @property
    def url(self) -> str | None:
        """Its name, for workers."""
        return None if self.store is None else self.store.path

    @property
    def writer(self) -> str | None:
        """The run that writes it, for workers."""
        return None if self.store is None else self.store.header.writer

    def completed(self) -> ZarrStore | None:
        """The store of the group, complete now."""
        if self.store is not None:
            self.store.complete()
        return self.store


def checked(asked: Asked, matrix: AbstractClusterMatrix) -> None:
    """Refuse a group that would take something from somebody, before anything is asked of workers."""
    check_place(asked.place, [("A", file) for file in matrix.files], replace=asked.replace, goes_on=asked.checkpoint)
    if not asked.checkpoint and not asked.replace and (there := checkpoint_at(asked.place)) is not None:
        text = f"store: {there} is a checkpoint, which would be lost; go on from it with checkpoint=True, or remove it"
        raise OutputError(f"{text}, or replace it by replace=True", "store", there)


def found_group(
    asked: Asked, options: FactorOptions, matrix: AbstractClusterMatrix, fmt: PrecisionFormat, fingerprint: Fingerprint
) -> Found | None:
    """Find the group to resume from; ``CheckpointError`` where it is of another call."""
    store = None if asked.replace else _opened(asked.place)
    if store is None:
        return None
    with ExitStack() as until_known:
        until_known.callback(store.close)
        record = _record(store)
        if record is None:
            return None
        differing = record.conflicts(options, store.grid.nb)
        if store.grid.n != matrix.n:
            differing = {"n": (str(store.grid.n), str(matrix.n)), **differing}
        elif store.fmt != fmt:
            differing = {"dtype": (store.fmt.dtype.name, fmt.dtype.name), **differing}
        else:
            differing = {**record.fingerprint.differences(fingerprint), **differing}
        if differing:
            raise CheckpointError(store.path, differing)
        until_known.pop_all()
    return Found(store, record.pinned(options, store.grid.nb))


def _opened(place: str) -> ZarrStore | None:
    """The unfinished group, which is the call's own from now on, or else the finished one; None where there is neither."""
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    for opened in (ZarrStore.open_unfinished, ZarrStore.open):
        with suppress(FileNotFoundError):
            return opened(place)
    return None


def _record(store: ZarrStore) -> CheckpointRecord | None:
    """Record of a group's checkpoint; None for a group that a killed run without one left."""
    content: Any = store.checkpoint
    if content is None:
        if store.is_complete:
            there = "a finished factor without a checkpoint"
            raise CheckpointError(store.path, {"kind of group": (there, "a checkpoint")})
        return None
    try:
        return CheckpointRecord.from_dict(content)
    except (KeyError, TypeError, ValueError) as error:
        text = f"{store.path}: what it says of its checkpoint makes no sense ({error!r}); start afresh with replace=True"
        raise DamagedFileError(text, store.path) from error


@contextmanager
def kept_group(group: Group, *, keeps: bool) -> Iterator[Group]:
    """The group inside the block: where that fails, a checkpoint stays unless the error is a verdict on A, all else goes."""
    try:
        yield group
    except BaseException as error:
        if (store := group.store) is not None:
            if keeps and not isinstance(error, VERDICTS):
                left = len(store.finished_windows())
                store.close()
                error.add_note(f"{left} finished blocks are in the checkpoint {store.path}: the same call goes on from it")
            else:
                store.discard()
        raise


def new_group(
    asked: Asked, blocks: BlockGrid, fmt: PrecisionFormat, key: dict[str, str | int], record: CheckpointRecord | None
) -> ZarrStore:
    """An empty group."""
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    return ZarrStore.create(
        asked.place,
        blocks.tiles,
        key,
        fmt=fmt,
        height=blocks.height,
        replace=asked.replace,
        checkpoint=None if record is None else record.to_dict(),
    )


def right_blocks(client: Any, store: ZarrStore) -> frozenset[BlockPlace]:
    """Blocks that are finished and whose bytes are what was written, read by the workers."""
    height, windows = store.header.height, store.finished_windows()
    asked = [client.submit(is_right, store.path, window, pure=False) for window in windows]
    answers = gathered(client, asked)
    right = [window for window, answer in zip(windows, answers, strict=True) if answer]
    return frozenset(BlockPlace(window.rows.start // height, window.columns.start // height) for window in right)


def is_right(url: str, window: Window) -> bool:
    """Tell whether all tiles of a window in a group are what was written."""
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    store = ZarrStore.open_for_writing(url)
    try:
        states = store.verify_tiles(window.tiles())
    finally:
        store.close()
    return not states.bad and not states.missing
