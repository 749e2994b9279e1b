"""One matrix in every form in which it may come on the host, and what else a table of sources is crossed with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import ooc_chol as oc
from tests.host.matrices import Matrix, exponential, sites
from tests.inside.memory import FunctionSource

#: Makes a source of some order, in a folder of its own.
MakeSource = Callable[[Path, int], Any]

#: How a factorization computes.
ARITHMETIC: dict[str, dict[str, Any]] = {
    "native": {"fp64": "native"},
    "residue": {"fp64": "residue"},
    "mixed": {"precision_threshold": 1e-7},
}

#: Added to the diagonal: no eigenvalue is smaller.
NUGGET = 1e-2
#: The other dtype that A may have.
SINGLE = np.float32


@cache
def matrix(n: int, is_single: bool = False) -> Matrix:
    """A covariance matrix of condition 1e4 at most, which float32 does not hold exactly, or what it makes of it; read-only."""
    places = sites(n)
    a = exponential(cdist(places, places) / 0.1) + NUGGET * np.eye(n)
    a = a.astype(SINGLE).astype(np.float64) if is_single else a
    a.flags.writeable = False
    return a


@cache
def lapack(n: int, is_single: bool = False) -> Matrix:
    """L by LAPACK's POTRF, of a copy."""
    factor, info = scipy.linalg.lapack.dpotrf(np.array(matrix(n, is_single), order="F"), lower=1, clean=1)
    assert info == 0
    return np.asarray(factor)


def is_single(name: str) -> bool:
    """Whether the form of this name holds the matrix in float32."""
    return "float32" in name


# cases


def marked(cases: Iterable[Any], needs: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """The same cases, each with the marks of what its values need."""
    return [
        pytest.param(*case.values, marks=[*case.marks, *(mark for value in case.values for mark in needs.get(value, ()))])
        for case in cases
    ]


# forms of the matrix in NumPy


def unaligned(_: Path, n: int) -> Matrix:
    """At an odd address, as numbers behind a header in a buffer are."""
    buffer = np.zeros(8 * n * n + 3, np.uint8)
    a = buffer[3:].view(np.float64).reshape(n, n)
    a[...] = matrix(n)
    return a


def triangle(name: str) -> dict[str, bool]:
    """What ``cholesky`` must be told of the form of this name: that its upper triangle counts, or that its lower one does."""
    if "wrong below" in name:
        return {"lower": False}
    return {"lower": True} if "wrong above" in name else {}


def wrong_below(a: Matrix) -> Matrix:
    """A copy of ``a`` with NaN below the diagonal."""
    a = a.copy(order="K")
    a[np.tril_indices(len(a), -1)] = np.nan
    return a


def wrong_above(a: Matrix) -> Matrix:
    """A copy of ``a`` with NaN above the diagonal."""
    a = a.copy(order="K")
    a[np.triu_indices(len(a), 1)] = np.nan
    return a


def reversed_twice(a: Matrix) -> Matrix:
    """``a`` by negative strides, in the order of its memory."""
    return a[::-1, ::-1].copy(order="K")[::-1, ::-1]


def spread(a: Matrix) -> Matrix:
    """``a`` as every second row and every third column of an array."""
    wide = np.full((2 * len(a), 3 * len(a)), 7.0, a.dtype)
    wide[::2, ::3] = a
    return wide[::2, ::3]


class Tensor:
    """What torch and JAX have in common: memory that is handed over by DLPack, and slices that are no arrays.

    ``fails`` is the error of one that keeps its memory; ``device`` stands for what tells where that is, and may fail, too.
    """

    def __init__(self, a: Matrix, fails: Exception | None = None, device: tuple[int, int] | Exception = (1, 0)) -> None:
        self._a, self._fails, self._device = a, fails, device
        self.shape, self.dtype = a.shape, f"tensor.{a.dtype}"

    def __dlpack_device__(self) -> tuple[int, int]:
        if isinstance(self._device, Exception):
            raise self._device
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        if self._fails is not None:
            raise self._fails
        return self._a.__dlpack__(**options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Matrix:
        raise TypeError("implicit conversion is not allowed")

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self._a[key])


class Lazy:
    """What Dask arrays are: slices are lazy again, and numbers only once they are made an array."""

    def __init__(self, a: Matrix) -> None:
        self._a = a
        self.shape, self.dtype = a.shape, a.dtype

    def __getitem__(self, key: Any) -> Lazy:
        return Lazy(self._a[key])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Matrix:
        return np.array(self._a, dtype=dtype)


# forms of the matrix in files


def saved(folder: Path, a: Matrix) -> Path:
    """The path of a ``.npy`` file that holds ``a``."""
    np.save(folder / "a.npy", a)
    return folder / "a.npy"


def long_double(n: int, order: Any = "C") -> NDArray[np.longdouble]:
    """The matrix in the widest format of the processor, with zeros where that has unused bytes."""
    a = np.zeros((n, n), np.longdouble, order=order)
    a[...] = matrix(n)
    return a


def swapped(a: Matrix) -> Matrix:
    """``a`` in the other byte order."""
    return a.astype(a.dtype.newbyteorder())


def part_of_map(folder: Path, n: int, mode: Any = "r", order: str = "C") -> Matrix:
    """The matrix inside a larger one in a file that is mapped."""
    larger = np.array(np.pad(matrix(n), ((3, 2), (5, 1)), constant_values=7.0), order=order)
    return np.load(saved(folder, larger), mmap_mode=mode)[3:-2, 5:-1]


def h5py_data(folder: Path, a: Matrix, **options: Any) -> Any:
    """A data set of an HDF5 file."""
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("a", data=a, **options)
    return h5py.File(folder / "a.h5")["a"]


def zarr_array(folder: Path, a: Matrix, **options: Any) -> Any:
    """A Zarr array in a folder."""
    import zarr

    place = str(folder / "a.zarr")
    zarr.create_array(store=place, shape=a.shape, dtype=str(a.dtype), **options)[:] = a
    return zarr.open_array(place, mode="r")


def xarray_of(folder: Path, n: int) -> Any:
    """An array with names for its axes, read from a file when it is sliced."""
    import xarray

    return xarray.DataArray(h5py_data(folder, matrix(n)), dims=("row", "column"))


# forms of the matrix in packages that the tests do without


def dask_array(_: Path, n: int) -> Any:
    import dask.array

    dask.config.set(scheduler="synchronous")  # the threads of its own would outlive the test
    return dask.array.from_array(matrix(n), chunks=(max(1, n // 3), max(1, n // 7)))


def jax_array(_: Path, n: int, dtype: Any = np.float64) -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # where there is a GPU, too
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.device_put(matrix(n).astype(dtype), jax.devices("cpu")[0])


def torch_tensor(_: Path, n: int, place: str = "cpu", dtype: Any = np.float64) -> Any:
    import torch

    return torch.tensor(matrix(n).astype(dtype), device=place)


def pandas_table(_: Path, a: Matrix) -> Any:
    """With names for rows and columns."""
    import pandas

    names = [f"site {i}" for i in range(len(a))]
    return pandas.DataFrame(a, index=names, columns=names)


def polars_table(_: Path, n: int) -> Any:
    import polars

    return polars.DataFrame(np.array(matrix(n)))


def function(_: Path, n: int, change: Callable[[Matrix], Matrix] = np.asarray) -> FunctionSource:
    """Tiles that are copied from the matrix, or what ``change`` makes of it, on the host or to a GPU."""
    a = change(matrix(n))

    def tile_fn(rows: range, cols: range, out: Any, stream: Any) -> None:
        block = a[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            out[...] = block
        else:
            import cupy as cp

            out[...] = cp.asarray(np.ascontiguousarray(block))

    return oc.from_function(n, tile_fn)


# the table


def single(n: int, order: Any = "C") -> Matrix:
    """The matrix in float32."""
    return np.array(matrix(n), SINGLE, order=order)


#: Every form on the host, by name.
HOST_SOURCES: dict[str, MakeSource] = {
    "numpy C, read-only": lambda _, n: matrix(n),
    "numpy C": lambda _, n: matrix(n).copy(),
    "numpy F": lambda _, n: matrix(n).copy(order="F"),
    "numpy C, wrong above": lambda _, n: wrong_above(matrix(n)),
    "numpy F, wrong above": lambda _, n: wrong_above(np.asfortranarray(matrix(n))),
    "numpy strided": lambda _, n: spread(matrix(n)),
    "numpy strided, transposed": lambda _, n: spread(matrix(n).T).T,
    "numpy reversed": lambda _, n: reversed_twice(matrix(n)),
    "numpy F, reversed": lambda _, n: reversed_twice(np.asfortranarray(matrix(n))),
    "numpy unaligned": unaligned,
    "numpy float32": lambda _, n: single(n),
    "numpy float32 F": lambda _, n: single(n, "F"),
    "numpy float32, strided": lambda _, n: spread(single(n)),
    "numpy C, wrong below": lambda _, n: wrong_below(matrix(n)),
    "numpy strided, wrong below": lambda _, n: spread(wrong_below(matrix(n))),
    "numpy other byte order": lambda _, n: swapped(matrix(n)),
    "numpy other byte order F": lambda _, n: np.asfortranarray(swapped(matrix(n))),
    "numpy long double": lambda _, n: long_double(n),
    "numpy objects": lambda _, n: matrix(n).astype(object),
    "numpy objects F, wrong below": lambda _, n: np.asfortranarray(wrong_below(matrix(n)).astype(object)),
    "list": lambda _, n: matrix(n).tolist(),
    "list of arrays": lambda _, n: list(matrix(n).copy()),
    "pandas": lambda folder, n: pandas_table(folder, matrix(n)),
    "pandas, wrong above": lambda folder, n: pandas_table(folder, wrong_above(matrix(n))),
    "polars": polars_table,
    "numpy matrix": lambda _, n: matrix(n).copy().view(np.matrix),
    "numpy masked, wrong above": lambda _, n: np.ma.masked_invalid(wrong_above(matrix(n))),
    "dlpack": lambda _, n: Tensor(matrix(n).copy()),
    "dlpack, read-only": lambda _, n: Tensor(matrix(n)),
    "dlpack float32 F": lambda _, n: Tensor(single(n, "F")),
    "npy": lambda folder, n: saved(folder, matrix(n)),
    "npy F": lambda folder, n: str(saved(folder, np.asfortranarray(matrix(n)))),
    "npy float32": lambda folder, n: saved(folder, single(n)),
    "npy float32 F, wrong above": lambda folder, n: saved(folder, wrong_above(single(n, "F"))),
    "npy F, wrong below": lambda folder, n: saved(folder, np.asfortranarray(wrong_below(matrix(n)))),
    "npy other byte order": lambda folder, n: saved(folder, swapped(matrix(n))),
    "npy long double F": lambda folder, n: saved(folder, long_double(n, "F")),
    "memmap, wrong below": lambda folder, n: np.load(saved(folder, wrong_below(matrix(n))), mmap_mode="r"),
    "memmap": lambda folder, n: np.load(saved(folder, matrix(n)), mmap_mode="r"),
    "memmap F": lambda folder, n: np.load(saved(folder, np.asfortranarray(matrix(n))), mmap_mode="r"),
    "memmap, copy-on-write": lambda folder, n: np.load(saved(folder, matrix(n)), mmap_mode="c"),
    "memmap, part": part_of_map,
    "memmap, part F": lambda folder, n: part_of_map(folder, n, order="F"),
    "h5py": lambda folder, n: h5py_data(folder, matrix(n)),
    "h5py, wrong below": lambda folder, n: h5py_data(folder, wrong_below(matrix(n)), chunks=True),
    "h5py chunked, compressed, wrong above": lambda folder, n: h5py_data(
        folder, wrong_above(matrix(n)), chunks=(min(n, 37), min(n, 53)), compression="gzip", shuffle=True
    ),
    "h5py float32": lambda folder, n: h5py_data(folder, single(n), chunks=True),
    "zarr 3": lambda folder, n: zarr_array(folder, matrix(n), chunks=(50, 31)),
    "zarr 2": lambda folder, n: zarr_array(folder, matrix(n), chunks=(41, 64), zarr_format=2),
    "xarray": xarray_of,
    "lazy": lambda _, n: Lazy(matrix(n)),
    "lazy, wrong below": lambda _, n: Lazy(wrong_below(matrix(n))),
    "dask": dask_array,
    "jax": jax_array,
    "jax float32": lambda folder, n: jax_array(folder, n, SINGLE),
    "torch": torch_tensor,
    "torch float32": lambda folder, n: torch_tensor(folder, n, dtype=SINGLE),
    "torch transposed": lambda folder, n: torch_tensor(folder, n).T,
    "function": function,
    "function, wrong below": lambda folder, n: function(folder, n, wrong_below),
}

#: Packages that are no dependency of the tests: those of forms that need them, by the first word of their names.
_OPTIONAL = ("dask", "jax", "polars", "torch")


def needed_packages(names: Iterable[str], optional: Sequence[str] = _OPTIONAL) -> dict[Any, Sequence[Any]]:
    """Marks of the forms of these names that need a package of ``optional``, which is the first word of their names."""
    words = {name: name.partition(" ")[0].rstrip(",") for name in names}
    return {name: [pytest.mark.package(word)] for name, word in words.items() if word in optional}
