"""Methods that users of NumPy and SciPy look for on a factor: samples, condition, determinant, indexing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.config import whole_number
from ooc_chol.dense.factor.conditioning import few_columns, one_norm_estimate
from ooc_chol.dense.factor.operators import AbstractTriangular, TransposedFactor, block_of
from ooc_chol.errors import MissingValueError
from ooc_chol.files.inputs import plain_array
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
    """A source of independent unit normals: a ``numpy.random.Generator``, or CuPy's for samples on a GPU."""

    def standard_normal(self, size: Any = None) -> Any:
        """An array of that shape."""


class AbstractFactor(AbstractTriangular):
    """Methods of a factor that need its solves, products and rows only."""

    @abstractmethod
    def solve(self, b: ArrayLike) -> NDArray[Any]:
        """Solve ``A x = b``."""

    @abstractmethod
    def half_solve(self, b: ArrayLike, *, transposed: bool = False, overwrite_b: bool = False) -> NDArray[Any]:
        """Solve ``L y = b``, or with the adjoint of L."""

    @abstractmethod
    def logdet(self) -> float:
        """Logarithm of the determinant of A."""

    @abstractmethod
    def rows(self, rows: range, stop: int) -> NDArray[Any]:
        """Read the entries ``L[rows, :stop]``."""

    @abstractmethod
    def _row_norms(self) -> NDArray[Any]:
        """Norms of the rows of L, the square roots of the diagonal of A."""

    @abstractmethod
    def _solved(
        self, title: str, b: ArrayLike, transposed: Sequence[bool], *, conjugated: bool = False, overwrite_b: bool = False
    ) -> NDArray[Any]:
        """Solutions of ``L y = b``, or with the adjoint of L, one after the other; or with the conjugates of these."""

    @property
    def T(self) -> TransposedFactor:
        """The transpose of L, a view: ``L.T @ x`` reads L once, and nothing is copied."""
        return TransposedFactor(self)

    @property
    def H(self) -> TransposedFactor:
        """The adjoint of L, a view with ``A = L @ L.H``: ``L.T`` with conjugated entries where L is complex."""
        return TransposedFactor(self, conjugated=True)

    def __getitem__(self, key: Any) -> Any:
        """Entries of L by integers and slices, as a new array, zero above the diagonal; only these rows are read."""
        return block_of(key, self.shape[0], self.rows)

    def solve_triangular(
        self, b: ArrayLike, trans: Literal[0, 1, 2, "N", "T", "C"] = 0, *, overwrite_b: bool = False
    ) -> NDArray[Any]:
        """Solve ``L y = b``, with ``trans="T"`` ``L.T y = b``, or with ``trans="C"`` ``L.H y = b``, as SciPy's function does.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Right-hand sides.
        trans : {0, 1, 2, "N", "T", "C"}
            Which system, as ``scipy.linalg.solve_triangular`` has it: 0 or "N" that of L, 1 or "T" that of its transpose, 2 or
            "C" that of its adjoint, which is :meth:`half_solve` with ``transposed=True``.
        overwrite_b : bool
            True if the solutions may take the memory of ``b``, as for :meth:`solve`.

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
        if trans not in (0, 1, 2, "N", "T", "C"):
            raise ValueError(
                f"trans is {trans!r}, but it is 0 or 'N' for L y = b, 1 or 'T' for L.T y = b, 2 or 'C' for L.H y = b"
            )
        upper = trans not in (0, "N")
        return self._solved("half solve", b, (upper,), conjugated=trans in (1, "T"), overwrite_b=overwrite_b)

    def sample(
        self, size: int | Sequence[int] | None = None, rng: NormalGenerator | int | None = None, *, mean: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Draw from the normal distribution with covariance A, ``mean + L @ z`` with independent unit normals ``z``.

        Of a complex A from the circular complex one: for ``s`` without its mean, ``s s.H`` is A on average and ``s s.T`` is 0.
        Real and imaginary parts of ``z`` are independent with variance 1/2.

        Parameters
        ----------
        size : int or sequence of int, optional
            How many samples, or a shape of them; one vector when not given.
        rng : Generator, int or None
            A generator of random numbers, or the seed of one. One of CuPy gives samples in its GPU's memory.
        mean : (n,) array_like or float, optional
            The expectation, complex for a complex A only; zero when not given.

        Returns
        -------
        (n,) or (size, n) array
            The samples, one a row, as ``numpy.random.Generator.multivariate_normal`` gives them.

        Raises
        ------
        TypeError, ValueError
            ``size`` is no number of samples, or the mean is no numbers, has another shape or is complex for a real A.
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
        >>> (
        ...     samples.shape,
        ...     samples.mean(axis=0).round(1),
        ...     np.cov(samples.T).round(0),
        ... )
        ((10000, 2), array([10., 20.]), array([[4., 2.],
               [2., 5.]]))
        """
        n = self.shape[0]
        shape = () if size is None else _shape_of(size)
        mean = mean if mean is None or device_of(mean) is not None else _mean_of(mean, self.dtype)
        if mean is not None and np.shape(mean) not in ((), (n,)):
            raise ValueError(f"the mean has shape {np.shape(mean)}, but A is ({n}, {n}): it must be ({n},), or a number")
        if self.dtype.kind != "c" and mean is not None and _is_complex(mean):
            raise TypeError("the mean is complex, but A is real: give its real part")
        generator: Any = rng if hasattr(rng, "standard_normal") else _generator(rng)
        samples: Any = (self @ _unit_normals(generator, math.prod(shape), n, self.dtype).T).T
        if mean is not None:
            samples += _beside(samples, mean, self.dtype)
        drawn: NDArray[Any] = samples.reshape(*shape, n)
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
            Up to order 31 exact but for rounding, above a lower bound that is nearly always within a factor of 3, and mostly
            exact. One over it is LAPACK's ``rcond``.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Block estimates of both norms as ``scipy.sparse.linalg.onenormest``: Higham and Tisseur, SIAM J. Matrix Anal. Appl. 21
        (2000), algorithm 2.4, from products with L and solves: 16 to 24 readings of L as a rule, 40 at most, and 4 up to order
        31. It is the product of the factors that is judged, in mixed precision not quite A. Infinite where the inverse leaves the
        range of L's type.

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

        def product(x: NDArray[Any]) -> Any:
            return (self @ (self.H @ (x / norms))) / norms

        def solution(x: NDArray[Any]) -> Any:
            return norms * self._solved("condition", norms * x, (False, True))

        with few_columns(n):
            return one_norm_estimate(product, n) * one_norm_estimate(solution, n)


def _generator(rng: int | None) -> np.random.Generator:
    """NumPy's generator of that seed."""
    if isinstance(rng, bool):
        raise TypeError("rng is a bool; give a generator, or a seed")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rng is neither a generator nor a seed: {error}") from None


def _unit_normals(generator: Any, count: int, n: int, dtype: np.dtype[Any]) -> Any:
    """Independent unit normals, a sample a row: complex ones have parts of variance 1/2."""
    if dtype.kind != "c":
        return generator.standard_normal((count, n))
    parts = generator.standard_normal((count, n, 2))
    parts *= math.sqrt(0.5)
    return parts.view(np.complex128)[..., 0]


def _mean_of(mean: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A mean as an array of numbers; objects that are numbers in the type of the samples."""
    try:
        given = plain_array("mean", mean)
        if given.dtype.kind not in "biufcO":
            raise TypeError(f"it is of {given.dtype}")
        return given.astype(dtype) if given.dtype.kind == "O" else given
    except MissingValueError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        kind = ValueError if isinstance(error, OverflowError) else type(error)
        raise kind(
            f"mean is a {type(mean).__name__} that has no numbers: give a number, or one for each row of A ({error})"
        ) from None


def _is_complex(mean: Any) -> bool:
    """Tell whether a mean, of any library, is of complex numbers."""
    dtype = getattr(mean, "dtype", None)
    return "complex" in str(np.asarray(mean).dtype if dtype is None else dtype)


def _beside(samples: Any, mean: ArrayLike, dtype: np.dtype[Any]) -> Any:
    """The mean in the memory that the samples lie in."""
    home = device_of(samples)
    if home is None or device_of(mean) is not None:
        return mean if device_of(mean) is not None else np.asarray(mean, dtype=dtype)
    return device_kind(home).to_device(home, np.asarray(mean, dtype=dtype))


def _shape_of(size: int | Sequence[int]) -> tuple[int, ...]:
    """``size`` as a shape."""
    shape = tuple(whole_number(each, "size") for each in (size if isinstance(size, Sequence) else (size,)))
    if min(shape, default=0) < 0:
        raise ValueError(f"size is {size}, but a number of samples is not negative")
    return shape
