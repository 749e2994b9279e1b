"""The report of a run: measured figures beside the plan's."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from ooc_chol.config import format_bytes
from ooc_chol.dense.execution.executor import Execution
from ooc_chol.dense.exposed_copies import exposed_copy_ns
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.tier_page import FILE_WORDS, host_text
from ooc_chol.dense.report_picture import report_picture
from ooc_chol.dense.time_shares import seconds_by_kind
from ooc_chol.display.drawing import Drawing, notebook_html
from ooc_chol.display.prints import one_line
from ooc_chol.precision.accounting import ErrorEstimate, estimated_error
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalations
from ooc_chol.runtime.passes import Passes
from ooc_chol.tasks.operations import FileLink, Link

#: Lines of a printed report that say what was computed again.
_MOST_ESCALATIONS = 24


@dataclass(frozen=True)
class FactorReport:
    """Report of a factorization, beside its plan.

    Parameters
    ----------
    plan : Plan
        The plan that was executed.
    execution : Execution
        Times, bytes and records.
    setup_seconds : float
        Seconds for planning and for allocating device memory and the store, not part of :attr:`seconds`.
    escalations : Escalations
        What failed in the planned formats and was computed again in wider ones: a tuple of them, printed a line each.
    certified_bound : CertifiedBound or None
        With a precision threshold: what ``||A - L L.T||_F / ||A||_F`` is at most, whatever the formats came to be. None without.
    certify_seconds : float
        Seconds for that before and after the run, in which tiles of L meet random vectors as they leave the device; where there
        is no room for these, or tiles were kept of a run that failed, seconds of reading L.
    passes : Passes
        What passes over A and L beside the run did until now, by kind (``passes.totals``): in mixed precision the norms of A and,
        where it reads L, the certificate, then solves, sums over the inverse and products with L.
    resumed_tiles : int
        Tiles that were in a checkpoint, and were not computed again: rates count the others' flops.
    """

    plan: Plan
    execution: Execution
    setup_seconds: float
    escalations: Escalations = Escalations()  # noqa: RUF009 - a tuple, which nobody can change
    certified_bound: CertifiedBound | None = None
    certify_seconds: float = 0.0
    passes: Passes = field(default_factory=Passes, compare=False)
    resumed_tiles: int = 0

    @property
    def seconds(self) -> float:
        """From the first step to the last byte of L in its store, generation included, and both passes of mixed precision.

        These are the one over A that chose formats, and what certifies L beside the run. Runs that failed count, too.
        """
        return self.execution.seconds + self.norms_seconds + self.certify_seconds

    @property
    def predicted_seconds(self) -> float | None:
        """Prediction of the steps' seconds by the plan, beside :attr:`seconds`; None where no rates were known."""
        return self.plan.seconds

    @property
    def wall_seconds(self) -> float:
        """The whole call, ``seconds + setup_seconds``.

        It holds what the caller waited for: reading the arguments, planning, opening devices, allocating and page-locking,
        :attr:`seconds`, and giving memory back. Two things that come last are not in it: completing a file, that is waiting for
        the disk and giving the file its name, and making the factor object.
        """
        return self.seconds + self.setup_seconds

    @property
    def norms_seconds(self) -> float:
        """Seconds of the pass over A for the norms of its tiles; 0 in FP64."""
        return 0.0 if self.plan.precision is None else self.plan.precision.norms.seconds

    @property
    def tflops(self) -> float:
        """``n³/3`` over :attr:`seconds`, in TFLOP/s; of a complex matrix ``4 n³/3``."""
        return self._flops / self.seconds / 1e12 if self.seconds else 0.0

    @property
    def _flops(self) -> float:
        if self.resumed_tiles:
            return float(self.plan.flops)
        return self.plan.fmt.flops_factor * self.plan.grid.n**3 / 3

    @property
    def wall_tflops(self) -> float:
        """``n³/3`` over :attr:`wall_seconds`, in TFLOP/s: the rate that the caller got."""
        return self._flops / self.wall_seconds / 1e12

    @property
    def planned_bytes(self) -> dict[str, int]:
        """Planned bytes over each link, all devices together."""
        return {link.name.lower(): self.plan.link_bytes(link) for link in Link}

    @property
    def executed_bytes(self) -> dict[str, int]:
        """Bytes over each link counted from the copies issued, all devices together."""
        return {link.name.lower(): sum(device[link] for device in self.execution.link_bytes) for link in Link}

    @property
    def planned_file_bytes(self) -> dict[str, int]:
        """Planned bytes read from files (of A as ``"source"``, of L as ``"read"``) and written to them (``"write"``)."""
        return {link.name.lower(): self.plan.file_bytes(link) for link in FileLink}

    @property
    def executed_file_bytes(self) -> dict[str, int]:
        """The same of the copies issued, all devices together."""
        return {link.name.lower(): sum(device[link] for device in self.execution.file_bytes) for link in FileLink}

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
        if not self.seconds or not self.execution.times:
            return 0.0
        return exposed_copy_ns(self.plan.programs, self.execution.times) * 1e-9 / (self.seconds * len(self.plan.devices))

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold: times in seconds, ``bytes`` and ``bounds`` in bytes, rates in
            TFLOP/s; None for what is no number.
        """
        bound, estimate = self.certified_bound, self.estimated_error
        return {
            "n": self.plan.grid.n,
            "tile_size": self.plan.grid.nb,
            "devices": list(self.plan.devices),
            "policy": self.plan.policy.name,
            "engine": self.plan.engine,
            "moduli": self.plan.moduli,
            "half_share": self.half_share,
            "wall_seconds": self.wall_seconds,
            "seconds": self.seconds,
            "predicted_seconds": self.predicted_seconds,
            "norms_seconds": self.norms_seconds,
            "setup_seconds": self.setup_seconds,
            "locking_seconds": self.execution.locking_seconds,
            "refused_bytes": self.execution.refused_bytes,
            "wall_tflops": self.wall_tflops,
            "tflops": self.tflops,
            "bytes": {"planned": self.planned_bytes, "executed": self.executed_bytes},
            "file_bytes": {"planned": self.planned_file_bytes, "executed": self.executed_file_bytes},
            "bounds": {"compulsory": self.plan.compulsory_bytes, "loaded": self.plan.movement_bound_bytes},
            "peak_bytes": max(self.execution.peak_bytes),
            "budget_bytes": self.plan.budgets[0].budget_bytes,
            "exposed_copy_share": self.exposed_copy_share,
            "precision_threshold": None if self.plan.precision is None else self.plan.precision.threshold,
            "dtype": self.plan.fmt.dtype.name,
            "formats": {self.plan.fmt.name: self.plan.grid.n_tiles}
            if self.plan.precision is None
            else self.plan.precision.counts,
            "certify_seconds": self.certify_seconds,
            "certified_bound": None if bound is None else bound.total,
            "certified_measured": None if bound is None or not bound.probes else bound.measured,
            "estimated_error": None if estimate is None or not isfinite(estimate.total) else estimate.total,
            "escalations": [str(step) for step in self.escalations],
            "resumed_tiles": self.resumed_tiles,
            "passes": {title: totals._asdict() for title, totals in self.passes.totals.items()},
        }

    def __repr__(self) -> str:
        plan = self.plan
        facts: dict[str, object] = {"n": plan.grid.n, "tile_size": plan.grid.nb, "devices": plan.devices, "engine": plan.engine}
        facts |= {"wall_seconds": self.wall_seconds, "seconds": self.seconds}
        facts |= {"predicted_seconds": self.predicted_seconds} if plan.is_simulated else {}
        bound = {} if self.certified_bound is None else {"certified_bound": self.certified_bound.total}
        return one_line(self, {**facts, **bound})

    def _repr_html_(self) -> str:
        """HTML for notebooks: seconds by part and by kind of work; then the report."""
        return notebook_html(str(self), self._picture())

    def _picture(self) -> Drawing:
        """Seconds of the parts of the call, and of streams by kind, measured beside predicted."""
        plan, run = self.plan, self.execution.seconds
        predicted = self.predicted_seconds if plan.is_simulated else None
        parts = {
            "whole call": (self.wall_seconds, None),
            "planning, memory": (self.setup_seconds, None),
            "norms of A": (self.norms_seconds, None),
            "certificate": (self.certify_seconds, None),
            "run": (run, predicted),
        }
        known = {} if predicted is None else self._predicted_busy
        busy = {kind: (seconds, known.get(kind)) for kind, seconds in self.busy_seconds.items()}
        title = f"Cholesky of n = {plan.grid.n} on {', '.join(plan.devices)}: {_rate_text(self.wall_tflops)} over the whole call"
        return report_picture(title, {name: seconds for name, seconds in parts.items() if seconds[0]}, busy)

    @cached_property
    def busy_seconds(self) -> dict[str, float]:
        """For how long the streams of all devices together were busy with each kind of work, in seconds of the last run."""
        return seconds_by_kind(self.plan.programs, self.execution.times, 1e-9) if self.execution.times else {}

    @cached_property
    def _predicted_busy(self) -> dict[str, float]:
        """The same as predicted."""
        starts, ends = self.plan.timeline.starts, self.plan.timeline.ends
        return seconds_by_kind(self.plan.programs, [zip(*both, strict=True) for both in zip(starts, ends, strict=True)], 1.0)

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _kept_text(self) -> str:
        """The GPUs on which L is, in words."""
        where = ", ".join(self.plan.devices)
        return f"; L, {format_bytes(self.plan.stored_bytes)} more, stays on {where}" if self.plan.kept_bytes else ""

    def _lines(self) -> list[tuple[str, str]]:
        """The lines of the printed report."""
        plan = self.plan
        devices = ", ".join(plan.devices)
        peak, budget = format_bytes(max(self.execution.peak_bytes)), format_bytes(plan.budgets[0].budget_bytes)
        return [
            ("", f"Cholesky of n = {plan.grid.n} in tiles of {plan.grid.nb} on {devices}, policy {plan.policy.name!r}"),
            ("seconds", self._seconds_text()),
            ("bytes", "; ".join(map(self._link_text, Link))),
            *self._file_lines(),
            ("bounds", plan.bounds_text()),
            ("memory", f"peak {peak} of tiles on a device, budget {budget}{self._kept_text()}"),
            ("exposed", f"{100 * self.exposed_copy_share:.1f} % of the time a compute stream waited for a copy"),
            *self._resumed_lines(),
            *self._locking_lines(),
            *self._precision_lines(),
            *self._pass_lines(),
        ]

    def _file_lines(self) -> list[tuple[str, str]]:
        """Lines on traffic with files beside the plan, and on the part of L that stayed in host memory; nothing without files."""
        if self.plan.file_traffic.is_none:
            return []
        planned, executed = self.planned_file_bytes, self.executed_file_bytes
        moved = [
            f"{words} {format_bytes(executed[name])} of {format_bytes(planned[name])} planned"
            for link, words in FILE_WORDS.items()
            if planned[name := link.name.lower()] or executed[name]
        ]
        return [("files", "; ".join(moved)), *([("host", host_text(self.plan))] if self.plan.in_file else [])]

    def _resumed_lines(self) -> list[tuple[str, str]]:
        """How much was in a checkpoint; nothing where there was none."""
        if not self.resumed_tiles:
            return []
        left = self.plan.grid.n_tiles - len(self.plan.given)
        return [
            ("resumed", f"{self.resumed_tiles} of {self.plan.grid.n_tiles} tiles were in the checkpoint; {left} were computed")
        ]

    def _locking_lines(self) -> list[tuple[str, str]]:
        """How long the run waited for page-locked memory, and what could not be locked; nothing where all was there."""
        seconds, refused, lines = self.execution.locking_seconds, self.execution.refused_bytes, []
        if seconds:
            lines.append(("locking", f"{seconds:.2g} s of the run waited for host memory to be page-locked"))
        if refused:
            lines.append(("staging", f"{format_bytes(refused)} of host memory could not be page-locked: copied in two steps"))
        return lines

    def _pass_lines(self) -> list[tuple[str, str]]:
        """Lines on passes beside the run; nothing before the first one."""
        lines = [f"{title}: {totals}" for title, totals in self.passes.totals.items()]
        return [("passes", f"\n{'':13}".join(lines))] if lines else []

    def _precision_lines(self) -> list[tuple[str, str]]:
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
        whole = f"{self.wall_seconds:.3g} for the whole call ({_rate_text(self.wall_tflops)})"
        return f"{whole}; {self.seconds:.3g} inside ({_rate_text(self.tflops)}), {predicted}"

    def _link_text(self, link: Link) -> str:
        """Executed beside planned bytes of one link."""
        name = link.name.lower()
        return f"{name} {format_bytes(self.executed_bytes[name])} of {format_bytes(self.planned_bytes[name])} planned"


def _rate_text(tflops: float) -> str:
    """A rate in the unit that suits it."""
    return f"{tflops:.4g} TFLOP/s" if tflops >= 1 else f"{tflops * 1e3:.4g} GFLOP/s"
