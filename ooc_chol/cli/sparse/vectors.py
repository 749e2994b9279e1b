"""Vectors in ``.npy`` files, which commands read and write."""

from __future__ import annotations

from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.files.positional_io import file_errors_typed
from ooc_chol.memory.sources.file import npy_header
from ooc_chol.sparse.sources.npy import MOST_HEADER

#: Arrays of NumPy, which have no mark: one may be anybody's.
NPY_FILES = tb.FileKind("NumPy array", endings=(".npy",))


def read_vectors(path: Path) -> NDArray[Any]:
    """A vector, or vectors as columns, of real numbers: as many as the file has bytes for, never pickled ones.

    Raises ``TierError``, ``TypeError``, ``ValueError`` and ``BudgetError``.
    """
    with file_errors_typed(path, "opening it"), tb.input_file(path) as file:
        head = BytesIO(file.read(MOST_HEADER))  # what the header says of its own length is not believed
        try:
            shape, is_fortran, dtype = npy_header(head)
        except Exception as error:  # the parser of a damaged header may raise anything
            raise oc.errors.TierError(
                f"{path} is not a complete .npy file ({error!s:.200}): write it anew with numpy.save"
            ) from error
        if dtype.kind not in "biuf":
            raise TypeError(f"{path} holds {dtype}, but X has real numbers: convert it")
        if len(shape) not in (1, 2):
            raise ValueError(f"{path} has shape {shape}: give a vector (n,), or vectors as columns (n, m)")
        count, rest = prod(shape), path.stat().st_size - head.tell()
        if rest != count * dtype.itemsize:
            text = f"{rest} bytes for {count} numbers of {dtype}"
            raise oc.errors.TierError(f"{path} is not a complete .npy file ({text}): write it anew with numpy.save")
        tb.check_room(rest, f"memory for {path}", "multiply fewer columns at a time")
        file.seek(head.tell())
        numbers = np.fromfile(file, dtype, count)
    return numbers.reshape(shape, order="F" if is_fortran else "C")
