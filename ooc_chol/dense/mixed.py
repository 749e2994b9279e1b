"""Factor in mixed precision: measure A, choose formats, run, certify, and where that is not enough, go to FP64."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.checkpoint import Progress
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.mixed_ground import AbstractGround, AbstractMixedPlan, MixedResult, PlanT, formats_beside, starts_in_fp64
from ooc_chol.dense.mixed_local import LocalPrices, norms_here, plan_here
from ooc_chol.dense.options import FactorOptions, default_moduli
from ooc_chol.dense.planner import make_plan, mixed_engine
from ooc_chol.dense.planner.candidate import Candidate
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.request import Request
from ooc_chol.errors import BudgetError, NonFiniteError, NotPositiveDefiniteError, PrecisionError
from ooc_chol.formats import FP64
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.precision.accounting import doubtful_pivot, estimated_error
from ooc_chol.precision.certified import (
    MOST_ROUNDING,
    CertifiedBound,
    certified_bound,
    fp64_bound,
    is_certifiable,
    least_bound,
    least_bound_of_order,
    may_be_certifiable,
    ordinary_power,
)
from ooc_chol.precision.escalation import Escalation, EscalationState, Remedy, row_tiles
from ooc_chol.precision.norms import PROBES, MatrixNorms, Probes
from ooc_chol.precision.tile_formats import PrecisionMap, most_moduli_needed
from ooc_chol.tasks.tiling import TileGrid

#: Share of FP64's predicted seconds that mixed precision must stay below to be tried.
WORTHWHILE = 0.97
#: Least norm of A beside which no number of its factorization that matters is subnormal.
_LEAST_MODELLED = 2.0**-600


def fp64_at_once(request: Request, prices: LocalPrices) -> CertifiedBound | None:
    """The bound of FP64 where it is within the threshold and predicted to be as fast as anything; None where A must be measured.

    No more than an entry is read of A: in mixed precision as many moduli are assumed as any matrix of its order needs. A
    checkpoint, and who asks for narrow products, moduli or fewest bytes, goes on in mixed precision.
    """
    options = request.options
    if not request.leaves_precision_open:
        return None
    grid, mixed = mixed_engine(request.problem, options, request.machine)
    threshold = options.precision_threshold
    assert threshold is not None
    bound = _fp64_bound_as_planned(request, grid, mixed, threshold)
    if not bound.holds(threshold) or _is_tiny(request.source):
        return None
    if starts_in_fp64(request.like) or least_bound_of_order(grid, PROBES) > MOST_ROUNDING * threshold:
        return bound
    moduli = most_moduli_needed(grid.n, threshold) if mixed.fp64 == "residue" else None
    seconds, plain = prices.mixed(replace(mixed, moduli=moduli), None), prices.fp64
    if seconds is None or plain is None or seconds + prices.pass_over(grid) < WORTHWHILE * plain:
        return None
    return bound


def _is_tiny(source: AbstractSource) -> bool:
    """Look whether A's first entry leaves its norm open to be tiny; False where nothing of A is looked at beforehand."""
    if source.sampled_by is None or not source.n:
        return False
    first = np.empty((1, 1), np.complex128 if source.dtype.kind == "c" else np.float64)
    source.read_block(range(1), range(1), first)
    return not abs(first.item()) >= _LEAST_MODELLED


def _fp64_bound(grid: TileGrid, options: FactorOptions) -> CertifiedBound:
    """Bound of FP64, by the less accurate of its engines that may run."""
    native = fp64_bound(grid.n, grid.nb, None)
    if options.fp64 != "residue":
        return native
    residue = fp64_bound(grid.n, grid.nb, default_moduli(grid.n, FP64))
    return max(native, residue, key=float)


def _fp64_bound_as_planned(request: Request, grid: TileGrid, mixed: FactorOptions, threshold: float) -> CertifiedBound:
    """Bound of FP64 by any engine; where only residues are within the threshold, that of the engine which FP64's plan names."""
    bound = _fp64_bound(grid, mixed)
    if bound.holds(threshold) or mixed.fp64 != "residue":
        return bound
    if not fp64_bound(grid.n, grid.nb, default_moduli(grid.n, FP64)).holds(threshold):
        return bound
    plain = request.in_fp64()
    try:
        plan = make_plan(plain.problem, plain.options, plain.rates_at, plain.machine)
    except BudgetError:
        return bound
    return fp64_bound(plan.grid.n, plan.grid.nb, plan.moduli)


def plan_mixed(request: Request) -> Plan:
    """The plan of a factorization in mixed precision on this machine."""
    threshold = request.options.precision_threshold
    assert threshold is not None
    prices = LocalPrices(request)
    if (bound := fp64_at_once(request, prices)) is not None:
        return _plan_in_fp64(request, bound)
    grid, options = mixed_engine(request.problem, request.options, request.machine)
    norms = norms_here(request, grid, probes=None)
    precision = formats_beside(None, norms, options, _left_for_errors(norms, threshold))
    bound = _fp64_bound(grid, options)
    if prices.prefers_fp64(options, precision, bound):
        return _plan_in_fp64(request, bound)
    return plan_here(request, options, precision).asked_for(request.threshold_asked, prices.candidates(options, precision, bound))


def _plan_in_fp64(request: Request, bound: CertifiedBound) -> Plan:
    """The plan in FP64 of a call with a threshold."""
    plain = request.in_fp64()
    plan = make_plan(plain.problem, plain.options, plain.rates_at, plain.machine)
    return plan.asked_for(request.threshold_asked, (Candidate.in_fp64(plan.grid, plan.seconds, float(bound)),))


def factor_mixed(ground: AbstractGround[PlanT]) -> MixedResult[PlanT]:
    """Factor in mixed precision, into the store of ``ground``.

    At most :data:`~ooc_chol.precision.escalation.MOST_WORK` factorizations, and as many readings of L beside where the plan has
    no room for random vectors, or where a run keeps tiles of one before.
    """
    asked = ground.options
    assert asked.precision_threshold is not None
    grid, options = ground.engine()
    norms = _norms_and_form(ground, grid, may_be_certifiable(grid, asked.precision_threshold))
    of_tiles = replace(norms, probes=None, form=None)  # plans, and with them reports, keep no vectors
    within = _left_for_errors(norms, asked.precision_threshold)
    state, result = ground.gone_on(options, of_tiles, within) or _begun(ground, options, of_tiles, within)
    while (step := _attempt(ground, result, state, norms)) is not None:
        escalation, tiles, given = step
        result.escalations.append(escalation)
        result.key = None
        progress = Progress.of(result.escalations, state)
        if escalation.remedy is Remedy.ROW:
            result.plan = ground.rest(result.plan, options, tiles, given, progress)
            continue
        ground.discard()
        result.plan = ground.fp64_plan(replace(options, moduli=asked.moduli))
        ground.begin(result.plan, progress)
    return result


def _left_for_errors(norms: MatrixNorms, threshold: float) -> float:
    """Part of a threshold that the certificate's own rounding leaves; all where it takes too much, and FP64's word counts."""
    return threshold - least_bound(norms, PROBES) if is_certifiable(norms, threshold) else threshold


def _begun(
    ground: AbstractGround[PlanT], options: FactorOptions, norms: MatrixNorms, within: float
) -> tuple[EscalationState, MixedResult[PlanT]]:
    """A first plan, and an empty store."""
    threshold = ground.options.precision_threshold
    assert threshold is not None
    precision = None if starts_in_fp64(ground.like) else formats_beside(ground.like, norms, options, within)
    if precision is not None and not is_certifiable(norms, threshold):  # nothing narrow could be certified
        moduli = max(precision.moduli, default_moduli(norms.grid.n, FP64))
        precision = replace(precision.widened(norms.grid.tiles()), moduli=moduli)
    if precision is None or ground.prefers_fp64(options, precision, _fp64_bound(norms.grid, options)):
        plan = ground.fp64_plan(replace(options, moduli=ground.options.moduli))
    else:
        plan = ground.plan(options, precision)
    ground.begin(plan)
    return EscalationState(plan.grid), MixedResult(plan, Execution(0.0, (), (), ()))


def _norms_and_form(ground: AbstractGround[PlanT], grid: TileGrid, with_probes: bool = True) -> MatrixNorms:
    """Norms of A, and its products with probes; with scaled ones by a second pass where ordinary ones would not do."""
    if not with_probes:
        return ground.norms(grid, probes=None)
    norms = ground.norms(grid, probes=Probes.of(grid.n))
    power = ordinary_power(norms)
    return ground.norms(grid, probes=Probes.of(grid.n, power)) if power else norms


def doubts(result: MixedResult[PlanT], asked: float, diagonal: NDArray[np.float64]) -> Iterator[str]:
    """Warnings about a factor for its user."""
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
    """Next step: an escalation, the tiles that it widens, and those that it keeps."""

    escalation: Escalation
    tiles: list[tuple[int, int]] = []  # noqa: RUF012 - never changed
    given: frozenset[tuple[int, int]] = frozenset()


def _attempt(
    ground: AbstractGround[PlanT], result: MixedResult[PlanT], state: EscalationState, norms: MatrixNorms
) -> _Step | None:
    """Run the plan once and certify the factor; what comes next, or None when it is good."""
    salvage, before, precision = Salvage(), result.execution, result.plan.precision
    asked = ground.options.precision_threshold
    assert asked is not None
    try:
        vectors = norms.probes.vectors if norms.probes is not None and is_certifiable(norms, asked) else None
        execution = ground.run(result.plan, salvage, vectors, before.norms)
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
        return _Step(Escalation(Remedy.FP64, column=None, minor=None, work=1.0))
    merged = _merged(before, execution.norms, result.plan)
    result.execution = replace(execution, seconds=before.seconds + execution.seconds, norms=merged)
    result.bound = _bound(ground, result, norms)
    if result.is_finished or not ground.options.strict or result.bound.holds(asked):
        return None
    bound = float(result.bound)
    if precision is None or _is_in_fp64(result.plan, precision):
        raise PrecisionError(bound, asked, norms.total if norms.total < _LEAST_MODELLED else None)
    return _Step(Escalation(Remedy.FP64, column=None, minor=None, work=1.0, bound=bound))


def _bound(ground: AbstractGround[PlanT], result: MixedResult[PlanT], norms: MatrixNorms) -> CertifiedBound:
    """Bound of the factor in the store: by random vectors, or where all is FP64 and that says more, by the model of it."""
    plan, asked = result.plan, ground.options.precision_threshold
    assert asked is not None
    model = inf
    # What was not certified may have another cause than formats, such as memory that does not keep what is written.
    is_modelled = norms.total >= _LEAST_MODELLED and all(step.bound is None for step in result.escalations)
    if is_modelled and plan.precision is None:
        model = float(fp64_bound(plan.grid.n, plan.grid.nb, plan.moduli))
    elif is_modelled and plan.precision is not None and _is_in_fp64(plan, plan.precision) and result.execution.norms is not None:
        model = estimated_error(plan.precision, result.execution.norms, plan.moduli).total
    if model <= asked < least_bound(norms, PROBES) / MOST_ROUNDING or (
        model <= asked and plan.precision is None and result.execution.probed is None
    ):
        return CertifiedBound(nan, model, 0)
    bound = _certify(ground, result, norms)
    # Of a bound that misses the threshold most may be the rounding of products with the vectors.
    is_less = bound.measured <= model < bound.total
    return CertifiedBound(bound.measured, model, 0) if is_less and not bound.holds(asked) else bound


def _is_in_fp64(plan: AbstractMixedPlan, precision: PrecisionMap) -> bool:
    """Look whether nothing is less accurate than FP64."""
    return precision.is_fp64 and (plan.moduli is None or plan.moduli >= default_moduli(plan.grid.n, FP64))


def _certify(ground: AbstractGround[PlanT], result: MixedResult[PlanT], norms: MatrixNorms) -> CertifiedBound:
    """The bound of the factor in the store: by what the run's probes saw, or by one more reading of L on the same ground."""
    began, form = time.perf_counter(), result.execution.probed
    if norms.probes is None:  # they were to say nothing, and are to be looked at all the same
        norms = _norms_and_form(ground, norms.grid)
    if form is None:
        assert norms.probes is not None
        form = ground.form(result.plan, norms.probes.vectors)
    bound = certified_bound(norms, form)
    result.certificate_seconds += result.execution.probing_seconds + time.perf_counter() - began
    return bound


def _merged(before: Execution, norms: NDArray[np.float64] | None, plan: AbstractMixedPlan) -> NDArray[np.float64] | None:
    """Norms of this run's tiles, and of those that were given from the runs before."""
    if norms is None or before.norms is None or not plan.given:
        return norms
    merged = norms.copy()
    given = [plan.grid.packed(*index) for index in plan.given]
    merged[given] = before.norms[given]
    return merged


def _after_pivot(plan: AbstractMixedPlan, state: EscalationState, error: NotPositiveDefiniteError, salvage: Salvage) -> _Step:
    """Next step after a pivot that failed."""
    grid, column = plan.grid, error.tile[0]
    # What was computed from the failed column on is void, complete or not.
    start = next((j for j in range(column) if any((i, j) not in salvage.finished for i in range(j, grid.nt))), column)
    # The work is charged as if all before the panel were complete, whatever a run's threads had come to: then a call's remedies,
    # and with them its factor, do not depend on that.
    panel = next(panel for panel in plan.panels if panel.k0 <= column < panel.k0 + panel.width)
    remedy, work = state.next(column, panel.k0)
    widened = row_tiles([column]) if remedy is Remedy.ROW else []
    given = frozenset((i, j) for j in range(start) for i in range(j, grid.nt) if i != column)
    return _Step(Escalation(remedy, column=column, minor=error.minor, work=work), widened, given)
