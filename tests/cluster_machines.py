"""Clusters on this machine, for tests: two workers for all who end none of them, quiet, and ended whatever a test left."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

#: Settings of Dask under which tests run: nothing is spilled, workers end at once, no page is served.
SETTINGS = {
    "distributed.comm.timeouts.connect": "20s",
    "distributed.deploy.lost-worker-timeout": "120s",  # a cluster gives up a worker that takes longer to come again
    "distributed.scheduler.allowed-failures": 3,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.daemon": True,
    "distributed.worker.profile.enabled": False,  # it would look at every thread a hundred times a second
    "distributed.admin.tick.interval": "200ms",
}
#: Seconds in which Dask starts a worker again, on a busy machine too.
AGAIN_SECONDS = 60
#: Loggers of Dask that tell of lost workers, which tests lose on purpose.
LOGGERS = ("distributed.nanny", "distributed.scheduler", "distributed.core", "distributed.worker", "distributed.batched")


def _close(cluster: Any) -> None:
    """End the processes, and let go of the pipes to those that were killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        cluster.close(timeout=10)
        gc.collect()


class SharedCluster:
    """The two workers of all tests that end none of them: started for the first, ended when the next test is of another kind."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._client: Any = None

    def client(self) -> Any:
        """A client of the workers, which know the folder of rates of the tests that ask."""
        if self._client is None:
            keep_dask_threads()
            self._client = self._opened.enter_context(cluster_of(2))
        folder = os.environ.get("OOC_CHOL_CACHE", "")
        self._client.run(lambda: os.environ.update(OOC_CHOL_CACHE=folder))
        return self._client

    def close(self) -> None:
        """End the workers, if there are any."""
        self._client = None
        self._opened.close()


#: Where a process of pytest keeps its shared cluster.
SHARED = pytest.StashKey[SharedCluster]()


@contextmanager
def cluster_of(workers: int, **options: Any) -> Iterator[Any]:
    """A client of so many workers, one thread each unless told; ``processes=False`` makes them threads of this process."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import offload

    given: dict[str, Any] = {"memory_limit": "1 GiB", "threads_per_worker": 1, "processes": True, **options}
    given.setdefault("security", True if given["processes"] else None)  # threads need no port
    silenced = {name: logging.getLogger(name).level for name in LOGGERS}
    with dask.config.set(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what a killed worker leaves open
        cluster = LocalCluster(
            n_workers=workers,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            **given,
        )
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            with Client(cluster, set_as_default=False) as client:
                client.sync(offload, abs, 1)  # its thread stays as long as the process, and no test has left it
                yield client
        finally:
            _close(cluster)
            for name, level in silenced.items():
                logging.getLogger(name).setLevel(level)


def keep_dask_threads() -> None:
    """Start a thread that Dask otherwise starts when it first needs it, and keeps: it is no test's."""
    from distributed.utils import offload

    asyncio.run(offload(int))


@pytest.fixture(scope="module")
def dask_threads() -> None:
    """For tests that start clusters of their own: what stays of the first is there before."""
    keep_dask_threads()


@pytest.fixture(scope="module")
def two_workers(clusters: None, pytestconfig: pytest.Config) -> Any:
    """A client of two workers, which are as good as new when a test is over."""
    return pytestconfig.stash[SHARED].client()


def kill(client: Any, count: int = 1) -> None:
    """End workers as the system does for lack of memory, and wait until the scheduler knows."""
    victims = list(client.run(os.getpid).items())[:count]
    for _, pid in victims:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + AGAIN_SECONDS
    while set(client.nthreads()) & {address for address, _ in victims}:
        assert time.monotonic() < until
        time.sleep(0.02)
