"""Events that tasks send to the client, and their sums for the whole run: seconds, bytes, runs that were repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.tasks.operations import Link


class TaskRun(NamedTuple):
    """One run of a task: several of one block where Dask had to repeat it."""

    place: tuple[int, int]  #: First tile row and first tile column of the window
    worker: str
    seconds: float  #: Of the engine, planning included
    span: tuple[float, float]  #: Seconds of the epoch at which it began and ended, by the worker's clock
    nbytes: int  #: Of the block, where it stays in memory
    link_bytes: tuple[int, ...]  #: Executed bytes over each link of the worker's device
    peak_bytes: int  #: Most memory that the worker's process has had until then
    read_bytes: int = 0  #: Of L, read from the group


@final
class TaskEvents:
    """The runs of tasks, in the order in which the client heard of them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.runs: list[TaskRun] = []
        #: Of tasks that take long, by their first tile row and column: the part of the flops that is done.
        self.shares: dict[tuple[int, int], float] = {}

    @contextmanager
    def heard(self, client: Any) -> Iterator[None]:
        """Hear what workers tell, inside the block."""
        client.subscribe_topic(self.topic, self._hear)
        try:
            yield
        finally:
            if client.status == "running":
                client.unsubscribe_topic(self.topic)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """Note one run, or how far one is; called by the client's own thread."""
        _, told = event
        place = (told["row"], told["column"])
        if "share" in told:
            self.shares[place] = told["share"]
            return
        if told["was_there"] and any(run.place == place for run in self.runs):
            return
        links, span = tuple(told["links"]), (told["began"], told["ended"])
        self.runs.append(TaskRun(place, told["worker"], told["seconds"], span, told["nbytes"], links, told["peak"], told["read"]))

    @property
    def repeated(self) -> int:
        """Runs beyond the first of each block."""
        return len(self.runs) - len({run.place for run in self.runs})

    def busy_seconds(self) -> dict[str, float]:
        """Seconds in tasks, by worker."""
        busy: dict[str, float] = {}
        for run in self.runs:
            busy[run.worker] = busy.get(run.worker, 0.0) + run.span[1] - run.span[0]
        return busy

    def link_bytes(self) -> dict[str, int]:
        """Bytes over the links of devices in all runs, by link."""
        return {link.name.lower(): sum(run.link_bytes[link] for run in self.runs) for link in Link}

    def peak_bytes(self) -> dict[str, int]:
        """Most memory of each worker's process."""
        peaks: dict[str, int] = {}
        for run in self.runs:
            peaks[run.worker] = max(peaks.get(run.worker, 0), run.peak_bytes)
        return peaks

    def network_bytes(self, blocks: BlockGrid) -> int:
        """Bytes of blocks of L that had to go to another worker, each once to every worker that used it."""
        sizes, makers, uses = self._by_block(blocks)
        moved = 0
        for (_, row), stop in uses.items():
            moved += sum(sizes.get((row, q), 0) for q in range(stop))
        for (row, column), maker in makers.items():
            if column < uses.get((maker, row), 0):
                moved -= sizes[row, column]
        return moved

    def _by_block(
        self, blocks: BlockGrid
    ) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], str], dict[tuple[str, int], int]]:
        """Bytes and maker of every block; and by worker and block row, how many of its blocks the worker used."""
        sizes: dict[tuple[int, int], int] = {}
        makers: dict[tuple[int, int], str] = {}
        uses: dict[tuple[str, int], int] = {}
        for run in self.runs:
            place = BlockPlace(run.place[0] // blocks.height, run.place[1] // blocks.height)
            sizes[place], makers[place] = run.nbytes, run.worker
            wanted = ((place.row, place.column), (place.column, place.column + (place.row > place.column)))
            for row, stop in wanted:
                uses[run.worker, row] = max(uses.get((run.worker, row), 0), stop)
        return sizes, makers, uses
