"""Plans in the devices' own arithmetic: budgets, panel shapes, programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain
from math import inf

from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.file_choice import TileCounter, rates_for_estimates
from ooc_chol.dense.planner.file_tier import host_budget_of, with_file_tier
from ooc_chol.dense.planner.limit import has_smaller_tile, window_grid
from ooc_chol.dense.planner.native_tiles import LEAST_SLOTS, native_grid, needed_bytes_of, prefetch_slots, tiles_in_budget
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
from ooc_chol.dense.planner.step_counts import native_steps, panel_loads
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.device_copies import with_pulls
from ooc_chol.dense.programs.eviction import EVICTION_POLICIES
from ooc_chol.dense.programs.layouts import TileSlots, slot_bytes_of
from ooc_chol.dense.programs.policy import Policy, policy_named
from ooc_chol.dense.programs.residency import FetchCounter, ResidencyPlanner
from ooc_chol.dense.programs.simulate import simulate
from ooc_chol.dense.programs.steps import Program
from ooc_chol.dense.programs.tile_program import TileProgram
from ooc_chol.errors import BudgetError, ScheduleError
from ooc_chol.interfaces import AbstractEvictionPolicy, ArraySpec
from ooc_chol.kernels.registry import kind_of
from ooc_chol.schedulers import SCHEDULERS
from ooc_chol.schedulers.finishing import FinishingTasks
from ooc_chol.schedulers.ownership import balanced_rows, window_rows
from ooc_chol.schedulers.schedule import Schedule
from ooc_chol.tasks.bounds import tile_bytes_of
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.operations import StepKind, StreamKind
from ooc_chol.tasks.panels import Panel, candidate_panels, own_rows_need, uniform_panels, window_panels
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: More of them to try where there is a finish stream: one that lags behind frees accumulators late.
PREFETCH_CHOICES = (16, 24, 32)
#: Shares of the columns for a wide last panel, where several devices share the rows.
WIDE_ENDS = (0.3, 0.325, 0.375)
#: Width of the narrow panels that several devices take where no plans are compared.
NARROW_PANELS = 2
#: Share of the seconds of kernels that copies may take at most to be hidden behind them.
HIDDEN_SHARE = 0.8
#: Share of a run's seconds that is not worth simulating another shape for.
NEGLIGIBLE_SHARE = 5e-3


def make_native_plan(problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """Plan in the devices' own arithmetic."""
    return native_plan(native_request(problem, options, names, rates_at))


def native_request(problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> NativeRequest:
    """Request of a native plan before panel shapes are chosen, its budget found to be enough."""
    policy = policy_named(options.policy)
    kind, fmt = kind_of(names[0]), problem.fmt
    budget_bytes = budget_of(options, names, problem)
    if problem.window is None:
        grid = native_grid(problem.n, options, names, budget_bytes, fmt=fmt)
        names = names[: grid.nt]  # a device without a tile row would have nothing to do
    else:
        grid = window_grid(problem, options)
        names = names[: len(problem.window.rows)]
    workspace = kind.workspace_bytes(grid.size(0), fmt) + narrow_bytes(problem, kind)
    needed = needed_bytes_of(grid, workspace, fmt)
    slot_bytes = slot_bytes_of(grid)
    probes = probes_beside(problem, kind, budget_bytes=budget_bytes, needed_bytes=needed, slot_bytes=slot_bytes)
    if needed > budget_bytes:
        helps = has_smaller_tile(grid, tiles_in_budget(options, names, budget_bytes, fmt))
        smaller = f", or a tile_size smaller than {grid.nb}" if helps else ""
        raise BudgetError(f"memory_budget of {names[0]}", needed, budget_bytes, f"give that much or more{smaller}")
    budget = _device_budget(
        problem.n_tiles(grid), budget_bytes, policy, workspace + array_bytes(probes), slot_bytes_of(grid, fmt)
    )
    rates = rates_at(grid)
    rates = None if rates is None else rates.of_formats(problem.precision)
    return NativeRequest(grid, policy, options.objective, names, budget, rates, problem, probes, options)


def native_plan(request: NativeRequest) -> Plan:
    """The plan of the panel shapes that look best."""
    if not request.is_timed and request.objective != "bytes":
        request = request.with_default_prefetch()
    return _best_plan(request)


def least_native_seconds(request: NativeRequest) -> float:
    """Seconds that no plan is faster than, of kernels that never wait: each takes its share of the processors as long as it runs.

    Copies, launches, and a device with more work than others are left out.
    """
    assert request.rates is not None
    rates, nb = request.rates, float(request.grid.nb)
    whole = request.grid.n / nb  # the last tile row may be short
    gemm, trsm = max(rates.gemm, rates.gemm_float32 or 0.0), max(rates.trsm, rates.trsm_float32 or 0.0)
    pairs, triples = whole * (whole - 1) / 2, whole * (whole - 1) * (whole - 2) / 6
    work = [(2.0 * triples, gemm), (pairs, max(rates.gemm, rates.syrk)), (pairs, max(rates.gemm, trsm))]
    of_real_numbers = request.problem.fmt.flops_factor * nb**3
    return max(0.0, of_real_numbers * sum(flops / rate for flops, rate in work) / len(request.devices))


def _device_budget(n_tiles: int, budget_bytes: int, policy: Policy, workspace: int, slot_bytes: int) -> DeviceBudget:
    """Slots within the budget, no more than all tiles of the run and its prefetch can use."""
    n_slots = (budget_bytes - workspace) // slot_bytes
    prefetch = prefetch_slots(n_slots) if policy.overlaps else 0
    return _with_prefetch(
        DeviceBudget(budget_bytes, slot_bytes=slot_bytes, n_slots=n_slots, prefetch_slots=0, workspace_bytes=workspace),
        n_tiles,
        prefetch,
    )


def _with_prefetch(budget: DeviceBudget, n_tiles: int, prefetch: int) -> DeviceBudget:
    """``budget`` with ``prefetch`` slots kept free for tiles in transit, as far as three tiles are left."""
    n_slots = (budget.budget_bytes - budget.workspace_bytes) // budget.slot_bytes
    n_slots = min(n_slots, n_tiles + prefetch)
    return replace(budget, n_slots=n_slots, prefetch_slots=min(prefetch, max(0, n_slots - LEAST_SLOTS)))


@dataclass(frozen=True)
class NativeRequest:
    """Everything that is settled before panel shapes are chosen."""

    grid: TileGrid
    policy: Policy
    objective: str
    devices: tuple[str, ...]
    budget: DeviceBudget
    rates: Rates | None
    problem: Problem
    probe_arrays: tuple[ArraySpec, ...]  #: Of the certificate, on each device
    options: FactorOptions  #: What was asked for

    @property
    def capacity(self) -> int:
        """Tiles on a device at once, after prefetch."""
        return self.budget.n_slots - self.budget.prefetch_slots

    @property
    def is_timed(self) -> bool:
        """True if predicted seconds choose among plans."""
        return self.objective == "seconds" and self.rates is not None

    @property
    def finishes_beside(self) -> bool:
        """True if tiles are finished on a stream of their own."""
        return self.policy.overlaps and kind_of(self.devices[0]).finishes_beside

    def with_default_prefetch(self) -> NativeRequest:
        """The same with as many slots for tiles in transit as an eighth and 16 allow, where tiles are finished beside."""
        if not self.finishes_beside:
            return self
        usual = [min(choice, self.budget.n_slots // 8) for choice in PREFETCH_CHOICES[:1]]
        prefetch = max(self.budget.prefetch_slots, *usual, 0)
        return replace(self, budget=_with_prefetch(self.budget, self.problem.n_tiles(self.grid), prefetch))

    @property
    def compared_steps(self) -> int:
        """About how many steps the plans of all shapes have that would be made to find the fastest."""
        several = len(self.devices) > 1 and self.policy.widens_panels
        plans = FINALISTS + several * len(WIDE_ENDS)
        return plans * native_steps(self.grid.nt, max(LEAST_SLOTS, self.capacity), self.policy, len(self.devices))

    @property
    def average_fetch(self) -> float:
        """Bytes of L per second that a device fetches from wherever they are."""
        assert self.rates is not None
        if not self.problem.in_file:
            return self.rates.fetch
        tile_bytes = float(self.problem.fmt.itemsize * self.grid.nb**2)
        return rates_for_estimates(self.rates, self.host_budget, self.grid.n_tiles, tile_bytes, len(self.devices)).fetch

    @cached_property
    def host_budget(self) -> int:
        """Most bytes of host memory for an L in a file, for all shapes the same: the system is asked once."""
        return host_budget_of(self.options, self.devices)

    @property
    def eviction(self) -> AbstractEvictionPolicy | None:
        """The eviction policy of the operand cache; None fetches operands anew for every task."""
        return EVICTION_POLICIES[self.policy.eviction] if self.policy.eviction else None


def _best_plan(request: NativeRequest) -> Plan:
    """The plan of the panel shapes that cost least: counted in fetches, then, for seconds, simulated."""
    if request.problem.window is not None:
        return _best_window_plan(request, request.problem.window)
    owners = balanced_rows(request.grid.nt, len(request.devices))
    shapes = [uniform_panels(request.grid.nt, 1, 1)]
    if request.policy.widens_panels:
        shapes = candidate_panels(request.grid.nt, request.capacity, len(request.devices))
    if request.objective != "bytes" and request.compared_steps > COMPARED_STEPS:
        return _estimated_best_plan(request, owners, shapes)
    best: Plan | None = None
    for panels, schedule in _finalists(request, owners, shapes, FINALISTS if request.is_timed else 1):
        plan = _plan_of(request, owners, panels, schedule)
        best = _faster(best, plan)
        if _always_computes(plan):
            break
    assert best is not None
    if request.is_timed and len(request.devices) > 1 and request.policy.widens_panels:
        best = reduce(_faster, _with_wide_ends(request, best), best)
    if request.is_timed and request.finishes_beside:
        best = reduce(_faster, _with_more_prefetch(request, best), best)
    return best


def _estimated_best_plan(request: NativeRequest, owners: Sequence[int], shapes: Sequence[Sequence[Panel]]) -> Plan:
    """The plan of the shape that looks best by closed forms: the only one that is made where several would take long."""
    request = request.with_default_prefetch()
    return _first_that_fits(request, owners, _by_estimate(request, shapes))


def _best_window_plan(request: NativeRequest, window: Window) -> Plan:
    """The plan of a window, by closed forms alone: there are many windows, and each is planned where it runs."""
    request = request.with_default_prefetch()
    owners = window_rows(request.grid.nt, window, len(request.devices))
    shapes: Sequence[Sequence[Panel]] = [[Panel(k0, 1, 1) for k0 in window.columns]]
    if request.policy.widens_panels:
        # The rows of other windows change nothing: the shapes for these are found once for all that lie below each other.
        alike = window if window.has_diagonal else window.below()
        shapes = window_panels(request.grid.nt, alike, request.capacity, len(request.devices))
    return _first_that_fits(request, owners, shapes)


def _first_that_fits(request: NativeRequest, owners: Sequence[int], shapes: Iterable[Sequence[Panel]]) -> Plan:
    """The plan of the first of ``shapes`` for which there is memory."""
    for panels in shapes:
        try:
            plan = _plan_of(request, owners, panels, _schedule(request, owners, panels))
        except ScheduleError:
            continue  # these panels do not fit
        return _faster(None, plan)
    raise ScheduleError(f"no panel shape fits {request.capacity} tiles")


def _by_estimate(request: NativeRequest, shapes: Sequence[Sequence[Panel]]) -> Iterator[Sequence[Panel]]:
    """Shapes, the best first: least loads; by rates, on several devices, narrow panels where copies are shorter than kernels.

    In narrow panels a row waits for few rows above it, and at their end a wide one follows, see :func:`_with_wide_end`.
    """
    nt, n_devices = request.grid.nt, len(request.devices)
    loads = {tuple(panels): panel_loads(nt, panels, request.capacity, n_devices) for panels in shapes}
    ranked: list[tuple[Panel, ...]] = sorted(loads, key=loads.__getitem__)
    if request.rates is not None and n_devices > 1 and request.policy.widens_panels:
        a_load = request.grid.nb**2 * request.problem.fmt.itemsize / request.average_fetch / n_devices
        hidden = HIDDEN_SHARE * least_native_seconds(request) / a_load
        ranked.sort(
            key=lambda panels: not (panels[0].width == NARROW_PANELS == panels[1].width and loads[tuple(panels)] <= hidden)
        )
        widths = [round(share * nt) for share in WIDE_ENDS[:1]]
        for panels in ranked:
            yield from (ended for width in widths if (ended := _with_wide_end(request, panels, width)) is not None)
            yield panels
        return
    yield from ranked


def _faster(best: Plan | None, plan: Plan) -> Plan:
    """The earlier of two plans unless the later one is faster; the timeline is the simulator's check of both."""
    seconds = seconds_of(plan)
    return plan if best is None or seconds < seconds_of(best) else best


def _with_wide_ends(request: NativeRequest, best: Plan) -> Iterator[Plan]:
    """``best`` with one wide panel at the end: few rows are left there, and each waits for long sums of the one above.

    In a wide panel all rows take their long sums at once, on all devices, and only what is left, inside the panel, is a chain.
    """
    if _always_computes(best):
        return
    nt = request.grid.nt
    for width in sorted({round(share * nt) for share in WIDE_ENDS}):
        panels = _with_wide_end(request, best.panels, width)
        if panels is None:
            return
        schedule = _schedule(request, best.owners, panels)
        if _count_fetches(request, schedule, inf) is not None:
            yield _plan_of(request, best.owners, panels, schedule)


def _with_wide_end(request: NativeRequest, panels: Sequence[Panel], width: int) -> list[Panel] | None:
    """``panels`` with a last one of ``width`` columns; None where these do not fit."""
    start = request.grid.nt - width
    if start < 1 or own_rows_need(start, width) > request.capacity:
        return None
    before = [panel._replace(width=min(panel.width, start - panel.k0)) for panel in panels if panel.k0 < start]
    return [*before, Panel(start, width, 1)]


def _with_more_prefetch(request: NativeRequest, best: Plan) -> Iterator[Plan]:
    """``best``'s panels with more slots kept free, as long as that helps: tiles of a row wait for slots of the row before it."""
    schedule = _schedule(request, best.owners, best.panels)
    for prefetch in PREFETCH_CHOICES:
        other = replace(request, budget=_with_prefetch(request.budget, request.problem.n_tiles(request.grid), prefetch))
        if prefetch > other.capacity // 4 or _always_computes(best) or _count_fetches(other, schedule, inf) is None:
            return
        plan = _plan_of(other, best.owners, best.panels, schedule)
        if seconds_of(plan) >= seconds_of(best):
            return
        yield (best := plan)


def _schedule(request: NativeRequest, owners: Sequence[int], panels: Sequence[Panel]) -> Schedule[Task]:
    """All tasks in the order in which each device runs its own."""
    return SCHEDULERS[TileSlots.scheduler]().schedule(request.grid, owners, panels, request.problem.given, request.problem.window)


def _always_computes(plan: Plan) -> bool:
    """Tell whether the busiest device is next to never without work: the order of its tasks cannot make the run any shorter."""
    if plan.rates is None:
        return True
    busiest = max(_busy_seconds(program, plan.grid, plan.rates) for program in plan.programs)
    return plan.timeline.seconds <= (1 + NEGLIGIBLE_SHARE) * busiest


def _busy_seconds(program: Program, grid: TileGrid, rates: Rates) -> float:
    """Seconds of a device's tasks: one after the other, or, beside each other, by the share of its processors that they use."""
    shares = rates.shares() if StreamKind.FINISH in program.streams else {}
    kernels = [step for step in program.steps if step.kind is StepKind.COMPUTE]
    together = zip(kernels, rates.all_seconds(kernels, grid), strict=True)
    return sum(seconds * shares.get(type(step.operation), 1.0) for step, seconds in together)


def _finalists(
    request: NativeRequest, owners: Sequence[int], shapes: Sequence[Sequence[Panel]], wanted: int
) -> list[tuple[Sequence[Panel], Schedule[Task]]]:
    """The ``wanted`` shapes that fetch least; a count ends early once it cannot be among them."""
    counted: list[tuple[float, Sequence[Panel], Schedule[Task]]] = []
    for panels in shapes:
        schedule = _schedule(request, owners, panels)
        limit = counted[wanted - 1][0] if len(counted) >= wanted else inf
        cost = _file_cost if request.problem.in_file else _count_fetches
        fetches = cost(request, schedule, limit) if len(shapes) > 1 else 0
        if fetches is not None:
            counted.append((fetches, panels, schedule))
            counted.sort(key=lambda entry: entry[0])
            del counted[wanted:]
        if wanted == 1 and fetches == request.grid.n_tiles:
            break  # every tile once: nothing fetches less
    if not counted:
        raise ScheduleError(f"no panel shape fits {request.capacity} tiles")
    return [(panels, schedule) for _, panels, schedule in counted]


def _count_fetches(request: NativeRequest, schedule: Schedule[Task], limit: float) -> int | None:
    """Tiles fetched by all devices, or None when the shapes do not fit or fetch more than ``limit``."""
    counter = FetchCounter(limit)
    try:
        for tasks in schedule.tasks:
            ResidencyPlanner(tasks, request.capacity, request.policy, request.eviction).run(counter)
    except ScheduleError:
        return None
    return counter.fetches


def _file_cost(request: NativeRequest, schedule: Schedule[Task], limit: float) -> float | None:
    """Tiles that all devices read from files, those that host memory keeps counting less; None where the shapes do not fit."""
    counter = TileCounter()
    try:
        for tasks in schedule.tasks:
            ResidencyPlanner(tasks, request.capacity, request.policy, request.eviction).run(counter)
    except ScheduleError:
        return None
    return counter.cost(request.host_budget, request.problem.stored_bytes(request.grid), request.rates)


def _programs(request: NativeRequest, panels: Sequence[Panel], schedule: Schedule[Task]) -> tuple[Program, ...]:
    """The steps of every device."""
    programs = []
    layout, held_bytes = TileSlots(request.budget.n_slots, request.budget.slot_bytes), _held_bytes(request)
    for device, tasks in enumerate(schedule.tasks):
        builder = TileProgram(
            request.grid,
            layout,
            source_itemsize=request.problem.bytes_per_entry or None,
            stored_bytes=request.problem.stored_bytes(request.grid),
            held_bytes=held_bytes,
            device=device,
            overlaps=request.policy.overlaps,
            finishing=FinishingTasks(panels) if request.finishes_beside else None,
            flops_factor=request.problem.fmt.flops_factor,
        )
        ResidencyPlanner(tasks, request.capacity, request.policy, request.eviction).run(builder)
        programs.append(builder.build())
    if len(programs) == 1 or not request.policy.widens_panels:
        return tuple(programs)  # the paper's policies know no copies between devices
    given = request.problem.given
    starts = None
    if request.rates is not None:
        # The programs with copies are checked, when the plan is timed.
        window = request.problem.window
        starts = simulate(programs, request.grid, request.rates, given, checks_slots=False, window=window).starts
    return with_pulls(programs, starts, held_bytes, given)


def _held_bytes(request: NativeRequest) -> Callable[[tuple[int, int]], int]:
    """Bytes of a tile in a slot, which go from device to device: those of the format in which it is computed."""
    grid, precision = request.grid, request.problem.precision
    if precision is None:
        return tile_bytes_of(grid, request.problem.fmt)
    return lambda index: precision.product_of(index).itemsize * grid.entries(*index)


def _counted(request: NativeRequest, schedule: Schedule[Task]) -> tuple[dict[str, int], int]:
    """Number of tasks of each kind, and the flops that the kernels of these devices execute for all.

    Only the last tile row is short, so that kind and row tell a task's shape.
    """
    grid, kernels = request.grid, kind_of(request.devices[0])
    shapes = {(task.kind, task.i == grid.nt - 1): task for task in chain.from_iterable(schedule.tasks)}
    counts = Counter((task.kind, task.i == grid.nt - 1) for task in chain.from_iterable(schedule.tasks))
    fmt = request.problem.fmt
    executed = sum(count * kernels.executed_flops(shapes[shape], grid, fmt) for shape, count in counts.items())
    return {kind.name: counts[kind, False] + counts[kind, True] for kind in TaskKind}, executed


def _plan_of(request: NativeRequest, owners: Sequence[int], panels: Sequence[Panel], schedule: Schedule[Task]) -> Plan:
    """The plan for one choice of panel shapes."""
    task_counts, flops_executed = _counted(request, schedule)
    plan = Plan(
        grid=request.grid,
        policy=request.policy,
        objective=request.objective,
        devices=request.devices,
        owners=tuple(owners),
        panels=tuple(panels),
        budgets=(request.budget,) * len(request.devices),
        programs=_programs(request, panels, schedule),
        rates=request.rates,
        task_counts=task_counts,
        source=request.problem.source,
        flops_executed=flops_executed,
        precision=request.problem.precision,
        given=request.problem.given,
        window=request.problem.window,
        probe_arrays=request.probe_arrays,
        fmt=request.problem.fmt,
        kept_bytes=request.problem.kept_on(len(request.devices)),
        asked=precision_asked(request.options),
    )
    return plan if not request.problem.in_file else with_file_tier(plan, request.problem, request.options, request.host_budget)
