"""Mixed precision on the workers of Dask: its tasks on blocks, and L in the workers' memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import Progress, progress_reporter
from ooc_chol.cluster.asking import asked_of_one
from ooc_chol.cluster.blocks import BlockGrid, BlockPlace, LBlock
from ooc_chol.cluster.choosing import block_height
from ooc_chol.cluster.facts import ClusterFacts
from ooc_chol.cluster.ground import AbstractBlockWork, MixedEngine, engine_here
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.matrices import AbstractClusterMatrix
from ooc_chol.cluster.measuring import BlockNorms, Measuring, column_square, measure_block, transposed_product
from ooc_chol.cluster.pieces import BlockTier
from ooc_chol.cluster.placing import Placing
from ooc_chol.cluster.run import BlockRun, RunJob
from ooc_chol.cluster.store import ClusterStore
from ooc_chol.cluster.tasks import Verdict, packed, unpacked
from ooc_chol.cluster.waiting import gathered
from ooc_chol.dense.key import arithmetic_key
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import Problem, make_plan
from ooc_chol.errors import OocCholError
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: Blocks that workers measure at a time, for each worker: entries of A that Dask makes for them wait in memory.
_AT_A_TIME = 4


@dataclass(frozen=True)
class Workers:
    """A client, and what its workers are."""

    client: Any  #: A client of the cluster
    facts: ClusterFacts  #: All workers, which agree
    retries: int = 0  #: How often Dask runs a task again that failed to read

    def placing(self, blocks: BlockGrid) -> Placing:
        """Where the tasks of these blocks had best run."""
        return Placing.of(blocks, tuple(self.facts.workers), self.facts.resources, self.retries)


@final
class DaskWork(AbstractBlockWork):
    """Tasks of Dask."""

    def __init__(self, workers: Workers, matrix: AbstractClusterMatrix, progress: Progress = None) -> None:
        self.n, self.source = matrix.n, matrix.source
        self._workers, self._matrix, self._progress = workers, matrix, progress
        self._release: Callable[[], None] = lambda: None
        self._blocks: BlockGrid | None = None
        self._run: ClusterRun | None = None
        #: Blocks that are final, or were to be when a run failed.
        self.futures: dict[BlockPlace, Any] = {}
        #: The runs until now, with what their tasks told.
        self.runs: list[BlockRun] = []

    @property
    def store(self) -> ClusterStore:
        """L in the workers' memory, which has the futures from now on."""
        assert self._blocks is not None and self._run is not None
        formats = None if self._run.precision is None else self._run.precision.formats
        futures, self.futures = self.futures, {}
        return ClusterStore(
            self._workers.client, self._blocks, futures, fmt=self._run.fmt, formats=formats, release=self._release
        )

    def released_by(self, release: Callable[[], None]) -> None:
        """Let the store call ``release`` when it is closed."""
        self._release = release

    def engine(self, options: FactorOptions) -> MixedEngine:
        """Ask a worker; all agree in what the answer depends on."""
        facts = self._workers.facts
        options = replace(options, memory_budget=facts.options.memory_budget)
        answer: MixedEngine = asked_of_one(self._workers.client, facts.workers, engine_here, self.n, options)
        return answer

    def cut(self, grid: TileGrid) -> BlockGrid:
        """As many blocks as the workers take."""
        return BlockGrid(grid, block_height(grid.nt, len(self._workers.facts.workers)))

    def key(self, run: ClusterRun, blocks: BlockGrid) -> dict[str, str | int]:
        """Ask a worker; all agree in what the answer depends on."""
        workers = self._workers
        answer: dict[str, str | int] = asked_of_one(workers.client, workers.facts.workers, key_of_run, packed(run), blocks)
        return answer

    def measure(self, run: ClusterRun, blocks: BlockGrid, asked: Measuring) -> Iterator[tuple[BlockPlace, BlockNorms]]:
        """A task for each block, some at a time."""
        client, placing, places = self._workers.client, self._workers.placing(blocks), list(blocks.places())
        self._matrix.cut(blocks, run.fmt)
        shared, step = client.submit(unpacked, packed(run), pure=False, priority=1), _AT_A_TIME * len(placing.workers)
        for start in range(0, len(places), step):
            batch = places[start : start + step]
            of_a = self._matrix.blocks(client, batch, placing)
            tasks = [
                client.submit(
                    measure_task, shared, blocks.window(place), asked, of_a.get(place), pure=False, **placing.hints(place)
                )
                for place in batch
            ]
            yield from zip(batch, _sound(gathered(client, tasks)), strict=True)

    def begin(self, run: ClusterRun, blocks: BlockGrid) -> None:
        self.futures = {}

    def keep(self, run: ClusterRun, blocks: BlockGrid, kept: Collection[BlockPlace]) -> None:
        """Let Dask forget the others."""
        self.futures = {place: self.futures[place] for place in kept}

    def make(self, run: ClusterRun, blocks: BlockGrid) -> None:
        """Run the tasks of all blocks that are missing."""
        self._run, self._blocks = run, blocks
        job = RunJob(self._workers.client, run, blocks, self._matrix, self._workers.placing(blocks), frozenset(self.futures))
        tasks = BlockRun(replace(job, given=dict(self.futures), salvages=run.precision is not None))
        self.runs.append(tasks)
        try:
            with progress_reporter(self._progress) as reporter:
                tasks.execute(reporter)
        finally:
            self.futures = dict(tasks.futures)
            tasks.forget()

    def told(self) -> Iterable[tuple[BlockPlace, LBlock]]:
        """A small task for each block, where it is."""
        client, places = self._workers.client, list(self.futures)
        return zip(
            places, gathered(client, [client.submit(told_of, self.futures[place], pure=False) for place in places]), strict=True
        )

    def squares(self, run: ClusterRun, blocks: BlockGrid, power: int) -> Iterator[NDArray[np.float64]]:
        """A task for each block and one for each block column, where its last block is."""
        client, placing = self._workers.client, self._workers.placing(blocks)
        shared = client.submit(unpacked, packed(run), pure=False, priority=1)
        for column in range(blocks.n_blocks):
            places = [place for place in blocks.places() if place.column == column]
            parts = [
                client.submit(
                    product_task, shared, blocks.window(place), self.futures[place], power, pure=False, **placing.hints(place)
                )
                for place in places
            ]
            yield gathered(client, client.submit(column_square, parts, pure=False, **placing.hints(places[-1])))

    def discard(self) -> None:
        """Take L back from Dask."""
        self._workers.client.cancel(list(self.futures.values()), force=True)
        self.futures = {}


def measure_task(run: ClusterRun, window: Window, asked: Measuring, a: NDArray[Any] | None) -> BlockNorms | Verdict:
    """Measure a block on the worker that runs this; an error of A's is a result."""
    try:
        return measure_block(run, window, asked, a)
    except OocCholError as error:
        return Verdict(error)


def product_task(run: ClusterRun, window: Window, block: LBlock, power: int) -> NDArray[np.float64]:
    """Multiply a block of L with random vectors on the worker that runs this."""
    return transposed_product(run, window, BlockTier(block, run), power)


def told_of(block: LBlock) -> LBlock:
    """A block without its tiles."""
    return replace(block, tiles=None)


def _sound(results: Sequence[BlockNorms | Verdict]) -> list[BlockNorms]:
    """The results; the first error among them is raised."""
    sound: list[BlockNorms] = []
    for each in results:
        if isinstance(each, Verdict):
            raise each.error
        sound.append(each)
    return sound


def key_of_run(data: bytes, blocks: BlockGrid) -> dict[str, str | int]:
    """The arithmetic key by the plan of the first block on the worker that runs this: that of every other block."""
    run: ClusterRun = unpacked(data)
    problem = Problem(run.grid.n, run.fmt.itemsize, "array", precision=run.precision, fmt=run.fmt)
    plan = make_plan(problem.of_window(blocks.window(BlockPlace(0, 0))), run.options, lambda grid: None)
    return arithmetic_key(plan).to_dict()
