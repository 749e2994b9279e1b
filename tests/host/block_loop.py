"""Windows of one factorization run one after the other in this process, in the place of tasks on a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from ooc_chol.errors import NotPositiveDefiniteError
from tests.inside.cluster import (
    AbstractBlockWork,
    BlockGrid,
    BlockNorms,
    BlockPlace,
    ClusterRun,
    LBlock,
    Measuring,
    MixedEngine,
    column_square,
    engine_here,
    measure_block,
    transposed_product,
)
from tests.inside.dense import MemoryStore, Problem, arithmetic_key, make_plan
from tests.inside.dense import run as run_plan
from tests.inside.memory import as_source
from tests.inside.tasks import TileGrid


class LoopWork(AbstractBlockWork):
    """One store for all windows; ``made`` says in which order blocks were made, and made again."""

    def __init__(self, a: object, height: int) -> None:
        self.source = as_source(a)
        self.n, self._height = self.source.n, height
        self._told: dict[BlockPlace, LBlock] = {}
        self.made: list[list[BlockPlace]] = []

    @property
    def store(self) -> MemoryStore:
        return self._store

    def engine(self, options) -> MixedEngine:
        return engine_here(self.n, options)

    def cut(self, grid: TileGrid) -> BlockGrid:
        return BlockGrid(grid, self._height)

    def key(self, run: ClusterRun, blocks: BlockGrid) -> dict[str, str | int]:
        plan = make_plan(self._problem(run), run.options, lambda grid: None)
        return arithmetic_key(plan).to_dict()

    def _problem(self, run: ClusterRun) -> Problem:
        return replace(Problem.of(self.source, run.options), precision=run.precision)

    def measure(self, run: ClusterRun, blocks: BlockGrid, asked: Measuring) -> Iterable[tuple[BlockPlace, BlockNorms]]:
        return ((place, measure_block(run, blocks.window(place), asked)) for place in blocks.places())

    def begin(self, run: ClusterRun, blocks: BlockGrid) -> None:
        self._store = MemoryStore(run.grid, None if run.precision is None else run.precision.formats)
        self._told.clear()

    def keep(self, run: ClusterRun, blocks: BlockGrid, kept: Collection[BlockPlace]) -> None:
        before, kept_blocks = self._store, {place: self._told[place] for place in kept}
        self.begin(run, blocks)
        self._told = kept_blocks
        for place in kept:
            for index in blocks.window(place).tiles():
                tile = np.empty(run.grid.shape(*index))
                before.read(index, tile)
                self._store.write(index, tile)

    def make(self, run: ClusterRun, blocks: BlockGrid) -> None:
        self.made.append([])
        failed: list[NotPositiveDefiniteError] = []
        for place in blocks.places():
            if place in self._told or (failed and place.column >= failed[0].tile[0] // blocks.height):
                continue
            self.made[-1].append(place)
            window = blocks.window(place)
            plan = make_plan(self._problem(run).of_window(window), run.options, lambda grid: None)
            try:
                done = run_plan(plan, self.source, self._store, report=None)
            except NotPositiveDefiniteError as error:
                failed.append(error)
                continue
            rows = None if done.norms is None else done.norms[[run.grid.packed(*index) for index in window.tiles()]]
            self._told[place] = LBlock(window, None, rows, done.seconds, done.link_bytes[0], "here")
        if failed:
            raise failed[0]

    def told(self) -> Iterable[tuple[BlockPlace, LBlock]]:
        return list(self._told.items())

    def squares(self, run: ClusterRun, blocks: BlockGrid, power: int):
        for column in range(blocks.n_blocks):
            places = [place for place in blocks.places() if place.column == column]
            yield column_square([transposed_product(run, blocks.window(place), self._store, power) for place in places])

    def discard(self) -> None:
        self._store.discard()
        self._told.clear()
