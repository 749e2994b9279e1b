"""Sources of A: what :func:`as_source` takes for a matrix, and the kinds of source that there are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import UnsupportedTypeError
from ooc_chol.files.inputs import check_name, plain_array
from ooc_chol.files.zarr_names import is_zarr
from ooc_chol.memory.sources.array import ArraySource, SliceSource
from ooc_chol.memory.sources.base import AbstractSource, check_dtype, check_shape
from ooc_chol.memory.sources.file import MatrixLayout, NpySource, memmap_layout, npy_layout
from ooc_chol.memory.sources.function import FunctionSource, from_function

__all__ = [
    "AbstractSource",
    "ArraySource",
    "FunctionSource",
    "MatrixLayout",
    "NpySource",
    "SliceSource",
    "as_source",
    "from_function",
    "is_closed",
    "memmap_layout",
    "npy_layout",
    "register_source",
    "triangle_source",
]

#: Makers of sources of other kinds, such as arrays on a GPU, which this layer does not know.
_MAKERS: list[Callable[[Any], AbstractSource | None]] = []


def register_source(make: Callable[[Any], AbstractSource | None]) -> Callable[[Any], AbstractSource | None]:
    """Let :func:`as_source` ask ``make(a)`` first, which returns None for what it does not know; returns ``make``."""
    _MAKERS.append(make)
    return make


def as_source(a: Any) -> AbstractSource:
    """Make the source that reads ``a``."""
    if isinstance(a, AbstractSource):
        return a
    for make in _MAKERS:
        if (source := make(a)) is not None:
            return source
    if (of_zarr := _zarr_source(a)) is not None:
        return of_zarr
    if isinstance(a, str | os.PathLike):
        return _path_source(Path(check_name(a, "A")))
    if isinstance(a, np.ndarray) and not isinstance(a, np.ma.MaskedArray):
        return _array_source(a)
    if isinstance(a, _sparse_kinds()):
        raise TypeError(f"A is a scipy.sparse.{type(a).__name__}, but is factored as a dense matrix: pass A.toarray()")
    if is_closed(a):
        raise ValueError(
            f"A is a closed {type(a).__module__}.{type(a).__qualname__}; open its file, and close that after the call"
        )
    if all(hasattr(a, attribute) for attribute in ("shape", "dtype", "__getitem__")):
        return SliceSource(a)
    if (array := converted(a)) is not None:
        return _array_source(array)
    raise TypeError(
        f"A is a {type(a).__module__}.{type(a).__qualname__}, without shape, dtype and slicing A[r0:r1, c0:c1]; pass an array "
        "(np.asarray(A)), the path of a .npy file or a Zarr array, or from_function(n, tile_fn)"
    )


def _sparse_kinds() -> tuple[type, ...]:
    """Types of SciPy's sparse matrices, where it was imported."""
    sparse = sys.modules.get("scipy.sparse")
    return () if sparse is None else (sparse.sparray, sparse.spmatrix)


def is_closed(a: Any) -> bool:
    """Tell whether an object is a data set of h5py whose file is closed: all that is asked of it is an error."""
    return type(a).__module__.partition(".")[0] == "h5py" and not a


def converted(a: Any) -> NDArray[Any] | None:
    """Convert an object that is no array but makes one: by ``to_numpy``, from nested lists, or by ``__array__`` as NumPy does.

    A copy in most cases; None for anything else.
    """
    if callable(to_numpy := getattr(a, "to_numpy", None)):
        return np.asarray(to_numpy())
    if isinstance(a, list | tuple | memoryview) or hasattr(a, "__array__"):
        try:
            return plain_array("A", a, gaps_as_nan=True)
        except ValueError as error:
            raise ValueError(f"A is a {type(a).__name__} that is no matrix ({error}); give rows of one length") from error
    return None


def triangle_source(a: Any, lower: bool | None) -> AbstractSource:
    """Make the source that reads ``a``, or its transpose where ``lower`` is False: the lower triangle is read of either."""
    source = as_source(a)
    if lower is not False:
        return source
    try:
        if source.dtype.kind == "c":
            advice = "its transpose is its conjugate, too: pass A.conj().T, whose lower triangle is read"
            raise UnsupportedTypeError("lower=False", source.dtype.name, advice)
        return source.transposed()
    except BaseException:
        if source is not a:
            source.close()
        raise


def _zarr_source(a: Any) -> AbstractSource | None:
    """Read an array of Zarr, or one that ``a`` names; None for anything else."""
    if "zarr" not in sys.modules and not is_zarr(a):
        return None
    from ooc_chol.memory.sources.zarr import ZarrSource, zarr_array  # only where it is used

    array = zarr_array(a)
    return None if array is None else ZarrSource(array)


def _path_source(path: Path) -> NpySource:
    """Open the file at ``path``."""
    if path.suffix != ".npy":
        raise ValueError(
            f"{path} does not end in .npy: A may be the path of a .npy file or of a .zarr folder; open other files first (raw "
            "numbers with np.memmap, others with h5py) and pass the open array"
        )
    return NpySource(npy_layout(path))


def _array_source(a: np.ndarray[Any, np.dtype[Any]]) -> AbstractSource:
    """Read ``a`` from the file that it maps if there is one, else from memory."""
    check_shape(a.shape, "the array")
    check_dtype(a.dtype, "the array")
    layout = memmap_layout(a)
    return ArraySource(a) if layout is None else NpySource(layout)
