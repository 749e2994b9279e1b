"""Eigenvalues nearest a number sigma: Lanczos on the inverse of A - sigma I, certificates in A itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import LinearOperator, splu

from ooc_chol.config import format_bytes
from ooc_chol.eigen.factor_size import ORDERING, factor_size
from ooc_chol.eigen.krylov import KrylovBasis
from ooc_chol.eigen.lanczos import MOST_ASYMMETRY, START_SEED, AtRestart, Found, Lanczos, asymmetry_text
from ooc_chol.eigen.operator_space import OperatorSpace, Product
from ooc_chol.eigen.powers import check_magnitude, largest_value, scaled_product
from ooc_chol.eigen.state import LanczosCounts
from ooc_chol.eigen.wanted import Wanted, Which
from ooc_chol.errors import BudgetError, SingularMatrixError
from ooc_chol.files.inputs import plain_array
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.precision.triples import Precision

#: Residuals of Lanczos on the inverse, relative to its largest Ritz value, one after the other until those in A are small enough:
#: eigenvalues that are much farther from sigma than the nearest want less.
_INNER_TOLS = (1e-10, 1e-12, 1e-14)
#: How small pivots may be beside others of their column, one after the other until solutions are good: 0 stays on the diagonal.
_PIVOTING = (0.0, 0.1, 1.0)
#: Largest backward error of a solution; and of what the caller's OPinv returns, relative to the right-hand side.
_MOST_BACKWARD, _MOST_GIVEN = 1e-12, 1e-3
#: Largest asymmetry of an inverse that can be worked with: roundoff over their distance where several eigenvalues are at sigma.
_MOST_ASYMMETRY = 1e-10
#: By what sigma is moved while its inverse is none, beside the unit roundoff of the smallest number, and the largest beside A.
_STEP, _MOST_SHIFT = 64.0, 1e-4
#: Least by which it is moved beside the largest eigenvalue of A, and at all: squares of what the inverse has are of float64.
_LEAST_STEP, _LEAST_SHIFT = 1e-140, 1e-146
#: Largest eigenvalue of the inverse over the smallest that is wanted: beyond the first the former are deflated where residuals in
#: A are too large, beyond the second always. Those that are deflated together differ by the third at most.
_STEEP, _TOO_STEEP, _TOGETHER = 1e3, 1e6, 1e-3
#: Residuals of those that are deflated, relative to their largest: one more product with the inverse makes them small in A.
_NEAR_TOL = 1e-8
#: How often eigenvalues near sigma are deflated: each time twice as many.
_MOST_LEVELS = 8
#: Products after which more pairs are looked for where another sigma than the caller's was taken: those of a cluster are found
#: by looking for all of it.
_BRIEFLY = 600
#: How much smaller errors of values of the inverse must be than those of values of A to be preferred.
_BETTER = 1e-3
#: Products that tell how large the largest eigenvalue of A is, and columns of a product.
_SCALE_PASSES, _WIDTH = 8, 8
#: Columns of a basis beside those that are deflated.
_ROOM = 32
_ROUNDOFF = float(np.finfo(np.float64).eps)
#: Of eigenvalues less sigma on the side that is wanted; 0 where it is either.
SIGNS = {"LM": 0.0, "LA": 1.0, "SA": -1.0}
#: Bytes of an entry of L and U where SciPy hands them out.
_COPY_BYTES = 12

#: Takes right-hand sides, as columns, and returns solutions.
Solve = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Inverse(NamedTuple):
    """Solver with A - sigma I."""

    solve: Solve
    words: str  #: Whose it is: ``"SuperLU"`` or ``"OPinv"``
    scale: float  #: Largest magnitude of an eigenvalue of A, from below
    sigma: float  #: Of what is solved with: the caller's, or one beside it where that is an eigenvalue
    magnitudes: csc_array | None = None  #: ``|A - sigma I|``, entry by entry, where it is at hand
    below: int | None = None  #: Eigenvalues of A below sigma, where the factor tells and one side is wanted
    unit: str = "I"  #: What sigma is times, for messages


class Beside(NamedTuple):
    """Solver with ``A - sigma I``, given as OPinv, of an A that is not factored itself: for sigma, or a number beside it."""

    solve: Solve
    sigma: float
    unit: str  #: As of :class:`Inverse`, and what follows
    below: int | None


def inverse_of(
    product: Product,
    n: int,
    sigma: float,
    *,
    matrix: csc_array | None,
    OPinv: Any = None,
    memory_budget: int | None = None,
    which: Which = "LM",
    power: int = 0,
) -> Inverse:
    """Solver with ``A - sigma I``, tried out.

    Shapes: ``matrix`` (n, n). Raises ``BudgetError``, ``SingularMatrixError``, ``ValueError`` and ``RangeError``.
    """
    scale = largest_of(product, n)
    check_magnitude(scale, Precision.DDD)
    check_near(sigma, scale, power)
    scale_shifted = max(scale + abs(sigma), np.finfo(np.float64).tiny)
    if isinstance(OPinv, Beside):
        how: dict[str, Any] = {"below": OPinv.below, "unit": OPinv.unit}
        inverse = Inverse(scaled_product(OPinv.solve, -power), "SuperLU", scale, float(np.ldexp(OPinv.sigma, power)), **how)
        _try_given(inverse, product, n, scale_shifted, power)
        return inverse
    if OPinv is not None:
        solve = _given(OPinv, n)
        inverse = Inverse(scaled_product(solve, -power) if power else solve, "OPinv", scale, sigma)
        _try_given(inverse, product, n, scale_shifted, power)
        return inverse
    if matrix is None:
        raise ValueError(
            "sigma, and which='SM' where it is 0, needs the inverse of A - sigma I, but A is a LinearOperator, which cannot be "
            "factored: give sigma and OPinv, a LinearOperator that solves with it"
        )
    asymmetry = float(abs(matrix - matrix.T).max()) / (float(abs(matrix).max()) or 1.0)
    if asymmetry > MOST_ASYMMETRY[Precision.DDD]:
        raise ValueError(asymmetry_text(asymmetry, "it"))
    told = ""
    for beside in _beside(matrix, sigma, scale, which):
        shifted = csc_array(matrix - beside * eye_array(n, format="csc"), dtype=np.float64)
        if not told:
            check_budget(shifted, memory_budget)
        factor, told = factored(shifted, scale_shifted)
        if factor is not None:
            below = None if which == "LM" else inertia(factor)
            return Inverse(_solve_of(factor), "SuperLU", scale, beside, abs(shifted), below)
    given, other = (float(np.ldexp(each, -power)) for each in (sigma, sigma - _MOST_SHIFT * scale_shifted))
    raise SingularMatrixError(f"A - {given!r} I", told, f"take another sigma, such as {other!r}, or OPinv")


# factors


def _beside(matrix: csc_array, sigma: float, scale: float, which: Which) -> Iterator[float]:
    """Sigma, and numbers farther and farther from it, from the smallest number of A on."""
    yield sigma
    sizes = np.abs(matrix.data)
    step = _ROUNDOFF * max(abs(sigma), float(sizes[sizes > 0].min(initial=scale or 1.0)))
    step = max(step, _LEAST_STEP * scale, _LEAST_SHIFT)
    while step <= _MOST_SHIFT * (scale or 1.0):
        yield sigma + step if which == "SA" else sigma - step
        step *= _STEP


def factored(shifted: csc_array, scale: float) -> tuple[Any | None, str]:
    """SuperLU's factor, pivots on the diagonal where solutions are good with them; or what is wrong with all."""
    n, told = shifted.shape[0], ""
    b = np.random.default_rng(START_SEED).uniform(-1.0, 1.0, (n, min(4, n)))
    image = shifted @ b
    for threshold in _PIVOTING:
        try:
            factor = splu(shifted, diag_pivot_thresh=threshold, **ORDERING)
        except RuntimeError as error:
            told = f"SuperLU says {error}"
            continue
        except MemoryError as error:
            raise BudgetError("memory of the factor of A - sigma I", *_sizes(factor_size(shifted).nbytes), _ADVICE) from error
        x = factor.solve(b)
        # Where sigma is almost an eigenvalue, its vector outweighs errors in x; of what A - sigma I returns it does not.
        error_of = max(_backward_error(shifted, x, b, scale), _backward_error(shifted, factor.solve(image), image, scale))
        projected = b.T @ x
        largest = float(np.abs(projected).max())
        asymmetry = float(np.abs(projected - projected.T).max()) / largest if np.isfinite(error_of) else np.inf
        if error_of <= _MOST_BACKWARD and asymmetry <= _MOST_ASYMMETRY:
            return factor, ""
        told = f"SuperLU's solutions have backward errors of {error_of:.2g}, and asymmetries of {asymmetry:.2g}"
    return None, told


def _solve_of(factor: Any) -> Solve:
    return lambda rhs: np.asarray(factor.solve(np.asfortranarray(rhs)))


def inertia(factor: Any) -> int | None:
    """How many eigenvalues of what was factored are negative, by Sylvester's law; None where pivots left the diagonal."""
    if not np.array_equal(factor.perm_r, factor.perm_c) or _COPY_BYTES * factor.nnz > free_host_bytes():
        return None
    return int(np.count_nonzero(factor.U.diagonal() < 0))


def beside_enough(inverse: Inverse, matrix: csc_array, sigma: float, wanted: Wanted) -> tuple[Inverse, int]:
    """An inverse that has as many eigenvalues of A on the wanted side as are wanted, if there are, and how many that are.

    It is the one given, or one of a sigma beside it: eigenvalues that are sigma to roundoff are on either side. The count is k
    where the factor does not tell.
    """
    n, which = matrix.shape[0], wanted.which
    if inverse.below is None:
        return inverse, wanted.k
    count = on_side(inverse.below, n, which)
    if count >= wanted.k or (beside := next(islice(_beside(matrix, sigma, inverse.scale, which), 2, None), None)) is None:
        return inverse, count
    shifted = csc_array(matrix - beside * eye_array(n, format="csc"), dtype=np.float64)
    factor, _ = factored(shifted, inverse.scale + abs(sigma))
    below = None if factor is None else inertia(factor)
    if below is None:
        return inverse, wanted.k
    moved = Inverse(_solve_of(factor), inverse.words, inverse.scale, beside, abs(shifted), below)
    return moved, on_side(below, n, which)


def on_side(below: int, n: int, which: Which) -> int:
    """How many of n eigenvalues are on the wanted side, where so many are below."""
    return below if which == "SA" else n - below


class FewError(ValueError):
    """So many of n eigenvalues on the side of sigma that is wanted are not enough."""

    def __init__(self, count: int, n: int, sigma: float, wanted: Wanted) -> None:
        self.count, self.n, self.sigma, self.wanted = count, n, sigma, wanted
        side, other, instead = ("below", "above", "LA") if wanted.which == "SA" else ("above", "below", "SA")
        fewer = f", or a k up to {count}" if count else ""
        super().__init__(
            f"with sigma, which={wanted.which!r} looks for eigenvalues {side} it: k is {wanted.k}, but A has {count} at or "
            f"{side} {sigma!r}, and {n - count} {other} it; give which={instead!r} or 'LM', or another sigma{fewer}"
        )


def check_count(count: int, n: int, sigma: float, wanted: Wanted) -> None:
    """Raise where so many eigenvalues on the side of sigma that is wanted are not enough."""
    if count >= wanted.k or wanted.which == "LM":
        return
    raise FewError(count, n, sigma, wanted)


def _backward_error(shifted: csc_array, x: NDArray[np.float64], b: NDArray[np.float64], scale: float) -> float:
    """By how much of its scale a matrix would have to change to have these solutions; infinite of none, and of too large ones."""
    with np.errstate(over="ignore"):
        size = float(np.linalg.norm(x)) if np.isfinite(x).all() else 0.0
    return float(np.linalg.norm(shifted @ x - b)) / (scale * size) if 0 < size < largest_value(Precision.DDD) else np.inf


#: What to do where the factor is too large.
_ADVICE = "give OPinv, a LinearOperator that solves with A - sigma I, or which='SA' with a preconditioner"


def _sizes(needed: int) -> tuple[int, int]:
    """Bytes that are needed, and those there are, the fewer."""
    return needed, min(needed - 1, free_host_bytes())


def check_budget(shifted: csc_array, memory_budget: int | None, name: str = "A - sigma I", advice: str = _ADVICE) -> None:
    """Raise where the factor does not fit; what would fit as a whole square is not looked at more closely."""
    n = shifted.shape[0]
    budget = free_host_bytes() if memory_budget is None else memory_budget
    if 24 * n * n <= budget:
        return
    size = factor_size(shifted)
    if size.nbytes > budget:
        what = f"memory of the factor of {name}, {size.entries:,} entries, {format_bytes(size.nbytes)}"
        raise BudgetError(what, size.nbytes, budget, advice)


# what callers give


def _given(op_inv: Any, n: int) -> Solve:
    """The caller's own, as a function."""
    if isinstance(op_inv, LinearOperator):
        if op_inv.shape != (n, n):
            raise ValueError(f"OPinv has shape {op_inv.shape}, but A is {n} x {n}")
        return lambda rhs: plain_array("OPinv @ x", op_inv.matmat(rhs), np.float64)
    solve = op_inv if callable(op_inv) else getattr(op_inv, "solve", None)
    if not callable(solve):
        what = f"OPinv is a {type(op_inv).__name__}"
        raise TypeError(f"{what}; give a LinearOperator, a factor with a method solve, or a function of an (n, b) array")
    return lambda rhs: plain_array("OPinv @ x", solve(rhs.copy()), np.float64)


def check_near(sigma: float, scale: float, power: int) -> None:
    """Raise where sigma is so far away that no eigenvalue is nearer to it than others; ``scale`` is of the largest of them.

    Both are the caller's times ``2^power``, and sigma is infinite where that is too large.
    """
    if scale and not abs(sigma) * _ROUNDOFF <= scale:
        with np.errstate(over="ignore"):
            most = float(np.ldexp(scale, -power))
        raise ValueError(
            f"sigma is too far away: A has eigenvalues of about {most:.3g} at most, which are all equally near; give a nearer one"
        )


def _try_given(inverse: Inverse, product: Product, n: int, scale: float, power: int) -> None:
    """Raise unless OPinv solves with A - sigma I, roughly."""
    b = np.random.default_rng(START_SEED).uniform(-1.0, 1.0, (n, 1))
    x = inverse.solve(b)
    if x.shape != b.shape:
        raise ValueError(f"OPinv returned shape {x.shape} for an array of shape {b.shape}")
    error = float(np.linalg.norm(product(x) - inverse.sigma * x - b))
    if not error <= _MOST_GIVEN * np.linalg.norm(b) + _MOST_BACKWARD * scale * np.linalg.norm(x):
        sigma = float(np.ldexp(inverse.sigma, -power))
        if inverse.words == "SuperLU":
            told = f"beside eigenvalues of {scale:.3g} solutions of a random b are off by {error / np.linalg.norm(b):.2g} ||b||"
            raise SingularMatrixError(f"A - {sigma!r} {inverse.unit}", told, "take another sigma, or OPinv")
        raise ValueError(
            f"OPinv does not solve with A - sigma I, sigma = {sigma!r}: of a random b, ||(A - sigma I) OPinv(b) - b|| is "
            f"{error / np.linalg.norm(b):.2g} ||b||; mind the sign, or solve more accurately"
        )


# what is looked at


def largest_of(product: Product, n: int) -> float:
    """Largest magnitude of an eigenvalue of A, from below: that of a short run of Lanczos."""
    panels = min(_SCALE_PASSES + 1, n)
    basis = KrylovBasis(OperatorSpace(product, n, block=1, capacity=panels))
    basis.join(START_SEED)
    while not basis.is_full:
        basis.multiply(basis.frontier[0])
    basis.read()
    return basis.ritz("LM").scale


@final
class _Deflated:
    """The inverse, but eigenvectors that are known have another eigenvalue: that which is wanted least."""

    def __init__(self, solve: Solve, known: NDArray[np.float64]) -> None:
        self._solve, self.known, self.value = solve, known, 0.0

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The product with (n, b) vectors."""
        inside = self.known.T @ x
        y = self._solve(x - self.known @ inside)
        return y - self.known @ (self.known.T @ y - self.value * inside)


# eigenpairs


class _How(NamedTuple):
    """How Lanczos runs on the inverse."""

    block: int
    panels: int
    max_passes: int
    check: bool
    at_restart: AtRestart | None


@final
class ShiftInvert:
    """Eigenpairs of A from those of ``(A - sigma I)^-1``.

    Vectors of the inverse are multiplied with it once more, which makes the residuals in A of those far from sigma smaller, and
    values are those of Rayleigh and Ritz in A, of the space that they span. Residuals follow from products with A of the vectors
    that are returned.

    >>> import numpy as np
    >>> from scipy.sparse import diags_array
    >>> from ooc_chol.eigen.shift_invert import ShiftInvert, inverse_of
    >>> from ooc_chol.eigen.wanted import Wanted
    >>> a = diags_array(np.arange(1.0, 201.0)).tocsc()
    >>> inverse = inverse_of(a.__matmul__, 200, 50.2, matrix=a)
    >>> run = ShiftInvert(
    ...     a.__matmul__, 200, 50.2, inverse, Wanted(3, "LM", 1e-10)
    ... )
    >>> run.run(block=2, panels=12, max_passes=500)[0].values.round(8)
    array([50., 51., 49.])
    """

    def __init__(
        self,
        product: Product,
        n: int,
        sigma: float,
        inverse: Inverse,
        wanted: Wanted,
        known: NDArray[np.float64] | None = None,
    ) -> None:
        self._product, self._n, self._sigma, self._inverse, self._wanted = product, n, sigma, inverse, wanted
        self._known = known  # eigenvectors that are not looked for: orthonormal columns
        self._reach = 0.0  # all eigenvalues that are nearer to the inverse's sigma were found

    def run(
        self,
        *,
        block: int,
        panels: int,
        max_passes: int,
        check: bool = True,
        start: NDArray[np.float64] | None = None,
        at_restart: AtRestart | None = None,
    ) -> tuple[Found, NDArray[np.float64]]:
        """Run Lanczos on the inverse; returns values and residuals in A, the most wanted first, and vectors (n, k).

        Counts of the result are of panels that were solved for. Raises ``ValueError`` if the caller's inverse is not symmetric,
        and ``SingularMatrixError`` if SuperLU's is not.
        """
        how, k = _How(block, panels, max_passes, check, at_restart), self._wanted.k
        more = int(self._moved > 0 and self._wanted.which == "LM" and k + 1 + _ROOM <= self._n)
        while True:
            next_more = 2 * more or k
            may_grow = self._moved > 0 and next_more + k + _ROOM <= self._n
            found, v = self._near(how._replace(max_passes=min(_BRIEFLY, how.max_passes)) if may_grow else how, k + more, start)
            if may_grow and found.counts.passes >= _BRIEFLY:
                more = next_more
                continue
            beyond = self._beyond(found.values)
            if found.why_not or not beyond:
                return found, v
            more = 2 * more or beyond
            if more + k + _ROOM > self._n:
                return replace(found, why_not=self._astray(), is_hopeless=True), v

    @property
    def _moved(self) -> float:
        return abs(self._inverse.sigma - self._sigma)

    def _astray(self) -> str:
        """Why these are not those nearest the caller's sigma."""
        return (
            f"beside eigenvalues of {self._inverse.scale:.3g} solutions with A - sigma {self._inverse.unit} are good from "
            f"sigma = {self._inverse.sigma:.6g} on, {self._moved:.2g} away, and too many eigenvalues are as near to that"
        )

    def _beyond(self, values: NDArray[np.float64]) -> int:
        """How many more to look for, because another sigma than the caller's was taken.

        That are values on its other side; or, of those nearest on both sides, as many again while others may be nearer.
        """
        off, moved = values - self._sigma, self._moved
        if self._wanted.which == "LM":
            is_sure = float(np.abs(off).max()) <= self._reach - moved + self._coarse_roundoff
            return 0 if not moved or is_sure else len(values)
        side = -off if self._wanted.which == "LA" else off
        return int(np.count_nonzero((side > 0) & (np.abs(off) <= 2 * moved) & (np.abs(off) > self._coarse_roundoff)))

    @property
    def _coarse_roundoff(self) -> float:
        """Bound on the change of eigenvalues of A by roundoff."""
        return 8 * _ROUNDOFF * (self._inverse.scale + abs(self._sigma))

    def _near(self, how: _How, k: int, start: NDArray[np.float64] | None) -> tuple[Found, NDArray[np.float64]]:
        """The wanted pairs of A, from k of the inverse."""
        counts = LanczosCounts()
        product = self._inverse.solve if self._known is None else _Deflated(self._inverse.solve, self._known)
        inner, found, v = self._round(product, how, k, [], counts, start)
        steepness = _steepness(inner)
        if steepness > _TOO_STEEP or (found.why_not and steepness > _STEEP):
            return self._deflated(how, k, counts, found, v)
        return found, v

    def _round(
        self,
        product: Solve,
        how: _How,
        k: int,
        near: list[tuple[Solve, NDArray[np.float64]]],
        counts: LanczosCounts,
        start: NDArray[np.float64] | None = None,
    ) -> tuple[Found, Found, NDArray[np.float64]]:
        """Lanczos on the inverse until residuals in A are small; what it has found, and pairs of A of that and of those near."""
        wanted = replace(self._wanted, k=k)
        with ExitStack() as stack:
            lanczos = self._lanczos(stack, product, wanted, how, counts.passes)
            for tol in _INNER_TOLS:
                lanczos.wanted = replace(wanted, tol=tol)
                inner = self._symmetric(lanczos, start)
                vectors = lanczos.space.take(range(-(-k // how.block)), k)
                found, v = self._in_a(counts, inner.why_not, [*near, (product, vectors)])
                if inner.why_not or not found.why_not or _steepness(inner) > _TOO_STEEP:
                    break
        counts.add(inner.counts)
        return inner, found, v

    def _lanczos(self, stack: ExitStack, product: Solve, wanted: Wanted, how: _How, passes: int) -> Lanczos:
        """A run on the inverse, whose space the stack closes."""
        panels = min(max(how.panels, (wanted.k + _ROOM) // how.block + 1), self._n // how.block - 1)
        space = OperatorSpace(product, self._n, block=how.block, capacity=panels + 1)
        stack.callback(space.close)
        most = max(1, how.max_passes - passes)
        return Lanczos(space, wanted, max_passes=most, check=how.check, at_restart=how.at_restart)

    def _deflated(
        self, how: _How, k: int, counts: LanczosCounts, found: Found, v: NDArray[np.float64]
    ) -> tuple[Found, NDArray[np.float64]]:
        """Pairs where eigenvalues of the inverse differ by so much that roundoff of the largest drowns others.

        The largest are found by themselves, whether they are wanted or not, and deflated, until those that are left and wanted
        are of one size.
        """
        known = np.zeros((self._n, 0)) if self._known is None else self._known
        near, mine = list[tuple[Solve, NDArray[np.float64]]](), 0
        sign = SIGNS[self._wanted.which]
        for level in range(_MOST_LEVELS):
            most = max(k, 4) << level
            if known.shape[1] + most + _ROOM + 2 * how.block > self._n:
                break
            operator = _Deflated(self._inverse.solve, known)
            with ExitStack() as stack:
                wanted = Wanted(most, "LM", _NEAR_TOL)
                lanczos = self._lanczos(stack, operator, wanted, how._replace(check=False), counts.passes)
                inner = self._symmetric(lanczos, None)
                vectors = lanczos.space.take(range(-(-most // how.block)), most)
            counts.add(inner.counts)
            good = (np.abs(inner.values) >= _TOGETHER * inner.scale) & (inner.residuals <= 10 * _NEAR_TOL * inner.scale)
            if not inner.scale or not good.any():
                break
            near.append((operator, vectors[:, good]))
            known = np.linalg.qr(np.concatenate([known, _times(*near[-1])], axis=1))[0]
            rest = _Deflated(self._inverse.solve, known)
            rest.value = -sign * largest_of(rest, self._n)
            mine += int(np.count_nonzero(sign * inner.values[good] > 0))
            left = self._left(k, mine)
            if not left:
                found, v = self._in_a(counts, "", near)
                break
            inner, found, v = self._round(rest, how, left, near, counts)
            if not found.why_not and _steepness(inner) <= _TOO_STEEP:
                break
        return found, v

    def _left(self, k: int, mine: int) -> int:
        """How many to look for where so many of a side are deflated: at least one, which tells of those missed, if A has it."""
        which, below = self._wanted.which, self._inverse.below
        left = max(1, k - mine)
        return left if which == "LM" or below is None else min(left, max(0, on_side(below, self._n, which) - mine))

    def _symmetric(self, lanczos: Lanczos, start: NDArray[np.float64] | None) -> Found:
        """Run, or run on, and blame what the caller gave where it is that."""
        try:
            return lanczos.run(start)
        except ValueError as error:
            if not lanczos.refused:
                raise
            off = f"differs from its transpose by {lanczos.refused:.2g} of its largest entry"
            if self._inverse.words == "OPinv":
                raise ValueError(
                    f"OPinv is not symmetric: projected, it {off}; solve more accurately, and see that A is symmetric"
                ) from error
            told = f"beside eigenvalues of {self._inverse.scale:.3g} what SuperLU makes of the inverse {off}"  # A was looked at
            raise SingularMatrixError(f"A - sigma {self._inverse.unit}", told, "take another sigma, or OPinv") from error

    def _in_a(
        self, counts: LanczosCounts, why_not: str, groups: list[tuple[Solve, NDArray[np.float64]]]
    ) -> tuple[Found, NDArray[np.float64]]:
        """Pairs of A, with residuals in A, from vectors of the inverse in groups, each with what multiplies it once more."""
        inverse, wanted = self._inverse, self._wanted
        spans = [np.linalg.qr(_times(solve, vectors))[0] for solve, vectors in groups]
        q = spans[0] if len(spans) == 1 else np.linalg.qr(np.concatenate(spans, axis=1))[0]
        h = q.T @ self._times(q)
        values, turned = np.linalg.eigh((h + h.T) / 2)
        v, roundoff = q @ turned, np.full(len(values), self._coarse_roundoff)
        if inverse.magnitudes is not None and (of_inverse := self._of_inverse([each for each, _ in groups], spans)):
            values, v = of_inverse
            sizes = np.abs(v)
            roundoff = 8 * _ROUNDOFF * np.einsum("ij,ij->j", sizes, inverse.magnitudes @ sizes)
        self._reach = float(np.abs(values - inverse.sigma).max())
        order = nearest_order(values, self._sigma, wanted.which, roundoff)[: wanted.k]
        values, v = values[order], v[:, order]
        residuals = np.linalg.norm(self._times(v) - v * values, axis=0) / np.linalg.norm(v, axis=0)
        scale = max(inverse.scale, float(np.abs(values).max()))
        counts.certificate_passes = -(-wanted.k // _WIDTH)
        why, is_hopeless = "", False
        if residuals.max() > wanted.tol * scale:
            why = why_not or f"{inverse.words} solves with too large errors for these"
            is_hopeless = not why_not and inverse.words == "SuperLU"
        return Found(values, residuals, scale, why, counts, is_hopeless), v

    def _of_inverse(
        self, operators: list[Solve], spans: list[NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Pairs by Rayleigh and Ritz in the inverse, where that errs far less: beside a large A with small eigenvalues."""
        values, vectors = [], []
        for operator, q in zip(operators, spans, strict=True):
            h = q.T @ _times(operator, q)
            inverses, turned = np.linalg.eigh((h + h.T) / 2)
            sizes = np.abs(inverses)
            if not sizes.min() or sizes.max() / sizes.min() ** 2 > _BETTER * self._inverse.scale:
                return None
            values.append(self._inverse.sigma + 1 / inverses)
            vectors.append(q @ turned)
        return np.concatenate(values), np.concatenate(vectors, axis=1)

    def _times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """A times an array of any width."""
        return _times(self._product, x)


def _times(product: Product, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The product with an array of any width."""
    return np.concatenate([np.asarray(product(part), dtype=np.float64) for part in _parts(x)], axis=1)


def _steepness(inner: Found) -> float:
    """The largest eigenvalue of the inverse over the smallest that is wanted."""
    smallest = float(np.abs(inner.values).min())
    return inner.scale / smallest if smallest else np.inf


def nearest_order(
    values: NDArray[np.float64], sigma: float, which: Which, roundoff: NDArray[np.float64] | float = 0.0
) -> NDArray[np.intp]:
    """The order in which eigenvalues of A are wanted that are looked for near sigma: at it, to roundoff, is on both sides."""
    off = values - sigma
    if which != "LM":
        off[np.abs(off) <= roundoff] = 0.0
    return np.argsort(_nearness(off, which), kind="stable")


def _nearness(off: NDArray[np.float64], which: Which) -> NDArray[np.float64]:
    """The smaller the more wanted: minus the eigenvalue of the inverse, or its magnitude."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.abs(off)
    if which == "LM":
        return -inverse
    side = np.sign(off) if which == "LA" else -np.sign(off)
    return -np.where(side == 0, 1.0, side) * inverse


def _parts(x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Panels of 8 columns."""
    return [np.ascontiguousarray(x[:, first : first + _WIDTH]) for first in range(0, x.shape[1], _WIDTH)]
