"""Report of an eigensolver: passes, bytes over each link, planned and executed, seconds, and certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.page import Line, link_lines
from ooc_chol.calls.report import AbstractPlannedReport, CallBytes, CallSeconds
from ooc_chol.config import format_bytes
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.state import CheckRound, LanczosCounts
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.tracing.trace import Trace

#: Pairs that have a line of their own on the printed page.
_MOST_PAIRS = 12


@dataclass(frozen=True)
class EigshMoves:
    """Scans and bytes of vectors, counted from the copies that were issued by this call."""

    #: Scans of all blocks: products with a panel, and those of certificates, which take two where float64 finds less room
    products: int = 0
    exchanged_bytes: int = 0  #: Bytes that the devices copied from each other
    brought_bytes: int = 0  #: Bytes of vectors and coefficients to the devices, and back
    returned_bytes: int = 0


@dataclass(frozen=True, repr=False)
class EigshReport(AbstractPlannedReport):
    """Report of :func:`ooc_chol.eigsh`.

    Parameters
    ----------
    plan : EigshPlan
        The plan.
    method : str
        ``"lanczos"``, ``"lobpcg"``, ``"shift-invert"`` or ``"dense"``; another than the plan's where Lanczos led nowhere.
    tol : float
        Largest residual of a pair that counts as converged, relative to ``scale``.
    floor : float
        Smallest ``tol`` that this precision reaches.
    block : int
        Columns of a panel.
    ncv : int
        Columns of the basis.
    counts : LanczosCounts
        Products with A, restarts and check sweeps, those of an earlier run that was gone on from among them.
    eigenvalues, residuals : (k,) array
        Ascending; ``||A v - w v|| / ||v||`` relative to ``scale``, computed in float64.
    scale : float
        Largest magnitude of an eigenvalue that was seen.
    why_not : str
        Why not all have converged; empty where they have.
    key : mapping
        Arithmetic key, without contents of A.
    seconds : CallSeconds
        Seconds of the whole call and its parts: ``"pack"``, ``"plan"``, ``"run"`` from the first product to the last
        certificate, and of that run ``"checkpoints"`` and ``"host"``, and on devices ``"passes"`` and ``"orthogonalization"`` by
        their own clocks, and ``"waited"`` for them.
    bytes : CallBytes
        Bytes of blocks over each link; none where A multiplied by itself on the host.
    moves : EigshMoves or None
        Scans, and bytes of vectors; None where A multiplied by itself on the host.
    resumed : int
        Products of an earlier run that this one went on from.
    checkpoints : int
        Checkpoints that were written.
    sigma : float or None
        The shift whose inverse was taken: the caller's sigma, or one beside it where A has eigenvalues at sigma; None
        where none was.
    notes : tuple of str
        Sentences on that shift, on eigenvalues that are sigma to roundoff, such as those of null vectors, and on a first run
        with the planned basis where that had not converged.
    cluster : ClusterProducts or None
        Products on the workers of a cluster, where there was one.
    """

    call: ClassVar[str] = "eigsh"

    plan: EigshPlan
    method: str
    tol: float
    floor: float
    block: int
    ncv: int
    counts: LanczosCounts
    eigenvalues: NDArray[np.float64]
    residuals: NDArray[np.float64]
    scale: float
    why_not: str
    key: Mapping[str, Any]
    seconds: CallSeconds = CallSeconds()  # noqa: RUF009 - it is frozen
    bytes: CallBytes = CallBytes()  # noqa: RUF009 - it is frozen
    moves: EigshMoves | None = None
    resumed: int = 0
    checkpoints: int = 0
    sigma: float | None = None
    notes: tuple[str, ...] = ()
    cluster: ClusterProducts | None = None

    @property
    def n(self) -> int:
        """Rows of A."""
        return self.plan.problem.n

    @property
    def k(self) -> int:
        """Eigenpairs that were wanted."""
        return self.plan.k

    @property
    def which(self) -> str:
        """From which end."""
        return self.plan.which

    @property
    def precision(self) -> Precision:
        """Types of vectors and arithmetic."""
        return self.plan.problem.precision

    @property
    def passes(self) -> int:
        """Products that built the basis, each with one panel."""
        return self.counts.passes

    @property
    def restarts(self) -> int:
        """How often the basis was made small again."""
        return self.counts.restarts

    @property
    def certificate_passes(self) -> int:
        """Products for residuals, each with one panel."""
        return self.counts.certificate_passes

    @property
    def checks(self) -> tuple[CheckRound, ...]:
        """Check sweeps, in their order."""
        return tuple(self.counts.checks)

    @property
    def missed(self) -> int:
        """Eigenpairs that check sweeps found to be missing; the run went on to find them."""
        return sum(each.missed for each in self.counts.checks)

    @property
    def degree(self) -> int:
        """Degree of the Chebyshev filter that was taken; 1 where none was."""
        return self.counts.degree

    @property
    def asymmetry(self) -> float:
        """Asymmetry of the projected matrix at the first restart, relative to its largest entry."""
        return self.counts.asymmetry

    @property
    def bounds(self) -> NDArray[np.float64]:
        """(k,) bounds, in units of A, of the distance of each eigenvalue from one of A, but for roundoff of ``scale``."""
        return np.asarray(self.residuals * self.scale)

    @property
    def worst(self) -> float:
        """The largest residual."""
        return float(self.residuals.max(initial=0.0))

    def figures(self) -> Mapping[str, object]:
        """The problem, counts, pairs and vectors."""
        moves = self.moves
        return {
            "n": self.n,
            "k": self.k,
            "which": self.which,
            "method": self.method,
            "precision": self.precision.value,
            "tol": self.tol,
            "floor": self.floor,
            "block": self.block,
            "ncv": self.ncv,
            **asdict(self.counts),
            "eigenvalues": self.eigenvalues.tolist(),
            "residuals": self.residuals.tolist(),
            "worst_residual": self.worst,
            "scale": self.scale,
            "why_not": self.why_not,
            "moves": None if moves is None else asdict(moves),
            "checkpoints": self.checkpoints,
            "sigma": self.plan.sigma if self.sigma is None else self.sigma,
            "notes": list(self.notes),
            "cluster": None if self.cluster is None else self.cluster.figures(),
        }

    def traced(self, trace: Trace) -> Trace:
        """A trace that says of itself what this report says.

        Parameters
        ----------
        trace : Trace
            Trace of the same run.

        Returns
        -------
        Trace
            With more metadata.
        """
        told: dict[str, str | int | float] = {
            "k": self.k,
            "which": self.which,
            "method": self.method,
            "tol": self.tol,
            "ncv": self.ncv,
            "restarts": self.restarts,
            "worst residual": self.worst,
        }
        return replace(trace, metadata={**trace.metadata, **told})

    def facts(self) -> Mapping[str, object]:
        """The problem, the method, passes and seconds."""
        facts: dict[str, object] = {"n": self.n, "k": self.k, "method": self.method, "passes": self.passes}
        return facts | {"restarts": self.restarts, "worst_residual": self.worst, "seconds": self.seconds.total}

    def lines(self) -> Iterator[Line]:
        """The method, passes, the check, pairs with their bounds, what moved, and seconds."""
        pairs = f"{self.plan.wanted_text} of a matrix of order {self.n} in {self.precision.value}"
        yield "", f"{pairs}: {self.why_not or 'all have converged'}"
        basis = f"a basis of {self.ncv} vectors"
        chebyshev = f", a Chebyshev filter of degree {self.degree}" if self.degree > 1 else ""
        shift = "" if self.sigma is None else f" at {self.sigma!r}"
        yield "method", f"{self.method}{shift}, {basis}, panels of {self.block}{chebyshev}"
        if why := self.plan.problem.why:
            yield "devices", f"{', '.join(self.devices)}, {why}"
        for note in self.notes:
            yield "note", note
        yield "passes", self._passes_text()
        yield "check", self._check_text()
        yield "residuals", f"worst {self.worst:.2g} of {self.scale:.6g}; tol {self.tol:g}, floor {self.floor:g}"
        order = np.argsort(-np.abs(self.eigenvalues), kind="stable")[:_MOST_PAIRS]
        for at in order:
            yield "", f"  {'':<10} {self.eigenvalues[at]:>24.16g} +- {self.bounds[at]:.1e}"
        if len(self.eigenvalues) > _MOST_PAIRS:
            yield "", f"  {'':<10} ... and {len(self.eigenvalues) - _MOST_PAIRS} more"
        if self.cluster is not None:
            yield from self.cluster.worker_lines()
            yield from self.cluster.lines()
        elif self.moves is not None:
            moves = self.moves
            yield from link_lines(self.bytes.executed, self.bytes.planned, self.seconds.parts.get("run", 0.0))
            vectors = f"{format_bytes(moves.brought_bytes)} in, {format_bytes(moves.returned_bytes)} out"
            yield "vectors", f"{vectors}, {format_bytes(moves.exchanged_bytes)} among the devices"
        yield "seconds", self._seconds_text()
        if self.checkpoints or self.resumed:
            since = f"; went on from one after {self.resumed} passes" if self.resumed else ""
            yield "checkpoint", f"{self.checkpoints} written{since}"

    def _passes_text(self) -> str:
        width = f" of {self.block} columns" if self.block > 1 else ""
        restarts = f"{self.restarts} restart{'s' * (self.restarts != 1)}"
        return f"{self.passes}{width}, {restarts}; {self.certificate_passes} more for residuals"

    def _check_text(self) -> str:
        if not self.counts.checks:
            return "not made"
        missed = f"found {self.missed} that had been missed" if self.missed else "found nothing that had been missed"
        passes = sum(each.passes for each in self.counts.checks)
        sweeps = len(self.counts.checks)
        return f"{sweeps} sweep{'s' * (sweeps != 1)}, {passes} passes: {missed}"

    def _seconds_text(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3g}" for name, seconds in self.seconds.parts.items() if seconds)
        return f"{self.seconds.total:.3g} in all: {parts}"
