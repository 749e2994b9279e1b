"""Plans of matrices that are one tile: below some order nothing is gained by cutting them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Protocol

from ooc_chol.calls.machine import Machine
from ooc_chol.config import parse_bytes, whole_pages
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import DeviceBudget, Plan
from ooc_chol.dense.planner.problem import SURELY_FREE, Problem, RatesAt
from ooc_chol.dense.programs.layouts import TileSlots, WholeMatrix, slot_bytes_of
from ooc_chol.dense.programs.policy import policy_named
from ooc_chol.dense.programs.steps import Program
from ooc_chol.dense.programs.tile_program import TileProgram
from ooc_chol.hardware.registry import default_budget, device_kind
from ooc_chol.kernels.registry import kind_of
from ooc_chol.tasks.bounds import tile_bytes_of
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid, TileIndex

#: Order up to which a matrix in host memory stays there when no device is named: LAPACK is done before a GPU has been reached.
MOST_ON_HOST = 256
#: The host device that serves those.
_HOST = "host:0"


def whole_device(problem: Problem, options: FactorOptions, machine: Machine) -> str | None:
    """The device on which ``problem`` is best factored as one tile; None where it is better cut, or options ask for that."""
    if not problem.may_be_whole or problem.precision is not None or problem.given or problem.window is not None:
        return None
    if not _leaves_open(options):
        return None
    name = _device(problem, options, machine)
    if name is not None and problem.keeps_on_device and device_kind(name).is_in_host_memory:
        return None  # the planner says why
    if name is None or problem.n > kind_of(name).whole_order(problem.source, keeps_on_device=problem.keeps_on_device):
        return None
    needed, _ = kind_of(name).whole_layout(problem.n, problem.fmt)
    stored = whole_pages(problem.fmt.itemsize * problem.n**2)
    if (
        not problem.keeps_on_device
        and options.host_budget is not None
        and stored > parse_bytes(options.host_budget, "host_budget")
    ):
        return None
    if options.memory_budget is not None:
        return name if needed <= parse_bytes(options.memory_budget, "memory_budget") else None
    return name if stored <= SURELY_FREE or needed <= default_budget([name]) else None


def _leaves_open(options: FactorOptions) -> bool:
    """Tell whether options leave open how the matrix is cut, and in which arithmetic FP64 is computed."""
    return (
        options.tile_size is None
        and options.policy == "planned"
        and options.fp64 in ("auto", "native")
        and options.moduli is None
        and options.precision_threshold is None
    )


def _device(problem: Problem, options: FactorOptions, machine: Machine) -> str | None:
    """The one device: that which is named, that of A, or the first; None where several are named."""
    if options.devices is None:
        if problem.home is not None:
            return problem.home
        return _HOST if is_for_host(problem, options) and not problem.keeps_on_device else machine.names[0]
    return machine.names[0] if len(machine.names) == 1 else None


class Facts(Protocol):
    """Facts of A by which a device is chosen where none is named: those of a problem."""

    @property
    def n(self) -> int:
        """Order of the matrix."""

    @property
    def source(self) -> str:
        """Kind of source."""

    @property
    def home(self) -> str | None:
        """The device in whose memory A lies."""


def is_for_host(problem: Facts, options: FactorOptions) -> bool:
    """Tell whether a matrix is read on the host and so small that it is factored there, as no device is named."""
    is_there = problem.home is None and problem.source != "function"
    return options.devices is None and is_there and problem.n <= MOST_ON_HOST


def make_whole_plan(problem: Problem, options: FactorOptions, name: str, rates_at: RatesAt) -> Plan:
    """The plan of one tile: read or made, factored, written.

    Where a library's routine factors, no seconds are predicted: rates are those of our kernels. On the host L is made in place.
    """
    grid = TileGrid(problem.n, problem.n)
    needed, routine = kind_of(name).whole_layout(problem.n, problem.fmt)
    slot = slot_bytes_of(grid, problem.fmt)
    needed = max(needed, slot)
    program = _program(problem, grid, slot)
    if routine is not None:
        program = replace(program, layout=WholeMatrix(slot, routine))
    rates = rates_at(grid) if routine is None else None
    budget = needed if options.memory_budget is None else parse_bytes(options.memory_budget, "memory_budget")
    flops = program.flops
    return Plan(
        grid=grid,
        policy=policy_named(options.policy),
        objective=options.objective,
        devices=(name,),
        owners=(0,),
        panels=(Panel(0, 1, 1),),
        budgets=(DeviceBudget(budget, slot, n_slots=1, prefetch_slots=0, workspace_bytes=needed - slot),),
        programs=(program,),
        rates=None if rates is None else replace(rates, write=inf),
        task_counts={kind.name: int(kind is TaskKind.POTRF) for kind in TaskKind},
        source=problem.source,
        flops_executed=flops,
        fmt=problem.fmt,
        kept_bytes=problem.kept_on(1),
    )


def _program(problem: Problem, grid: TileGrid, slot_bytes: int) -> Program:
    """The steps of the one tile, one after the other."""
    builder = TileProgram(
        grid,
        TileSlots(1, slot_bytes),
        source_itemsize=problem.bytes_per_entry or None,
        stored_bytes=problem.stored_bytes(grid),
        held_bytes=tile_bytes_of(grid, problem.fmt),
        overlaps=False,
        flops_factor=problem.fmt.flops_factor,
    )
    index = TileIndex(0, 0)
    builder.fetch(index, 0)
    builder.compute(Task(TaskKind.POTRF, 0, 0, 0))
    builder.write(index, 1)
    builder.evict(index)
    return builder.build()
