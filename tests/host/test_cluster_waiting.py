"""A call whose tasks Dask lets no worker run ends with an error that says so, and one that goes on later just waits."""

from __future__ import annotations

import time

import numpy as np
import pytest
from distributed import as_completed

import ooc_chol as oc
from tests.cluster_machines import cluster_of
from tests.inside.cluster import ended, gathered, told_before, waiting

pytestmark = pytest.mark.usefixtures("no_hang", "dask_threads")


@pytest.fixture(scope="module")
def paused(clusters: None):
    """A client of one worker that is a thread of this process, which has more in memory than Dask lets a worker have."""
    with cluster_of(1, processes=False, memory_limit="64 MiB") as client:
        for _ in range(600):
            (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
            if worker["status"] == "paused":
                break
            time.sleep(0.1)
        yield client


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "STALLED_SECONDS", 0.5)


def test_a_paused_worker_is_named_with_its_memory(paused, impatient):
    (worker,) = paused.nthreads()
    with pytest.raises(oc.errors.ClusterError, match=r"paused 1 of 1 workers") as raised:
        oc.cholesky(np.eye(40), tile_size=20, client=paused)
    assert f"{worker}" in str(raised.value) and "memory limit 67.1 MB" in str(raised.value)
    assert "processes=False" in str(raised.value)


def test_waiting_for_one_and_for_many_ends(paused, impatient):
    with pytest.raises(oc.errors.ClusterError, match="no task runs"):
        gathered(paused, paused.submit(abs, -1, pure=False))
    with paused.as_current():
        running = as_completed([paused.submit(abs, -2, pure=False)])
    with pytest.raises(oc.errors.ClusterError, match="no task runs"):
        list(ended(running, paused))


def test_long_tasks_are_waited_for(two_workers, impatient):
    with two_workers.as_current():
        futures = [two_workers.submit(time.sleep, 1.2, pure=False) for _ in range(4)]
        running = as_completed(futures[:2])
    found = []
    for future in ended(running, two_workers):
        found.append(future)
        if len(found) == 1:
            running.update(futures[2:])
    assert set(found) == set(futures)
    assert gathered(two_workers, futures) == [None] * 4


def test_what_does_not_change_is_asked_once_of_the_same_workers():
    class Client:
        pass

    client, asked = Client(), []

    def told(question):
        return told_before(client, "key", question, lambda: asked.append(question) or len(asked))

    assert [told(("a", "b")), told(("a", "b")), told(("a",)), told(("a", "b"))] == [1, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        told_before(client, "key", ("c",), lambda: 1 // 0)
    assert told(("a", "b")) == 3 and told_before(Client(), "key", ("a", "b"), lambda: "another client") == "another client"
