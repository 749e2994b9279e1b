"""The Cholesky factor that the user gets: solves, products, sums over the inverse and updates of a stored factor."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.conditioning import (
    LEAST_ERROR,
    diagonal_of,
    expected_error,
    few_columns,
    may_be_ill_conditioned,
    row_norms,
    warn_of_condition,
)
from ooc_chol.dense.factor.host_sweeps import HostSolver
from ooc_chol.dense.factor.inverse import inverse_diagonal, inverse_panels, panel_width
from ooc_chol.dense.factor.operators import refuse_triangular
from ooc_chol.dense.factor.refinement import refined_solve
from ooc_chol.dense.factor.resident import host_array, in_kind_of, resident_tile
from ooc_chol.dense.factor.residual import ResidualSample, blocks_worth_a_factorization, sample_residual, source_blocks
from ooc_chol.dense.factor.saving import check_target
from ooc_chol.dense.factor.solves import multiply, multiply_on_device, right_hand_side, solve
from ooc_chol.dense.factor.stored import AbstractStoredFactor
from ooc_chol.dense.factor.sweeps import AbstractSolver
from ooc_chol.dense.factor.trace_sums import (
    HalfSolveSums,
    InverseTraces,
    check_border,
    check_matrices,
    half_solve_sums,
    inverse_traces,
)
from ooc_chol.dense.factor.updating import first_lost_row, store_for, sweep
from ooc_chol.dense.progress_bar import progress_reporter
from ooc_chol.dense.stores.file import AbstractStore, FileStore
from ooc_chol.errors import DowndateError, RefinementError, TierError, UnsupportedTypeError
from ooc_chol.formats import FP64
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import AbstractSource, triangle_source
from ooc_chol.memory.sources.base import entries_named, unchanged
from ooc_chol.memory.sources.function import FunctionSource

if TYPE_CHECKING:
    from ooc_chol.dense.request import Progress


@final
class CholeskyFactor(AbstractStoredFactor):
    """The lower triangular ``L`` with ``A = L @ L.T``, for a complex A ``A = L @ L.H``, wherever it is stored.

    Parameters
    ----------
    grid : TileGrid
        How L is cut into tiles: its order, and that of a tile.
    store : AbstractStore
        Holds every tile of L, complete; the factor closes it.
    arithmetic_key : mapping, or callable that makes one
        Everything that the bits of L depend on, as a JSON object; a callable is asked when somebody asks for it.
    report : FactorReport, or callable that makes one, optional
        What the run that made L has to say, and what solves with L add to it; None for a loaded factor.
    trace : Trace, optional
        Every operation of that run, if it was asked for.
    passes : Passes, optional
        Where solves with L are counted, those of ``report``.
    a : object, optional
        The matrix that was factored, as ``cholesky`` took it, for refined solves.
    solver : DeviceSolver, optional
        A device for solves with many right-hand sides or large factors, and for sums over the inverse; else the host does all.
    files : sequence of path, or callable that makes one
        Files that hold ``a``, or that L lies over, so that the factor is never saved into one of them.
    lower : bool
        Whether the lower triangle of ``a`` was factored, else its upper: later methods read the same one.

    Raises
    ------
    TypeError, ValueError
        ``arithmetic_key`` holds something that JSON cannot hold; a callable's, once it is asked.

    Notes
    -----
    After a factorization on GPUs the first of them does solves with 32 right-hand sides or more, with any number once L has 4 GiB
    of memory, and sums over the inverse, within the plan's budget; all else, and all for a loaded factor, runs on the host.
    Methods read each tile of a file once per triangular sweep, the next tile while the current one computes; they need memory for
    the right-hand sides and two to three tiles. Several threads may call them at once; none may be running while it is closed.
    A factor keeps the matrix that was given to ``cholesky``, for ``solve(b, refine=True)``, as long as it lives.
    """

    def solve(self, b: ArrayLike, *, refine: bool = False, a: Any = None, overwrite_b: bool = False) -> NDArray[Any]:
        """Solve ``A x = b``.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Right-hand sides; not changed, unless ``overwrite_b``.
        refine : bool
            Reach the accuracy of FP64 with a factor in mixed precision: conjugate gradients on A, or GMRES where they fail, with
            the factor as preconditioner.
        a : array, path, object, optional
            The matrix, for a factor that was loaded or that lies over it; else the one that was factored. Used only with
            ``refine=True``.
        overwrite_b : bool
            Let the solutions take the memory of ``b`` where it is a writable array of L's type whose rows are adjacent, in the
            memory of the host or of the GPU on which L is one tile. Not for ``refine``.

        Returns
        -------
        (n,) or (n, m) array
            The solutions, a new array of the shape of ``b``; for a CuPy array, or one of torch or JAX on a GPU, of its kind and
            in that GPU's memory.

        Raises
        ------
        TypeError
            ``b`` is complex where L is real, or no array of numbers, or ``a`` can be made on CUDA only.
        ValueError
            ``b`` does not have ``n`` rows, or holds a NaN or an infinity; or refinement has no matrix, or one of another order.
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
        the diagonals of A and L, and only if some ``A_ii / L_ii**2`` is near ``1e-3 / (n u)``, for
        float64 ``1e13 / n``, three readings of L. Where A is no
        array in memory its diagonal takes one reading of L on the host; after a factorization on GPUs in tiles the look is left
        out then.
        """
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
            if self._solver is not None and self.grid.nt > 1:
                return  # a reading of L on the host may take longer than its factorization on GPUs
            squares = self._row_norms() ** 2
        if not may_be_ill_conditioned(squares, self.diagonal(), self._fmt):
            return
        with few_columns(self.n):
            error = expected_error(self._row_norms(), lambda x: self._solved("condition", x, (False, True)), self._fmt)
        if error >= LEAST_ERROR:
            warn_of_condition(error, self._fmt)

    def _row_norms(self) -> NDArray[np.float64]:
        """Norms of the rows of L, the square roots of the diagonal of A."""
        store = self._opened()
        with self._passes.running("condition") as run:
            resident = resident_tile(store)
            return row_norms(store, run) if resident is None else resident.row_norms(run)

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
            on_device = self._solver is not None and self._solver.takes(store, x.shape[1])
            with self._passes.running(title, x.shape[1]) as run:
                solve(self._place(on_device=on_device), store, x, transposed=transposed, run=run)

    def _refuse_but_float64(self, what: str) -> None:
        """Raise ``UnsupportedTypeError`` for a factor of another type."""
        if self._fmt != FP64:
            raise UnsupportedTypeError(what, self._fmt.dtype.name, "it is for float64 factors alone; factor A in float64 for it")

    def _place(self, *, on_device: bool = True) -> AbstractSolver:
        """The device, where there is one for this and it may be there; else the host."""
        return self._solver if self._solver is not None and on_device else HostSolver()

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
            Whether the solutions may take the memory of ``b``, as for :meth:`solve`.

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

    def inverse_panels(self, width: int | None = None) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
        """The lower triangle of ``inv(A)``, a panel of columns at a time.

        Parameters
        ----------
        width : int, optional
            Columns of a panel; the last may have fewer. When not given, whole tiles in a panel of at most 256 MiB.

        Yields
        ------
        range
            The panel's columns, ``j0:j1``.
        (n - j0, j1 - j0) array
            ``inv(A)[j0:, j0:j1]``, the block on the diagonal complete. Yours until the next panel is asked for, then it is
            overwritten.

        Raises
        ------
        ValueError
            ``width`` is smaller than 1.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Cost ``2/3 n**3`` flops in all: each panel is solved for from the unit columns, forward from row ``j0`` on and back to
        row ``j0``. Tiles before ``j0`` are not read, so that all panels together read ``2/3 n / width`` times the bytes of L.
        Memory: a panel, a tile row of it, and two to three tiles. Accuracy of :meth:`solve`, column by column.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> sum(float(panel[0, 0]) for _, panel in factor.inverse_panels(width=1))
        0.5625
        """
        self._refuse_but_float64("inverse_panels")
        return inverse_panels(HostSolver(), self._opened(), panel_width(self.grid, width), self._passes)

    def inverse_diagonal(self, width: int | None = None) -> NDArray[np.float64]:
        """The diagonal of ``inv(A)``: reciprocals of the conditional variances, as leave-one-out prediction needs them.

        Parameters
        ----------
        width : int, optional
            Columns solved for at a time, as :meth:`inverse_panels`.

        Returns
        -------
        (n,) array
            The diagonal of the inverse, a new array.

        Raises
        ------
        ValueError, TierError
            ``width`` is smaller than 1, L cannot be read, or the factor is closed.

        Notes
        -----
        Cost ``n**3 / 3`` flops: squares of the columns of ``inv(L)``, so that nothing cancels.
        """
        store = self._opened()
        self._refuse_but_float64("inverse_diagonal")
        with self._passes.running("inverse diagonal", self.n) as run:
            return inverse_diagonal(self._place(), store, width, run)

    def inverse_traces(self, matrices: Sequence[FunctionSource], vectors: ArrayLike | None = None) -> InverseTraces:
        """Traces ``tr(inv(A) @ D)`` of symmetric matrices that tile functions make: derivatives of a log-determinant.

        Parameters
        ----------
        matrices : sequence of FunctionSource
            From :func:`ooc_chol.from_function`. Unlike for ``cholesky`` any rectangle is asked for, above the diagonal too, and
            every entry counts.
        vectors : (n, q) array_like, optional
            Vectors ``v`` by columns, for ``v' @ D @ v`` from the same tiles.

        Returns
        -------
        InverseTraces
            ``diagonal``, of ``inv(A)``; ``products``, the traces, ``(k,)``; and ``forms``, ``(k, q)``.

        Raises
        ------
        TypeError, ValueError
            A matrix is no tile function, or of another order, or the vectors have another number of rows.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Cost ``2/3 n**3`` flops whatever the number of matrices, ``n**2 / 2`` entries of each made and forgotten. On the GPU that
        factored where every matrix has a function for it (``cuda=``), else on the host as :meth:`inverse_panels`.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> def ones(rows, cols, out, stream):
        ...     out[...] = 1.0
        >>> factor.inverse_traces([oc.from_function(2, ones)]).products
        array([0.3125])
        """
        store = self._opened()
        self._refuse_but_float64("inverse_traces")
        columns = np.empty((self.n, 0)) if vectors is None else right_hand_side(vectors, self.n, copy=False)[0]
        check_matrices(matrices, self.n)
        place = self._place(on_device=all(matrix.is_made_on_cuda for matrix in matrices))
        with self._passes.running("inverse traces", self.n) as run:
            return inverse_traces(place, store, matrices, vectors=columns, run=run)

    def half_solve_sums(
        self, matrix: FunctionSource, columns: range, vectors: ArrayLike | None = None, *, width: int | None = None
    ) -> HalfSolveSums:
        """Sums over ``Y = inv(L) @ B`` for a ``B`` that a tile function makes, so that neither is ever stored: kriging variances.

        Parameters
        ----------
        matrix : FunctionSource
            From :func:`ooc_chol.from_function`, of order ``columns.stop`` or more: a matrix of which A is the leading block, say.
            Rows ``0:n`` of ``columns`` are B, in rectangles that may lie above the diagonal.
        columns : range
            Its columns, step 1, ``m`` of them.
        vectors : (n, q) array_like, optional
            ``V``, for ``Y' @ V``.
        width : int, optional
            Most columns of B in memory. When not given, 256 MiB of them, or on a GPU as many as its budget holds.

        Returns
        -------
        HalfSolveSums
            ``squares``, ``(m,)``, the diagonal of ``B' @ inv(A) @ B``; and ``products``, ``(m, q)``.

        Raises
        ------
        TypeError, ValueError
            ``matrix`` is no tile function or too small, the columns are not such a range, or the vectors have other rows.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Cost ``n**2 m`` flops, and one reading of L for each ``width`` columns. On the GPU that factored where the matrix has a
        function for it (``cuda=``).

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> def ones(rows, cols, out, stream):
        ...     out[...] = 1.0
        >>> factor.half_solve_sums(oc.from_function(3, ones), range(2, 3)).squares
        array([0.3125])
        """
        store = self._opened()
        self._refuse_but_float64("half_solve_sums")
        beside = np.empty((self.n, 0)) if vectors is None else right_hand_side(vectors, self.n, copy=False)[0]
        check_border(matrix, columns, self.n, width)
        if not len(columns):
            return HalfSolveSums(np.empty(0), np.empty((0, beside.shape[1])))
        place = self._place(on_device=matrix.is_made_on_cuda)
        with self._passes.running("half-solve sums", len(columns)) as run:
            return half_solve_sums(place, store, matrix, columns, vectors=beside, width=width, run=run)

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
                if self._solver is not None and store.devices:
                    y = multiply_on_device(self._solver, store, factor, run, transposed=transposed)
                else:
                    y = multiply(store, factor, run, transposed=transposed)
            return (np.conjugate(y, out=y) if flips else y).reshape(shape)

        return in_kind_of(z, on_host)

    def update(
        self, v: ArrayLike, *, store: str | os.PathLike[str] | HostMemory | None = None, overwrite: bool = False
    ) -> CholeskyFactor:
        """The factor of ``A + V @ V.T``, of a complex A ``A + V @ V.conj().T``, far cheaper than factoring that.

        Parameters
        ----------
        v : (n,) or (n, k) array_like
            What is added; not changed.
        store : path, HostMemory, "device" or None
            Where the new L goes, in this one's type, as for :func:`ooc_chol.cholesky`. None keeps it in host memory, or on the
            GPUs on which this L lies.
        overwrite : bool
            Let the new L take the place of this one, which is closed then. Not for an L in a file or in mixed precision.

        Returns
        -------
        CholeskyFactor
            The new factor, without a ``report``; this one stays as it is unless it was overwritten.

        Raises
        ------
        TypeError, ValueError
            V is no array of finite numbers with ``n`` rows, complex ones for a complex L only, or L cannot be overwritten.
        BudgetError
            There is no memory for a second L.
        TierError
            L cannot be read or written, or the factor is closed. What was overwritten is lost then.

        Notes
        -----
        Cost ``4 n**2 k`` flops on the host, ``36 n**2`` at least, one reading and one writing of L, and memory for a copy of V
        and three tiles. Orthogonal transformations: the new factor is as accurate as one of ``A + V @ V.T``, whatever the
        condition. Of a complex L four times the flops.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> larger = factor.update([2.0, 1.0])
        >>> (larger @ (larger.T @ np.eye(2))).round(12)
        array([[8., 4.],
               [4., 6.]])
        """
        return self._updated(v, store, downdate=False, overwrite=overwrite)

    def downdate(
        self, v: ArrayLike, *, store: str | os.PathLike[str] | HostMemory | None = None, overwrite: bool = False
    ) -> CholeskyFactor:
        """The factor of ``A - V @ V.T``, of a complex A ``A - V @ V.conj().T``: takes away what :meth:`update` adds.

        Parameters
        ----------
        v : (n,) or (n, k) array_like
            What is taken away; not changed.
        store : path, HostMemory, "device" or None
            Where the new L goes, as for :meth:`update`.
        overwrite : bool
            Let the new L take the place of this one, as for :meth:`update`.

        Returns
        -------
        CholeskyFactor
            The new factor, without a ``report``; this one stays as it is unless it was overwritten.

        Raises
        ------
        DowndateError
            ``A - V @ V.T`` is not positive definite; ``minor`` says where. This factor is as it was.
        TypeError, ValueError, BudgetError, TierError
            As for :meth:`update`.

        Notes
        -----
        Cost as for :meth:`update`; where L is overwritten one more reading and ``n**2 k`` flops, to refuse before anything is
        lost. An orthogonal method, backward stable: the new factor is that of a matrix within some ``u sqrt(A_ii A_jj)`` of
        ``A - V @ V.T``, which may be much beside what is left of A.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[8.0, 4.0], [4.0, 6.0]]))
        >>> smaller = factor.downdate([2.0, 1.0])
        >>> (smaller @ (smaller.T @ np.eye(2))).round(12)
        array([[4., 2.],
               [2., 5.]])
        """
        return self._updated(v, store, downdate=True, overwrite=overwrite)

    def _updated(
        self, v: ArrayLike, place: str | os.PathLike[str] | HostMemory | None, *, downdate: bool, overwrite: bool
    ) -> CholeskyFactor:
        """The factor of ``A + V @ V.T``, or of ``A - V @ V.T``."""
        store = self._opened()
        columns, _ = right_hand_side(host_array(v), self.n, copy=True, fmt=self._fmt)
        changes = [*self.arithmetic_key.get("updates", []), {"rank": columns.shape[1], "sign": -1 if downdate else 1}]
        key = {**self.arithmetic_key, "updates": changes}
        if overwrite:
            self._check_overwriting(store, place)
            if downdate and (minor := first_lost_row(self.half_solve(columns))):
                raise DowndateError(minor, (tile := (minor - 1) // self.grid.nb, tile))
            target = store
        else:
            if place is not None and not isinstance(place, HostMemory) and place != "device":
                check_target(store, place, self._known_files(), replace=False)
            target = store_for(store, place, key)
        try:
            with self._passes.running("downdate" if downdate else "update", columns.shape[1]) as run:
                sweep(store, target, columns, downdate=downdate, run=run)
            target.complete()
        except BaseException:
            target.discard()
            if overwrite:
                self.close()
            raise
        if overwrite:
            self._store, self._dense = None, None  # the new factor has it, and closes it
        return CholeskyFactor(self.grid, target, key, solver=self._solver)

    def _check_overwriting(self, store: AbstractStore, place: object) -> None:
        """Refuse to update in place what must stay as it is."""
        if place is not None:
            raise ValueError("store and overwrite=True are two places for the new L; give one of them")
        if isinstance(store, FileStore):
            raise ValueError("an L in a file stays as it is: leave overwrite=True out, and give another file as store=")
        if store.formats is not None:
            raise ValueError("an L in mixed precision cannot be updated in place, in FP64: leave overwrite=True out")
        if len(self._holders) > 1:
            raise ValueError("this L has copies (copy.copy) that would change too: close them, or leave overwrite=True out")

    def residual(self, a: Any, *, blocks: int | None = None, seed: int = 0, progress: Progress = None) -> ResidualSample:
        """Compute ``A - L @ L.T`` on sampled 64 x 64 sub-blocks, far more accurately than L was.

        Parameters
        ----------
        a : array, path, object or callable
            The matrix that was factored, as anything that ``cholesky`` takes; or a function ``a(rows, cols)`` that gives the
            sub-block of two slices. Only the lower triangle counts.
        blocks : int, optional
            Blocks to sample; a matrix with no more is computed as a whole. When not given, 200 from order 7100 on, and below as
            many as take no longer than a factorization on the host, at least 8.
        seed : int
            Seed of the sample.
        progress : bool or callable
            True shows a bar on the standard error stream; a callable receives ``(flops_done, flops_total, seconds)``.

        Returns
        -------
        ResidualSample
            ``max_scaled_over_sqrt_n`` is at most 4 for a factor that is right.

        Raises
        ------
        TypeError, FileNotFoundError
            ``a`` cannot be read as a matrix, see ``cholesky``.
        ValueError
            ``a`` has another shape, or its diagonal is not positive.
        NonFiniteError
            ``a`` holds a NaN or an infinity.
        TierError
            L or ``a`` cannot be read, or ``a`` changes meanwhile, or the factor is closed.

        Notes
        -----
        Per block at most ``50_000 n`` flops and ``1024 n`` bytes read. All cores share the blocks, each with as many bytes of
        memory; ``a`` is read by the calling thread.
        """
        self._opened()
        chosen = blocks_worth_a_factorization(self.n) if blocks is None else blocks
        with progress_reporter(progress, "residual") as report:
            if callable(a) and not isinstance(a, AbstractSource):
                return sample_residual(a, self, blocks=chosen, seed=seed, report=report)
            with self._matrix(a) as source:
                return sample_residual(source_blocks(source), self, blocks=chosen, seed=seed, report=report)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the path of the file: a new factor over it, without ``report`` and ``trace``, closed on its own.

        What is in the file then must be what is in it now: another factor at that path is refused with a ``TierError``.

        Raises
        ------
        TypeError
            The factor is not in a file, or that has another one by now.
        """
        store = self._opened()
        if not isinstance(store, FileStore) or not store.is_there():
            raise TypeError(
                "a factor is pickled as the file that it is in, but this one is in none, or that is elsewhere now; "
                "save it with L.save(path), and open it with ooc_chol.load(path) where it is needed"
            )
        return reopened, (store.path, store.identity)


def load(path: str | os.PathLike[str]) -> CholeskyFactor:
    """Open a factor that :meth:`CholeskyFactor.save` or ``cholesky(..., store=path)`` wrote.

    Parameters
    ----------
    path : path
        The file, which stays open until the factor is closed; tiles are read when they are needed.

    Returns
    -------
    CholeskyFactor
        The factor; its ``report`` and ``trace`` are None.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    TierError
        The file is no factor's, or it is damaged, truncated, incomplete or of a newer version.
    """
    store = FileStore.open(path)
    return CholeskyFactor(store.grid, store, store.header.arithmetic_key)


def reopened(path: str, identity: str) -> CholeskyFactor:
    """Open the file of a factor that was pickled; ``TierError`` if another one has that name now.

    Parameters
    ----------
    path : str
        Its name when the factor was pickled.
    identity : str
        What was in it then, as :attr:`~ooc_chol.dense.stores.file.FileStore.identity` tells.

    Returns
    -------
    CholeskyFactor
        The factor, as :func:`load` opens it.
    """
    factor = load(path)
    store = factor._opened()
    if isinstance(store, FileStore) and store.identity != identity:
        factor.close()
        raise TierError(f"{path} is another factor than the one that was pickled: save each under its own name, pickle it anew")
    return factor
