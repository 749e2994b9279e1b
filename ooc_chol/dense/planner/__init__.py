"""From options to a plan: engine, tile size, budgets, panel shapes, programs. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ooc_chol.calls.machine import Machine
from ooc_chol.dense.options import FactorOptions, Fp64, default_moduli
from ooc_chol.dense.planner.kept_plans import KEPT_PLANS, KEPT_WINDOW_PLANS, AskedRates, kept_estimate
from ooc_chol.dense.planner.limit import check_window
from ooc_chol.dense.planner.native import NativeRequest, least_native_seconds, make_native_plan, native_plan, native_request
from ooc_chol.dense.planner.native_tiles import choose_tile_size, native_grid, prefetch_slots
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import Problem, RatesAt, budget_of, machine_of, seconds_of, settled
from ooc_chol.dense.planner.residue_tiles import residue_grid
from ooc_chol.dense.planner.residues import make_residue_plan, rest_of_residue_plan
from ooc_chol.dense.planner.slow_plans import say_slow
from ooc_chol.dense.planner.whole import make_whole_plan, whole_device
from ooc_chol.errors import BudgetError, PlanSizeError
from ooc_chol.kernels.registry import kind_of
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.tasks.tiling import TileGrid

__all__ = [
    "KEPT_PLANS",
    "KEPT_WINDOW_PLANS",
    "Problem",
    "RatesAt",
    "choose_tile_size",
    "fresh_plan",
    "make_plan",
    "make_residue_plan",
    "make_whole_plan",
    "mixed_engine",
    "prefetch_slots",
    "rest_of_residue_plan",
    "whole_device",
]

#: Tile rows that a matrix in mixed precision should have: formats are chosen tile by tile.
MIXED_ROWS = 16
#: Seconds of native work below which no plan through residues is made: it would take longer than it could save.
WORTH_PLANNING_TWICE = 0.03
#: Predicted seconds up to which fewer devices are looked at, too, where the call names none: beyond, to open one more is 4 % of
#: the run at most.
COMPARED_SECONDS = 0.5
#: An estimate: seconds that a call takes beside its run for every device: opening it, its memory, and giving both back.
OPENING_SECONDS = 0.02
#: Moduli for which the least memory of products through residues is asked before those that a threshold needs are known.
MIXED_MODULI = 8


def make_plan(problem: Problem, options: FactorOptions, rates_at: RatesAt, machine: Machine | None = None) -> Plan:
    """Plan the factorization of ``problem``, or take the plan that the process made for the same before."""
    machine = machine or machine_of(options)
    check_window(problem, options)
    if (name := whole_device(problem, options, machine)) is not None:
        return make_whole_plan(problem, options, name, rates_at)
    told = options.memory_budget if options.tile_size is None else options.tile_size
    has_budget = options.memory_budget is not None
    options = settled(options, machine)
    asked = AskedRates(rates_at)
    kept = KEPT_PLANS if problem.window is None else KEPT_WINDOW_PLANS
    offered = _offered(problem, machine)
    plan = kept.find(problem, options, offered, asked, is_told=has_budget)
    if plan is None:
        plan = _of_as_many_as_pay(problem, options, offered, asked)
        kept.keep(problem, options, offered, asked, plan, is_told=has_budget)
    if told is not None and problem.window is None:
        say_slow(plan, options)
    return plan


def fresh_plan(problem: Problem, options: FactorOptions, rates_at: RatesAt, machine: Machine | None = None) -> Plan:
    """Plan the factorization of ``problem``, whatever plans there are."""
    return _of_as_many_as_pay(problem, options, _offered(problem, machine or machine_of(options)), rates_at)


def _fresh_plan(problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """The plan in FP64 or of a map of formats, by the engine that is asked for or faster."""
    if options.fp64 == "residue":
        return make_residue_plan(problem, options, names, rates_at)
    may_be_residue = options.fp64 == "auto" and options.policy == "planned" and kind_of(names[0]).gains_by_residues
    if not may_be_residue or _has_few_moduli(problem, options):
        return make_native_plan(problem, options, names, rates_at)
    try:
        native = native_request(problem, options, names, rates_at)
    except PlanSizeError as error:
        return _instead(error, problem, options, names, rates_at=rates_at)
    return _faster(native, problem, options, names, rates_at=rates_at)


def _offered(problem: Problem, machine: Machine) -> tuple[tuple[str, ...], ...]:
    """The devices that a plan may be for: all of them, and where the call names none, half as many and so on down to one.

    That on which A lies comes first.
    """
    names, found = machine.names, [machine.names]
    if not machine.has_default_devices or machine.kind.shares_processor or problem.window is not None or problem.given:
        return (names,)
    ordered = names if problem.home not in names else (problem.home, *(name for name in names if name != problem.home))
    while len(found[-1]) > 1:
        found.append(ordered[: len(found[-1]) // 2])
    return tuple(found)


@collector_off()
def _of_as_many_as_pay(problem: Problem, options: FactorOptions, offered: Sequence[tuple[str, ...]], rates_at: RatesAt) -> Plan:
    """The plan whose call is predicted to be over first.

    Python's garbage collector rests: it would look for circles among millions of steps, which have none, a fifth of the time.
    """
    best = _fresh_plan(problem, options, offered[0], rates_at)
    for names in offered[1:]:
        if best.seconds is None or best.seconds > COMPARED_SECONDS:
            break
        try:
            plan = _fresh_plan(problem, replace(options, devices=names), names, rates_at)
        except BudgetError:
            break
        if plan.seconds is not None and _call_seconds(plan) < _call_seconds(best):
            best = plan
    return best


def _call_seconds(plan: Plan) -> float:
    """Predicted seconds of the run, and of opening and closing its devices."""
    return seconds_of(plan) + OPENING_SECONDS * len(plan.devices)


def _has_few_moduli(problem: Problem, options: FactorOptions) -> bool:
    """Tell whether fewer moduli are asked for than a factor as accurate as a native one takes."""
    return options.moduli is not None and options.moduli < default_moduli(problem.n, problem.fmt)


def _faster(
    native: NativeRequest, problem: Problem, options: FactorOptions, names: tuple[str, ...], *, rates_at: RatesAt
) -> Plan:
    """The residue plan, as accurate as a native one, where its predicted seconds are fewer.

    No native plan is made where even work without any wait would take it longer.
    """
    if native.rates is None or native.rates.residue is None or least_native_seconds(native) < WORTH_PLANNING_TWICE:
        return native_plan(native)
    try:
        residue = make_residue_plan(problem, options, names, rates_at)
    except (BudgetError, ValueError):
        return native_plan(native)  # too little memory, too many steps, or tiles too small
    if residue.seconds is None:
        return native_plan(native)
    if residue.seconds < least_native_seconds(native):
        return residue
    plan = native_plan(native)
    return residue if residue.seconds < seconds_of(plan) else plan


def _instead(
    refusal: PlanSizeError, problem: Problem, options: FactorOptions, names: tuple[str, ...], *, rates_at: RatesAt
) -> Plan:
    """The residue plan where a native one has too many steps: a product takes several tiles at once."""
    try:
        return make_residue_plan(problem, options, names, rates_at)
    except (BudgetError, ValueError):
        raise refusal from None


def mixed_engine(problem: Problem, options: FactorOptions, machine: Machine | None = None) -> tuple[TileGrid, FactorOptions]:
    """The tiles of a factorization in mixed precision, and options that name its engine and tile order."""
    here = machine or machine_of(options)
    problem = replace(problem, precision=None, given=frozenset(), host_tiles=None)

    def ask(budgeted: FactorOptions, _: RatesAt) -> tuple[TileGrid, Fp64]:
        return _mixed_engine(problem, budgeted, here.names)

    grid, fp64 = kept_estimate("engine", problem, options, lambda grid: None, ask, machine=here)
    return grid, replace(options, fp64=fp64, tile_size=grid.nb)


def _mixed_engine(problem: Problem, options: FactorOptions, names: tuple[str, ...]) -> tuple[TileGrid, Fp64]:
    """Tiles and engine."""
    kind, budget = kind_of(names[0]), budget_of(options, names, problem)
    if options.fp64 == "residue":
        grid = residue_grid(problem.n, options, names, budget_bytes=budget, moduli=options.moduli or MIXED_MODULI)
        grid = grid or TileGrid(problem.n, options.tile_size or kind.residue_tile_sizes[-1])  # the planner says what is missing
        return grid, "residue"
    if options.fp64 == "auto" and kind.gains_by_residues and options.policy == "planned":
        try:
            grid = residue_grid(problem.n, options, names, budget_bytes=budget, moduli=options.moduli or MIXED_MODULI)
        except (PlanSizeError, ValueError):
            grid = None  # too many tiles, or of an order that residues do not take
        if grid is not None:
            return grid, "residue"
    grid = native_grid(problem.n, options, names, budget, rows=MIXED_ROWS)
    return grid, "native"
