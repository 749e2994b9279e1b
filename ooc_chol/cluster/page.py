"""Page of a printed plan of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ooc_chol.config import format_bytes
from ooc_chol.schedulers.ownership import imbalance

if TYPE_CHECKING:
    from ooc_chol.cluster.plan import ClusterPlan

#: Other heights of blocks that the page names.
_MOST_OTHERS = 3


def page(plan: ClusterPlan) -> str:
    """The plan as a page of short lines."""
    grid, case = plan.blocks, plan.case
    title = f"Plan: Cholesky of n = {grid.tiles.n} on {plan.n_workers} worker{'s' * (plan.n_workers != 1)} of a cluster"
    where = "in the memory of the workers" if case.store == "memory" else "in a Zarr group"
    balance = imbalance(plan.owners, plan.n_workers)
    lines = [
        ("", f"{title}, in {grid.tiles.nt} x {grid.tiles.nt} tiles of {grid.tiles.nb}"),
        (
            "blocks",
            f"{grid.n_blocks} block rows of {grid.height} tile rows; the busiest worker has {balance:.3g} x the mean work",
        ),
        ("tasks", f"{plan.n_tasks}, with {plan.n_dependencies} dependencies; {plan.flops:.4g} flops counted"),
        ("L", f"{format_bytes(plan.stored_bytes)} {where}"),
        ("network", _network_text(plan)),
        *([] if case.store == "memory" else [("storage", _storage_text(plan))]),
        ("memory", _memory_text(plan)),
        *([("rates", _rates_text(plan))] if plan.has_rates else []),
        ("seconds", _seconds_text(plan)),
        *([("bounds", _bounds_text(plan))] if plan.bounds else []),
        *([("others", _others_text(plan))] if plan.others else []),
    ]
    return "\n".join(f"  {name:<10} {text}" if name else text for name, text in lines)


def _network_text(plan: ClusterPlan) -> str:
    most = max(plan.received_bytes)
    rate = plan.case.rates.network_bytes_per_second
    of_a = ", blocks of A included" if plan.case.a_is_sent else ""
    total = f"{format_bytes(plan.network_bytes)} between workers{of_a}"
    return f"{total}, {format_bytes(most)} into one at most, at {rate / 1e9:.3g} GB/s"


def _storage_text(plan: ClusterPlan) -> str:
    written = f"{format_bytes(plan.written_bytes)} written"
    if plan.read_bytes is None:
        return f"{written}; what is read is not counted for so many blocks, or without rates"
    return f"{written}, {format_bytes(plan.read_bytes)} read beside what the workers' caches have"


def _memory_text(plan: ClusterPlan) -> str:
    least = min(worker.memory_bytes for worker in plan.case.workers)
    return f"peak {format_bytes(plan.peak_bytes)} on a worker, of {format_bytes(least)}"


def _rates_text(plan: ClusterPlan) -> str:
    """Rates of the slowest worker, on which a run with even shares waits."""
    slowest = min(plan.case.workers, key=lambda worker: worker.flops_per_second or 0.0)
    assert slowest.flops_per_second is not None
    panel = slowest.panel_flops_per_second or slowest.flops_per_second
    rates = f"{slowest.flops_per_second / 1e9:.4g} GFLOP/s of products, {panel / 1e9:.4g} of POTRF and TRSM on the slowest worker"
    return f"{rates}; {1e3 * plan.case.rates.overhead_seconds:.3g} ms a task beside"


def _seconds_text(plan: ClusterPlan) -> str:
    if plan.seconds is None:
        return "unknown: rates of the workers or of the storage were not measured"
    how = "task by task" if plan.outcome is not None else "column by column"
    assert plan.efficiency is not None
    rate = plan.flops / plan.seconds / 1e9
    return f"{plan.seconds:.3g} predicted {how}, {rate:.4g} GFLOP/s: {plan.efficiency:.0%} of the workers' rate of products"


def _bounds_text(plan: ClusterPlan) -> str:
    """Limits of the run, the longest first."""
    longest_first = sorted(plan.bounds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in longest_first)


def _others_text(plan: ClusterPlan) -> str:
    near = sorted(plan.others, key=lambda item: item[1])[:_MOST_OTHERS]
    return ", ".join(f"{height} tile row{'s' * (height != 1)} {seconds:.3g} s" for height, seconds in near)
