"""An orthonormal basis [X, P, R] with its products, and the steps of LOBPCG on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.krylov import asymmetry_of
from ooc_chol.eigen.powers import RangeError
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.wanted import Which, in_wanted_order

#: Enqueues that W becomes M times a panel.
Precondition: TypeAlias = Callable[[int], None]
#: Columns of P that stand out of X by less than this are roundoff.
_LEAST_DIRECTION = 1e-12
#: Singular values of directions, of norm 1 each, below which they depend on each other.
_LEAST_SINGULAR = 1e-8


@final
class LobpcgBasis:
    """Panels of Ritz vectors X, directions P and residuals R, orthonormal to each other and to panels before them.

    Products A X, A P and A R stand beside and are combined as the vectors are, so that a step takes products with R alone. Of the
    projected matrix, what X and P have with each other follows on the host from the step before. Directions P are made
    orthonormal to X within coefficients on the host (Hetmaniuk and Lehoucq 2006), R by sums over rows; so no Gram matrix has to
    be inverted, which is what makes LOBPCG break down near convergence.
    """

    def __init__(self, space: AbstractSpace, first: int, panels: int, which: Which) -> None:
        self.space, self.first, self.panels, self.which = space, first, panels, which
        self.scale = 0.0  #: Largest magnitude of a Ritz value, ever
        self.values = np.zeros(panels * space.block)  #: Ritz values of X
        self._directions = 0  # panels of P
        self._gram = np.zeros((0, 0))  # [X, P]^T A [X, P]
        self._live = np.zeros(0, dtype=bool)  # columns of [X, P] that are no padding

    @staticmethod
    def capacity(first: int, panels: int) -> int:
        """Panels that the space must have."""
        return first + 6 * panels

    # panels

    @property
    def x(self) -> range:
        """Panels of X."""
        return range(self.first, self.first + self.panels)

    @property
    def _top(self) -> int:
        """Panel behind [X, P], where R begins."""
        return self.first + self.panels + self._directions

    def _image(self, panel: int) -> int:
        """Panel that holds A times a panel."""
        return panel + 3 * self.panels

    def _multiply(self, panel: int, upto: int) -> None:
        """Enqueue A times a panel, and inner products of that with all panels up to ``upto``."""
        self.space.product(panel)
        self.space.store(self._image(panel))
        self.space.inner(range(self.first, upto), f"G{panel}")

    def _orthonormalize(self, panel: int) -> None:
        """W becomes a panel, orthonormal to all before it."""
        before = range(panel)
        if before:
            self.space.project(before, f"C{panel}")
        self.space.orthonormalize(panel, f"R{panel}", before)

    # steps

    def begin(self, start: NDArray[np.float64] | None, seed: int) -> float:
        """X becomes Ritz vectors of a starting block; no directions yet.

        Shapes: ``start`` (n, m).
        """
        block = self.space.block
        for at, panel in enumerate(self.x):
            given = None if start is None else start[:, at * block : (at + 1) * block]
            self.space.fill(seed + at)
            if given is not None and given.shape[1]:
                self.space.store(panel)
                mixed = self.space.take(range(panel, panel + 1))
                mixed[:, : given.shape[1]] = given
                self.space.bring(mixed)
            self._orthonormalize(panel)
        return self.refresh()

    def settle(self) -> None:
        """Make X orthonormal afresh, of which rounding of many steps has left a little less."""
        for panel in self.x:
            self.space.load(panel)
            self._orthonormalize(panel)

    def refresh(self) -> float:
        """Multiply an orthonormal X afresh, and make Ritz vectors of it; directions are forgotten."""
        for panel in self.x:
            self._multiply(panel, self.x.stop)
        found = self.space.read()
        gram = np.concatenate([_finite(found[f"G{panel}"]) for panel in self.x], axis=1)
        self._directions, self._gram, self._live = 0, gram, np.ones(len(gram), dtype=bool)
        self._rayleigh_ritz([])
        return asymmetry_of(gram)

    def residuals(self) -> NDArray[np.float64]:
        """Residuals ``A X - X (X.T A X)`` become the panels of R; their norms. Waits."""
        for at, panel in enumerate(self.x):
            self.space.load(self._image(panel))
            self.space.project(range(self.x.stop), f"C{panel}", again=False)
            self.space.store(self._top + at)
            self.space.inner(range(self._top + at, self._top + at + 1), f"N{at}")
        found = self.space.read()
        squares = np.concatenate([np.diag(_finite(found[f"N{at}"])) for at in range(self.panels)])
        norms: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0.0))
        return norms

    def step(self, active: list[int], precondition: Precondition | None) -> float:
        """A step: Rayleigh and Ritz in [X, P, R], R made of residuals of :meth:`residuals`."""
        top, factors = self._top, []
        for to, at in enumerate(active):
            (precondition or self.space.load)(top + at)
            self._orthonormalize(top + to)
            factors.append(f"R{top + to}")
        end = top + len(active)
        for panel in range(top, end):
            self._multiply(panel, end)
        found = self.space.read()
        columns = np.concatenate([_finite(found[f"G{panel}"]) for panel in range(top, end)], axis=1)
        old, size = len(self._gram), len(columns)
        is_plain = precondition is None and not self._directions and len(active) == 1
        told = _difference(columns[:old], active[0] * self.space.block, found[factors[0]]) if is_plain else 0.0
        whole = np.zeros((size, size))
        whole[:old, :old] = self._gram
        whole[:, old:] = columns
        whole[old:, :old] = columns[:old].T
        self._gram, self._live = whole, np.concatenate([self._live, np.ones(size - old, dtype=bool)])
        self._directions = end - self.first - self.panels  # R belongs to the basis until it is rotated
        self._rayleigh_ritz(active)
        return told

    def _rayleigh_ritz(self, active: list[int]) -> None:
        """Rotate X, and P of active panels, into the best of the basis."""
        block, live = self.space.block, np.flatnonzero(self._live)
        gram = self._gram[np.ix_(live, live)]
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        order = in_wanted_order(values, self.which)
        self.scale = max(self.scale, float(np.abs(values).max()))
        columns = self.panels * block
        best = np.zeros((len(self._gram), columns))
        best[live] = vectors[:, order[:columns]]
        moved = [at * block + column for at in active for column in range(block)]
        directions = _directions(best, moved, columns)
        coefficients = np.zeros((len(self._gram), columns + len(active) * block))
        coefficients[:, :columns] = best
        coefficients[:, columns : columns + directions.shape[1]] = directions
        into = range(self.first, self.first + self.panels + len(active))
        source = range(self.first, self._top)
        self.space.rotate(source, coefficients, into)
        self.space.rotate(_shifted(source, 3 * self.panels), coefficients, _shifted(into, 3 * self.panels))
        self.values = values[order[:columns]]
        self._gram = coefficients.T @ self._gram @ coefficients
        self._gram[:columns, :columns] = np.diag(self.values)
        self._directions = len(active)
        self._live = np.arange(coefficients.shape[1]) < columns + directions.shape[1]


def _directions(best: NDArray[np.float64], moved: list[int], columns: int) -> NDArray[np.float64]:
    """Coefficients of orthonormal directions P: what X gained outside the old X, orthogonal to the new one."""
    y: NDArray[np.float64] = best[:, moved].copy()
    y[:columns] = 0.0
    y -= best @ (best.T @ y)
    norms = np.linalg.norm(y, axis=0)
    y = y[:, norms > _LEAST_DIRECTION] / norms[norms > _LEAST_DIRECTION]
    y -= best @ (best.T @ y)
    if not y.shape[1]:
        return y
    u, s, _ = np.linalg.svd(y, full_matrices=False)
    u = u[:, s > _LEAST_SINGULAR]
    return np.asarray(np.linalg.qr(u - best @ (best.T @ u))[0], dtype=np.float64)


def _shifted(panels: range, by: int) -> range:
    return range(panels.start + by, panels.stop + by)


def _difference(columns: NDArray[np.float64], at: int, factor: NDArray[np.float64]) -> float:
    """How far X^T A R is from what R was made of: (R^T A X)^T, the factor of R."""
    largest = float(np.abs(columns).max(initial=0.0))
    off = columns[at : at + len(factor)] - factor.T
    return float(np.abs(off).max(initial=0.0)) / largest if largest else 0.0


def _finite(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    if not np.isfinite(numbers).all():
        raise RangeError(
            "a product with A holds NaN or infinite numbers: look for such entries of A (or of what its LinearOperator returns), "
            "and scale A down where products overflow"
        )
    return numbers
