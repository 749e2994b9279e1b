"""Report of an imputation: the history of lambda, seconds, bytes, and why it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.kernels.interfaces.tensors import Svt, TensorShape
from ooc_chol.precision.triples import Precision
from ooc_chol.tensors.plan import TensorPlan
from ooc_chol.tensors.schedule import LambdaRow
from ooc_chol.tracing.trace import Trace

#: Links that have a line of their own on the printed page.
_MOST_LINKS = 6


@dataclass(frozen=True)
class ImputeSeconds:
    """Where the seconds of a call went."""

    total: float = 0.0  #: From the first to the last, without the transform's eigenvectors where those were given
    fourier: float = 0.0  #: Eigenvectors of the graph were computed
    transform: float = 0.0  #: Transforms, and what fills in missing entries
    threshold: float = 0.0  #: Singular values were lowered
    exchange: float = 0.0  #: Copies from other devices, of the device that took longest; most run beside kernels of transforms
    checkpoints: float = 0.0  #: Checkpoints were written or read, what names the result among it


@dataclass(frozen=True)
class ImputeReport:
    """Report of :func:`ooc_chol.impute`.

    Parameters
    ----------
    shape : TensorShape
        N vertices, r components, m rows and n columns.
    precision : Precision
        Types of entries and arithmetic.
    svt : str
        Route of thresholds: ``"gram64"``, ``"subspace"`` or ``"svd"``.
    devices : tuple of str
        Where it was computed.
    observed : float
        Share of entries that were observed.
    largest : float
        s_1, the largest singular value of any slice of the transform of what was observed.
    floor : float
        Value of lambda at which a run ends, in the same units.
    stopped : str
        Why it ended, in words.
    history : tuple of LambdaRow
        Each value of lambda, those of an earlier run that was gone on from among them.
    unreached : int
        Slices that no path connects to one of which something was observed; they are zero.
    seconds : ImputeSeconds
        Where the seconds of this call went.
    planned_bytes, executed_bytes : mapping of str to int
        Bytes over each link, as planned and as copied.
    plan : TensorPlan or None
        The plan; None where all of the tensor lay in arrays of the host.
    key : mapping or None
        Arithmetic key, which names the result to the bit; None where no checkpoint was asked for.
    resumed_lambdas : int
        Values of lambda of an earlier run that this one went on from.
    checkpoints : int
        Checkpoints that were written.
    """

    shape: TensorShape
    precision: Precision
    svt: Svt
    devices: tuple[str, ...]
    observed: float
    largest: float
    floor: float
    stopped: str
    history: tuple[LambdaRow, ...] = ()
    unreached: int = 0
    seconds: ImputeSeconds = field(default_factory=ImputeSeconds)
    planned_bytes: Mapping[str, int] = field(default_factory=dict)
    executed_bytes: Mapping[str, int] = field(default_factory=dict)
    plan: TensorPlan | None = None
    key: Mapping[str, Any] | None = None
    resumed_lambdas: int = 0
    checkpoints: int = 0

    @property
    def steps(self) -> int:
        """Steps of all values of lambda."""
        return sum(row.steps for row in self.history)

    @property
    def full_route(self) -> float:
        """Share of slices of all steps for which all eigenpairs were computed."""
        return sum(row.full_route * row.steps for row in self.history) / self.steps if self.steps else 0.0

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
        return {
            "shape": self.shape._asdict(),
            "precision": self.precision.value,
            "svt": self.svt,
            "devices": list(self.devices),
            "observed": self.observed,
            "largest": self.largest,
            "floor": self.floor,
            "stopped": self.stopped,
            "steps": self.steps,
            "full_route": self.full_route,
            "history": [asdict(row) for row in self.history],
            "unreached": self.unreached,
            "seconds": asdict(self.seconds),
            "planned_bytes": dict(self.planned_bytes),
            "executed_bytes": dict(self.executed_bytes),
            "plan": None if self.plan is None else self.plan.to_dict(),
            "key": None if self.key is None else dict(self.key),
            "resumed_lambdas": self.resumed_lambdas,
            "checkpoints": self.checkpoints,
        }

    def __repr__(self) -> str:
        facts: dict[str, object] = {"shape": tuple(self.shape), "steps": self.steps, "lambdas": len(self.history)}
        return one_line(self, facts | {"stopped": self.stopped, "svt": self.svt, "seconds": self.seconds.total})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
        n, r, rows, columns = self.shape
        yield "", f"{n} slices of {rows} x {columns}, {100 * self.observed:.1f} % observed, {r} components: {self.stopped}"
        yield "how", f"{self.svt} in {self.precision.value} on {', '.join(self.devices)}"
        yield "steps", f"{self.steps} for {len(self.history)} values of lambda; s_1 {self.largest:.6g}, floor {self.floor:.3g}"
        if self.history:
            yield "", f"  {'':<10} {'lambda':>12} {'steps':>6} {'rank':>8} {'change':>9} {'full':>6} {'seconds':>8}"
        for row in self.history:
            figures = f"{row.lam:>12.6g} {row.steps:>6} {row.mean_rank:>8.2f} {row.change:>9.1e}"
            yield "", f"  {'':<10} {figures} {100 * row.full_route:>5.1f}% {row.seconds:>8.3g}"
        if self.unreached:
            yield "unreached", f"{self.unreached} slice{'s' * (self.unreached != 1)} have no path to what was observed: zero"
        executed, planned = dict(self.executed_bytes), dict(self.planned_bytes)
        if len(executed) > _MOST_LINKS:
            name = f"{len(executed)} links"
            executed, planned = {name: sum(executed.values())}, {name: sum(planned.values())}
        for link, nbytes in executed.items():
            yield "moved", f"{link} {format_bytes(nbytes)} of {format_bytes(planned.get(link, 0))} planned"
        yield "seconds", self._seconds_text()
        if self.checkpoints or self.resumed_lambdas:
            since = f"; went on from one after {self.resumed_lambdas} values of lambda" if self.resumed_lambdas else ""
            yield "checkpoint", f"{self.checkpoints} written{since}"

    def _seconds_text(self) -> str:
        named = {name: value for name, value in asdict(self.seconds).items() if name != "total" and value}
        parts = ", ".join(f"{name} {value:.3g}" for name, value in named.items())
        return f"{self.seconds.total:.3g} in all{f': {parts}' if parts else ''}"


@dataclass(frozen=True, eq=False)
class Imputed:
    """A tensor without gaps, and how it came about.

    Parameters
    ----------
    tensor : (N, m, n) array
        What was observed, as it was, and estimates elsewhere.
    report : ImputeReport
        What was done.
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.tensor, dtype) if copy else np.asarray(self.tensor, dtype)

    def __repr__(self) -> str:
        return one_line(self, {"tensor": self.tensor, "steps": self.report.steps, "stopped": self.report.stopped})
