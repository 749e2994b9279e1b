"""Choice between a file and a Zarr group for L, by its name, and what follows from that: the one place where it is decided."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.file import FileStore, is_open
from ooc_chol.dense.stores.header import FACTOR_FILES
from ooc_chol.dense.stores.kept import AbstractKeptStore, AnyPlace
from ooc_chol.dense.stores.verification import Verdict, check_ordinary, verify_file
from ooc_chol.errors import OutputError
from ooc_chol.files.outputs import Output, check_outputs
from ooc_chol.files.zarr_names import is_zarr
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid


def create_kept(
    place: AnyPlace,
    grid: TileGrid,
    arithmetic_key: Mapping[str, Any] | None = None,
    formats: Sequence[PrecisionFormat] | None = None,
    *,
    fmt: PrecisionFormat = FP64,
    replace: bool = False,
    checkpoint: Mapping[str, Any] | None = None,
) -> AbstractKeptStore:
    """An empty store of that name, for writing."""
    if not is_zarr(place):
        return FileStore.create(place, grid, arithmetic_key, formats, fmt=fmt, replace=replace, checkpoint=checkpoint)
    from ooc_chol.dense.stores.zarr_store import ZarrStore  # only where it is used

    return ZarrStore.create(place, grid, arithmetic_key, formats, fmt=fmt, replace=replace, checkpoint=checkpoint)


def open_kept(place: AnyPlace) -> AbstractKeptStore:
    """The complete store of that name; ``FileNotFoundError`` where there is nothing."""
    if not is_zarr(place):
        return FileStore.open(place)
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    return ZarrStore.open(place)


def open_unfinished(place: AnyPlace) -> AbstractKeptStore:
    """The unfinished store of that name, to go on writing it; ``FileNotFoundError`` where there is none."""
    if not is_zarr(place):
        return FileStore.open_unfinished(place)
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    return ZarrStore.open_unfinished(place)


def checkpoint_at(place: AnyPlace) -> str | None:
    """Name of the unfinished store of ``place`` where that is a checkpoint; None where there is none to go on from."""
    if not is_zarr(place):
        return FileStore.checkpoint_at(place)
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    return ZarrStore.checkpoint_at(place)


def missing_checkpoint(place: AnyPlace) -> str | None:
    """Name of what a run would go on from, where neither that nor a finished factor is there; else None."""
    if not is_zarr(place):
        partial = f"{os.path.realpath(place)}.partial"
        return None if os.path.exists(partial) or os.path.exists(place) else f"{os.fspath(place)}.partial"
    try:
        check_verifiable(place)
    except FileNotFoundError:
        return os.fspath(place)
    return None


def check_verifiable(place: AnyPlace) -> None:
    """Raise FileNotFoundError or TierError where there is nothing of that name that is to be verified."""
    if not is_zarr(place):
        check_ordinary(place)
        return
    from ooc_chol.dense.stores.zarr_header import check_there

    check_there(place)


def verify(place: AnyPlace) -> Verdict:
    """Verify the factor of that name."""
    if not is_zarr(place):
        return verify_file(place)
    from ooc_chol.dense.stores.zarr_verification import verify_group

    return verify_group(place)


def check_place(
    place: AnyPlace,
    inputs: Sequence[tuple[str, Any]],
    *,
    replace: bool,
    goes_on: bool = False,
    ask: str = "replace=True",
    option: str = "store",
) -> None:
    """Refuse a place where L would take something from somebody, before anything is opened.

    ``goes_on`` says that a factor that is there is gone on from, or given: of that a Zarr group is no more than looked at.
    """
    if not is_zarr(place):
        check_outputs([Output(option, place, FACTOR_FILES)], inputs, replace=replace, ask=ask)
        return
    from ooc_chol.dense.stores.zarr_layout import check_installed
    from ooc_chol.dense.stores.zarr_replacing import check_zarr_target

    check_installed()
    check_zarr_target(place, _given(inputs), replace=replace or goes_on, ask=ask, option=option)


def check_not_open(place: AnyPlace, but: AbstractStore | None = None, *, replace: bool, ask: str, option: str) -> None:
    """Refuse the file of an open factor, of another store than ``but``, unless it is to be replaced."""
    if not replace and is_open(place, but):
        name = os.fspath(place)
        text = f"{option}: {name} is the file of another open factor; close it, give another name, or replace it by {ask}"
        raise OutputError(text, option, name, "another open factor")


def _given(inputs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Inputs that have a name."""
    return [(name, given) for name, given in inputs if given is not None]
