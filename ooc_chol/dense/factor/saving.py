"""Writing a factor to a file: in its own format, or as a dense array of NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace as with_fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ooc_chol.dense.factor.reading import stream_tiles
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.choice import check_not_open, check_place, create_kept
from ooc_chol.dense.stores.header import FACTOR_FILES
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.files.inputs import check_name
from ooc_chol.files.outputs import REPLACE, AnyPath, Output, check_outputs, output_file
from ooc_chol.files.positional_io import file_errors_typed, preallocate, tile_bytes, write_fully
from ooc_chol.files.zarr_names import is_zarr
from ooc_chol.process.interrupts import HeldInterrupts

#: Ending of the names of arrays of NumPy.
_ARRAY = ".npy"
#: Names that :meth:`CholeskyFactor.save` takes: by their endings those of factors, and of arrays.
_SAVED = with_fields(FACTOR_FILES, endings=(*FACTOR_FILES.endings, _ARRAY), hint="")
#: Bytes of rows of a dense array that are written at once, while as many are read.
_BAND_BYTES = 1 << 24


def is_array_name(path: AnyPath) -> bool:
    """Tell whether L is saved to ``path`` as a dense array."""
    return os.fspath(path).lower().endswith(_ARRAY)


def check_target(store: AbstractStore, path: AnyPath, files: Sequence[AnyPath], *, replace: bool) -> None:
    """Refuse a name that promises what L is not saved as, and one where saving ``store`` would take something from somebody."""
    check_name(path, "store, or the path to save to,")
    inputs = [("the matrix that was factored", file) for file in files]
    if is_zarr(path):
        own = [("this factor", store.path)] if isinstance(store, AbstractKeptStore) else []
        check_place(path, [*inputs, *own], replace=replace, ask=REPLACE, option="save")
        return
    check_outputs([Output("save", path, None if is_array_name(path) else _SAVED)], inputs, replace=replace)
    check_not_open(path, store, replace=replace, ask=REPLACE, option="save")


def save_tiles(store: AbstractStore, path: AnyPath, arithmetic_key: Mapping[str, Any], *, replace: bool) -> None:
    """Write all tiles as they are stored, through two tiles of memory."""
    with ExitStack() as owned:
        with HeldInterrupts():
            target = create_kept(path, store.grid, arithmetic_key, store.formats, fmt=store.fmt, replace=replace)
            owned.callback(target.discard)  # of no effect on one that was closed before
        with closing(stream_tiles(store, list(store.grid.tiles()))) as tiles:
            for index, l_ij in tiles:
                target.write(index, l_ij)
        target.complete()
        target.close()


def save_array(read_rows: Callable[[range], NDArray[Any]], n: int, dtype: DTypeLike, path: AnyPath, *, replace: bool) -> None:
    """Write a ``.npy`` file of shape ``(n, n)``, row by row, some 32 MiB of rows in memory at once."""
    dtype = np.dtype(dtype)
    height = max(1, _BAND_BYTES // max(1, n * dtype.itemsize))
    typed = file_errors_typed(os.fspath(path), "writing it")
    with typed, output_file(path, replace=replace, option="save") as part, part.open("r+b", buffering=0) as file:
        described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n, n)}
        np.lib.format.write_array_header_1_0(file, described)
        offset = file.tell()
        preallocate(file.fileno(), n * n * dtype.itemsize, os.fspath(path), start=offset)
        for row in range(0, n, height):
            band = np.ascontiguousarray(read_rows(range(row, min(row + height, n))), dtype=dtype)
            write_fully(file.fileno(), tile_bytes(band), offset, os.fspath(path))
            offset += band.nbytes
        os.fsync(file.fileno())
