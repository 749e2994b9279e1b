"""Chebyshev filters: a polynomial of A in place of A, where wanted eigenvalues are close together at one end of the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.krylov import Ritz
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.wanted import Wanted

#: Panels that a basis of filtered vectors has beside the wanted ones, at least and at most, and that for what a product leaves.
_LEAST_STEPS, _MOST_STEPS = 4, 16
#: Panels that a filter works with beside the basis.
SCRATCH_PANELS = 2
#: Degrees that are worth it: below, Lanczos does as much by itself; above, a wrong interval costs too much before it is seen. Up
#: to 24 images, grids and paths took 0.64 to 1 times the passes of up to 64, in as many cycles or one or two more.
LEAST_DEGREE, MOST_DEGREE = 6, 24
#: How far roundoff of the largest filtered eigenvalue may drown the slope at the wanted ones, in units of that without a filter.
_MOST_DROWNED = 4.0
#: Of which cosh is a number.
_LARGEST_ANGLE = 700.0


@dataclass(frozen=True)
class ChebyshevFilter:
    """``p(A) = T_d((A - center) / half)``, which is within 1 in magnitude on the interval that is damped."""

    degree: int  #: d, products with A for one with p(A)
    #: Middle of the damped interval, and half its length; negative where the smallest eigenvalues are wanted, so that the wanted
    #: ones always have arguments and values above 1
    center: float
    half: float
    panels: int  #: Panels of the basis of filtered vectors, that for what a product leaves included

    def values(self, filtered: NDArray[np.float64]) -> NDArray[np.float64]:
        """Eigenvalues of A from those of p(A): the end of the interval for those that are not above 1."""
        return np.asarray(self.center + self.half * np.cosh(self._angles(filtered)))

    def slopes(self, filtered: NDArray[np.float64]) -> NDArray[np.float64]:
        """``|dp / dw|`` at the same: by so much residuals of p(A) are larger than those of A; 0 inside of the interval."""
        angles, d = self._angles(filtered), self.degree
        ratio = np.full_like(angles, float(d))  # sinh(d t) / sinh(t) as t goes to 0
        np.divide(np.sinh(d * angles), np.sinh(angles), out=ratio, where=angles > 0)
        return np.asarray(np.where(filtered > 1, d * ratio / abs(self.half), 0.0))

    def bounds(self, filtered: NDArray[np.float64], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
        """How large residuals of A may be, from those of p(A); infinite for values inside of the interval.

        A component of a residual at w' is that of p(A) times ``(w' - w) / (p(w') - p(w))``, which is largest at the far end.
        """
        farthest = abs(self.half) * (1 + np.cosh(self._angles(filtered)))
        bounds = np.full_like(residuals, np.inf)
        np.divide(farthest * residuals, filtered - 1, out=bounds, where=filtered > 1)
        return bounds

    def _angles(self, filtered: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.arccosh(np.maximum(filtered, 1.0)) / self.degree)


def chosen_filter(
    ritz: Ritz, wanted: Wanted, block: int, capacity: int, degree: int | None = None, largest: float = 1e150
) -> ChebyshevFilter | None:
    """The filter with which one more cycle should do, by what a restart tells of the spectrum; None where none is worth it.

    A Krylov space of m products with ``T_d`` holds polynomials of degree m d of A, of which the best reduces what is damped
    beside the last wanted eigenvalue as ``T_(m d)`` does: by ``2 exp(-m d t)``, ``cosh t`` being where that eigenvalue is in
    units of the interval (Saad 2011, section 4.4; Zhou and Saad 2007 for the interval).
    """
    k, values = wanted.k, ritz.values if wanted.which == "LA" else -ritz.values
    first = -(-k // block)
    panels = min(first + _MOST_STEPS + 1, capacity - SCRATCH_PANELS)
    steps = panels - first - 1
    if wanted.which == "LM" or degree == 1 or steps < _LEAST_STEPS or len(values) < k + 2:
        return None
    far = values[-1] - ritz.estimates[-1]
    found, angle = MOST_DEGREE + 1, 0.0
    for edge in values[k : (k + len(values)) // 2 + 1]:
        center, half = (edge + far) / 2, (edge - far) / 2
        if half <= 0:
            return None
        angle = float(np.arccosh(max(1.0, (values[k - 1] - center) / half)))
        found = int(np.ceil(np.log(2 / wanted.tol) / max(steps * angle, 1e-30)))
        if found <= MOST_DEGREE:
            break
    if not angle:
        return None
    outermost = float(np.arccosh(max(1.0, (values[0] - center) / half)))
    found = min(degree or min(found, MOST_DEGREE), int(np.arccosh(largest) / outermost))
    if found < 2:
        return None
    scale = float(np.abs(ritz.values).max())
    while degree is None and found >= LEAST_DEGREE and _drowned(found, outermost, angle, half / scale) > _MOST_DROWNED:
        found -= 1
    if degree is None and found < LEAST_DEGREE:
        return None
    sign = 1.0 if wanted.which == "LA" else -1.0
    return ChebyshevFilter(found, sign * center, sign * half, panels)


def _drowned(degree: int, outermost: float, angle: float, half: float) -> float:
    """The largest value of a filter over its slope at the last wanted eigenvalue, in units of the scale: 1 without a filter."""
    if degree * outermost > _LARGEST_ANGLE:
        return float(np.inf)
    return float(np.cosh(degree * outermost) * half * np.sinh(angle) / (degree * np.sinh(degree * angle)))


@final
class FilteredSpace(AbstractSpace):
    """A space in which a product is one with p(A); all else is that of the space of A, of which two panels are its own."""

    def __init__(self, space: AbstractSpace, chebyshev: ChebyshevFilter) -> None:
        if space.capacity < chebyshev.panels + SCRATCH_PANELS:
            raise ValueError(f"a space of {space.capacity} panels has no room for {chebyshev.panels} and {SCRATCH_PANELS} more")
        self.n, self.block, self.precision = space.n, space.block, space.precision
        self.capacity = chebyshev.panels
        self._space, self._filter = space, chebyshev

    @property
    def passes(self) -> int:
        """Products with A."""
        return self._space.passes

    @passes.setter
    def passes(self, count: int) -> None:
        self._space.passes = count

    def product(self, panel: int) -> None:
        """``W = p(A) V[panel]``."""
        scratch, how = range(self.capacity, self.capacity + SCRATCH_PANELS), self._filter
        self._space.filter(panel, scratch, how.degree, center=how.center, half=how.half)

    def fill(self, seed: int) -> None:
        self._space.fill(seed)

    def bring(self, x: NDArray[np.float64]) -> None:
        self._space.bring(x)

    def load(self, panel: int) -> None:
        self._space.load(panel)

    def store(self, panel: int) -> None:
        self._space.store(panel)

    def move(self, panel: int, to: int) -> None:
        self._space.move(panel, to)

    def multiply_entries(self, panel: int) -> None:
        self._space.multiply_entries(panel)

    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        return self._space.take(panels, columns, dtype)

    def recur(self, panel: int, previous: int | None, into: int | None, *, center: float, half: float) -> None:
        self._space.recur(panel, previous, into, center=center, half=half)

    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        self._space.project(panels, name, again=again)

    def inner(self, panels: range, name: str) -> None:
        self._space.inner(panels, name)

    def orthonormalize(self, panel: int, name: str, against: range, *, is_next: bool = False) -> None:
        self._space.orthonormalize(panel, name, against, is_next=is_next)

    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        self._space.rotate(panels, coefficients, into)

    def read(self) -> dict[str, NDArray[np.float64]]:
        return self._space.read()

    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        """Residuals of A, not of p(A)."""
        return self._space.residuals(panels, values)

    def close(self) -> None:
        self._space.close()
