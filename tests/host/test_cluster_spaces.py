"""Bases on workers of a cluster, and what befalls these: the same bits, or an error in time; nobody waits for ever."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import ooc_chol as oc
from tests.cluster_machines import AGAIN_SECONDS, cluster_of, kill
from tests.inside.cluster import HeldSpace, PeerLostError, exchange, held_space, placed_space, spaces, waiting
from tests.space_checks import same_pairs, separated_chunks

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Some restarts, of panels on three chunks of rows.
FEW = {"ncv": 24, "block": 4, "tol": 1e-6, "check": False}


@pytest.fixture(scope="module")
def packed():
    with oc.block_csr(separated_chunks(), block_bytes="1 MiB") as found:
        yield found


@pytest.fixture(scope="module")
def expected(packed):
    return oc.eigsh(packed, 3, **FEW)


@pytest.fixture
def client(clusters: None, monkeypatch):
    """Two workers, of which tests end some: their nannies start others."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    with cluster_of(2) as client:
        yield client


def at_batch(patched, number: int, happen, kind=lambda question: True) -> list:
    """Let something happen once the so-manieth batch of a kind is under way; the list has all questions."""
    ask, told = placed_space.PlacedSpace._answers, []

    def answers(self, futures):
        if len([each for each in told if kind(each)]) == number and kind(told[-1]):
            happen()
        return ask(self, futures)

    batch = spaces.ClusterSpace._batch

    def asked(self, question):
        told.append(question)
        return batch(self, question)

    patched.setattr(placed_space.PlacedSpace, "_answers", answers)
    patched.setattr(spaces.ClusterSpace, "_batch", asked)
    return told


def of_reading(question) -> bool:
    return question.reads


def of_taking(question) -> bool:
    return question.taking is not None


def of_residuals(question) -> bool:
    return question.residuals is not None


@pytest.mark.parametrize(("kind", "count"), [(of_reading, 1), (of_reading, 2), (of_taking, 1), (of_residuals, 1)])
def test_workers_that_die_in_batches_of_each_kind_change_no_bit(client, packed, expected, kind, count):
    with pytest.MonkeyPatch.context() as patched:
        told = at_batch(patched, 1, lambda: kill(client, count), kind)
        found = oc.eigsh(packed, 3, client=client, **FEW)
    same_pairs(found, expected)
    assert any(map(kind, told))


def test_a_worker_that_dies_at_some_moment_of_an_exchange_changes_no_bit(client, packed, expected):
    for seconds in (0.02, 0.1, 0.2, 0.3):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        victim = next(iter(client.run(os.getpid).values()))
        with pytest.MonkeyPatch.context() as patched:
            at_batch(patched, 1, lambda s=seconds, v=victim: threading.Timer(s, os.kill, (v, signal.SIGKILL)).start())
            same_pairs(oc.eigsh(packed, 3, client=client, **FEW), expected)


def test_a_worker_that_stands_still_for_a_while_is_waited_for(client, packed, expected):
    victim = next(iter(client.run(os.getpid).values()))

    def pause() -> None:
        os.kill(victim, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (victim, signal.SIGCONT)).start()

    with pytest.MonkeyPatch.context() as patched:
        at_batch(patched, 1, pause)
        found = oc.eigsh(packed, 3, client=client, **FEW)
    same_pairs(found, expected)
    assert not found.report.cluster.repeated and not found.report.cluster.lost_workers
    assert found.report.cluster.exchanged_by == "memory of the host" and "to worker by memory" in str(found.report)


def test_a_worker_that_retires_changes_no_bit(client, packed, expected):
    with pytest.MonkeyPatch.context() as patched:
        at_batch(patched, 1, lambda: client.retire_workers(list(client.nthreads())[:1]))
        same_pairs(oc.eigsh(packed, 3, client=client, **FEW), expected)


def test_a_restart_that_is_kept_saves_what_was_before(client, packed, monkeypatch):
    options = {**FEW, "tol": 1e-9}
    calm = oc.eigsh(packed, 3, client=client, **options)
    repeated = {}
    for after in (0.0, 1e9):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(spaces, "_KEEP_AFTER", after)
            at_batch(patched, calm.report.restarts, lambda: kill(client), of_reading)
            found = oc.eigsh(packed, 3, client=client, **options)
        same_pairs(found, calm)
        repeated[after] = found.report.cluster.repeated
    assert 0 < repeated[0.0] < repeated[1e9]


FILTERED = {"which": "SA", "degree": 4, "tol": 1e-2, "ncv": 24, "block": 4, "check": False}
PRECONDITIONED = {"method": "lobpcg", "which": "LA", "tol": 1e-3, "preconditioner": lambda x: 2.0 * x}


@pytest.mark.parametrize(("options", "batch"), [(FILTERED, 3), (PRECONDITIONED, 12)])
def test_a_filter_and_lobpcg_go_on_too(client, packed, monkeypatch, options, batch):
    monkeypatch.setattr(spaces, "_KEEP_AFTER", 1.0)
    expected = oc.eigsh(packed, 3, **options)
    at_batch(monkeypatch, batch, lambda: kill(client))
    found = oc.eigsh(packed, 3, client=client, **options)
    same_pairs(found, expected)
    assert found.report.cluster.lost_workers


@pytest.mark.parametrize("count", [1, 2])
def test_workers_that_dask_has_paused_are_an_error(client, packed, monkeypatch, count):
    monkeypatch.setattr(waiting, "STALLED_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.1)

    def pause() -> None:
        addresses = list(client.nthreads())[:count]
        few = 1e-6
        client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_pause_fraction", few), workers=addresses)
        until = time.monotonic() + AGAIN_SECONDS
        while any(client.scheduler_info(n_workers=-1)["workers"][each]["status"] != "paused" for each in addresses):
            assert time.monotonic() < until
            time.sleep(0.05)

    with pytest.MonkeyPatch.context() as patched:
        at_batch(patched, 1, pause)
        with pytest.raises(oc.errors.ClusterError, match="Dask has paused"):
            oc.eigsh(packed, 3, client=client, **FEW)


def test_ctrl_c_leaves_workers_that_go_on(two_workers, packed, expected):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        at_batch(patched, 1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            oc.eigsh(packed, 3, client=two_workers, **FEW)
    same_pairs(oc.eigsh(packed, 3, client=two_workers, **FEW), expected)


def test_calls_at_the_same_time_do_not_wait_for_each_other_for_ever(two_workers, packed, expected):
    from distributed import Client

    found = []
    with Client(two_workers.scheduler.address, security=two_workers.security, set_as_default=False) as other:

        def call(client) -> None:
            found.append(oc.eigsh(packed, 3, client=client, **FEW))

        threads = [threading.Thread(target=call, args=(client,)) for client in (two_workers, other)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(found) == 2
    for each in found:
        same_pairs(each, expected)


def test_budgets_are_those_of_each_worker(two_workers, packed):
    with pytest.raises(oc.BudgetError, match=r"vectors on host:0 of tls://"):
        oc.eigsh(packed, 3, client=two_workers, memory_budget="12 MiB", **FEW)
    found = oc.eigsh(packed, 3, client=two_workers, memory_budget="64 MiB", **FEW)
    assert max(found.report.plan.basis.peak_bytes, 0) <= 64 << 20


# without shared memory


@pytest.fixture
def apart(monkeypatch):
    """Workers that find no memory of each other's, or of the caller's, as those of several machines."""
    monkeypatch.setattr(placed_space, "shares_memory", lambda *_: False)
    monkeypatch.setattr(placed_space, "beacon_here", lambda: None)


def test_workers_that_share_no_memory_have_the_same_bits(apart, clusters, packed, expected):
    with cluster_of(2) as client:
        for _ in range(2):
            found = oc.eigsh(packed, 3, client=client, **FEW)
            same_pairs(found, expected)
            assert found.report.cluster.exchanged_by == "messages"
        found = oc.eigsh(packed, 3, client=client, v0=np.arange(1.0, 1 + packed.shape[0]), **FEW)
        same_pairs(found, oc.eigsh(packed, 3, v0=np.arange(1.0, 1 + packed.shape[0]), **FEW))


def test_workers_that_share_no_memory_survive_losses(apart, client, packed, expected):
    for seconds in (0.0, 0.1, 0.2):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        victim = next(iter(client.run(os.getpid).values()))
        with pytest.MonkeyPatch.context() as patched:
            at_batch(patched, 1, lambda s=seconds, v=victim: threading.Timer(s, os.kill, (v, signal.SIGKILL)).start())
            same_pairs(oc.eigsh(packed, 3, client=client, **FEW), expected)


def test_a_mailbox_says_what_came():
    mailbox = exchange.Mailbox()
    mailbox.put(1, 0, b"zero")
    assert mailbox.take(1, 0) == b"zero" and mailbox.take(1, 0) is None
    mailbox.put(1, -1, None)
    assert mailbox.has_failed(1) and not mailbox.has_failed(0)
    began = time.monotonic()
    mailbox.cancel()
    assert mailbox.take(0, 5) is None and time.monotonic() - began < 0.05


def test_what_dask_copies_of_a_part_is_missing():
    import pickle

    copy = pickle.loads(pickle.dumps(HeldSpace()))
    batch = held_space.Batch(0, (), (), False, (), held_space.Question())
    assert held_space.run_batch(copy, batch).is_missing
    assert isinstance(pickle.loads(pickle.dumps(PeerLostError("a", "b", {"c": "d"}))), PeerLostError)
