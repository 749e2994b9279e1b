"""Factor in mixed precision: measure A, choose formats, run, and where a pivot fails, escalate instead of giving up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import FactorOptions
from ooc_chol.errors import BudgetError, NotPositiveDefiniteError
from ooc_chol.machine import kind_of, resolve_devices
from ooc_chol.memory.store_base import AbstractStore
from ooc_chol.planner import Problem, RatesAt, make_plan, mixed_engine
from ooc_chol.planning.escalation import RESTART_FACTOR, Escalation, EscalationState, Remedy, panel_tiles, row_tiles
from ooc_chol.planning.norms import MatrixNorms
from ooc_chol.planning.plan import Plan
from ooc_chol.planning.precision import PrecisionMap, choose_formats
from ooc_chol.runtime.executor import Execution, Salvage
from ooc_chol.tiling import TileGrid

#: ``measure(grid, samples)``: the norms of A, and with ``samples`` what L's are expected to be.
Measure: TypeAlias = Callable[[TileGrid, bool], MatrixNorms]


class MixedRequest(NamedTuple):
    """What a mixed-precision factorization is made of.

    ``measure`` gives the norms of A in a grid's tiles and, if told so, those that L's are expected to have; ``make_store`` an
    empty store for a plan's L, which its maker discards when anything fails; ``run`` executes a plan into a store and fills its
    last argument when it fails.
    """

    problem: Problem
    options: FactorOptions
    rates_at: RatesAt
    measure: Measure
    make_store: Callable[[Plan], AbstractStore]
    run: Callable[[Plan, AbstractStore, Salvage], Execution]


@dataclass
class MixedResult:
    """A factor in its store, and how it came about.

    Parameters
    ----------
    plan : Plan
        The last plan.
    execution : Execution
        The last run, with the seconds of all runs and norms of all tiles.
    store : AbstractStore
        Holds L, not completed yet.
    escalations : list of Escalation
        What failed before.
    """

    plan: Plan
    execution: Execution
    store: AbstractStore
    escalations: list[Escalation] = field(default_factory=list)


def plan_mixed(problem: Problem, options: FactorOptions, rates_at: RatesAt, measure: Measure) -> Plan:
    """The plan of a factorization in mixed precision.

    Parameters
    ----------
    problem : Problem
        The matrix.
    options : FactorOptions
        What the user asked; ``precision_threshold`` is not None.
    rates_at : callable
        Measured rates for a grid, or None.
    measure : callable
        Norms of A in the tiles of a grid.

    Returns
    -------
    Plan
        With its map of formats.
    """
    threshold = options.precision_threshold
    assert threshold is not None
    grid, options = mixed_engine(problem, options)
    precision = choose_formats(measure(grid, _samples(options)), threshold, rule=options.precision_rule)
    return _plan_of(problem, options, rates_at, precision)


def _samples(options: FactorOptions) -> bool:
    """Whether products in FP16 may come into question."""
    return options.fp64 == "residue" and options.half_products is not False


def _plan_of(problem: Problem, options: FactorOptions, rates_at: RatesAt, precision: PrecisionMap) -> Plan:
    """The plan for a map of formats, on the engine that ``options`` name already."""
    if kind_of(resolve_devices(options.devices, must_exist=False)[0]).name != "host" or options.fp64 == "residue":
        precision = precision.without_float32()
    moduli = options.moduli or precision.moduli
    options = replace(options, tile_size=precision.grid.nb, moduli=moduli if options.fp64 == "residue" else None)
    return make_plan(replace(problem, precision=precision), options, rates_at)


def factor_mixed(request: MixedRequest) -> MixedResult:
    """Factor in mixed precision.

    Parameters
    ----------
    request : MixedRequest
        What to factor and how.

    Returns
    -------
    MixedResult
        The factor, in the narrowest formats in which A is positive definite, or in FP64.

    Raises
    ------
    NotPositiveDefiniteError
        A is not positive definite in FP64.

    Notes
    -----
    At most :data:`~ooc_chol.planning.escalation.MOST_WORK` factorizations.
    """
    problem, options, rates_at, *_ = request
    threshold = options.precision_threshold
    assert threshold is not None
    grid, options = mixed_engine(problem, options)
    norms = request.measure(grid, _samples(options))
    precision = choose_formats(norms, threshold, rule=options.precision_rule)
    plan = _plan_of(problem, options, rates_at, precision)
    state = EscalationState(grid)
    result = MixedResult(plan, Execution(0.0, (), (), ()), request.make_store(plan))
    while (failed := _attempt(request, result)) is not None:
        escalation, tiles, given = _escalate(result.plan, state, *failed)
        result.escalations.append(escalation)
        if escalation.remedy in (Remedy.ROW, Remedy.PANEL):
            assert result.plan.precision is not None
            result.store.widen(tiles)
            resumed = replace(problem, given=given)
            result.plan = _plan_of(resumed, options, rates_at, result.plan.precision.widened(tiles))
            continue
        result.store.discard()
        if escalation.remedy is Remedy.FP64:
            result.plan = _fp64_plan(problem, replace(options, moduli=request.options.moduli), rates_at)
        else:
            assert escalation.threshold is not None
            precision = choose_formats(norms, escalation.threshold, rule=options.precision_rule)
            result.plan = _plan_of(problem, options, rates_at, precision)
        result.store = request.make_store(result.plan)
    return result


def _fp64_plan(problem: Problem, options: FactorOptions, rates_at: RatesAt) -> Plan:
    """The plan in FP64 on the same tiles: through residues if they ran so far and fit, which need more moduli now."""
    try:
        return make_plan(problem, options, rates_at)
    except BudgetError:
        return make_plan(problem, replace(options, fp64="native", moduli=None), rates_at)


def _attempt(request: MixedRequest, result: MixedResult) -> tuple[NotPositiveDefiniteError, Salvage] | None:
    """Run the plan once; a failed pivot and what is left of the run, or None when the factor is complete."""
    salvage, before = Salvage(), result.execution
    try:
        execution = request.run(result.plan, result.store, salvage)
    except NotPositiveDefiniteError as error:
        if result.plan.precision is None:
            raise  # FP64 says so, too
        norms = _merged(before, salvage.norms, result.plan)
        result.execution = replace(before, seconds=before.seconds + salvage.seconds, norms=norms)
        return error, salvage
    norms = _merged(before, execution.norms, result.plan)
    result.execution = replace(execution, seconds=before.seconds + execution.seconds, norms=norms)
    return None


def _merged(before: Execution, norms: NDArray[np.float64] | None, plan: Plan) -> NDArray[np.float64] | None:
    """Norms of this run's tiles, and of those that were given from the runs before."""
    if norms is None or before.norms is None or not plan.given:
        return norms
    merged = norms.copy()
    given = [plan.grid.packed(*index) for index in plan.given]
    merged[given] = before.norms[given]
    return merged


def _escalate(
    plan: Plan, state: EscalationState, error: NotPositiveDefiniteError, salvage: Salvage
) -> tuple[Escalation, list[tuple[int, int]], frozenset[tuple[int, int]]]:
    """What comes next, the tiles that it widens, and those that it keeps."""
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
    return Escalation(remedy, column, error.minor, threshold, work), tiles, given
