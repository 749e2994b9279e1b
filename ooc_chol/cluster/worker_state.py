"""State of a worker beside its tasks: their turn, the cores that they use, and the group of the present run with tiles of it."""

from __future__ import annotations

import asyncio
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.kept_tiles import KeptTiles
from ooc_chol.process.fork_safety import new_lock

if TYPE_CHECKING:
    from ooc_chol.cluster.resident_tiles import ResidentTiles
    from ooc_chol.dense.stores.zarr_store import ZarrStore


#: Runs whose end a worker remembers: tasks of theirs may still be on their way to it.
RUNS_REMEMBERED = 64
#: Seconds between two looks at whether the last task of a run has ended.
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class OpenGroup:
    """A group that is open for one run, and tiles of it in memory."""

    run: str  #: Name of the run
    store: ZarrStore
    kept: KeptTiles


@final
class TaskRoom:
    """Where the tasks of one worker run: one at a time, since each takes the budget of its devices and all of their cores."""

    def __init__(self) -> None:
        #: Held by the task that runs.
        self.turn = new_lock()
        self._open: OpenGroup | None = None
        self._resident: ResidentTiles | None = None
        self._ended: deque[str] = deque(maxlen=RUNS_REMEMBERED)

    @property
    def is_open(self) -> bool:
        """True if there is an open group, with tiles that are kept."""
        return self._open is not None

    def group(self, run: ClusterRun) -> OpenGroup:
        """The group of a run, opened by its first task here; that of an earlier run is let go."""
        there = self._open
        if there is None or there.run != run.name:
            self.close_group()
            there = self._open = _opened(run)
            # Dask lets the run go once its client has no use for it: then nobody needs its group here.
            weakref.finalize(run, self._forget, run.name).atexit = False
        return there

    def resident(self, run: ClusterRun, make: Callable[[], ResidentTiles]) -> ResidentTiles:
        """The tiles that devices keep for the tasks of a run, none at first; those of another run are let go."""
        there = self._resident
        if there is None or there.run != run.name or not there.wake():
            self.close_resident()
            there = self._resident = make()
        return there

    def close_resident(self) -> None:
        """Let go of the tiles that devices keep."""
        there, self._resident = self._resident, None
        if there is not None and there.wake():
            there.close()

    def let_go(self, name: str) -> None:
        """Let devices keep nothing of a run; where one of its tasks runs, what they keep goes some seconds after it."""
        if self.turn.acquire(blocking=False):
            try:
                if self._resident is not None and self._resident.run == name:
                    self.close_resident()
            finally:
                self.turn.release()

    def has_ended(self, run: ClusterRun) -> bool:
        """Tell whether the client of a run wants nothing more of it."""
        return run.name in self._ended

    def end(self, name: str) -> None:
        """Let no task of a run begin from now on."""
        self._ended.append(name)

    def close_group(self) -> None:
        """Let go of the open group and of all tiles that are kept of it."""
        there, self._open = self._open, None
        if there is not None:
            there.store.close()

    def _forget(self, name: str) -> None:
        """Let go of the group of a run that is over.

        Any thread comes here when it drops the last reference, perhaps while a task of another run takes its turn: so no lock is
        taken, and no store is closed that a task may use. The worst that follows is that a group is opened once more.
        """
        there = self._open
        if there is not None and there.run == name:
            self._open = None


def _opened(run: ClusterRun) -> OpenGroup:
    """Open the group of a run."""
    from ooc_chol.dense.stores.zarr_store import ZarrStore  # Zarr is an extra

    assert run.store is not None
    return OpenGroup(run.name, ZarrStore.open_for_writing(run.store, run.writer), KeptTiles(run.grid.nt))


#: Outside of a cluster the process is the worker.
_ALONE = TaskRoom()
_ROOMS: weakref.WeakKeyDictionary[Any, TaskRoom] = weakref.WeakKeyDictionary()
_ROOMS_LOCK = new_lock()


def task_room() -> TaskRoom:
    """Where tasks of the worker that runs this run; several workers of one process have a room each."""
    worker = this_worker()
    return _ALONE if worker is None else _room_of(worker)


def _room_of(worker: Any) -> TaskRoom:
    """Where the tasks of a worker run."""
    with _ROOMS_LOCK:
        return _ROOMS.setdefault(worker, TaskRoom())


def let_go(name: str, dask_worker: Any) -> None:
    """Let the devices of a worker keep nothing of a run whose blocks are all there."""
    _room_of(dask_worker).let_go(name)


async def end_run(name: str, seconds: float, dask_worker: Any) -> bool:
    """Let no task of a run begin here any more, and wait so long for the one that runs; returns whether none is left."""
    room, last = _room_of(dask_worker), time.monotonic() + seconds
    room.end(name)
    while not room.turn.acquire(blocking=False):
        if time.monotonic() > last:
            return False
        await asyncio.sleep(POLL_SECONDS)
    room.turn.release()
    return True


def worker_address() -> str:
    """Address of the worker that runs this, empty outside of a cluster."""
    worker = this_worker()
    return "" if worker is None else str(worker.address)


def worker_threads() -> int | None:
    """Threads that the worker that runs this was given, which its host devices share; None outside of a cluster.

    What BLAS may use says nothing there: Dask limits it to one thread in every process that it starts.
    """
    worker = this_worker()
    return None if worker is None else int(worker.state.nthreads)


def this_worker() -> Any:
    """The worker that runs this, None outside of a cluster; Dask is imported by nobody here."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None
