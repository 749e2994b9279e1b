"""Result of ``oc.svds``: singular triplets with the residuals of both sides, and a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.page import Line, link_lines
from ooc_chol.calls.report import AbstractPlannedReport, CallBytes, CallSeconds
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.svds_plan import SvdsPlan
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.tracing.trace import Trace


@dataclass(frozen=True, repr=False)
class SvdsReport(AbstractPlannedReport):
    """Report of a call of :func:`ooc_chol.svds`.

    Parameters
    ----------
    plan : SvdsPlan
        The plan.
    tol : float
        Largest residual of a triplet that counts as converged, relative to the largest singular value.
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
    key : mapping
        Arithmetic key, without contents of A.
    seconds : CallSeconds
        Seconds of the whole call, and of its parts: ``"pack"``, ``"plan"``, ``"run"``, and of that ``"checkpoints"``.
    bytes : CallBytes
        Bytes of blocks over each link; none where A multiplied by itself.
    resumed : int
        Passes of an earlier run that this one went on from.
    checkpoints : int
        Checkpoints that were written.
    notes : tuple of str
        Sentence on a first run with the planned basis, where that had not converged.
    cluster : ClusterProducts or None
        Products on the workers of a cluster, where there was one.
    """

    call: ClassVar[str] = "svds"

    plan: SvdsPlan
    tol: float
    passes: int
    scans: int
    restarts: int
    missed: int
    floor: float
    key: Mapping[str, Any]
    seconds: CallSeconds
    bytes: CallBytes
    resumed: int = 0
    checkpoints: int = 0
    notes: tuple[str, ...] = ()
    cluster: ClusterProducts | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of A."""
        return self.plan.shape

    @property
    def precision(self) -> str:
        """Types of vectors, products and sums."""
        return self.plan.precision.value

    @property
    def squared(self) -> str:
        """The square that was worked on: ``"A.T A"`` or ``"A A.T"``; ``"none"`` where LAPACK took all of A."""
        return self.plan.squared

    @property
    def block(self) -> int:
        """Columns of a panel."""
        return self.plan.block

    @property
    def ncv(self) -> int:
        """Columns of the basis."""
        return self.plan.ncv

    def figures(self) -> Mapping[str, object]:
        """The problem, the basis, passes and the floor."""
        return {
            "shape": list(self.shape),
            "squared": self.squared,
            "precision": self.precision,
            "block": self.block,
            "ncv": self.ncv,
            "tol": self.tol,
            "passes": self.passes,
            "scans": self.scans,
            "restarts": self.restarts,
            "missed": self.missed,
            "floor": self.floor,
            "checkpoints": self.checkpoints,
            "notes": list(self.notes),
            "cluster": None if self.cluster is None else self.cluster.figures(),
        }

    def facts(self) -> Mapping[str, object]:
        """The shape, scans, restarts and seconds."""
        return {"shape": self.shape, "scans": self.scans, "restarts": self.restarts, "seconds": self.seconds.total}

    def lines(self) -> Iterator[Line]:
        """The method, passes, the floor, what moved, and seconds."""
        rows, columns = self.shape
        yield "", f"Singular triplets of a {rows} x {columns} matrix in {self.precision}"
        if self.squared == "none":
            yield "method", f"LAPACK, all {min(rows, columns)} triplets"
        else:
            yield "method", f"block Lanczos on {self.squared}, blocks of {self.block}, basis of {self.ncv} columns"
        if why := self.plan.why:
            yield "devices", f"{', '.join(self.devices)}, {why}"
        for note in self.notes:
            yield "note", note
        yield "passes", f"{self.passes}, {self.restarts} restarts; {self.scans} scans of A or its transpose, residuals included"
        if self.missed:
            yield "check", f"{self.missed} values were missing at first, and have been found"
        yield "floor", f"{self.floor:.1g} of the largest value, for the residual of the smallest of these"
        if self.cluster is None:
            yield from link_lines(self.bytes.executed, self.bytes.planned, self.seconds.parts.get("run", 0.0))
        else:
            yield from self.cluster.worker_lines()
            yield from self.cluster.lines()
        yield "seconds", f"{self.seconds.total:.3g}"
        if self.checkpoints or self.resumed:
            since = f"; went on from one after {self.resumed} passes" if self.resumed else ""
            yield "checkpoint", f"{self.checkpoints} written{since}"


@final
@dataclass(frozen=True, repr=False)
class SingularTriplets:
    """Singular triplets; unpacks as SciPy's: ``u, s, vt = oc.svds(A, k)``, ascending.

    Parameters
    ----------
    u : (m, k) float64 array or None
        Left singular vectors as columns; None where only those of the right were asked for.
    s : (k,) float64 array
        Singular values, ascending.
    vt : (k, n) float64 array or None
        Right singular vectors as rows; None where only those of the left were asked for.
    left_residuals, right_residuals : (k,) float64 array
        ``||A v - s u||`` and ``||A.T u - s v||`` of each, relative to the largest singular value, computed in float64.
    report : SvdsReport
        Report of the call.
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

    def __getitem__(self, at: int) -> Any:
        return (self.u, self.s, self.vt)[at]

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return iter((self.u, self.s, self.vt))

    def __repr__(self) -> str:
        facts = {"k": len(self.s), "shape": self.report.shape, "passes": self.report.passes}
        return one_line(self, facts | {"residual": float(f"{self.residuals.max(initial=0.0):.2g}")})
