"""Ways to factor within a threshold, FP64 among them, and the seconds of each by closed forms: nothing is planned for that."""

from __future__ import annotations

from dataclasses import replace

from ooc_chol.calls.machine import Machine
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.kept_plans import kept_estimate
from ooc_chol.dense.planner.native import least_native_seconds, native_request
from ooc_chol.dense.planner.problem import Problem, RatesAt
from ooc_chol.dense.planner.residues import estimated_residue_seconds
from ooc_chol.dense.planner.whole import whole_device
from ooc_chol.errors import BudgetError, PlanSizeError
from ooc_chol.kernels.registry import kind_of
from ooc_chol.precision.norms import PROBES
from ooc_chol.tasks.tiling import TileGrid

#: How much longer than by closed forms runs take in native arithmetic, whose launches and copies these leave out, and in mixed
#: precision, where kernels that round and measure tiles come beside (measured on an H100: 1.05 to 1.25 of what FP64 takes more).
_NATIVE_LOSS, _MIXED_LOSS = 1.1, 1.1


def fp64_seconds(problem: Problem, options: FactorOptions, rates_at: RatesAt, machine: Machine) -> float | None:
    """Predicted seconds in FP64; 0 where the matrix is best one tile, which nothing that is cut into tiles is faster than."""
    options = replace(options, precision_threshold=None, half_products=None)
    problem = replace(problem, precision=None, given=frozenset())

    def ask(budgeted: FactorOptions, rates: RatesAt) -> float | None:
        return _fp64_seconds(problem, budgeted, rates, machine)

    return kept_estimate("fp64", problem, options, rates_at, ask, machine=machine)


def _fp64_seconds(problem: Problem, options: FactorOptions, rates_at: RatesAt, machine: Machine) -> float | None:
    """As :func:`fp64_seconds`, reckoned."""
    names = machine.names
    if whole_device(problem, options, machine) is not None:
        return 0.0
    kind, found = kind_of(names[0]), list[float]()
    may_be_residue = options.policy == "planned" and kind.gains_by_residues
    if options.fp64 == "residue" or (options.fp64 == "auto" and may_be_residue):
        try:
            seconds = estimated_residue_seconds(problem, options, names, rates_at)
        except (BudgetError, ValueError):  # too little memory, too many steps, or tiles too small
            seconds = None
        if seconds is not None:
            found.append(seconds)
    if options.fp64 != "residue":
        try:
            request = native_request(problem, options, names, rates_at)
        except (BudgetError, PlanSizeError):
            return min(found, default=None)
        if request.rates is not None:
            found.append(_NATIVE_LOSS * least_native_seconds(request))
    return min(found, default=None)


def mixed_seconds(problem: Problem, options: FactorOptions, rates_at: RatesAt, machine: Machine) -> float | None:
    """Predicted seconds in mixed precision, of the engine, tiles and moduli that ``options`` name, with the certificate."""
    what, precision = "mixed", problem.precision
    if precision is not None:  # maps whose tiles take about as many bytes take as long
        what = f"{what}, {precision.total_bytes // precision.grid.n_tiles:.1g} bytes, {precision.largest_stored_bytes}"
    plain = replace(problem, precision=None)

    def ask(budgeted: FactorOptions, rates: RatesAt) -> float | None:
        return _mixed_seconds(problem, budgeted, rates, machine.names)

    return kept_estimate(what, plain, options, rates_at, ask, machine=machine)


def _mixed_seconds(problem: Problem, options: FactorOptions, rates_at: RatesAt, names: tuple[str, ...]) -> float | None:
    """As :func:`mixed_seconds`, reckoned."""
    assert options.tile_size is not None
    try:
        if options.fp64 == "residue":
            seconds = estimated_residue_seconds(problem, options, names, rates_at)
        else:
            request = native_request(problem, options, names, rates_at)
            seconds = None if request.rates is None else _NATIVE_LOSS * least_native_seconds(request)
    except (BudgetError, PlanSizeError):
        return None
    grid = TileGrid(problem.n, options.tile_size)
    rates = rates_at(grid)
    if seconds is None or rates is None:
        return None
    return _MIXED_LOSS * seconds + _probing_flops(grid) / rates.gemm / len(names)


def pass_seconds(problem: Problem, grid: TileGrid, rates_at: RatesAt, machine: Machine) -> float:
    """Predicted seconds of the pass over A that norms take; 0 without rates."""
    if (rates := rates_at(grid)) is None:
        return 0.0
    entries = grid.n_tiles * grid.nb**2
    moving = entries / rates.generate if problem.bytes_per_entry == 0 else entries * problem.bytes_per_entry / rates.source
    return (moving + _probing_flops(grid) / rates.gemm) / len(machine.names)


def _probing_flops(grid: TileGrid) -> float:
    """Those of the products of a triangle's tiles with both sets of probes."""
    return 2.0 * grid.n_tiles * grid.nb**2 * 2 * PROBES
