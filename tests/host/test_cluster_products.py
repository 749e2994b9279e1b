"""Products with sparse matrices on a cluster of processes: the bits of one machine, whatever happens to workers, and errors."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.cluster_machines import AGAIN_SECONDS, cluster_of, kill
from tests.inside.cluster import HeldRows, products, rows, waiting, workers
from tests.sparse_matrices import many_chunks

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

BLOCK = "512 KiB"


@pytest.fixture(scope="module")
def packed():
    """A matrix of four kinds of values, in more blocks than workers."""
    with oc.block_csr(many_chunks(), block_bytes=BLOCK) as found:
        assert len(found.blocks.blocks) >= 6
        yield found


@pytest.fixture(scope="module")
def stored(packed, tmp_path_factory):
    with oc.block_csr(packed, store=tmp_path_factory.mktemp("packed") / "a.oocsr", block_bytes=BLOCK) as found:
        yield found


def symmetric(n: int = 3000):
    """Adjacency of a random graph."""
    a = scipy.sparse.random_array((n, n), density=0.01, rng=4).tocsr()
    return (a + a.T).tocsr()


def vectors(a, columns: int = 3, dtype: type = np.float64):
    return np.random.default_rng(columns).standard_normal((a.shape[1], columns)).astype(dtype)


def check_bits(a, x, client, **options):
    """The product on a cluster has the bits of one machine; returns its report."""
    y = oc.multiply(a, x, client=client, **options)
    assert y.tobytes() == oc.multiply(a, x, devices="host:0", **options).tobytes()
    return y.report


@pytest.mark.commit
def test_products_have_the_bits_of_one_machine(two_workers, packed):
    for columns, dtype, precision in ((1, np.float64, None), (13, np.float64, "FDF"), (5, np.float32, None), (2, np.int8, "FFF")):
        report = check_bits(packed, vectors(packed, columns, dtype), two_workers, precision=precision)
        done = report.cluster
        assert done.products == 1 and done.repeated == 0 and len(done.workers) == 2
        assert packed.nbytes <= done.matrix_bytes <= packed.nbytes + len(packed.blocks.blocks) * 4096
        assert sum(len(share.rows) for share in report.plan.shares) == packed.shape[0]
        assert done.sent_bytes == report.plan.brought_bytes * columns // sum(report.plan.panels)
        plan = oc.plan_multiply(packed, vectors(packed, columns, dtype), precision=precision, client=two_workers)
        assert plan == report.plan and done.workers[0] in str(plan)
        assert (
            report.key == oc.multiply(packed, vectors(packed, columns, dtype), precision=precision, devices="host:0").report.key
        )
        assert "network" in str(report) and report.to_dict()["cluster"]["products"] == 1
    x = vectors(packed, 1)[:, 0]
    assert check_bits(packed, x, two_workers).columns == 1


def test_workers_read_a_file_that_all_see(two_workers, stored):
    report = check_bits(stored, vectors(stored), two_workers, memory_budget="24 MiB")
    assert report.cluster.matrix_bytes == 0 and sum(report.cluster.link_bytes.values()) == stored.nbytes
    assert check_bits(stored.path, vectors(stored), two_workers).plan.tier == "file"


def test_sources_are_packed_here_and_sent(two_workers, tmp_path):
    a = scipy.sparse.random_array((40, 7), density=0.4, rng=1).tocsr()
    check_bits(a, vectors(a), two_workers)
    y = oc.multiply(a, vectors(a), client=two_workers, packed=tmp_path / "a.oocsr")
    assert np.array_equal(y, oc.multiply(a, vectors(a))) and y.report.cluster.matrix_bytes == 0
    empty = scipy.sparse.csr_array((3, 2))
    assert not check_bits(empty, np.ones((2, 2)), two_workers).bytes.executed.get("x", 0)
    none = oc.multiply(a, np.ones((7, 0)), client=two_workers)
    assert none.shape == (40, 0) and none.report.cluster.products == none.report.cluster.repeated == 0


def test_operators_and_orders_are_those_of_one_machine(two_workers):
    a = symmetric()
    for order in (None, "degree"):
        with oc.block_csr(a, block_bytes="64 KiB", order=order) as found:
            for operator in (oc.laplacian(found), oc.laplacian(found, normalized=True)):
                check_bits(operator, vectors(found), two_workers)


def test_what_is_not_there_on_a_cluster_is_refused(two_workers, packed):
    x = vectors(packed)
    with pytest.raises(ValueError, match="trace is not there on a cluster"):
        oc.multiply(packed, x, client=two_workers, trace=True)
    with pytest.raises(ValueError, match="plan is not there on a cluster"):
        oc.multiply(packed, x, client=two_workers, plan=oc.plan_multiply(packed, 3))
    with pytest.raises(TypeError, match="client is a object"):
        oc.multiply(packed, x, client=object())
    with pytest.raises(ValueError, match=r"must have .* rows"):
        oc.multiply(packed, x[:-1], client=two_workers)
    with pytest.raises(oc.BudgetError, match="host_budget for Y"):
        oc.multiply(packed, x, client=two_workers, host_budget=1)
    with pytest.raises(oc.errors.ClusterError, match="no scheduler answers"):
        oc.multiply(packed, x, client="not a place")


def test_errors_of_workers_are_those_of_one_machine(two_workers, stored, tmp_path):
    with pytest.raises(oc.BudgetError, match="products on host:0") as told:
        oc.multiply(stored, vectors(stored), client=two_workers, memory_budget="64 KiB")
    assert "on worker tls://" in told.value.__notes__[0]
    path = tmp_path / "moved.oocsr"
    path.write_bytes(Path(stored.path).read_bytes())
    with oc.block_csr(path) as moved:
        os.rename(path, tmp_path / "elsewhere.oocsr")
        with pytest.raises(oc.errors.ClusterError, match="is not there on a worker"):
            oc.multiply(moved, vectors(moved), client=two_workers)
        with oc.block_csr(symmetric(200), store=path):
            pass
        with pytest.raises(oc.errors.ClusterError, match="is another file on a worker"):
            oc.multiply(moved, vectors(moved), client=two_workers)


def test_a_damaged_block_is_named(two_workers, stored, tmp_path):
    path = tmp_path / "damaged.oocsr"
    data = bytearray(Path(stored.path).read_bytes())
    data[8192] ^= 1
    path.write_bytes(data)
    with oc.block_csr(path) as damaged, pytest.raises(oc.errors.DamagedFileError, match="block 0 is damaged"):
        oc.multiply(damaged, vectors(damaged), client=two_workers)


def test_rows_that_find_no_room_are_not_sent(two_workers, packed, monkeypatch):
    monkeypatch.setattr(workers, "shared_out", lambda states: {each: small(state) for each, state in states.items()})
    with pytest.raises(oc.BudgetError, match=r"memory of worker .* for its rows of A") as told:
        oc.multiply(packed, vectors(packed), client=two_workers)
    assert "packed=" in str(told.value)


def small(state):
    """A worker whose budget and limit are small."""
    from dataclasses import replace

    return replace(state, budget_bytes=24 << 20, memory_limit=25 << 20)


def test_what_dask_copies_of_rows_is_empty():
    copy = pickle.loads(pickle.dumps(HeldRows(("host:0",), 1 << 20)))
    answer = rows.multiply_rows(copy, rows.Wanted(0, oc.Precision.DDD, 1, ((0, 0),)), np.ones((3, 1)))
    assert answer.missing == ((0, 0),) and not answer.pieces


def test_parts_stay_where_they_are_and_go_to_who_has_fewest():
    assert products.placed(["", "", ""], ["a", "b"]) == ["a", "b", "a"]
    assert products.placed(["a", "a"], ["a", "c"]) == ["a", "c"]
    assert products.placed(["a", "b", "c"], ["b", "c"]) == ["b", "b", "c"]


# workers that leave


@pytest.fixture
def client(clusters: None, monkeypatch):
    """Two workers, of which tests end some: their nannies start others."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    with cluster_of(2) as client:
        yield client


def test_a_worker_that_dies_in_any_phase_changes_no_bit(client, packed):
    x = vectors(packed)
    for name in ("agreed_states", "rows_of", "worker_addresses", "gathered"):
        for count in (1, 2):
            client.wait_for_workers(2, timeout=AGAIN_SECONDS)
            with pytest.MonkeyPatch.context() as patched:
                module = products if name == "rows_of" else workers
                ask, told = getattr(module, name), []

                def asked(*given, ask=ask, told=told, count=count, **options):
                    if not told:
                        told.append(count)
                        kill(client, count)
                    return ask(*given, **options)

                patched.setattr(module, name, asked)
                done = check_bits(packed, x, client).cluster
                assert told
                assert name != "gathered" or (done.repeated and done.lost_workers)


def test_a_worker_that_dies_at_some_moment_changes_no_bit(client, packed):
    for seconds in (0.0, 0.02, 0.05, 0.1, 0.2):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        dying = threading.Timer(seconds, os.kill, (next(iter(client.run(os.getpid).values())), signal.SIGKILL))
        dying.start()
        check_bits(packed, vectors(packed), client)
        dying.join()


def deadly(*_: object) -> None:
    """Kill a worker as the system does where it takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_die_of_every_product_end_the_call(client, packed, monkeypatch):
    monkeypatch.setattr(products, "multiply_rows", deadly)
    with pytest.raises(oc.errors.ClusterError, match=r"workers? left while they were asked|has no worker"):
        oc.multiply(packed, vectors(packed), client=client)


def test_workers_that_are_paused_are_an_error_with_their_memory(client, packed, monkeypatch):
    monkeypatch.setattr(waiting, "STALLED_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.1)
    client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_pause_fraction", 1e-6))
    until = time.monotonic() + AGAIN_SECONDS
    while any(each["status"] != "paused" for each in client.scheduler_info(n_workers=-1)["workers"].values()):
        assert time.monotonic() < until
        time.sleep(0.05)
    with pytest.raises(oc.errors.ClusterError, match="Dask has paused 2 of 2 workers"):
        oc.multiply(packed, vectors(packed), client=client)


def test_a_connection_that_is_lost_is_an_error_with_advice(two_workers, packed, monkeypatch):
    from distributed import Client

    ask = workers.gathered
    with Client(two_workers.scheduler.address, security=two_workers.security, set_as_default=False) as client:

        def gathered(*given, **options):
            client.close()
            return ask(*given, **options)

        monkeypatch.setattr(workers, "gathered", gathered)
        with pytest.raises(oc.errors.ClusterError, match=r"new client|scheduler"):
            oc.multiply(packed, vectors(packed), client=client)


def test_ctrl_c_leaves_workers_that_go_on(two_workers, packed):
    def interrupt(done: int, total: int, seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oc.multiply(packed, vectors(packed), client=two_workers, progress=interrupt)
    check_bits(packed, vectors(packed), two_workers)


def test_nothing_of_a_call_stays_with_the_scheduler(two_workers, packed):
    check_bits(packed, vectors(packed), two_workers)
    until = time.monotonic() + AGAIN_SECONDS
    while two_workers.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)):
        assert time.monotonic() < until
        time.sleep(0.02)
