"""``oc.cholesky`` with a client and a precision threshold: measured, run and certified by tasks on the workers."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack, closing
from typing import Any, cast

from ooc_chol.dense.cluster.calls import RETRIES, ClusterCall, entries_named, opened_matrix
from ooc_chol.dense.cluster.connection import connected
from ooc_chol.dense.cluster.facts import UNMEASURED, agreed_facts
from ooc_chol.dense.cluster.ground import ClusterGround, ClusterMixedPlan
from ooc_chol.dense.cluster.mixed_work import DaskWork, Workers
from ooc_chol.dense.cluster.model import WorkerRates
from ooc_chol.dense.cluster.plan import plan_cluster
from ooc_chol.dense.cluster.report import ClusterReport
from ooc_chol.dense.cluster.solving import ClusterSolver
from ooc_chol.dense.cluster.store import ClusterStore
from ooc_chol.dense.cluster.traffic import sent_bytes
from ooc_chol.dense.cluster.waiting import asked_anew, losses_named
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.mixed import doubts, factor_mixed
from ooc_chol.dense.mixed_ground import MixedResult
from ooc_chol.dense.planner.problem import format_asked
from ooc_chol.errors import PrecisionWarning
from ooc_chol.formats import FP64
from ooc_chol.precision.escalation import Escalations


def factor_mixed_on_cluster(call: ClusterCall) -> CholeskyFactor:
    """Factor A in mixed precision on the workers of a client.

    Parameters
    ----------
    call : ClusterCall
        The arguments, with a ``precision_threshold``.

    Returns
    -------
    CholeskyFactor
        L in the memory of the workers until it is closed.

    Raises
    ------
    Exception
        Whatever :func:`ooc_chol.cholesky` raises.
    """
    began = time.perf_counter()
    with ExitStack() as owned, losses_named():
        connection = owned.enter_context(ExitStack())
        client = connection.enter_context(connected(call.client))
        matrix = owned.enter_context(closing(opened_matrix(call)))
        fmt = format_asked(call.options, matrix.dtype)
        facts = asked_anew(lambda: agreed_facts(client, matrix.n, call.options, fmt))
        workers = Workers(client, facts, 0 if matrix.source is None else RETRIES)
        work = DaskWork(workers, matrix, call.progress)
        work.released_by(connection.close)
        sent = sent_bytes(client)
        with entries_named(matrix):
            result = factor_mixed(ClusterGround(work, call.options))
        plan, store = result.plan, work.store
        owned.callback(store.discard)
        report = _report(result, workers, work, began, max(0, sent_bytes(client) - sent))
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
            warnings.warn(doubt, PrecisionWarning, stacklevel=4)
        owned.pop_all()
        return factor


def _solver(store: ClusterStore, workers: Workers, plan: ClusterMixedPlan) -> ClusterSolver:
    """Solves where the blocks are."""
    assert store.futures is not None
    placing = workers.placing(plan.blocks)
    owners = tuple(placing.workers[owner] for owner in placing.owners)
    return ClusterSolver(workers.client, plan.blocks, store.futures, FP64, owners)


def _report(result: MixedResult[ClusterMixedPlan], workers: Workers, work: DaskWork, began: float, sent: int) -> ClusterReport:
    """What the tasks of all runs told."""
    plan, last = result.plan, work.runs[-1]
    runs = [run for each in work.runs for run in each.events.runs]
    busy: dict[str, float] = {}
    for run in runs:
        busy[run.worker] = busy.get(run.worker, 0.0) + run.span[1] - run.span[0]
    rooms = [WorkerRates(state.room_bytes) for state in workers.facts.workers.values()]
    planned = plan_cluster(plan.grid, rooms, UNMEASURED, height=plan.blocks.height, a_is_sent=work.source is None)
    return ClusterReport(
        planned,
        plan.blocks,
        FP64,
        engine=plan.run.options.fp64,
        store=ClusterStore.name,
        seconds=result.execution.seconds,
        wall_seconds=time.perf_counter() - began,
        tasks=planned.n_tasks,
        repeated=len(runs) - planned.n_tasks,
        workers=tuple(workers.facts.workers),
        lost_workers=last.lost_workers(),
        busy_seconds=busy,
        engine_seconds=sum(run.seconds for run in runs),
        network_bytes=sum(each.events.network_bytes(plan.blocks) for each in work.runs),
        sent_bytes=sent,
        peak_bytes=last.events.peak_bytes(),
        precision=plan.precision,
        escalations=Escalations(result.escalations),
        certified_bound=result.bound,
        certify_seconds=result.certify_seconds,
    )
