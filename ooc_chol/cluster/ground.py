"""Mixed precision on a cluster: the steps are those of one machine, and tasks on blocks take the place of its passes and runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace, LBlock
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.measuring import BlockNorms, Measuring, joined_norms
from ooc_chol.dense.checkpoint import Progress
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.mixed_ground import AbstractGround, MixedResult, computed_by
from ooc_chol.dense.options import FactorOptions, default_moduli
from ooc_chol.dense.planner import Problem, mixed_engine
from ooc_chol.dense.probing import form_of_factor
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import OocCholError
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.kernels.interfaces import NORM_COLUMNS
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.precision.escalation import EscalationState
from ooc_chol.precision.norms import MatrixNorms, Probes, sample_step
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid


class MixedEngine(NamedTuple):
    """Arithmetic of a factorization in mixed precision, as a worker sets it."""

    grid: TileGrid
    options: FactorOptions  #: With engine and tile order
    computes_float32: bool


def engine_here(n: int, options: FactorOptions) -> MixedEngine:
    """The engine of a matrix of order ``n`` on the worker that runs this, as one machine with its devices would choose it."""
    grid, options = mixed_engine(Problem(n, FP64.itemsize, "cluster"), options)
    return MixedEngine(grid, options, kind_of(resolve_devices(options.devices)[0]).computes_float32)


@final
@dataclass(frozen=True)
class ClusterMixedPlan:
    """A run on a cluster as escalation sees it."""

    run: ClusterRun  #: What every task is told
    blocks: BlockGrid  #: How L is cut into tasks
    kept: frozenset[BlockPlace] = frozenset()  #: Blocks that a run before has made final, and that stay

    @property
    def grid(self) -> TileGrid:
        """How A is cut into tiles."""
        return self.run.grid

    @property
    def precision(self) -> PrecisionMap | None:
        """Formats of the tiles; None where all is FP64."""
        return self.run.precision

    @property
    def given(self) -> frozenset[tuple[int, int]]:
        """The tiles of blocks that stay."""
        return frozenset((i, j) for place in self.kept for i, j in self.blocks.window(place).tiles())

    @property
    def moduli(self) -> int | None:
        """Moduli of products through residues; None for the devices' own arithmetic."""
        return self.run.options.moduli if self.run.options.fp64 == "residue" else None

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The block columns: no smaller part of L is made by a task of its own."""
        spans = map(self.blocks.span, range(self.blocks.n_blocks))
        return tuple(Panel(span.start, len(span), len(span)) for span in spans)


class AbstractBlockWork(ABC):
    """Where tasks on the blocks of one matrix run, and where the blocks of L that they make are kept."""

    n: int  #: Order of the matrix
    #: What every task reads A from; None where tasks are given blocks of it
    source: AbstractSource | None
    #: URL of the Zarr group that L goes to; None where workers keep it in memory
    url: str | None = None

    @property
    @abstractmethod
    def store(self) -> AbstractStore:
        """All blocks, once they are final."""

    @abstractmethod
    def engine(self, options: FactorOptions) -> MixedEngine:
        """Result of :func:`engine_here` on the workers."""

    @abstractmethod
    def cut(self, grid: TileGrid) -> BlockGrid:
        """The blocks for these tiles."""

    @abstractmethod
    def key(self, run: ClusterRun, blocks: BlockGrid) -> dict[str, str | int]:
        """The arithmetic key of a run, which its own is not yet."""

    @abstractmethod
    def measure(self, run: ClusterRun, blocks: BlockGrid, asked: Measuring) -> Iterable[tuple[BlockPlace, BlockNorms]]:
        """:func:`~ooc_chol.cluster.measuring.measure_block` of every block, in the order of ``blocks.places()``."""

    @abstractmethod
    def begin(self, run: ClusterRun, blocks: BlockGrid) -> None:
        """Make an empty place for the L of a run."""

    @abstractmethod
    def keep(self, run: ClusterRun, blocks: BlockGrid, kept: Collection[BlockPlace]) -> None:
        """Forget all blocks but ``kept``; those to come are of the formats of ``run``."""

    @abstractmethod
    def make(self, run: ClusterRun, blocks: BlockGrid) -> None:
        """Make all blocks final that are not; where a pivot fails, all that lie left of it before its error is raised."""

    @abstractmethod
    def told(self) -> Iterable[tuple[BlockPlace, LBlock]]:
        """Every block that is final, without its tiles."""

    @abstractmethod
    def squares(self, run: ClusterRun, blocks: BlockGrid, power: int) -> Iterable[NDArray[np.float64]]:
        """``Y.T @ Y`` of each block column, ``Y`` being its rows of ``L.T @ [U, V]``, from left to right."""

    @abstractmethod
    def discard(self) -> None:
        """Forget all blocks."""


@final
class ClusterGround(AbstractGround[ClusterMixedPlan]):
    """Workers as the ground of a factorization in mixed precision.

    Norms of A are measured per tile, and formats follow from them: both are those of one machine with the same tiles, to the bit.
    What random vectors show is summed block column by block column, whoever made the parts, and differs from that of one machine
    by rounding. Products in FP16 are left out unless they are asked for: whether they gain is a matter of rates, which workers
    may measure otherwise.
    """

    def __init__(self, work: AbstractBlockWork, options: FactorOptions, like: ClusterMixedPlan | None = None) -> None:
        self.like = like
        self.options = replace(options, half_products=options.half_products or False)
        self.work = work
        self._computes_float32 = True
        self._power = 0

    @property
    def store(self) -> AbstractStore:
        """L, once it is complete."""
        return self.work.store

    def engine(self) -> tuple[TileGrid, FactorOptions]:
        grid, options, self._computes_float32 = self.work.engine(self.options)
        return grid, options

    def norms(self, grid: TileGrid, *, probes: Probes | None) -> MatrixNorms:
        """A task for each block of A."""
        began, blocks = time.perf_counter(), self.work.cut(grid)
        self._power = 0 if probes is None else probes.power
        asked = Measuring(sample_step(grid), None if probes is None else probes.power)
        run = self._run(replace(self.options, tile_size=grid.nb), grid, None)
        norms = joined_norms(blocks, asked, self.work.measure(run, blocks, asked), probes)
        return replace(norms, seconds=time.perf_counter() - began)

    def gone_on(
        self, options: FactorOptions, norms: MatrixNorms, within: float
    ) -> tuple[EscalationState, MixedResult[ClusterMixedPlan]] | None:
        """Begin at the beginning: blocks that a group holds already are found when it is opened."""
        return None

    def plan(self, options: FactorOptions, precision: PrecisionMap) -> ClusterMixedPlan:
        """The run for a map of formats."""
        return self._planned(options, precision, frozenset())

    def fp64_plan(self, options: FactorOptions) -> ClusterMixedPlan:
        """The run in FP64 on the same tiles, by the same engine."""
        nb = options.tile_size
        assert nb is not None
        if options.fp64 == "residue":
            options = replace(options, moduli=options.moduli or default_moduli(self.work.n, FP64))
        options = replace(options, precision_threshold=None, half_products=None)
        return self._with_key(self._run(options, TileGrid(self.work.n, nb), None), frozenset())

    def begin(self, plan: ClusterMixedPlan, progress: Progress | None = None) -> None:
        self.work.begin(plan.run, plan.blocks)

    def rest(
        self,
        before: ClusterMixedPlan,
        options: FactorOptions,
        tiles: list[tuple[int, int]],
        given: frozenset[tuple[int, int]],
        progress: Progress,
    ) -> ClusterMixedPlan:
        """Keep the blocks that lie in ``given`` as a whole: what else was there of them is made again, to the same bits."""
        assert before.precision is not None
        kept = frozenset(place for place, _ in self.work.told() if given.issuperset(before.blocks.window(place).tiles()))
        plan = self._planned(options, before.precision.widened(tiles), kept)
        self.work.keep(plan.run, plan.blocks, kept)
        return plan

    def run(
        self, plan: ClusterMixedPlan, salvage: Salvage, vectors: NDArray[np.float64] | None, norms: NDArray[np.float64] | None
    ) -> Execution:
        """Make the blocks that are missing; the random vectors see L afterwards."""
        began = time.perf_counter()
        try:
            self.work.make(plan.run, plan.blocks)
        except OocCholError:
            salvage.seconds = time.perf_counter() - began
            for place, _ in (told := list(self.work.told())):
                salvage.finished.update((i, j) for i, j in plan.blocks.window(place).tiles())
            salvage.norms = _norms_of_tiles(plan.grid, told)
            raise
        seconds, told = time.perf_counter() - began, list(self.work.told())
        norms = None if plan.precision is None else _norms_of_tiles(plan.grid, told)
        return Execution(seconds, _link_bytes(told), (), (), norms=norms)

    def form(self, plan: ClusterMixedPlan, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """A task for each block of L, and one that sums each block column."""
        total = np.zeros((vectors.shape[1], vectors.shape[1]))
        for square in self.work.squares(plan.run, plan.blocks, self._power):
            total += square
        return form_of_factor(total)

    def discard(self) -> None:
        """Let the workers forget L."""
        self.work.discard()

    def _planned(self, options: FactorOptions, precision: PrecisionMap, kept: frozenset[BlockPlace]) -> ClusterMixedPlan:
        options, precision = computed_by(options, precision, computes_float32=self._computes_float32)
        return self._with_key(self._run(options, precision.grid, precision), kept)

    def _run(self, options: FactorOptions, grid: TileGrid, precision: PrecisionMap | None) -> ClusterRun:
        return ClusterRun(grid, options, FP64, precision, {}, self.work.source, self.work.url)

    def _with_key(self, run: ClusterRun, kept: frozenset[BlockPlace]) -> ClusterMixedPlan:
        blocks = self.work.cut(run.grid)
        return ClusterMixedPlan(replace(run, arithmetic_key=self.work.key(run, blocks)), blocks, kept)


def _norms_of_tiles(grid: TileGrid, told: Iterable[tuple[BlockPlace, LBlock]]) -> NDArray[np.float64]:
    """Norms of final tiles measured by runs, in packed order; zero for tiles that are not final."""
    norms = np.zeros((grid.n_tiles, len(NORM_COLUMNS)))
    for _, block in told:
        if block.norms is not None:
            norms[[grid.packed(*index) for index in block.window.tiles()]] = block.norms
    return norms


def _link_bytes(told: Iterable[tuple[BlockPlace, LBlock]]) -> tuple[tuple[int, ...], ...]:
    """Executed bytes over each link, by worker, in the order of their addresses."""
    by_worker: dict[str, tuple[int, ...]] = {}
    for _, block in told:
        before = by_worker.get(block.worker, (0,) * len(block.link_bytes))
        by_worker[block.worker] = tuple(map(sum, zip(before, block.link_bytes, strict=True)))
    return tuple(by_worker[worker] for worker in sorted(by_worker))
