"""Sums over the inverse of A and over solutions with L, of matrices that are never stored."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.inverse import check_width
from ooc_chol.dense.factor.solved import AbstractSolvedFactor
from ooc_chol.dense.factor.solves import right_hand_side
from ooc_chol.dense.factor.trace_sums import HalfSolveSums, InverseTraces, check_border, check_matrices
from ooc_chol.memory.sources.function import FunctionSource


class AbstractSummedFactor(AbstractSolvedFactor):
    """Sums of a factor; the parameters are those of :class:`~ooc_chol.CholeskyFactor`."""

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
        check_width(width)
        return self._place.inverse_panels(self._opened(), width, self._passes)

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
        check_width(width)
        with self._passes.running("inverse diagonal", self.n) as run:
            return self._place.inverse_diagonal(store, width, run)

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
        with self._passes.running("inverse traces", self.n) as run:
            return self._place.inverse_traces(store, matrices, vectors=columns, run=run)

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
        with self._passes.running("half-solve sums", len(columns)) as run:
            return self._place.half_solve_sums(store, matrix, columns, vectors=beside, width=width, run=run)
