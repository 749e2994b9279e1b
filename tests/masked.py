"""Masked arrays at every door: forms of one, what must become of it, and which doors a package has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc


class Door(NamedTuple):
    """An argument that takes an array: a call that gives it, and an array that is good there."""

    call: Callable[[Any], Any]
    good: NDArray[Any]
    takes_lists: bool = True  #: Whether it takes what is no array


class _Wrapped:
    """What makes a masked array when NumPy asks for an array, as a variable of netCDF4 does."""

    def __init__(self, masked: Any) -> None:
        self._masked = masked

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._masked


def masked(good: NDArray[Any]) -> Any:
    """The array with one entry masked, which is not the first; beneath stands what is good there: only the mask tells."""
    mask = np.zeros(good.shape, dtype=bool)
    mask.flat[good.size // 2] = True
    return np.ma.masked_array(good.copy(), mask)


def forms(good: NDArray[Any], folder: Path) -> Iterator[tuple[str, Any]]:
    """The same mask in several kinds of arrays."""
    there = masked(good)
    yield "array", there
    yield "columns first", np.ma.masked_array(np.asfortranarray(there.data), there.mask)
    yield "list", list(there)
    path = folder / "good.bin"
    there.data.tofile(path)
    yield "mapped", np.ma.masked_array(np.memmap(path, good.dtype, mode="r", shape=good.shape), there.mask)
    yield "made when asked for", _Wrapped(there)


def check_real(door: Door) -> None:
    """Assert that complex numbers are refused, no imaginary part being dropped, and dates and durations, which are counts."""
    with pytest.raises((TypeError, ValueError, IndexError), match=r"(?i)complex|whole number|bool|integer"):
        door.call(door.good.astype(np.complex128))
    for kind in ("M8[D]", "m8[D]"):
        with pytest.raises((TypeError, ValueError, IndexError)):
            door.call(door.good.astype(np.int64).astype(kind))


def check_refused(door: Door, folder: Path) -> None:
    """Assert that no form of a masked array gives a result, and that a mask that is False everywhere changes none."""
    for form, given in forms(door.good, folder):
        if not door.takes_lists and not isinstance(given, np.ndarray):
            continue
        with pytest.raises((TypeError, ValueError, oc.OocCholError)) as caught:
            door.call(given)
        if form in ("array", "mapped"):
            assert isinstance(caught.value, oc.errors.MissingValueError | oc.errors.NonFiniteError), caught.value
            assert "masked" in str(caught.value)
    wanted = np.asarray(door.call(door.good.copy()))
    np.testing.assert_array_equal(np.asarray(door.call(np.ma.masked_array(door.good.copy(), False))), wanted)


def array_parameters(named: Mapping[str, Any]) -> Iterator[str]:
    """Names of all public parameters that are annotated as taking whatever NumPy makes an array of."""
    for name, made in named.items():
        if inspect.isclass(made) and not issubclass(made, BaseException):
            methods = [(f"{name}.{each}", getattr(made, each)) for each in dir(made) if not each.startswith("_")]
            candidates = [(name, made), *((each, method) for each, method in methods if callable(method))]
        else:
            candidates = [(name, made)] if callable(made) else []
        for each, function in candidates:
            try:
                parameters = inspect.signature(function).parameters.values()
            except ValueError:
                continue
            yield from (f"{each}.{of.name}" for of in parameters if "ArrayLike" in str(of.annotation))
