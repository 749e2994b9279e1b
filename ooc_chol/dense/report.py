"""The report of a run: measured figures beside the plan's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import ClassVar, final

from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.calls.report import AbstractReport, CallBytes, CallSeconds
from ooc_chol.config import format_bytes
from ooc_chol.dense.execution.executor import Execution
from ooc_chol.dense.exposed_copies import exposed_copy_ns
from ooc_chol.dense.key import arithmetic_key
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.tier_page import FILE_WORDS
from ooc_chol.dense.report_picture import report_picture
from ooc_chol.dense.time_shares import seconds_by_kind
from ooc_chol.display.drawing import Drawing
from ooc_chol.hardware.registry import device_kind
from ooc_chol.precision.accounting import ErrorEstimate, estimated_error
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalations
from ooc_chol.runtime.passes import Passes
from ooc_chol.tasks.operations import FileLink, Link

#: Lines of a printed report that say what was computed again.
_MOST_ESCALATIONS = 24


@final
class FactorSeconds(CallSeconds):
    """Seconds of a factorization; the prediction, for which a plan may have to be simulated, is made when it is asked for."""

    def __init__(self, plan: AbstractPlan | None, total: float, parts: Mapping[str, float]) -> None:
        vars(self).update(plan=plan, total=total, parts=parts)

    @property
    def predicted(self) -> float | None:
        """The plan's prediction of the run; None without a plan that is one of all that was run."""
        plan: AbstractPlan | None = vars(self)["plan"]
        return None if plan is None else plan.seconds


@dataclass(frozen=True, repr=False)
class FactorReport(AbstractReport):
    """Report of a factorization, beside its plan.

    Parameters
    ----------
    plan : Plan
        The plan that was executed.
    execution : Execution
        Times, bytes and records.
    total_seconds : float
        Wall clock of the call: reading the arguments, planning, opening devices, allocating and page-locking, both passes of
        mixed precision, the run and giving memory back. Two things that come last are not in it: completing a file, that is
        waiting for the disk and giving the file its name, and making the factor object.
    escalations : Escalations
        Parts that failed in the planned formats and were computed again in wider ones: a tuple of them, printed a line each.
    certified_bound : CertifiedBound or None
        With a precision threshold: what ``||A - L L.T||_F / ||A||_F`` is at most, whatever the formats came to be. None without.
    certificate_seconds : float
        Seconds for that before and after the run, in which tiles of L meet random vectors as they leave the device. Where there
        is no room for these, or tiles were kept of a run that failed, it is seconds of reading L.
    passes : Passes
        Passes over A and L beside the run until now, by kind (``passes.totals``): in mixed precision the norms of A and,
        where it reads L, the certificate, then solves, sums over the inverse and products with L.
    resumed : int
        Tiles that were in a checkpoint, and were not computed again: rates count the others' flops.
    key_resumed : dict or None
        Arithmetic key of such a checkpoint, where what was left has another; None for that of the plan.
    """

    call: ClassVar[str] = "cholesky"

    plan: Plan
    execution: Execution
    total_seconds: float
    escalations: Escalations = Escalations()  # noqa: RUF009 - a tuple, which nobody can change
    certified_bound: CertifiedBound | None = None
    certificate_seconds: float = 0.0
    passes: Passes = field(default_factory=Passes, compare=False)
    resumed: int = 0
    key_resumed: dict[str, str | int] | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that took part."""
        return self.plan.devices

    @property
    def seconds(self) -> FactorSeconds:
        """Seconds of the call and of its parts: ``"setup"``, ``"norms"`` of A, ``"run"`` and ``"certificate"``.

        The run goes from the first step to the last byte of L in its store, generation included; runs that failed count, too. The
        norms and the certificate are those of mixed precision, and setup is what is left.
        """
        setup = max(0.0, self.total_seconds - self.inside_seconds)
        parts = {"setup": setup, "norms": self._norms_seconds, "run": self.execution.seconds}
        return FactorSeconds(self.plan, self.total_seconds, parts | {"certificate": self.certificate_seconds})

    @property
    def _norms_seconds(self) -> float:
        """Seconds of the pass over A for the norms of its tiles; 0 in FP64."""
        return 0.0 if self.plan.precision is None else self.plan.precision.norms.seconds

    @property
    def inside_seconds(self) -> float:
        """Seconds of the run, and of both passes of mixed precision."""
        return self._norms_seconds + self.execution.seconds + self.certificate_seconds

    @property
    def tflops(self) -> float:
        """``n³/3`` over :attr:`inside_seconds`, in TFLOP/s; of a complex matrix ``4 n³/3``."""
        return self._flops / self.inside_seconds / 1e12 if self.inside_seconds else 0.0

    @property
    def _flops(self) -> float:
        if self.resumed:
            return float(self.plan.flops)
        return self.plan.fmt.flops_factor * self.plan.grid.n**3 / 3

    @property
    def wall_tflops(self) -> float:
        """``n³/3`` over ``seconds.total``, in TFLOP/s: the rate that the caller got."""
        return self._flops / self.total_seconds / 1e12

    @property
    def bytes(self) -> CallBytes:
        """Bytes over each link, all devices together; those executed are counted from the copies issued."""
        executed = {link.name.lower(): sum(device[link] for device in self.execution.link_bytes) for link in Link}
        return CallBytes(self.plan.bytes, executed)

    @property
    def file_bytes(self) -> CallBytes:
        """Bytes read from files (of A as ``"source"``, of L as ``"read"``) and written to them (``"write"``)."""
        planned = {link.name.lower(): self.plan.file_bytes(link) for link in FileLink}
        return CallBytes(planned, {link.name.lower(): sum(one[link] for one in self.execution.file_bytes) for link in FileLink})

    @property
    def peak_bytes(self) -> int:
        """Most bytes of blocks on any device at once."""
        return max(self.execution.peak_bytes)

    @cached_property
    def key(self) -> dict[str, str | int]:
        """Arithmetic key of the factor."""
        return self.key_resumed or arithmetic_key(self.plan).to_dict()

    @cached_property
    def estimated_error(self) -> ErrorEstimate | None:
        """Where the error comes from, by the norms of final tiles: an estimate, mostly from above. None where all is FP64."""
        precision, norms = self.plan.precision, self.execution.norms
        if precision is None or norms is None:
            return None
        products = self.execution.products
        return estimated_error(precision, norms, self.plan.moduli, None if products is None else products.products())

    @property
    def half_share(self) -> float:
        """Share of the products of tiles that ran in FP16, as norms of L decided."""
        return 0.0 if self.execution.products is None else self.execution.products.share

    @cached_property
    def exposed_copy_share(self) -> float:
        """Share of the run in which compute streams were idle while a fetch that they waited for was in flight."""
        if not self.inside_seconds or not self.execution.times:
            return 0.0
        exposed = exposed_copy_ns(self.plan.programs, self.execution.times) * 1e-9
        return exposed / (self.inside_seconds * len(self.plan.devices))

    def figures(self) -> dict[str, object]:
        """The figures of the report beside the common ones."""
        bound, estimate = self.certified_bound, self.estimated_error
        return {
            "n": self.plan.grid.n,
            "tile_size": self.plan.grid.nb,
            "policy": self.plan.policy.name,
            "engine": self.plan.engine,
            "moduli": self.plan.moduli,
            "half_share": self.half_share,
            "inside_seconds": self.inside_seconds,
            "locking_seconds": self.execution.locking_seconds,
            "refused_bytes": self.execution.refused_bytes,
            "wall_tflops": self.wall_tflops,
            "tflops": self.tflops,
            "file_bytes": self.file_bytes.to_dict(),
            "bounds": {"compulsory": self.plan.compulsory_bytes, "loaded": self.plan.movement_bound_bytes},
            "budget_bytes": self.plan.budget_bytes,
            "exposed_copy_share": self.exposed_copy_share,
            "precision_threshold": None if self.plan.precision is None else self.plan.precision.threshold,
            "dtype": self.plan.fmt.dtype.name,
            "formats": {self.plan.fmt.name: self.plan.grid.n_tiles}
            if self.plan.precision is None
            else self.plan.precision.counts,
            "certified_bound": None if bound is None else bound.total,
            "certified_measured": None if bound is None or not bound.probes else bound.measured,
            "estimated_error": None if estimate is None or not isfinite(estimate.total) else estimate.total,
            "escalations": [str(step) for step in self.escalations],
            "passes": {title: totals._asdict() for title, totals in self.passes.totals.items()},
        }

    def facts(self) -> dict[str, object]:
        """Facts for ``repr``."""
        plan = self.plan
        facts: dict[str, object] = {"n": plan.grid.n, "tile_size": plan.grid.nb, "devices": plan.devices, "engine": plan.engine}
        facts |= {"seconds": self.total_seconds, "inside_seconds": self.inside_seconds}
        facts |= {"predicted": plan.seconds} if plan.is_simulated else {}
        return facts | ({} if self.certified_bound is None else {"certified_bound": self.certified_bound.total})

    def picture(self) -> Drawing:
        """Seconds of the parts of the call, and of streams by kind, measured beside predicted."""
        plan = self.plan
        names = {"setup": "planning, memory", "norms": "norms of A", "certificate": "certificate", "run": "run"}
        measured = {"whole call": self.total_seconds} | {names[name]: spent for name, spent in self.seconds.parts.items()}
        predicted = {"run": plan.seconds} if plan.is_simulated else {}
        known = {} if predicted.get("run") is None else self._predicted_busy
        busy = {kind: (seconds, known.get(kind)) for kind, seconds in self.busy_seconds.items()}
        title = f"Cholesky of n = {plan.grid.n} on {', '.join(plan.devices)}: {_rate_text(self.wall_tflops)} over the whole call"
        parts = {name: (seconds, predicted.get(name)) for name, seconds in measured.items() if seconds}
        return report_picture(title, parts, busy)

    @cached_property
    def busy_seconds(self) -> dict[str, float]:
        """For how long the streams of all devices together were busy with each kind of work, in seconds of the last run."""
        return seconds_by_kind(self.plan.programs, self.execution.times, 1e-9) if self.execution.times else {}

    @cached_property
    def _predicted_busy(self) -> dict[str, float]:
        """The same as predicted."""
        starts, ends = self.plan.timeline.starts, self.plan.timeline.ends
        return seconds_by_kind(self.plan.programs, [zip(*both, strict=True) for both in zip(starts, ends, strict=True)], 1.0)

    def _place_text(self) -> str:
        """Where L is that GPUs have made, in words; a file has lines of its own."""
        plan, size = self.plan, format_bytes(self.plan.stored_bytes)
        if plan.kept_bytes:
            return f"; L, {size} more, stays on {', '.join(plan.devices)}"
        return "" if plan.in_file or device_kind(plan.devices[0]).is_in_host_memory else f"; L, {size}, is in host memory"

    def lines(self) -> list[Line]:
        """The lines of the printed report."""
        plan = self.plan
        devices = ", ".join(plan.devices)
        peak, budget = format_bytes(self.peak_bytes), format_bytes(plan.budget_bytes)
        return [
            ("", f"Cholesky of n = {plan.grid.n} in tiles of {plan.grid.nb} on {devices}, policy {plan.policy.name!r}"),
            ("seconds", self._seconds_text()),
            ("bytes", self._bytes_text()),
            *self._file_lines(),
            ("bounds", plan.bounds_text()),
            ("memory", f"peak {peak} of tiles on a device, budget {budget}{self._place_text()}"),
            ("exposed", f"{100 * self.exposed_copy_share:.1f} % of the time a compute stream waited for a copy"),
            *self._resumed_lines(),
            *self._locking_lines(),
            *self._precision_lines(),
            *self._pass_lines(),
        ]

    def _file_lines(self) -> list[Line]:
        """Lines on traffic with files beside the plan, and on the part of L that stayed in host memory; nothing without files."""
        if self.plan.file_traffic.is_none:
            return []
        planned, executed = self.file_bytes.planned, self.file_bytes.executed
        moved = [
            f"{words} {format_bytes(executed[name])} of {format_bytes(planned[name])} planned"
            for link, words in FILE_WORDS.items()
            if planned[name := link.name.lower()] or executed[name]
        ]
        return [("files", "; ".join(moved)), *([("host", self.plan.host_text())] if self.plan.in_file else [])]

    def _resumed_lines(self) -> list[Line]:
        """How much was in a checkpoint; nothing where there was none."""
        if not self.resumed:
            return []
        left = self.plan.grid.n_tiles - len(self.plan.given)
        return [("resumed", f"{self.resumed} of {self.plan.grid.n_tiles} tiles were in the checkpoint; {left} were computed")]

    def _locking_lines(self) -> list[Line]:
        """How long the run waited for page-locked memory, and what could not be locked; nothing where all was there."""
        seconds, refused, lines = self.execution.locking_seconds, self.execution.refused_bytes, []
        if seconds:
            lines.append(("locking", f"{seconds:.2g} s of the run waited for host memory to be page-locked"))
        if refused:
            lines.append(("staging", f"{format_bytes(refused)} of host memory could not be page-locked: copied in two steps"))
        return lines

    def _pass_lines(self) -> list[Line]:
        """Lines on passes beside the run; nothing before the first one."""
        lines = [f"{title}: {totals}" for title, totals in self.passes.totals.items()]
        return [("passes", f"\n{'':13}".join(lines))] if lines else []

    def _precision_lines(self) -> list[Line]:
        """Formats, the certified bound and what had to be widened; nothing in FP64."""
        lines = []
        if self.plan.precision is not None:
            lines = [("formats", str(self.plan.precision).splitlines()[0]), ("estimated", f"error {self.estimated_error}")]
        if self.execution.products is not None:
            lines.append(("products", f"{100 * self.half_share:.0f} % in FP16, as measured norms of L allowed"))
        if self.certified_bound is not None:
            lines.append(("certified", f"error at most {self.certified_bound}"))
        steps = self.escalations.lines(_MOST_ESCALATIONS)
        return lines + [("escalated" if at == 0 else "", step) for at, step in enumerate(steps)]

    def _seconds_text(self) -> str:
        """Seconds of the whole call, then those inside it beside the predicted ones."""
        rates = self.plan.rates
        predicted = "none predicted (no rates measured)"
        if self.plan.seconds is not None and rates is not None:
            predicted = (
                f"{self.plan.seconds:.3g} predicted{'' if rates.model is None else f' from nominal rates of {rates.model}'}"
            )
        whole = f"{self.total_seconds:.3g} for the whole call ({_rate_text(self.wall_tflops)})"
        return f"{whole}; {self.inside_seconds:.3g} inside ({_rate_text(self.tflops)}), {predicted}"

    def _bytes_text(self) -> str:
        """Executed beside planned bytes of each link."""
        moved = self.bytes
        both = {name: (format_bytes(moved.executed[name]), format_bytes(planned)) for name, planned in moved.planned.items()}
        return "; ".join(f"{name} {executed} of {planned} planned" for name, (executed, planned) in both.items())


def _rate_text(tflops: float) -> str:
    """A rate in the unit that suits it."""
    return f"{tflops:.4g} TFLOP/s" if tflops >= 1 else f"{tflops * 1e3:.4g} GFLOP/s"
