"""``oc.cholesky`` and ``oc.plan`` with a client: from arguments to a factor whose blocks are on a cluster, or in a Zarr group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ooc_chol.calls.progress import progress_reporter
from ooc_chol.cluster.asking import told_before
from ooc_chol.cluster.connection import connected
from ooc_chol.cluster.facts import ClusterFacts, agreed_facts, agreed_key
from ooc_chol.cluster.given import beside, check_call, check_height
from ooc_chol.cluster.groups import Asked, Found, Group, checked, found_group, kept_group, new_group, right_blocks
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.matrices import AbstractClusterMatrix
from ooc_chol.cluster.placing import Placing
from ooc_chol.cluster.plan import ClusterPlan, Settled, settled_of
from ooc_chol.cluster.planning import plan_of_call
from ooc_chol.cluster.report import ClusterReport
from ooc_chol.cluster.request import RETRIES, ClusterCall, opened_matrix
from ooc_chol.cluster.run import BlockRun, RunJob
from ooc_chol.cluster.solving import ClusterSolver
from ooc_chol.cluster.store import ClusterStore
from ooc_chol.cluster.traffic import sent_bytes
from ooc_chol.cluster.waiting import asked_anew, losses_named
from ooc_chol.config import parse_bytes
from ooc_chol.dense.checkpoint import CheckpointRecord
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.fingerprint import Fingerprint
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.problem import format_asked
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.errors import ScheduleError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources import from_function
from ooc_chol.memory.sources.base import entries_named
from ooc_chol.runtime.passes import Passes


@dataclass(frozen=True)
class Setting:
    """Choices that follow from a call and the workers, before anything runs."""

    matrix: AbstractClusterMatrix
    fmt: PrecisionFormat
    facts: ClusterFacts
    plan: ClusterPlan
    key: dict[str, str | int]  #: The arithmetic key
    asked: Asked | None = None  #: The group that L goes to
    found: Found | None = None  #: What an earlier run left of it
    fingerprint: Fingerprint | None = None  #: Of A, for a checkpoint


def factor_on_cluster(call: ClusterCall) -> CholeskyFactor:
    """Factor A on the workers of a client."""
    if call.options.precision_threshold is not None:
        from ooc_chol.cluster.mixed_calls import factor_mixed_on_cluster

        return factor_mixed_on_cluster(call)
    began = time.perf_counter()
    with ExitStack() as owned:
        connection = owned.enter_context(ExitStack())
        client = connection.enter_context(connected(call.client))
        with client.as_current(), losses_named():
            factor, needs_cluster = _factored(call, client, connection, began)
        if needs_cluster:
            owned.pop_all()  # closed with the factor
        return factor


def _factored(call: ClusterCall, client: Any, connection: ExitStack, began: float) -> tuple[CholeskyFactor, bool]:
    """The factor, and whether it needs the connection."""
    with closing(opened_matrix(call)) as matrix:
        return _factored_matrix(call, client, matrix, connection, began)


def _factored_matrix(
    call: ClusterCall, client: Any, matrix: AbstractClusterMatrix, connection: ExitStack, began: float
) -> tuple[CholeskyFactor, bool]:
    """The same of what A is on a cluster."""
    setting = _setting(call, client, matrix)
    if setting.found is not None and setting.found.store.is_complete:
        return _finished(call, setting, began), False
    with _group(client, setting) as group:
        tasks = BlockRun(_job(client, setting, group))
        sent = sent_bytes(client)
        with progress_reporter(call.progress) as reporter, entries_named(setting.matrix, call.options.dtype):
            tasks.execute(reporter)
        report = replace(_report(tasks, setting, group), sent_bytes=max(0, sent_bytes(client) - sent))
        store: AbstractStore = group.completed() or _store(client, setting, tasks, connection)
        report = replace(report, total_seconds=time.perf_counter() - began)
        return _factor(call, setting, store, report, client if group.store is None else call.client), group.store is None


def _setting(call: ClusterCall, client: Any, matrix: AbstractClusterMatrix, *, asks_seconds: bool = False) -> Setting:
    """Choices that follow from the arguments and the workers, before anything runs; with seconds where a plan is requested."""
    fmt = format_asked(call.options, matrix.dtype)
    if call.plan is not None:
        check_call(call.plan, call.options, matrix.n, fmt)
        call = replace(call, options=settled_of(call.plan).options)
    asked, found = Asked.of(call.store, checkpoint=call.checkpoint, replace=call.replaces), None
    fingerprint = None
    if asked is not None:
        checked(asked, matrix)
        if asked.checkpoint:
            fingerprint = matrix.fingerprint(client, fmt, call.options.devices)
            found = found_group(asked, call.options, matrix, fmt, fingerprint)
    options = call.options if found is None else found.options

    def planned() -> tuple[ClusterFacts, ClusterPlan]:
        if call.plan is not None:
            return _by_plan(client, matrix, fmt, call.plan, asked)
        return _planned(client, matrix, fmt, options, (asked, found), asks_seconds=asks_seconds)

    with ExitStack() as until_known:
        if found is not None:
            until_known.callback(found.store.close)
            if call.plan is not None and found.height is not None:
                check_height(call.plan, found.height)
        facts, plan = asked_anew(planned)
        key = agreed_key(client, facts, plan.blocks, fmt)
        if found is not None:
            found.check_key(key)
        until_known.pop_all()
    return Setting(matrix, fmt, facts, plan, key, asked, found, fingerprint)


def _planned(
    client: Any,
    matrix: AbstractClusterMatrix,
    fmt: PrecisionFormat,
    options: FactorOptions,
    group: tuple[Asked | None, Found | None],
    *,
    asks_seconds: bool,
) -> tuple[ClusterFacts, ClusterPlan]:
    """Facts of the present workers, and a plan for them; ``WorkersLeftError`` where one leaves meanwhile."""
    asked, found = group
    facts = _sharing(client, agreed_facts(client, matrix.n, options, fmt), asked)
    plan = plan_of_call(
        client,
        facts,
        matrix.n,
        fmt,
        store=None if asked is None else asked.place,
        height=None if found is None else found.height,
        a_is_sent=matrix.source is None,
        asks_seconds=asks_seconds,
    )
    return facts, replace(plan, settled=Settled(options, facts.options, fmt, facts.kernels))


def _by_plan(
    client: Any, matrix: AbstractClusterMatrix, fmt: PrecisionFormat, plan: ClusterPlan, asked: Asked | None
) -> tuple[ClusterFacts, ClusterPlan]:
    """Facts of the workers that are there now, for which a plan was given; ``ValueError`` where it is for others."""
    plan = beside(plan, store="memory" if asked is None else "zarr", a_is_sent=matrix.source is None)
    facts = agreed_facts(client, matrix.n, settled_of(plan).asked, fmt, plan)
    return _sharing(client, facts, asked), plan


def _sharing(client: Any, facts: ClusterFacts, asked: Asked | None) -> ClusterFacts:
    """The facts, with whether workers that keep L have it in memory that others map, and that is page-locked."""
    if asked is not None:
        return facts
    from ooc_chol.cluster.shared_blocks import shares_memory  # needs Dask

    workers, copies = tuple(facts.workers), facts.copies
    question = shares_memory, workers, copies
    shares = told_before(client, "memory", question, lambda: shares_memory(client, workers, copies=copies))
    return replace(facts, shares_memory=shares)


@contextmanager
def _group(client: Any, setting: Setting) -> Iterator[Group]:
    """The group for L, new or gone on from; none where L stays in the workers' memory."""
    asked, found, options = setting.asked, setting.found, setting.facts.options
    if asked is None:
        yield Group()
        return
    if found is not None:
        group = Group(found.store)
    else:
        group = Group(new_group(asked, setting.plan.blocks, setting.fmt, setting.key, _record_of(setting.fingerprint, options)))
    with kept_group(group, keeps=asked.checkpoint):
        if found is not None:
            found.store.take_over()
            if found.height is None:
                found.store.cut_anew(setting.plan.blocks.height)
            group.done = right_blocks(client, found.store)
        yield group


def _record_of(fingerprint: Fingerprint | None, options: FactorOptions) -> CheckpointRecord | None:
    """Record in a group from which a later call can resume; None without a checkpoint."""
    if fingerprint is None:
        return None
    budget = parse_bytes(options.memory_budget or 0, "memory_budget")
    half = options.half_products
    return CheckpointRecord(fingerprint, options.fp64, options.moduli, half, False, budget, None, options.precision_rule)


def _finished(call: ClusterCall, setting: Setting, began: float) -> CholeskyFactor:
    """The factor that an earlier call of the same kind has finished."""
    assert setting.found is not None
    blocks, done = setting.plan.blocks, setting.plan.n_tasks
    report = ClusterReport(
        setting.plan,
        blocks,
        setting.fmt,
        engine=setting.facts.options.fp64,
        store=setting.found.store.path,
        task_seconds=0.0,
        total_seconds=time.perf_counter() - began,
        key=setting.key,
        tasks=0,
        resumed=done,
        workers=tuple(setting.facts.workers),
    )
    return _factor(call, setting, setting.found.store, report, call.client)


def _job(client: Any, setting: Setting, group: Group) -> RunJob:
    """The run, as it is given to Dask."""
    facts, matrix, plan = setting.facts, setting.matrix, setting.plan
    reads = matrix.source is not None or group.url is not None
    placing = Placing(tuple(facts.workers), plan.owners, facts.resources, RETRIES if reads else 0)
    run = ClusterRun(
        plan.blocks.tiles,
        facts.options,
        setting.fmt,
        None,
        setting.key,
        matrix.source,
        group.url,
        group.writer,
        memory_bytes=facts.memory_bytes,
        shares_memory=facts.shares_memory,
        keeps_tiles=group.url is None and facts.copies,
    )
    return RunJob(client, run, plan.blocks, matrix, placing, group.done)


def _store(client: Any, setting: Setting, tasks: BlockRun, connection: ExitStack) -> ClusterStore:
    """L in the memory of the workers; the connection is closed with it, if it is the call's own."""

    def release() -> None:
        tasks.forget()
        connection.close()

    blocks, shares = setting.plan.blocks, setting.facts.shares_memory
    return ClusterStore(client, blocks, tasks.futures, fmt=setting.fmt, release=release, shares_memory=shares)


def _report(tasks: BlockRun, setting: Setting, group: Group) -> ClusterReport:
    """Report made of the tasks' events."""
    events, blocks = tasks.events, setting.plan.blocks
    return ClusterReport(
        setting.plan,
        blocks,
        setting.fmt,
        engine=setting.facts.options.fp64,
        store=group.url or ClusterStore.name,
        task_seconds=tasks.seconds,
        total_seconds=tasks.seconds,
        key=setting.key,
        tasks=setting.plan.n_tasks - len(group.done),
        resumed=len(group.done),
        repeated=events.repeated,
        workers=tuple(setting.facts.workers),
        lost_workers=tasks.lost_workers(),
        busy_seconds=events.busy_seconds(),
        engine_seconds=sum(run.seconds for run in events.runs),
        network_bytes=events.network_bytes(blocks),
        link_bytes=events.link_bytes(),
        read_bytes=sum(run.read_bytes for run in events.runs),
        worker_bytes=events.peak_bytes(),
        passes=Passes(),
    )


def _solver(setting: Setting, store: AbstractStore, client: Any) -> ClusterSolver | None:
    """Solves on the workers; None where L is in a group and the connection is the call's own, which ends with it."""
    where = [tuple(setting.facts.workers)[owner] for owner in setting.plan.owners]
    if isinstance(store, ClusterStore):
        return ClusterSolver(client, setting.plan.blocks, store.futures or {}, setting.fmt, where)
    if isinstance(client, str):
        return None
    assert isinstance(store, AbstractKeptStore)
    return ClusterSolver(client, setting.plan.blocks, store.path, setting.fmt, where)


def _factor(call: ClusterCall, setting: Setting, store: AbstractStore, report: ClusterReport, client: Any) -> CholeskyFactor:
    """The factor that the caller gets."""
    return CholeskyFactor(
        setting.plan.blocks.tiles,
        store,
        setting.key,
        cast(Any, report),  # what is told of a run on one machine, and of one on a cluster
        a=call.a,
        solver=_solver(setting, store, client),
        files=setting.matrix.files,
        lower=call.lower is not False,
    )


def plan_on_cluster(call: ClusterCall) -> ClusterPlan:
    """The plan of :func:`factor_on_cluster`; ``a`` may be an order."""
    with connected(call.client) as client, client.as_current(), losses_named():
        if isinstance(call.a, int | np.integer) and not isinstance(call.a, bool):
            call = replace(call, a=from_function(int(call.a), _no_entries, dtype=call.options.dtype or "float64"))
        with closing(opened_matrix(call)) as matrix:
            if call.options.precision_threshold is None:
                return _setting(call, client, matrix, asks_seconds=True).plan
            from ooc_chol.cluster.mixed_calls import planned_mixed

            return planned_mixed(call, client, matrix)[1]


def _no_entries(rows: range, cols: range, out: Tile, stream: Any) -> None:
    """Stand for a matrix of which only the order is known: nothing of it is ever read."""
    raise ScheduleError("a matrix that is only planned for is not read")
