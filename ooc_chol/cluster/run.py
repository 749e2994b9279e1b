"""A run on a cluster, as the client sees it: tasks are submitted a few block columns ahead, and the first error ends it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final
from uuid import uuid4

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.connection import check_alive, distributed_package
from ooc_chol.cluster.events import TaskEvents
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.matrices import AbstractClusterMatrix
from ooc_chol.cluster.placing import Placing
from ooc_chol.cluster.tasks import Verdict, block_task, packed, unpacked
from ooc_chol.cluster.waiting import clear_words, ended, gathered, wait_for
from ooc_chol.cluster.worker_state import end_run, let_go
from ooc_chol.errors import ClusterError, NotPositiveDefiniteError, OocCholError

if TYPE_CHECKING:
    from ooc_chol.calls.progress import ProgressReporter

#: Tasks that are with Dask at a time: two block columns, and some for every worker. What waits here costs its scheduler nothing.
COLUMNS_AHEAD, TASKS_OF_A_WORKER = 2, 8
#: The part of these that has ended before more are submitted.
REFILL = 4
#: Most seconds for which tasks that write to a group are waited for when their run is taken back.
LAST_TASK_SECONDS = 30.0
#: States of a task that had ended, and whose result was lost with its worker since: Dask runs it again.
AGAIN = ("lost", "pending")


@dataclass(frozen=True)
class RunJob:
    """All that a run on a cluster is made of."""

    client: Any
    run: ClusterRun
    blocks: BlockGrid
    matrix: AbstractClusterMatrix
    placing: Placing
    done: Collection[BlockPlace] = field(default=frozenset())  #: Blocks that a checkpoint holds
    given: Mapping[BlockPlace, Any] = field(default_factory=dict)  #: Futures of blocks that a run before has made
    salvages: bool = False  #: Whether blocks left of a failed pivot are made all the same, and stay


@final
class BlockRun:
    """The tasks of one run; :meth:`execute` returns when all blocks are final, or raises why not."""

    def __init__(self, job: RunJob) -> None:
        self._job = job
        self._report: ProgressReporter = None
        #: By place, what Dask has or will have.
        self.futures: dict[BlockPlace, Any] = dict(job.given)
        self.events = TaskEvents(f"ooc-chol-{uuid4().hex}")
        self.seconds = 0.0
        self._ahead = max(COLUMNS_AHEAD * job.blocks.n_blocks, TASKS_OF_A_WORKER * len(job.placing.workers))
        self._waiting = deque(place for place in job.blocks.places() if place not in job.done and place not in job.given)
        self._places: dict[str, BlockPlace] = {}
        self._of_a: dict[BlockPlace, Any] = {}
        self._common: tuple[Any, Any] = (None, None)
        fmt = job.run.fmt
        self._flops = {place: fmt.flops_factor * block_flops(job.blocks, place) for place in self._waiting}
        self._flops_done = self._flops_told = 0

    def execute(self, report: ProgressReporter = None) -> Mapping[BlockPlace, Any]:
        """Make all blocks; on any error whatever is left with Dask is cancelled."""
        began, job, self._report = time.perf_counter(), self._job, report
        self._told(began)
        try:
            with job.client.as_current(), self.events.heard(job.client), clear_words(job.client):
                self._share_run()
                running = distributed_package().as_completed(raise_errors=False)
                self._submit(running)
                for future in ended(running, job.client, lambda: self._told_within(began)):
                    if future.status in AGAIN:
                        running.add(future)
                        continue
                    self._settle(self._places[future.key], future)
                    self._told(began)
                    self._submit(running)
                self._let_go()
        except NotPositiveDefiniteError as error:
            if job.salvages:
                self._salvage(error.tile[0] // job.blocks.height)
            else:
                self.cancel()
            raise
        except BaseException:
            self.cancel()
            raise
        self.seconds = time.perf_counter() - began
        return self.futures

    def _salvage(self, column: int) -> None:
        """Wait for the blocks left of a block column, and take all others back from Dask."""
        late = {place: self.futures.pop(place) for place in list(self.futures) if place.column >= column}
        self._job.client.cancel(list(late.values()), force=True)
        try:
            wait_for(self._job.client, list(self.futures.values()))
        except BaseException:
            self.cancel()
            raise

    def lost_workers(self) -> tuple[str, ...]:
        """Workers that were there when the run began, and are gone."""
        there = self._job.client.nthreads()
        return tuple(each for each in self._job.placing.workers if each not in there)

    def forget(self) -> None:
        """Let Dask forget all that this run made."""
        self.futures.clear()
        self._common = (None, None)

    def cancel(self) -> None:
        """Take back from Dask what it has of this run; tasks that run now end by themselves.

        Nobody gets blocks in memory that they make. A group is still written by them, so they are waited for: behind this call it
        may be removed, and a checkpoint has their blocks.
        """
        futures = [*self.futures.values(), *self._of_a.values(), *(each for each in self._common if each is not None)]
        self.futures.clear()
        self._of_a.clear()
        self._common = (None, None)
        client, run = self._job.client, self._job.run
        if client.status == "running":
            client.cancel(futures, force=True)
            self._let_go()
            if run.store is not None:
                client.run(end_run, run.name, LAST_TASK_SECONDS, on_error="ignore")

    def _let_go(self) -> None:
        """Let the devices of workers keep nothing of this run any more."""
        if self._job.run.keeps_tiles:
            self._job.client.run(let_go, self._job.run.name, on_error="ignore")

    def _share_run(self) -> None:
        """Give Dask what all tasks need: the run, and A's diagonal where it is needed beside a block."""
        job = self._job
        job.matrix.cut(job.blocks, job.run.fmt)
        shared = job.client.submit(unpacked, packed(job.run), key=f"ooc-run-{uuid4().hex}", priority=1)
        needs_diagonal = job.run.source is None and job.run.options.fp64 == "residue"
        self._common = (shared, job.matrix.diagonal(job.client) if needs_diagonal else None)

    def _submit(self, running: Any) -> None:
        """Let Dask have as many tasks as it may, in the order in which blocks become final."""
        room = self._ahead - len(self._of_a)
        if room < self._ahead // REFILL:
            return  # a graph of Dask is cheaper for many blocks at once
        batch = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if not batch:
            return
        of_a = self._job.matrix.blocks(self._job.client, batch, self._job.placing)
        for place in batch:
            self._of_a[place] = of_a.get(place)
            future = self.futures[place] = self._task(place, of_a.get(place))
            self._places[future.key] = place
            running.add(future)

    def _task(self, place: BlockPlace, a: Any) -> Any:
        """Submit the task of one block."""
        job, (run, diagonal) = self._job, self._common
        needed = list(needed_blocks(place, in_order=job.run.store is not None))
        if (coming := job.placing.coming(place) if job.run.keeps_tiles else None) is not None:
            needed += [BlockPlace(coming.column, q) for q in range(place.column)]
        given = [self.futures[each] for each in needed if each in self.futures]
        key = f"block-{uuid4().hex[:12]}-{place.row}-{place.column}"
        later = None if coming is None else job.blocks.window(coming)
        arguments = (run, job.blocks.window(place), given, a, diagonal, self.events.topic, later)
        return job.client.submit(block_task, *arguments, key=key, pure=False, **job.placing.hints(place))

    def _settle(self, place: BlockPlace, future: Any) -> None:
        """Take note of a task that has ended; raise what ends the run."""
        if future.status == "finished" and getattr(future.type, "__name__", "") != Verdict.__name__:
            self._of_a.pop(place, None)  # Dask may forget the block of A, and can make it again
            self._flops_done += self._flops.pop(place, 0)
            return
        if future.status == "finished":
            raise self._verdict(future)
        check_alive(self._job.client)
        if future.status == "error":
            raise failure_of(place, future)
        raise ClusterError(
            f"the task of block ({place.row}, {place.column}) of L is {future.status}",
            "its scheduler was restarted, or somebody cancelled it: call again, and with checkpoint=True what is there is kept",
        )

    def _verdict(self, future: Any) -> OocCholError:
        """The error that ends the run: of minors that are not positive definite the smallest one that is known by now."""
        ended = [each for each in self.futures.values() if each.status == "finished"]
        verdicts = [each for each in ended if getattr(each.type, "__name__", "") == Verdict.__name__]
        errors = [each.error for each in gathered(self._job.client, [future, *verdicts], errors="skip")]
        minors = [error for error in errors if isinstance(error, NotPositiveDefiniteError)]
        first: OocCholError = min(minors, key=lambda error: error.minor) if minors else errors[0]
        return first

    def _told(self, began: float) -> None:
        """Report how far the run is."""
        if self._report is not None:
            self._flops_told = max(self._flops_told, self._flops_done + self._flops_within())
            self._report(self._flops_told, self._flops_done + sum(self._flops.values()), time.perf_counter() - began)

    def _told_within(self, began: float) -> None:
        """Report what tasks that take long have told since."""
        if self._flops_done + self._flops_within() > self._flops_told:
            self._told(began)

    def _flops_within(self) -> int:
        """Flops that are done of blocks that are not."""
        height, shares = self._job.blocks.height, dict(self.events.shares)
        places = {BlockPlace(row // height, column // height): share for (row, column), share in shares.items()}
        return sum(int(share * self._flops.get(place, 0)) for place, share in places.items())


def needed_blocks(place: BlockPlace, *, in_order: bool) -> Sequence[BlockPlace]:
    """The blocks of L that a block needs; ``in_order`` only the last of them, behind which all others are."""
    row, column = place
    first = max(0, column - 1) if in_order else 0
    own = [BlockPlace(row, q) for q in range(first, column)]
    if row == column:
        return own
    # In order: what is diagonal comes behind all of its row.
    return [*own, *(BlockPlace(column, q) for q in range(column if in_order else 0, column + 1))]


def block_flops(blocks: BlockGrid, place: BlockPlace) -> int:
    """Flops of a block: its sum of products, and its factorization or triangular solve."""
    rows, columns, before = len(blocks.rows(place.row)), len(blocks.rows(place.column)), blocks.rows(place.column).start
    if place.row == place.column:
        return rows * rows * before + rows**3 // 3
    return 2 * rows * columns * before + rows * columns * columns


def failure_of(place: BlockPlace, future: Any) -> BaseException:
    """Error for the caller from a failed task: one that ended its workers is told as such, an error of the user's code as is."""
    distributed, error = distributed_package(), future.exception()
    name = f"block ({place.row}, {place.column}) of L"
    if isinstance(error, distributed.KilledWorker):
        worker = getattr(error.last_worker, "address", str(error.last_worker))
        return ClusterError(
            f"{error.task} ended every worker that tried it, or each was lost meanwhile, while {name} was waited for",
            "look at the worker's log: most often its memory was not enough, so give a smaller memory_budget, more workers, or "
            "store= a Zarr group",
            {worker: "was the last to try"},
        )
    if isinstance(error, distributed.client.FutureCancelledError | distributed.CancelledError):
        return ClusterError(f"the task of {name} was cancelled ({error})", "call again when the cluster is up")
    if not isinstance(error, OocCholError):
        error.add_note(f"on the cluster, while {name} was made")
    raised: BaseException = error
    return raised
