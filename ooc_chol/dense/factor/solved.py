"""Solves with a stored factor and products with it, on the host or on the device that made it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.conditioning import (
    LEAST_ERROR,
    diagonal_of,
    expected_error,
    few_columns,
    may_be_ill_conditioned,
    warn_of_condition,
)
from ooc_chol.dense.factor.operators import refuse_triangular
from ooc_chol.dense.factor.refinement import refined_solve
from ooc_chol.dense.factor.resident import host_array, in_kind_of, resident_tile
from ooc_chol.dense.factor.solves import joined_columns, right_hand_side
from ooc_chol.dense.factor.stored import AbstractStoredFactor
from ooc_chol.dense.stores.file import AbstractStore
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import AsymmetryWarning, RefinementError, UnsupportedTypeError
from ooc_chol.formats import FP64
from ooc_chol.memory.sources import AbstractSource, triangle_source
from ooc_chol.memory.sources.base import entries_named, unchanged
from ooc_chol.memory.sources.symmetry import find_asymmetry
from ooc_chol.precision.certified_answers import CertifiedSolution


class AbstractSolvedFactor(AbstractStoredFactor):
    """Solves and products of a factor; the parameters are those of :class:`~ooc_chol.CholeskyFactor`."""

    @overload
    def solve(
        self, b: ArrayLike, *, refine: bool = False, certified: Literal[False] = False, a: Any = None, overwrite_b: bool = False
    ) -> NDArray[Any]: ...

    @overload
    def solve(self, b: ArrayLike, *, certified: Literal[True], a: Any = None) -> CertifiedSolution: ...

    def solve(
        self, b: ArrayLike, *, refine: bool = False, certified: bool = False, a: Any = None, overwrite_b: bool = False
    ) -> NDArray[Any] | CertifiedSolution:
        """Solve ``A x = b``.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Right-hand sides; not changed, unless ``overwrite_b``.
        refine : bool
            Reach the accuracy of FP64 with a factor in mixed precision: conjugate gradients on A, or GMRES where they fail, with
            the factor as preconditioner.
        certified : bool
            Refine once, and give bounds of what the solutions are off, whatever the precision of L; not beside ``refine`` or
            ``overwrite_b``. :meth:`certify` says what that costs.
        a : array, path, object, optional
            The matrix, for a factor that was loaded or that lies over it; else the one that was factored. Used only with
            ``refine=True`` or ``certified=True``.
        overwrite_b : bool
            Let the solutions take the memory of ``b`` where it is a writable array of L's type whose rows are adjacent, in the
            memory of the host or of the GPU on which L is one tile. Not for ``refine``.

        Returns
        -------
        (n,) or (n, m) array, or CertifiedSolution
            The solutions, a new array of the shape of ``b``; for a CuPy array, or one of torch or JAX on a GPU, of its kind and
            in that GPU's memory. With ``certified`` they are in host memory, beside their bounds.

        Raises
        ------
        TypeError
            ``b`` is complex where L is real, or no array of numbers, or ``a`` can be made on CUDA only.
        ValueError
            ``b`` does not have ``n`` rows, or holds a NaN or an infinity; or refinement has no matrix, or one of another order;
            or ``certified`` comes beside ``refine`` or ``overwrite_b``.
        NonFiniteError
            Refinement meets a NaN or an infinity in A.
        RefinementError
            Refinement does not reach that accuracy; its ``x`` is the best it found.
        UnsupportedTypeError
            Refinement of a factor of another type than float64: as sums over the inverse.
        TierError
            L, or A for refinement, cannot be read or changes meanwhile, or the factor is closed.

        Warns
        -----
        scipy.linalg.LinAlgWarning
            A is so ill-conditioned that fewer than three digits of a solution can be expected to be right. Looked for once, in
            the first solve without refinement with a factor that this process made, not in mixed precision. :meth:`cond` tells
            for any factor.

        Notes
        -----
        Cost ``2 n**2 m`` flops and two readings of L. Backward stable: Higham (2002), Thm 10.4. Refinement takes as many flops
        again for each iteration, half of them with A, which is read once for all right-hand sides. To look for the warning takes
        the diagonals of A and L, and two readings of L more where n is at most 512, or some ``A_ii / L_ii**2`` above
        ``sqrt(1e-3 / u)``, for float64 3e6. Where A is no array in memory its diagonal takes one reading of L on the host; after
        a factorization on GPUs in tiles the look is left out then.
        """
        if certified:
            if refine or overwrite_b:
                raise ValueError("certified=True refines once, and gives new arrays: leave refine and overwrite_b out")
            solution = self.certify(b, a=a).solution
            assert solution is not None  # of right-hand sides that were given
            return solution
        if refine:
            self._refuse_but_float64("refine=True")
            return in_kind_of(b, lambda host: self._refined(host, self._a if a is None else a))
        x = self._solution(b, overwrite_b=overwrite_b)
        if self._is_condition_open:
            self._is_condition_open = False
            self._look_at_condition()
        return x

    def _solution(self, b: ArrayLike, *, overwrite_b: bool = False) -> NDArray[Any]:
        """The solution of ``A x = b``, without a word on how far it is right."""
        return self._solved("solve", b, (False, True), overwrite_b=overwrite_b)

    def _look_at_condition(self) -> None:
        """Warn if rounding A changes its solutions in their third digit; first, for nothing, whether that may be."""
        squares = diagonal_of(self._a)
        if squares is None:
            if not self._place.is_quick_to_read and self.grid.nt > 1:
                return  # a reading of L on the host may take longer than its factorization on GPUs
            squares = self._row_norms() ** 2
        if not may_be_ill_conditioned(squares, self.diagonal(), self._fmt):
            return
        with few_columns(self.n):
            error = expected_error(np.sqrt(squares), lambda x: self._solved("condition", x, (False, True)), self._fmt)
        if error >= LEAST_ERROR:
            warn_of_condition(error, self._fmt)

    def _row_norms(self) -> NDArray[np.float64]:
        """Norms of the rows of L, the square roots of the diagonal of A."""
        store = self._opened()
        with self._passes.running("condition") as run:
            resident = resident_tile(store)
            return self._place.row_norms(store, run) if resident is None else resident.row_norms(run)

    def _solved(
        self, title: str, b: ArrayLike, transposed: Sequence[bool], *, conjugated: bool = False, overwrite_b: bool = False
    ) -> NDArray[Any]:
        """Solutions of ``L y = b``, or with the adjoint of L, one after the other, as an array of the kind of ``b``.

        ``conjugated`` solves with the conjugates of these, so that with the adjoint it is the transpose.
        """
        flips = conjugated and self._fmt.is_complex
        store = self._opened()
        refuse_triangular(b)
        if (resident := resident_tile(store)) is not None:
            return resident.solved(b, transposed, self._passes, title, flips=flips, overwrite=overwrite_b)
        there: NDArray[Any] | None = self._place.distributed(title, b, transposed, flips=flips, passes=self._passes)
        if there is not None:
            return there

        def on_host(host: Any) -> NDArray[Any]:
            may_overwrite = overwrite_b and (not isinstance(host, np.ndarray) or host.flags.writeable)
            x, shape = right_hand_side(host, self.n, copy=not may_overwrite, fmt=self._fmt)
            if flips:
                np.conjugate(x, out=x)
            self._solve(title, store, x, transposed)
            return (np.conjugate(x, out=x) if flips else x).reshape(shape)

        return in_kind_of(b, on_host)

    def _solve(self, title: str, store: AbstractStore, x: NDArray[Any], transposed: Sequence[bool]) -> None:
        """Solve ``L y = x``, or ``L.T y = x``, one after the other, in place of ``x``."""
        if x.size:
            with self._passes.running(title, x.shape[1]) as run:
                self._place.solve(store, x, transposed=transposed, run=run)

    def _refuse_but_float64(self, what: str) -> None:
        """Raise ``UnsupportedTypeError`` for a factor of another type."""
        if self._fmt != FP64:
            raise UnsupportedTypeError(what, self._fmt.dtype.name, "it is for float64 factors alone; factor A in float64 for it")

    def _refined(self, b: ArrayLike, a: Any) -> NDArray[np.float64]:
        """:meth:`solve` to the accuracy of FP64."""
        if a is None:
            raise ValueError("refine=True needs the matrix, which this factor does not know: give it as a=")
        x, shape = right_hand_side(b, self.n, copy=True)
        try:
            with self._matrix(a) as source:
                return refined_solve(source, self._solution, x, grid=self.grid).x.reshape(shape) if x.size else x.reshape(shape)
        except RefinementError as error:
            error.x = error.x.reshape(shape)
            raise

    @contextmanager
    def _matrix(self, a: Any) -> Iterator[AbstractSource]:
        """A as a source of this order that does not change meanwhile; closed unless it is the caller's own."""
        source = triangle_source(a, self._lower)
        try:
            if source.n != self.n:
                raise ValueError(f"the matrix has shape {(source.n, source.n)} but the factor {self.shape}")
            if source.dtype.kind == "c" and not self._fmt.is_complex:
                raise UnsupportedTypeError(
                    "a complex matrix", source.dtype.name, "the factor is real: give the one that was factored"
                )
            if self._lower is None and (found := find_asymmetry(source)) is not None:
                advice = "a factor that was loaded reads the lower triangle. Give the transpose if the upper one was factored"
                warnings.warn(f"{found}, and {advice}", AsymmetryWarning, stacklevel=frames_of_the_package() + 1)
            with unchanged(source), entries_named(source):
                yield source
        finally:
            if not isinstance(a, AbstractSource):
                source.close()

    def half_solve(self, b: ArrayLike, *, transposed: bool = False, overwrite_b: bool = False) -> NDArray[Any]:
        """Solve ``L y = b``, so that ``y.T @ y`` is ``b.T @ inv(A) @ b``; or ``L.T y = b``, of a complex L ``L.H y = b``.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Right-hand sides; not changed, unless ``overwrite_b``.
        transposed : bool
            Solve ``L.T y = b``, which turns independent unit normals into a sample with covariance ``inv(A)``.
        overwrite_b : bool
            True if the solutions may take the memory of ``b``, as for :meth:`solve`.

        Returns
        -------
        (n,) or (n, m) array
            The solutions, a new array of the shape of ``b``; for a CuPy array, or one of torch or JAX on a GPU, of its kind and
            in that GPU's memory.

        Raises
        ------
        TypeError, ValueError, TierError
            ``b`` is no array of finite real numbers with ``n`` rows, or L cannot be read, as for :meth:`solve`.

        Notes
        -----
        Cost ``n**2 m`` flops and one reading of L.
        """
        return self._solved("half solve", b, (transposed,), overwrite_b=overwrite_b)

    def half_solves(self, b: ArrayLike, c: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Solve ``L y = b``, and then ``L.T x = [y, c]``, of a complex L ``L.H x = [y, c]``, in one visit of the devices.

        Parameters
        ----------
        b : (n, p) array_like
            Right-hand sides of the first system: ``x[:, :p]`` is ``inv(A) @ b``. Not changed.
        c : (n, q) array_like
            More right-hand sides of the second. Not changed.

        Returns
        -------
        y : (n, p) array
            Solutions of the first system, a new array in host memory.
        x : (n, p + q) array
            Solutions of the second, a new array in host memory.

        Raises
        ------
        TypeError, ValueError, TierError
            ``b`` or ``c`` is no matrix of finite real numbers with ``n`` rows, or L cannot be read, as for :meth:`solve`.

        Notes
        -----
        Cost ``n**2 (2 p + q)`` flops and two readings of L, in which GPUs keep what their memory holds from the first to the
        second: for likelihoods, whose gradient needs both. Two calls of :meth:`half_solve` give the same numbers.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> y, x = factor.half_solves(np.array([[2.0], [5.0]]), np.eye(2))
        >>> np.concatenate([y, x], axis=1)
        array([[ 1.  ,  0.  ,  0.5 , -0.25],
               [ 2.  ,  1.  ,  0.  ,  0.5 ]])
        """
        for each in (b, c):
            refuse_triangular(each)
            if np.ndim(each) != 2:
                raise ValueError(f"right-hand sides have shape {np.shape(each)}, but matrices with {self.n} rows are needed")
        y, _ = right_hand_side(host_array(b), self.n, copy=True, fmt=self._fmt)
        x = joined_columns([y, right_hand_side(host_array(c), self.n, copy=False, fmt=self._fmt)[0]])
        store, p = self._opened(), y.shape[1]
        is_resident = resident_tile(store) is not None
        if not (y.size and x.size) or is_resident or not self._place.goes_there_and_back(store, x.shape[1]):
            y = self.half_solve(y, overwrite_b=True)
            x[:, :p] = y
            return y, self.half_solve(x, transposed=True, overwrite_b=True)
        with self._passes.running("half solves", x.shape[1]) as run:
            self._place.there_and_back(store, y, x, run)
        return y, x

    def matmul(self, z: ArrayLike, *, transposed: bool = False) -> NDArray[Any]:
        """Multiply ``L @ z``, also written so: turns independent unit normals into a sample with covariance A.

        Parameters
        ----------
        z : (n,) or (n, m) array_like
            Right factor; not changed.
        transposed : bool
            Multiply ``L.T @ z``, of a complex L ``L.H @ z``, also written so.

        Returns
        -------
        (n,) or (n, m) array
            The product, a new array of the shape of ``z``, and of its kind as for :meth:`solve`.

        Raises
        ------
        TypeError, ValueError, TierError
            ``z`` is no array of finite real numbers with ``n`` rows, or L cannot be read, as for :meth:`solve`.

        Notes
        -----
        Cost ``n**2 m`` flops and one reading of L.
        """
        refuse_triangular(z)
        return self._multiplied(z, transposed=transposed, conjugated=transposed)

    def _multiplied(self, z: Any, *, transposed: bool = False, conjugated: bool = False) -> NDArray[Any]:
        """The product of L, its transpose, conjugate or adjoint with a vector or with columns, in the kind of these."""
        store = self._opened()
        flips = conjugated != transposed and self._fmt.is_complex  # kernels have L and its adjoint
        if (resident := resident_tile(store)) is not None:
            return resident.multiplied(z, self._passes, transposed=transposed, flips=flips)

        def on_host(host: Any) -> NDArray[Any]:
            factor, shape = right_hand_side(host, self.n, copy=False, fmt=self._fmt)
            if not factor.size:
                return np.empty(shape, self.dtype)
            factor = factor.conj() if flips else factor
            with self._passes.running("product with L", factor.shape[1]) as run:
                y = self._place.multiply(store, factor, run, transposed=transposed)
            return (np.conjugate(y, out=y) if flips else y).reshape(shape)

        return in_kind_of(z, on_host)
