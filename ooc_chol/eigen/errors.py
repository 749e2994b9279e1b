"""Errors of eigensolvers that SciPy has too, apart from all others because SciPy's solvers take a tenth of a second to import."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence

from ooc_chol.errors import OocCholError


class NoConvergenceError(OocCholError, ArpackNoConvergence):  # type: ignore[misc]
    """Not all wanted eigenpairs have converged; those that have are in the error.

    Parameters
    ----------
    wanted : int
        How many were wanted.
    eigenvalues : (m,) array
        Those that have converged, ascending.
    eigenvectors : (n, m) array
        Theirs, as columns.
    residuals : (m,) array
        ``||A v - value v|| / ||v||`` of each, relative to the largest magnitude of an eigenvalue, computed in float64.
    worst : float
        The largest of those that have not converged.
    tol : float
        Up to which they count as converged.
    reason : str
        Why the run ended.
    advice : str
        Advice for the user, the end of the message.
    what : str
        Kind of the wanted results, in the plural: eigenpairs, or singular triplets, whose values and right vectors stand in their
        places.
    """

    def __init__(
        self,
        wanted: int,
        eigenvalues: NDArray[np.float64],
        eigenvectors: NDArray[np.floating],
        residuals: NDArray[np.float64],
        worst: float,
        tol: float,
        reason: str,
        advice: str,
        what: str = "eigenpairs",
    ) -> None:
        self.wanted = wanted
        self.residuals = residuals
        self.worst = worst
        self.tol = tol
        self.reason = reason
        self.advice = advice
        self.what = what
        text = (
            f"{len(eigenvalues)} of {wanted} {what} have residuals up to tol = {tol:g} of the largest value, and the "
            f"worst of the others {worst:.2g}: {reason}; {advice}; those that have converged are in the error's eigenvalues, "
            "eigenvectors and residuals"
        )
        ArpackNoConvergence.__init__(self, text, eigenvalues, eigenvectors)
        self.args = (text,)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        pairs = self.eigenvalues, self.eigenvectors, self.residuals
        facts = self.wanted, *pairs, self.worst, self.tol, self.reason, self.advice, self.what
        return type(self), facts
