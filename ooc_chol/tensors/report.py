"""Report of an imputation: the history of lambda, seconds, bytes, and why it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.page import Line, link_lines
from ooc_chol.calls.report import AbstractPlannedReport, CallBytes, CallSeconds
from ooc_chol.display.prints import one_line
from ooc_chol.kernels.interfaces.tensors import Svt, TensorShape
from ooc_chol.precision.triples import Precision
from ooc_chol.tensors.plan import TensorPlan
from ooc_chol.tensors.schedule import LambdaRow
from ooc_chol.tracing.trace import Trace

#: Links that have a line of their own on the printed page.
_MOST_LINKS = 6
#: An error that is this share of another one is clearly less.
_CLEARLY = 0.9


@final
@dataclass(frozen=True, repr=False)
class HeldOut:
    """Errors at a part of what is observed that was held out of one more fit, ``||estimate - X|| / ||X||``.

    Parameters
    ----------
    entries : int
        How many entries were held out.
    share : float
        As a share of those that are observed.
    lambdas : tuple of float
        Values of lambda as shares of s_1, descending.
    errors : tuple of float
        After each of them.
    constant : float
        Error of the constant that was taken off; of zeros, 1, where none was.
    neighbours : float
        Error of means of neighbours.
    other : float or None
        Error by the other Laplacian, where both were tried.
    """

    entries: int
    share: float
    lambdas: tuple[float, ...]
    errors: tuple[float, ...]
    constant: float
    neighbours: float
    other: float | None = None

    @property
    def error(self) -> float:
        """After the last value of lambda."""
        return self.errors[-1]

    @property
    def best(self) -> int:
        """Values of lambda after which the error is smallest."""
        return int(np.argmin(self.errors)) + 1

    @property
    def least(self) -> float:
        """Error after that many."""
        return self.errors[self.best - 1]

    @property
    def is_better(self) -> bool:
        """True where the model errs less than a constant and than means of neighbours."""
        return self.error < min(self.constant, self.neighbours)

    def figures(self) -> Mapping[str, object]:
        """All of it as plain data."""
        return asdict(self) | {"error": self.error, "best": self.best, "least": self.least}

    def lines(self) -> Iterator[Line]:
        """Lines of the page."""
        constant = "zeros" if self.constant == 1 else "the mean alone"
        plain = f"means of neighbours {self.neighbours:.3g}, {constant} {self.constant:.3g}"
        yield "held out", f"{100 * self.share:.3g} % of what is observed: error {self.error:.3g}; {plain}"
        if self.least < _CLEARLY * self.error:
            yield (
                "",
                f"  {'':<10} {self.least:.3g} after {self.best} of {len(self.errors)} values of lambda: n_lambdas={self.best}",
            )
        if self.other is not None:
            yield "", f"  {'':<10} {self.other:.3g} by the other Laplacian"

    def __repr__(self) -> str:
        facts: dict[str, object] = {"error": self.error, "constant": self.constant, "neighbours": self.neighbours}
        return one_line(self, facts | {"best": self.best, "other": self.other})


@dataclass(frozen=True, repr=False)
class ImputeReport(AbstractPlannedReport):
    """Report of :func:`ooc_chol.impute`.

    Parameters
    ----------
    plan : TensorPlan
        The plan that was executed: shape, precision, route of thresholds and devices are its.
    key : mapping
        Arithmetic key, which names the result to the bit but for what is in X, the mask, the graph and the start.
    observed : float
        Share of entries that were observed.
    largest : float
        s_1, the largest singular value of any slice of the transform of what was observed, or of those of one eigenvalue.
    floor : float
        Value of lambda at which a run ends, in the same units.
    stopped : str
        Why it ended, in words.
    history : tuple of LambdaRow
        Each value of lambda, those of an earlier run that was gone on from among them.
    unreached : int
        Slices that no path connects to one of which something was observed; they are ``center``.
    center : float
        Number that was taken off all entries before, and added again; 0 where nothing was.
    held_out : HeldOut or None
        Errors at what was held out of one more fit, where there was one.
    seconds : CallSeconds
        Seconds of the whole call, and of its parts: ``"plan"``, eigenvectors of the graph (``"fourier"``), and ``"run"``. In that
        are transforms with what fills in missing entries (``"transform"``), singular values (``"threshold"``), copies between
        devices, of the device that took longest (``"exchange"``), and ``"checkpoints"``.
    bytes : CallBytes
        Bytes over each link, as planned for the steps that were done and as copied.
    resumed : int
        Values of lambda of an earlier run that this one went on from.
    checkpoints : int
        Checkpoints that were written.
    """

    plan: TensorPlan
    key: Mapping[str, Any]
    observed: float
    largest: float
    floor: float
    stopped: str
    history: tuple[LambdaRow, ...] = ()
    unreached: int = 0
    center: float = 0.0
    held_out: HeldOut | None = None
    seconds: CallSeconds = field(default_factory=CallSeconds)
    bytes: CallBytes = field(default_factory=CallBytes)
    resumed: int = 0
    checkpoints: int = 0
    call = "impute"

    @property
    def shape(self) -> TensorShape:
        """N vertices, r components, m rows and n columns."""
        return self.plan.problem.shape

    @property
    def precision(self) -> Precision:
        """Types of entries and arithmetic."""
        return self.plan.problem.precision

    @property
    def svt(self) -> Svt:
        """Route of thresholds: ``"gram64"``, ``"subspace"`` or ``"svd"``."""
        return self.plan.problem.svt

    @property
    def steps(self) -> int:
        """Steps of all values of lambda."""
        return sum(row.steps for row in self.history)

    @property
    def full_route(self) -> float:
        """Share of slices of all steps for which all eigenpairs were computed."""
        return sum(row.full_route * row.steps for row in self.history) / self.steps if self.steps else 0.0

    def figures(self) -> Mapping[str, object]:
        """Figures of what was observed, and of each value of lambda."""
        return {
            "shape": self.shape._asdict(),
            "precision": self.precision.value,
            "svt": self.svt,
            "observed": self.observed,
            "largest": self.largest,
            "floor": self.floor,
            "stopped": self.stopped,
            "steps": self.steps,
            "full_route": self.full_route,
            "history": [asdict(row) for row in self.history],
            "unreached": self.unreached,
            "center": self.center,
            "held_out": None if self.held_out is None else self.held_out.figures(),
            "checkpoints": self.checkpoints,
        }

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"shape": tuple(self.shape), "steps": self.steps, "lambdas": len(self.history)}
        return facts | {"stopped": self.stopped, "svt": self.svt, "seconds": self.seconds.total}

    def lines(self) -> Iterator[Line]:
        """Lines of the page."""
        n, r, rows, columns = self.shape
        yield "", f"{n} slices of {rows} x {columns}, {100 * self.observed:.1f} % observed, {r} components: {self.stopped}"
        yield "how", f"{self.svt} in {self.precision.value} on {', '.join(self.devices)}"
        if self.center:
            yield "center", f"{self.center:.6g}, the mean of what was observed, was taken off, and added again"
        yield "steps", f"{self.steps} for {len(self.history)} values of lambda; s_1 {self.largest:.6g}, floor {self.floor:.3g}"
        if self.history:
            yield "", f"  {'':<10} {'lambda':>12} {'steps':>6} {'rank':>8} {'change':>9} {'full':>6} {'seconds':>8}"
        for row in self.history:
            figures = f"{row.lam:>12.6g} {row.steps:>6} {row.mean_rank:>8.2f} {row.change:>9.1e}"
            yield "", f"  {'':<10} {figures} {100 * row.full_route:>5.1f}% {row.seconds:>8.3g}"
        if self.unreached:
            yield (
                "unreached",
                f"{self.unreached} slice{'s' * (self.unreached != 1)} have no path to what was observed: {self.center:.6g}",
            )
        if self.held_out is not None:
            yield from self.held_out.lines()
        yield from link_lines(self.bytes.executed, self.bytes.planned, self.seconds.parts.get("run", 0.0), _MOST_LINKS)
        yield "seconds", self._seconds_text()
        if self.checkpoints or self.resumed:
            since = f"; went on from one after {self.resumed} values of lambda" if self.resumed else ""
            yield "checkpoint", f"{self.checkpoints} written{since}"

    def _seconds_text(self) -> str:
        parts = ", ".join(f"{name} {value:.3g}" for name, value in self.seconds.parts.items() if value)
        return f"{self.seconds.total:.3g} in all{f': {parts}' if parts else ''}"


@dataclass(frozen=True, eq=False)
class Imputed:
    """A tensor without gaps, and how it came about.

    Parameters
    ----------
    tensor : (N, m, n) array
        Observed values as they were, and estimates elsewhere.
    report : ImputeReport
        Report of the call.
    trace : Trace or None
        Every copy and computation, where that was recorded.
    """

    tensor: NDArray[Any]
    report: ImputeReport
    trace: Trace | None = None

    @property
    def history(self) -> tuple[LambdaRow, ...]:
        """Each value of lambda: steps, mean rank, change, seconds."""
        return self.report.history

    @property
    def last_lambda(self) -> float | None:
        """The last value of lambda that was completed; None where there is none."""
        return self.history[-1].lam if self.history else None

    def ended(self, since: float) -> Imputed:
        """The same, of a call that began then and ends now."""
        return replace(self, report=replace(self.report, seconds=replace(self.report.seconds, total=time.perf_counter() - since)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.tensor, dtype) if copy else np.asarray(self.tensor, dtype)

    def __repr__(self) -> str:
        return one_line(self, {"tensor": self.tensor, "steps": self.report.steps, "stopped": self.report.stopped})
