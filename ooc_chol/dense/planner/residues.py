"""Plans with products through residues: tile size, division of memory, programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from ooc_chol.dense.options import FactorOptions, default_moduli
from ooc_chol.dense.planner import limit
from ooc_chol.dense.planner.file_choice import rates_for_estimates
from ooc_chol.dense.planner.file_tier import host_budget_of, with_file_tier
from ooc_chol.dense.planner.limit import Tiles, check_steps, window_grid
from ooc_chol.dense.planner.plan import DeviceBudget, Plan
from ooc_chol.dense.planner.problem import (
    COMPARED_STEPS,
    FINALISTS,
    Problem,
    RatesAt,
    array_bytes,
    budget_of,
    narrow_bytes,
    precision_asked,
    probes_beside,
    seconds_of,
)
from ooc_chol.dense.planner.residue_layouts import (
    NARROW_WIDTH,
    best_layouts,
    estimated_seconds,
    least_layout,
    narrow_share,
    steadiest,
    with_narrow,
)
from ooc_chol.dense.planner.residue_tiles import check_for_residues, residue_grids, residue_tiles_in_budget
from ooc_chol.dense.planner.step_counts import residue_steps
from ooc_chol.dense.planner.window_layouts import window_layout
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.policy import policy_named
from ooc_chol.dense.programs.residues.rows import ResiduePrograms
from ooc_chol.dense.programs.residues.strips import residue_panels
from ooc_chol.dense.programs.steps import executed_flops
from ooc_chol.errors import BudgetError
from ooc_chol.interfaces import ArraySpec
from ooc_chol.kernels.kinds import AbstractKernelKind
from ooc_chol.kernels.registry import folds_products, kind_of
from ooc_chol.precision.certified import is_certifiable
from ooc_chol.precision.products import expected_share
from ooc_chol.schedulers import SCHEDULERS
from ooc_chol.schedulers.ownership import balanced_rows, window_rows
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: Layouts behind the finalists that are looked at where no plans are compared: about those of one chunk and width.
EQUALS = 12


@dataclass(frozen=True)
class _Request:
    """Request common to every layout of a plan through residues."""

    problem: Problem
    options: FactorOptions
    names: tuple[str, ...]  #: All devices; a plan leaves out those for which it has no tile row
    budget_bytes: int  #: Most bytes that each of them may take
    moduli: int
    half_share: float | None  #: Share of the products that may run in FP16; None where none may

    @cached_property
    def kind(self) -> AbstractKernelKind:
        """Kind of the devices' kernels, all the same."""
        return kind_of(self.names[0])

    @cached_property
    def folds(self) -> bool:
        """True where the devices' products leave residues in accumulators."""
        return folds_products(self.names)

    @cached_property
    def tiles_of(self) -> Callable[[TileGrid], Tiles]:
        """Function from a grid to a plan's bytes by its tiles."""
        return residue_tiles_in_budget(self.options, self.names, self.budget_bytes, self.moduli, self.problem.fmt)

    @property
    def must_be_narrow(self) -> bool:
        """True where products in FP16 are asked for; else they are compared with the best plan that has none."""
        return self.half_share is not None and bool(self.options.half_products)

    def may_be_narrow(self, rates: Rates | None) -> bool:
        """Tell whether products in FP16 are to be looked at: where they are asked for, or were measured and are not refused."""
        if self.half_share is None or self.options.half_products is not None:
            return self.must_be_narrow
        return rates is not None and rates.residue is not None and rates.residue.half is not None

    def kernel_bytes(self, grid: TileGrid) -> int:
        """Bytes of the budget that kernels take for themselves."""
        problem, kind = self.problem, self.kind
        return kind.residue_workspace_bytes(problem.n, grid.nb, problem.fmt) + narrow_bytes(problem, kind)

    def workspace_bytes(self, grid: TileGrid) -> int:
        """Bytes of the budget that kernels and the certificate take."""
        return self.kernel_bytes(grid) + array_bytes(self.probe_arrays(grid))

    def probe_arrays(self, grid: TileGrid) -> tuple[ArraySpec, ...]:
        """Arrays of the certificate on each device."""
        least = self.least_layout(grid)
        return probes_beside(
            self.problem,
            self.kind,
            budget_bytes=self.budget_bytes,
            needed_bytes=least.arena_bytes + self.kernel_bytes(grid),
            slot_bytes=least.tile_bytes,
        )

    def least_layout(self, grid: TileGrid) -> ResidueLayout:
        """The least division of memory that will do."""
        least = least_layout(grid, self.moduli, self.problem.fmt, folds=self.folds)
        return replace(least, has_fp16=True) if self.must_be_narrow else least

    def estimates(self, grid: TileGrid, rates: Rates, n_devices: int) -> Rates:
        """The rates by which layouts are estimated: of an L in a file those of fetches from wherever tiles are."""
        if not self.problem.in_file:
            return rates
        return rates_for_estimates(rates, self.host_budget, grid.n_tiles, self.stored_itemsize * grid.nb**2, n_devices)

    @cached_property
    def host_budget(self) -> int:
        """Most bytes of host memory for an L in a file, for all layouts the same: the system is asked once."""
        return host_budget_of(self.options, self.names)

    @property
    def stored_itemsize(self) -> float:
        """Mean bytes of an entry of L in its store."""
        precision = self.problem.precision
        return self.problem.fmt.itemsize if precision is None else precision.total_bytes / compulsory_bytes(precision.grid, 1)


@dataclass(frozen=True)
class _Candidates:
    """The layouts that look best for one grid of tiles."""

    grid: TileGrid
    devices: tuple[str, ...]  #: The devices that have a tile row
    rates: Rates | None  #: Measured rates at the request's moduli; None where those of residues were not measured
    layouts: Sequence[ResidueLayout]  #: The best first; none where the budget holds none


def make_residue_plan(problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """Plan with products through residues: the fastest for the first grid of tiles that fits."""
    check_for_residues(problem.n, options.tile_size)
    if problem.window is not None:
        return _window_plan(problem, problem.window, options, names, rates_at)
    moduli = options.moduli or default_moduli(problem.n, problem.fmt)
    request = _Request(problem, options, names, budget_of(options, names, problem), moduli, half_share_of(problem))
    grids = residue_grids(problem.n, options.tile_size, request.kind, request.tiles_of)
    for grid in grids:
        candidates = _candidates(request, grid, rates_at(grid))
        if candidates.layouts:
            return _fastest(request, candidates)
    raise _refusal(request, grids[-1])


def estimated_residue_seconds(
    problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt
) -> float | None:
    """Seconds by closed forms in the layout that looks best, all products exact; None where no rates are known."""
    check_for_residues(problem.n, options.tile_size)
    moduli = options.moduli or default_moduli(problem.n, problem.fmt)
    request = _Request(problem, options, names, budget_of(options, names, problem), moduli, None)
    grids = residue_grids(problem.n, options.tile_size, request.kind, request.tiles_of)
    for grid in grids:
        candidates = _candidates(request, grid, rates_at(grid))
        if candidates.rates is None:
            return None
        if candidates.layouts:
            n_devices = len(candidates.devices)
            rates = request.estimates(grid, candidates.rates, n_devices)
            return estimated_seconds(grid, candidates.layouts[:1], n_devices, rates, itemsize=request.stored_itemsize)[0]
    raise _refusal(request, grids[-1])


def _window_plan(problem: Problem, window: Window, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """The plan of a window, in the layout that looks best for all windows of its columns; no product runs in FP16."""
    moduli, names = options.moduli or default_moduli(problem.n, problem.fmt), names[: len(window.rows)]
    request = _Request(problem, options, names, budget_of(options, names, problem), moduli, None)
    grid = window_grid(problem, options)
    room, alike = request.budget_bytes - request.workspace_bytes(grid), window if window.has_diagonal else window.below()
    layout = window_layout(grid, alike, room, moduli=moduli, n_devices=len(names), fmt=problem.fmt, folds=request.folds)
    if layout is None:
        raise _refusal(request, grid)
    rates = _of_residues(rates_at(grid), layout.planes)
    return _plan_of_layout(request, _Candidates(grid, names, rates, [layout]), layout)


def rest_of_residue_plan(plan: Plan, problem: Problem, options: FactorOptions, rates_at: RatesAt) -> Plan:
    """Plan of the tasks of ``plan`` that ``problem`` does not give: in the same panels, on which FP32 sums depend."""
    assert isinstance(plan.layout, ResidueLayout)
    budget, moduli = plan.budgets[0].budget_bytes, plan.layout.moduli
    request = _Request(problem, options, plan.devices, budget, moduli, half_share_of(problem))
    candidates = _Candidates(plan.grid, plan.devices, _of_residues(rates_at(plan.grid), plan.layout.planes), [plan.layout])
    return _plan_of_layout(request, candidates, plan.layout)


def half_share_of(problem: Problem) -> float | None:
    """Share of the products that may run in FP16, by norms of L as a sample has them; None where none may.

    None may where no random vectors can tell what they lose.
    """
    precision = problem.precision
    if precision is None or problem.window is not None or not is_certifiable(precision.norms, precision.threshold):
        return None
    expected = precision.norms.expected
    return 0.0 if expected is None else expected_share(precision, expected, NARROW_WIDTH)


def _candidates(request: _Request, grid: TileGrid, rates: Rates | None) -> _Candidates:
    """The layouts of one grid that are worth a plan, those with products in FP16 before the best of those without."""
    rates = _of_residues(rates, least_layout(grid, request.moduli, request.problem.fmt).planes)
    devices = request.names[: grid.nt]
    candidates = _Candidates(grid, devices, rates, [])
    layouts = [] if request.must_be_narrow else _finalists(request, candidates, None)
    if request.may_be_narrow(rates):
        layouts = [*_finalists(request, candidates, request.half_share), *layouts[:1]]
    return replace(candidates, layouts=layouts)


def _finalists(request: _Request, candidates: _Candidates, half_share: float | None) -> list[ResidueLayout]:
    """The layouts that look best, as many as may be compared; ``half_share`` is that of products in FP16."""
    grid, n_devices = candidates.grid, len(candidates.devices)
    rates = None if candidates.rates is None else request.estimates(grid, candidates.rates, n_devices)
    nbytes, itemsize = request.budget_bytes - request.workspace_bytes(grid), request.stored_itemsize
    layouts = best_layouts(
        grid,
        nbytes,
        request.moduli,
        n_devices,
        rates=rates,
        itemsize=itemsize,
        half_share=half_share,
        fmt=request.problem.fmt,
        folds=request.folds,
    )
    planned = (layout for layout in layouts if residue_steps(grid, layout, n_devices) <= limit.MOST_STEPS)
    first = list(islice(planned, FINALISTS))
    if rates is None or sum(residue_steps(grid, layout, n_devices) for layout in first) <= COMPARED_STEPS:
        return first
    equals = [*first, *islice(planned, EQUALS)]
    return [steadiest(equals, estimated_seconds(grid, equals, n_devices, rates, itemsize=itemsize, half_share=half_share))]


def _of_residues(rates: Rates | None, planes: int) -> Rates | None:
    """``rates`` with those of residues for so many residues of an entry; None without those."""
    return None if rates is None or rates.residue is None else replace(rates, residue=rates.residue.at(planes))


def _refusal(request: _Request, grid: TileGrid) -> BudgetError:
    """The error where no layout fits, with the bytes that the least one takes."""
    needed = request.least_layout(grid).arena_bytes + request.kernel_bytes(grid)
    advice = "give that much or more, or use fp64='native'"
    return BudgetError(f"memory_budget of {request.names[0]}", needed, request.budget_bytes, advice)


def _fastest(request: _Request, candidates: _Candidates) -> Plan:
    """The fastest plan of the candidates; without rates, that of the layout that looks best."""
    grid, layouts = candidates.grid, candidates.layouts
    steps = [residue_steps(grid, layout, len(candidates.devices)) for layout in layouts]
    check_steps(grid, max(steps), request.tiles_of)
    if candidates.rates is None:
        layouts = layouts[:1]
    elif sum(steps) > COMPARED_STEPS:
        layouts = [_estimated_fastest(request, candidates)]
    # Plans are made one by one, so that only the best so far is kept beside the latest.
    plans = (_plan_of_layout(request, candidates, layout) for layout in layouts)
    return min(plans, key=seconds_of)  # the timeline is the simulator's check of the plan


def _estimated_fastest(request: _Request, candidates: _Candidates) -> ResidueLayout:
    """Layout of the least estimated seconds, of those with and without products in FP16."""
    assert candidates.rates is not None
    grid, n_devices = candidates.grid, len(candidates.devices)
    rates = request.estimates(grid, candidates.rates, n_devices)

    def seconds(layout: ResidueLayout) -> float:
        share = (request.half_share or 0.0) if layout.has_fp16 else None
        return estimated_seconds(grid, [layout], n_devices, rates, itemsize=request.stored_itemsize, half_share=share)[0]

    return min(candidates.layouts, key=seconds)


def _plan_of_layout(request: _Request, candidates: _Candidates, layout: ResidueLayout) -> Plan:
    """The plan for one division of memory."""
    problem, grid, rates, devices = request.problem, candidates.grid, candidates.rates, candidates.devices
    window = problem.window
    owners = balanced_rows(grid.nt, len(devices)) if window is None else window_rows(grid.nt, window, len(devices))
    panels = residue_panels(grid.nt, layout.width, layout, window)
    given = _whole_panels(problem.given, panels) if window is None else problem.given
    half_share = narrow_share(grid.nt, layout.width, request.half_share or 0.0) if layout.has_fp16 else 0.0
    rates = with_narrow(rates, half_share) if half_share and rates is not None else rates
    programs = ResiduePrograms(
        SCHEDULERS[layout.scheduler]().schedule(grid, owners, panels, given, window),
        owners,
        panels,
        layout,
        source_itemsize=problem.bytes_per_entry or None,
        stored_bytes=problem.stored_bytes(grid),
        beside=request.kind.finishes_beside,
        given=given,
        window=window,
    ).programs()
    transit = layout.transit
    budget = DeviceBudget(
        budget_bytes=request.budget_bytes,
        slot_bytes=layout.tile_bytes,
        n_slots=layout.tiles + transit,
        prefetch_slots=transit,
        workspace_bytes=request.workspace_bytes(grid),
    )
    plan = Plan(
        grid=grid,
        policy=policy_named(request.options.policy),
        objective=request.options.objective,
        devices=devices,
        owners=owners,
        panels=panels,
        budgets=(budget,) * len(devices),
        programs=programs,
        rates=rates,
        task_counts=_task_counts(grid.nt) if window is None else window.task_counts(),
        source=problem.source,
        flops_executed=sum(executed_flops(program) for program in programs),
        precision=problem.precision,
        half_share=half_share,
        given=given,
        window=window,
        probe_arrays=request.probe_arrays(grid),
        fmt=problem.fmt,
        kept_bytes=problem.kept_on(len(devices)),
        asked=precision_asked(request.options),
    )
    return plan if not problem.in_file else with_file_tier(plan, problem, request.options, request.host_budget)


def _task_counts(nt: int) -> dict[str, int]:
    """Tasks of each kind of a whole factorization."""
    pairs = nt * (nt - 1) // 2
    return {"POTRF": nt, "TRSM": pairs, "SYRK": pairs, "GEMM": nt * (nt - 1) * (nt - 2) // 6}


def _whole_panels(given: frozenset[tuple[int, int]], panels: Sequence[Panel]) -> frozenset[tuple[int, int]]:
    """Those of the given tiles in rows of which a whole panel is given: a row is finished panel by panel."""
    whole: set[tuple[int, int]] = set()
    for panel in panels:
        rows = {i for i, j in given if j == panel.k0}
        for row in rows:
            tiles = {(row, j) for j in range(panel.k0, min(row + 1, panel.k0 + panel.width))}
            if tiles <= given:
                whole |= tiles
    return frozenset(whole)
