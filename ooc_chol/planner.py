"""From options to a plan: tile size, budgets, panel shapes, programs. Runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from ooc_chol.config import FactorOptions, default_moduli, parse_bytes
from ooc_chol.errors import BudgetError, ScheduleError
from ooc_chol.formats import FP64
from ooc_chol.interfaces import AbstractEvictionPolicy
from ooc_chol.machine import DeviceKind, default_budget, kind_of, resolve_devices
from ooc_chol.memory.eviction import EVICTION_POLICIES
from ooc_chol.memory.sources_base import AbstractSource
from ooc_chol.planning.cost import Rates
from ooc_chol.planning.finishing import FinishingTasks
from ooc_chol.planning.ownership import balanced_rows
from ooc_chol.planning.panels import Panel, candidate_panels, uniform_panels
from ooc_chol.planning.peers import with_pulls
from ooc_chol.planning.plan import DeviceBudget, Plan
from ooc_chol.planning.policy import Policy, policy_named
from ooc_chol.planning.program import Program, ProgramBuilder, Step, StepKind, StreamKind
from ooc_chol.planning.residency import FetchCounter, ResidencyPlanner
from ooc_chol.planning.residue_layouts import best_layouts, least_layout
from ooc_chol.planning.residue_schedule import ResidueScheduler
from ooc_chol.planning.residue_steps import ResidueLayout, ResidueProgram, ResidueStep, executed_flops
from ooc_chol.planning.residue_strips import residue_panels
from ooc_chol.planning.schedule import Schedule
from ooc_chol.planning.simulate import simulate
from ooc_chol.residues import MOST_ROWS
from ooc_chol.schedulers import LeftLookingScheduler
from ooc_chol.tasks import TaskKind
from ooc_chol.tiling import TileGrid

#: Least tiles on a device: an accumulator and the two operands of a GEMM.
LEAST_SLOTS = 3
#: Most slots that are kept free for tiles in transit.
MOST_PREFETCH = 8
#: More of them to try where there is a finish stream: one that lags behind frees accumulators late.
PREFETCH_CHOICES = (16, 24, 32)
#: Tile rows that products through residues should have, so that little of a panel is finished in small pieces.
LEAST_RESIDUE_ROWS = 16
#: Tile rows above which smaller tiles are not tried: a plan has about a sixth of their cube steps over the width of a panel.
MOST_RESIDUE_ROWS = 160
#: What the tensor cores take: K and strides of int8 matrices are multiples of it.
TENSOR_MULTIPLE = 16
#: Slots are whole pages.
PAGE_BYTES = 4096
#: Panel shapes whose plans are simulated when seconds are to be least.
FINALISTS = 3
#: Share of a run's seconds that is not worth simulating another shape for.
NEGLIGIBLE_SHARE = 5e-3


@dataclass(frozen=True)
class Problem:
    """What the planner must know of A.

    Parameters
    ----------
    n : int
        Order of the matrix.
    bytes_per_entry : int
        Bytes that reading one entry moves; 0 when a tile function makes A on the device.
    source : str
        Kind of source, for the plan's page.
    """

    n: int
    bytes_per_entry: int
    source: str

    @classmethod
    def of(cls, source: AbstractSource) -> Problem:
        """The problem that ``source`` poses."""
        return cls(source.n, source.bytes_per_entry, source.name)


def make_plan(problem: Problem, options: FactorOptions, rates_at: Callable[[TileGrid], Rates | None]) -> Plan:
    """Plan the factorization of ``problem``.

    Parameters
    ----------
    problem : Problem
        The matrix.
    options : FactorOptions
        What the user asked.
    rates_at : callable
        Measured rates for a grid of tiles, or None where there are none.

    Returns
    -------
    Plan
        Checked by a run in the simulator.

    Raises
    ------
    BudgetError
        The budget does not hold three tiles.
    ValueError
        An option names something that is not there.
    """
    names = resolve_devices(options.devices, must_exist=False)
    if options.fp64 == "residue":
        return make_residue_plan(problem, options, names, rates_at)
    native = _native_plan(problem, options, names, rates_at)
    if options.fp64 == "native" or options.policy != "planned" or kind_of(names[0]).name == "host":
        return native
    return _faster(native, problem, options, names, rates_at)


def _faster(
    native: Plan, problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: Callable[[TileGrid], Rates | None]
) -> Plan:
    """The residue plan where it is as accurate as ``native`` and its predicted seconds, from measured rates, are fewer."""
    if native.seconds is None or (options.moduli or default_moduli(problem.n)) < default_moduli(problem.n):
        return native
    try:
        residue = make_residue_plan(problem, options, names, rates_at)
    except (BudgetError, ValueError):
        return native  # too little memory, or tiles too small
    return residue if residue.seconds is not None and residue.seconds < native.seconds else native


def _budget_bytes(options: FactorOptions, names: tuple[str, ...]) -> int:
    """Bytes of each device's budget."""
    return default_budget(names) if options.memory_budget is None else parse_bytes(options.memory_budget, "memory_budget")


def _native_plan(
    problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: Callable[[TileGrid], Rates | None]
) -> Plan:
    """Plan in the device's own FP64."""
    policy = policy_named(options.policy)
    kind = kind_of(names[0])
    budget_bytes = _budget_bytes(options, names)
    grid = TileGrid(problem.n, options.tile_size or choose_tile_size(problem.n, budget_bytes, kind))
    names = names[: grid.nt]  # a device without a tile row would have nothing to do
    budget = _device_budget(grid, budget_bytes, policy, names[0])
    return _best_plan(_with_default_prefetch(_Request(grid, policy, options.objective, names, budget, rates_at(grid), problem)))


def make_residue_plan(
    problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: Callable[[TileGrid], Rates | None]
) -> Plan:
    """Plan with products through residues.

    Parameters
    ----------
    problem : Problem
        What is factored.
    options : FactorOptions
        How.
    names : tuple of str
        The devices, all of one kind.
    rates_at : callable
        Measured rates for a grid's tiles; None where nothing is measured.

    Returns
    -------
    Plan
        The fastest by the rates; without them, that which looks best.

    Raises
    ------
    BudgetError
        The budget does not hold the least layout.
    ValueError
        The matrix has too many rows, or the tile order is no multiple of 16.
    """
    if problem.n > MOST_ROWS:
        raise ValueError(f"n is {problem.n}, but residues have room for the rounding of {MOST_ROWS} rows; use fp64='native'")
    moduli = options.moduli or default_moduli(problem.n)
    kind = kind_of(names[0])
    budget_bytes = _budget_bytes(options, names)
    grids = _residue_grids(problem.n, options.tile_size, kind)
    best: list[ResidueLayout] = []
    for grid in grids:
        if grid.nb % TENSOR_MULTIPLE:
            raise ValueError(f"tile_size is {grid.nb}, but products through residues take multiples of {TENSOR_MULTIPLE}")
        workspace = kind.residue_workspace_bytes(problem.n, grid.nb)
        rates = _of_moduli(rates_at(grid), moduli)
        shared = names[: grid.nt]
        best = best_layouts(grid, budget_bytes - workspace, moduli, len(shared), rates)
        if best:
            return _residue_plan(problem, options, shared, grid, budget_bytes, workspace, best, rates)
    least = least_layout(grids[-1], moduli)
    needed = least.arena_bytes + kind.residue_workspace_bytes(problem.n, grids[-1].nb)
    raise BudgetError(f"memory_budget of {names[0]}", needed, budget_bytes, "give that much or more, or use fp64='native'")


def _of_moduli(rates: Rates | None, moduli: int) -> Rates | None:
    """``rates`` with those of residues for so many moduli."""
    return rates if rates is None or rates.residue is None else replace(rates, residue=rates.residue.at(moduli))


def _residue_grids(n: int, tile_size: int | None, kind: DeviceKind) -> list[TileGrid]:
    """Tiles to try, the largest first: enough tile rows, but no more than can be planned in seconds."""
    if tile_size is not None:
        return [TileGrid(n, tile_size)]
    grids = [TileGrid(n, nb) for nb in kind.residue_tile_sizes]
    sensible = [grid for grid in grids if LEAST_RESIDUE_ROWS <= grid.nt <= MOST_RESIDUE_ROWS]
    return sensible or [min(grids, key=lambda grid: abs(grid.nt - LEAST_RESIDUE_ROWS))]


def _residue_plan(
    problem: Problem,
    options: FactorOptions,
    names: tuple[str, ...],
    grid: TileGrid,
    budget_bytes: int,
    workspace: int,
    layouts: Sequence[ResidueLayout],
    rates: Rates | None,
) -> Plan:
    """The fastest of the layouts that look best; without rates, that which looks best."""
    is_timed = rates is not None and rates.residue is not None
    plans = [
        _plan_of_layout(
            problem, options, names, grid, DeviceBudget(budget_bytes, layout.tile_bytes, 0, 0, workspace), layout, rates
        )
        for layout in layouts[: FINALISTS if is_timed else 1]
    ]
    return min(plans, key=_seconds)  # the timeline is the simulator's check of the plan


def _plan_of_layout(
    problem: Problem,
    options: FactorOptions,
    names: tuple[str, ...],
    grid: TileGrid,
    budget: DeviceBudget,
    layout: ResidueLayout,
    rates: Rates | None,
) -> Plan:
    """The plan for one division of memory."""
    owners = balanced_rows(grid.nt, len(names))
    panels = residue_panels(grid.nt, layout.width, layout)
    itemsize, beside = problem.bytes_per_entry or None, kind_of(names[0]).finishes_beside
    programs = ResidueScheduler(grid, owners, panels, layout, itemsize, beside=beside).programs()
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
    )


def choose_tile_size(n: int, budget_bytes: int, kind: DeviceKind) -> int:
    """Tile order: large tiles run faster, but there must be enough of them.

    At least four tile rows, so that little of a diagonal tile's square is wasted, and twenty tiles within the budget, so that
    blocks of tiles are reused.
    """
    for nb in kind.tile_sizes:
        if n >= 4 * nb and budget_bytes - kind.workspace_bytes(nb) >= 20 * 8 * nb * nb:
            return nb
    return kind.tile_sizes[-1]


def prefetch_slots(n_slots: int) -> int:
    """Slots kept free for tiles in transit: an eighth, at most eight, none where every slot is needed."""
    return 0 if n_slots < 2 * LEAST_SLOTS else min(MOST_PREFETCH, max(1, n_slots // 8))


def _device_budget(grid: TileGrid, budget_bytes: int, policy: Policy, name: str) -> DeviceBudget:
    """Slots within the budget, no more than the whole triangle and its prefetch can use."""
    largest = grid.size(0)
    workspace = kind_of(name).workspace_bytes(largest)
    slot_bytes = -(-FP64.itemsize * largest * largest // PAGE_BYTES) * PAGE_BYTES
    needed = min(LEAST_SLOTS, grid.n_tiles) * slot_bytes + workspace
    if budget_bytes < needed:
        smaller = f", or a tile_size smaller than {grid.nb}" if slot_bytes > PAGE_BYTES else ""
        advice = f"give that much or more{smaller}"
        raise BudgetError(f"memory_budget of {name}", needed, budget_bytes, advice)
    n_slots = (budget_bytes - workspace) // slot_bytes
    prefetch = prefetch_slots(n_slots) if policy.overlaps else 0
    return _with_prefetch(DeviceBudget(budget_bytes, slot_bytes, n_slots, 0, workspace), grid, prefetch)


def _with_prefetch(budget: DeviceBudget, grid: TileGrid, prefetch: int) -> DeviceBudget:
    """``budget`` with ``prefetch`` slots kept free for tiles in transit, as far as three tiles are left."""
    n_slots = (budget.budget_bytes - budget.workspace_bytes) // budget.slot_bytes
    n_slots = min(n_slots, grid.n_tiles + prefetch)
    return replace(budget, n_slots=n_slots, prefetch_slots=min(prefetch, max(0, n_slots - LEAST_SLOTS)))


@dataclass(frozen=True)
class _Request:
    """Everything that is settled before panel shapes are chosen."""

    grid: TileGrid
    policy: Policy
    objective: str
    devices: tuple[str, ...]
    budget: DeviceBudget
    rates: Rates | None
    problem: Problem

    @property
    def capacity(self) -> int:
        """Tiles on a device at once, after prefetch."""
        return self.budget.n_slots - self.budget.prefetch_slots

    @property
    def is_timed(self) -> bool:
        """Whether predicted seconds choose among plans."""
        return self.objective == "seconds" and self.rates is not None

    @property
    def finishes_beside(self) -> bool:
        """Whether tiles are finished on a stream of their own."""
        return self.policy.overlaps and kind_of(self.devices[0]).finishes_beside

    @property
    def eviction(self) -> AbstractEvictionPolicy | None:
        """The policy's operand cache."""
        return EVICTION_POLICIES[self.policy.eviction] if self.policy.eviction else None


def _with_default_prefetch(request: _Request) -> _Request:
    """Where seconds count but no rates are known to choose by, as many slots for tiles in transit as an eighth and 16 allow."""
    if not request.finishes_beside or request.is_timed or request.objective == "bytes":
        return request
    prefetch = min(PREFETCH_CHOICES[0], request.budget.n_slots // 8)
    prefetch = max(prefetch, request.budget.prefetch_slots)
    return replace(request, budget=_with_prefetch(request.budget, request.grid, prefetch))


def _best_plan(request: _Request) -> Plan:
    """The plan of the panel shapes that cost least: counted in fetches, then, for seconds, simulated."""
    owners = balanced_rows(request.grid.nt, len(request.devices))
    shapes = [uniform_panels(request.grid.nt, 1, 1)]
    if request.policy.widens_panels:
        shapes = candidate_panels(request.grid.nt, request.capacity, len(request.devices))
    plans: list[Plan] = []
    for panels, schedule in _finalists(request, owners, shapes, FINALISTS if request.is_timed else 1):
        plans.append(_plan_of(request, owners, panels, schedule))
        if _always_computes(plans[-1]):
            break
    if request.is_timed and request.finishes_beside:
        plans.extend(_with_more_prefetch(request, min(plans, key=_seconds)))
    return min(plans, key=_seconds)  # the timeline is the simulator's check of the plan


def _seconds(plan: Plan) -> float:
    """Predicted seconds, 0 without rates."""
    return plan.timeline.seconds


def _with_more_prefetch(request: _Request, best: Plan) -> Iterator[Plan]:
    """``best``'s panels with more slots kept free, as long as that helps: tiles of a row wait for slots of the row before it."""
    schedule = LeftLookingScheduler().schedule(request.grid, best.owners, best.panels)
    for prefetch in PREFETCH_CHOICES:
        other = replace(request, budget=_with_prefetch(request.budget, request.grid, prefetch))
        if prefetch > other.capacity // 4 or _always_computes(best) or _count_fetches(other, schedule, inf) is None:
            return
        plan = _plan_of(other, best.owners, best.panels, schedule)
        if _seconds(plan) >= _seconds(best):
            return
        yield (best := plan)


def _always_computes(plan: Plan) -> bool:
    """Whether the busiest device is next to never without work: the order of its tasks cannot make the run any shorter."""
    if plan.rates is None:
        return True
    busiest = max(_busy_seconds(program, plan.grid, plan.rates) for program in plan.programs)
    return plan.timeline.seconds <= (1 + NEGLIGIBLE_SHARE) * busiest


def _busy_seconds(program: Program | ResidueProgram, grid: TileGrid, rates: Rates) -> float:
    """Seconds of a device's tasks: one after the other, or, beside each other, by the share of its processors that they use."""
    is_shared = StreamKind.FINISH in program.streams
    steps: Sequence[Step | ResidueStep] = program.steps
    return sum(
        rates.seconds(step, grid) * (rates.share(step) if is_shared else 1.0) for step in steps if step.kind is StepKind.COMPUTE
    )


def _finalists(
    request: _Request, owners: Sequence[int], shapes: Sequence[Sequence[Panel]], wanted: int
) -> list[tuple[Sequence[Panel], Schedule]]:
    """The ``wanted`` shapes that fetch least; a count ends early once it cannot be among them."""
    counted: list[tuple[int, Sequence[Panel], Schedule]] = []
    for panels in shapes:
        schedule = LeftLookingScheduler().schedule(request.grid, owners, panels)
        limit = counted[wanted - 1][0] if len(counted) >= wanted else inf
        fetches = _count_fetches(request, schedule, limit) if len(shapes) > 1 else 0
        if fetches is not None:
            counted.append((fetches, panels, schedule))
            counted.sort(key=lambda entry: entry[0])
        if wanted == 1 and fetches == request.grid.n_tiles:
            break  # every tile once: nothing fetches less
    if not counted:
        raise ScheduleError(f"no panel shape fits {request.capacity} tiles")
    return [(panels, schedule) for _, panels, schedule in counted[:wanted]]


def _count_fetches(request: _Request, schedule: Schedule, limit: float) -> int | None:
    """Tiles fetched by all devices, or None when the shapes do not fit or fetch more than ``limit``."""
    counter = FetchCounter(limit)
    try:
        for tasks in schedule.tasks:
            ResidencyPlanner(tasks, request.capacity, request.policy, request.eviction).run(counter)
    except ScheduleError:
        return None
    return counter.fetches


def _programs(request: _Request, panels: Sequence[Panel], schedule: Schedule) -> tuple[Program, ...]:
    """The steps of every device."""
    programs = []
    for tasks in schedule.tasks:
        builder = ProgramBuilder(
            request.grid,
            request.budget.n_slots,
            request.problem.bytes_per_entry or None,
            FP64.itemsize,
            overlaps=request.policy.overlaps,
            finishing=FinishingTasks(request.grid, panels) if request.finishes_beside else None,
        )
        ResidencyPlanner(tasks, request.capacity, request.policy, request.eviction).run(builder)
        programs.append(builder.build())
    if len(programs) == 1 or not request.policy.widens_panels:
        return tuple(programs)  # the paper's policies know no copies between devices
    timeline = simulate(programs, request.grid, request.rates) if request.rates is not None else None
    return with_pulls(programs, None if timeline is None else timeline.starts)


def _executed_flops(request: _Request, schedule: Schedule) -> int:
    """Flops that the kernels of these devices execute; tasks of one kind and shape are computed once."""
    grid, kind = request.grid, kind_of(request.devices[0])
    counts: Counter[tuple[TaskKind, int, int, int]] = Counter()
    examples = {}
    for task in chain.from_iterable(schedule.tasks):
        shape = task.kind, grid.size(task.i), grid.size(task.j), grid.size(task.k)
        counts[shape] += 1
        examples[shape] = task
    return sum(count * kind.executed_flops(examples[shape], grid) for shape, count in counts.items())


def _plan_of(request: _Request, owners: Sequence[int], panels: Sequence[Panel], schedule: Schedule) -> Plan:
    """The plan for one choice of panel shapes."""
    return Plan(
        grid=request.grid,
        policy=request.policy,
        objective=request.objective,
        devices=request.devices,
        owners=tuple(owners),
        panels=tuple(panels),
        budgets=(request.budget,) * len(request.devices),
        programs=_programs(request, panels, schedule),
        rates=request.rates,
        task_counts={kind.name: schedule.count(kind) for kind in TaskKind},
        source=request.problem.source,
        flops_executed=_executed_flops(request, schedule),
    )
