"""Vectors in host memory as NumPy arrays, and A as anything that multiplies them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.row_blocks import CHUNK_ROWS

#: What multiplies: an (n, b) array to A times it.
Product = Callable[[NDArray[Any]], NDArray[Any]]
#: Below which share of its norm a column must fall to be projected once more.
_SHARE = 0.5
#: Of how many unit roundoffs of its norm may a column be all that projections left of it, to count as dependent.
_DEPENDENT = 16.0
#: Numbers that overflow show in what is read, and are not warned of beside.
_SILENT = np.errstate(over="ignore", invalid="ignore")
#: Seeds of columns that replace dependent ones.
_REPLACEMENT_SEED = 1 << 32


@final
class OperatorSpace(AbstractSpace):
    """A basis in host memory beside a product that the caller gives: a ``LinearOperator``, an array, a function.

    Sums over rows are made within chunks of 65,536 rows first, and of these in their order, as on devices. :meth:`orthonormalize`
    is Gram and Schmidt's process twice, column by column, where devices take Cholesky-QR twice: it answers for columns that
    differ by no more than roundoff, and b columns of a panel cost nothing beside the basis.
    """

    def __init__(
        self,
        product: Product,
        n: int,
        *,
        block: int,
        capacity: int,
        precision: Precision = Precision.DDD,
        exact: Product | None = None,
    ) -> None:
        self.n, self.block, self.capacity, self.precision = n, block, capacity, precision
        self.passes = 0
        self._product, self._exact = product, exact or product
        # A vector is contiguous: one product of matrices makes the inner products of all.
        self._basis = np.zeros((capacity * block, n), precision.storage)
        self._w = np.zeros((block, n), precision.storage)
        self._kept: dict[str, NDArray[np.float64]] = {}
        self._compute = precision.compute
        self._roundoff = float(np.finfo(self._compute).eps)
        self._chunks = [slice(first, min(first + CHUNK_ROWS, n)) for first in range(0, n, CHUNK_ROWS)]
        #: Panels on which W was projected last, since when it has not changed, and columns that the last pass left as they were.
        self._projected: tuple[range, NDArray[np.bool_]] | None = None

    # panels

    def fill(self, seed: int) -> None:
        """W becomes random: a generator of NumPy's for each column."""
        self._projected = None
        for column in range(self.block):
            self._w[column] = np.random.default_rng((seed, column)).uniform(-1.0, 1.0, self.n)

    def bring(self, x: NDArray[np.float64]) -> None:
        self._projected = None
        self._w[:] = x.T

    @_SILENT
    def _put(self, x: NDArray[Any]) -> None:
        """W becomes an (n, block) array, rounded."""
        self.bring(x)

    def load(self, panel: int) -> None:
        self._projected = None
        self._w[:] = self._vectors(range(panel, panel + 1))

    def store(self, panel: int) -> None:
        self._vectors(range(panel, panel + 1))[:] = self._w

    def move(self, panel: int, to: int) -> None:
        self._vectors(range(to, to + 1))[:] = self._vectors(range(panel, panel + 1))

    def multiply_entries(self, panel: int) -> None:
        self._projected = None
        self._w *= self._vectors(range(panel, panel + 1))

    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        return np.array(self._vectors(panels)[:columns].T, dtype=dtype or np.float64, order="C")

    def _vectors(self, panels: range) -> NDArray[Any]:
        """Vectors of panels as rows; a view."""
        return self._basis[panels.start * self.block : panels.stop * self.block]

    # what Krylov methods do

    def product(self, panel: int) -> None:
        x = self._vectors(range(panel, panel + 1)).T
        self._put(self._multiplied(self._product, x, self._compute))
        self.passes += 1

    def recur(self, panel: int, previous: int | None, into: int | None, *, center: float, half: float) -> None:
        """``V[into] = 2 B V[panel] - V[previous]`` with ``B = (A - center) / half``."""
        self.product(panel)
        compute = self._compute.type
        scale, shift = compute((1.0 if previous is None else 2.0) / half), compute(center)
        out = self._w if into is None else self._vectors(range(into, into + 1))
        x = self._vectors(range(panel, panel + 1))
        for rows in self._chunks:
            found = (self._w[:, rows].astype(compute) - shift * x[:, rows].astype(compute)) * scale
            if previous is not None:
                found -= self._vectors(range(previous, previous + 1))[:, rows]
            out[:, rows] = found

    def _multiplied(self, product: Product, x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A product, whose shape is looked at: it is a function of the user's."""
        y = np.asarray(product(np.ascontiguousarray(x, dtype=dtype)))
        if y.shape != x.shape:
            raise ValueError(
                f"the product of A and an array of shape {x.shape} has shape {y.shape}: A must be {self.n} x {self.n}"
            )
        if y.dtype.kind not in "fiub":
            raise TypeError(f"the product of A and a real array is {y.dtype}, but only real symmetric matrices are solved for")
        return y

    @_SILENT
    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        basis = self._vectors(panels)
        before = self._squares(self._w)
        c = self._gram(basis, self._w)
        self._subtract(basis, c, self._w)
        after = self._squares(self._w)
        if again and np.any(after < _SHARE**2 * before):
            more = self._gram(basis, self._w)
            self._subtract(basis, more, self._w)
            c = c + more
            before, after = after, self._squares(self._w)
        self._kept[name] = c.astype(np.float64, copy=False)
        self._projected = panels, after >= _SHARE**2 * before

    @_SILENT
    def inner(self, panels: range, name: str) -> None:
        self._kept[name] = self._gram(self._vectors(panels), self._w).astype(np.float64)

    @_SILENT
    def orthonormalize(self, panel: int, name: str, against: range, *, is_next: bool = False) -> None:
        """``W = V[panel] R``; dependent columns are replaced when all others are there."""
        others, columns = self._vectors(against), self._w.astype(self._compute)
        before, projected = self._squares(columns), self._projected
        is_clean = projected[1] if projected is not None and projected[0] == against else np.zeros(self.block, np.bool_)
        r, dependent = np.zeros((self.block, self.block)), list[int]()
        for j in range(self.block):
            r[:, j] = self._orthogonal(columns, j, others, float(before[j]), is_clean=bool(is_clean[j]))
            if r[j, j] == 0.0:
                columns[j] = 0.0
                dependent.append(j)
        self._kept[name] = r
        for j in dependent:
            self._replace(columns, j, others, panel)
        self._vectors(range(panel, panel + 1))[:] = columns

    def _orthogonal(
        self, columns: NDArray[Any], j: int, others: NDArray[Any], square: float, *, is_clean: bool
    ) -> NDArray[np.float64]:
        """Make column j a unit vector orthogonal to those before it; its column of R, with 0 on the diagonal if it depends.

        ``square`` is its squared norm, and one that ``is_clean`` is orthogonal to the others to roundoff of that.
        """
        column, r, found = columns[j : j + 1], np.zeros(len(columns)), square
        for _ in range(2 if j else 0):
            c, last = self._gram(columns[:j], column), found
            self._subtract(columns[:j], c, column)
            r[:j] += c[:, 0]
            found = float(self._squares(column)[0])
            if found >= _SHARE**2 * last:
                break
        norm = math.sqrt(found)
        if not norm > _DEPENDENT * self._roundoff * math.sqrt(square):
            return r
        column /= norm
        r[j] = norm
        if is_clean and found >= _SHARE**2 * square:
            return r
        # What a projection leaves of a vector of the basis' span is roundoff, and need not be orthogonal to the basis.
        self._subtract(others, self._gram(others, column), column)
        left = math.sqrt(float(self._squares(column)[0]))
        if left < _SHARE:
            r[j] = 0.0
            return r
        column /= left
        r[j] = norm * left
        return r

    def _replace(self, columns: NDArray[Any], j: int, others: NDArray[Any], panel: int) -> None:
        """Make column j of a panel a random unit vector that is orthogonal to all others."""
        for attempt in count():
            generator = np.random.default_rng((_REPLACEMENT_SEED, self.passes, panel, j, attempt))
            columns[j] = generator.uniform(-1.0, 1.0, self.n)
            column, left = columns[j : j + 1], 0.0
            for _ in range(3):
                column /= np.sqrt(self._squares(column)[0])
                for span in (others, np.delete(columns, j, axis=0)):
                    self._subtract(span, self._gram(span, column), column)
                left = float(np.sqrt(self._squares(column)[0]))
                if left == 0.0:
                    break
            if left > _SHARE:
                column /= left
                return

    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        """Rotate a chunk of rows at a time."""
        source, target, compute = self._vectors(panels), self._vectors(into), self._compute
        s = coefficients.T.astype(compute)
        for rows in self._chunks:
            target[:, rows] = s @ source[:, rows].astype(compute)

    def read(self) -> dict[str, NDArray[np.float64]]:
        kept, self._kept = self._kept, {}
        return kept

    # sums over rows

    def _gram(self, basis: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
        """``V.T W``, by chunks."""
        compute = self._compute
        parts = [basis[:, rows].astype(compute, copy=False) @ w[:, rows].astype(compute, copy=False).T for rows in self._chunks]
        total: NDArray[Any] = sum(parts[1:], parts[0])
        return total

    def _squares(self, w: NDArray[Any]) -> NDArray[np.float64]:
        """Squared norms of columns, in float64: those of float32 may underflow."""
        parts = [w[:, rows].astype(np.float64, copy=False) for rows in self._chunks]
        squares = [np.einsum("ij,ij->i", part, part) for part in parts]
        total: NDArray[np.float64] = sum(squares[1:], squares[0])
        return total

    def _subtract(self, basis: NDArray[Any], c: NDArray[Any], w: NDArray[Any]) -> None:
        """``W -= V C``, rounded once."""
        compute = self._compute
        for rows in self._chunks:
            w[:, rows] = w[:, rows].astype(compute, copy=False) - c.T @ basis[:, rows].astype(compute, copy=False)

    # certificates

    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        found = []
        for panel in panels:
            x = self.take(range(panel, panel + 1))
            at = (panel - panels.start) * self.block
            r = self._multiplied(self._exact, x, np.dtype(np.float64)) - x * np.asarray(values[at : at + self.block])
            self.passes += 1
            found.append(np.sqrt(self._squares(r.T) / self._squares(x.T)))
        return np.concatenate(found) if found else np.zeros(0)

    def close(self) -> None:
        self._basis, self._w = np.zeros((0, self.n)), np.zeros((0, self.n))
