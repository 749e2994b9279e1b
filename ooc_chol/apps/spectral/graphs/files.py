"""Files of parts in METIS's format: a line for each vertex, with the number of its part."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb

AnyPath: TypeAlias = str | os.PathLike[str]

#: Bytes of a line, and the largest number of a part: parts are of int32.
_LINE_BYTES, _MOST_PARTS = 64, 2**31 - 1
_GZIP_MARK = b"\x1f\x8b"

#: Files of parts, which have no mark; METIS names them ``.part.4``.
PARTITIONS = tb.FileKind("partition", endings=(".txt",), gzipped=True)


def write_partition(path: AnyPath, labels: Any, replace: bool = False) -> None:
    """Write the part of every vertex, a number a line, as METIS, KaHIP and others write and read it.

    Parameters
    ----------
    path : str or PathLike
        Name of the file; compressed where it ends in ``.gz``.
    labels : (n,) array_like of int
        Parts, from 0.
    replace : bool
        True if a file that is there may be replaced.

    Raises
    ------
    TypeError
        Labels are no whole numbers.
    ValueError
        They are not in one dimension, or negative; or the name promises another format.
    oc.errors.OutputError
        The file is there already, and nobody asked for it to be replaced.
    oc.errors.MissingFolderError
        There is no such folder.
    """
    given = tb.plain_array("labels", labels)
    if given.dtype.kind not in "iu":
        raise TypeError(f"labels are {given.dtype}, but parts are whole numbers")
    if given.ndim != 1:
        raise ValueError(f"labels have shape {given.shape}; give one number for each vertex, (n,)")
    bad = np.flatnonzero((given < 0) | (given > _MOST_PARTS))
    if bad.size:
        raise ValueError(f"labels[{bad[0]}] is {given[bad[0]]}, but parts are numbered from 0 to {_MOST_PARTS}")
    lines = "".join(f"{label}\n" for label in given.tolist()).encode()
    with tb.output_file(path, kind=PARTITIONS, replace=replace) as part:
        part.write_bytes(gzip.compress(lines, mtime=0) if os.fspath(path).lower().endswith(".gz") else lines)


def read_partition(path: AnyPath) -> NDArray[np.int32]:
    """Read the part of every vertex from a file that :func:`write_partition`, METIS or another partitioner has written.

    Parameters
    ----------
    path : str or PathLike
        Name of the file, text or compressed by gzip.

    Returns
    -------
    (n,) array of int32
        Parts, from 0.

    Raises
    ------
    oc.errors.SparseInputError
        A line holds something else than one number from 0 on, or there is none.
    OSError
        There is no such file.
    """
    name = os.fspath(path)
    with tb.input_file(path) as file:
        is_packed = file.read(2) == _GZIP_MARK
        file.seek(0)
        # Of compressed bytes there may be a thousand times as many: line by line, what is no partition ends the reading.
        try:
            labels = _labels(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_packed else file, name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise oc.errors.SparseInputError(name, "", f"it is no complete file of gzip ({error})", "copy it again") from None
    if not len(labels):
        raise oc.errors.SparseInputError(name, "", "it is empty", "give a file with a number of a part in each line")
    return labels


def _labels(file: BinaryIO, name: str) -> NDArray[np.int32]:
    """A number a line; empty lines may stand at the end."""
    found: list[int] = []
    end = 0
    for number, line in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), 1):
        word = line.strip()
        if not word:
            end = end or number
            continue
        is_number = word.isdigit() and int(word) <= _MOST_PARTS
        if not is_number or end:
            shown = "an empty line among others" if end else repr(word.decode("ascii", "backslashreplace"))
            problem = f"{shown} is no part: parts are numbered from 0 to {_MOST_PARTS}"
            raise oc.errors.SparseInputError(name, f"line {end or number}", problem, "give one number a line, for each vertex")
        found.append(int(word))
    return np.array(found, np.int32)
