"""Which names are those of Zarr: groups and arrays, in local folders and elsewhere."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote, urlsplit

from ooc_chol.files.inputs import check_name

#: Ending of the folder of a group or an array.
ZARR_ENDING = ".zarr"
#: Endings of files of ours, which may lie in such a folder.
_FILES = (".npy", ".ooc")


def is_url(place: object) -> bool:
    """Tell whether a name has a scheme, such as ``"s3://bucket/L.zarr"``; a local path never is one."""
    return isinstance(place, str) and "://" in place


def is_zarr(place: Any) -> bool:
    """Tell whether a matrix or a factor of that name is one of Zarr: a URL, or a path that leads to or into a ``.zarr``.

    >>> (
    ...     is_zarr("L.zarr"),
    ...     is_zarr("s3://bucket/L"),
    ...     is_zarr("A.zarr/covariance"),
    ...     is_zarr("L.ooc"),
    ... )
    (True, True, True, False)
    """
    if is_url(place):
        return True
    if not isinstance(place, str | os.PathLike):
        return False
    path = PurePath(os.fsdecode(place))
    return path.suffix.lower() not in _FILES and any(part.lower().endswith(ZARR_ENDING) for part in path.parts)


def local_path(place: str | os.PathLike[str]) -> str | None:
    """The absolute path of a name that is local, behind all links; None for a URL of another scheme than ``file``.

    Raises ``ValueError``: a URL of the scheme ``file`` names a machine, or :func:`check_name` refuses the name.
    """
    name = check_name(place)
    if not is_url(name):
        return os.path.realpath(name)
    url = urlsplit(name)
    if url.scheme != "file":
        return None
    if url.netloc not in ("", "localhost"):
        raise ValueError(f"{name} is on a machine {url.netloc!r}; write a local folder as file:///folder/L.zarr, or as a path")
    return os.path.realpath(unquote(url.path))
