"""From options to a plan: engine, tile size, budgets, panel shapes, programs. Runs nothing."""

from __future__ import annotations

from ooc_chol.config import FactorOptions, default_moduli
from ooc_chol.errors import BudgetError
from ooc_chol.machine import kind_of, resolve_devices
from ooc_chol.planner.native import choose_tile_size, make_native_plan, prefetch_slots
from ooc_chol.planner.problem import Problem, RatesAt
from ooc_chol.planner.residues import make_residue_plan
from ooc_chol.planning.plan import Plan

__all__ = ["Problem", "choose_tile_size", "make_plan", "make_residue_plan", "prefetch_slots"]


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
