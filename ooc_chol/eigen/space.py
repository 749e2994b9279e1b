"""Where block Krylov methods work: a basis in panels, products with A, and sums over rows, on whatever holds the vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.precision.triples import Precision


class AbstractSpace(ABC):
    """A basis of ``capacity`` panels of ``block`` columns, and one more panel W, spread over devices or in host memory.

    Methods enqueue and return; only :meth:`read`, :meth:`take` and :meth:`residuals` wait. Coefficients stay where the vectors
    are, under names that the caller chooses, until :meth:`read` brings them.

    Two spaces that hold the same A at the same precision and block compute the same numbers to the bit, whatever their devices
    and budgets. The space of a ``LinearOperator`` is another arithmetic.
    """

    n: int  #: Rows of the matrix
    block: int  #: Columns of a panel: 1, 2, 4 or 8
    capacity: int  #: Panels of the basis
    precision: Precision
    #: Products with A until now, each with one panel. Seeds of columns that replace dependent ones follow from it and from the
    #: panel, and from nothing else that changes: so a run that is taken up again sets it to what it was.
    passes: int

    # panels

    @abstractmethod
    def fill(self, seed: int) -> None:
        """W becomes random numbers in [-1, 1), which depend on seed, row and column alone."""

    @abstractmethod
    def bring(self, x: NDArray[np.float64]) -> None:
        """W becomes an (n, block) array."""

    @abstractmethod
    def load(self, panel: int) -> None:
        """W becomes a copy of a panel of the basis."""

    @abstractmethod
    def store(self, panel: int) -> None:
        """A panel of the basis becomes a copy of W."""

    @abstractmethod
    def move(self, panel: int, to: int) -> None:
        """A panel of the basis becomes a copy of another one; W does not change."""

    @abstractmethod
    def multiply_entries(self, panel: int) -> None:
        """Each entry of W is multiplied by that of a panel in the same place, and rounded once: a diagonal times W."""

    @abstractmethod
    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Columns of panels, as an (n, columns) array of float64 or ``dtype`` on the host: all, or the first; waits.

        Several panels spoil W.
        """

    def expect_to_take(self, columns: int, dtype: np.dtype[Any]) -> None:  # noqa: B027 - most have their vectors on the host
        """Hear what :meth:`take` will return in the end."""

    def settled(self, panels: range) -> None:  # noqa: B027 - most lose nothing on the way
        """Hear that all to come depends on nothing but these panels, the first ones, and on :attr:`passes`."""

    # what Krylov methods do

    @abstractmethod
    def product(self, panel: int) -> None:
        """``W = A V[panel]``; blocks of A that the next product needs are brought while other work is done."""

    @abstractmethod
    def recur(self, panel: int, previous: int | None, into: int | None, *, center: float, half: float) -> None:
        """A step of Chebyshev's recurrence with ``B = (A - center) / half``, into a panel, or W where ``into`` is None.

        ``2 B V[panel] - V[previous]``, or ``B V[panel]`` without a previous one. ``into`` may be ``previous``; W is spoilt.
        """

    def filter(self, panel: int, scratch: range, degree: int, *, center: float, half: float) -> None:
        """``W = T_d(B) V[panel]`` by ``T_(j+1)(t) = 2 t T_j(t) - T_(j-1)(t)`` with ``B = (A - center) / half``.

        Two panels ``scratch`` are spoilt.
        """
        for step in filter_steps(panel, scratch, degree):
            self.recur(*step, center=center, half=half)

    @abstractmethod
    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        """``C = V[panels].T @ W; W -= V[panels] @ C``, C kept under ``name``; twice where a norm fell below a half and ``again``.

        The second C is added to the first.
        """

    @abstractmethod
    def inner(self, panels: range, name: str) -> None:
        """``V[panels].T @ W``, kept under ``name``; W does not change."""

    @abstractmethod
    def orthonormalize(self, panel: int, name: str, against: range, *, is_next: bool = False) -> None:
        """``W = V[panel] @ R`` by Cholesky-QR twice, R (block, block) kept under ``name``; ``is_next`` to be multiplied, or not.

        A column of which nothing is left beside those before it has a zero row in R, and becomes a random vector orthonormal to
        all else, ``against`` included; where roundoff is left of it, that is made orthogonal as the others are.
        """

    @abstractmethod
    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        """``V[into] = V[panels] @ S``, S from the host; ``into`` are the first of ``panels``, or others."""

    @abstractmethod
    def read(self) -> dict[str, NDArray[np.float64]]:
        """All that was kept under names since the last call; waits. Raises what went wrong on a device."""

    # certificates

    @abstractmethod
    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        """``|| A v - value v ||_2 / || v ||_2`` of each column, computed and summed in float64 whatever the precision; waits."""

    @abstractmethod
    def close(self) -> None:
        """Let go of devices and memory; a second call does nothing."""


def filter_steps(panel: int, scratch: range, degree: int) -> Iterator[tuple[int, int | None, int | None]]:
    """Steps of a polynomial: panel, previous and into, as of :meth:`AbstractSpace.recur`."""
    previous, current = None, panel
    for step in range(1, degree + 1):
        # T_(j+1) takes the place of T_(j-1), which no later step reads; the last one stays in W.
        into = None if step == degree else scratch[(step + 1) % 2]
        yield current, previous, into
        previous, current = current, panel if into is None else into
