"""The kernels with which a device solves with a stored factor, and sums over tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ooc_chol.interfaces.streams import AbstractStream, Tile

#: Blocks from which products are subtracted by one call.
MOST_TARGETS = 16


class AbstractSolveKernels(ABC):
    """Kernels on row-major arrays of one type on one device. Every call enqueues on ``stream`` and returns at once.

    Right-hand sides ``x`` have a row for each row of L, so that the rows of a tile row are a contiguous ``(mb, m)`` array.
    Numbers go to ``out``, an array of the device; sums are taken in an order that depends on shapes alone. Of complex arrays
    ``transposed`` means the adjoint; sums are there for float64 alone.
    """

    @abstractmethod
    def lend(self, stream: AbstractStream, workspace: Tile) -> None:
        """Let products on ``stream``, which is none of the engine's that multiply, use ``workspace``, where they need any."""

    @abstractmethod
    def substitute(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        """``x[k] = inv(L[k, k]) @ x[k]``, or with the adjoint of ``inv(L[k, k])``, by substitution."""

    @abstractmethod
    def subtract(self, stream: AbstractStream, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        """``target -= L[i, j] @ x``, or ``L[i, j].T @ x``."""

    @abstractmethod
    def multiply_each(self, stream: AbstractStream, out: Tile, tiles: Tile, x: Tile, *, transposed: bool) -> None:
        """``out[t] = tiles[t] @ x[t]``, or ``tiles[t].T @ x[t]``: contiguous matrices, at any distance but for ``out``.

        One ``x`` of two dimensions is that of all tiles.
        """

    @abstractmethod
    def subtract_products(self, stream: AbstractStream, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        """``targets[k] -= products[k, 0]``, then ``products[k, 1]`` and so on, for some k, as above.

        Shapes (c, mb, m) and (c, p, mb, m), where c is at most :data:`MOST_TARGETS`.
        """

    @abstractmethod
    def add_product(
        self, stream: AbstractStream, target: Tile, d: Tile, x: Tile, *, transposed: bool = False, halved: bool = False
    ) -> None:
        """``target += d @ x``, or ``d.T @ x``, or half of it."""

    @abstractmethod
    def inner(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile) -> None:
        """``out[0] = sum(a * b)`` of two contiguous arrays of one shape."""

    @abstractmethod
    def form(self, stream: AbstractStream, vectors: tuple[Tile, Tile], d: Tile, scratch: Tile, out: Tile) -> None:
        """``out[0] = left @ d @ right`` of vectors ``(left, right)`` of any stride; ``scratch`` has a place for each row of d."""

    @abstractmethod
    def add_column_squares(self, stream: AbstractStream, x: Tile, out: Tile) -> None:
        """``out[j] += sum_i x[i, j]**2``."""
