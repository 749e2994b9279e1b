"""Problem of a plan: the matrix, and the bytes that each device may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ooc_chol.calls.machine import Machine, rounded_down
from ooc_chol.config import format_bytes, parse_bytes, whole_pages
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.probing import probe_arrays
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.errors import BudgetError, UnsupportedTypeError
from ooc_chol.formats import COMPLEX128, FP32, FP64, TYPES, PrecisionFormat
from ooc_chol.hardware.registry import default_budget, device_kind
from ooc_chol.interfaces import NARROW_BUFFERS, ArraySpec
from ooc_chol.kernels.kinds import AbstractKernelKind
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.precision.certified import is_certifiable
from ooc_chol.precision.norms import PROBES
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.bounds import compulsory_bytes, tile_bytes_of
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: The part of a budget that random vectors and products with them may take beside a run.
PROBES_PART = 16
#: Measured rates for a grid of tiles, or None where there are none.
RatesAt: TypeAlias = Callable[[TileGrid], Rates | None]
#: Candidates whose plans are simulated when seconds are to be least, where that is quick.
FINALISTS = 3
#: Most steps of all plans that are made to be compared: building and simulating so many takes about 0.3 seconds. Where there are
#: more, closed forms choose, and the plan that they choose is the only one that is made.
COMPARED_STEPS = 24_000


@dataclass(frozen=True)
class Problem:
    """Facts of A for the planner."""

    n: int  #: Order of the matrix
    bytes_per_entry: int  #: Bytes that reading one entry moves; 0 when a tile function makes A on the device
    source: str  #: Kind of source, for the plan's page
    #: Formats of the tiles; None stores and computes all in FP64. Its grid is that of the plan.
    precision: PrecisionMap | None = None
    given: frozenset[tuple[int, int]] = frozenset()  #: Tiles of L that are in the store already, from a run that failed
    home: str | None = None  #: The device in whose memory A lies; None for the host, and for what is read or made
    may_be_whole: bool = False  #: Whether L may be one tile: it goes to memory of its own
    keeps_on_device: bool = False  #: Whether L stays where it is made
    fmt: PrecisionFormat = FP64  #: Format of what is stored and computed, but for tiles that ``precision`` says otherwise of
    in_file: bool = False  #: Whether L goes to a file
    #: Of an L in a file the tiles that an earlier run has kept in host memory as well; None where the planner chooses them
    host_tiles: frozenset[tuple[int, int]] | None = None
    #: The tiles that the run makes; None for all. What they need of L is given then, see :meth:`Window.needs`.
    window: Window | None = None

    def of_window(self, window: Window) -> Problem:
        """The part of the problem that makes the tiles of ``window``, where all that they need of L is in the store."""
        return replace(self, window=window, given=window.needs(), may_be_whole=False)

    def n_tiles(self, grid: TileGrid) -> int:
        """How many tiles of L a run may meet: all, or those that a window has and needs."""
        return grid.n_tiles if self.window is None else self.window.n_tiles + len(self.given)

    def stored_bytes(self, grid: TileGrid) -> Callable[[tuple[int, int]], int]:
        """Bytes of each tile of L on a link and in its store."""
        return tile_bytes_of(grid, self.fmt) if self.precision is None else self.precision.stored_bytes

    def kept_on(self, n_devices: int) -> int:
        """Most bytes of L that stay on each device; 0 where L goes elsewhere."""
        return self.most_kept_on(n_devices) if self.keeps_on_device else 0

    def most_kept_on(self, n_devices: int) -> int:
        """Most bytes of an L on each device that stays there."""
        kept = kept_bytes(self.n, n_devices, self.fmt)
        return kept if self.precision is None else min(kept, _kept_in_formats(self.precision, kept, n_devices))

    @classmethod
    def of(cls, source: AbstractSource, options: FactorOptions, *, may_be_whole: bool = False) -> Problem:
        """The problem that ``source`` poses."""
        fmt = format_asked(options, source.dtype)
        return cls(source.n, source.bytes_per_entry, source.name, home=source.home, may_be_whole=may_be_whole, fmt=fmt)


def format_asked(options: FactorOptions, of_a: np.dtype[Any]) -> PrecisionFormat:
    """The format in which a matrix of entries of a type is factored; ``UnsupportedTypeError`` where an option is not for it."""
    double = COMPLEX128 if of_a.kind == "c" else FP64
    fmt = double if options.dtype is None else TYPES[options.dtype]
    if double.is_complex and not fmt.is_complex:
        advice = "the factor of a Hermitian matrix is complex; where all imaginary parts are zero, pass A.real"
        raise UnsupportedTypeError(f"dtype={fmt.dtype.name!r}", of_a.name, advice)
    if fmt == FP64:
        return fmt
    if options.precision_threshold is not None:
        raise UnsupportedTypeError("precision_threshold", fmt.dtype.name, "leave it out; mixed precision is of float64 alone")
    return fmt


def narrow_bytes(problem: Problem, kind: AbstractKernelKind) -> int:
    """Bytes that a device needs to widen and round tiles of narrow formats: GPUs do so, on the host the stores do."""
    if problem.precision is None or not kind.widens_stored:
        return 0
    return NARROW_BUFFERS * whole_pages(problem.precision.largest_stored_bytes)


def most_narrow_bytes(grid: TileGrid, options: FactorOptions, kind: AbstractKernelKind) -> int:
    """As :func:`narrow_bytes` before formats are known: those of a tile in the widest of narrow formats."""
    if options.precision_threshold is None or not kind.widens_stored:
        return 0
    return NARROW_BUFFERS * whole_pages(FP32.stored_bytes(grid.size(0) ** 2))


def probes_beside(
    problem: Problem, kind: AbstractKernelKind, *, budget_bytes: int, needed_bytes: int, slot_bytes: int
) -> tuple[ArraySpec, ...]:
    """Arrays for the certificate on each device; none where they would take too much, or say nothing, or where it must read L.

    ``needed_bytes`` are the least that a plan takes without them. What is kept from an earlier run no device sees again. Vectors
    travel through buffers of ``slot_bytes``, a row of all of them at least.
    """
    precision = problem.precision
    if precision is None or problem.given or problem.window is not None or slot_bytes < FP64.itemsize * 2 * PROBES:
        return ()
    if not is_certifiable(precision.norms, precision.threshold):
        return ()
    arrays = probe_arrays(problem.n, 2 * PROBES, workspace_bytes=kind.product_workspace_bytes)
    return arrays if needed_bytes + PROBES_PART * array_bytes(arrays) <= budget_bytes else ()


def array_bytes(arrays: Iterable[ArraySpec]) -> int:
    """Bytes of arrays on a device."""
    return sum(spec.nbytes for spec in arrays)


def precision_asked(options: FactorOptions) -> tuple[float, str] | None:
    """Threshold and rule of a call; None where it is in one format."""
    return None if options.precision_threshold is None else (options.precision_threshold, options.precision_rule)


def budget_of(options: FactorOptions, names: tuple[str, ...], problem: Problem | None = None) -> int:
    """Bytes of each device's budget: what ``options`` say, or what is free on all of ``names``; less an L that stays there."""
    told = options.memory_budget
    budget = rounded_down(default_budget(names)) if told is None else parse_bytes(told, "memory_budget")
    if problem is None or not problem.keeps_on_device:
        return budget
    if device_kind(names[0]).is_in_host_memory:
        raise ValueError(f"store='device' keeps L on GPUs, but {names[0]} is in host memory: leave store out, L is there then")
    kept = problem.kept_on(len(names))
    if kept >= budget:
        advice = "keep L in host memory (store='host')"
        raise BudgetError(f"memory_budget of {names[0]} for an L that stays there", kept, budget, advice)
    return budget - kept


def excess_of_budget(options: FactorOptions, machine: Machine) -> str | None:
    """Warning about a budget that is more than the memory of the machine's devices; None where they have as much."""
    if options.memory_budget is None:
        return None
    budget = parse_bytes(options.memory_budget, "memory_budget")
    if budget <= SURELY_FREE:
        return None
    names = machine.names
    count = len(names) if machine.kind.shares_processor else 1
    total = min(_total(name) for name in names)
    if budget * count <= total:
        return None
    each = f" for each of {count} devices" if count > 1 else ""
    return (
        f"memory_budget is {format_bytes(budget)}{each}, but {names[0]} has {format_bytes(total)} in all: a plan that needs more "
        "than is free fails or swaps; leave memory_budget out to take what is free"
    )


@cache
def _total(name: str) -> int:
    """Bytes of memory that a device has, which never changes."""
    return device_kind(name).memory(name)[1]


def kept_bytes(n: int, n_devices: int, fmt: PrecisionFormat = FP64) -> int:
    """Most bytes of L that one device keeps, whatever the tiles: rows are dealt so that work is equal, not bytes."""
    square = fmt.itemsize * n * (n + min(n, _LARGEST_TILE))
    return whole_pages(int(square / 2 / n_devices * (1.1 if n_devices > 1 else 1.0)))


def _kept_in_formats(precision: PrecisionMap, wide: int, n_devices: int) -> int:
    """Most bytes of L that one device keeps in these formats, or in others of about as many, of ``wide`` in FP64.

    A row that is computed again takes its wider tiles beside.
    """
    grid = precision.grid
    mean = round(precision.total_bytes / compulsory_bytes(grid, 1)) + 0.5
    uneven = 1.25 if n_devices > 1 else 1.0
    return whole_pages(int(uneven * mean / FP64.itemsize * wide)) + FP64.itemsize * grid.nb * grid.n


def settled(options: FactorOptions, machine: Machine) -> FactorOptions:
    """Options with the names of the devices and bytes of their budget, what is free asked for once."""
    told = options.memory_budget
    budget = machine.steady_budget_bytes if told is None else parse_bytes(told, "memory_budget")
    return replace(options, devices=machine.names, memory_budget=budget)


def machine_of(options: FactorOptions) -> Machine:
    """The machine that options name, here or elsewhere, for who has no call of a front door."""
    return Machine(options.devices, options.memory_budget, must_exist=False)


#: Bytes that are there, or nothing is: asking the system takes longer than a small factorization.
SURELY_FREE = 32 << 20
#: Largest order of tiles on GPUs.
_LARGEST_TILE = 4096


def seconds_of(plan: Plan) -> float:
    """Predicted seconds, 0 without rates."""
    return plan.timeline.seconds
