"""What workers of one machine and of one GPU have to share: budgets, and what is refused before a run begins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions
from tests.inside.cluster import (
    ClusterRates,
    Settled,
    Sharing,
    WorkerRates,
    WorkerState,
    asked_of_all,
    asking,
    check_planned,
    check_room,
    plan_cluster,
    shared_out,
    sharing_of,
)
from tests.inside.hardware import CUDA_RESERVE_BYTES
from tests.inside.kernels import KernelFacts
from tests.inside.precision import FP64
from tests.inside.tasks import TileGrid

GIB = 1 << 30
KERNELS = KernelFacts("a GPU", "a library", "a solve", "kernels")


def gpu_worker(*gpus: str, budget: int = 94 * GIB) -> WorkerState:
    """A worker on GPUs of 96 GiB, as it says of itself when it is alone there."""
    names = tuple(f"cuda:{number}" for number in range(len(gpus)))
    return WorkerState(names, KERNELS, budget, False, "1", 64 * GIB, 500 * GIB, {"GPU": 1.0}, gpus, 96 * GIB)


def host_worker(budget: int = GIB, limit: int = 4 * GIB) -> WorkerState:
    return WorkerState(("host:0",), KERNELS, budget, True, "1", limit, 16 * GIB, {})


@pytest.mark.parametrize(
    "where", ["local:0", "local:-1", "local:1.5", "local:", "LOCAL", "local :2", "slurm:x", "Slurm:2", "", " "]
)
def test_a_word_that_means_a_cluster_but_names_none_is_refused_at_once(where):
    with pytest.raises(ValueError, match="a whole number of at least 1"), oc.open_cluster(where):
        pass


@pytest.mark.parametrize("where", [None, 5, b"local"])
def test_a_cluster_is_named_by_text(where):
    with pytest.raises(TypeError, match=f"was named by a {type(where).__name__}; give"), oc.open_cluster(where):
        pass


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (oc.errors.BudgetError("memory_budget of host:0", 2, 1, "give more"), oc.errors.BudgetError),
        (ValueError("there is no device 'cuda:0'"), ValueError),
        (AttributeError("no attribute key_here"), oc.errors.ClusterError),
    ],
)
def test_what_a_worker_refuses_is_raised_as_in_one_process(monkeypatch, error, raised):
    monkeypatch.setattr(asking, "wait_for", lambda *_, **__: None)
    failed = SimpleNamespace(status="error", exception=lambda: error)
    client = SimpleNamespace(submit=lambda *_, **__: failed, cancel=lambda _: None)
    with pytest.raises(raised) as caught:
        asked_of_all(client, {"tcp://one:1": (len, ())})
    is_own = caught.value is error
    assert is_own == (raised is not oc.errors.ClusterError)
    assert not is_own or error.__notes__ == ["on worker tcp://one:1"]


def test_workers_are_counted_by_machine_and_by_gpu_whatever_they_call_it():
    states = {
        "tcp://one:1": gpu_worker("a"),
        "tcp://one:2": gpu_worker("b", "a"),
        "tcp://one:3": gpu_worker("c"),
        "tcp://two:1": gpu_worker("a"),
        "tcp://two:2": host_worker(),
    }
    assert sharing_of(states) == {
        "tcp://one:1": Sharing(3, 2),
        "tcp://one:2": Sharing(3, 2),
        "tcp://one:3": Sharing(3, 1),
        "tcp://two:1": Sharing(2, 1),
        "tcp://two:2": Sharing(2, 1),
    }


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_workers_of_one_gpu_have_its_free_memory_in_parts_with_a_reserve_each(workers):
    states = {f"tcp://one:{number}": gpu_worker("a") for number in range(workers)}
    budgets = [state.budget_bytes for state in shared_out(states).values()]
    free = 94 * GIB + CUDA_RESERVE_BYTES
    assert workers * (budgets[0] + CUDA_RESERVE_BYTES) <= free and len(set(budgets)) == 1
    assert budgets[0] >= 0.97 * (free / workers - CUDA_RESERVE_BYTES)
    check_room(shared_out(states))


def test_a_gpu_of_ones_own_and_a_host_are_shared_with_nobody():
    states = {"tcp://one:1": gpu_worker("a"), "tcp://one:2": gpu_worker("b"), "tcp://two:1": host_worker()}
    assert shared_out(states) == states


def test_a_gpu_that_is_nearly_full_leaves_a_budget_that_says_so():
    states = {f"tcp://one:{number}": gpu_worker("a", budget=GIB) for number in range(3)}
    assert {state.budget_bytes for state in shared_out(states).values()} == {1 << 20}


def test_budgets_that_one_gpu_does_not_hold_are_refused_with_its_workers():
    states = {f"tcp://one:{number}": gpu_worker("a", budget=50 * GIB) for number in range(2)} | {"tcp://two:1": gpu_worker("a")}
    with pytest.raises(oc.errors.ClusterError, match="more than their GPU has") as told:
        check_room(states)
    assert set(told.value.workers) == {"tcp://one:0", "tcp://one:1"}
    assert "53.7 GB for each of 2 workers on a GPU of 103 GB" in str(told.value)
    check_room({"tcp://one:0": gpu_worker("a", budget=50 * GIB), "tcp://one:1": gpu_worker("b", budget=50 * GIB)})


def test_a_budget_beyond_the_memory_limit_is_refused():
    with pytest.raises(oc.errors.ClusterError, match="more than Dask lets workers have"):
        check_room({"tcp://one:1": host_worker(budget=5 * GIB)})


def check_workers(states, *, budget: int | None = None, n: int = 8192) -> None:
    """Check that workers are those of a plan for two of 4 GiB, with the budget that is given, or else one of 1 GiB."""
    asked = FactorOptions(memory_budget=budget)
    planned = Settled(asked, replace(asked, memory_budget=budget or GIB), FP64, KERNELS)
    plan = replace(plan_cluster(TileGrid(n, 256), [WorkerRates(4 * GIB)] * 2, ClusterRates(1e9), height=4), settled=planned)
    check_planned(plan, {f"tcp://one:{number}": state for number, state in enumerate(states)})


def test_a_plan_serves_other_workers_of_the_same_shape():
    for state in (host_worker(), host_worker(limit=0), host_worker(limit=3 * GIB), gpu_worker("a")):
        check_workers([state] * 2)
    check_workers([host_worker(budget=99 * GIB, limit=0)] * 2, budget=99 * GIB)  # as told, though it may not be there


@pytest.mark.parametrize("field", ["model", "library", "trsm", "kernels"])
def test_a_plan_of_workers_with_other_bits_is_refused(field):
    other = replace(host_worker(), kernels=replace(KERNELS, **{field: "another one"}))
    with pytest.raises(ValueError, match=f"'{getattr(KERNELS, field)}' there, 'another one' here"):
        check_workers([other] * 2)


@pytest.mark.parametrize("count", [1, 3])
def test_a_plan_of_more_or_fewer_workers_is_refused(count):
    with pytest.raises(ValueError, match=f"for 2 workers, but the cluster has {count}"):
        check_workers([host_worker()] * count)


@pytest.mark.parametrize(
    ("state", "options"),
    [
        (host_worker(limit=GIB // 2), {}),  # the budget that was chosen
        (host_worker(limit=GIB // 2), {"budget": GIB}),  # one that was told: Dask would end the worker
        (replace(host_worker(limit=0), free_bytes=GIB // 2), {}),
        (replace(gpu_worker("a"), memory_limit=GIB // 8), {}),  # blocks of L beside a GPU
        (replace(host_worker(budget=1 << 20, limit=0), free_bytes=GIB // 8), {"budget": 1 << 20}),
    ],
)
def test_a_plan_that_takes_more_memory_than_a_worker_has_by_now_is_refused(state, options):
    with pytest.raises(ValueError, match=r"takes .* of a worker's memory, but tcp://one:1 has .* now: .*plan anew"):
        check_workers([host_worker(budget=options.get("budget", GIB)), state], **options)
