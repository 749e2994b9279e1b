"""Calls on workers of a cluster, each on the one that it is about, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ooc_chol.cluster.connection import worker_addresses
from ooc_chol.cluster.waiting import asked_anew, gathered, wait_for
from ooc_chol.errors import ClusterError, OocCholError

#: Seconds in which a worker says what it has: importing CuPy and opening a GPU for the first time takes some.
FACTS_SECONDS = 120.0

T = TypeVar("T")
#: Last question of each client on each matter, and the answer.
_TOLD: WeakKeyDictionary[Any, dict[str, tuple[object, Any]]] = WeakKeyDictionary()


def machine_of(address: str) -> str:
    """The machine of a worker."""
    return address.rpartition(":")[0]


def asked_of_all(client: Any, calls: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> dict[str, Any]:
    """Results of calls on workers, by their address; the first error that one returns is raised.

    ``WorkersLeftError`` where one of them has gone meanwhile.
    """
    asked = {
        address: client.submit(call, *arguments, workers=[address], pure=False, priority=1)
        for address, (call, arguments) in calls.items()
    }
    try:
        return _answers(client, asked)
    finally:
        client.cancel(list(asked.values()))


def asked_of_one(client: Any, agreed: Collection[str], call: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a call on one of the workers in ``agreed``; on another where these have gone."""

    def ask() -> Any:
        there = worker_addresses(client)
        address = next((each for each in there if each in agreed), there[0])
        return asked_of_all(client, {address: (call, arguments)})[address]

    return asked_anew(ask)


def told_before(client: Any, matter: str, question: object, ask: Callable[[], T]) -> T:
    """The answer to the question that the client asked last on a matter, or that of ``ask()`` where it was another one.

    For what does not change in a process. A question names the workers: one that was started again has another address.
    """
    known = _TOLD.setdefault(client, {})
    found = known.get(matter)
    if found is None or found[0] != question:
        found = known[matter] = question, ask()
    answer: T = found[1]
    return answer


def _answers(client: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Answers of all workers."""
    try:
        wait_for(client, list(asked.values()), FACTS_SECONDS, asked=list(asked))
    except TimeoutError:
        silent = {address: f"{future.status}" for address, future in asked.items() if not future.done()}
        problem = f"{len(silent)} of {len(asked)} workers did not answer within {FACTS_SECONDS:.0f} seconds"
        raise ClusterError(problem, "look at their logs, or retire them: they are busy or unreachable", silent) from None
    # That of a lost one, whose worker has gone since, would be waited for.
    failed = {address: future.exception() for address, future in asked.items() if future.status in ("error", "cancelled")}
    _raise_own(failed)
    if failed:
        advice = "install the same version of ooc_chol, NumPy and Dask on the client and on every worker"
        problem = f"{len(failed)} of {len(asked)} workers cannot say what they have"
        raise ClusterError(problem, advice, {address: repr(error) for address, error in failed.items()})
    states = dict(zip(asked, gathered(client, list(asked.values()), asked=list(asked)), strict=True))
    _raise_own(states)
    return states


def _raise_own(answers: Mapping[str, Any]) -> None:
    """Raise the first answer that is an error as one process would raise it, with a note of its worker."""
    for address, answer in answers.items():
        if isinstance(answer, OocCholError | ValueError):
            answer.add_note(f"on worker {address}")
            raise answer
