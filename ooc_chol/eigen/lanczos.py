"""Block Lanczos with thick restarts: from a starting panel to eigenpairs whose residuals were computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.chebyshev import ChebyshevFilter, FilteredSpace, chosen_filter
from ooc_chol.eigen.check import PASSES, sweep
from ooc_chol.eigen.forecast import Forecast
from ooc_chol.eigen.krylov import KrylovBasis, Ritz
from ooc_chol.eigen.powers import check_magnitude, largest_value
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import CheckRound, LanczosCounts, LanczosState
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.precision.triples import Precision

#: Largest asymmetry of the projected matrix that roundoff explains, by precision.
MOST_ASYMMETRY = {Precision.FFF: 1e-3, Precision.FDF: 1e-4, Precision.DDD: 1e-8}
#: How much smaller the largest residual must be for a further restart to count as progress, and how often it may be less.
_PROGRESS, _PATIENCE = 0.7, 3
#: Products with a polynomial after which residuals are looked at first, and the share of the goal that their bounds must reach
#: for the rest of a cycle to be left out.
_FIRST_LOOK, _MARGIN = 4, 0.5
#: Without a polynomial residuals are looked at only in a cycle that begins with at most so many times the goal: it is mostly the
#: last one; and the logarithm of what a product gains at least.
_LAST_CYCLE, _LITTLE = 1e3, 0.1
#: Products with each random vector of a check, at least, where each is one with a polynomial: a Ritz vector takes two.
_FILTERED_PASSES = 2
#: A run ends that has no digit of any wanted value after so many products, and whose residuals would take so many times the
#: products that are left, at the pace of the best of them in the second half of those that were made. Paths of 5,000 vertices,
#: which get there, need 2.8 times at most.
_UNRESOLVED, _HOPELESS = 800, 3.5
#: By how much products must grow for a residual to be kept, from which that pace follows.
_APART = 1.1
#: Seed of the starting panel, and of the first check.
START_SEED, CHECK_SEED = 0, 1_000_000


@dataclass(frozen=True)
class Found:
    """Where a run ended; the vectors are the first columns of the space."""

    values: NDArray[np.float64]  #: (k,) the most wanted Ritz values, the most wanted first
    residuals: NDArray[np.float64]  #: (k,) ``||A v - value v|| / ||v||`` of each, computed in float64
    scale: float  #: Largest magnitude of a Ritz value that was met
    why_not: str  #: Why not all have converged; empty where they have
    counts: LanczosCounts
    is_hopeless: bool = False  #: Whether products with A alone do not lead to these pairs


class _Settled(NamedTuple):
    """Wanted pairs as a restart has left them."""

    values: NDArray[np.float64]  #: Ritz values, the most wanted first: at least those of the panels that hold wanted vectors
    estimates: NDArray[np.float64]  #: Of the residuals of those that are wanted


#: Is told at each restart, with the largest estimated residual of the wanted pairs relative to the scale.
AtRestart = Callable[["Lanczos", float], None]


@final
class Lanczos:
    """Block thick-restart Lanczos on a space.

    Wu and Simon (2000) for thick restarts, with the basis in panels of several columns. Every new panel is orthogonalized against
    all others, once or twice, so that no ghosts of converged pairs arise and none has to be locked. Where eigenvalues at one end
    are so close together that a cycle falls far short of them, later cycles are of a polynomial of A
    (:mod:`~ooc_chol.eigen.chebyshev`): as many products, but a fraction of the orthogonalization, in a smaller basis. Residuals
    are looked at now and then, and the rest of such a cycle is left out where they will do, as it is of the last cycle of A.
    Where a polynomial brings nothing, since wanted eigenvalues are in the interval that it damps, the run goes on with A.
    """

    def __init__(
        self,
        space: AbstractSpace,
        wanted: Wanted,
        *,
        max_passes: int,
        check: bool = True,
        degree: int | None = 1,
        at_restart: AtRestart | None = None,
    ) -> None:
        self.space, self.wanted, self.counts = space, wanted, LanczosCounts()
        self.basis = KrylovBasis(space)
        self.filter: ChebyshevFilter | None = None  #: Whose products the basis is of
        self._next: ChebyshevFilter | None = None  # with which the next cycle begins
        self._degree = degree
        self._max_passes, self._check, self._at_restart = max_passes, check, at_restart
        self._panels = -(-wanted.k // space.block)  # that hold the wanted vectors
        self.scale = 0.0  #: Largest magnitude of a Ritz value until now
        self._least, self._stuck = np.inf, 0
        self._settled: _Settled | None = None  # what the last restart has left
        self._lost = ""  # why the basis is none
        self.refused = 0.0  #: Asymmetry of an A that was refused for it
        self._pace: list[tuple[int, float]] = []  # products, and the least estimate of a residual until then

    def run(self, v0: NDArray[np.float64] | None = None) -> Found:
        """Run until all wanted pairs have converged and passed the check, or it cannot go on.

        Shapes: ``v0`` (n, block). Raises ``ValueError``: A is not symmetric, or a product holds NaN.
        """
        if not self.basis.used:
            self.basis.join(START_SEED, v0)
        settled = self._settled or self._advance()
        while (found := self._judge(settled)) is None:
            settled = self._advance()
        return found

    def _advance(self) -> _Settled:
        """Fill the basis, and restart it."""
        if self._next is not None:
            self._begin_filter(self._next)
        ritz = self._cycle()
        if self.filter is None:
            self.scale = max(self.scale, ritz.scale)
            if not self.counts.restarts:
                sizes, most = (self.space.block, self.space.capacity), largest_value(self.space.precision)
                self._next = chosen_filter(ritz, self.wanted, *sizes, self._degree, most)
        self._restart(ritz)
        settled = self._settled_of(ritz.values, ritz.estimates[: self.wanted.k])
        self._settled = settled
        self.space.settled(range(self.basis.used))
        if self._at_restart is not None:
            self._at_restart(self, self.residual)
        return settled

    def _settled_of(self, values: NDArray[np.float64], estimates: NDArray[np.float64]) -> _Settled:
        """Wanted pairs as a restart has left them, their values and estimates those of A."""
        if self.filter is None:
            return _Settled(values, estimates)
        slopes, infinite = self.filter.slopes(values[: len(estimates)]), np.full_like(estimates, np.inf)
        return _Settled(self.filter.values(values), np.divide(estimates, slopes, out=infinite, where=slopes > 0))

    def _begin_filter(self, chebyshev: ChebyshevFilter) -> None:
        """A basis of p(A), which begins with the sum of the wanted Ritz vectors: in each column of a panel, of some of them."""
        self.filter, self._next, self.counts.degree = chebyshev, None, chebyshev.degree
        self._begin_anew(KrylovBasis(FilteredSpace(self.space, chebyshev)))

    def _begin_anew(self, basis: KrylovBasis) -> None:
        """Another basis, from the wanted Ritz vectors alone."""
        k, block = self.wanted.k, self.space.block
        start = np.zeros((self._panels * block, block))
        start[np.arange(k), np.arange(k) % block] = 1.0
        self.space.rotate(range(self._panels), start, range(1))
        self.space.load(0)
        basis.join(START_SEED, is_loaded=True)
        self.basis, self._least, self._stuck = basis, np.inf, 0

    def _give_filter_up(self) -> None:
        """A basis of A again: eigenvalues that are wanted are in the damped interval, or beyond its other end."""
        self.filter = None
        self._begin_anew(KrylovBasis(self.space))

    @property
    def residual(self) -> float:
        """The largest estimated residual of the wanted pairs at the last restart, relative to the scale."""
        estimate = np.inf if self._settled is None else float(self._settled.estimates.max())
        return estimate / self.scale if self.scale else 0.0

    def _judge(self, settled: _Settled) -> Found | None:
        """Where the run ends, after a restart; None where it goes on."""
        goal = self.wanted.tol * self.scale
        is_last = self.counts.passes + self._least_passes > self._max_passes
        slow = "" if is_last else self._hopeless(settled, goal)
        if settled.estimates.max() > goal and not is_last and not self._lost and not slow:
            if self.filter is not None and self._is_stuck(float(settled.estimates.max())):
                self._give_filter_up()
            return None
        residuals = self._certify(settled)
        if self._lost or slow:
            return replace(self._found(settled, residuals, self._lost or slow), is_hopeless=not self._lost)
        if residuals.max() > goal:
            is_stuck = self._is_stuck(float(residuals.max()))
            if is_stuck and self.filter is not None and not is_last:
                self._give_filter_up()
                return None
            if is_last or is_stuck:
                used_up = f"max_passes={self._max_passes} is used up"
                return self._found(settled, residuals, used_up if is_last else "further restarts no longer reduce residuals")
            return None
        if not self._check:
            return self._found(settled, residuals, "")
        after = self._look_further(settled)
        if after is not None and (after is settled or (residuals := self._certify(after)).max() <= goal):
            return self._found(after, residuals, "")
        if is_last:
            why = f"the check found eigenvalues beyond these, and max_passes={self._max_passes}"
            return self._found(settled, residuals, why)
        return None

    def state(self) -> LanczosState:
        """State of the run, as ``at_restart`` is called; its vectors are the first panels of the space."""
        assert self._settled is not None
        estimates, counts = self._settled.estimates.copy(), deepcopy(self.counts)
        basis, frontier = self.basis.state(), tuple(self.basis.frontier)
        stuck, filters, pace = self._stuck, (self.filter, self._next), tuple(self._pace)
        passes = self.space.passes
        return LanczosState(basis, frontier, estimates, self.scale, self._least, stuck, passes, counts, *filters, pace)

    def resume(self, state: LanczosState, panels: Iterable[NDArray[np.float64]]) -> float:
        """Become, before :meth:`run`, the run that :meth:`state` told of."""
        self.filter, self._next = state.filter, state.next_filter
        if self.filter is not None:
            self.basis = KrylovBasis(FilteredSpace(self.space, self.filter))
        self.basis.resume(state.basis, panels, list(state.frontier))
        deviation = self.basis.deviation(CHECK_SEED)
        self.space.passes = state.space_passes
        self.counts = deepcopy(state.counts)
        self.scale, self._least, self._stuck = state.scale, state.least, state.stuck
        self._pace = list(state.pace)
        values = state.basis.values if self.filter is None else self.filter.values(state.basis.values)
        self._settled = _Settled(values, state.estimates)
        return deviation

    def _found(self, settled: _Settled, residuals: NDArray[np.float64], why_not: str) -> Found:
        return Found(settled.values[: self.wanted.k], residuals, self.scale, why_not, self.counts)

    def _cycle(self) -> Ritz:
        """Fill the basis, and solve the projected problem; behind the first cycle only until residuals will do."""
        basis, counts, each, forecast = self.basis, self.counts, self.passes_a_step, self._forecast()
        # Fewer pairs than are wanted are none.
        while not basis.is_full and (counts.passes + each <= self._max_passes or len(basis.done) < self._panels):
            basis.multiply(basis.frontier[0])
            counts.passes += each
            if forecast is not None and len(basis.done) == forecast.due and not basis.is_full:
                ritz = self._ritz()
                if forecast.is_reached(len(basis.done), float(self._bounds(ritz).max())):
                    return ritz
        return self._ritz()

    def _forecast(self) -> Forecast | None:
        """When to look at residuals in the cycle that begins; None for not before its end."""
        done, goal = len(self.basis.done), _MARGIN * self.wanted.tol * self.scale
        if self.filter is not None:
            return Forecast(goal, max(done + _FIRST_LOOK, self._panels + 1))
        if self._settled is None or (before := float(self._settled.estimates.max())) > _LAST_CYCLE * goal:
            return None
        room = self.space.capacity - done - len(self.basis.frontier)
        return Forecast(goal, max(done + max(1, room // 2), self._panels + 1), _LITTLE, (done, before))

    def _bounds(self, ritz: Ritz) -> NDArray[np.float64]:
        """Bounds of the residuals of the wanted pairs, in terms of A."""
        values, estimates = ritz.values[: self.wanted.k], ritz.estimates[: self.wanted.k]
        return estimates if self.filter is None else self.filter.bounds(values, estimates)

    def _ritz(self) -> Ritz:
        """Wait, and solve the projected problem."""
        self.basis.read()
        if not self.counts.restarts:
            check_magnitude(self.basis.largest(), self.space.precision)
        if self.filter is None:
            self._look_at_symmetry(self.basis.asymmetry())
        return self.basis.ritz(self.wanted.which if self.filter is None else "LA")

    @property
    def passes_a_step(self) -> int:
        """Products with A for a new panel of the basis."""
        return 1 if self.filter is None else self.filter.degree

    @property
    def _least_passes(self) -> int:
        """Products with A that the next cycle takes at least: a basis that is new needs as many columns as pairs are wanted."""
        return self.passes_a_step if self._next is None else self._next.degree * self._panels

    def _look_at_symmetry(self, asymmetry: float) -> None:
        """Tell an A that is not symmetric from a basis that is not orthogonal."""
        if not self.counts.restarts:
            self.counts.asymmetry = asymmetry
        if asymmetry > MOST_ASYMMETRY[self.space.precision]:
            if not self.basis.is_symmetric():
                self.refused = asymmetry
                raise ValueError(asymmetry_text(asymmetry))
            self._lost = f"vectors of the basis lost their orthogonality, by {asymmetry:.2g} of the projected matrix"

    def _restart(self, ritz: Ritz) -> None:
        """Keep ``k + (ncv - k) / 2`` columns, in whole panels, and leave room for a product with each panel of the frontier."""
        block, capacity, k = self.space.block, self.basis.space.capacity, self.wanted.k
        while self._panels + 2 * len(self.basis.frontier) > capacity and len(self.basis.frontier) > 1:
            self.basis.drop_frontier(1)
        width = len(self.basis.frontier)
        columns = (capacity - width) * block
        keep = -(-(k + max(0, columns - k) // 2) // block)
        keep = max(self._panels, min(keep, capacity - 2 * width))
        low, room = sorted(panel for panel in self.basis.frontier if panel < keep), capacity - self.basis.used
        if len(low) > room:  # after a sweep: these stay where they are, since there is no room to move them to
            keep = max(self._panels, low[room])
        self.basis.restart(ritz, min(keep, len(self.basis.done)))
        self.counts.restarts += 1

    def _certify(self, settled: _Settled) -> NDArray[np.float64]:
        """True residuals of the wanted pairs."""
        values = settled.values[: self._panels * self.space.block]
        self.counts.certificate_passes += self._panels
        return self.space.residuals(range(self._panels), values.tolist())[: self.wanted.k]

    def _hopeless(self, settled: _Settled, goal: float) -> str:
        """Why it makes no sense to go on, where wanted values are too close together beside the scale; empty where it does."""
        done, worst, best = self.counts.passes, float(settled.estimates.max()), float(settled.estimates.min())
        if self.filter is not None or done < _UNRESOLVED / 2:
            return ""
        best = min([best, *(each[1] for each in self._pace[-1:])])
        if not self._pace or done >= _APART * self._pace[-1][0]:
            self._pace.append((done, best))
        before = next((each for each in reversed(self._pace) if 2 * each[0] <= done), None)
        is_resolved = bool((settled.estimates <= np.abs(settled.values[: self.wanted.k])).any())
        if before is None or done < _UNRESOLVED or is_resolved or worst <= goal:
            return ""
        gain = max(np.log(before[1] / best) / (done - before[0]) if best else np.inf, 1e-9)
        needed = np.log(worst / goal) / gain if goal else np.inf
        if needed <= _HOPELESS * (self._max_passes - done):
            return ""
        floor = float(np.finfo(self.space.precision.storage).eps) * self.scale
        return (
            f"after {done} passes no digit of these eigenvalues is known beside the largest, {self.scale:.3g}, and at their pace "
            f"residuals need {needed:.2g} more, of {self._max_passes - done} that are left; however many there are, values below "
            f"{floor:.1g} are roundoff"
        )

    def _is_stuck(self, residual: float) -> bool:
        """Tell whether residuals have stopped to fall, although the basis tells that they are small."""
        self._stuck = 0 if residual < _PROGRESS * self._least else self._stuck + 1
        self._least = min(self._least, residual)
        return self._stuck >= _PATIENCE

    def _look_further(self, settled: _Settled) -> _Settled | None:
        """A check sweep; wanted pairs as it leaves them, or None where it found that some are missing."""
        wanted, values, margin = self.wanted, settled.values, np.full(self.wanted.k, self.wanted.tol * self.scale)
        steps, each = PASSES, self.passes_a_step
        if self.filter is not None:
            wanted, values = replace(wanted, which="LA"), self.basis.state().values
            margin *= self.filter.slopes(values[: wanted.k])
            steps = max(_FILTERED_PASSES, PASSES // each)
        done = sweep(self.basis, wanted, values, margin, CHECK_SEED + len(self.counts.checks), steps, self._restart)
        self.counts.checks.append(CheckRound(done.passes * each, done.vectors, done.missed))
        if done.missed:
            self._least, self._stuck = np.inf, 0
        if done.missed or done.is_restarted:
            self._restart(done.ritz)
        if done.is_restarted:
            settled = self._settled = self._settled_of(done.ritz.values, done.ritz.estimates[: self.wanted.k])
        return None if done.missed else settled


def asymmetry_text(asymmetry: float, what: str = "the projected matrix") -> str:
    """Warning about an A that is not symmetric."""
    return (
        f"A is not symmetric: {what} differs from its transpose by {asymmetry:.2g} of its largest entry; take "
        "(A + A.T) / 2, or oc.svds for singular triplets of A"
    )
