"""LOBPCG: eigenpairs from one end of a spectrum, with a preconditioner and with known null vectors left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.check import PASSES, VECTORS
from ooc_chol.eigen.lanczos import CHECK_SEED, MOST_ASYMMETRY, START_SEED, Found, asymmetry_text
from ooc_chol.eigen.lobpcg_basis import LobpcgBasis, Precondition
from ooc_chol.eigen.powers import check_magnitude
from ooc_chol.eigen.preconditioners import Preconditioner
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import CheckRound, LanczosCounts
from ooc_chol.eigen.wanted import Wanted, keys

#: Largest norm of A times a null vector of norm 1, relative to the largest Ritz value: beyond it, it is none.
_MOST_NULL = 1e-3
#: And relative to the smallest magnitude of an eigenvalue that was found.
_MOST_FOUND = 1e-2
#: How much smaller the largest true residual must be for a further round to count as progress, and how often it may be less.
_PROGRESS, _PATIENCE = 0.7, 3

#: Is told after each step, with the largest residual of the wanted pairs relative to the scale.
AtStep = Callable[["Lobpcg", float], None]


def lobpcg_panels(k: int, block: int) -> int:
    """Panels of X for k pairs, the last of which may have columns to spare."""
    return -(-k // block)


def lobpcg_capacity(k: int, block: int, null: int = 0, *, diagonal: bool = False, check: bool = True) -> int:
    """Panels that a space needs for LOBPCG."""
    first, panels = -(-null // block), lobpcg_panels(k, block)
    needed = LobpcgBasis.capacity(first, panels)
    if check:
        needed = max(needed, LobpcgBasis.capacity(first + panels, _check_panels(panels, block)))
    return needed + diagonal


def _check_panels(panels: int, block: int) -> int:
    return min(-(-VECTORS // block), panels)


def check_null(norm: float, values: NDArray[np.float64], goal: float) -> None:
    """Raise where the product of A and a null vector is long beside eigenvalues that were found, and residuals asked for."""
    least = float(np.abs(values).min(initial=np.inf))
    if norm > max(goal, _MOST_FOUND * least):
        raise _null_error(norm, f"an eigenvalue beside it is {least:.3g}")


def _null_error(norm: float, beside: str) -> ValueError:
    return ValueError(
        f"null holds a vector v of norm 1 with ||A v|| = {norm:.3g}, where {beside}: give vectors with A v = 0, such as one of "
        "ones for each component of a graph"
    )


@final
class Lobpcg:
    """Locally optimal block preconditioned conjugate gradients on a space, with an orthonormal basis [X, P, R].

    Shapes: ``null`` (n, m). Knyazev (2001), with the basis of Hetmaniuk and Lehoucq (2006). A panel all of whose wanted pairs
    have converged is locked softly: it takes no products any more, but stays in the basis. The first step is made without the
    preconditioner: it shows how large the largest eigenvalue is, relative to which residuals are measured.
    """

    def __init__(
        self,
        space: AbstractSpace,
        wanted: Wanted,
        *,
        max_passes: int,
        preconditioner: Preconditioner | None = None,
        null: NDArray[np.float64] | None = None,
        check: bool = True,
        at_step: AtStep | None = None,
    ) -> None:
        if wanted.which == "LM":
            raise ValueError('LOBPCG looks at one end of the spectrum: take which="SA" or "LA", or method="lanczos" for "LM"')
        self.space, self.wanted, self.counts = space, wanted, LanczosCounts()
        first = 0 if null is None else -(-null.shape[1] // space.block)
        self.basis = LobpcgBasis(space, first, lobpcg_panels(wanted.k, space.block), wanted.which)
        self._null, self._preconditioner = null, preconditioner
        self._max_passes, self._check, self._at_step = max_passes, check, at_step
        self._null_norm = 0.0
        self._least, self._stuck = np.inf, 0

    def run(self, start: NDArray[np.float64] | None = None) -> Found:
        """Run until all wanted pairs have converged and passed the check, or it cannot go on.

        Shapes: ``start`` (n, m). Raises ``ValueError`` and ``PreconditionerError``.
        """
        self._bring_null()
        self._bring_diagonal()
        asymmetry = self.basis.begin(start, START_SEED)
        check_magnitude(self.basis.scale, self.space.precision)
        self._look_at_symmetry(asymmetry)
        self.counts.passes += self.basis.panels
        while True:
            why = self._converge()
            residuals = self._certify()
            goal = self.wanted.tol * self.basis.scale
            if residuals.max() > goal:
                why = why or self._why_stuck(float(residuals.max()))
                if why:
                    return self._found(residuals, why)
                self._refresh()
                continue
            if not self._check or not self._look_further():
                return self._found(residuals, "")
            if self.counts.passes >= self._max_passes:
                reason = f"the check found eigenvalues beyond these, and max_passes={self._max_passes} is used up"
                return self._found(residuals, reason)

    # rounds

    def _converge(self) -> str:
        """Steps until the wanted pairs seem to have converged; why not, where they do not."""
        basis, counts = self.basis, self.counts
        while True:
            norms = basis.residuals()
            goal = self.wanted.tol * basis.scale
            active = self._active(norms, goal)
            if self._at_step is not None and counts.passes > basis.panels:
                worst = float(norms[: self.wanted.k].max())
                self._at_step(self, worst / basis.scale if basis.scale else 0.0)
            if not active:
                return ""
            if counts.passes >= self._max_passes:
                return f"max_passes={self._max_passes} is used up"
            is_first = counts.passes == basis.panels
            told = basis.step(active, None if is_first else self._preconditioning)
            counts.passes += len(active)
            self.space.settled(range(self.space.capacity))
            if is_first:
                self._look_at_symmetry(told)
                self._look_at_null()

    def _active(self, norms: NDArray[np.float64], goal: float) -> list[int]:
        """Panels of X with a wanted pair that has not converged."""
        is_open = norms > goal
        is_open[self.wanted.k :] = False
        return np.flatnonzero(is_open.reshape(self.basis.panels, -1).any(axis=1)).tolist()

    def _refresh(self) -> None:
        """Make products of X afresh: those that were combined step by step have told less than the truth."""
        self.basis.refresh()
        self.counts.passes += self.basis.panels
        self.counts.restarts += 1

    def _certify(self) -> NDArray[np.float64]:
        """True residuals of the wanted pairs, of vectors that were made orthonormal afresh."""
        self.basis.settle()
        self.counts.certificate_passes += self.basis.panels
        return self.space.residuals(self.basis.x, self.basis.values.tolist())[: self.wanted.k]

    def _why_stuck(self, residual: float) -> str:
        """Reason to stop where residuals no longer fall although those of combined products are small; else empty."""
        self._stuck = 0 if residual < _PROGRESS * self._least else self._stuck + 1
        self._least = min(self._least, residual)
        if self._stuck < _PATIENCE:
            return ""
        is_rough = self._null_norm > self.wanted.tol * self.basis.scale
        rough = f", beside a vector v of null with ||A v|| = {self._null_norm:.3g}" if is_rough else ""
        return f"further steps no longer reduce residuals{rough}"

    def _found(self, residuals: NDArray[np.float64], why_not: str) -> Found:
        values = self.basis.values[: self.wanted.k]
        if not why_not:
            check_null(self._null_norm, values, self.wanted.tol * self.basis.scale)
        for to, panel in enumerate(self.basis.x if self.basis.first else ()):
            self.space.move(panel, to)
        return Found(values, residuals, self.basis.scale, why_not, self.counts)

    # what is looked at

    def _bring_null(self) -> None:
        """Null vectors become the first panels, filled up with zeros; norms of their products are kept for later."""
        if self._null is None:
            return
        space, block = self.space, self.space.block
        for panel in range(self.basis.first):
            part = self._null[:, panel * block : (panel + 1) * block]
            space.bring(np.pad(part, ((0, 0), (0, block - part.shape[1]))))
            space.store(panel)
        spare = self.basis.first
        for panel in range(self.basis.first):
            space.product(panel)
            space.store(spare)
            space.inner(range(spare, spare + 1), f"Z{panel}")
        found = space.read()
        self.counts.certificate_passes += self.basis.first
        self._null_norm = max(float(np.sqrt(np.diag(found[f"Z{panel}"]).max())) for panel in range(self.basis.first))

    def _bring_diagonal(self) -> None:
        """A diagonal preconditioner becomes the last panel, the same in each of its columns."""
        if self._preconditioner is not None and self._preconditioner.diagonal is not None:
            self.space.bring(np.repeat(self._preconditioner.diagonal[:, None], self.space.block, axis=1))
            self.space.store(self.space.capacity - 1)

    @property
    def _preconditioning(self) -> Precondition | None:
        return None if self._preconditioner is None else self._precondition

    def _precondition(self, panel: int) -> None:
        """W becomes the preconditioner times a panel: where the vectors are if that is a diagonal, else on the host."""
        assert self._preconditioner is not None
        if self._preconditioner.diagonal is None:
            self.space.bring(self._preconditioner(self.space.take(range(panel, panel + 1))))
        else:
            self.space.load(panel)
            self.space.multiply_entries(self.space.capacity - 1)

    def _look_at_null(self) -> None:
        """Raise unless null vectors are such."""
        most = max(_MOST_NULL, 10 * self.wanted.tol) * self.basis.scale
        if not self._null_norm <= most:
            raise _null_error(self._null_norm, f"the largest eigenvalue seen is {self.basis.scale:.3g}")

    def _look_at_symmetry(self, asymmetry: float) -> None:
        self.counts.asymmetry = max(self.counts.asymmetry, asymmetry)
        if asymmetry > MOST_ASYMMETRY[self.space.precision]:
            raise ValueError(asymmetry_text(asymmetry))

    def _look_further(self) -> bool:
        """A check sweep; whether it found that pairs are missing, so that the run must go on.

        Random vectors, orthogonal to X, make as many steps as the sweep of Lanczos; X and they together are then the start of
        what goes on.
        """
        basis, k = self.basis, self.wanted.k
        other = LobpcgBasis(self.space, basis.x.stop, _check_panels(basis.panels, self.space.block), self.wanted.which)
        other.begin(None, CHECK_SEED + VECTORS * len(self.counts.checks))
        passes = other.panels
        everything = list(range(other.panels))
        for _ in range(PASSES - 1):
            if other.residuals().max() <= self.wanted.tol * basis.scale:
                break
            other.step(everything, self._preconditioning)
            passes += other.panels
        values = np.concatenate([basis.values, other.values])
        order = np.argsort(-keys(values, self.wanted.which), kind="stable")[:k]
        worst = keys(basis.values[k - 1 : k], self.wanted.which)[0]
        missed = int(np.count_nonzero(keys(other.values, self.wanted.which) > worst + self.wanted.tol * basis.scale))
        self.counts.checks.append(CheckRound(passes, other.panels * self.space.block, missed))
        if missed:
            self._take_in(other, order)
        return missed > 0

    def _take_in(self, other: LobpcgBasis, order: NDArray[np.intp]) -> None:
        """X becomes the most wanted of X and of what a sweep has found."""
        basis, columns = self.basis, len(self.basis.values)
        total = columns + len(other.values)
        chosen = [*order.tolist(), *(at for at in range(total) if at not in set(order.tolist()))][:columns]
        coefficients = np.zeros((total, columns))
        coefficients[chosen, np.arange(columns)] = 1.0
        self.space.rotate(range(basis.x.start, other.x.stop), coefficients, basis.x)
        basis.settle()
        self._refresh()
        self._least, self._stuck = np.inf, 0
