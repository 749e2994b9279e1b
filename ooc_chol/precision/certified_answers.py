"""Intervals of log-determinants, quadratic forms and solutions, from a factor of any precision and products with A.

With ``A = L (I + G) L.T``, m random vectors Z = [U, V] of independent standard normal entries and ``W = inv(L.T) Z``,
``W.T A W - Z.T Z = Z.T G Z``. Its block ``U.T G V`` gives ``g >= ||G||_F``, as in :mod:`ooc_chol.precision.certified`, and its
trace over m estimates ``tr G``: by Laurent and Massart (Annals of Statistics 28, 2000, Lemma 1) it is off by at most
``2 g sqrt(x / m) + 2 g x / m`` but for a probability of ``2 exp(-x)``: their proof bounds ``log E exp(y a (z**2 - 1))`` by
``(y a)**2 / (1 - 2 y |a|)``, which holds for eigenvalues a of either sign. For g < 1 A is positive definite, and

    |log det A - 2 sum log L_ii - tr G| <= g**2 / (2 (1 - g)),

and for a solution x of ``L L.T x = b``, with ``r = b - A x`` and ``v = inv(L) r``,

    b.T inv(A) b = x.T b + x.T r + r.T inv(A) r,    ||v||**2 / (1 + g) <= r.T inv(A) r <= ||v||**2 / (1 - g).

A step of refinement, ``x + inv(L.T) v``, is off by at most ``g / sqrt(1 - g) ||v||`` in the norm ``sqrt(e.T A e)``, and in entry
i by at most that times ``sqrt(inv(A)_ii)``, for which the rows of W stand.

What rounding does to these products is counted by the model that errors of FP64 operations have mean zero and do not depend on
each other (Higham and Mary, SISC 2019; Connolly, Higham and Mary, SISC 2021): a sum of K roundings at partial sums of at most c
is off by ``u c sqrt(K)`` times what a normal deviate may be. All is in units of rows, ``sqrt(A_ii)``, so that scaling A by a
diagonal changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum, inf, isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import brief_repr, one_line
from ooc_chol.formats import FP64
from ooc_chol.precision.certified import FAILURE, MOST_CHECKS, safety_factor
from ooc_chol.precision.norms import MANY_ENTRIES, lower_matrix
from ooc_chol.process.team import map_in_threads
from ooc_chol.tasks.tiling import TileGrid

Vectors = NDArray[np.float64]

#: Shares of the probability that an answer is wrong, for each factor that a call may look at: by the norm of G, by its trace, and
#: by any rounding error or any row's variance.
_OF_NORM, _OF_TRACE, _OF_ROUNDING = 0.5 / MOST_CHECKS, 0.25 / MOST_CHECKS, 0.1 / MOST_CHECKS
#: The largest g that certifies anything, and the one that a smaller threshold is to come to.
LARGEST_GAP, _GOAL_GAP = 0.5, 0.1
#: Standard deviations by which an estimate of ``tr G`` must stand out of its noise to be added.
_STANDS_OUT = 3.0
#: What is left out of bounds of rounding: products of two errors.
_SECOND_ORDER = 1.01
#: Norms of tiles below which squares of their entries may have vanished.
_LEAST_NORM = 2.0**-500


@dataclass(frozen=True)
class CertifiedValue:
    """A number of a matrix, and the interval that it lies in.

    Parameters
    ----------
    value : float
        The number, as the factor gives it, corrected by what random vectors show where that stands out of their noise.
    lower, upper : float
        Where the number of A itself is; infinite where the factor is too far from A to certify anything.
    gap : float
        Bound of ``||inv(L) A inv(L.T) - I||_F``; above 0.5 nothing is certified.
    sufficient_threshold : float or None
        A ``precision_threshold`` that would certify if the gap fell with it; None where this factor does, or none is known.
    confidence : float
        Probability that the interval holds the number, over the choice of random vectors.
    seconds : float
        Seconds that the answer took.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> answer = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]])).logdet(
    ...     certified=True
    ... )
    >>> (
    ...     answer.lower <= 2.772588722239781 <= answer.upper,
    ...     answer.half_width < 1e-12,
    ... )
    (True, True)
    """

    value: float
    lower: float
    upper: float
    gap: float
    sufficient_threshold: float | None = None
    confidence: float = 1.0 - FAILURE
    seconds: float = field(default=0.0, compare=False)

    __repr__ = brief_repr

    def __float__(self) -> float:
        return self.value

    @property
    def half_width(self) -> float:
        """The most that ``value`` can be off; infinite where nothing is certified."""
        return max(self.value - self.lower, self.upper - self.value)

    def __str__(self) -> str:
        if isfinite(self.half_width):
            return f"{self.value:.10g}, in [{self.lower:.17g}, {self.upper:.17g}] (off by at most {self.half_width:.1e})"
        return f"{self.value:.10g}, not certified: {_too_far(self.gap, self.sufficient_threshold)}"


class CertifiedSignAndLogdet(NamedTuple):
    """The determinant of A as ``sign * exp(logabsdet)``, as ``numpy.linalg.slogdet`` gives it, and what is known of both.

    Parameters
    ----------
    sign : float
        1 where the gap is below 1, which only a positive definite A can have; NaN where it is not, and the sign is not known.
    logabsdet : CertifiedValue
        The natural logarithm of the determinant, with its interval.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> sign, logabsdet = oc.cholesky(
    ...     np.array([[4.0, 2.0], [2.0, 5.0]])
    ... ).slogdet(certified=True)
    >>> sign, round(float(logabsdet), 6)
    (1.0, 2.772589)
    """

    sign: float
    logabsdet: CertifiedValue

    @classmethod
    def of(cls, logdet: CertifiedValue) -> CertifiedSignAndLogdet:
        """The sign that the gap of a log-determinant leaves."""
        return cls(1.0 if logdet.gap < 1.0 else nan, logdet)


@dataclass(frozen=True, eq=False)
class CertifiedSolution:
    """Solutions of ``A x = b``, and how far they can be from those of A itself.

    Parameters
    ----------
    x : (n,) or (n, m) array
        The solutions, refined once.
    error : float or (m,) array
        Bound of ``sqrt(e.T A e)`` for their errors e; infinite where the factor is too far from A to certify anything.
    norm : float or (m,) array
        ``sqrt(x.T A x)`` of the solutions, beside which the errors are to be seen.
    half_width : (n,) or (n, m) array
        The most that each entry of ``x`` can be off.
    gap : float
        Bound of ``||inv(L) A inv(L.T) - I||_F``; above 0.5 nothing is certified.
    sufficient_threshold : float or None
        A ``precision_threshold`` that would certify if the gap fell with it; None where this factor does, or none is known.
    confidence : float
        Probability that all bounds hold, over the choice of random vectors.
    seconds : float
        Seconds that the answer took.
    rounding : float
        The most that rounding changes of ``inv(L) b``, beside its norm: for bounds of what is computed from such solutions.
    """

    x: Vectors
    error: float | Vectors
    norm: float | Vectors
    half_width: Vectors
    gap: float
    sufficient_threshold: float | None = None
    confidence: float = 1.0 - FAILURE
    seconds: float = 0.0
    rounding: float = 0.0

    __repr__ = brief_repr

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Vectors:
        """The solutions, for functions of NumPy."""
        return np.array(self.x, dtype=dtype, copy=copy)  # type: ignore[call-overload, no-any-return]


class CertifiedAnswers(NamedTuple):
    """Answers that one visit of a factor certifies.

    Parameters
    ----------
    logdet : CertifiedValue
        Logarithm of the determinant of A.
    quadratic : tuple of CertifiedValue
        ``b.T inv(A) b`` of each right-hand side; empty where none was given.
    solution : CertifiedSolution or None
        Solutions of ``A x = b``; None where no right-hand side was given.
    """

    logdet: CertifiedValue
    quadratic: tuple[CertifiedValue, ...]
    solution: CertifiedSolution | None

    def __repr__(self) -> str:
        facts: dict[str, object] = {"logdet": self.logdet.value, "half_width": self.logdet.half_width, "gap": self.logdet.gap}
        return one_line(self, facts | {"quadratic": tuple(each.value for each in self.quadratic[:4])})


def _too_far(gap: float, threshold: float | None) -> str:
    """The reason why nothing is certified, and what to try."""
    why = f"||inv(L) A inv(L.T) - I||_F is known to be at most {gap:.1e}, and no more than {LARGEST_GAP:g} says anything"
    if threshold is None:
        return f"{why}; give the matrix that was factored, or add a nugget to its diagonal"
    advice = "leave it out, or scale rows of very different size to a diagonal of ones first"
    return f"{why}; give precision_threshold={threshold:.1g}, {advice}"


class Scales:
    """Units S of rows, powers of two above ``sqrt(A_ii)``, and norms of tiles of A in them: all that bounds of rounding need."""

    def __init__(self, grid: TileGrid, tiles: Vectors, diagonal: Vectors) -> None:
        self.grid = grid
        self.is_positive = bool((diagonal > 0.0).all() and np.isfinite(diagonal).all())
        with np.errstate(all="ignore"):
            self.powers: NDArray[np.intc] = np.frexp(np.sqrt(np.abs(diagonal)))[1]
            norms = lower_matrix(grid, tiles)
            norms = np.maximum(norms, norms.T)
            least = np.array([self.powers[span.start : span.stop].min() for span in map(grid.span, range(grid.nt))])
            sizes = np.array([grid.size(i) for i in range(grid.nt)], dtype=np.float64)
            # |A_ij| <= sqrt(A_ii A_jj), which also stands where squares of entries overflow or vanish.
            most = np.sqrt(np.outer(sizes, sizes))
            scaled = np.ldexp(norms, -(least[:, None] + least[None, :]))
            known = np.where(norms >= _LEAST_NORM, np.fmin(scaled, most), most)
        #: Squares of tile rows' norms.
        self.rows: Vectors = np.square(known).sum(axis=1)
        n, nt = grid.n, grid.nt
        #: What one rounding after the other does to a sum over a row of A or a column of L, beside one of its size.
        self.unit = _SECOND_ORDER * FP64.unit_roundoff * sqrt(2.0 * n + nt + 2.0)

    def scaled(self, x: Vectors, *, inverse: bool = False) -> Vectors:
        """``S x``, or ``inv(S) x``, of the columns of x."""
        return np.ldexp(x, (-self.powers if inverse else self.powers)[:, None])

    def weighted(self, squares: Vectors) -> float:
        """At least ``sum_i squares_i ||A_i||**2``, in units of rows."""
        starts = [self.grid.start(i) for i in range(self.grid.nt)]
        return float(np.maximum.reduceat(squares, starts) @ self.rows)


def _deviations(count: float, failure: float) -> float:
    """Standard deviations that none of so many rounding errors exceeds."""
    return sqrt(2.0 * (log(2.0 * count) - log(_OF_ROUNDING * failure)))


class Visit(NamedTuple):
    """Products of one visit of L and A for ``W = inv(L.T) Z``."""

    z: Vectors  #: As drawn
    w: Vectors  #: As solved
    left: Vectors  #: ``z - L.T w``, as far as sums of products off the diagonal tell
    forth: Vectors  #: ``A w``


@dataclass(frozen=True, eq=False)
class Gap:
    """How far ``inv(L) A inv(L.T)`` is from the identity, as random vectors see it."""

    bound: float  #: ``||G||_F`` at most; infinite where it is not known
    measured: float  #: ``||G||_F`` as measured
    trace: float  #: An estimate of ``tr G``
    trace_error: float  #: The most that it is off
    noise: float  #: Its standard deviation
    variances: Vectors  #: Diagonal of ``inv(L L.T)`` at most, in units of rows
    unit: float  #: What one rounding after the other does to a solve, beside one of its size
    scales: Scales
    threshold: float | None  #: One that would certify if the bound fell with it, where this does not
    failure: float  #: Probability that an answer is wrong

    @property
    def is_enough(self) -> bool:
        """True where anything is certified."""
        return self.bound <= LARGEST_GAP

    def logdet(self, diagonal: Vectors, seconds: float) -> CertifiedValue:
        """Logarithm of A's determinant by the diagonal of L."""
        logs = np.log(diagonal)
        value = 2.0 * fsum(logs)
        if not self.is_enough:
            return self.answer(value, None, seconds)
        rounding = 4.0 * FP64.unit_roundoff * (float(np.abs(logs).sum()) + abs(value))
        half = self.trace_error + self.bound**2 / (2.0 * (1.0 - self.bound)) + rounding
        corrected = value + self.trace if abs(self.trace) > _STANDS_OUT * self.noise else value
        return self.answer(corrected, (value + self.trace - half, value + self.trace + half), seconds)

    def answer(self, value: float, interval: tuple[float, float] | None, seconds: float) -> CertifiedValue:
        """A number and its interval; None where nothing is certified."""
        (lower, upper), threshold = ((-inf, inf), self.threshold) if interval is None else (interval, None)
        return CertifiedValue(value, lower, upper, self.bound, threshold, 1.0 - self.failure, seconds)


class _Sums(NamedTuple):
    """Sums over the rows of a visit, in units of rows; of two numbers the first is of U, the other one of V."""

    gram: NDArray[Any]  #: ``W.T A W - Z.T Z``, Z as solved for
    variance: float  #: Squares of what rounding changes in it, all entries together
    sizes: Vectors  #: ``||w||**2`` of each vector
    of_u: Vectors  #: Squares of each row of W, in U
    of_all: Vectors  #: In U and V
    largest: Vectors  #: The largest sum of squares of a row of Z: in U, in V, in both
    sides: Vectors  #: Squares of Z
    missed: Vectors  #: Squares of what solves leave


def _sums(visit: Visit, scales: Scales) -> _Sums:
    """Tile row by tile row, each of which stays in the cache."""
    grid, m = scales.grid, visit.z.shape[1]

    def by_halves(squares: Vectors) -> Vectors:
        sums: Vectors = squares.sum(axis=0).reshape(2, m // 2).sum(axis=1)
        return sums

    def part(span: range) -> _Sums:
        rows = slice(span.start, span.stop)
        units = np.ldexp(1.0, scales.powers[rows])[:, None]
        with np.errstate(all="ignore"):  # what is no number certifies nothing
            z, left, w, forth = visit.z[rows], visit.left[rows], visit.w[rows] * units, visit.forth[rows] / units
            back = z - left
            gram = w.T @ forth - back.T @ back
            squares, own = np.square(w), np.square(back)
            of_w, of_own = (each.reshape(len(span), 2, m // 2).sum(axis=2) for each in (squares, own))
            largest = np.array([*of_own.max(axis=0), of_own.sum(axis=1).max()])
            variance = float(squares.sum() * np.square(forth).sum() + own.sum() ** 2)
            sides, missed = by_halves(np.square(z)), by_halves(np.square(left))
            return _Sums(gram, variance, squares.sum(axis=0), of_w[:, 0], of_w.sum(axis=1), largest, sides, missed)

    spans = [grid.span(i) for i in range(grid.nt)]
    parts = map_in_threads(part, spans) if visit.z.size >= MANY_ENTRIES else [part(span) for span in spans]
    gram = np.zeros((m, m), np.longdouble)
    for each in parts:
        gram += each.gram  # with more bits where the machine has them
    variance = (_SECOND_ORDER * FP64.unit_roundoff) ** 2 * (2.0 * grid.nb + grid.nt) * fsum(each.variance for each in parts)
    return _Sums(
        gram,
        variance,
        sizes=np.sum([each.sizes for each in parts], axis=0),
        of_u=np.concatenate([each.of_u for each in parts]),
        of_all=np.concatenate([each.of_all for each in parts]),
        largest=np.max([each.largest for each in parts], axis=0),
        sides=np.sum([each.sides for each in parts], axis=0),
        missed=np.sum([each.missed for each in parts], axis=0),
    )


def measured_gap(visit: Visit, scales: Scales, bound_of_factor: float | None, failure: float = FAILURE) -> Gap:
    """The gap that the products of one visit show; ``bound_of_factor`` is ``||A - L L.T||_F / ||A||_F`` at most, where known."""
    m, n = visit.z.shape[1], scales.grid.n
    s, unit = m // 2, scales.unit
    with np.errstate(all="ignore"):
        sums = _sums(visit, scales)
        t_u, t_v = sums.sizes.reshape(2, s).sum(axis=1).tolist()
        c_u, c_v, c_all = (n * sums.largest).tolist()
        of_form = unit**2 * (t_v * scales.weighted(sums.of_u) + t_v * c_u + t_u * c_v) + sums.variance
        of_trace = unit**2 * float(sums.sizes.max()) * (scales.weighted(sums.of_all) + 4.0 * c_all) + sums.variance
        deviations = _deviations(float(m) ** 2 + 2.0 * m * n, failure)
        # Solves err: what they are solutions of is not quite Z.
        sides, off = np.sqrt(sums.sides), np.sqrt(sums.missed) + deviations * unit * np.sqrt(n * np.array([t_u, t_v]))
        changed = float(off[0] * sides[1] + off[1] * sides[0] + off[0] * off[1]) / s
        by_trace = float(((2.0 * sides + off) * off).sum()) / m
        gram = sums.gram.astype(np.float64)
        measured, safety = float(np.linalg.norm(gram[:s, s:])) / s, safety_factor(s, _OF_NORM * failure)
        seen = 1.0 - safety * changed
        bound = safety * (measured + deviations * sqrt(of_form) / s) / seen if seen > 0.0 and of_form >= 0.0 else inf
        x = log(2.0 / (_OF_TRACE * failure))
        error = bound * (2.0 * sqrt(x / m) + 2.0 * x / m + by_trace) + deviations * float(np.sqrt(of_trace)) / m
        variances = sums.of_all / (m * least_share(m, _OF_ROUNDING * failure / n))
        # Solves that are less accurate than their model are taken for what they were seen to be.
        worse = max(1.0, float(np.sqrt(sums.missed.sum() / (n * (t_u + t_v)))) / unit)
    if not (isfinite(bound) and isfinite(error) and scales.is_positive and np.isfinite(variances).all()):
        bound = inf
    threshold = None
    if LARGEST_GAP < bound < inf and bound_of_factor is not None and bound_of_factor > 1e-11:
        threshold = max(1e-13, _GOAL_GAP / bound * bound_of_factor)
    trace, noise = float(np.trace(gram)) / m, sqrt(2.0 / m) * measured
    return Gap(bound, measured, trace, error, noise, variances, worse * unit, scales, threshold, failure)


def least_share(count: int, failure: float) -> float:
    """The largest t < 1 with ``(t exp(1 - t))**(count / 2) <= failure``: a mean of so many squares of normals is seldom less."""
    goal, low, high = 2.0 * log(failure) / count, 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log(middle) + 1.0 - middle <= goal else (low, middle)
    return low


class Refined(NamedTuple):
    """Right-hand sides, what the factor solves of them, and the rest, in units of rows."""

    b: Vectors  #: ``inv(S) b``
    x: Vectors  #: ``S x``
    r: Vectors  #: ``inv(S) (b - A x)``
    v: Vectors  #: ``inv(L) r``
    step: Vectors  #: ``S inv(L.T) v``


def _residual_error(gap: Gap, found: Refined) -> tuple[Vectors, Vectors, Vectors]:
    """The most that rounding changes of ``x.T r``, of ``inv(L) r``, and of ``inv(L) r`` beside its norm, for each column."""
    scales, n = gap.scales, gap.scales.grid.n
    deviations = _deviations(4.0 * n * max(1, found.x.shape[1]), gap.failure)
    weights = np.square(found.x)
    sizes = deviations * scales.unit * np.sqrt(weights.sum(axis=0))
    of_form = sizes * np.sqrt([scales.weighted(column) for column in weights.T])
    of_solved = sizes * sqrt(scales.weighted(gap.variances))
    by_solve = np.full(len(sizes), deviations * gap.unit * sqrt(n * float(gap.variances.sum())))
    return of_form, of_solved, by_solve


def upwards(x: Vectors, powers: Any) -> Vectors:
    """``x * 2**powers``, rounded up where that is subnormal or overflows."""
    found: Vectors = np.ldexp(x, powers)
    return np.asarray(np.where(np.ldexp(found, -powers) < x, np.nextafter(found, inf), found))


def quadratic_forms(gap: Gap, found: Refined, powers: NDArray[np.intc], seconds: float) -> tuple[CertifiedValue, ...]:
    """``b.T inv(A) b`` of each column of right-hand sides, which ``found`` has without these powers of two."""
    answers = []
    with np.errstate(all="ignore"):
        of_form, of_solved, by_solve = _residual_error(gap, found)
        for k, (b, x, r, v) in enumerate(zip(found.b.T, found.x.T, found.r.T, found.v.T, strict=True)):
            parts = np.concatenate([x * b, x * r])
            first, norm = fsum(parts) if np.isfinite(parts).all() else inf, float(np.linalg.norm(v))
            value = first + norm**2
            off = float(of_solved[k]) + float(by_solve[k]) * norm
            rest = 4.0 * FP64.unit_roundoff * (float(np.abs(parts).sum()) + norm**2) + float(of_form[k])
            if not (gap.is_enough and isfinite(value) and isfinite(rest) and isfinite(off) and by_solve[k] < 1.0):
                answers.append(gap.answer(float(np.ldexp(value, 2 * powers[k])), None, seconds))
                continue
            low = first - rest + max(0.0, norm - off) ** 2 / (1.0 + gap.bound)
            high = first + rest + (norm + off) ** 2 / (1.0 - gap.bound)
            below, above = upwards(np.array([-low, high]), 2 * powers[k]).tolist()
            answers.append(gap.answer(float(np.ldexp(value, 2 * powers[k])), (-below, above), seconds))
    return tuple(answers)


def solutions(gap: Gap, found: Refined) -> tuple[Vectors, Vectors, Vectors, Vectors, float]:
    """Refined solutions in units of rows; norms of their errors at most, and of themselves; what entries are off at most.

    And what rounding changes of a solution with L, beside its norm.
    """
    with np.errstate(all="ignore"):
        x = found.x + found.step
        _, of_solved, by_solve = _residual_error(gap, found)
        norms = np.linalg.norm(found.v, axis=0)
        g = gap.bound
        rounding = FP64.unit_roundoff * np.linalg.norm(x, axis=0)
        errors = g / sqrt(1.0 - g) * (norms * (1.0 + by_solve) + of_solved) if gap.is_enough else np.full(len(norms), inf)
        errors = errors + sqrt(1.0 + g) * (of_solved + 2.0 * by_solve * norms) + rounding * sqrt(sqrt(gap.scales.rows.sum()))
        energies = np.sqrt(np.maximum(0.0, (x * found.b).sum(axis=0)))
        errors = np.where(np.isfinite(errors) & (by_solve < 1.0), errors, inf)
        widths = np.sqrt(gap.variances / (1.0 - g))[:, None] * errors if gap.is_enough else None
    if widths is None:
        widths = np.full(x.shape, inf)
    return x, errors, energies, widths, float(by_solve.max(initial=0.0))
