"""A basis whose products with A are known, ``A V[done] = V H``, and what Rayleigh and Ritz make of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.powers import RangeError
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.wanted import Which, in_wanted_order
from ooc_chol.kernels.host.blas import blas_threads


class Ritz(NamedTuple):
    """All Ritz pairs of a basis, wanted ones first."""

    values: NDArray[np.float64]
    coefficients: NDArray[np.float64]  #: (columns of the whole basis, pairs)
    estimates: NDArray[np.float64]  #: Norms of residuals, as the basis tells them

    @property
    def scale(self) -> float:
        """Largest magnitude of a Ritz value."""
        return float(np.abs(self.values).max(initial=0.0))


class KrylovState(NamedTuple):
    """State of a basis besides its vectors, just after a restart; the vectors are those of its first panels."""

    values: NDArray[np.float64]  #: Ritz value of each column that is kept
    coupling: NDArray[np.float64]  #: (columns of the frontier, columns kept): ``A V = V diag(values) + F coupling``

    def panels(self, block: int) -> int:
        """Panels of vectors that belong to it."""
        return (len(self.values) + len(self.coupling)) // block


@final
class KrylovBasis:
    """Panels of a space in use: those that were multiplied by A, and the *frontier*, those that were not yet.

    A product with a panel of the frontier is projected on all panels in use, and what is left becomes a new one; so ``A V[done] =
    V H`` holds at any time, all V in use being orthonormal. A frontier of one panel is block Lanczos; more of them, such as
    random ones that join, make a wider block.
    """

    def __init__(self, space: AbstractSpace) -> None:
        self.space = space
        self.done: list[int] = []  #: Panels that were multiplied, in that order
        self.frontier: list[int] = []  #: Panels that will be, in that order
        self.used = 0  #: Panels in use: the first ones
        self._h = np.zeros((space.capacity * space.block,) * 2)
        self._pending: list[tuple[int, int, int]] = []  # panel, panels it was projected on, panel that came of it

    # growth

    def join(self, seed: int, vectors: NDArray[np.float64] | None = None, *, is_loaded: bool = False) -> int:
        """A panel made orthonormal to all in use joins the frontier: the caller's, W as it ``is_loaded``, or a random one."""
        if vectors is not None:
            self.space.bring(vectors)
        elif not is_loaded:
            self.space.fill(seed)
        before = range(self.used)
        if before:
            self.space.project(before, f"J{self.used}")
        self.space.orthonormalize(self.used, f"S{self.used}", before, is_next=True)
        self.frontier.append(self.used)
        self.used += 1
        return self.used - 1

    def multiply(self, panel: int) -> int:
        """Enqueue the product with a panel of the frontier; the panel that came of it takes its place at the end."""
        new, before = self.used, range(self.used)
        self.space.product(panel)
        self.space.project(before, f"C{panel}")
        self.space.orthonormalize(new, f"R{panel}", before, is_next=True)
        self._pending.append((panel, self.used, new))
        self.frontier.remove(panel)
        self.done.append(panel)
        self.frontier.append(new)
        self.used += 1
        return new

    @property
    def is_full(self) -> bool:
        """True if there is no room for another product."""
        return self.used == self.space.capacity

    # Rayleigh and Ritz

    def read(self) -> None:
        """Wait, and put the coefficients of products since the last call into H.

        Raises ``ValueError``: they are not finite: A holds NaN or infinities, or its products overflow.
        """
        found, block = self.space.read(), self.space.block
        numbers = [found[f"{name}{panel}"].reshape(-1) for panel, _, _ in self._pending for name in "CR"]
        if numbers and not np.isfinite(np.concatenate(numbers)).all():
            raise RangeError(
                "a product with A holds NaN or infinite numbers: look for such entries of A (or of what its LinearOperator "
                "returns), and scale A down where products overflow"
            )
        for panel, height, new in self._pending:
            column = slice(panel * block, (panel + 1) * block)
            c, r = found[f"C{panel}"], found[f"R{panel}"]
            self._h[: height * block, column] = c
            self._h[new * block : (new + 1) * block, column] = r
        self._pending.clear()

    def largest(self) -> float:
        """Largest magnitude of an entry of the projected matrix."""
        return _largest(self._projected())

    def asymmetry(self) -> float:
        """How far the projected matrix is from its transpose, ``max |T - T.T| / max |T|``."""
        return asymmetry_of(self._projected())

    def is_symmetric(self) -> bool:
        """Tell by products of the two panels where H is the least symmetric, orthogonal or not, whether A is. Spoils W."""
        t, block = self._projected(), self.space.block
        off = np.abs(t - t.T)
        i, j = np.unravel_index(int(off.argmax()), t.shape)
        one, other = self.done[i // block], self.done[j // block]
        for panel, against, name in ((one, other, "one"), (other, one, "other")):
            self.space.product(panel)
            self.space.inner(range(against, against + 1), name)
        found = self.space.read()
        return bool(np.abs(found["one"] - found["other"].T).max() <= off.max() / 2)

    def deviation(self, seed: int) -> float:
        """How far a basis is from ``V.T V = I`` and, relative to H, from ``A V = V H``, only just after a restart.

        By random combinations of its columns, one product. W and the panel behind those in use are spoilt.
        """
        space, block, panels, spare = self.space, self.space.block, range(self.used), range(self.used, self.used + 1)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], (self.used * block, block))
        space.rotate(panels, signs, spare)
        space.load(spare.start)
        space.inner(panels, "V.T V")
        done = np.zeros_like(signs)
        done[_columns(self.done, block)] = signs[_columns(self.done, block)]
        space.rotate(panels, done, spare)
        space.product(spare.start)
        space.project(panels, "V.T A V", again=False)
        space.store(spare.start)
        space.inner(spare, "left")
        found, largest = space.read(), float(np.abs(self._h).max(initial=0.0))
        off = found["V.T A V"] - self._h[: len(signs), : len(signs)] @ done
        products = float(np.sqrt(np.square(off).sum(axis=0) + np.diag(found["left"])).max())
        vectors = float(np.abs(found["V.T V"] - signs).max())
        return vectors + (products / largest if largest else products)

    def _projected(self) -> NDArray[np.float64]:
        """``V.T A V`` of panels that were multiplied, in that order; nobody writes to it."""
        return self._part(self.done, self.done)

    def _part(self, rows: list[int], columns: list[int]) -> NDArray[np.float64]:
        """Rows and columns of H that belong to panels: in place where these follow each other, as nearly always, else a copy."""
        if _is_range(rows) and _is_range(columns):
            return self._h[_span(rows, self.space.block), _span(columns, self.space.block)]
        return self._h[np.ix_(_columns(rows, self.space.block), _columns(columns, self.space.block))]

    def ritz(self, which: Which) -> Ritz:
        """All Ritz pairs. What a later product tells of an earlier panel counts, so that roundoff of the earlier does not."""
        # Devices stand still meanwhile: as few arrays as possible are made.
        block, panels = self.space.block, np.arange(len(self.done))
        upper = np.add(self._projected(), 0.0, order="C")  # no zero has a sign
        blocks = upper.reshape(len(panels), block, len(panels), block)
        own = blocks[panels, :, panels]
        blocks[panels, :, panels] = (own + own.transpose(0, 2, 1)) / 2
        with blas_threads(1):  # of some hundred columns: more threads take longer, and go on spinning
            values, vectors = np.linalg.eigh(upper.T)  # which reads the lower triangle alone
        order = in_wanted_order(values, which)
        # LAPACK's vectors are some roundings too long or too short, and restarts would multiply that up.
        values, vectors = values[order], vectors[:, order]
        vectors = vectors / np.linalg.norm(vectors, axis=0)
        coefficients = np.zeros((self.used * block, len(values)))
        coefficients[_places(self.done, block)] = vectors
        left = self._part(self.frontier, self.done) @ vectors
        return Ritz(values, coefficients, np.sqrt(np.einsum("ij,ij->j", left, left)))

    # restarts

    def restart(self, ritz: Ritz, panels: int) -> KrylovState:
        """The first Ritz vectors become the first panels, and the frontier follows them."""
        block = self.space.block
        count = panels * block
        self._clear_below(panels)
        coefficients = np.zeros((self.used * block, count))
        coefficients[: len(ritz.coefficients)] = ritz.coefficients[:, :count]
        self.space.rotate(range(self.used), coefficients, range(panels))  # first: it goes on while the host does the rest
        coupling = self._part(self.frontier, self.done) @ ritz.coefficients[_places(self.done, block), :count]
        return self._settle(KrylovState(ritz.values[:count].copy(), coupling))

    def _clear_below(self, panels: int) -> None:
        """Move panels of the frontier out of the first ones, which are written to."""
        for at, panel in enumerate(self.frontier):
            if panel < panels:
                self._move(panel, self.used)
                old, new = _columns([panel], self.space.block), _columns([self.used], self.space.block)
                self._h[new] = self._h[old]
                self.frontier[at] = self.used
                self.used += 1

    def shrink(self, panels: int) -> None:
        """Keep fewer Ritz vectors of a basis that was just restarted."""
        count, block = panels * self.space.block, self.space.block
        kept, frontier = np.arange(count), _columns(self.frontier, block)
        self._settle(KrylovState(np.diag(self._h)[:count].copy(), self._h[np.ix_(frontier, kept)]))

    def drop_frontier(self, panels: int) -> None:
        """Forget the last panels of the frontier, whose coupling is small, of a basis that was just restarted."""
        self.frontier = self.frontier[: len(self.frontier) - panels]
        self.used = max([*self.done, *self.frontier]) + 1

    def _settle(self, state: KrylovState) -> KrylovState:
        """Let the frontier follow the kept panels, in its order, and H be what a restart leaves of it."""
        kept = len(state.values) // self.space.block
        moved = sorted(range(len(self.frontier)), key=self.frontier.__getitem__)
        for to, at in enumerate(moved):
            self._move(self.frontier[at], kept + to)
            self.frontier[at] = kept + to
        self.done, self.used = list(range(kept)), kept + len(self.frontier)
        self._fill(state)
        return self.state()

    def _fill(self, state: KrylovState) -> None:
        count = len(state.values)
        self._h[:] = 0.0
        self._h[np.arange(count), np.arange(count)] = state.values
        self._h[np.ix_(_columns(self.frontier, self.space.block), np.arange(count))] = state.coupling

    def _move(self, panel: int, to: int) -> None:
        if panel != to:
            self.space.move(panel, to)

    def state(self) -> KrylovState:
        """State of the basis besides its vectors; only just after a restart. The frontier counts in its order."""
        count = len(self.done) * self.space.block
        coupling = self._h[np.ix_(_columns(self.frontier, self.space.block), np.arange(count))]
        return KrylovState(np.diag(self._h)[:count].copy(), coupling)

    def adopt(self, state: KrylovState, frontier: list[int]) -> None:
        """Become a basis whose vectors are in the space already; arguments as for :meth:`resume`."""
        self.used = state.panels(self.space.block)
        self.done, self.frontier = list(range(len(state.values) // self.space.block)), list(frontier)
        self._fill(state)

    def resume(self, state: KrylovState, panels: Iterable[NDArray[np.float64]], frontier: list[int]) -> None:
        """Become the basis that a restart left."""
        for panel, vectors in zip(range(state.panels(self.space.block)), panels, strict=True):
            self.space.bring(vectors)
            self.space.store(panel)
        self.adopt(state, frontier)


def _columns(panels: list[int], block: int) -> NDArray[np.intp]:
    """Columns of panels."""
    return (np.asarray(panels, dtype=np.intp)[:, None] * block + np.arange(block)).reshape(-1)


def _is_range(panels: list[int]) -> bool:
    """Tell whether panels follow each other."""
    return bool(panels) and panels == list(range(panels[0], panels[0] + len(panels)))


def _span(panels: list[int], block: int) -> slice:
    """Columns of panels that follow each other."""
    return slice(panels[0] * block, (panels[-1] + 1) * block)


def _places(panels: list[int], block: int) -> slice | NDArray[np.intp]:
    """Columns of panels, as an index."""
    return _span(panels, block) if _is_range(panels) else _columns(panels, block)


def _largest(t: NDArray[np.float64]) -> float:
    """Largest magnitude of an entry."""
    return max(float(t.max(initial=0.0)), -float(t.min(initial=0.0)))


def asymmetry_of(t: NDArray[np.float64]) -> float:
    """How far a matrix is from its transpose, ``max |T - T.T| / max |T|``."""
    largest = _largest(t)
    return abs(float((t - t.T).max(initial=0.0))) / largest if largest else 0.0
