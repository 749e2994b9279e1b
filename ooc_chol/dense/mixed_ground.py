"""Where a factorization in mixed precision happens: what measures A, plans, runs, keeps L and reads it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.checkpoint import Progress
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.options import FactorOptions
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import Escalation, EscalationState
from ooc_chol.precision.norms import MatrixNorms, Probes
from ooc_chol.precision.tile_formats import PrecisionMap, choose_formats
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid

#: How many times the norms of tiles may grow until the formats of a matrix before, once they had to be widened, are so again.
_ROOM = 2.0


class AbstractMixedPlan(Protocol):
    """Interface of a plan to escalation, for whatever machines it is."""

    @property
    def grid(self) -> TileGrid:
        """How A is cut into tiles."""

    @property
    def precision(self) -> PrecisionMap | None:
        """Formats of the tiles; None where all is FP64."""

    @property
    def given(self) -> frozenset[tuple[int, int]]:
        """Tiles of L that are there before the run."""

    @property
    def moduli(self) -> int | None:
        """Moduli of products through residues; None for the devices' own arithmetic."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Tile columns that are computed together, and where a pivot fails twice, again."""


PlanT = TypeVar("PlanT", bound=AbstractMixedPlan)


@dataclass
class MixedResult(Generic[PlanT]):
    """How a factor came about that is in its ground's store, not completed yet."""

    plan: PlanT
    execution: Execution  #: The last run, with the seconds of all runs and norms of all tiles
    bound: CertifiedBound | None = None  #: Of the factor in the store, once it is complete
    certificate_seconds: float = 0.0  #: Seconds that its bounds took beside the runs
    escalations: list[Escalation] = field(default_factory=list)
    resumed: int = 0  #: Tiles of a checkpoint that the call went on from
    key: dict[str, str | int] | None = None  #: The arithmetic key, where that is not to be taken from the plan of what was left
    is_finished: bool = False  #: Whether all was there already


class AbstractGround(ABC, Generic[PlanT]):
    """The machines of one call, A on them, and the store of its L."""

    #: Those of the call, with what its checkpoint pins.
    options: FactorOptions
    #: The plan of a matrix like this one, whose formats are kept where they are wide enough.
    like: AbstractMixedPlan | None = None

    @abstractmethod
    def engine(self) -> tuple[TileGrid, FactorOptions]:
        """The tiles of the factorization, and :attr:`options` with its engine and tile order."""

    @abstractmethod
    def norms(self, grid: TileGrid, *, probes: Probes | None) -> MatrixNorms:
        """The norms of A's tiles, what a sample tells of L, and A's products with ``probes``."""

    def prefers_fp64(self, options: FactorOptions, precision: PrecisionMap, bound: CertifiedBound) -> bool:
        """Tell that FP64, within ``bound``, is predicted to take no longer than this map; never where nothing is."""
        return False

    @abstractmethod
    def gone_on(
        self, options: FactorOptions, norms: MatrixNorms, within: float
    ) -> tuple[EscalationState, MixedResult[PlanT]] | None:
        """Where the checkpoint of the call leaves off, its tiles in the store; None where all is to be computed."""

    @abstractmethod
    def plan(self, options: FactorOptions, precision: PrecisionMap) -> PlanT:
        """The plan for a map of formats, on the engine that ``options`` name already."""

    @abstractmethod
    def fp64_plan(self, options: FactorOptions) -> PlanT:
        """The plan in FP64 on the same tiles: through residues if they ran so far and fit, which need more moduli now."""

    @abstractmethod
    def begin(self, plan: PlanT, progress: Progress | None = None) -> None:
        """Make an empty store for the L of ``plan``; ``progress`` is what a checkpoint says where runs came before this one."""

    @abstractmethod
    def rest(
        self,
        before: PlanT,
        options: FactorOptions,
        tiles: list[tuple[int, int]],
        given: frozenset[tuple[int, int]],
        progress: Progress,
    ) -> PlanT:
        """Keep of the store no more than ``given``, widen ``tiles`` there, and plan what is left; a checkpoint says so."""

    @abstractmethod
    def run(
        self, plan: PlanT, salvage: Salvage, vectors: NDArray[np.float64] | None, norms: NDArray[np.float64] | None
    ) -> Execution:
        """Fill the store by ``plan``; where it fails, ``salvage`` says what is final there."""

    @abstractmethod
    def form(self, plan: PlanT, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """``U.T @ L @ L.T @ V`` of a complete L and ``vectors = [U, V]``, by one more reading of it."""

    @abstractmethod
    def discard(self) -> None:
        """Drop the store and what is in it."""


def starts_in_fp64(like: AbstractMixedPlan | None) -> bool:
    """Tell whether nothing but FP64 was good enough for a matrix like the one of a call."""
    return like is not None and like.precision is None


def formats_beside(like: AbstractMixedPlan | None, norms: MatrixNorms, options: FactorOptions, within: float) -> PrecisionMap:
    """Formats whose errors stay ``within``: those of a matrix like this one where they are wide enough, else with room."""
    threshold, rule = options.precision_threshold, options.precision_rule
    assert threshold is not None
    chosen = choose_formats(norms, threshold, rule=rule, within=within)
    if like is None or like.precision is None or like.grid != norms.grid:
        return chosen
    before = like.precision
    kept = chosen.holding(before)
    if (kept.formats, kept.moduli) == (before.formats, before.moduli):
        return kept
    roomy = choose_formats(norms, threshold, rule=rule, within=within / _ROOM)
    return replace(roomy.holding(kept), within=chosen.within, moduli=kept.moduli)


def computed_by(options: FactorOptions, precision: PrecisionMap, *, computes_float32: bool) -> tuple[FactorOptions, PrecisionMap]:
    """Options with tiles and moduli of a map of formats, and the map as machines that may not have float32 compute by it."""
    if options.fp64 == "residue" or not computes_float32:
        precision = precision.without_float32()
    moduli = (options.moduli or precision.moduli) if options.fp64 == "residue" else None
    return replace(options, tile_size=precision.grid.nb, moduli=moduli), precision
