"""From a request to the factor that the caller gets: plan, run, certify, and what is told of it."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from dataclasses import replace

from ooc_chol.calls.progress import progress_reporter
from ooc_chol.dense.execution.executor import run
from ooc_chol.dense.execution.records import predicted_records
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.factor.solvers import solver_of
from ooc_chol.dense.in_core import factor_whole, whole_device_of
from ooc_chol.dense.key import arithmetic_key
from ooc_chol.dense.mixed import doubts, factor_mixed, fp64_at_once
from ooc_chol.dense.mixed_local import LocalGround, LocalPrices
from ooc_chol.dense.report import FactorReport
from ooc_chol.dense.request import Request
from ooc_chol.dense.resuming import own_plan_and_store
from ooc_chol.dense.store_opening import own_empty_store
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import PrecisionWarning
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalations
from ooc_chol.tracing.trace import Trace


def factor_of_nothing(request: Request) -> CholeskyFactor:
    """The factor of the matrix of order 0, of which there is nothing to plan or to report."""
    with ExitStack() as owned:
        store = own_empty_store(request, owned)
        store.complete()
        factor = CholeskyFactor(store.grid, store, {}, a=request.a, files=request.source.files)
        owned.pop_all()
        return factor


def factor_in_fp64(request: Request, began: float, bound: CertifiedBound | None = None) -> CholeskyFactor:
    """Plan and run in FP64, which is within ``bound`` where a threshold was given."""
    if (device := whole_device_of(request)) is not None:
        return _factor_whole(request, device, began, bound)
    with ExitStack() as owned:
        the_plan, store, resumed = own_plan_and_store(request, owned)
        with progress_reporter(request.progress) as reporter:
            execution = run(the_plan, request.source, store, report=reporter)
        store.complete()
        store = store.result()
        total = time.perf_counter() - began
        the_plan = the_plan if bound is None else the_plan.asked_for(request.asked)
        report = FactorReport(the_plan, execution, total, certified_bound=bound, passes=request.passes, resumed=resumed)
        factor = _factor_of(request, store, report)
        owned.pop_all()
        return factor


def _factor_whole(request: Request, device: str, began: float, bound: CertifiedBound | None) -> CholeskyFactor:
    """Factor a matrix that is one tile; what is told of it waits until somebody asks."""
    owned: list[AbstractStore] = []
    try:
        store, run = factor_whole(request, device, began, owned)
        return CholeskyFactor(
            store.grid,
            store,
            lambda: arithmetic_key(run.plan).to_dict(),
            lambda: replace(run.report, certified_bound=bound),
            trace=_trace_of(run.report) if request.trace else None,
            passes=request.passes,
            a=request.a,
            solver=solver_of((device,), lambda _: run.budget_bytes, store.fmt),
            files=lambda: request.source.files,
            lower=not request.source.is_transposed,
        )
    except BaseException:
        for store in owned:
            store.discard()
        raise


def factor_in_mixed(request: Request, began: float) -> CholeskyFactor:
    """Measure, plan, run and certify with a precision threshold; FP64 where that is as good and as fast."""
    prices = LocalPrices(request)
    if (bound := fp64_at_once(request, prices)) is not None:
        return factor_in_fp64(request.in_fp64(), began, bound)
    with ExitStack() as owned:
        ground = LocalGround(request, prices, owned)
        result = factor_mixed(ground)
        plan, execution, store = result.plan, result.execution, ground.store
        key = result.key or arithmetic_key(plan).to_dict()
        store.describe(key)  # formats may be wider than those it was made for
        store.complete()
        store = store.result()
        report = FactorReport(
            plan,
            execution,
            time.perf_counter() - began,
            escalations=Escalations(result.escalations),
            certified_bound=result.bound,
            certificate_seconds=result.certificate_seconds,
            passes=request.passes,
            resumed=result.resumed,
            key_resumed=result.key,
        )
        factor = _factor_of(request, store, report)
        assert request.options.precision_threshold is not None
        for doubt in doubts(result, request.options.precision_threshold, factor.diagonal()):
            warnings.warn(doubt, PrecisionWarning, stacklevel=frames_of_the_package() + 1)
        owned.pop_all()
        return factor


def _factor_of(request: Request, store: AbstractStore, report: FactorReport) -> CholeskyFactor:
    """The factor that the caller gets, with its report and the device that it may solve on."""
    plan = report.plan
    trace, kept = _trace_of(report) if request.trace else None, None if request.overwrite else request.a
    return CholeskyFactor(
        plan.grid,
        store,
        report.key,
        report,
        trace=trace,
        a=kept,
        solver=solver_of(plan.devices, lambda k: plan.budgets[k].budget_bytes, plan.fmt),
        files=request.source.files,
        lower=not request.source.is_transposed,
    )


def _trace_of(report: FactorReport) -> Trace:
    """The run as a trace, its prediction beside it."""
    plan = report.plan
    metadata: dict[str, str | int | float] = {
        "n": plan.grid.n,
        "tile_size": plan.grid.nb,
        "policy": plan.policy.name,
        "devices": ", ".join(plan.devices),
        "budget_bytes": plan.budget_bytes,
        "source": plan.source,
        "seconds": report.inside_seconds,
        "gflops_per_second": report.tflops * 1e3,
    }
    return Trace(tuple(report.execution.records), predicted_records(plan), metadata)
