"""Factors of sparse matrices, kept and compared by value: addresses and versions go stale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np

from ooc_chol.diff.memory import Array, device_of, is_cupy
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.primitives import matmul, matmul_transposed
from ooc_chol.diff.solve_checks import check_definite, check_matrix, check_right_hand_sides, symmetric
from ooc_chol.errors import OocCholError
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.process.fork_safety import new_lock, new_rlock

Assume: TypeAlias = Literal["symmetric", "spd"] | None
Method: TypeAlias = Literal["auto", "superlu", "cudss"]

#: Patterns whose last factor and symbolic work are kept.
_KEPT = 4


class _Solver(Protocol):
    """Interface of the solvers behind a factor."""

    method: str
    words: str

    def solve(self, b: Any, trans: bool) -> Any: ...


class UnsolvedError(OocCholError, ArithmeticError):
    """cuDSS's factors of a matrix that is not singular are not good."""

    def __init__(self, matrix: str, problem: str) -> None:
        self.matrix = matrix
        self.problem = problem
        super().__init__(f"cuDSS does not solve with {matrix}: {problem}; SuperLU does, so give method='superlu'")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.matrix, self.problem)


@final
class Factor(AbstractClosing):
    """A factored sparse matrix: solves with it and with its transpose, with as many right-hand sides as there are."""

    def __init__(self, pattern: Pattern, values: Array, assume: Assume, solver: _Solver | None, copies: int = 0) -> None:
        self.pattern = pattern
        self.values = values
        self.assume = assume
        self.method = "superlu" if solver is None else solver.method
        self.copies = copies
        self._solver = solver
        self._closed = False
        self._lock = new_lock()

    def solve(self, b: Array, *, trans: bool = False) -> Array:
        """Solve ``A x = b``, or ``A.T x = b``. Shapes: ``b`` (n,) or (n, k)."""
        if self._closed:
            raise ValueError("the factor is closed; factorize the matrix again")
        check_right_hand_sides(self.pattern, self.values, b)
        if b.size == 0 or self._solver is None:
            return b.copy()
        if self.method == "cudss":
            with self._lock:
                return self._solver.solve(b, trans)
        x = self._solver.solve(np.asarray(b.get() if is_cupy(b) else b, np.float64), trans)
        x = np.ascontiguousarray(x, dtype=b.dtype)
        if not is_cupy(b):
            return x
        with self._lock:
            self.copies += 2 * b.nbytes
        return _cuda().to_device(x, b)

    def matches(self, pattern: Pattern, values: Array) -> bool:
        """Tell whether these are the pattern and the values that were factored, compared one by one."""
        if self._closed or values.dtype != self.values.dtype or device_of(values) != device_of(self.values):
            return False
        return pattern == self.pattern and bool((values == self.values).all())

    def close(self) -> None:
        """Free the factors; the factor solves no more.

        The memory of cuDSS's factors by ``assume="spd"`` waits for the next values of the pattern, which need no new plan:
        :func:`forget_factors` frees it.
        """
        with self._lock:
            self._closed = True
            solver, self._solver = self._solver, None
            if solver is not None and self.method == "cudss":
                solver.close()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        words = "closed" if self._closed else "no rows" if self._solver is None else self._solver.words
        copied = f"; {self.copies} bytes were copied between device and host" if self.copies else ""
        return f"Factor({self.pattern!r}, {self.values.dtype}: {words}{copied})"


@final
class FactorCache:
    """The last factor of each of a few patterns, and what depends on the pattern alone; safe to share between threads."""

    def __init__(self, keep: int = _KEPT) -> None:
        self._keep = keep
        self._kept: OrderedDict[tuple[Pattern, Assume, str, int | None], Factor] = OrderedDict()
        self._symbolic: OrderedDict[Pattern, Any] = OrderedDict()
        self._fronts: OrderedDict[Pattern, Any] = OrderedDict()
        self._eliminated: OrderedDict[tuple[Pattern, int | None], tuple[Array, Any]] = OrderedDict()
        self._plans: Any = None  # of cuDSS, once it was asked
        self._lock = new_rlock()
        self.factored = 0  #: Matrices that were factored
        self.found = 0  #: Times a kept factor was of equal values

    def factor(self, pattern: Pattern, values: Array, *, assume: Assume = None, method: Method = "auto") -> Factor:
        """The kept factor of these values, or a new one; as :func:`factorize`."""
        chosen = _method_for(method, values)
        key = (pattern, assume, chosen, device_of(values))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.matches(pattern, values):
                self._kept.move_to_end(key)
                self.found += 1
                return kept
            factor = self.factorize(pattern, values, assume=assume, method=chosen)
            self._kept[key] = factor
            self._used(self._kept, key)
            return factor

    def factorize(self, pattern: Pattern, values: Array, *, assume: Assume, method: Method) -> Factor:
        """A new factor, with the symbolic work that is kept of the pattern; the factor itself is not kept."""
        chosen = _method_for(method, values)
        check_matrix(pattern, values, assume)
        self.factored += 1
        if pattern.n_rows == 0:
            return Factor(pattern, values.copy(), assume, None)
        if chosen == "cudss":
            return Factor(pattern, values.copy(), assume, self._by_cudss(pattern, values, assume))
        kept, copied = values.copy(), values.nbytes if is_cupy(values) else 0
        return Factor(pattern, kept, assume, self._by_superlu(pattern, kept, assume), copied)

    def eliminated(self, pattern: Pattern, values: Array) -> Any:
        """The eliminated fronts of a positive definite matrix: those that are kept, if of equal values, or new ones."""
        from ooc_chol.diff.multifrontal import factored

        pattern.check_values(values)
        key = pattern, device_of(values)
        with self._lock:
            known = self._eliminated.get(key)
            if known is None or known[0].dtype != values.dtype or not bool((known[0] == values).all()):
                check_definite(pattern, values)
                kept = values.copy()
                known = kept, factored(self.fronts(pattern), symmetric(pattern, kept.astype(np.float64))[None])
                self.factored += 1
                self._eliminated[key] = known
            self._used(self._eliminated, key)
            return known[1]

    def fronts(self, pattern: Pattern) -> Any:
        """The fronts of a pattern, or of one that is equal."""
        from ooc_chol.diff.fronts import fronts_of

        return self._lasting(self._fronts, pattern, fronts_of)

    def _by_superlu(self, pattern: Pattern, values: Array, assume: Assume) -> _Solver:
        """SuperLU's factors of values in any memory, which must not change afterwards."""
        from ooc_chol.diff.superlu import HostSolver

        on_host = values.get() if is_cupy(values) else values
        return HostSolver(self._symbolic_of(pattern), np.asarray(on_host, np.float64), assume)

    def _by_cudss(self, pattern: Pattern, values: Array, assume: Assume) -> _Solver:
        """Factors by cuDSS, in float64; where they are not good, SuperLU tells whether the matrix is singular, and where."""
        wide = values.astype(np.float64)
        full = _csr(pattern, wide)
        part = pattern.tril()
        a = _csr(part.pattern, wide[part.places.on(wide)]) if assume == "spd" else full

        def transposed() -> Any:
            return _csr(pattern.transposed, wide[pattern.place("transposing", wide)])

        def times(x: Any, trans: bool) -> Any:
            product = matmul_transposed if trans else matmul
            return product(pattern, wide, x)

        if self._plans is None:
            self._plans = _cuda().CudssPlans()
        kept = {"plans": self._plans, "key": (pattern, assume, device_of(values))}
        solver: Any = _cuda().CudssSolver(a, transposed, full, assume=assume, times=times, **kept)
        if solver.trouble:
            solver.close()
            self._by_superlu(pattern, values, assume)  # raises with the column where the matrix is singular
            raise UnsolvedError(pattern.name, solver.trouble)
        return solver  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Forget all factors and symbolic work."""
        with self._lock:
            self._kept.clear()
            self._symbolic.clear()
            self._fronts.clear()
            self._eliminated.clear()
            if self._plans is not None:
                self._plans.clear()

    def _symbolic_of(self, pattern: Pattern) -> Any:
        """SuperLU's symbolic work, kept for the last few patterns."""
        from ooc_chol.diff.superlu import HostSymbolic

        return self._lasting(self._symbolic, pattern, HostSymbolic)

    def _lasting(self, kept: OrderedDict[Pattern, Any], pattern: Pattern, make: Callable[[Pattern], Any]) -> Any:
        """Return what follows from a pattern alone; that of the last few is kept."""
        with self._lock:
            if pattern not in kept:
                kept[pattern] = make(pattern)
            self._used(kept, pattern)
            return kept[pattern]

    def _used(self, kept: OrderedDict[Any, Any], key: Any) -> None:
        """Note the use of what is kept under a key, and forget what was used longest ago."""
        kept.move_to_end(key)
        while len(kept) > self._keep:
            kept.popitem(last=False)


#: What :func:`ooc_chol.diff.solve` keeps, whichever framework asks.
CACHE = FactorCache()


def factorize(pattern: Pattern, values: Array, *, assume: Assume = None, method: Method = "auto") -> Factor:
    """Factor a sparse matrix, to solve with it many times.

    Parameters
    ----------
    pattern : Pattern
        Pattern of the matrix, (n, n).
    values : (nnz,) array
        Its values, float32 or float64, of NumPy or CuPy. They are copied: changes afterwards do not change the factor.
    assume : {None, "symmetric", "spd"}
        Known property of the matrix: that it is symmetric, or symmetric and positive definite, which has less fill, and on CUDA
        one factor for the matrix and its transpose. Both triangles are given and compared.
    method : {"auto", "superlu", "cudss"}
        SuperLU on the host; or cuDSS on the device of CuPy's arrays, which ``"auto"`` takes where it is installed. Without it,
        SuperLU solves for arrays of CuPy, too, and ``Factor.copies`` counts the bytes that are copied.

    Returns
    -------
    Factor
        Factor that solves.

    Raises
    ------
    SingularMatrixError
        The matrix is singular, exactly or to working precision; its ``column`` has no pivot.
    NonFiniteError
        A value is NaN or infinite.
    ValueError
        The matrix is not square, or not symmetric though told so; or values are not as many as entries.
    TypeError
        The values are neither float32 nor float64.
    ImportError
        ``method="cudss"`` was asked for, but cuDSS is not installed; the message names the extra.

    Notes
    -----
    SuperLU factors float32 values in float64, and solutions are rounded to float32: factors take 12 bytes an entry for both.
    Solutions are refined where their normwise backward error is above 1e-15. The order of elimination of a pattern is kept.
    cuDSS solves for one right-hand side after the other, in float64, so that solutions are the same to the bit in every run.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> # a zero on the diagonal: rows are exchanged
    >>> pattern = oc.diff.Pattern([0, 1, 3], [1, 0, 1], (2, 2))
    >>> with oc.diff.factorize(pattern, np.array([2.0, 4.0, 1.0])) as factor:
    ...     (
    ...         factor.solve(np.array([2.0, 5.0])).tolist(),
    ...         factor.solve(np.array([4.0, 3.0]), trans=True).tolist(),
    ...     )
    ([1.0, 1.0], [1.0, 1.0])
    """
    return CACHE.factorize(pattern, values, assume=assume, method=method)


def forget_factors() -> None:
    """Let go of the factors that solves have kept, and of the orders of elimination: memory of the host and of GPUs comes back.

    Those that somebody holds, such as a graph whose backward is to come, live on.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.diff.forget_factors()
    """
    CACHE.clear()


def _method_for(method: Method, values: Array) -> Method:
    """Method that factors values in this memory."""
    if method not in ("auto", "superlu", "cudss"):
        raise ValueError(f"method is {method!r:.40}; give 'auto', 'superlu' or 'cudss'")
    if method == "superlu" or (method == "auto" and not is_cupy(values)):
        return "superlu"
    if method == "cudss":
        if not is_cupy(values):
            where = "the values lie in host memory: give CuPy's arrays, or method='superlu'"
            raise ValueError(f"method='cudss' solves on a CUDA device, but {where}")
        _cuda().require_cudss()
        return "cudss"
    return "cudss" if _cuda().has_cudss() else "superlu"


def _csr(pattern: Pattern, values: Array) -> Any:
    """A matrix as cuDSS takes it."""
    return _cuda().Csr(pattern.place("indptr", values), pattern.place("indices", values), values, pattern.n_rows)


def _cuda() -> Any:
    """Solves on CUDA devices, imported when the first array of CuPy comes."""
    return import_module("ooc_chol.kernels.cuda.direct")
