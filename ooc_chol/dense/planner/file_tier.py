"""An L in a file, of which host memory keeps what it has room for: which tiles, and the memory that the others pass through.

All tiles end in the file. Those that are kept stay in host memory from when they are written until the run ends, and their place
is nobody else's before: what is fetched most often should have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ooc_chol.calls.machine import rounded_down
from ooc_chol.config import parse_bytes, whole_pages
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import Problem
from ooc_chol.dense.programs.steps import Program
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import device_kind, memory_info
from ooc_chol.tasks.operations import StepKind, StreamKind
from ooc_chol.tasks.tiling import Index

#: Part of what is free in host memory that an L in a file may take there when a GPU factors and no ``host_budget`` is given.
_FREE_PART = 2
#: Part of what is free in host memory that the files of A and L may take of the system's cache when no budget is given. What does
#: not fit gains nothing there: panels go through their files in circles, and each page would leave before it is read again.
_CACHED_PART = 2


def host_budget_of(options: FactorOptions, names: Sequence[str]) -> int:
    """Most bytes of host memory for an L in a file: what ``options`` say, else half of what is free where a GPU factors.

    None of it on the host: its page cache does what keeping tiles would do. By nominal rates page-locked memory gives a
    GPU its tiles twelve times as fast as a thread that reads them from the page cache.
    """
    if options.host_budget is not None:
        return parse_bytes(options.host_budget, "host_budget")
    if device_kind(names[0]).is_in_host_memory:
        return 0
    return rounded_down(memory_info("host:0")[0] // _FREE_PART)


def stays_out_of_cache(options: FactorOptions, nbytes: int) -> bool:
    """Tell whether files of so many bytes are read and written past the system's cache: host memory is bounded, or too small."""
    return options.host_budget is not None or nbytes > memory_info("host:0")[0] // _CACHED_PART


def with_file_tier(plan: Plan, problem: Problem, options: FactorOptions, budget: int) -> Plan:
    """``plan``, whose L goes to a file, with the tiles that host memory keeps of it in ``budget`` bytes.

    ``BudgetError`` where staging has no room in them.
    """
    staging = staging_bytes_of(plan)
    if options.host_budget is not None and staging > budget:
        advice = "give that much or more, a smaller tile_size, or none to let the planner choose"
        raise BudgetError("host_budget for tiles on their way between file and device", staging, budget, advice)
    kept = problem.host_tiles
    if kept is None and plan.policy.keeps_accumulator:
        kept = chosen_tiles(fetch_counts(plan.programs), budget - staging, plan.stored_tile_bytes, plan.given)
    # Tiles that are stored before they are final are written twice, and the file might see the later value first: none is kept.
    kept = kept or frozenset()
    return replace(plan, in_file=True, host_tiles=kept, staging_bytes=staging, host_budget_bytes=budget)


def without_file_tier(plan: Plan, *, in_file: bool) -> Plan:
    """``plan``, made for another place of L: of one in a file nothing is kept in host memory."""
    if plan.in_file == in_file:
        return plan
    other = replace(plan, in_file=in_file, host_tiles=frozenset(), staging_bytes=0, host_budget_bytes=0)
    return replace(other, staging_bytes=staging_bytes_of(other)) if in_file else other


def fetch_counts(programs: Iterable[Program]) -> Counter[Index]:
    """How often the devices fetch each tile of L."""
    fetch = StepKind.FETCH
    return Counter(step.tile for program in programs for step in program.steps if step.kind is fetch and step.block.version > 0)


def chosen_tiles(
    counts: Mapping[Index, int], nbytes: int, stored_bytes: Callable[[Index], int], given: Collection[Index] = ()
) -> frozenset[Index]:
    """The tiles to keep in ``nbytes`` of host memory: those that are fetched most often, of equals the lower left ones.

    Each saves as many readings of its bytes as it has fetches, so that fetches are the gain of a byte. Tiles that are ``given``
    are never written, and so never kept.
    """
    chosen: list[Index] = []
    for index in sorted(counts, key=lambda index: (-counts[index], index[1], -index[0])):
        if (needed := whole_pages(stored_bytes(index))) <= nbytes and index not in given:
            chosen.append(index)
            nbytes -= needed
    return frozenset(chosen)


def staging_bytes_of(plan: Plan) -> int:
    """Bytes of host memory through which tiles pass between file and devices, all devices together.

    On a GPU each stream that copies tiles has a page-locked buffer of a slot. The host reads into slots, and only what is stored
    in a narrower format than it is computed in passes through a buffer of its stored size.
    """
    narrow = 0 if plan.precision is None else whole_pages(plan.precision.largest_stored_bytes)
    each = max(plan.budgets[0].slot_bytes, narrow)
    if device_kind(plan.devices[0]).is_in_host_memory:
        each = narrow
    return each * sum(len(_copying_streams(program)) for program in plan.programs) if each else 0


def _copying_streams(program: Program) -> set[StreamKind]:
    """The streams on which tiles come from a tier or go there."""
    moves = (StepKind.FETCH, StepKind.WRITE)
    return {step.stream for step in program.steps if step.kind in moves}
