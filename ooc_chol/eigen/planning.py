"""How the plan of an eigensolver is made: which block and which basis memory holds, and which are predicted to be fastest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ooc_chol.calls.machine import Machine
from ooc_chol.config import whole_number
from ooc_chol.eigen.asked import BLOCKS, CHOSEN_PANELS, EXTRA_COLUMNS, LEAST_PANELS, MOST_DENSE, Sizes, sizes_of, wanted_of
from ooc_chol.eigen.elsewhere import DevicesElsewhere
from ooc_chol.eigen.lobpcg import lobpcg_capacity, lobpcg_panels
from ooc_chol.eigen.plan import BlockChoice, EigshPlan, EigshProblem
from ooc_chol.eigen.predictions import pass_seconds
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.errors import BudgetError
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.pass_rates import pass_rates_of
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, Known, plan_text, planned
from ooc_chol.tasks.row_blocks import RowBlocks

#: Columns of a panel where a LinearOperator or an array multiplies: many multiply a column at a time, and wider panels need fewer
#: products but more columns. And most that are solved for at once: SuperLU takes them one by one.
HOST_BLOCK = 2
#: Rows and entries up to which SciPy multiplies a packed matrix on the host, with vectors in NumPy's arrays: threads of a device
#: take longer to be told of a step than the arithmetic does. And columns of that basis beside the wanted ones.
SMALL_ROWS, SMALL_ENTRIES, SMALL_COLUMNS = 10_000, 1 << 19, 48
#: Columns of the basis beside the wanted ones with an inverse, which has its eigenvalues far apart.
INVERSE_COLUMNS = 32
#: LAPACK takes all n pairs where k is at least n over the first, and where an array or a sparse matrix has up to the second rows.
MANY, MOST_SMALL = 10, 400


class Posed(NamedTuple):
    """A matrix as plans see it."""

    n: int  #: Rows and columns
    dtype: np.dtype[Any]  #: float32 or float64
    machine: Machine
    known: Known | None = None  #: Its blocks; None where it multiplies by itself, on the host
    is_array: bool = False  #: Whether it multiplies as an array
    why: str = ""  #: Why it is the host, where no device was named
    there: DevicesElsewhere | None = None  #: Where a basis on devices lies, if not on those of this process

    def problem(self, precision: Precision) -> EigshProblem:
        """Problem of a plan."""
        machine = self.machine
        if self.known is None:
            return EigshProblem(None, precision, ("host:0",), machine.budget_bytes, order=self.n)
        known, rates = self.known, pass_rates_of(machine)
        facts = machine.names, machine.budget_bytes, known.tier, known.diagonals, rates, known.packed_bytes
        return EigshProblem(known.blocks, precision, *facts, why=self.why)

    def spread(self, precision: Precision) -> EigshProblem:
        """Problem of a plan whose basis lies on devices."""
        problem = self.problem(precision)
        return problem if self.there is None else problem.on(self.there)


class Request(NamedTuple):
    """Arguments that decide how eigenpairs are looked for."""

    solver: str  #: ``"lanczos"``, ``"lobpcg"`` or ``"sigma"``
    k: int
    which: str
    precision: Precision
    ncv: int | None = None
    block: int | None = None
    null: int = 0  #: Null vectors of LOBPCG
    is_diagonal: bool = False  #: Whether its preconditioner is a diagonal
    check: bool = True
    is_open: bool = False  #: Whether the caller leaves all options of Lanczos open, so that LAPACK may take all pairs
    trace: bool = False  #: Whether a trace is asked for, which is of devices
    factors: bool = False  #: Whether A - sigma I is factored, on the host
    may_invert: bool = False  #: Whether the inverse may take the place of LOBPCG
    sigma: float | None = None  #: The shift that is asked for


def plan_of(posed: Posed, request: Request) -> EigshPlan:
    """The plan of a call, whatever the method; ``BudgetError`` where the budget does not hold the basis."""
    problem, n = posed.problem(request.precision), posed.n
    if request.is_open and _is_for_lapack(posed, request.k) and 3 * 8 * n * n <= problem.budget_bytes:
        with suppress(BudgetError):
            return _dense(posed, problem, request)
    if request.solver == "lobpcg":
        plan = _lobpcg(posed, problem, request)
    elif request.solver == "sigma":
        ncv = request.k + INVERSE_COLUMNS if request.ncv is None and request.block in (None, 1, 2) else request.ncv
        sizes = sizes_of(ncv, request.block, request.k, n, usual_block=HOST_BLOCK)
        plan = _on_host(posed, problem, request, "shift-invert", sizes)
    elif problem.blocks is None or _is_for_scipy(posed, request):
        ncv = request.k + SMALL_COLUMNS if problem.blocks is not None else request.ncv
        sizes = sizes_of(ncv, request.block, request.k, n, usual_block=HOST_BLOCK)
        plan = _on_host(posed, problem, request, "lanczos", sizes)
    else:
        spread = posed.spread(request.precision)
        plan = planned_eigsh(spread, request.k, request.which, ncv=request.ncv, block=request.block)
        plan = _dense(posed, problem, request) if plan.method == "dense" else plan
    if plan.peak_bytes > plan.budget_bytes:
        advice = "give a larger one, or ask for fewer eigenpairs (k), or a smaller ncv"
        raise BudgetError(f"memory_budget of {plan.problem.devices[0]}", plan.peak_bytes, plan.budget_bytes, advice)
    return plan


def _is_for_lapack(posed: Posed, k: int) -> bool:
    """Tell whether all pairs by LAPACK, on the host, are predicted to take less time than some by Lanczos."""
    n = posed.n
    if not posed.machine.kind.is_in_host_memory or 8 * n * n > MOST_DENSE:
        return False
    return MANY * k >= n or (n <= MOST_SMALL and (posed.is_array or posed.known is not None))


def _is_for_scipy(posed: Posed, request: Request) -> bool:
    """Tell whether SciPy multiplies a packed matrix, with a basis in host memory."""
    is_free = posed.known is not None and request.is_open and not request.trace
    return is_free and posed.known is not None and is_small(posed.known, posed.machine, request.precision)


def is_small(known: Known, machine: Machine, precision: Precision) -> bool:
    """Tell whether a packed matrix is so small that devices take longer to be told of a step than to make it."""
    is_here = known.tier == "memory" and machine.kind.is_in_host_memory and precision.compute == np.float64
    return is_here and max(known.blocks.shape) <= SMALL_ROWS and known.blocks.n_entries <= SMALL_ENTRIES


#: Methods of plans by solver.
_PLANNED = {"lanczos": "lanczos", "lobpcg": "lobpcg", "sigma": "shift-invert"}


def check_plan(plan: EigshPlan, posed: Posed, request: Request, devices: Devices) -> None:
    """Raise ``ValueError`` unless a plan is of such a call."""
    if devices is not None and not set(plan.devices) <= set(Machine(devices).names):
        raise ValueError(f"the plan is for {', '.join(plan.devices)}, but devices is {devices!r:.80}: leave one of them out")
    blocks = None if posed.known is None else posed.known.blocks
    theirs = plan.problem.blocks
    asked: dict[str, tuple[object, object]] = {
        "order": (plan.problem.n, posed.n),
        "k": (plan.k, request.k),
        "which": (plan.which, request.which),
    }
    asked |= {"precision": (plan.problem.precision.value, request.precision.value)}
    if plan.method != "dense":
        asked |= {"method": (plan.method, _PLANNED[request.solver])}
        asked |= {} if request.block is None else {"block": (plan.block, request.block)}
        asked |= {} if request.ncv is None else {"ncv": (plan.ncv, -(-request.ncv // plan.block) * plan.block)}
    asked["A"] = _text(theirs), _text(blocks)
    if posed.known is not None:
        asked |= {
            "diagonals": (plan.problem.diagonals, posed.known.diagonals),
            "where A is": (plan.problem.tier, posed.known.tier),
        }
    for name, (one, other) in asked.items():
        if one != other:
            raise ValueError(f"the plan is of another problem, {name}: {one} there, {other} here; leave plan out, or plan again")
    if theirs is not None and blocks is not None and list(theirs.blocks) != list(blocks.blocks):
        raise ValueError("the plan is of a matrix whose blocks have other rows or bytes: leave plan out, or plan again")


def _text(blocks: RowBlocks | None) -> str:
    return "an operator or an array" if blocks is None else plan_text(blocks)


def _lobpcg(posed: Posed, problem: EigshProblem, request: Request) -> EigshPlan:
    """LOBPCG, whose basis is of three times as many panels as the pairs take."""
    k, null = request.k, request.null
    block = block_of_lobpcg(request.block, k)
    panels = lobpcg_panels(k, block)
    if (-(-null // block) + 3 * panels) * block > posed.n:
        return _dense(posed, problem, request)
    capacity = lobpcg_capacity(k, block, null, diagonal=request.is_diagonal, check=request.check)
    basis = None
    if problem.blocks is not None:
        problem = posed.spread(request.precision)
        basis = problem.space(Sizes(block, capacity - 1), capacity // 2)
    return EigshPlan(problem, k, request.which, "lobpcg", Sizes(block, 3 * panels), capacity, basis=basis)


def block_of_lobpcg(block: object, k: int) -> int:
    """Columns of a panel: 4 where that leaves one to spare, which helps the others to converge, else 8."""
    if block is None:
        return 4 if k < 4 else 8
    if whole_number(block, "block") not in BLOCKS:
        raise ValueError(f"block is {block}; panels have 1, 2, 4 or 8 columns")
    return whole_number(block, "block")


def _on_host(posed: Posed, problem: EigshProblem, request: Request, method: str, sizes: Sizes) -> EigshPlan:
    """A basis in host memory, of LAPACK where it would be the whole space."""
    if sizes.columns + sizes.block > posed.n:
        return _dense(posed, problem, request)
    capacity, products = sizes.panels + 1, None if method == "lanczos" else exact_products(posed)
    how = request.k, request.which, method, sizes, capacity, kept_panels(request.k, sizes)
    return EigshPlan(problem, *how, products=products, sigma=request.sigma)


def _dense(posed: Posed, problem: EigshProblem, request: Request) -> EigshPlan:
    """All eigenpairs by LAPACK."""
    how = request.k, request.which, "dense", Sizes(1, posed.n), 0
    return EigshPlan(problem, *how, products=exact_products(posed), sigma=request.sigma)


def exact_products(posed: Posed) -> MultiplyPlan | None:
    """Products in float64 of up to 8 columns; None where A multiplies by itself."""
    return None if posed.known is None else planned(posed.known, PANEL_COLUMNS[-1], Precision.DDD, posed.machine)


def least_panels(k: int, block: int) -> int:
    """Fewest panels with which ``k`` pairs are looked for."""
    return -(-k // block) + LEAST_PANELS


def kept_panels(k: int, sizes: Sizes) -> int:
    """Panels that a restart keeps: ``k + (ncv - k) / 2`` columns, and room for at least one product more."""
    wanted = -(-k // sizes.block)
    return max(wanted, min(-(-(k + max(0, sizes.columns - k) // 2) // sizes.block), sizes.panels - 1))


def planned_eigsh(problem: EigshProblem, k: int, which: str, *, ncv: int | None = None, block: int | None = None) -> EigshPlan:
    """The plan for a problem whose devices and precision are known."""
    assert problem.blocks is not None
    n, n_columns = problem.blocks.shape
    if n != n_columns:
        raise ValueError(
            f"A is {n} x {n_columns}, but only square matrices have eigenvalues: give a symmetric one, or take oc.svds"
        )
    wanted_of(k, which, None, problem.precision, n)
    asked = sizes_of(ncv, block, k, n)
    if asked.columns + asked.block > n:
        return EigshPlan(problem, k, which, "dense", Sizes(1, n), 0)
    found = _choices(problem, k, ncv, block)
    if not found:
        raise _too_small(problem, k, ncv, block or 1)
    chosen = _best(found)
    space, others = chosen.space, tuple(each for each in found if each is not chosen)
    sizes = Sizes(chosen.block, space.capacity - 1)
    return EigshPlan(problem, k, which, "lanczos", sizes, space.capacity, chosen.kept_panels, space, None, chosen, others)


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
        what = f"memory_budget for a basis of {wanted.columns} vectors on {problem.devices[0]}"
        return BudgetError(what, error.needed_bytes, error.budget_bytes, advice)
    raise AssertionError("a basis that fits was not taken")


def _best(choices: Sequence[BlockChoice]) -> BlockChoice:
    """The fastest by prediction, of equals the widest; without rates the widest, which needs the fewest passes."""
    if all(each.cost is not None for each in choices):
        return min(choices, key=lambda each: (each.cost, -each.block))
    return max(choices, key=lambda each: each.block)
