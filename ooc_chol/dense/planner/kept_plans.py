"""Plans and estimates that a process keeps: a later call of the same shape takes one that was made before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, final

from ooc_chol.calls.machine import Machine
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.file_tier import host_budget_of
from ooc_chol.dense.planner.limit import LEAST_MOST_STEPS, most_steps
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import Problem, RatesAt, budget_of, settled
from ooc_chol.dense.planner.residues import half_share_of
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.steps import Program, Step
from ooc_chol.formats import FORMATS
from ooc_chol.interfaces import BlockKey
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.process.fork_safety import new_lock, renewed_in_child
from ooc_chol.schedulers.ownership import window_rows
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.operations import STEP, Place, Pool
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: Most steps of all plans that are kept: about 135 MB of memory, 673 bytes a step.
MOST_KEPT_STEPS = 200_000
#: Most plans that are kept.
MOST_KEPT_PLANS = 16
#: Most plans of windows.
MOST_KEPT_WINDOW_PLANS = 512
#: By how much two measurements of one tile function's rate differ, mostly by chance: no plan is made anew for that.
GENERATION_NOISE = 1.25

#: How near what is free now must be to what was free when a plan was made, for it to serve: more memory may have a better one.
_NEAR = 1.125

#: Steps of the share of products that may run in FP16 at which another plan may be better.
_SHARES = 8

#: The devices that a plan may be for, all of them first.
Offered: TypeAlias = tuple[tuple[str, ...], ...]

_FORMAT_NUMBERS = {fmt.name: number for number, fmt in enumerate(FORMATS.values())}


@dataclass(frozen=True)
class _Kept:
    """A plan, and the rates that it was made with by the tiles that they are for."""

    plan: Plan
    rates: tuple[tuple[TileGrid, Rates | None], ...]
    steps: int


@final
class AskedRates:
    """Rates as a planner asks for them, each noted."""

    def __init__(self, rates_at: RatesAt) -> None:
        self._rates_at = rates_at
        self.asked: dict[TileGrid, Rates | None] = {}

    def __call__(self, grid: TileGrid) -> Rates | None:
        """The rates for a grid of tiles."""
        if grid not in self.asked:
            self.asked[grid] = self._rates_at(grid)
        return self.asked[grid]


@final
class KeptPlans:
    """The plans used last, up to a number of steps and of plans.

    A plan is taken again for a problem that is the same in everything that planning looks at: the order of A and how it is read,
    the options, the devices and the bytes of their budget, the rates measured for them, and in mixed precision the formats of
    all tiles. The norms behind these may be others; and of products through residues the formats, too, where tiles take about as
    many bytes on average: no step depends on them.
    """

    def __init__(self, most_steps: int = MOST_KEPT_STEPS, most_plans: int = MOST_KEPT_PLANS) -> None:
        self._most_steps, self._most_plans = most_steps, most_plans
        self._plans: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._steps = 0  # of all plans
        self._lock = new_lock()

    def find(
        self, problem: Problem, options: FactorOptions, offered: Offered, rates_at: AskedRates, *, is_told: bool = True
    ) -> Plan | None:
        """A plan made for the same before, or None; where no budget ``is_told``, for about as much free memory that holds it."""
        if _is_rest(problem):
            return None
        for window in dict.fromkeys(_windows(problem, options)):
            key = _key_of(problem, options, offered, window=window, is_told=is_told)
            with self._lock:
                if (kept := self._plans.get(key)) is not None:
                    self._plans.move_to_end(key)
            if kept is None or not all(_are_alike(rates, rates_at(grid)) for grid, rates in kept.rates):
                continue
            if not is_told and not _serves(kept.plan, budget_of(options, offered[0], problem)):
                continue
            if kept.steps > LEAST_MOST_STEPS and kept.steps > most_steps():
                return None  # the planner says what is wrong
            if problem.window is None:
                return _for_norms_of(kept.plan, problem)
            if (plan := shifted_plan(kept.plan, problem)) is not kept.plan:
                own = _key_of(problem, options, offered, window=problem.window, is_told=is_told)
                self._keep(own, replace(kept, plan=plan))  # a task comes again, in the next call
            return plan
        return None

    def keep(
        self,
        problem: Problem,
        options: FactorOptions,
        offered: Offered,
        rates: AskedRates,
        plan: Plan,
        *,
        is_told: bool = True,
    ) -> None:
        """Keep ``plan``, and let go those used longest ago; a plan for what is left of a run that failed is not kept."""
        steps = sum(len(program.steps) for program in plan.programs)
        if _is_rest(problem) or steps > self._most_steps:
            return
        _, common = _windows(problem, options)
        key = _key_of(problem, options, offered, window=common, is_told=is_told)
        self._keep(key, _Kept(plan, tuple(rates.asked.items()), steps))

    def _keep(self, key: Hashable, kept: _Kept) -> None:
        """Keep a plan by its key, and let go those used longest ago."""
        with self._lock:
            before = self._plans.pop(key, None)
            self._plans[key] = kept
            self._steps += kept.steps - (0 if before is None else before.steps)
            while len(self._plans) > self._most_plans or self._steps > self._most_steps:
                _, oldest = self._plans.popitem(last=False)
                self._steps -= oldest.steps

    def clear(self) -> None:
        """Let all plans go."""
        with self._lock:
            self._plans.clear()
            self._steps = 0


#: The plans of this process.
KEPT_PLANS = KeptPlans()
#: Its plans of windows: they are small, and many belong to one factorization.
KEPT_WINDOW_PLANS = KeptPlans(most_plans=MOST_KEPT_WINDOW_PLANS)
for _plans in (KEPT_PLANS, KEPT_WINDOW_PLANS):
    renewed_in_child(_plans.clear)


def _is_rest(problem: Problem) -> bool:
    """Tell whether a plan is for what is left of a run that failed; what a window is given belongs to the window."""
    return problem.window is None and bool(problem.given)


def _serves(plan: Plan, budget_bytes: int) -> bool:
    """Tell whether a plan made for what was free is one for what is free now."""
    is_near = max(plan.budget_bytes, budget_bytes) <= _NEAR * min(plan.budget_bytes, budget_bytes)
    return is_near and plan.needed_bytes <= budget_bytes


def _windows(problem: Problem, options: FactorOptions) -> tuple[Window | None, Window | None]:
    """The window of a problem, and the one that stands for all like it."""
    return problem.window, common_window(problem, options.tile_size or problem.n)


def _key_of(problem: Problem, options: FactorOptions, offered: Offered, *, window: Window | None, is_told: bool) -> Hashable:
    """All that a plan depends on but for rates, and for a budget that is not told."""
    names = offered[0]
    # An L in memory must fit into its host_budget, whatever the plan; of one in a file the budget decides what is kept.
    host_budget = (host_budget_of(options, names), options.host_budget is None) if problem.in_file else None
    budget = budget_of(options, names) if is_told else None
    asked = replace(options, devices=names, memory_budget=budget, host_budget=None, strict=True)
    precision, formats = problem.precision, None
    if precision is not None:
        formats = precision.grid, precision.threshold, precision.rule, precision.moduli, _formats_key(problem, options, precision)
    where = problem.keeps_on_device, problem.in_file, host_budget, problem.host_tiles
    return problem.n, problem.bytes_per_entry, problem.source, where, problem.fmt, asked, offered, formats, window


def _formats_key(problem: Problem, options: FactorOptions, precision: PrecisionMap) -> Hashable:
    """Formats as far as the steps of a plan depend on them."""
    if options.fp64 != "residue" or problem.in_file:
        return bytes(_FORMAT_NUMBERS[fmt.name] for fmt in (*precision.formats, *precision.products))
    mean = precision.total_bytes / compulsory_bytes(precision.grid, 1)
    share = half_share_of(problem)
    return round(mean), precision.largest_stored_bytes, None if share is None else round(_SHARES * share)


def _are_alike(one: Rates | None, other: Rates | None) -> bool:
    """Tell whether two sets of rates are the same, but for chance in that of a tile function."""
    if one is None or other is None:
        return one is other
    is_near = max(one.generate, other.generate) <= GENERATION_NOISE * min(one.generate, other.generate)
    return is_near and replace(one, generate=other.generate) == other


def _for_norms_of(plan: Plan, problem: Problem) -> Plan:
    """The kept plan with the norms of ``problem``."""
    if problem.precision is None or problem.precision is plan.precision:
        return plan
    return plan.with_norms(problem.precision)


#: Most answers that are kept.
MOST_KEPT = 64
T = TypeVar("T")

_kept: OrderedDict[Hashable, tuple[Any, tuple[tuple[TileGrid, Rates | None], ...]]] = OrderedDict()
_lock = new_lock()
renewed_in_child(_kept.clear)


def kept_estimate(
    what: str,
    problem: Problem,
    options: FactorOptions,
    rates_at: RatesAt,
    ask: Callable[[FactorOptions, RatesAt], T],
    *,
    machine: Machine,
) -> T:
    """Answer of ``ask``, or that on the same problem, options, free bytes and rates before; what it raises is not kept."""
    options = settled(options, machine)
    key = what, problem, options
    with _lock:
        found = _kept.get(key)
    if found is not None and all(rates_at(grid) == rates for grid, rates in found[1]):
        answer: T = found[0]
        return answer
    asked: dict[TileGrid, Rates | None] = {}

    def rates_noted(grid: TileGrid) -> Rates | None:
        asked[grid] = rates_at(grid)
        return asked[grid]

    answer = ask(options, rates_noted)
    with _lock:
        _kept[key] = answer, tuple(asked.items())
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return answer


_ROWS = Pool.ROWS
_new_tuple = tuple.__new__


def common_window(problem: Problem, nb: int) -> Window | None:
    """The window that stands for all whose plans are the same but for their rows; None for a run over all of A.

    These are windows below their columns, of whole tiles of one format: all steps move and compute as much.
    """
    window = problem.window
    if window is None or window.has_diagonal or problem.precision is not None or window.rows.stop * nb > problem.n:
        return window
    return window.below()


def shifted_plan(plan: Plan, problem: Problem) -> Plan:
    """``plan`` for the window of ``problem``, which has the same :func:`common_window`; in a tenth of the time of planning."""
    window, before = problem.window, plan.window
    assert window is not None and before is not None
    if window == before:
        return plan
    first, distance = before.rows.start, window.rows.start - before.rows.start
    programs = tuple(_shifted_program(program, first, distance) for program in plan.programs)
    owners = window_rows(plan.grid.nt, window, len(plan.devices))
    other = replace(plan, programs=programs, owners=owners, window=window, given=problem.given)
    for name in {"timeline", "flops", "half_share"} & vars(plan).keys():
        vars(other)[name] = vars(plan)[name]
    return other


def _shifted_program(program: Program, first: int, distance: int) -> Program:
    """A program on rows so much further down, of those from ``first`` on: the others are rows of the window's columns."""

    def block(key: BlockKey) -> BlockKey:
        name, (row, column), version = key
        if row < first or name == STEP:
            return key
        # Only a diagonal tile of A has a column there, too; a chunk's number is less than that of any column.
        moved: BlockKey = _new_tuple(
            BlockKey, (name, (row + distance, column + distance if column >= first else column), version)
        )
        return moved

    def places(those: tuple[Place, ...]) -> tuple[Place, ...]:
        if all(one.pool is not _ROWS for one in those):
            return those
        return tuple([Place(_ROWS, one.slot + distance) if one.pool is _ROWS and one.slot > first else one for one in those])

    def step(one: Step) -> Step:
        kind, stream, key, operation, reads, writes, *middle, waits, awaits, resident, announced = one
        awaited = tuple(map(block, awaits)) if awaits else awaits
        facts = (kind, stream, block(key), operation, places(reads), places(writes), *middle, waits, awaited, resident, announced)
        moved: Step = _new_tuple(Step, facts)
        return moved

    return replace(program, steps=tuple(map(step, program.steps)))
