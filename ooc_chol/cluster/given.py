"""A plan that a call on a cluster is given: whether it is one for that call, and what the call takes from it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ooc_chol.cluster.ground import ClusterMixedPlan
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.plan import ClusterPlan, settled_of
from ooc_chol.config import parse_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import precision_asked
from ooc_chol.dense.request import check_order, check_thresholds, check_type
from ooc_chol.formats import PrecisionFormat

#: Options that are compared in words of their own, that change no plan, or that are not there on a cluster.
_OTHERS = frozenset({"precision_threshold", "precision_rule", "dtype", "strict", "policy", "host_budget"})


def check_kind(plan: Any) -> None:
    """Refuse what is no plan of a call on a cluster."""
    if isinstance(plan, Plan):
        raise ValueError(
            "the plan is of one machine: on a cluster give one of oc.plan(A, client=client) or L.plan, or leave it out"
        )
    if not isinstance(plan, ClusterPlan):
        raise TypeError(f"plan is a {type(plan).__name__}; give a ClusterPlan, as oc.plan(A, client=client) and L.plan are")
    if plan.settled is None:
        raise ValueError("the plan is of no call: it says nothing of engine and devices; give one of oc.plan(A, client=client)")


def check_call(plan: ClusterPlan, options: FactorOptions, n: int, fmt: PrecisionFormat) -> None:
    """Raise ``ValueError`` for the first thing that a call asks for otherwise; what it leaves open the plan decides."""
    planned = settled_of(plan)
    check_order(plan.blocks.tiles.n, n)
    check_type(planned.fmt, fmt)
    check_thresholds(precision_asked(planned.asked), precision_asked(options))
    for name, default in ((row.name, row.default) for row in fields(FactorOptions) if row.name not in _OTHERS):
        value = _plain(name, getattr(options, name))
        before = [_plain(name, getattr(each, name)) for each in (planned.asked, planned.options)]
        if value != default and value not in before:
            raise ValueError(
                f"the plan is for {name}={before[1]!r}, but {value!r} is asked for: leave {name} out, or plan with it"
            )


def _plain(name: str, value: Any) -> Any:
    """The value of an option, of whose forms there is one."""
    if name == "memory_budget" and value is not None:
        return parse_bytes(value, name)
    return ",".join(value) if isinstance(value, tuple) else value


def check_height(plan: ClusterPlan, height: int) -> None:
    """Refuse the plan of other blocks than those of a group that is gone on from."""
    if plan.blocks.height != height:
        raise ValueError(
            f"the plan is for blocks of {plan.blocks.height} tile rows, but the checkpoint has blocks of {height}: leave plan out"
        )


def beside(plan: ClusterPlan, *, store: str, a_is_sent: bool) -> ClusterPlan:
    """The plan where A comes from and L goes to other places than were planned, which no bit depends on."""
    if (plan.case.store, plan.case.a_is_sent) == (store, a_is_sent):
        return plan
    return replace(plan, case=replace(plan.case, store=store, a_is_sent=a_is_sent), others=())


def run_before(plan: ClusterPlan) -> ClusterMixedPlan | None:
    """The run in mixed precision that the plan comes from, for the formats that it came to; None where nothing was run."""
    planned = settled_of(plan)
    if not planned.is_run:
        return None
    run = ClusterRun(plan.blocks.tiles, planned.options, planned.fmt, planned.formats, {})
    return ClusterMixedPlan(run, plan.blocks)
