"""Matrices that are one tile: brought into place and factored by one call, without streams, threads or steps.

A plan says what is done, and the report what was, as for any other run; both are made when somebody asks for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

from ooc_chol.calls.progress import progress_reporter
from ooc_chol.dense.execution.executor import Execution
from ooc_chol.dense.execution.records import executed_records
from ooc_chol.dense.planner import make_whole_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import budget_of
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.report import FactorReport
from ooc_chol.dense.request import Request
from ooc_chol.dense.store_opening import whole_store
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import NonFiniteError, NotHermitianError, NotPositiveDefiniteError
from ooc_chol.hardware.registry import driver_errors_typed
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces import largest_imaginary
from ooc_chol.kernels.interfaces.whole import AbstractWholeKernels
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources.base import AbstractSource, unchanged
from ooc_chol.tasks.tiling import TileGrid


@final
@dataclass(frozen=True)
class WholeRun:
    """A factorization of one tile that is over."""

    request: Request
    device: str
    began: float  #: When the call began, in seconds of ``time.perf_counter``
    times: tuple[int, int, int, int]  #: When A was read from and until, L complete and in its store, in nanoseconds

    @cached_property
    def plan(self) -> Plan:
        """The plan that was followed."""
        request = self.request
        plan = request.plan or make_whole_plan(request.problem, request.options, self.device, self._rates_at)
        return plan if request.asked is None else plan.asked_for(request.asked)

    def _rates_at(self, grid: TileGrid) -> Rates | None:
        """Rates as far as they are known: after the run no tile function is called to be measured."""
        return None if self.request.source.name == "function" else self.request.rates_at(grid)

    @property
    def budget_bytes(self) -> int:
        """Bytes of the device that later solves may take."""
        return budget_of(self.request.options, (self.device,))

    @cached_property
    def report(self) -> FactorReport:
        """The report of it."""
        seconds = (self.times[-1] - self.times[0]) / 1e9
        program = self.plan.programs[0]
        spans = list(zip(self.times, self.times[1:], strict=False))
        records = tuple(executed_records(self.plan, [spans]))
        files = self.plan.file_traffic.link_bytes(program)
        execution = Execution(
            seconds, (program.link_bytes,), (program.peak_resident,), records, times=(spans,), file_bytes=(files,)
        )
        return FactorReport(self.plan, execution, self.times[-1] / 1e9 - self.began, passes=self.request.passes)


def whole_device_of(request: Request) -> str | None:
    """The device of a matrix that is one tile; None where it is to be cut."""
    plan = request.plan
    if plan is None:
        return request.whole_device
    is_whole = plan.grid.nt == 1 and request.problem.may_be_whole and plan.policy.name == "planned" and plan.moduli is None
    return plan.devices[0] if is_whole or plan.engine == "library" else None


def factor_whole(request: Request, device: str, began: float, owned: list[AbstractStore]) -> tuple[AbstractStore, WholeRun]:
    """Factor on ``device`` into a store, put into ``owned`` once it is there, whose holder discards it after an error."""
    source, grid = request.source, _one_tile(request.source.n)
    whole = kind_of(device).create_whole(device, request.problem.fmt)
    typed = driver_errors_typed(device, f"factoring a matrix of order {source.n} as one tile")
    with typed, progress_reporter(request.progress) as report, unchanged(source), whole.current():
        owned.append(store := whole_store(request, grid, device))
        started = time.perf_counter_ns()
        view = store.view((0, 0))  # None on a device
        tile = store.tile_on(device, (0, 0)) if view is None else whole.beside(view)
        whole.read(source, tile)
        if store.fmt.is_complex:
            _check_diagonal(whole, tile, largest_imaginary(source.dtype, store.fmt, source.n))
        been_read = time.perf_counter_ns()
        _factor(whole, source, tile)
        factored = time.perf_counter_ns()
        if view is not None:
            whole.take_out(tile, view)
        run = WholeRun(request, device, began, (started, been_read, factored, time.perf_counter_ns()))
        if report is not None:
            flops = run.plan.flops
            report(flops, flops, (run.times[-1] - run.times[0]) / 1e9)
    return store, run


@lru_cache(maxsize=64)
def _one_tile(n: int) -> TileGrid:
    """A grid that small calls share, as it computes what it is asked for once."""
    return TileGrid(n, n)


def _check_diagonal(whole: AbstractWholeKernels, tile: Tile, share: float) -> None:
    """Raise for the first diagonal entry of A that is not real; one that is not finite is told first."""
    row = whole.first_imaginary(tile, share)
    if row is None:
        return
    if (place := whole.first_nonfinite(tile)) is not None:
        raise NonFiniteError(*place, (0, 0))
    raise NotHermitianError(row, (0, 0))


def _factor(whole: AbstractWholeKernels, source: AbstractSource, tile: Tile) -> None:
    """Factor in place; raise for the first entry that is not finite, else for the first minor that is not positive."""
    minor = whole.factor(tile)
    if not minor:
        return
    whole.read(source, tile)
    if (place := whole.first_nonfinite(tile)) is not None:
        raise NonFiniteError(*place, (0, 0))
    raise NotPositiveDefiniteError(minor, (0, 0))
