"""Checks of the place of a new Zarr group of L, and the removal of one of ours."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace as with_fields

from ooc_chol.dense.stores.kept import AnyPlace
from ooc_chol.dense.stores.zarr_header import is_ours, read_zarr_header
from ooc_chol.dense.stores.zarr_layout import DOCUMENT, FORMAT_NAMES
from ooc_chol.errors import MissingFolderError, OutputError, TierError
from ooc_chol.files.object_folders import AbstractObjectFolder, LocalFolder, open_folder
from ooc_chol.files.zarr_names import is_zarr, local_path

#: All that a group of ours has beside its own document: what is removed with it. Whatever else lies there is somebody else's.
PARTS = ("L", *(f"L_{name}" for name in FORMAT_NAMES), "checksums", "exponents", "norms", "formats", "windows")


def check_zarr_target(
    place: AnyPlace, inputs: Iterable[tuple[str, str | os.PathLike[str]]] = (), *, replace: bool, ask: str, option: str = "store"
) -> None:
    """Refuse a group that is an input of the call, holds one or lies in one, and one that may not take its place.

    Raises ``OutputError`` and ``MissingFolderError``.
    """
    real = local_path(place)
    for name, given in inputs:
        other = local_path(given)
        if _is_within(real, other) or _is_within(other, real) or (real is None and _is_same_url(place, given)):
            text = f"{option}: {os.fspath(place)} is, holds or lies in {os.fspath(given)}, which is read as {name}"
            raise OutputError(f"{text}, and would be lost; give another name", option, os.fspath(place), name)
    folder = open_folder(place)
    if _is_begun(folder):
        folder.lock(folder)()  # raises where another run is writing
    check_free(folder, replace=replace, ask=ask, option=option)


def _is_within(path: str | None, folder: str | None) -> bool:
    """Tell whether a local path is a folder or lies in it."""
    return path is not None and folder is not None and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))


def _is_same_url(place: AnyPlace, other: str | os.PathLike[str]) -> bool:
    """Tell whether two names of object storage are one, or one leads into the other."""
    if not is_zarr(other):
        return False
    one, two = (f"{os.fspath(name).rstrip('/')}/" for name in (place, other))
    return one.startswith(two) or two.startswith(one)


def check_free(folder: AbstractObjectFolder, *, replace: bool, ask: str = "replace=True", option: str = "") -> None:
    """Raise unless a group may be made in a folder: nothing is there, or a factor of ours that is to be replaced."""
    said = f"{option}: " if option else ""
    if isinstance(folder, LocalFolder) and not os.path.isdir(parent := os.path.dirname(folder.name)):
        text = f"{said}{folder.name}: there is no folder {parent} to make the Zarr group in; make it, or give another name"
        raise MissingFolderError(text, option, folder.name, parent)
    if isinstance(folder, LocalFolder) and os.path.lexists(folder.name) and not os.path.isdir(folder.name):
        text = f"{said}{folder.name} exists and is no folder; give another name"
        raise OutputError(text, option, folder.name)
    if folder.is_empty():
        return
    if not is_ours(folder):
        text = f"{said}{folder.name} exists and is no factor of ooc_chol, which is never removed; give another name"
        raise OutputError(text, option, folder.name)
    if not replace:
        text = f"{said}{folder.name} is {_kind_of(folder)}; give another name, remove it, or replace it by {ask}"
        raise OutputError(text, option, folder.name)


def _is_begun(folder: AbstractObjectFolder) -> bool:
    """Tell whether a folder has a factor that is not complete."""
    try:
        return not read_zarr_header(folder).complete
    except (FileNotFoundError, TierError):  # of what cannot be read check_free says more
        return False


def _kind_of(folder: AbstractObjectFolder) -> str:
    """Kind of a group of ours, in words."""
    try:
        header = read_zarr_header(folder)
    except TierError:
        return "a factor of ooc_chol that cannot be read"
    if header.complete:
        return "a factor already"
    return "an unfinished factor" if header.checkpoint is None else "a checkpoint, from which checkpoint=True goes on"


def make_way(folder: AbstractObjectFolder, writer: str | None, *, replace: bool) -> None:
    """Remove an earlier factor where that was asked for; raise where something else is in the way."""
    check_free(folder, replace=replace)
    if is_ours(folder):
        remove_group(folder, writer)


def remove_group(folder: AbstractObjectFolder, writer: str | None) -> None:
    """Remove what a group of ours has, in behalf of the run ``writer``; whatever else lies in its folder stays."""
    with suppress(TierError, FileNotFoundError):  # what cannot be read claims nothing
        # 1. It is complete no more, no checkpoint, and no other run's. 2. Its parts go. 3. It is known for ours until all of
        # them are gone.
        header = with_fields(read_zarr_header(folder), complete=False, checkpoint=None, writer=writer)
        folder.write(DOCUMENT, [memoryview(header.document())])
    for part in PARTS:
        folder.remove_below(part)
    folder.remove(DOCUMENT)
