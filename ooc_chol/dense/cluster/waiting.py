"""Waiting for tasks, which ends with an error where Dask lets none run: it pauses workers whose memory is used up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from ooc_chol.config import format_bytes
from ooc_chol.dense.cluster.connection import check_alive, distributed_package
from ooc_chol.errors import ClusterError

#: Seconds between two looks at the workers while nothing ends, and seconds without any task that runs until that is an error:
#: Dask spills and frees memory meanwhile where it can.
LOOK_SECONDS, STALLED_SECONDS = 2.0, 20.0
#: States of a task in which its worker does something for it.
_AT_WORK = ("executing", "long-running", "flight", "fetch")
#: Seconds after which a condition is looked at again that should have been told of.
_AGAIN_SECONDS = 0.1


@final
class StallWatch:
    """Raises where paused workers keep tasks from running.

    Parameters
    ----------
    client : distributed.Client
        The client that waits.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.went_on()

    def went_on(self) -> None:
        """Note that something has ended."""
        self._moved = self._looked = time.monotonic()

    def look(self) -> None:
        """Raise ``ClusterError`` where no task has run for long, and workers are paused; called while one waits."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        check_alive(self._client)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        paused = {address: each for address, each in workers.items() if each.get("status") == "paused"}
        if not paused or any(map(_is_at_work, workers.values())):
            self._moved = now
        elif now - self._moved >= STALLED_SECONDS:
            raise ClusterError(
                f"Dask has paused {len(paused)} of {len(workers)} workers because their memory is used up, and no task runs",
                "give workers more memory (--memory-limit), start more of them, or let L go to a Zarr group (store=); where they "
                "are threads of your own process (processes=False) all of its arrays count: start processes",
                {address: _memory_of(each) for address, each in paused.items()},
            )


def ended(running: Any, client: Any) -> Iterator[Any]:
    """The futures of a ``distributed.as_completed`` as they end; more may be added meanwhile."""
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


def wait_for(client: Any, futures: Sequence[Any], seconds: float | None = None) -> None:
    """Wait until all futures have ended, in whatever way; ``TimeoutError`` after so many seconds."""
    distributed, watch = distributed_package(), StallWatch(client)
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


def gathered(client: Any, futures: Any) -> Any:
    """``client.gather``, which waits in vain for no worker."""
    wait_for(client, list(futures) if isinstance(futures, Sequence) else [futures])
    return client.gather(futures)


def _is_at_work(worker: Mapping[str, Any]) -> bool:
    """Whether a worker runs a task, or fetches what one needs."""
    metrics = worker.get("metrics", {})
    counts: Mapping[str, int] = metrics.get("task_counts", {})
    return any(counts.get(state, 0) for state in _AT_WORK) or bool(metrics.get("executing", 0))


def _memory_of(worker: Mapping[str, Any]) -> str:
    """What a worker has of memory and may have, in words."""
    used, limit = worker.get("metrics", {}).get("memory", 0), worker.get("memory_limit") or 0
    return f"{format_bytes(used)} in use, memory limit {format_bytes(limit)}"
