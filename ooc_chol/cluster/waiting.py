"""Waiting for tasks, which ends with an error where none can run: workers have gone, or are paused as their memory is used up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

from ooc_chol.cluster.connection import WAIT_SECONDS, check_alive, distributed_package
from ooc_chol.config import format_bytes
from ooc_chol.errors import ClusterError, OocCholError

_Result = TypeVar("_Result")

#: Seconds between two looks at the workers while nothing ends, and seconds without any task that runs until that is an error:
#: Dask spills and frees memory meanwhile where it can.
LOOK_SECONDS, STALLED_SECONDS = 2.0, 20.0
#: Seconds after which the scheduler is told to give out what it gives to no worker: Dask remembers workers that have gone as the
#: only ones of tasks that became ready while there was none.
FORGOTTEN_SECONDS = 4.0
#: States of a task in which its worker does something for it.
_AT_WORK = ("executing", "long-running", "flight")
#: How often workers are asked in all, where some of them leave meanwhile.
MOST_TRIES = 5
#: Seconds after which a condition is looked at again that should have been told of.
_AGAIN_SECONDS = 0.1


@final
class WorkersLeftError(ClusterError):
    """Workers have gone that tasks are for: those that are there can be asked anew."""


@final
class StallWatch:
    """Raises where tasks cannot run; tasks ``in_step`` where one of them cannot."""

    def __init__(self, client: Any, asked: Collection[str] = (), *, in_step: bool = False) -> None:
        self._client, self._asked, self._in_step = client, asked, in_step
        self.went_on()

    def went_on(self) -> None:
        """Note that something has ended."""
        self._moved = self._looked = time.monotonic()

    def look(self, *, is_done: bool = False) -> None:
        """Raise ``ClusterError`` where no task can run, and none has for long, unless all are done; called while one waits."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        check_alive(self._client)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if left := [each for each in self._asked if each not in workers]:
            raise WorkersLeftError(
                f"{len(left)} of {len(self._asked)} workers left while they were asked",
                "look at what ended them, most often memory, and call again",
                dict.fromkeys(left, "is gone"),
            )
        paused = {address: each for address, each in workers.items() if each.get("status") == "paused"}
        if is_done or self._goes_on(workers, paused):
            self._moved = now
        elif not workers and now - self._moved >= WAIT_SECONDS:
            raise ClusterError(
                f"the cluster has no worker any more, and none came in {WAIT_SECONDS:.0f} seconds",
                "look at what ended them, most often memory; start workers and call again",
            )
        elif workers and not paused and now - self._moved >= FORGOTTEN_SECONDS and _given_out(self._client):
            self._moved = now
        elif workers and not paused and now - self._moved >= STALLED_SECONDS:
            raise ClusterError(
                f"Dask gives none of what is left to do to any of {len(workers)} workers",
                "start workers that announce what those announced that have gone, such as --resources GPU=1, and call again",
            )
        elif paused and now - self._moved >= STALLED_SECONDS:
            raise ClusterError(
                f"Dask has paused {len(paused)} of {len(workers)} workers because their memory is used up, and no task runs",
                "give workers more memory (--memory-limit), start more of them, or keep L in a Zarr group (store=), A in a file "
                "(packed=); where they are threads of your process (processes=False) all of its arrays count: start processes",
                {address: _memory_of(each) for address, each in paused.items()},
            )

    def _goes_on(self, workers: Mapping[str, Any], paused: Mapping[str, Any]) -> bool:
        """Tell whether a worker has something to do that it can do."""
        if self._in_step and (stopped := [each for each in self._asked if each in paused]):
            return all(_is_at_work(workers[each]) for each in stopped)
        if paused:
            return any(map(_is_at_work, workers.values()))
        return bool(workers) and any(self._client.processing().values())


def _given_out(client: Any) -> bool:
    """Let the scheduler give to any worker what it keeps for some that have gone; tells whether it gave out anything."""
    try:
        return bool(client.run_on_scheduler(_give_out))
    except Exception:  # of a scheduler that takes no functions, that has not this package, or whose version knows no such step
        return False


def _give_out(dask_scheduler: Any) -> int:
    """Give out tasks that may go to others than the workers named for them, unless a worker lacks what they take; how many."""

    def may_go(task: Any) -> bool:
        taken = (task.resource_restrictions or {}).items()
        return all(worker.resources.get(name, 0) >= count for worker in dask_scheduler.running for name, count in taken)

    waiting = [task for task in dask_scheduler.unrunnable if task.loose_restrictions and may_go(task)]
    dask_scheduler.transitions({task.key: "processing" for task in waiting}, stimulus_id=f"ooc-chol-{time.time()}")
    return sum(task.state == "processing" for task in waiting)


def ended(
    running: Any,
    client: Any,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[Any]:
    """The futures of a ``distributed.as_completed`` as they end; more may be added, and ``meanwhile`` is called now and then."""
    watch = StallWatch(client)
    while not running.is_empty():
        with running.thread_condition:
            # What ends is put in the queue first, and told of under this lock: none is missed.
            if not running.has_ready():
                running.thread_condition.wait(_AGAIN_SECONDS)
        if running.has_ready():
            watch.went_on()
            yield next(running)
        else:
            watch.look()
            if meanwhile is not None:
                meanwhile()


def wait_for(
    client: Any, futures: Sequence[Any], seconds: float | None = None, asked: Collection[str] = (), *, in_step: bool = False
) -> None:
    """Wait until all futures have ended, in whatever way; ``TimeoutError`` after so many seconds.

    ``WorkersLeftError`` where one of the workers ``asked`` has gone: futures that are for it alone would not end.
    """
    distributed, watch = distributed_package(), StallWatch(client, asked, in_step=in_step)
    last = None if seconds is None else time.monotonic() + seconds
    with client.as_current():
        while True:
            try:
                distributed.wait(futures, timeout=LOOK_SECONDS)
            except TimeoutError:
                if last is not None and time.monotonic() > last:
                    raise
                watch.look()
            except (distributed.CancelledError, distributed.client.FutureCancelledError):
                return  # gathering it says which
            else:
                return


def gathered(client: Any, futures: Any, *, errors: str = "raise", asked: Collection[str] = (), in_step: bool = False) -> Any:
    """``client.gather``, which waits in vain for no worker: what one that has gone had is made again, or asked for no longer."""
    every = list(futures) if isinstance(futures, Sequence) else [futures]
    wait_for(client, every, asked=asked, in_step=in_step)
    watch = StallWatch(client, asked)

    async def brought() -> tuple[Any, BaseException | None]:
        try:
            return await client.gather(futures, errors=errors, asynchronous=True), None
        except (Exception, distributed_package().CancelledError) as error:  # as it is: a cancelled coroutine has no other words
            return None, error

    coming = asyncio.run_coroutine_threadsafe(brought(), client.loop.asyncio_loop)
    try:
        while True:
            try:
                found, error = coming.result(LOOK_SECONDS)
            except TimeoutError:
                watch.look(is_done=all(each.done() for each in every))
            else:
                break
    except BaseException:
        coming.cancel()
        raise
    if error is not None:
        raise error
    return found


def asked_anew(ask: Callable[[], _Result]) -> _Result:
    """Result of ``ask``, which is called again, a few times, where workers left meanwhile: those that are there answer."""
    for _ in range(MOST_TRIES - 1):
        try:
            return ask()
        except WorkersLeftError:
            continue
    return ask()


@contextmanager
def losses_named() -> Iterator[None]:
    """Turn what Dask says of tasks that were lost into a ``ClusterError``."""
    distributed = distributed_package()
    try:
        yield
    except (
        distributed.KilledWorker,
        distributed.client.FutureCancelledError,
        distributed.CancelledError,
        distributed.comm.CommClosedError,
    ) as error:
        raise ClusterError(
            f"the cluster lost a task and what it needs ({type(error).__name__}: {error})",
            "workers died or ran out of memory, or the scheduler was restarted: call again, with more workers or memory",
        ) from error


@contextmanager
def clear_words(client: Any) -> Iterator[None]:
    """Turn whatever Dask says of a connection that was lost meanwhile into a ``ClusterError``."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OocCholError) or client.status == "running":
            raise
        raise ClusterError(
            f"the connection to the cluster was lost ({type(error).__name__}: {error})",
            "make a new client and call again; what a checkpoint holds is gone on from",
        ) from error


def _is_at_work(worker: Mapping[str, Any]) -> bool:
    """Tell whether a worker runs a task, or fetches what one needs."""
    metrics = worker.get("metrics", {})
    counts: Mapping[str, int] = metrics.get("task_counts", {})
    return any(counts.get(state, 0) for state in _AT_WORK) or bool(metrics.get("executing", 0))


def _memory_of(worker: Mapping[str, Any]) -> str:
    """Memory of a worker, in use and in all, in words."""
    used, limit = worker.get("metrics", {}).get("memory", 0), worker.get("memory_limit") or 0
    return f"{format_bytes(used)} in use, memory limit {format_bytes(limit)}"
