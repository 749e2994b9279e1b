"""A plan of a cluster whatever became of it: it serves the same call again, on these workers and on others of their shape."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import ooc_chol as oc
from tests.cluster_machines import cluster_of
from tests.entries import Entries
from tests.host.escalation_cases import ROW
from tests.host.mixed_precision import check_certified, matern
from tests.inside.cluster import ClusterRates, WorkerRates, connection, is_one_task, plan_cluster, planning, rates, store
from tests.inside.precision import Remedy
from tests.inside.tasks import TileGrid

pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

N = 112
A = matern(N, 1.5, 0.1, 0.01)
#: Calls in one format, by what they ask for.
CALLS = {
    "nothing": {},
    "all": {"tile_size": 16, "devices": "host:0", "fp64": "native", "memory_budget": "4 MB"},
    "residue": {"tile_size": 32, "fp64": "residue", "moduli": 13},
    "float32": {"tile_size": 16, "dtype": "float32"},
}
#: Calls in mixed precision, by the last remedies of their runs on two workers; found by search.
HISTORIES = {
    "none": (ROW._replace(budget="4 MB", twins=()), {None}),
    "row": (ROW._replace(budget="4 MB"), {Remedy.ROW}),
    "two rows": (ROW._replace(budget="4 MB", twins=((20, 50), (35, 90))), {Remedy.FP64}),
    "fp64": (ROW._replace(budget="4 MB", n=128, twins=((90, 118),)), {Remedy.FP64}),
}


def source(a=A):
    """The matrix as a function, which workers get."""
    return oc.from_function(len(a), Entries(a))


def bits(factor: oc.CholeskyFactor) -> tuple[bytes, str]:
    """L, which is closed, and what its bits depend on."""
    with factor:
        return np.asarray(factor).tobytes(), str(factor.arithmetic_key)


@pytest.fixture
def unmeasured(monkeypatch):
    """Rates that nobody may measure."""

    def measured(*_):
        raise AssertionError("rates are measured, though a plan is given")

    monkeypatch.setattr(planning, "LEAST_MEASURED_FLOPS", 0.0)
    monkeypatch.setattr(planning, "measured_rates", measured)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("unmeasured")
def test_a_plan_serves_its_call_again(two_workers, name, monkeypatch):
    how, kept = CALLS[name], {"dtype": CALLS[name].get("dtype")}
    with monkeypatch.context() as patched:
        patched.setattr(planning, "measured_rates", rates.measured_rates)
        of_order, of_matrix = oc.plan(N, client=two_workers, **how), oc.plan(A, client=two_workers, **how)
        first = oc.cholesky(A, client=two_workers, **how)
    plan, wanted = first.plan, bits(first)
    for given, options in ((of_order, kept), (of_matrix, how), (pickle.loads(pickle.dumps(plan)), kept)):
        with oc.cholesky(A, client=two_workers, plan=given, **options) as again:
            assert again.plan.blocks == given.blocks and bits(again) == wanted
    assert again.plan.settled.options == plan.settled.options


@pytest.mark.parametrize("name", HISTORIES)
def test_a_plan_in_mixed_precision_serves_its_call_again(two_workers, name):
    case, remedies = HISTORIES[name]
    a = case.matrix()
    how = {"tile_size": case.nb, "memory_budget": case.budget, "devices": "host:0"}
    planned = oc.plan(source(a), precision_threshold=case.threshold, client=two_workers, **how)
    with case.factor(source(a), client=two_workers) as first:
        escalations, plan, wanted = first.report.escalations, first.plan, bits(first)
    assert {escalations[-1].remedy if escalations else None} == remedies
    assert (plan.settled.formats is None) == (remedies == {Remedy.FP64}) and plan.blocks == planned.blocks
    # A plan that was only made knows no formats: the run comes to the same ones again.
    with oc.cholesky(source(a), case.threshold, client=two_workers, plan=planned) as same:
        assert [each.remedy for each in same.report.escalations] == [each.remedy for each in escalations]
        assert bits(same) == wanted
    with case.factor(source(a), client=two_workers, plan=pickle.loads(pickle.dumps(plan))) as again:
        assert not again.report.escalations and again.report.certified_bound.holds(case.threshold)
        assert again.plan.settled.formats is again.report.precision and bits(again) == wanted


@pytest.mark.parametrize("name", ["row", "fp64"])
def test_a_plan_in_mixed_precision_serves_a_matrix_like_the_first(two_workers, name):
    case, _ = HISTORIES[name]
    with case.factor(client=two_workers) as factor:
        plan = factor.plan
    for nugget in (3.0, 0.7):
        other = case._replace(nugget=nugget * case.nugget)
        with other.factor(client=two_workers, plan=plan) as factor:
            check_certified(factor, other.matrix())
            assert factor.report.certified_bound.holds(case.threshold)
            plan = factor.plan


def test_a_plan_in_mixed_precision_through_residues_serves_its_call_again(two_workers):
    how = {"precision_threshold": 1e-5, "tile_size": 32, "fp64": "residue"}
    with oc.cholesky(source(), client=two_workers, **how) as first:
        plan, wanted = first.plan, bits(first)
    assert bits(oc.cholesky(source(), 1e-5, client=two_workers, plan=plan)) == wanted


def stop(done: int, total: int, seconds: float) -> None:
    """End a run when a third of it is done."""
    if done > total // 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_planned", [False, True], ids=["options", "plan"])
def test_the_plan_of_a_resumed_run_makes_all_of_the_factor(two_workers, is_planned, tmp_path):
    options = {"client": two_workers, "tile_size": 16, "memory_budget": "4 MB"}
    how = {"client": two_workers, "plan": oc.plan(source(), **options)} if is_planned else options
    place = {"store": tmp_path / "L.zarr", "checkpoint": True}
    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(source(), progress=stop, **place, **how)
    with oc.cholesky(source(), **place, **how) as resumed:
        assert 0 < resumed.report.resumed < resumed.plan.n_tasks
    with oc.cholesky(source(), client=two_workers, plan=resumed.plan, **place) as finished:
        assert finished.report.resumed == finished.plan.n_tasks
        wanted = bits(finished)
    for there in ({}, {"store": tmp_path / "again.zarr"}):
        with oc.cholesky(source(), client=two_workers, plan=finished.plan, **there) as again:
            assert again.report.tasks == again.plan.n_tasks and again.plan.case.store == ("zarr" if there else "memory")
            assert bits(again) == wanted
    with oc.cholesky(A, tile_size=16, fp64="native") as alone:
        assert np.asarray(alone).tobytes() == wanted[0]


def test_a_plan_of_other_blocks_or_tiles_goes_on_from_no_group(two_workers, tmp_path):
    place = {"client": two_workers, "store": tmp_path / "L.zarr", "checkpoint": True}
    with oc.cholesky(source(), tile_size=16, **place) as factor:
        costs = factor.plan.case.costs
    higher = replace(factor.plan.case, costs=replace(costs, blocks=replace(costs.blocks, height=5)))
    with pytest.raises(ValueError, match=r"blocks of 5 tile rows, but the checkpoint has blocks of 1"):
        oc.cholesky(source(), plan=replace(factor.plan, case=higher), **place)
    with pytest.raises(oc.errors.CheckpointError, match="tile_size"):
        oc.cholesky(source(), plan=oc.plan(source(), tile_size=32, client=two_workers), **place)


def test_a_plan_serves_when_a_worker_has_left_and_on_other_workers(two_workers, monkeypatch):
    monkeypatch.setattr(connection, "AGAIN_SECONDS", 60.0)  # on a busy machine
    plans = {}
    with cluster_of(2) as client:
        for threshold in (None, 1e-5):
            victims = list(client.run(os.getpid).values())[:1]

            def kill(done: int, total: int, seconds: float, victims=victims) -> None:
                if victims and done > 0.3 * total:
                    os.kill(victims.pop(), signal.SIGKILL)

            how = {"precision_threshold": threshold, "tile_size": 16, "memory_budget": "4 MB"}
            with oc.cholesky(source(), client=client, progress=kill, **how) as lost:
                assert not victims
                plans[threshold] = lost.plan, bits(lost)
            plan, wanted = plans[threshold]
            assert bits(oc.cholesky(source(), threshold, client=client, plan=plan)) == wanted
    monkeypatch.setattr(connection, "AGAIN_SECONDS", 0.1)
    with cluster_of(1, processes=False) as client:
        for threshold, (plan, wanted) in plans.items():
            assert bits(oc.cholesky(source(), threshold, client=two_workers, plan=plan)) == wanted
            with pytest.raises(ValueError, match="is for 2 workers, but the cluster has 1"):
                oc.cholesky(source(), threshold, client=client, plan=plan)


@cache
def plans(client) -> dict[str, object]:
    """Plans of calls with options, one of each engine."""
    how = {"tile_size": 16, "memory_budget": "4 MB", "devices": "host:0", "client": client}
    mixed = oc.plan(source(), precision_threshold=1e-5, **how)
    of_nothing = plan_cluster(TileGrid(N, 16), [WorkerRates(1 << 30)] * 2, ClusterRates(1e9))
    return {"fp64": oc.plan(source(), **how), "mixed": mixed, "of nothing": of_nothing, "of one machine": oc.plan(N)}


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("fp64", {"A": A[1:, 1:]}, ValueError, r"of order 112, but the matrix has order 111"),
        ("fp64", {"dtype": "float32"}, ValueError, r"for float64, but float32 is to be computed"),
        ("fp64", {"tile_size": 20, "memory_budget": "5 MB"}, ValueError, r"for tile_size=16, but 20 is asked for"),
        ("fp64", {"memory_budget": "5 MB"}, ValueError, r"for memory_budget=4000000, but 5000000 is asked for"),
        ("fp64", {"devices": "host:0,host:1"}, ValueError, r"for devices='host:0', but 'host:0,host:1' is"),
        ("fp64", {"fp64": "residue"}, ValueError, r"for fp64='native', but 'residue' is"),
        ("fp64", {"moduli": 12}, ValueError, r"for moduli=None, but 12 is"),
        ("fp64", {"precision_threshold": 1e-5}, ValueError, r"to both, or to neither"),
        ("mixed", {}, ValueError, r"to both, or to neither"),
        ("mixed", {"precision_threshold": 1e-4}, ValueError, r"for precision_threshold 1e-05 by .* but 0\.0001 by"),
        ("mixed", {"precision_threshold": 1e-5, "precision_rule": "paper"}, ValueError, r"but 1e-05 by 'paper' is asked for"),
        ("mixed", {"precision_threshold": 1e-5, "half_products": True}, ValueError, r"for half_products=False, but True is"),
        ("mixed", {"precision_threshold": 1e-5, "tile_size": 32}, ValueError, r"for tile_size=16, but 32 is"),
        ("of nothing", {}, ValueError, r"is of no call"),
        ("of one machine", {}, ValueError, r"is of one machine"),
        ("text", {}, TypeError, r"plan is a str; give a ClusterPlan"),
    ],
)
def test_what_differs_from_the_plan_is_named(two_workers, name, options, error, words):
    plan = plans(two_workers).get(name, "a page")
    with pytest.raises(error, match=words):
        oc.cholesky(**{"A": A, **options}, client=two_workers, plan=plan)


def test_a_plan_of_a_cluster_is_none_of_one_machine(two_workers):
    with pytest.raises(TypeError, match="plan is a ClusterPlan; give a Plan of one machine"):
        oc.cholesky(A, plan=plans(two_workers)["fp64"])


@pytest.mark.usefixtures("clusters")
def test_one_worker_with_gpus_makes_all_of_l_in_one_task(monkeypatch):
    expected = bits(oc.cholesky(A, tile_size=16, devices="host:0"))
    monkeypatch.setattr(planning, "LEAST_MEASURED_FLOPS", 0.0)
    monkeypatch.setattr(planning, "is_one_task", lambda client, facts: True)
    with cluster_of(1) as client:
        with oc.cholesky(source(), client=client, tile_size=16) as factor:
            assert factor.report.plan.n_tasks == factor.report.tasks == 1
            assert factor.report.plan.peak_bytes == factor.report.plan.stored_bytes
            x = factor.solve(np.ones(N))
            assert bits(factor)[0] == expected[0]
        assert np.linalg.norm(A @ x - 1.0) <= 1e-8 * np.linalg.norm(x)
        assert oc.plan(A, client=client, tile_size=16).n_tasks > 1  # its blocks cross the network
        monkeypatch.setattr(planning, "LEAST_TIMES", 1 << 40)
        assert oc.plan(source(), client=client, tile_size=16).n_tasks > 1


def test_all_of_l_is_one_task_for_a_worker_with_gpus_that_no_other_joins():
    def facts(*on_host: bool):
        return SimpleNamespace(workers={str(number): SimpleNamespace(is_host=each) for number, each in enumerate(on_host)})

    alone, four = SimpleNamespace(cluster=None), SimpleNamespace(cluster=SimpleNamespace(worker_spec=range(4)))
    assert is_one_task(alone, facts(False))
    assert not is_one_task(alone, facts(True))
    assert not is_one_task(alone, facts(False, False))
    assert not is_one_task(four, facts(False))


def test_a_large_block_is_read_in_pieces(two_workers, monkeypatch):
    monkeypatch.setattr(store, "MOST_BLOCK_BYTES", 1)
    monkeypatch.setattr(store, "KEPT_BYTES", 8 * 8**2)
    expected = bits(oc.cholesky(A, tile_size=8, devices="host:0"))
    with oc.cholesky(source(), client=two_workers, tile_size=8) as factor:
        planned = factor.plan.blocks
        assert planned.height > 1
        asked = []
        submit = two_workers.submit
        monkeypatch.setattr(two_workers, "submit", lambda *given, **how: asked.append(given) or submit(*given, **how))
        assert bits(factor)[0] == expected[0]
    windows = [given[2] for given in asked if given[0] is store.sent_block]
    assert windows and all(set(map(len, window)) == {1} for window in windows)
