"""Result of ``oc.svds``: singular triplets with the residuals of both sides, and a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.tracing.trace import Trace


@dataclass(frozen=True)
class SvdsReport:
    """Report of a call of :func:`ooc_chol.svds`.

    Parameters
    ----------
    shape : (int, int)
        Of A.
    squared : str
        Which square was worked on, the smaller one: ``"A.T A"`` or ``"A A.T"``; ``"none"`` where LAPACK took all of A.
    precision : str
        Types of vectors, products and sums.
    block, ncv : int
        Columns of a panel, and of the basis.
    passes : int
        Products with the square that built the basis, each with one panel: two scans.
    scans : int
        Scans of A and of its transpose, all together.
    restarts : int
        How often the basis was made small again.
    missed : int
        Values that check sweeps found to be missing, and that the run went on for.
    floor : float
        Smallest residual to be expected of the smallest value, relative to the largest: squares of values lose the small ones.
    bytes_executed : dict of str to int
        Bytes of blocks over each link.
    seconds : float
        Of the whole call, packing aside.
    """

    shape: tuple[int, int]
    squared: str
    precision: str
    block: int
    ncv: int
    passes: int
    scans: int
    restarts: int
    missed: int
    floor: float
    bytes_executed: dict[str, int]
    seconds: float

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
        return {**vars(self), "shape": list(self.shape), "bytes_executed": dict(self.bytes_executed)}

    def __repr__(self) -> str:
        return one_line(self, {"shape": self.shape, "scans": self.scans, "restarts": self.restarts, "seconds": self.seconds})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        rows, columns = self.shape
        yield "", f"Singular triplets of a {rows} x {columns} matrix in {self.precision}"
        if self.squared == "none":
            yield "method", "LAPACK, since a basis would be as large as A"
        else:
            yield "method", f"block Lanczos on {self.squared}, blocks of {self.block}, basis of {self.ncv} columns"
        yield "passes", f"{self.passes}, {self.restarts} restarts; {self.scans} scans of A or its transpose, residuals included"
        if self.missed:
            yield "check", f"{self.missed} values were missing at first, and have been found"
        yield "floor", f"{self.floor:.1g} of the largest value, for the residual of the smallest of these"
        for link, nbytes in self.bytes_executed.items():
            yield "moved", f"{link} {format_bytes(nbytes)}"
        yield "seconds", f"{self.seconds:.3g}"


@final
@dataclass(frozen=True, repr=False)
class SingularTriplets:
    """Singular triplets; unpacks as SciPy's: ``u, s, vt = oc.svds(A, k)``, ascending.

    Parameters
    ----------
    u : (m, k) float64 array or None
        Left singular vectors as columns; None where no vectors were asked for.
    s : (k,) float64 array
        Singular values, ascending.
    vt : (k, n) float64 array or None
        Right singular vectors as rows.
    left_residuals, right_residuals : (k,) float64 array
        ``||A v - s u||`` and ``||A.T u - s v||`` of each, relative to the largest singular value, computed in float64.
    report : SvdsReport
        What was done.
    trace : Trace or None
        Every copy and product, where that was asked for.
    """

    u: NDArray[np.float64] | None
    s: NDArray[np.float64]
    vt: NDArray[np.float64] | None
    left_residuals: NDArray[np.float64]
    right_residuals: NDArray[np.float64]
    report: SvdsReport
    trace: Trace | None = None

    @property
    def residuals(self) -> NDArray[np.float64]:
        """The larger of both sides of each."""
        found: NDArray[np.float64] = np.maximum(self.left_residuals, self.right_residuals)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter((self.u, self.s, self.vt))

    def __repr__(self) -> str:
        facts = {"k": len(self.s), "shape": self.report.shape, "passes": self.report.passes}
        return one_line(self, facts | {"residual": float(f"{self.residuals.max(initial=0.0):.2g}")})
