"""Calls on workers of a cluster, each on the one that it is about, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ooc_chol.dense.cluster.waiting import wait_for
from ooc_chol.errors import ClusterError

#: Seconds in which a worker says what it has: importing CuPy and opening a GPU for the first time takes some.
FACTS_SECONDS = 120.0


def machine_of(address: str) -> str:
    """The machine of a worker."""
    return address.rpartition(":")[0]


def asked_of_all(client: Any, calls: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> dict[str, Any]:
    """What calls on workers return, by their address; the first error that one returns is raised."""
    asked = {
        address: client.submit(call, *arguments, workers=[address], pure=False, priority=1)
        for address, (call, arguments) in calls.items()
    }
    try:
        return _answers(client, asked)
    finally:
        client.cancel(list(asked.values()))


def _answers(client: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What all workers answer."""
    try:
        wait_for(client, list(asked.values()), FACTS_SECONDS)
    except TimeoutError:
        silent = {address: f"{future.status}" for address, future in asked.items() if not future.done()}
        problem = f"{len(silent)} of {len(asked)} workers did not answer within {FACTS_SECONDS:.0f} seconds"
        raise ClusterError(problem, "look at their logs, or retire them: they are busy or unreachable", silent) from None
    failed = {address: repr(future.exception()) for address, future in asked.items() if future.status != "finished"}
    if failed:
        advice = "install the same version of ooc_chol, NumPy and Dask on the client and on every worker"
        raise ClusterError(f"{len(failed)} of {len(asked)} workers cannot say what they have", advice, failed)
    states = dict(zip(asked, client.gather(list(asked.values())), strict=True))
    for address, state in states.items():
        if isinstance(state, Exception):
            state.add_note(f"on worker {address}")
            raise state
    return states
