"""Factor in mixed precision: measure A, choose formats, run, certify, and where that is not enough, escalate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.checkpoint import Progress
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.mixed_ground import (
    AbstractGround,
    AbstractMixedPlan,
    MixedResult,
    PlanT,
    formats_beside,
    starts_in_fp64,
)
from ooc_chol.dense.mixed_local import norms_here, plan_here
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import mixed_engine
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.request import Request
from ooc_chol.errors import NonFiniteError, NotPositiveDefiniteError, PrecisionError
from ooc_chol.hardware.registry import resolve_devices
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
from ooc_chol.precision.tile_formats import choose_formats
from ooc_chol.tasks.tiling import TileGrid


def plan_mixed(request: Request) -> Plan:
    """The plan of a factorization in mixed precision on this machine."""
    names, threshold = resolve_devices(request.options.devices), request.options.precision_threshold
    assert threshold is not None
    grid, options = mixed_engine(request.problem, request.options)
    norms = norms_here(request, names, grid, samples=_samples(options), probes=None)
    return plan_here(request, options, choose_formats(norms, threshold, rule=options.precision_rule))


def factor_mixed(ground: AbstractGround[PlanT]) -> MixedResult[PlanT]:
    """Factor in mixed precision, into the store of ``ground``.

    At most :data:`~ooc_chol.precision.escalation.MOST_WORK` factorizations, and as many readings of L beside where the plan has
    no room for random vectors, or where a run keeps tiles of one before.
    """
    asked = ground.options
    assert asked.precision_threshold is not None
    grid, options = ground.engine()
    norms = _norms_and_form(ground, grid, _samples(options))
    if asked.strict and (least := least_bound(norms, PROBES)) > asked.precision_threshold:
        raise PrecisionError(least, asked.precision_threshold)
    of_tiles = replace(norms, probes=None, form=None)  # plans, and with them reports, keep no vectors
    state, result = ground.gone_on(options, of_tiles) or _begun(ground, options, of_tiles)
    while (step := _attempt(ground, result, state, norms)) is not None:
        escalation, tiles, given = step
        result.escalations.append(escalation)
        result.key = None
        progress = Progress.of(result.escalations, state)
        if escalation.remedy in (Remedy.ROW, Remedy.PANEL):
            result.plan = ground.rest(result.plan, options, tiles, given, progress)
            continue
        ground.discard()
        if escalation.remedy is Remedy.FP64:
            result.plan = ground.fp64_plan(replace(options, moduli=asked.moduli))
        else:
            assert escalation.threshold is not None
            result.plan = ground.plan(options, choose_formats(of_tiles, escalation.threshold, rule=options.precision_rule))
        ground.begin(result.plan, progress)
    return result


def _begun(
    ground: AbstractGround[PlanT], options: FactorOptions, norms: MatrixNorms
) -> tuple[EscalationState, MixedResult[PlanT]]:
    """A first plan, and an empty store."""
    if starts_in_fp64(ground.like):
        plan = ground.fp64_plan(replace(options, moduli=ground.options.moduli))
    else:
        plan = ground.plan(options, formats_beside(ground.like, norms, options))
    ground.begin(plan)
    return EscalationState(plan.grid), MixedResult(plan, Execution(0.0, (), (), ()))


def _samples(options: FactorOptions) -> bool:
    """Whether products in FP16 may come into question."""
    return options.fp64 == "residue" and options.half_products is not False


def _norms_and_form(ground: AbstractGround[PlanT], grid: TileGrid, samples: bool) -> MatrixNorms:
    """Norms of A, and its products with probes; with scaled ones by a second pass where ordinary ones would not do."""
    norms = ground.norms(grid, samples=samples, probes=Probes.of(grid.n))
    power = ordinary_power(norms)
    return ground.norms(grid, samples=samples, probes=Probes.of(grid.n, power)) if power else norms


def doubts(result: MixedResult[PlanT], asked: float, diagonal: NDArray[np.float64]) -> Iterator[str]:
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


class _Step(NamedTuple):
    """What comes next: an escalation, the tiles that it widens, and those that it keeps."""

    escalation: Escalation
    tiles: list[tuple[int, int]] = []  # noqa: RUF012 - never changed
    given: frozenset[tuple[int, int]] = frozenset()


def _attempt(
    ground: AbstractGround[PlanT], result: MixedResult[PlanT], state: EscalationState, norms: MatrixNorms
) -> _Step | None:
    """Run the plan once and certify the factor; what comes next, or None when it is good."""
    salvage, before, precision = Salvage(), result.execution, result.plan.precision
    try:
        execution = ground.run(result.plan, salvage, None if norms.probes is None else norms.probes.vectors)
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
    result.bound = _certify(ground, result, norms)
    asked = ground.options.precision_threshold
    assert asked is not None
    if result.is_finished or not ground.options.strict or result.bound.holds(asked):
        return None
    return _after_certificate(result.plan, state, float(result.bound), asked)


def _certify(ground: AbstractGround[PlanT], result: MixedResult[PlanT], norms: MatrixNorms) -> CertifiedBound:
    """The bound of the factor in the store: by what the run's probes saw, or by one more reading of L on the same ground."""
    began, form = time.perf_counter(), result.execution.probed
    if form is None:
        assert norms.probes is not None
        form = ground.form(result.plan, norms.probes.vectors)
    bound = certified_bound(norms, form)
    result.certify_seconds += result.execution.probing_seconds + time.perf_counter() - began
    return bound


def _after_certificate(plan: AbstractMixedPlan, state: EscalationState, bound: float, asked: float) -> _Step:
    """What comes after a factor that is not certified to be within the threshold."""
    if plan.precision is None or (plan.moduli is None and plan.precision.is_fp64):
        raise PrecisionError(bound, asked)
    remedy = state.restart() if np.isfinite(bound) else Remedy.FP64
    threshold = threshold_for(plan.precision.threshold, bound, asked) if remedy is Remedy.RESTART else None
    return _Step(Escalation(remedy, column=None, minor=None, threshold=threshold, work=1.0, bound=bound))


def _merged(before: Execution, norms: NDArray[np.float64] | None, plan: AbstractMixedPlan) -> NDArray[np.float64] | None:
    """Norms of this run's tiles, and of those that were given from the runs before."""
    if norms is None or before.norms is None or not plan.given:
        return norms
    merged = norms.copy()
    given = [plan.grid.packed(*index) for index in plan.given]
    merged[given] = before.norms[given]
    return merged


def _after_pivot(plan: AbstractMixedPlan, state: EscalationState, error: NotPositiveDefiniteError, salvage: Salvage) -> _Step:
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
