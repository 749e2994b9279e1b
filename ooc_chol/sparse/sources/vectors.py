"""Long vectors of numbers, read from the first to the last: in memory, on a device, in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import SparseInputError
from ooc_chol.files.inputs import plain_array
from ooc_chol.hardware.kinds import AbstractDeviceKind
from ooc_chol.hardware.registry import handed_over

#: What gives the next so many numbers of a vector.
Take: TypeAlias = Callable[[int], NDArray[Any]]


class AbstractVector(ABC):
    """Numbers that can be read again and again, each time from the first on."""

    name: str
    dtype: np.dtype[Any]
    size: int

    @abstractmethod
    def opened(self) -> AbstractContextManager[Take]:
        """A reading from the first number on: what it hands over is never written to."""


@final
class ArrayVector(AbstractVector):
    """A vector in memory: an array of NumPy, or what hands its memory over by DLPack, on the host or on a GPU."""

    def __init__(self, array: Any, name: str, source: str) -> None:
        handed = handed_over(array)
        self._kind: AbstractDeviceKind | None = None if handed is None else handed[0]
        self._array: Any = plain_array(name, array) if handed is None else handed[1]
        if self._array.ndim != 1:
            problem = f"it has {self._array.ndim} dimensions"
            raise SparseInputError(source, name, problem, "the arrays of a sparse matrix are vectors: mend it, or make it anew")
        self.name, self.size = name, int(self._array.size)
        self.dtype = np.dtype(str(self._array.dtype)) if self._kind is not None else self._array.dtype

    @property
    def in_memory(self) -> NDArray[Any] | None:
        """All of it, where it lies; None on a GPU."""
        return self._array if self._kind is None else None

    @contextmanager
    def opened(self) -> Iterator[Take]:
        """Views of an array on the host; copies of what lies on a GPU."""
        at = 0

        def take(count: int) -> NDArray[Any]:
            nonlocal at
            piece = self._array[at : at + count]
            at += count
            return piece if self._kind is None else self._kind.to_host(piece)

        yield take
