"""A cluster by a word, as commands name it: this machine's cores or GPUs, jobs of Slurm, or the address of a scheduler."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from logging import ERROR
from typing import Any

from ooc_chol.cluster.connection import NO_ADDRESS, WAIT_SECONDS, connected, distributed_package
from ooc_chol.cluster.placing import GPU_RESOURCE
from ooc_chol.config import visible_gpus
from ooc_chol.errors import ClusterError, MissingPackageError
from ooc_chol.kernels.cuda.blocks import cuda_names
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.process.address_space import guarded_imports

#: Where everything listens that no other machine needs to reach.
_LOOPBACK = "127.0.0.1"
#: The address of pages, by a port that is free: they are neither encrypted nor locked.
_PAGES = f"{_LOOPBACK}:0"
#: For how long a killed worker's memory is waited for.
_FREED_SECONDS = 120.0
#: What names a cluster: a word, and how many workers or jobs.
_WORDS = re.compile(r"(local|slurm)(?::0*([1-9]\d*))?")


@contextmanager
def open_cluster(where: str) -> Iterator[Any]:
    """Open the cluster that a word or an address names, as long as the block runs; give ``cholesky`` its client.

    Parameters
    ----------
    where : str
        ``"local"`` starts one worker with all GPUs of this machine, or without GPUs one for each core; ``"local:4"`` starts four.
        ``"slurm"`` submits one job of Slurm by what ``jobqueue.yaml`` says, ``"slurm:16"`` sixteen. Anything else is the address
        of a scheduler that runs, such as ``"tcp://head:8786"``.

    Yields
    ------
    distributed.Client
        A client of the cluster, which computes Dask arrays by default; what was started ends with the block.

    Raises
    ------
    ClusterError
        No scheduler answers at the address, or no worker comes.
    MissingPackageError
        Dask's ``distributed``, its ``cryptography``, or for Slurm ``dask-jobqueue``, is not installed.
    TypeError
        It is no text.
    ValueError
        The number of workers is no whole number, or below 1.

    Notes
    -----
    Workers on this machine are processes with a thread each, which share what memory is free. GPUs are dealt out to them, and a
    worker sees its own alone; where there are more workers than GPUs, some share one.

    Whoever reaches a scheduler of Dask runs code as its owner: what is started here takes nobody without the certificate that is
    made for it, which the client has. On this machine nothing listens beyond loopback.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> with oc.open_cluster("slurm:16") as client:  # doctest: +SKIP
    ...     factor = oc.cholesky("covariance.zarr", client=client)
    """
    if not isinstance(where, str):
        raise TypeError(f"a cluster was named by a {type(where).__name__}; give a word such as 'local', or an address, as text")
    found = _WORDS.fullmatch(where)
    if found is None and NO_ADDRESS.fullmatch(where):
        raise ValueError(f"{where!r} names no cluster; give local:N or slurm:N, N a whole number of at least 1, or an address")
    distributed_package()
    with ExitStack() as opened:
        if found is None:
            yield opened.enter_context(connected(where, as_default=True))
            return
        count = None if found[2] is None else int(found[2])
        cluster = _local(count, opened) if found[1] == "local" else _slurm(count or 1, opened)
        client = opened.enter_context(distributed_package().Client(cluster))
        _wait(client, where)
        yield client


def _certificates() -> Any:
    """Dask's security with a key and a certificate of its own, without which nobody connects."""
    try:
        return distributed_package().Security.temporary()
    except ImportError as error:
        from ooc_chol.extras import install_hint

        raise MissingPackageError(
            "a cluster that is started here takes nobody without a certificate, which Dask makes with the package cryptography; "
            f"that cannot be imported: {install_hint('cluster')}"
        ) from error


def _local(count: int | None, opened: ExitStack) -> Any:
    """Workers on this machine, a process each: one with all GPUs, several to which they are dealt out, or one for each core."""
    distributed, gpus, security = distributed_package(), cuda_names(None), _certificates()
    if not gpus:
        cluster = distributed.LocalCluster(
            n_workers=count or host_threads(1),
            threads_per_worker=1,
            processes=True,
            host=_LOOPBACK,
            dashboard_address=_PAGES,
            security=security,
            silence_logs=ERROR,
        )
        return opened.enter_context(cluster)
    seen, count = visible_gpus(len(gpus)), count or 1
    closed = {"host": _LOOPBACK, "protocol": "tls://", "security": security}
    # By itself Dask gives a worker as large a part of the memory as it has of the cores: with one thread hardly any.
    each = {**closed, "nthreads": 1, "resources": {GPU_RESOURCE: 1}, "memory_limit": distributed.system.MEMORY_LIMIT // count}
    workers = {
        number: {
            "cls": _nanny(),
            "options": {**each, "env": {"CUDA_VISIBLE_DEVICES": ",".join(dealt(seen, number, count))}},
        }
        for number in range(count)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {**closed, "dashboard_address": _PAGES}}
    return opened.enter_context(distributed.SpecCluster(workers, scheduler, security=security, silence_logs=ERROR))


@cache
def _nanny() -> Any:
    """Dask's supervisor of a worker, which waits for a worker that it has killed until the system has its memory back.

    Dask gives up 9 seconds after it asked a worker to end: two with 40 GB of page-locked memory each were not gone by then.
    """
    base: Any = distributed_package().Nanny

    class Nanny(base):  # type: ignore[misc]
        async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
            """End the worker, by force where it takes too long."""
            worker = self.process and self.process.process
            try:
                await super().kill(timeout=timeout, reason=reason)
            except TimeoutError:
                if worker is None:
                    raise
                with suppress(ValueError):  # it has ended by now, and is closed
                    await worker.join(_FREED_SECONDS)

    return Nanny


def dealt(gpus: Sequence[str], worker: int, workers: int) -> Sequence[str]:
    """GPUs that a worker is to see: its share of them, or one that others see as well.

    >>> dealt("0123", 0, 1), dealt("0123", 1, 2), dealt("01", 2, 4)
    ('0123', '13', '0')
    """
    return gpus[worker % len(gpus) :: workers]


def _slurm(jobs: int, opened: ExitStack) -> Any:
    """Workers in jobs of Slurm; what ``jobqueue.yaml`` and Dask's own configuration say of certificates and pages holds."""
    try:
        with guarded_imports(blas=False):
            jobqueue = import_module("dask_jobqueue")
    except ImportError as error:
        raise MissingPackageError(
            f"workers as jobs of Slurm need the package dask-jobqueue, which cannot be imported ({error}): "
            "python3 -m pip install dask-jobqueue"
        ) from error
    told = import_module("dask").config.get("jobqueue.slurm", {})
    has_certificates = distributed_package().Security().require_encryption
    cluster = jobqueue.SLURMCluster(
        security=None if has_certificates else _certificates(),
        # Jobs read the certificate in a file that the owner alone may read.
        shared_temp_directory=told.get("shared-temp-directory") or os.getcwd(),
        scheduler_options={"dashboard_address": _PAGES, **(told.get("scheduler-options") or {})},
        worker_extra_args=["--dashboard-address", _PAGES, *(told.get("worker-extra-args") or told.get("extra") or [])],
    )
    opened.enter_context(cluster).scale(jobs=jobs)
    return cluster


def _wait(client: Any, where: str) -> None:
    """Wait for a first worker; a queue may let nothing begin for long."""
    patience = None if where.startswith("slurm") else WAIT_SECONDS
    try:
        client.wait_for_workers(1 if patience is None else len(client.cluster.worker_spec), timeout=patience)
    except TimeoutError as error:
        raise ClusterError(
            f"not all workers of the cluster {where!r} came in {WAIT_SECONDS:.0f} seconds", "see what they say on standard error"
        ) from error
