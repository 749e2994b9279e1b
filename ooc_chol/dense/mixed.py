"""Factor in mixed precision: measure A, choose formats, run, certify, and where that is not enough, escalate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.checkpoint import CheckpointRecord, Progress
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.execution.run import opened_for_a_pass, run
from ooc_chol.dense.factor.products import gram_of_transpose
from ooc_chol.dense.matrix_norms import measure_matrix
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import make_plan, mixed_engine, rest_of_residue_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.probing import form_of_factor
from ooc_chol.dense.request import Request
from ooc_chol.dense.resuming import Resumption, resumed, save_record
from ooc_chol.dense.store_opening import own_store
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.errors import BudgetError, NonFiniteError, NotPositiveDefiniteError, PrecisionError
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources.base import unchanged
from ooc_chol.precision.accounting import doubtful_pivot
from ooc_chol.precision.certified import CertifiedBound, certified_bound, least_bound, ordinary_power
from ooc_chol.precision.escalation import (
    RESTART_FACTOR,
    Escalation,
    EscalationState,
    Remedy,
    panel_tiles,
    row_tiles,
    threshold_for,
)
from ooc_chol.precision.norms import PROBES, MatrixNorms, Probes
from ooc_chol.precision.tile_formats import PrecisionMap, choose_formats
from ooc_chol.progress_bar import progress_reporter
from ooc_chol.tasks.tiling import TileGrid

#: How many times the norms of tiles may grow until the formats of a matrix before, once they had to be widened, are so again.
_ROOM = 2.0


@dataclass
class MixedResult:
    """A factor in its store, and how it came about."""

    plan: Plan
    execution: Execution  #: The last run, with the seconds of all runs and norms of all tiles
    store: AbstractStore  #: Holds L, not completed yet
    bound: CertifiedBound | None = None  #: Of the factor in the store, once it is complete
    certify_seconds: float = 0.0  #: Seconds that its bounds took beside the runs
    escalations: list[Escalation] = field(default_factory=list)
    resumed_tiles: int = 0  #: Tiles of a checkpoint that the call went on from
    key: dict[str, str | int] | None = None  #: The arithmetic key, where that is not to be taken from the plan of what was left
    is_finished: bool = False  #: Whether all was there already


def plan_mixed(request: Request) -> Plan:
    """The plan of a factorization in mixed precision."""
    names, threshold = resolve_devices(request.options.devices), request.options.precision_threshold
    assert threshold is not None
    grid, options = mixed_engine(request.problem, request.options)
    norms = _norms(request, names, grid, samples=_samples(options), probes=None)
    return _plan_of(request, options, choose_formats(norms, threshold, rule=options.precision_rule))


def factor_mixed(request: Request, owned: ExitStack) -> MixedResult:
    """Factor in mixed precision; ``owned`` discards the stores unless it is emptied first.

    At most :data:`~ooc_chol.precision.escalation.MOST_WORK` factorizations, and as many readings of L beside where the plan has
    no room for random vectors, or where a run keeps tiles of one before.
    """
    found = resumed(request, owned)
    names, threshold = resolve_devices(request.options.devices), request.options.precision_threshold
    assert threshold is not None
    asked = request.options if found is None else found.options
    grid, options = mixed_engine(request.problem, asked)
    norms = _norms_and_form(request, names, grid, _samples(options))
    if request.options.strict and (least := least_bound(norms, PROBES)) > threshold:
        raise PrecisionError(least, threshold)
    of_tiles = replace(norms, probes=None, form=None)  # plans, and with them reports, keep no vectors
    if found is None:
        state = EscalationState(grid)
        plan = _plan_of(request, options, _formats(request, of_tiles, threshold, options))
        result = MixedResult(plan, Execution(0.0, (), (), ()), own_store(request, plan, owned))
    else:
        state, result = found.record.progress.state(grid), _gone_on_with(found, request, options, of_tiles)
        result.store = found.store_for(result.plan, request, owned)

    def record(plan: Plan) -> CheckpointRecord | None:
        """What a checkpoint says from now on."""
        progress = Progress.of(result.escalations, state)
        return CheckpointRecord.of(plan, asked, request.fingerprint, progress) if request.checkpoint else None

    while (step := _attempt(request, result, state, norms)) is not None:
        escalation, tiles, given = step
        result.escalations.append(escalation)
        result.key = None
        if escalation.remedy in (Remedy.ROW, Remedy.PANEL):
            assert result.plan.precision is not None
            # Whatever ends the run between two of these: the next one meets the pivot again, or goes on behind it.
            result.store.forget([index for index in grid.tiles() if index not in given])
            result.store.widen(tiles)
            # What is widened lies behind the end of the file alone from now on.
            kept = result.plan.host_tiles - set(tiles) if result.plan.in_file else None
            result.plan = _plan_of(request, options, result.plan.precision.widened(tiles), given, kept)
            save_record(result.store, result.plan, record(result.plan))
            continue
        result.store.discard()
        if escalation.remedy is Remedy.FP64:
            result.plan = _fp64_plan(request, replace(options, moduli=asked.moduli))
        else:
            assert escalation.threshold is not None
            precision = choose_formats(of_tiles, escalation.threshold, rule=options.precision_rule)
            result.plan = _plan_of(request, options, precision)
        result.store = own_store(request, result.plan, owned, record(result.plan))
    return result


def _formats(request: Request, norms: MatrixNorms, threshold: float, options: FactorOptions) -> PrecisionMap:
    """Formats for these norms: those of a matrix like this one where they are wide enough, else with room for the next."""
    chosen, like = choose_formats(norms, threshold, rule=options.precision_rule), request.like
    if like is None or like.grid != chosen.grid:
        return chosen
    kept = chosen.holding(like)
    if (kept.formats, kept.moduli) == (like.formats, like.moduli):
        return kept
    roomy = choose_formats(norms, threshold / _ROOM, rule=options.precision_rule)
    return replace(roomy.holding(kept), threshold=threshold, moduli=kept.moduli)


def _gone_on_with(found: Resumption, request: Request, options: FactorOptions, norms: MatrixNorms) -> MixedResult:
    """The state of the call whose checkpoint was found: its plan for what is left, and what was computed again before."""
    escalations = found.record.progress.escalations
    last = next((step for step in reversed(escalations) if step.remedy in (Remedy.RESTART, Remedy.FP64)), None)
    at_once = frozenset[tuple[int, int]]() if found.record.narrow else found.good
    if last is not None and last.remedy is Remedy.FP64:
        plan = _fp64_plan(request, replace(options, moduli=found.options.moduli), found.good)
    else:
        threshold = request.options.precision_threshold if last is None else last.threshold
        assert threshold is not None
        precision = choose_formats(norms, threshold, rule=options.precision_rule).widened(found.store.layout.widened)
        plan = _plan_of(request, options, precision, at_once)
    found.check_key(plan)
    if plan.precision is not None and found.record.narrow:
        problem = replace(request.problem, precision=plan.precision, given=found.good)
        plan = rest_of_residue_plan(plan, problem, options, request.rates_at)
    measured = None if plan.precision is None else found.norms(plan.precision)
    return MixedResult(
        plan,
        Execution(0.0, (), (), (), norms=measured),
        found.store,
        escalations=list(escalations),
        resumed_tiles=len(found.good),
        key=found.key,
        is_finished=found.is_complete,
    )


def _samples(options: FactorOptions) -> bool:
    """Whether products in FP16 may come into question."""
    return options.fp64 == "residue" and options.half_products is not False


def _norms_and_form(request: Request, names: Sequence[str], grid: TileGrid, samples: bool) -> MatrixNorms:
    """Norms of A, and its products with probes; with scaled ones by a second pass where ordinary ones would not do."""
    norms = _norms(request, names, grid, samples=samples, probes=Probes.of(grid.n))
    power = ordinary_power(norms)
    return _norms(request, names, grid, samples=samples, probes=Probes.of(grid.n, power)) if power else norms


def _norms(request: Request, names: Sequence[str], grid: TileGrid, *, samples: bool, probes: Probes | None) -> MatrixNorms:
    """The norms of A's tiles, with ``samples`` what L's are expected to be, and A's products with ``probes``."""
    tier = SourceTier(request.source, grid)
    columns = 0 if probes is None else probes.vectors.shape[1]
    with (
        request.passes.running("norms of A", columns) as one,
        unchanged(request.source),
        opened_for_a_pass(names, grid) as devices,
    ):
        return measure_matrix(grid, devices, tier, samples=samples, probes=probes, run=one)


def _plan_of(
    request: Request,
    options: FactorOptions,
    precision: PrecisionMap,
    given: frozenset[tuple[int, int]] = frozenset(),
    host_tiles: frozenset[tuple[int, int]] | None = None,
) -> Plan:
    """The plan for a map of formats, on the engine that ``options`` name already; ``host_tiles`` are kept from an earlier run."""
    if options.fp64 == "residue" or not kind_of(resolve_devices(options.devices, must_exist=False)[0]).computes_float32:
        precision = precision.without_float32()
    moduli = options.moduli or precision.moduli
    options = replace(options, tile_size=precision.grid.nb, moduli=moduli if options.fp64 == "residue" else None)
    problem = replace(request.problem, precision=precision, given=given, host_tiles=host_tiles)
    return make_plan(problem, options, request.rates_at)


def doubts(result: MixedResult, asked: float, diagonal: NDArray[np.float64]) -> Iterator[str]:
    """What the user of a factor must be warned of."""
    if result.bound is not None and not result.bound.holds(asked):
        yield f"the error is only certified to be at most {result.bound}, more than precision_threshold = {asked:g}"
    plan, norms = result.plan, result.execution.norms
    if plan.precision is None or norms is None:
        return
    if (doubtful := doubtful_pivot(plan.precision, norms, plan.moduli, diagonal)) is not None:
        row, pivot, noise = doubtful
        yield (
            f"the pivot of row {row} is {pivot:.2g}, and rounding in narrow formats changes it by up to {noise:.2g}: A may be "
            "singular, or its smallest eigenvalues lost; take a smaller precision_threshold, none, or a larger nugget"
        )


def _fp64_plan(request: Request, options: FactorOptions, given: frozenset[tuple[int, int]] = frozenset()) -> Plan:
    """The plan in FP64 on the same tiles: through residues if they ran so far and fit, which need more moduli now."""
    problem = replace(request.problem, given=given)
    try:
        return make_plan(problem, options, request.rates_at)
    except BudgetError:
        return make_plan(problem, replace(options, fp64="native", moduli=None), request.rates_at)


class _Step(NamedTuple):
    """What comes next: an escalation, the tiles that it widens, and those that it keeps."""

    escalation: Escalation
    tiles: list[tuple[int, int]] = []  # noqa: RUF012 - never changed
    given: frozenset[tuple[int, int]] = frozenset()


def _attempt(request: Request, result: MixedResult, state: EscalationState, norms: MatrixNorms) -> _Step | None:
    """Run the plan once and certify the factor; what comes next, or None when it is good."""
    salvage, before, precision = Salvage(), result.execution, result.plan.precision
    try:
        with progress_reporter(request.progress) as reporter:
            vectors = None if norms.probes is None else norms.probes.vectors
            execution = run(result.plan, request.source, result.store, report=reporter, salvage=salvage, probes=vectors)
    except NotPositiveDefiniteError as error:
        if precision is None:
            raise  # FP64 says so, too
        merged = _merged(before, salvage.norms, result.plan)
        result.execution = replace(before, seconds=before.seconds + salvage.seconds, norms=merged)
        return _after_pivot(result.plan, state, error, salvage)
    except NonFiniteError as error:
        if precision is None or error.tile is None or not np.isfinite(norms.tiles[precision.grid.packed(*error.tile)]):
            raise  # it is A's own entry, or FP64 says so, too
        result.execution = replace(before, seconds=before.seconds + salvage.seconds)
        return _Step(Escalation(Remedy.FP64, column=None, minor=None, threshold=None, work=1.0))
    merged = _merged(before, execution.norms, result.plan)
    result.execution = replace(execution, seconds=before.seconds + execution.seconds, norms=merged)
    result.bound = _certify(request, result, norms)
    asked = request.options.precision_threshold
    assert asked is not None
    if result.is_finished or not request.options.strict or result.bound.holds(asked):
        return None
    return _after_certificate(result.plan, state, float(result.bound), asked)


def _certify(request: Request, result: MixedResult, norms: MatrixNorms) -> CertifiedBound:
    """The bound of the factor in the store: by what the run's probes saw, or by one more reading of L on the plan's devices."""
    began, plan, form = time.perf_counter(), result.plan, result.execution.probed
    if form is None:
        assert norms.probes is not None
        vectors = norms.probes.vectors
        with (
            request.passes.running("certificate", vectors.shape[1]) as one,
            opened_for_a_pass(plan.devices, plan.grid) as devices,
        ):
            form = form_of_factor(gram_of_transpose(result.store, devices, vectors, one))
    bound = certified_bound(norms, form)
    result.certify_seconds += result.execution.probing_seconds + time.perf_counter() - began
    return bound


def _after_certificate(plan: Plan, state: EscalationState, bound: float, asked: float) -> _Step:
    """What comes after a factor that is not certified to be within the threshold."""
    if plan.precision is None or (plan.moduli is None and plan.precision.is_fp64):
        raise PrecisionError(bound, asked)
    remedy = state.restart() if np.isfinite(bound) else Remedy.FP64
    threshold = threshold_for(plan.precision.threshold, bound, asked) if remedy is Remedy.RESTART else None
    return _Step(Escalation(remedy, column=None, minor=None, threshold=threshold, work=1.0, bound=bound))


def _merged(before: Execution, norms: NDArray[np.float64] | None, plan: Plan) -> NDArray[np.float64] | None:
    """Norms of this run's tiles, and of those that were given from the runs before."""
    if norms is None or before.norms is None or not plan.given:
        return norms
    merged = norms.copy()
    given = [plan.grid.packed(*index) for index in plan.given]
    merged[given] = before.norms[given]
    return merged


def _after_pivot(plan: Plan, state: EscalationState, error: NotPositiveDefiniteError, salvage: Salvage) -> _Step:
    """What comes after a pivot that failed."""
    assert plan.precision is not None
    grid, column = plan.grid, error.tile[0]
    panel = next(panel for panel in plan.panels if panel.k0 <= column < panel.k0 + panel.width)
    # What was computed from the failed column on is void, complete or not.
    start = next((j for j in range(column) if any((i, j) not in salvage.finished for i in range(j, grid.nt))), column)
    # The work is charged as if all before the panel were complete, whatever a run's threads had come to: then a call's remedies,
    # and with them its factor, do not depend on that.
    remedy, work = state.next(column, panel.k0, panel)
    threshold: float | None = plan.precision.threshold
    tiles: list[tuple[int, int]] = []
    if remedy is Remedy.ROW:
        tiles = row_tiles([column])
    elif remedy is Remedy.PANEL:
        tiles, start = panel_tiles(grid, panel), min(start, panel.k0)
    else:
        threshold = None if remedy is Remedy.FP64 else RESTART_FACTOR * plan.precision.threshold
    widened = set(tiles)
    given = frozenset((i, j) for j in range(start) for i in range(j, grid.nt) if (i, j) not in widened)
    return _Step(Escalation(remedy, column=column, minor=error.minor, threshold=threshold, work=work), tiles, given)
