"""In which memory an array lies, NumPy's or CuPy's, and index arrays that are copied there once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

#: An array of NumPy or of CuPy.
Array: TypeAlias = Any


def device_of(array: Array) -> int | None:
    """Number of the CUDA device in whose memory an array of CuPy lies; None for NumPy's, and for no array at all."""
    if array is None or isinstance(array, np.ndarray | np.generic):
        return None
    if is_cupy(array):
        return int(array.device.id)
    raise TypeError(f"a {type(array).__module__}.{type(array).__name__} was given for an array: give NumPy's or CuPy's")


def is_cupy(array: Array) -> bool:
    """Tell whether an object is an array of CuPy, which is not imported for that."""
    return type(array).__module__.partition(".")[0] == "cupy"


def module_of(like: Array) -> Any:
    """NumPy, or CuPy for an array of its own: what makes arrays beside it."""
    return np if device_of(like) is None else cuda_values().cp


def current(like: Array) -> AbstractContextManager[Any]:
    """A block in which the device of an array is current."""
    return nullcontext() if device_of(like) is None else like.device


def cuda_values() -> Any:
    """The same primitives for arrays of CuPy, imported when the first such array comes."""
    return import_module("ooc_chol.kernels.cuda.values")


@final
class IndexArray:
    """Places in another array: NumPy's, never written again, and copied once to each device that asks. Shapes: ``host`` (m,)."""

    __slots__ = ("_copies", "host")

    def __init__(self, host: NDArray[Any]) -> None:
        self.host = host
        self.host.setflags(write=False)
        self._copies: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self.host)

    def __repr__(self) -> str:
        return f"<{len(self.host)} places, {self.host.dtype}>"

    def on(self, like: Array) -> Array:
        """The places in the memory of another array, or of the host for None."""
        device = device_of(like)
        if device is None:
            return self.host
        if device not in self._copies:
            self._copies[device] = cuda_values().copied(self.host, like)
        return self._copies[device]


def index_type(most: int) -> type[np.signedinteger[Any]]:
    """The narrower type that holds numbers up to ``most``."""
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64
