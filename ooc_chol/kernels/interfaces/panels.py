"""Kernels on panels of vectors by the side of a sparse matrix: inner products, updates and orthonormal columns.

A *basis* is an array (p, rows, b): p panels of b columns each, row-major, of the rows that one device owns. A *chunk* is 65,536
rows of the matrix; devices own whole chunks. What is summed over rows is summed within each chunk first, in an order that
depends on the chunk alone, and then over all chunks in their order: so no sum depends on the number of devices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.precision.triples import Precision

#: Most devices whose partial sums are added where they lie.
MOST_PARTS = 16


class AbstractPanelKernels(ABC):
    """Kernels of one precision on the current device. Coefficients are float64, or float32 where the precision computes in it.

    Basis, W and what is written are contiguous and row-major. Nothing here reads a number back to the host. ``unless`` is a
    one-entry uint32 array on the device: kernels that are given it do nothing where it is 0, so that a second pass of
    orthogonalization is enqueued always and costs nothing where the first one was enough.
    """

    precision: Precision
    #: Columns of a panel: 1, 2, 4 or 8.
    block: int
    #: Rows of a chunk.
    chunk_rows: int

    def close(self) -> None:  # noqa: B027 - devices whose kernels hold nothing need none
        """End threads; a second call does nothing."""

    @abstractmethod
    def gram(self, stream: AbstractStream, basis: Tile, w: Tile, partial: Tile, *, unless: Tile | None = None) -> None:
        """Enqueue ``partial[c] = V[c].T @ W[c]`` for each chunk c of the rows: (chunks, p b, columns of w)."""

    @abstractmethod
    def add_partials(
        self, stream: AbstractStream, parts: Sequence[Tile], out: Tile, *, adds: bool = False, unless: Tile | None = None
    ) -> None:
        """Enqueue ``out = sum of part[c]`` over all chunks of all parts in order, or ``out +=`` that where it ``adds``.

        There are :data:`MOST_PARTS` at most, each of this device or one that it reaches.
        """

    @abstractmethod
    def subtract(self, stream: AbstractStream, basis: Tile, coefficients: Tile, w: Tile, *, unless: Tile | None = None) -> None:
        """Enqueue ``W -= V @ C``, coefficients (p b, columns of w); each entry is rounded to the type of storage once."""

    @abstractmethod
    def combine(self, stream: AbstractStream, basis: Tile, coefficients: Tile, out: Tile) -> None:
        """Enqueue ``out = V @ S``, (p b, q b) coefficients to q panels; ``out`` may be the first q panels of ``basis``.

        Otherwise the two share no memory.
        """

    @abstractmethod
    def factor_clamped(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        weak: Tile | None = None,
        *,
        tolerance: float,
        before: Tile | None = None,
        share: float = 0.0,
        least: float = 0.0,
        fell: Tile | None = None,
        last: Tile | None = None,
        unless: Tile | None = None,
    ) -> None:
        """Enqueue ``G = R.T @ R`` for a (b, b) Gram matrix, R upper triangular, and ``inverse`` of it, no column given up.

        A pivot that is not above ``tolerance`` times its own entry of G's diagonal, or not a normal number, is taken for the
        larger of that and the least normal number: what is left of the column keeps its direction in ``W @ inverse``, though it
        is shorter than 1 there. ``weak`` (one uint32) becomes 1 where there is
        such a column, else 0. Where the entry of G is zero, or not finite, row and column j of ``inverse`` and row j of R are 0.

        With ``before`` (b, b), ``fell`` (one uint32) becomes 1 where ``weak`` does, where an entry of G's diagonal is below
        ``share**2 * before[j, j]``, and where a pivot is below ``least**2`` times its own entry; else 0.

        Columns j with ``last[j] != 0`` (uint32) come behind all others in the order in which columns are made orthogonal; R has
        its entries above the diagonal of that order.
        """

    @abstractmethod
    def factor(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        dependent: Tile,
        *,
        tolerance: float,
        scale: Tile | None = None,
        before: Tile | None = None,
        roundoff: float = 0.0,
        share: float = 0.0,
        weak: Tile | None = None,
    ) -> None:
        """Enqueue ``G = R.T @ R`` for a (b, b) Gram matrix, R upper triangular, and ``inverse`` of it.

        A column depends on those before it where its pivot is not above ``tolerance`` times its own entry of G's diagonal, or not
        finite: ``dependent[j]`` (uint32) becomes 1, and row and column j of ``inverse`` and row j of R are 0. Else it becomes 0.

        With ``scale`` and ``before``, both (b, b), it also does where the pivot is not above ``tolerance``, and times ``scale[j,
        j]**2`` not above ``roundoff**2 * before[j, j]``: a column that was divided by the first, and had the second as squared
        norm in the beginning. What others have along a longer column may be more than roundoff. ``weak`` (one uint32) becomes 1
        where any column depends or has a pivot below ``share**2``, and else stays as it is.
        """

    @abstractmethod
    def multiply_right(self, stream: AbstractStream, w: Tile, inverse: Tile, out: Tile, *, unless: Tile | None = None) -> None:
        """Enqueue ``out = W @ inverse``, (b, b); ``out`` may be ``w``.

        A column of W whose row of ``inverse`` is 0 is not read: what is not finite there goes nowhere.
        """

    @abstractmethod
    def multiply_right_twice(
        self, stream: AbstractStream, w: Tile, first: Tile, second: Tile, *, made: Tile, flags: Tile
    ) -> None:
        """Enqueue ``W = (W @ first) @ second``, rounded as :meth:`multiply_right` does each time.

        Where one of two ``flags`` (uint32) is not 0, W becomes ``made`` instead, which may lie on a device that this one reaches.
        """

    @abstractmethod
    def multiply_entries(self, stream: AbstractStream, factors: Tile, w: Tile) -> None:
        """Enqueue: each entry of W is multiplied by that of another panel in the same place."""

    @abstractmethod
    def recur(
        self, stream: AbstractStream, w: Tile, x: Tile, previous: Tile | None, out: Tile, *, scale: float, shift: float
    ) -> None:
        """Enqueue ``out = scale * (W - shift * X) - previous``, entry by entry, each rounded to the type of storage once.

        ``previous`` is taken for 0 where it is None. ``out`` may be W or ``previous``.
        """

    @abstractmethod
    def fill_random(self, stream: AbstractStream, w: Tile, first_row: int, seed: int, *, columns: Tile | None = None) -> None:
        """Enqueue: fill W with numbers in [-1, 1) that depend on seed, row of the matrix and column alone.

        Where ``columns`` (uint32, one for each column) is given, only columns j with ``columns[j] != 0``.
        """

    @abstractmethod
    def fell(self, stream: AbstractStream, before: Tile, after: Tile, flag: Tile, *, share: float) -> None:
        """Enqueue: ``flag`` becomes 1 if a column's squared norm fell, and else 0.

        That is if ``after[j, j] < share**2 * before[j, j]`` for any j.
        """

    @abstractmethod
    def widen(self, stream: AbstractStream, w: Tile, first: int, out: Tile) -> None:
        """Enqueue: ``out`` (rows, c), float64, becomes columns ``first`` to ``first + c - 1`` of a panel."""
