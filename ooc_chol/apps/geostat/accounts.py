"""Calls that factor matrices of one order: what their plans and reports have in common, and the account of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: Options on which bits depend only by the tiles and the engine of the plan.
_BITLESS = frozenset({"devices", "memory_budget", "host_budget", "policy"})


@dataclass(frozen=True, repr=False, eq=False)
class AbstractFactoringPlan(tb.AbstractPlan):
    """Plan of a call that factors matrices of order ``n``; its bytes and seconds are those of one factorization.

    Parameters
    ----------
    n : int
        Number of observations, the order of the matrices.
    devices : tuple of str
        Names of the devices that take part.
    options : mapping of str to object
        The options of a factorization that were planned with, by name.
    factorization : ooc_chol.Plan or None
        Plan of a factorization; None where nothing is factored, or nothing of this order can be (``refusal``). With a
        ``precision_threshold``, where matrices decide on formats, it is that of FP64, which moves and takes the most; None where
        FP64 has no room.
    refusal : BudgetError or None
        Why no matrix of this order can be factored here.
    """

    n: int
    devices: tuple[str, ...]
    options: Mapping[str, Any]
    factorization: oc.Plan | None
    refusal: oc.BudgetError | None = None

    @property
    def is_mixed(self) -> bool:
        """True where formats follow from the matrices, so that calls choose their own."""
        return self.options["precision_threshold"] is not None

    @property
    def budget_bytes(self) -> int:
        """Most bytes on each device; 0 where nothing is factored."""
        return 0 if self.factorization is None else self.factorization.budget_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates; 0 where nothing is factored."""
        return 0 if self.factorization is None else self.factorization.peak_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory of a factorization for what devices do not keep."""
        return 0 if self.factorization is None else self.factorization.host_bytes

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes of a factorization over each link, all devices together."""
        return {} if self.factorization is None else dict(self.factorization.bytes)

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of a factorization; None where no rates are known, and in mixed precision."""
        return None if self.factorization is None or self.is_mixed else self.factorization.seconds

    @property
    def key(self) -> dict[str, Any]:
        """Key of the factors, as far as it is known without their matrices."""
        options = {name: value for name, value in self.options.items() if name not in _BITLESS}
        if self.factorization is None or self.is_mixed:
            return options
        told = self.factorization.to_dict()
        return options | {name: told[name] for name in ("tile_size", "engine", "moduli") if name in told}

    def factor_lines(self) -> Iterator[tuple[str, str]]:
        """Lines on the factorization."""
        if self.factorization is not None:
            at_most = " at most, as formats follow from the matrices" if self.is_mixed else ""
            yield "each", f"factorization as planned{at_most}:"
            yield from (("", f"  {line}") for line in str(self.factorization).splitlines())


@dataclass(frozen=True, repr=False, eq=False)
class AbstractFactoringReport(tb.AbstractReport):
    """Report of a call that factors matrices of order ``n``.

    Parameters
    ----------
    plan : AbstractFactoringPlan
        The plan that was executed.
    devices : tuple of str
        Names of the devices that took part.
    seconds : CallSeconds
        Seconds of the whole call and of its parts.
    bytes : CallBytes
        Bytes of all factorizations over each link, planned and executed.
    peak_bytes : int
        Most bytes that any device allocated.
    resumed : int
        Evaluations that were in the checkpoint, and were not made again.
    key : mapping of str to object
        All that the bits of the result depend on, but for the data.
    factorizations : int
        Matrices that were factored, smaller ones among them.
    """

    plan: AbstractFactoringPlan
    devices: tuple[str, ...]
    seconds: tb.CallSeconds
    bytes: tb.CallBytes
    peak_bytes: int
    resumed: int
    key: Mapping[str, Any]
    factorizations: int

    def shared_lines(self) -> Iterator[tuple[str, str]]:
        """Lines on seconds, factorizations and memory."""
        parts = ", ".join(f"{name} {seconds:.3g}" for name, seconds in self.seconds.parts.items())
        predicted = "" if self.seconds.predicted is None else f"; {self.seconds.predicted:.3g} predicted of factorizations"
        yield "seconds", f"{self.seconds.total:.3g} for the whole call: {parts}{predicted}"
        yield (
            "factored",
            f"{self.factorizations} {'matrix' if self.factorizations == 1 else 'matrices'} on {', '.join(self.devices)}",
        )
        yield from tb.link_lines(self.bytes.executed, self.bytes.planned, 0.0, most=3)
        budget = "" if self.plan.factorization is None else f", budget {tb.format_bytes(self.plan.budget_bytes)}"
        yield "memory", f"peak {tb.format_bytes(self.peak_bytes)} on a device{budget}"


@dataclass
class Account:
    """Account of a run: seconds of its parts, and what its factorizations came to."""

    n: int = 0  #: Order of the matrices whose trace is kept, the last one's
    is_traced: bool = False
    parts: dict[str, float] = field(default_factory=dict)
    factorizations: int = 0
    planned: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    peak_bytes: int = 0
    devices: dict[str, None] = field(default_factory=dict)  #: Names in the order in which they took part
    predicted: float | None = 0.0  #: Seconds of all factorizations; None where those of one are not known
    trace: oc.Trace | None = None
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the seconds of a part of the call."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - start

    def add(self, factor: oc.CholeskyFactor) -> None:
        """Count a factorization."""
        told = factor.report
        self.factorizations += 1
        self.planned.update(told.bytes.planned)
        self.executed.update(told.bytes.executed)
        self.peak_bytes = max(self.peak_bytes, told.peak_bytes)
        self.devices.update(dict.fromkeys(told.devices))
        seconds = factor.report.plan.seconds
        self.predicted = None if seconds is None or self.predicted is None else self.predicted + seconds
        if self.is_traced and factor.n == self.n:
            self.trace = factor.trace

    @property
    def seconds(self) -> tb.CallSeconds:
        """Seconds until now."""
        predicted = self.predicted if self.factorizations else None
        return tb.CallSeconds(time.perf_counter() - self.began, dict(self.parts), predicted)

    def facts(self, plan: AbstractFactoringPlan) -> dict[str, Any]:
        """Facts of the report on the run of a plan until now."""
        return {
            "plan": plan,
            "devices": tuple(self.devices) or plan.devices,
            "seconds": self.seconds,
            "bytes": tb.CallBytes(dict(self.planned), dict(self.executed)),
            "peak_bytes": self.peak_bytes,
            "factorizations": self.factorizations,
        }


def check_plan(plan: object, kind: type[AbstractFactoringPlan], now: Mapping[str, object]) -> None:
    """Raise ``TypeError`` for what is no plan of that kind, and ``ValueError`` for that of another problem."""
    if not isinstance(plan, kind):
        raise TypeError(f"plan is a {type(plan).__name__}; give what plan_{kind.call} returns")
    there = {name: getattr(plan, name) for name in now}
    if other := [f"{name} ({there[name]} there, {here} here)" for name, here in now.items() if there[name] != here]:
        raise ValueError(f"plan is of another {kind.call}; these differ: {', '.join(other)}")
