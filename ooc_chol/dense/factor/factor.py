"""The Cholesky factor that the user gets: solves, determinant, products, and the file it is saved to."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ooc_chol import blas_buffers
from ooc_chol.dense.factor.conditioning import (
    LEAST_ERROR,
    diagonal_of,
    expected_error,
    few_columns,
    may_be_ill_conditioned,
    row_norms,
    warn_of_condition,
)
from ooc_chol.dense.factor.device_sweeps import DeviceSolver
from ooc_chol.dense.factor.habits import AbstractFactor
from ooc_chol.dense.factor.host_sweeps import HostSolver
from ooc_chol.dense.factor.inverse import inverse_diagonal, inverse_panels, panel_width
from ooc_chol.dense.factor.operators import refuse_triangular
from ooc_chol.dense.factor.picture import factor_picture
from ooc_chol.dense.factor.reading import stream_tiles
from ooc_chol.dense.factor.refinement import refined_solve
from ooc_chol.dense.factor.resident import dense_on_device, host_array, in_kind_of, resident_tile
from ooc_chol.dense.factor.residual import ResidualSample, blocks_worth_a_factorization, sample_residual, source_blocks
from ooc_chol.dense.factor.saving import check_target, is_array_name, save_array, save_tiles
from ooc_chol.dense.factor.solves import multiply, multiply_on_device, right_hand_side, solve
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
from ooc_chol.dense.passes import Passes
from ooc_chol.dense.progress_bar import progress_reporter
from ooc_chol.dense.stores.file import AbstractStore, FileStore
from ooc_chol.drawing import notebook_html
from ooc_chol.errors import ClosedError, DowndateError, RefinementError, UnsupportedTypeError
from ooc_chol.formats import FORMATS, FP64
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import AbstractSource, triangle_source
from ooc_chol.memory.sources.base import entries_named, unchanged
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tracing.trace import Trace

if TYPE_CHECKING:
    from ooc_chol.dense.planner.plan import Plan
    from ooc_chol.dense.report import FactorReport
    from ooc_chol.dense.request import Progress

#: None where there is nothing to tell, which a type checker need not be shown at every use: typeshed's word and way.
MaybeNone: TypeAlias = Any


@final
class CholeskyFactor(AbstractFactor):
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

    def __init__(
        self,
        grid: TileGrid,
        store: AbstractStore,
        arithmetic_key: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        report: FactorReport | Callable[[], FactorReport] | None = None,
        *,
        trace: Trace | None = None,
        passes: Passes | None = None,
        a: Any = None,
        solver: DeviceSolver | None = None,
        files: Sequence[str | os.PathLike[str]] | Callable[[], Sequence[str]] = (),
        lower: bool = True,
    ) -> None:
        self.grid = grid
        self._report: FactorReport | Callable[[], FactorReport] | None = report
        self._trace = trace
        self._passes: Passes = passes or (Passes() if report is None or callable(report) else report.passes)
        self._key = arithmetic_key if callable(arithmetic_key) else _as_in_a_file(arithmetic_key)
        #: Number of tiles of each format that L has, by name, the widest first.
        self.formats: dict[str, int] = _tiles_by_format(store)
        self._store: AbstractStore | None = store
        self._fmt = store.fmt
        self._a = a
        self._lower = lower
        self._solver = solver
        self._files = files if callable(files) else tuple(files)
        self._diagonal: NDArray[Any] | None = None
        self._dense: Any = None
        self._handed_over: Any = None
        #: One item for each factor that has this store open, copies of this one: the last to close closes it.
        self._holders: list[None] = [None]
        #: Whether the first solve is still to look whether A is ill-conditioned.
        self._is_condition_open = report is not None and store.formats is None

    @property
    def arithmetic_key(self) -> dict[str, Any]:
        """Everything that the bits of L depend on, as it comes back from a file: lists for tuples, strings for keys."""
        if callable(self._key):
            self._key = _as_in_a_file(self._key())
        return self._key

    @property
    def report(self) -> FactorReport | MaybeNone:
        """The :class:`~ooc_chol.FactorReport` of the run that made L; None for a loaded factor."""
        if callable(self._report):
            self._report = self._report()
        return self._report

    @property
    def plan(self) -> Plan | MaybeNone:
        """The :class:`~ooc_chol.Plan` that the run followed, ``report.plan``; None for a loaded factor."""
        return None if self.report is None else self.report.plan

    @property
    def trace(self) -> Trace | MaybeNone:
        """The :class:`~ooc_chol.Trace`: every operation of the factorization, and of passes over A and L until now.

        ``records`` are the factorization's. ``passes`` are the pass over A for its norms, the certificate, solves, sums over the
        inverse and products with L. None where no trace was asked for.
        """
        if self._trace is None or not (records := self._passes.records):
            return self._trace
        return replace(self._trace, passes=records)

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return self.grid.n

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of L, ``(n, n)``."""
        return self.grid.n, self.grid.n

    @property
    def tile_size(self) -> int:
        """Order of a tile."""
        return self.grid.nb

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of L and of solutions: float64 unless ``cholesky`` was asked for another, whatever formats tiles have."""
        return self._fmt.dtype

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

    def _known_files(self) -> Sequence[str | os.PathLike[str]]:
        """Files into which the factor is never saved."""
        return self._files() if callable(self._files) else self._files

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

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of L.

        Returns
        -------
        (n,) array
            The entries ``L_ii``, all real and positive, as a new array.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        The first call reads the diagonal tiles, ``8 n nb`` bytes; later ones read nothing.
        """
        store = self._opened()
        if self._diagonal is None:
            diagonal = np.empty(self.n, self._fmt.real_dtype)
            for k in range(self.grid.nt):
                store.read_diagonal(k, diagonal[self.grid.start(k) :][: self.grid.size(k)])
            self._diagonal = diagonal  # once it is whole: other threads may ask, and a read may fail
        return self._diagonal.copy()

    def logdet(self) -> float:
        """Logarithm of the determinant of A, ``2 sum(log(L_ii))``.

        Returns
        -------
        float
            The natural logarithm.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.
        """
        return 2.0 * math.fsum(np.log(self.diagonal().astype(np.float64, copy=False)))

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

    def rows(self, rows: range, stop: int) -> NDArray[Any]:
        """Read the entries ``L[rows, :stop]``.

        Parameters
        ----------
        rows : range
            Rows of L, step 1.
        stop : int
            How many columns to read, from the first on.

        Returns
        -------
        (len(rows), stop) array
            A new array; zero above the diagonal.

        Raises
        ------
        ValueError
            The rows or columns leave the matrix.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Reads these rows of each tile only, so that a sample of a factor in a file does not read all of it.
        """
        store = self._opened()
        if rows.step != 1 or rows.start < 0 or max(rows.stop, stop) > self.n:
            raise ValueError(f"L[{rows.start}:{rows.stop}:{rows.step}, :{stop}] is not inside a factor of shape {self.shape}")
        out = np.zeros((len(rows), stop), self.dtype)
        for i in range(rows.start // self.grid.nb, -(-rows.stop // self.grid.nb) if rows else 0):
            span = self.grid.span(i)
            part = range(max(rows.start, span.start), min(rows.stop, span.stop))
            target = out[part.start - rows.start : part.stop - rows.start]
            self._read_row_part(store, i, range(part.start - span.start, part.stop - span.start), target)
        return out

    def _read_row_part(self, store: AbstractStore, i: int, rows: range, target: NDArray[Any]) -> None:
        """Fill ``target`` with rows ``rows`` of tile row ``i`` from column 0 on, as far as both reach."""
        for j in range(min(i + 1, -(-target.shape[1] // self.grid.nb))):
            piece = np.empty((len(rows), self.grid.size(j)), self.dtype)
            store.read_rows((i, j), rows, piece)
            columns = target[:, self.grid.start(j) :][:, : piece.shape[1]]
            columns[...] = piece[:, : columns.shape[1]]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """L as a dense ``(n, n)`` array, zero above the diagonal; needs ``8 n**2`` bytes in float64."""
        store = self._opened()
        if copy is False:
            raise ValueError("a factor is stored in tiles, so that a dense array of it is always a copy; ask without copy=False")
        dense = np.zeros(self.shape, dtype=self.dtype if dtype is None else dtype)
        with closing(stream_tiles(store, list(self.grid.tiles()))) as tiles:
            for (i, j), l_ij in tiles:
                dense[self.grid.start(i) :, self.grid.start(j) :][: l_ij.shape[0], : l_ij.shape[1]] = l_ij
        return dense

    def _on_device(self) -> Any:
        """L as a dense array of the GPU that it lies on, the first of several: its one tile itself, else a copy that is kept."""
        if self._dense is None:
            self._dense = dense_on_device(self._opened())
        return self._dense

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """L as a dense ``(n, n)`` array on the GPU where it lies, for ``cupy.asarray(L)``: its memory lasts as long as that."""
        if self._store is None or not self._store.devices:
            raise AttributeError("L is not in a GPU's memory: np.asarray(L) copies it, and store='device' keeps it there")
        self._handed_over = self._on_device()  # who takes it keeps this factor, closed or not
        interface: dict[str, Any] = self._handed_over.__cuda_array_interface__
        return interface

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where :meth:`__dlpack__` hands L over: on the GPU where it lies, else in host memory."""
        if self._opened().devices:
            device: tuple[int, int] = self._on_device().__dlpack_device__()
            return device
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        """L as a dense ``(n, n)`` array, zero above the diagonal, for ``from_dlpack`` of any library."""
        array = self._on_device() if self._opened().devices else np.asarray(self)
        return array.__dlpack__(**options)

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the factor to a file that :func:`load` reads, or L as a dense array to a ``.npy`` file that ``numpy.load`` reads.

        Parameters
        ----------
        path : path
            File to create, of any name that promises no other format; by custom it ends in ``.ooc``. One that ends in ``.npy`` is
            an array of shape ``(n, n)``, zero above the diagonal. A factor of that name is replaced, an array only if asked, and
            only once the new file is complete and on the disk.
        replace : bool
            Replace any other file, too, and one that another factor has open, which goes on reading what it opened.

        Raises
        ------
        TierError
            The file cannot be written, L cannot be read, or the factor is closed. As ``OutputError``: it is the file of the
            matrix that was factored, or that of another open factor, or it exists and is no factor. As ``MissingFolderError``:
            there is no folder for it.
        ValueError
            The name promises a format that L is not written in, such as ``.npz`` or ``.csv``.

        Notes
        -----
        Tile by tile through two tiles of memory, from any store, and every tile keeps its format. An array takes 8 n² bytes on
        the disk, and some 32 MiB of its rows are in memory at once.
        """
        store = self._opened()
        check_target(store, path, self._known_files(), replace=replace)
        if is_array_name(path):
            save_array(lambda rows: self.rows(rows, self.n), self.n, self.dtype, path, replace=replace)
        else:
            save_tiles(store, path, self.arithmetic_key, replace=replace)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called: then L cannot be used, and what tries raises ``ClosedError``."""
        return self._store is None

    def close(self) -> None:
        """Release the store of L, unless a copy of this factor is open; a second call does nothing.

        ``report`` and ``trace`` stay, and :attr:`closed` is true.
        """
        store, self._store, self._dense = self._store, None, None
        if store is not None:
            self._holders.pop()
            if not self._holders:
                store.close()

    def __copy__(self) -> CholeskyFactor:
        """A factor over the same tiles, which never change: each of the two is closed by itself."""
        self._opened()
        twin = object.__new__(CholeskyFactor)
        twin.__dict__.update(self.__dict__)
        self._holders.append(None)
        return twin

    def __deepcopy__(self, memo: object) -> CholeskyFactor:
        return self.__copy__()

    def __enter__(self) -> CholeskyFactor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the path of the file: a new factor over it, without ``report`` and ``trace``, closed on its own.

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
        return load, (store.path,)

    def __repr__(self) -> str:
        where = "closed" if self._store is None else f"store={self._store.name!r}"
        kind = "" if list(self.formats) == [FP64.name] else f", formats={self.formats}"
        if self._fmt != FP64:
            kind = f", dtype={self.dtype.name!r}"
        return f"CholeskyFactor(n={self.n}, tile_size={self.tile_size}, {where}{kind})"

    def _repr_html_(self) -> str:
        """What notebooks show: the tiles of L in the colours of their formats, and where it is."""
        store = self._store
        where = None if store is None else f"file {store.path}" if isinstance(store, FileStore) else store.name
        formats = None if store is None else store.formats
        return notebook_html(repr(self), factor_picture(self.grid, formats, self.formats, where))

    def _opened(self) -> AbstractStore:
        if self._store is None:
            raise ClosedError("this factor is closed; use it before its with block ends, or save it and load the file")
        blas_buffers.ensure(numpys=True)  # nearly all that is asked of a factor calls BLAS on the thread that asks
        return self._store


def _as_in_a_file(arithmetic_key: Mapping[str, Any]) -> dict[str, Any]:
    """The key as a factor that is loaded has it."""
    key: dict[str, Any] = json.loads(json.dumps(dict(arithmetic_key), allow_nan=False))
    return key


def _tiles_by_format(store: AbstractStore) -> dict[str, int]:
    """Number of tiles of each format in use."""
    if store.formats is None:
        return {store.fmt.name: store.grid.n_tiles}
    counts = Counter(fmt.name for fmt in store.formats)
    return {name: counts[name] for name in FORMATS if counts[name]}


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
