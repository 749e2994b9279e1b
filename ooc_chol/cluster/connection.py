"""The cluster that a call runs on: Dask's packages where they are installed, and a client of a scheduler."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from ooc_chol.errors import ClusterError, MissingPackageError
from ooc_chol.process.address_space import guarded_imports

#: Seconds in which a scheduler answers, and in which a first worker comes.
WAIT_SECONDS = 30.0
#: Seconds in which a worker that ended is started again by its nanny, on a busy machine too.
AGAIN_SECONDS = 10.0
#: What is no address of a scheduler: nothing, or a word that :func:`open_cluster` takes, with whatever number.
NO_ADDRESS = re.compile(r"\s*((local|slurm)\s*(:.*)?)?", re.IGNORECASE)


def distributed_package() -> Any:
    """The package ``distributed``; ``MissingPackageError`` says how it is installed."""
    try:
        with guarded_imports(blas=False):
            return import_module("distributed")
    except ImportError as error:
        from ooc_chol.extras import install_hint  # every factorization imports this module

        raise MissingPackageError(
            f"a run on a cluster needs Dask's package distributed, which cannot be imported ({error}): {install_hint('cluster')}"
        ) from error


def is_dask_array(a: Any) -> bool:
    """Tell whether ``a`` is an array of Dask; imports nothing."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(a, module.Array)


def current_client(a: Any) -> Any:
    """The client that a Dask array ``a`` is computed by when nobody names one; None without one, and for anything else."""
    if not is_dask_array(a) or (distributed := sys.modules.get("distributed")) is None:
        return None
    try:
        return distributed.Client.current()
    except ValueError:
        return None


@contextmanager
def connected(client: Any, *, as_default: bool = False) -> Iterator[Any]:
    """A client: the one that is given, or one of the scheduler at an address, which is closed at the end of the block."""
    distributed = distributed_package()
    if isinstance(client, str):
        if NO_ADDRESS.fullmatch(client):
            advice = "with open_cluster('local') as client, or 'slurm:16', workers are started, and that client is given"
            raise ValueError(f"client={client!r} is no address of a scheduler, such as 'tcp://head:8786'; {advice}")
        own = distributed.Client.__new__(distributed.Client)
        try:
            own.__init__(client, timeout=WAIT_SECONDS, set_as_default=as_default)
        except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last two where certificates are missing
            own.close(timeout=1)  # its thread would stay, which nobody else has a name for
            own._loop_runner.stop()  # and does where the scheduler hung up: then there is nothing to close
            raise ClusterError(
                f"no scheduler answers at {client!r} ({error})",
                "start one with `dask scheduler`, or correct the address; for one that asks for certificates give a client that "
                "has them: distributed.Client(address, security=...)",
            ) from error
        with own:
            yield own
        return
    if not isinstance(client, distributed.Client):
        raise TypeError(f"client is a {type(client).__name__}; give a distributed.Client, or the address of a scheduler as text")
    if client.asynchronous:
        raise TypeError("client is an asynchronous one: a factorization waits for its result; give one without asynchronous=True")
    yield client


def worker_addresses(client: Any, planned: int = 1) -> tuple[str, ...]:
    """The workers there are, in the order of their addresses; waits for a first one, and raises ``ClusterError`` without any.

    For so many as are planned with it waits a while, since what ended may be starting again.
    """
    check_alive(client)
    if len(client.nthreads()) < planned:
        with suppress(TimeoutError):
            client.wait_for_workers(planned, timeout=AGAIN_SECONDS if client.nthreads() else WAIT_SECONDS)
    if not (there := client.nthreads()):
        raise ClusterError(
            f"the cluster at {client.scheduler.address} has no worker, and none came in {WAIT_SECONDS:.0f} seconds",
            "start workers (dask worker, or cluster.scale(...)) and call again",
        )
    return tuple(sorted(there))


def check_alive(client: Any) -> None:
    """Raise ``ClusterError`` where the client has lost its scheduler, or was closed."""
    if client.status != "running":
        raise ClusterError(
            f"the client's connection to its scheduler is {client.status}",
            "make a new client and call again; what a checkpoint holds is gone on from",
        )
