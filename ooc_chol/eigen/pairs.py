"""Eigenpairs with what is known of them."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import one_line
from ooc_chol.eigen.report import EigshReport
from ooc_chol.tracing.trace import Trace


@final
class Eigenpairs(tuple[NDArray[np.float64], NDArray[Any]]):
    """Eigenvalues and eigenvectors, which unpack as SciPy's do: ``w, v = pairs``.

    Parameters
    ----------
    eigenvalues : (k,) float64 array
        Ascending.
    eigenvectors : (n, k) array
        Vectors of norm 1, as columns, of the type in which vectors were stored.
    residuals : (k,) float64 array
        ``||A v - w v|| / ||v||`` of each pair, relative to the largest magnitude of an eigenvalue that was seen. They are
        computed in float64 from the vectors that are returned, whatever the precision.
    report : EigshReport
        Report of the call: passes over A, restarts, check sweeps.
    trace : Trace or None
        Every copy and computation on devices, where it was asked for.
    """

    eigenvalues: NDArray[np.float64]
    eigenvectors: NDArray[Any]
    residuals: NDArray[np.float64]
    report: EigshReport
    trace: Trace | None

    def __new__(
        cls,
        eigenvalues: NDArray[np.float64],
        eigenvectors: NDArray[Any],
        residuals: NDArray[np.float64],
        report: EigshReport,
        trace: Trace | None,
    ) -> Eigenpairs:
        """Pairs of values and vectors, in the same order."""
        made = super().__new__(cls, (eigenvalues, eigenvectors))
        made.eigenvalues, made.eigenvectors, made.residuals = eigenvalues, eigenvectors, residuals
        made.report, made.trace = report, trace
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.eigenvalues, self.eigenvectors, self.residuals, self.report, self.trace

    def __repr__(self) -> str:
        worst = float(self.residuals.max(initial=0.0))
        return one_line(self, {"k": len(self.eigenvalues), "n": len(self.eigenvectors), "worst_residual": worst})
