"""``oc.cholesky`` with a client and a precision threshold: measured, run and certified by tasks on the workers."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, cast

from ooc_chol.cluster.connection import connected
from ooc_chol.cluster.facts import agreed_facts
from ooc_chol.cluster.given import beside, check_call, run_before
from ooc_chol.cluster.ground import ClusterGround, ClusterMixedPlan
from ooc_chol.cluster.matrices import AbstractClusterMatrix
from ooc_chol.cluster.mixed_work import DaskWork, Workers
from ooc_chol.cluster.plan import ClusterPlan, Settled, settled_of
from ooc_chol.cluster.planning import plan_of_call
from ooc_chol.cluster.report import ClusterReport
from ooc_chol.cluster.request import RETRIES, ClusterCall, opened_matrix
from ooc_chol.cluster.solving import ClusterSolver
from ooc_chol.cluster.store import ClusterStore
from ooc_chol.cluster.traffic import sent_bytes
from ooc_chol.cluster.waiting import asked_anew, losses_named
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.mixed import doubts, factor_mixed
from ooc_chol.dense.mixed_ground import MixedResult
from ooc_chol.dense.planner.problem import format_asked
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import PrecisionWarning
from ooc_chol.formats import FP64
from ooc_chol.memory.sources.base import entries_named
from ooc_chol.precision.escalation import Escalations


def factor_mixed_on_cluster(call: ClusterCall) -> CholeskyFactor:
    """Factor A in mixed precision on the workers of a client."""
    began = time.perf_counter()
    with ExitStack() as owned, losses_named():
        connection = owned.enter_context(ExitStack())
        client = connection.enter_context(connected(call.client))
        matrix = owned.enter_context(closing(opened_matrix(call)))
        workers, planned = planned_mixed(call, client, matrix)
        work = DaskWork(workers, matrix, call.progress)
        work.released_by(connection.close)
        settled = settled_of(planned)
        ground = ClusterGround(work, replace(settled.options, strict=call.options.strict), run_before(planned))
        sent = sent_bytes(client)
        with entries_named(matrix):
            result = factor_mixed(ground)
        plan, store = result.plan, work.store
        owned.callback(store.discard)
        planned = replace(planned, settled=replace(settled, is_run=True, formats=plan.precision))
        report = _report(result, planned, workers, work, began, max(0, sent_bytes(client) - sent))
        factor = CholeskyFactor(
            plan.grid,
            store,
            plan.run.arithmetic_key,
            cast(Any, report),  # what is told of a run on one machine, and of one on a cluster
            a=call.a,
            solver=_solver(store, workers, plan),
            files=matrix.files,
            lower=call.lower is not False,
        )
        assert call.options.precision_threshold is not None
        for doubt in doubts(result, call.options.precision_threshold, factor.diagonal()):
            warnings.warn(doubt, PrecisionWarning, stacklevel=frames_of_the_package() + 1)
        owned.pop_all()
        return factor


def planned_mixed(call: ClusterCall, client: Any, matrix: AbstractClusterMatrix) -> tuple[Workers, ClusterPlan]:
    """The workers, and the plan for them, before anything runs; one that was given is checked."""
    fmt = format_asked(call.options, matrix.dtype)
    retries, a_is_sent = 0 if matrix.source is None else RETRIES, matrix.source is None
    if call.plan is not None:
        check_call(call.plan, call.options, matrix.n, fmt)
        given = beside(call.plan, store="memory", a_is_sent=a_is_sent)
        asked = settled_of(given).asked
        return Workers(client, asked_anew(lambda: agreed_facts(client, matrix.n, asked, fmt, given)), retries), given

    def plan() -> tuple[Workers, ClusterPlan]:
        workers = Workers(client, agreed_facts(client, matrix.n, call.options, fmt), retries)
        grid, options = ClusterGround(work := DaskWork(workers, matrix), call.options).engine()
        workers = replace(workers, facts=replace(workers.facts, options=options))
        found = plan_of_call(client, workers.facts, matrix.n, fmt, height=work.cut(grid).height, a_is_sent=a_is_sent)
        return workers, replace(found, settled=Settled(call.options, options, fmt, workers.facts.kernels))

    return asked_anew(plan)


def _solver(store: ClusterStore, workers: Workers, plan: ClusterMixedPlan) -> ClusterSolver:
    """Solves where the blocks are."""
    assert store.futures is not None
    placing = workers.placing(plan.blocks)
    owners = tuple(placing.workers[owner] for owner in placing.owners)
    return ClusterSolver(workers.client, plan.blocks, store.futures, FP64, owners)


def _report(
    result: MixedResult[ClusterMixedPlan], planned: ClusterPlan, workers: Workers, work: DaskWork, began: float, sent: int
) -> ClusterReport:
    """Report made of the tasks' events of all runs."""
    plan, last = result.plan, work.runs[-1]
    runs = [run for each in work.runs for run in each.events.runs]
    busy: dict[str, float] = {}
    for run in runs:
        busy[run.worker] = busy.get(run.worker, 0.0) + run.span[1] - run.span[0]
    return ClusterReport(
        planned,
        plan.blocks,
        FP64,
        engine=plan.run.options.fp64,
        store=ClusterStore.name,
        task_seconds=result.execution.seconds,
        total_seconds=time.perf_counter() - began,
        key=plan.run.arithmetic_key,
        tasks=planned.n_tasks,
        repeated=len(runs) - planned.n_tasks,
        workers=tuple(workers.facts.workers),
        lost_workers=last.lost_workers(),
        busy_seconds=busy,
        engine_seconds=sum(run.seconds for run in runs),
        network_bytes=sum(each.events.network_bytes(plan.blocks) for each in work.runs),
        sent_bytes=sent,
        worker_bytes=last.events.peak_bytes(),
        precision=plan.precision,
        escalations=Escalations(result.escalations),
        certified_bound=result.bound,
        certificate_seconds=result.certificate_seconds,
    )
