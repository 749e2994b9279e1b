"""Cholesky of many small matrices at once: one after the other would take longer to call than to compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from ooc_chol.formats import FP64
from ooc_chol.interfaces import Tile


class Failure(NamedTuple):
    """The first matrix of a batch that is not positive definite."""

    matrix: int  #: Its place in the batch, counted from zero
    minor: int  #: Order of its first leading minor that fails


class AbstractBatchKernels(ABC):
    """Kernels that factor a stack of matrices, ``(b, n, n)`` and row-major, in the memory of one device, and solve with it."""

    @abstractmethod
    def current(self) -> AbstractContextManager[Any]:
        """Let the device be current, and what the routines need of the process hold, inside a ``with`` block around all calls."""

    @abstractmethod
    def numbers(self, a: Any) -> Tile:
        """``a``, an array of real numbers of the host or any device, as float64 on this one; masked entries become NaN.

        It is ``a`` itself where that is so already.
        """

    @abstractmethod
    def factor(self, a: Tile) -> tuple[Tile, Failure | None]:
        """``a[i] = L[i] @ L[i].T`` of all, L as a new stack with zeros above the diagonals; and the first that fails.

        A NaN or an infinity in the lower triangle makes a matrix fail.
        """

    @abstractmethod
    def right_hand_sides(self, b: Any, shape: tuple[int, ...]) -> Tile:
        """A checked copy of ``b``, of the host or any device, as a ``(b, n, m)`` array beside a stack of that shape.

        ``TypeError`` and ``ValueError`` where it is no array of finite real numbers with ``b`` times ``n`` rows.
        """

    @abstractmethod
    def solve(self, stack: Tile, x: Tile, *, transposed: bool) -> None:
        """``x[i] = inv(L[i]) @ x[i]``, or with ``inv(L[i]).T``, in place."""

    @abstractmethod
    def multiply(self, stack: Tile, z: Tile) -> Tile:
        """``L[i] @ z[i]`` as a new array."""


def check_right_hand_sides(dtype: np.dtype[Any], given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse what is no array of real numbers with a vector or some columns for each matrix of a stack of ``shape``."""
    if dtype.kind not in "fiub" or dtype.itemsize > FP64.itemsize:
        raise TypeError(
            f"the right-hand sides have dtype {dtype}, but real numbers up to float64 are needed: convert them to float64"
        )
    if len(given) not in (2, 3) or given[:2] != shape[:2]:
        count, n = shape[:2]
        raise ValueError(
            f"the right-hand sides have shape {given}, but the batch is {shape}: give ({count}, {n}), a vector for each "
            f"matrix, or ({count}, {n}, m)"
        )
