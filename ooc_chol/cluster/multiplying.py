"""``oc.multiply`` with a client: one product, of whose rows each worker makes its own."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace as replaced
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import Progress, progress_reporter
from ooc_chol.cluster.products import products_on_cluster
from ooc_chol.files.outputs import AnyPath
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, check_host_budget, known_of, packed_operator
from ooc_chol.sparse.report import MultiplyReport


def planned_on_cluster(
    A: Any,
    columns: int,
    precision: Precision,
    *,
    client: Any,
    packed: AnyPath | None,
    devices: Devices,
    memory_budget: int | str | None,
    host_budget: int | str | None,
) -> MultiplyPlan:
    """Plan of such a product on the workers that are there."""
    known = known_of(A, packed)
    with products_on_cluster(client, devices, memory_budget) as rows:
        plan = rows.planned(known, columns, precision)
    check_host_budget(plan.host_bytes, host_budget, "Y and the packed A")
    return plan


def multiplied_on_cluster(
    A: Any,
    x: NDArray[Any],
    precision: Precision,
    *,
    client: Any,
    packed: AnyPath | None,
    replace: bool,
    devices: Devices,
    memory_budget: int | str | None,
    host_budget: int | str | None,
    progress: Progress,
) -> tuple[NDArray[Any], MultiplyReport]:
    """``A x`` and its report, x of one or two dimensions."""
    began = time.perf_counter()
    with ExitStack() as stack:
        operator, known = stack.enter_context(packed_operator(A, packed, replace))
        n_rows, n_columns = operator.shape
        if x.shape[0] != n_columns:
            raise ValueError(f"X has shape {x.shape}, but A is {n_rows} x {n_columns}: X must have {n_columns} rows")
        columns = x.reshape(n_columns, -1) if x.size else x.reshape(n_columns, *x.shape[1:] or (1,))
        needed = known.packed_bytes + n_rows * columns.shape[1] * precision.storage.itemsize
        check_host_budget(needed, host_budget, "Y and the packed A")
        ended = [began, time.perf_counter()]
        rows = stack.enter_context(products_on_cluster(client, devices, memory_budget))
        plan = rows.planned(known, max(1, columns.shape[1]), precision)
        entries = max(1, columns.shape[1]) * known.blocks.n_entries
        show = stack.enter_context(progress_reporter(progress, "multiply", "entry"))
        ended.append(time.perf_counter())

        def told(done: int, total: int) -> None:
            if show is not None:
                show(entries * done // total, entries, time.perf_counter() - ended[-1])

        product = rows.product(operator, precision, max(1, columns.shape[1]), told=told)
        y = product(columns).reshape(n_rows, *x.shape[1:])
        ended.append(time.perf_counter())
        parts = dict(zip(("pack", "open", "run"), np.diff(ended).tolist(), strict=True))
        report = _report(rows.done(), plan, columns.shape[1])
    return y, replaced(report, parts=parts, total_seconds=time.perf_counter() - began)


def _report(done: ClusterProducts, plan: MultiplyPlan, columns: int) -> MultiplyReport:
    """Report of one product."""
    return MultiplyReport(
        plan=plan,
        scans=plan.scans if plan.shares and columns else 0,
        columns=columns,
        executed=done.link_bytes,
        exchanged_bytes=0,
        brought_bytes=done.sent_bytes,
        returned_bytes=done.returned_bytes,
        scan_seconds=(done.worker_seconds,) if plan.shares and columns else (),
        total_seconds=0.0,
        parts={},
        cluster=done,
    )
