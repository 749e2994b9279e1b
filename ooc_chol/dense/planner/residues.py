"""Plans with products through residues: tile size, division of memory, programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from ooc_chol.dense.options import FactorOptions, default_moduli
from ooc_chol.dense.planner import limit
from ooc_chol.dense.planner.limit import check_steps
from ooc_chol.dense.planner.plan import DeviceBudget, Plan
from ooc_chol.dense.planner.policy import policy_named
from ooc_chol.dense.planner.problem import FINALISTS, Problem, RatesAt, budget_of, narrow_bytes, seconds_of
from ooc_chol.dense.planner.residue_layouts import best_layouts, least_layout
from ooc_chol.dense.planner.residue_tiles import check_for_residues, residue_grids, residue_tiles_in_budget
from ooc_chol.dense.planner.step_counts import residue_steps
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.rows import ResiduePrograms
from ooc_chol.dense.programs.residues.strips import residue_panels
from ooc_chol.dense.programs.steps import executed_flops
from ooc_chol.errors import BudgetError
from ooc_chol.formats import FP64
from ooc_chol.kernels.registry import kind_of
from ooc_chol.precision.products import HalfProducts
from ooc_chol.schedulers import SCHEDULERS
from ooc_chol.schedulers.ownership import balanced_rows
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid

#: Columns of the panels for which the share of products in FP16 is estimated.
HALF_WIDTH = 8


def make_residue_plan(problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """Plan with products through residues."""
    check_for_residues(problem.n, options.tile_size)
    moduli = options.moduli or default_moduli(problem.n)
    kind = kind_of(names[0])
    budget_bytes = budget_of(options, names)
    half_products = _half_products(problem)
    tiles_of = residue_tiles_in_budget(options, names, budget_bytes, moduli)
    grids = residue_grids(problem.n, options.tile_size, kind, tiles_of)
    least = least_layout(grids[-1], moduli)
    for grid in grids:
        workspace = kind.residue_workspace_bytes(problem.n, grid.nb) + narrow_bytes(problem, kind)
        rates = _of_moduli(rates_at(grid), moduli)
        shared = names[: grid.nt]
        finalists = partial(
            _finalists, grid, budget_bytes - workspace, moduli, len(shared), rates, itemsize=_mean_itemsize(problem)
        )
        best = finalists()
        if half_products is not None and _wants_halves(options, rates):
            half_products = replace(half_products, quarters=options.half_products == "fp8")
            shares = half_products.share(HALF_WIDTH)
            # Forced, there is no choice; else the simulator compares them with the best of those without.
            if options.half_products:
                least = replace(least, halves=True, quarters=shares[1] > 0)
                best = []
            best = [*finalists(shares=shares), *best[:1]]
        if best:
            check_steps(grid, max(residue_steps(grid, layout, len(shared)) for layout in best), tiles_of)
            return _residue_plan(problem, options, shared, grid, budget_bytes, workspace, best, rates, half_products)
    needed = least.arena_bytes + workspace
    raise BudgetError(f"memory_budget of {names[0]}", needed, budget_bytes, "give that much or more, or use fp64='native'")


def _finalists(
    grid: TileGrid,
    nbytes: int,
    moduli: int,
    n_devices: int,
    rates: Rates | None,
    *,
    itemsize: float,
    shares: tuple[float, float] | None = None,
) -> list[ResidueLayout]:
    """The layouts that look best, of those that can be planned."""
    layouts = best_layouts(grid, nbytes, moduli, n_devices, rates, itemsize=itemsize, shares=shares)
    planned = (layout for layout in layouts if residue_steps(grid, layout, n_devices) <= limit.MOST_STEPS)
    return list(islice(planned, FINALISTS))


def _whole_panels(given: frozenset[tuple[int, int]], panels: Sequence[Panel]) -> frozenset[tuple[int, int]]:
    """Of given tiles those of rows of which a whole panel is given: a row is finished panel by panel."""
    whole: set[tuple[int, int]] = set()
    for panel in panels:
        rows = {i for i, j in given if j == panel.k0}
        for row in rows:
            tiles = {(row, j) for j in range(panel.k0, min(row + 1, panel.k0 + panel.width))}
            if tiles <= given:
                whole |= tiles
    return frozenset(whole)


def _mean_itemsize(problem: Problem) -> float:
    """Bytes of an entry of L in its store."""
    if problem.precision is None:
        return FP64.itemsize
    return problem.precision.total_bytes / compulsory_bytes(problem.precision.grid, 1)


def _half_products(problem: Problem) -> HalfProducts | None:
    """What may run in FP16; None in FP64, or where nothing is known of the factor's norms."""
    if problem.precision is None or problem.precision.norms.expected is None:
        return None
    return HalfProducts(problem.precision, problem.precision.norms.expected)


def _wants_halves(options: FactorOptions, rates: Rates | None) -> bool:
    """Whether products in FP16 are to be looked at: where they were measured, or asked for."""
    if options.half_products is not None:
        return options.half_products is not False
    return rates is not None and rates.residue is not None and rates.residue.half is not None


def _of_moduli(rates: Rates | None, moduli: int) -> Rates | None:
    """``rates`` with those of residues for so many moduli."""
    return rates if rates is None or rates.residue is None else replace(rates, residue=rates.residue.at(moduli))


def _residue_plan(
    problem: Problem,
    options: FactorOptions,
    names: tuple[str, ...],
    grid: TileGrid,
    budget_bytes: int,
    workspace: int,
    layouts: Sequence[ResidueLayout],
    rates: Rates | None,
    half_products: HalfProducts | None = None,
) -> Plan:
    """The fastest of the layouts that look best; without rates, that which looks best."""
    is_timed = rates is not None and rates.residue is not None
    plans = (  # made one by one: only the best so far is kept beside the latest
        _plan_of_layout(
            problem,
            options,
            names,
            grid,
            DeviceBudget(budget_bytes, layout.tile_bytes, 0, 0, workspace),
            layout,
            rates,
            half_products if layout.halves else None,
        )
        for layout in layouts[: None if is_timed else 1]
    )
    return min(plans, key=seconds_of)  # the timeline is the simulator's check of the plan


def _plan_of_layout(
    problem: Problem,
    options: FactorOptions,
    names: tuple[str, ...],
    grid: TileGrid,
    budget: DeviceBudget,
    layout: ResidueLayout,
    rates: Rates | None,
    half_products: HalfProducts | None,
) -> Plan:
    """The plan for one division of memory."""
    owners = balanced_rows(grid.nt, len(names))
    panels = residue_panels(grid.nt, layout.width, layout)
    itemsize, beside = problem.bytes_per_entry or None, kind_of(names[0]).finishes_beside
    stored = problem.stored_bytes(grid)
    given = _whole_panels(problem.given, panels)
    if half_products is not None:
        half_products = replace(half_products, quarters=layout.quarters, panels=tuple(panels))
    schedule = SCHEDULERS[layout.scheduler]().schedule(grid, owners, panels, given)
    programs = ResiduePrograms(
        schedule, owners, panels, layout, itemsize, stored, beside=beside, half_products=half_products, given=given
    ).programs()
    nt = grid.nt
    counts = {"POTRF": nt, "TRSM": nt * (nt - 1) // 2, "SYRK": nt * (nt - 1) // 2, "GEMM": nt * (nt - 1) * (nt - 2) // 6}
    return Plan(
        grid=grid,
        policy=policy_named(options.policy),
        objective=options.objective,
        devices=names,
        owners=owners,
        panels=panels,
        budgets=(replace(budget, n_slots=layout.tiles + layout.transit, prefetch_slots=layout.transit),) * len(names),
        programs=programs,
        rates=rates if rates is not None and rates.residue is not None else None,
        task_counts=counts,
        source=problem.source,
        flops_executed=sum(executed_flops(step) for program in programs for step in program.steps),
        precision=problem.precision,
        half_products=half_products,
        given=given,
    )
