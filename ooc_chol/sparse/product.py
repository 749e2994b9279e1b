"""Product of a matrix with vectors: an array that knows how it was made."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.sparse.report import MultiplyReport
from ooc_chol.tracing.trace import Trace


@final
class Product(np.ndarray[tuple[int, ...], np.dtype[Any]]):
    """The array that :func:`ooc_chol.multiply` returns.

    Views of it have neither report nor trace, and what is computed with it is a plain array. The sum of its diagonal is
    ``numpy.trace(y)``.

    Attributes
    ----------
    report : MultiplyReport or None
        Seconds, bytes over each link, the plan and the key; None of a view.
    trace : Trace or None
        Every copy and product, where that was asked for; None of a view.
    """

    report: MultiplyReport | None = None
    trace: Trace | None = None  # type: ignore[assignment] # NumPy's method of that name is numpy.trace

    @classmethod
    def of(cls, y: NDArray[Any], report: MultiplyReport, trace: Trace | None) -> Product:
        """An array with its report; no number is copied.

        Parameters
        ----------
        y : array
            The product.
        report : MultiplyReport
            How it was made.
        trace : Trace or None
            Every operation, where that was asked for.

        Returns
        -------
        Product
            The same numbers.
        """
        made = y.view(cls)
        made.report, made.trace = report, trace
        return made

    def __array_wrap__(self, array: NDArray[Any], context: Any = None, return_scalar: bool = False) -> Any:
        """Result of an operation, as a plain array or a number."""
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar else plain

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions; ``numpy.trace`` would call a method of that name."""
        if function is np.trace:
            args = tuple(each.view(np.ndarray) if isinstance(each, Product) else each for each in args)
            kwargs = {name: each.view(np.ndarray) if isinstance(each, Product) else each for name, each in kwargs.items()}
            return np.trace(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))
