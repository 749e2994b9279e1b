"""The factors of a batch of small matrices, and the report of making them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ooc_chol.calls.report import CallSeconds
from ooc_chol.display.prints import one_line
from ooc_chol.errors import ClosedError
from ooc_chol.hardware.arrays import device_of, like
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels
from ooc_chol.process.closing import AbstractClosing


@dataclass(frozen=True)
class BatchReport:
    """Report of the factorization of a batch.

    Parameters
    ----------
    count, n : int
        Number of matrices, and the order of each.
    device : str
        Where they were factored.
    seconds : CallSeconds
        Seconds of the whole call, and of its ``"run"``: the routines that factor.
    """

    count: int
    n: int
    device: str
    seconds: CallSeconds

    @property
    def flops(self) -> float:
        """Flops of all factorizations, ``n**3 / 3`` each."""
        return self.count * self.n**3 / 3

    def to_dict(self) -> dict[str, Any]:
        """The figures as a JSON object.

        Returns
        -------
        dict
            Numbers and text by name.
        """
        return {**asdict(self), "seconds": self.seconds.to_dict(), "flops": self.flops}

    def __repr__(self) -> str:
        return one_line(self, {**vars(self), "seconds": self.seconds.total, "flops": self.flops})

    def __str__(self) -> str:
        total = self.seconds.total
        rate = f" ({self.flops / total / 1e9:.4g} GFLOP/s)" if total > 0 else ""
        return (
            f"Batch of {self.count} Cholesky factors of order {self.n} on {self.device}: "
            f"{total:.3g} s for the whole call{rate}; {self.seconds.parts['run']:.3g} inside"
        )


@final
class BatchFactor(AbstractClosing):
    """The lower triangular factors of a batch, ``A[i] = L[i] @ L[i].T``; made by ``cholesky`` of an array ``(b, n, n)``.

    Parameters
    ----------
    kernels : AbstractBatchKernels
        Kernels of the device where the factors lie.
    stack : (b, n, n) array
        The factors, on the device; the batch keeps them.
    report : BatchReport
        Report of making them.

    Notes
    -----
    The factors lie on the device that made them: in host memory, or on the GPU where A lay. Several threads may call methods at
    once. ``np.asarray(L)`` is all of them, ``L[i]`` one.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> factors = oc.cholesky(
    ...     np.array([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 0.0], [0.0, 1.0]]])
    ... )
    >>> factors.solve(np.array([[8.0, 12.0], [3.0, 4.0]]))
    array([[1., 2.],
           [3., 4.]])
    >>> factors.logdet().round(4)
    array([2.7726, 0.    ])
    """

    def __init__(self, kernels: AbstractBatchKernels, stack: Tile, report: BatchReport) -> None:
        self._kernels = kernels
        self._stack: Tile | None = stack
        self.shape: tuple[int, int, int] = stack.shape
        self.report = report

    @property
    def n(self) -> int:
        """Order of each matrix."""
        return self.shape[1]

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Type of factors and results."""
        return np.dtype(np.float64)

    @property
    def device(self) -> str:
        """The device on which the factors lie."""
        return self.report.device

    def solve(self, b: ArrayLike) -> NDArray[np.float64]:
        """Solve ``A[i] x[i] = b[i]`` for every matrix.

        Parameters
        ----------
        b : (b, n) or (b, n, m) array_like
            A right-hand side for each matrix, or m of them; not changed.

        Returns
        -------
        (b, n) or (b, n, m) array
            The solutions, a new array of the shape of ``b``; for a CuPy array, or one of torch or JAX on a GPU, of its kind and
            in that GPU's memory.

        Raises
        ------
        TypeError, ValueError
            ``b`` is no array of finite real numbers of such a shape.
        ClosedError
            The factors were closed.

        Notes
        -----
        Cost ``2 n**2 m`` flops for each matrix.
        """
        return self._solved(b, (False, True))

    def half_solve(self, b: ArrayLike, *, transposed: bool = False) -> NDArray[np.float64]:
        """Solve ``L[i] y[i] = b[i]``, or ``L[i].T y[i] = b[i]``, for every matrix.

        Parameters
        ----------
        b : (b, n) or (b, n, m) array_like
            As for :meth:`solve`.
        transposed : bool
            Solve with the transposes.

        Returns
        -------
        (b, n) or (b, n, m) array
            The solutions, as :meth:`solve` gives them.

        Raises
        ------
        TypeError, ValueError, ClosedError
            As for :meth:`solve`.
        """
        return self._solved(b, (transposed,))

    def _solved(self, b: ArrayLike, transposed: Sequence[bool]) -> NDArray[np.float64]:
        """Solutions of triangular systems, one after the other."""

        def compute(stack: Tile, x: Tile) -> Tile:
            for system in transposed:
                self._kernels.solve(stack, x, transposed=system)
            return x

        return self._answer(b, compute)

    def matmul(self, z: ArrayLike) -> NDArray[np.float64]:
        """Multiply ``L[i] @ z[i]``: turns independent unit normals into samples with covariances ``A[i]``.

        Parameters
        ----------
        z : (b, n) or (b, n, m) array_like
            Right factors; not changed.

        Returns
        -------
        (b, n) or (b, n, m) array
            The products, as :meth:`solve` gives its solutions.

        Raises
        ------
        TypeError, ValueError, ClosedError
            As for :meth:`solve`.
        """
        return self._answer(z, self._kernels.multiply)

    def _answer(self, b: Any, compute: Callable[[Tile, Tile], Tile]) -> NDArray[np.float64]:
        """Compute on a copy of ``b`` beside the factors; the result as an array of its kind, in its place."""
        stack = self._opened()
        with self._kernels.current():
            x = self._kernels.right_hand_sides(b, self.shape)
            result = compute(stack, x).reshape(np.shape(b))
            home, kind = device_of(b), device_kind(self.device)
            if home == self.device:
                return _typed(like(result, b))
            host = kind.to_host(result)
            return host if home is None else _typed(like(device_kind(home).to_device(home, host), b))

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonals of the factors.

        Returns
        -------
        (b, n) array
            The entries ``L[i, k, k]``, all positive, as a new array in host memory.

        Raises
        ------
        ClosedError
            The factors were closed.
        """
        stack = self._opened()
        with self._kernels.current():
            return np.array(device_kind(self.device).to_host(stack.diagonal(0, 1, 2)))

    def logdet(self) -> NDArray[np.float64]:
        """Logarithms of the determinants, ``2 sum(log(L[i, k, k]))``.

        Returns
        -------
        (b,) array
            The natural logarithms, in host memory.

        Raises
        ------
        ClosedError
            The factors were closed.
        """
        return np.asarray(2.0 * np.log(self.diagonal()).sum(axis=1))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> Any:
        """Factor ``index``, an ``(n, n)`` array where the factors lie, zero above the diagonal."""
        return self._opened()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._opened())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All factors in host memory: they themselves, read-only, where they lie there."""
        return np.array(device_kind(self.device).to_host(self._opened()), dtype=dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where :meth:`__dlpack__` hands the factors over: where they lie."""
        device: tuple[int, int] = self._opened().__dlpack_device__()
        return device

    def __dlpack__(self, **options: Any) -> Any:
        """The factors where they lie, for ``from_dlpack`` of any library."""
        return self._opened().__dlpack__(**options)

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called: then the factors cannot be used, and what tries raises ``ClosedError``."""
        return self._stack is None

    def close(self) -> None:
        """Let go of the factors; a second call does nothing. ``report`` stays, and :attr:`closed` is true."""
        self._stack = None

    def __repr__(self) -> str:
        return one_line(self, {"shape": self.shape, **({"closed": True} if self.closed else {"device": self.device})})

    def _opened(self) -> Tile:
        if self._stack is None:
            raise ClosedError("these factors are closed; use them before their with block ends")
        return self._stack


def _typed(array: Any) -> NDArray[np.float64]:
    """An array of whatever library, as NumPy's for type checkers."""
    typed: NDArray[np.float64] = array
    return typed
