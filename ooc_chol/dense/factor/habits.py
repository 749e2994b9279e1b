"""What users of NumPy and SciPy look for on a factor, by its solves and products: samples, condition, determinant, indexing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from operator import index
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.dense.factor.conditioning import few_columns, one_norm_estimate
from ooc_chol.dense.factor.operators import AbstractTriangular, TransposedFactor, block_of
from ooc_chol.hardware.arrays import device_of
from ooc_chol.hardware.registry import device_kind


class SignAndLogdet(NamedTuple):
    """The determinant of A as ``sign * exp(logabsdet)``, as ``numpy.linalg.slogdet`` gives it.

    Parameters
    ----------
    sign : float
        Always 1: A is positive definite.
    logabsdet : float
        The natural logarithm of the determinant.
    """

    sign: float
    logabsdet: float


class NormalGenerator(Protocol):
    """What draws independent unit normals: a ``numpy.random.Generator``, or CuPy's for samples on a GPU."""

    def standard_normal(self, size: Any = None) -> Any:
        """An array of that shape."""


class AbstractFactor(AbstractTriangular):
    """Methods of a factor that need its solves, products and rows only."""

    @abstractmethod
    def solve(self, b: ArrayLike) -> NDArray[np.float64]:
        """Solve ``A x = b``."""

    @abstractmethod
    def half_solve(self, b: ArrayLike, *, transposed: bool = False, overwrite_b: bool = False) -> NDArray[np.float64]:
        """Solve ``L y = b``, or ``L.T y = b``."""

    @abstractmethod
    def logdet(self) -> float:
        """Logarithm of the determinant of A."""

    @abstractmethod
    def rows(self, rows: range, stop: int) -> NDArray[np.float64]:
        """Read the entries ``L[rows, :stop]``."""

    @abstractmethod
    def _row_norms(self) -> NDArray[np.float64]:
        """Norms of the rows of L, the square roots of the diagonal of A."""

    @abstractmethod
    def _solved(self, title: str, b: ArrayLike, transposed: Sequence[bool], *, overwrite_b: bool = False) -> NDArray[np.float64]:
        """Solutions of ``L y = b``, or ``L.T y = b``, one after the other."""

    @property
    def T(self) -> TransposedFactor:
        """The transpose of L, a view: ``L.T @ x`` reads L once, and nothing is copied."""
        return TransposedFactor(self)

    def __getitem__(self, key: Any) -> Any:
        """Entries of L by integers and slices, as a new array, zero above the diagonal; only these rows are read."""
        return block_of(key, self.shape[0], self.rows)

    def solve_triangular(
        self, b: ArrayLike, trans: Literal[0, 1, "N", "T"] = 0, *, overwrite_b: bool = False
    ) -> NDArray[np.float64]:
        """Solve ``L y = b``, or with ``trans="T"`` ``L.T y = b``: :meth:`half_solve` under SciPy's name.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Right-hand sides.
        trans : {0, 1, "N", "T"}
            Which system, as ``scipy.linalg.solve_triangular`` has it: 0 or "N" that of L, 1 or "T" that of its transpose.
        overwrite_b : bool
            Whether the solutions may take the memory of ``b``, as for :meth:`solve`.

        Returns
        -------
        (n,) or (n, m) array
            The solutions, of the shape and kind of ``b``.

        Raises
        ------
        TypeError, ValueError, TierError
            As for :meth:`half_solve`; or ``trans`` is another word.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> factor.solve_triangular(np.array([2.0, 5.0]))
        array([1., 2.])
        """
        if trans not in (0, 1, "N", "T"):
            raise ValueError(f"trans is {trans!r}, but it is 0 or 'N' for L y = b, and 1 or 'T' for L.T y = b")
        return self.half_solve(b, transposed=trans in (1, "T"), overwrite_b=overwrite_b)

    def slogdet(self) -> SignAndLogdet:
        """Sign and logarithm of the determinant of A, as ``numpy.linalg.slogdet(A)``.

        Returns
        -------
        SignAndLogdet
            ``sign``, which is 1, and ``logabsdet``, as :meth:`logdet`.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.
        """
        return SignAndLogdet(1.0, self.logdet())

    def sample(
        self,
        size: int | Sequence[int] | None = None,
        rng: NormalGenerator | int | None = None,
        *,
        mean: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Draw from the normal distribution with covariance A, ``mean + L @ z`` with independent unit normals ``z``.

        Parameters
        ----------
        size : int or sequence of int, optional
            How many samples, or a shape of them; one vector when not given.
        rng : Generator, int or None
            A generator of random numbers, or the seed of one. One of CuPy gives samples in its GPU's memory.
        mean : (n,) array_like or float, optional
            The expectation; zero when not given.

        Returns
        -------
        (n,) or (size, n) array
            The samples, one a row, as ``numpy.random.Generator.multivariate_normal`` gives them.

        Raises
        ------
        TypeError, ValueError
            ``size`` is no number of samples, or the mean has another shape.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Cost ``n**2`` flops a sample, one reading of L for all of them, and memory for three times the samples. The first
        samples of a seed are the same for every ``size``, but for roundings.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> samples = factor.sample(10_000, rng=1, mean=[10.0, 20.0])
        >>> samples.shape, samples.mean(axis=0).round(1), np.cov(samples.T).round(0)
        ((10000, 2), array([10., 20.]), array([[4., 2.],
               [2., 5.]]))
        """
        n = self.shape[0]
        shape = () if size is None else _shape_of(size)
        if mean is not None and np.shape(mean) not in ((), (n,)):
            raise ValueError(f"the mean has shape {np.shape(mean)}, but A is ({n}, {n}): it must be ({n},), or a number")
        generator: Any = rng if hasattr(rng, "standard_normal") else np.random.default_rng(rng)
        samples: Any = (self @ generator.standard_normal((math.prod(shape), n)).T).T
        if mean is not None:
            samples += _beside(samples, mean)
        drawn: NDArray[np.float64] = samples.reshape(*shape, n)
        return drawn

    def cond(self, *, equilibrated: bool = False) -> float:
        """Estimate the condition number of A in the 1-norm, ``||A|| ||inv(A)||``.

        Parameters
        ----------
        equilibrated : bool
            That of A scaled to a diagonal of ones, which no choice of units changes, and which is what the accuracy of a solution
            depends on.

        Returns
        -------
        float
            A lower bound that is nearly always within a factor of 3, and mostly exact. One over it is LAPACK's ``rcond``.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Block estimates of both norms with two vectors, as ``scipy.sparse.linalg.onenormest``: Higham and Tisseur, SIAM J. Matrix
        Anal. Appl. 21 (2000), algorithm 2.4, from products with L and solves: 16 to 24 readings of L as a rule, 40 at most. It is
        ``L @ L.T`` that is judged, in mixed precision not quite A.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> a = np.array([[4.0, 2.0], [2.0, 5.0]])
        >>> round(oc.cholesky(a).cond(), 6), round(float(np.linalg.cond(a, 1)), 6)
        (3.0625, 3.0625)
        """
        n = self.shape[0]
        norms = self._row_norms()[:, None] if equilibrated else np.ones((n, 1))

        def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return (self @ (self.T @ (x / norms))) / norms

        def solution(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return norms * self._solved("condition", norms * x, (False, True))

        with few_columns(n):
            return one_norm_estimate(product, n) * one_norm_estimate(solution, n)


def _beside(samples: Any, mean: ArrayLike) -> Any:
    """The mean in the memory that the samples lie in."""
    home = device_of(samples)
    if home is None or device_of(mean) is not None:
        return mean if device_of(mean) is not None else np.asarray(mean, dtype=np.float64)
    return device_kind(home).to_device(home, np.asarray(mean, dtype=np.float64))


def _shape_of(size: int | Sequence[int]) -> tuple[int, ...]:
    """``size`` as a shape."""
    shape = tuple(map(index, size)) if isinstance(size, Sequence) else (index(size),)
    if min(shape, default=0) < 0:
        raise ValueError(f"size is {size}, but a number of samples is not negative")
    return shape
