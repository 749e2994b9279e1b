"""Report of an eigensolver: passes, bytes over each link, planned and executed, seconds, and certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.state import CheckRound, LanczosCounts
from ooc_chol.precision.triples import Precision
from ooc_chol.tracing.trace import Trace

#: Pairs that have a line of their own on the printed page.
_MOST_PAIRS = 12
#: Links that have.
_MOST_LINKS = 2


@dataclass(frozen=True)
class EigshMoves:
    """Bytes over links, counted from the copies that were issued by this call."""

    #: Scans of all blocks: products with a panel, and those of certificates, which take two where float64 finds less room
    products: int = 0
    #: Bytes of blocks over each link, as the plan has them for so many scans, and as they were
    planned: Mapping[str, int] = field(default_factory=dict)
    executed: Mapping[str, int] = field(default_factory=dict)
    exchanged_bytes: int = 0  #: Bytes that the devices copied from each other
    brought_bytes: int = 0  #: Bytes of vectors and coefficients to the devices, and back
    returned_bytes: int = 0


@dataclass(frozen=True)
class EigshSeconds:
    """Where the seconds of a call went."""

    total: float = 0.0  #: From the first product to the last certificate
    passes: float = 0.0  #: Products with A, by the devices' own clocks
    orthogonalization: float = 0.0  #: Sums over rows, updates and rotations of the basis, by the first device's clock
    waited: float = 0.0  #: The host waited for the devices
    checkpoints: float = 0.0  #: Checkpoints were written or read

    @property
    def host(self) -> float:
        """The host itself worked: it enqueued, and solved projected problems."""
        return max(0.0, self.total - self.waited - self.checkpoints)


@dataclass(frozen=True)
class EigshReport:
    """Report of :func:`ooc_chol.eigsh`.

    Parameters
    ----------
    n : int
        Rows of A.
    k : int
        Eigenpairs that were wanted.
    which : str
        From which end.
    method : str
        ``"lanczos"``, ``"lobpcg"``, ``"shift-invert"`` or ``"dense"``.
    precision : Precision
        Types of vectors and arithmetic.
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
    seconds : EigshSeconds
        Where the seconds of this call went.
    moves : EigshMoves or None
        What crossed links; None where A multiplied by itself on the host.
    plan : EigshPlan or None
        The plan; None where A multiplied by itself on the host.
    key : mapping or None
        Arithmetic key, with a checksum of A, which names the result to the bit; None where no checkpoint was asked for.
    resumed_passes : int
        Products of an earlier run that this one went on from.
    checkpoints : int
        Checkpoints that were written.
    sigma : float or None
        The shift whose inverse was taken: the caller's sigma, or one beside it where A has eigenvalues at sigma; None
        where none was.
    """

    n: int
    k: int
    which: str
    method: str
    precision: Precision
    tol: float
    floor: float
    block: int
    ncv: int
    counts: LanczosCounts
    eigenvalues: NDArray[np.float64]
    residuals: NDArray[np.float64]
    scale: float
    why_not: str = ""
    seconds: EigshSeconds = field(default_factory=EigshSeconds)
    moves: EigshMoves | None = None
    plan: EigshPlan | None = None
    key: Mapping[str, Any] | None = None
    resumed_passes: int = 0
    checkpoints: int = 0
    sigma: float | None = None

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

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
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
            "seconds": {**asdict(self.seconds), "host": self.seconds.host},
            "moves": None
            if moves is None
            else {**asdict(moves), "planned": dict(moves.planned), "executed": dict(moves.executed)},
            "plan": None if self.plan is None else self.plan.to_dict(),
            "key": None if self.key is None else dict(self.key),
            "resumed_passes": self.resumed_passes,
            "checkpoints": self.checkpoints,
            "sigma": self.sigma,
        }

    def traced(self, trace: Trace) -> Trace:
        """A trace that says of itself what this report says.

        Parameters
        ----------
        trace : Trace
            Of the same run.

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

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.n, "k": self.k, "method": self.method, "passes": self.passes}
        return one_line(self, facts | {"restarts": self.restarts, "worst_residual": self.worst, "seconds": self.seconds.total})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
        pairs = f"{self.k} eigenpair{'s' * (self.k != 1)} ({self.which}) of a matrix of order {self.n} in {self.precision.value}"
        yield "", f"{pairs}: {self.why_not or 'all have converged'}"
        basis = f"a basis of {self.ncv} vectors"
        chebyshev = f", a Chebyshev filter of degree {self.degree}" if self.degree > 1 else ""
        shift = "" if self.sigma is None else f" at {self.sigma!r}"
        yield "method", f"{self.method}{shift}, {basis}, panels of {self.block}{chebyshev}"
        yield "passes", self._passes_text()
        yield "check", self._check_text()
        yield "residuals", f"worst {self.worst:.2g} of {self.scale:.6g}; tol {self.tol:g}, floor {self.floor:g}"
        order = np.argsort(-np.abs(self.eigenvalues), kind="stable")[:_MOST_PAIRS]
        for at in order:
            yield "", f"  {'':<10} {self.eigenvalues[at]:>24.16g} +- {self.bounds[at]:.1e}"
        if len(self.eigenvalues) > _MOST_PAIRS:
            yield "", f"  {'':<10} ... and {len(self.eigenvalues) - _MOST_PAIRS} more"
        if self.moves is not None:
            yield from self._moves_lines(self.moves)
        yield "seconds", self._seconds_text()
        if self.checkpoints or self.resumed_passes:
            since = f"; went on from one after {self.resumed_passes} passes" if self.resumed_passes else ""
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

    def _moves_lines(self, moves: EigshMoves) -> Iterator[tuple[str, str]]:
        executed, planned = dict(moves.executed), dict(moves.planned)
        if len(executed) > _MOST_LINKS:
            name = f"{len(executed)} links"
            executed, planned = {name: sum(executed.values())}, {name: sum(planned.values())}
        for link, nbytes in executed.items():
            rate = f", {format_bytes(nbytes / self.seconds.total)}/s" if nbytes and self.seconds.total else ""
            yield "moved", f"{link} {format_bytes(nbytes)} of {format_bytes(planned.get(link, 0))} planned{rate}"
        vectors = f"{format_bytes(moves.brought_bytes)} in, {format_bytes(moves.returned_bytes)} out"
        yield "vectors", f"{vectors}, {format_bytes(moves.exchanged_bytes)} among the devices"

    def _seconds_text(self) -> str:
        seconds = self.seconds
        parts = []
        if seconds.passes or seconds.orthogonalization:
            parts = [f"passes {seconds.passes:.3g}", f"orthogonalization {seconds.orthogonalization:.3g}"]
        parts.append(f"host {seconds.host:.3g}")
        if seconds.checkpoints:
            parts.append(f"checkpoints {seconds.checkpoints:.3g}")
        return f"{seconds.total:.3g} in all: {', '.join(parts)}"
