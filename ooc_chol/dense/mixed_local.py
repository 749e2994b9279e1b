"""Mixed precision on this machine's devices, L in host memory or in a file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.progress import progress_reporter
from ooc_chol.dense.checkpoint import CheckpointRecord, Progress
from ooc_chol.dense.execution.executor import Execution, Salvage, opened_for_a_pass, run
from ooc_chol.dense.factor.products import gram_of_transpose
from ooc_chol.dense.matrix_norms import measure_matrix, stacked_tiles
from ooc_chol.dense.mixed_ground import AbstractGround, MixedResult, computed_by, formats_beside, starts_in_fp64
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import make_plan, mixed_engine, rest_of_residue_plan
from ooc_chol.dense.planner.candidate import Candidate
from ooc_chol.dense.planner.candidates import fp64_seconds, mixed_seconds, pass_seconds
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import budget_of
from ooc_chol.dense.probing import form_of_factor
from ooc_chol.dense.request import Request
from ooc_chol.dense.resuming import resumed, save_record
from ooc_chol.dense.store_opening import own_store
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.errors import BudgetError
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources.base import unchanged
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.escalation import EscalationState, Remedy
from ooc_chol.precision.norms import MatrixNorms, Probes
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.tiling import TileGrid


@final
class LocalGround(AbstractGround[Plan]):
    """The devices of this machine; ``owned`` discards the stores unless it is emptied first."""

    store: AbstractStore

    def __init__(self, request: Request, prices: LocalPrices, owned: ExitStack) -> None:
        self._request, self._prices, self._owned = request, prices, owned
        self._found = resumed(request, owned)
        self.options = request.options if self._found is None else self._found.options
        self.like = request.like

    def engine(self) -> tuple[TileGrid, FactorOptions]:
        return mixed_engine(self._request.problem, self.options, self._request.machine)

    def norms(self, grid: TileGrid, *, probes: Probes | None) -> MatrixNorms:
        """One pass over A."""
        return norms_here(self._request, grid, probes=probes)

    def prefers_fp64(self, options: FactorOptions, precision: PrecisionMap, bound: CertifiedBound) -> bool:
        """By the rates of the devices; what is asked for by name is done."""
        return self._prices.prefers_fp64(options, precision, bound)

    def gone_on(
        self, options: FactorOptions, norms: MatrixNorms, within: float
    ) -> tuple[EscalationState, MixedResult[Plan]] | None:
        """The plan for what the file that was found leaves, and what was computed again before."""
        if (found := self._found) is None:
            return None
        escalations = found.record.progress.escalations
        at_once = frozenset[tuple[int, int]]() if found.record.narrow else found.good
        if starts_in_fp64(self.like) or any(step.remedy is Remedy.FP64 for step in escalations):
            plan = self._fp64(replace(options, moduli=self.options.moduli), found.good)
        else:
            precision = formats_beside(self.like, norms, options, within)
            plan = plan_here(self._request, options, precision.widened(found.store.layout.widened), at_once)
        found.check_key(plan)
        if plan.precision is not None and found.record.narrow:
            problem = replace(self._request.problem, precision=plan.precision, given=found.good)
            plan = rest_of_residue_plan(plan, problem, options, self._request.rates_at)
        measured = None if plan.precision is None else found.norms(plan.precision)
        result = MixedResult(
            plan,
            Execution(0.0, (), (), (), norms=measured),
            escalations=list(escalations),
            resumed=len(found.good),
            key=found.key,
            is_finished=found.is_complete,
        )
        self.store = found.store_for(plan, self._request, self._owned)
        return found.record.progress.state(plan.grid), result

    def plan(self, options: FactorOptions, precision: PrecisionMap) -> Plan:
        return plan_here(self._request, options, precision)

    def fp64_plan(self, options: FactorOptions) -> Plan:
        return self._fp64(options, frozenset())

    def begin(self, plan: Plan, progress: Progress | None = None) -> None:
        """Make an empty store, in memory or a file."""
        record = None if progress is None else self._record(plan, progress)
        self.store = own_store(self._request, plan, self._owned, record)

    def rest(
        self,
        before: Plan,
        options: FactorOptions,
        tiles: list[tuple[int, int]],
        given: frozenset[tuple[int, int]],
        progress: Progress,
    ) -> Plan:
        assert before.precision is not None
        # Whatever ends the run between two of these: the next one meets the pivot again, or goes on behind it.
        self.store.forget([index for index in before.grid.tiles() if index not in given])
        self.store.widen(tiles)
        # What is widened lies behind the end of the file alone from now on.
        kept = before.host_tiles - set(tiles) if before.in_file else None
        plan = plan_here(self._request, options, before.precision.widened(tiles), given, kept, keeps=bool(before.kept_bytes))
        save_record(self.store, plan, self._record(plan, progress))
        return plan

    def run(
        self, plan: Plan, salvage: Salvage, vectors: NDArray[np.float64] | None, norms: NDArray[np.float64] | None
    ) -> Execution:
        """Execute the plan on its devices."""
        with progress_reporter(self._request.progress) as reporter:
            return run(plan, self._request.source, self.store, report=reporter, salvage=salvage, probes=vectors, norms=norms)

    def form(self, plan: Plan, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """One pass over L on the plan's devices."""
        with (
            self._request.passes.running("certificate", vectors.shape[1]) as one,
            opened_for_a_pass(plan.devices, plan.grid) as devices,
        ):
            return form_of_factor(gram_of_transpose(self.store, devices, vectors, one))

    def discard(self) -> None:
        self.store.discard()

    def _record(self, plan: Plan, progress: Progress) -> CheckpointRecord | None:
        """Record of a checkpoint from this run on."""
        if not self._request.checkpoint:
            return None
        return CheckpointRecord.of(plan, self.options, self._request.fingerprint, progress)

    def _fp64(self, options: FactorOptions, given: frozenset[tuple[int, int]]) -> Plan:
        problem = replace(self._request.problem, given=given)
        try:
            return make_plan(problem, options, self._request.rates_at, self._request.machine)
        except BudgetError:
            return make_plan(problem, replace(options, fp64="native", moduli=None), self._request.rates_at, self._request.machine)


@final
class LocalPrices:
    """Predicted seconds of each way to factor on this machine."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @cached_property
    def fp64(self) -> float | None:
        """Predicted seconds in FP64; None where no rates are known."""
        return fp64_seconds(self._request.problem, self._request.options, self._request.rates_at, self._request.machine)

    def mixed(self, options: FactorOptions, precision: PrecisionMap | None) -> float | None:
        """Predicted seconds of a map, or of tiles in FP64 with the moduli of ``options``; None where no rates are known."""
        problem = self._request.problem_of(precision)
        return mixed_seconds(problem, options, partial(self._request.rates_of, problem), self._request.machine)

    def pass_over(self, grid: TileGrid) -> float:
        """Predicted seconds of measuring A."""
        return pass_seconds(self._request.problem, grid, self._request.rates_at, self._request.machine)

    def prefers_fp64(self, options: FactorOptions, precision: PrecisionMap, bound: CertifiedBound) -> bool:
        """Tell that FP64 is within the threshold and takes no longer, by rates; what is asked for by name is done."""
        asked = self._request.options
        assert asked.precision_threshold is not None
        if not self._request.leaves_precision_open or not bound.holds(asked.precision_threshold) or self.fp64 is None:
            return False
        options, precision = computed_here(options, precision, self._request.machine)
        seconds = self.mixed(options, precision)
        return seconds is not None and seconds >= self.fp64

    def candidates(self, options: FactorOptions, precision: PrecisionMap, bound: CertifiedBound) -> tuple[Candidate, ...]:
        """FP64, within ``bound``, and the map."""
        options, precision = computed_here(options, precision, self._request.machine)
        fp64 = Candidate.in_fp64(precision.grid, self.fp64 or None, float(bound))  # of one tile no seconds are predicted
        return fp64, Candidate.of(precision, options.moduli, self.mixed(options, precision))


def norms_here(request: Request, grid: TileGrid, *, probes: Probes | None) -> MatrixNorms:
    """The norms of A's tiles, what a sample tells of L, and A's products with ``probes``."""
    tier = SourceTier(request.source, grid)
    machine = request.machine
    stacked = 1 if machine.kind.is_in_host_memory else stacked_tiles(grid, budget_of(request.options, machine.names))
    columns = 0 if probes is None else probes.vectors.shape[1]
    with (
        request.passes.running("norms of A", columns) as one,
        unchanged(request.source),
        opened_for_a_pass(machine.names, grid) as devices,
    ):
        return measure_matrix(grid, devices, tier, probes=probes, run=one, stacked=stacked)


def computed_here(options: FactorOptions, precision: PrecisionMap, machine: Machine) -> tuple[FactorOptions, PrecisionMap]:
    """Options and map as the devices compute by them."""
    kind = kind_of(machine.names[0])
    return computed_by(options, precision, computes_float32=kind.computes_float32)


def plan_here(
    request: Request,
    options: FactorOptions,
    precision: PrecisionMap,
    given: frozenset[tuple[int, int]] = frozenset(),
    host_tiles: frozenset[tuple[int, int]] | None = None,
    *,
    keeps: bool | None = None,
) -> Plan:
    """The plan for a map of formats, on the engine that ``options`` name already.

    ``host_tiles`` are kept from an earlier run, on whose GPUs L stays where it ``keeps`` it there.
    """
    options, precision = computed_here(options, precision, request.machine)
    problem = replace(request.problem_of(precision, keeps=keeps), given=given, host_tiles=host_tiles)
    return make_plan(problem, options, partial(request.rates_of, problem), request.machine)
