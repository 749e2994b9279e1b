"""How the plan of an eigensolver is made: which block and which basis memory holds, and which are predicted to be fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ooc_chol.eigen.asked import CHOSEN_PANELS, EXTRA_COLUMNS, LEAST_PANELS, Sizes, sizes_of, wanted_of
from ooc_chol.eigen.plan import BlockChoice, EigshPlan, EigshProblem
from ooc_chol.eigen.predictions import pass_seconds
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.errors import BudgetError
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS


def least_panels(k: int, block: int) -> int:
    """Fewest panels with which ``k`` pairs are looked for."""
    return -(-k // block) + LEAST_PANELS


def kept_panels(k: int, sizes: Sizes) -> int:
    """Panels that a restart keeps: ``k + (ncv - k) / 2`` columns, and room for at least one product more."""
    wanted = -(-k // sizes.block)
    return max(wanted, min(-(-(k + max(0, sizes.columns - k) // 2) // sizes.block), sizes.panels - 1))


def planned_eigsh(problem: EigshProblem, k: int, which: str, *, ncv: int | None = None, block: int | None = None) -> EigshPlan:
    """The plan for a problem whose devices and precision are known."""
    n, n_columns = problem.blocks.shape
    if n != n_columns:
        raise ValueError(
            f"A is {n} x {n_columns}, but only square matrices have eigenvalues: give a symmetric one, or take oc.svds"
        )
    wanted_of(k, which, None, problem.precision, n)
    asked = sizes_of(ncv, block, k, n)
    if asked.columns + asked.block > n:
        return EigshPlan(problem, k, which, "dense", None)
    found = _choices(problem, k, ncv, block)
    if not found:
        raise _too_small(problem, k, ncv, block or 1)
    chosen = _best(found)
    return EigshPlan(problem, k, which, "lanczos", chosen, tuple(each for each in found if each is not chosen))


def _choices(problem: EigshProblem, k: int, ncv: int | None, block: int | None) -> list[BlockChoice]:
    """Panels that fit in memory, for each number of columns that may be chosen."""
    found = []
    for width in PANEL_COLUMNS if block is None else (block,):
        columns = k + EXTRA_COLUMNS if ncv is None else ncv
        sizes = Sizes(width, min(-(-columns // width), problem.n // width - 1))
        if block is None and not _may_be_chosen(sizes, k):
            continue
        held = _held(problem, k, sizes) if ncv is None else _fitted(problem, k, sizes)
        if held is not None and (block is not None or _may_be_chosen(held.sizes, k)):
            kept = kept_panels(k, held.sizes)
            found.append(BlockChoice(width, held.space, kept, pass_seconds(held.space, kept)))
    return found


def _may_be_chosen(sizes: Sizes, k: int) -> bool:
    """Tell whether the basis has enough panels beside the wanted columns; that of single vectors always has."""
    return sizes.block == 1 or sizes.columns - k >= CHOSEN_PANELS * sizes.block


class _Held(NamedTuple):
    """A basis that memory holds, and its plan."""

    sizes: Sizes
    space: SpacePlan


def _held(problem: EigshProblem, k: int, sizes: Sizes) -> _Held | None:
    """The largest basis up to ``sizes`` that memory holds; None where not even the least finds room."""
    least = Sizes(sizes.block, least_panels(k, sizes.block))
    if (whole := _fitted(problem, k, sizes)) is not None:
        return whole
    if least.panels >= sizes.panels or (low := _fitted(problem, k, least)) is None:
        return None
    high = sizes  # which does not fit, where low does
    while high.panels - low.sizes.panels > 1:
        middle = Sizes(sizes.block, (low.sizes.panels + high.panels) // 2)
        if (found := _fitted(problem, k, middle)) is None:
            high = middle
        else:
            low = found
    return low


def _fitted(problem: EigshProblem, k: int, sizes: Sizes) -> _Held | None:
    """A basis of that size; None where memory does not hold it."""
    try:
        return _Held(sizes, problem.space(sizes, kept_panels(k, sizes)))
    except BudgetError:
        return None


def _too_small(problem: EigshProblem, k: int, ncv: int | None, block: int) -> BudgetError:
    """Error where the requested basis finds no room, or none does: bytes, and the basis that would fit."""
    least = Sizes(block, least_panels(k, block))
    wanted = least if ncv is None else Sizes(block, -(-ncv // block))
    try:
        problem.space(wanted, kept_panels(k, wanted))
    except BudgetError as error:
        held = None if ncv is None else _held(problem, k, wanted)
        panels = f"with panels of {block}"
        fits = (
            f"or ncv={held.sizes.columns}, which fits {panels}"
            if held
            else f"not even ncv={least.columns}, the least {panels}, fits"
        )
        advice = f"give a larger memory_budget, more devices, smaller blocks of A{', ' if held else '; '}{fits}"
        what = f"a basis of {wanted.columns} vectors on {problem.devices[0]}"
        return BudgetError(what, error.needed_bytes, error.budget_bytes, advice)
    raise AssertionError("a basis that fits was not taken")


def _best(choices: Sequence[BlockChoice]) -> BlockChoice:
    """The fastest by prediction, of equals the widest; without rates the widest, which needs the fewest passes."""
    if all(each.cost is not None for each in choices):
        return min(choices, key=lambda each: (each.cost, -each.block))
    return max(choices, key=lambda each: each.block)
