"""From options to a plan: engine, tile size, budgets, panel shapes, programs. Runs nothing."""

from __future__ import annotations

from dataclasses import replace

from ooc_chol.config import FactorOptions, default_moduli
from ooc_chol.errors import BudgetError
from ooc_chol.machine import kind_of, resolve_devices
from ooc_chol.planner.native import choose_tile_size, make_native_plan, prefetch_slots
from ooc_chol.planner.problem import Problem, RatesAt, budget_of
from ooc_chol.planner.residues import make_residue_plan, residue_grid
from ooc_chol.planning.plan import Plan
from ooc_chol.tiling import TileGrid

__all__ = ["Problem", "RatesAt", "choose_tile_size", "make_plan", "make_residue_plan", "mixed_engine", "prefetch_slots"]

#: Tile rows that a matrix in mixed precision should have: formats are chosen tile by tile.
MIXED_ROWS = 16
#: Moduli for which the least memory of products through residues is asked before those that a threshold needs are known.
MIXED_MODULI = 8


def make_plan(problem: Problem, options: FactorOptions, rates_at: RatesAt) -> Plan:
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
    native = make_native_plan(problem, options, names, rates_at)
    if options.fp64 == "native" or options.policy != "planned" or kind_of(names[0]).name == "host":
        return native
    return _faster(native, problem, options, names, rates_at)


def _faster(native: Plan, problem: Problem, options: FactorOptions, names: tuple[str, ...], rates_at: RatesAt) -> Plan:
    """The residue plan where it is as accurate as ``native`` and its predicted seconds, from measured rates, are fewer."""
    if native.seconds is None or (options.moduli or default_moduli(problem.n)) < default_moduli(problem.n):
        return native
    try:
        residue = make_residue_plan(problem, options, names, rates_at)
    except (BudgetError, ValueError):
        return native  # too little memory, or tiles too small
    return residue if residue.seconds is not None and residue.seconds < native.seconds else native


def mixed_engine(problem: Problem, options: FactorOptions) -> tuple[TileGrid, FactorOptions]:
    """The tiles of a factorization in mixed precision, and options that name its engine and tile order.

    Parameters
    ----------
    problem : Problem
        The matrix.
    options : FactorOptions
        What the user asked.

    Returns
    -------
    TileGrid
        The tiles whose norms decide on formats.
    FactorOptions
        With ``fp64`` and ``tile_size`` settled: residues on GPUs where they fit, the device's own arithmetic on the host.
    """
    names = resolve_devices(options.devices, must_exist=False)
    kind = kind_of(names[0])
    budget = budget_of(options, names)
    wants_residues = options.fp64 == "residue" or (options.fp64 == "auto" and kind.name == "cuda" and options.policy == "planned")
    grid = residue_grid(problem, options, budget, options.moduli or MIXED_MODULI) if wants_residues else None
    if grid is None and options.fp64 != "residue":
        grid = TileGrid(problem.n, options.tile_size or choose_tile_size(problem.n, budget, kind, rows=MIXED_ROWS))
        return grid, replace(options, fp64="native", tile_size=grid.nb)
    grid = grid or TileGrid(problem.n, options.tile_size or kind.residue_tile_sizes[-1])  # the planner says what is missing
    return grid, replace(options, fp64="residue", tile_size=grid.nb)
