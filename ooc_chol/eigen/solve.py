"""Certified eigenpairs of symmetric matrices, for the record of a call."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_array

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import checked
from ooc_chol.calls.progress import OpenReporter, Progress, open_reporter
from ooc_chol.config import parse_bytes
from ooc_chol.eigen.asked import (
    BLOCKS,
    Sizes,
    degree_of,
    grown_note,
    passes_of,
    precision_for,
    solver_of,
    start_of,
    wanted_of,
)
from ooc_chol.eigen.checkpoint import KIND, Checkpoint
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.elsewhere import AbstractElsewhere
from ooc_chol.eigen.errors import NoConvergenceError
from ooc_chol.eigen.hermitian import complex_error, complex_pairs, few_error, is_complex, real_call
from ooc_chol.eigen.key import arithmetic_key
from ooc_chol.eigen.lanczos import Found, Lanczos
from ooc_chol.eigen.mass import generalized_pairs, reduced_call
from ooc_chol.eigen.methods import (
    FEW,
    Asked,
    Solved,
    has_digits,
    has_light_factor,
    null_of,
    sigma_of,
    solved_beside_null,
    solved_by_lobpcg,
    solved_from_zero,
    solved_near,
)
from ooc_chol.eigen.pairs import Eigenpairs
from ooc_chol.eigen.placing import lies_on_gpu, placed
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.planning import Posed, Request, check_plan, plan_of
from ooc_chol.eigen.powers import RangeError, is_ordinary, power_of, unscaled
from ooc_chol.eigen.preconditioners import Preconditioner
from ooc_chol.eigen.problem import AbstractProblem, Where, posed_of, problem_of
from ooc_chol.eigen.report import EigshReport
from ooc_chol.eigen.returned import ascending, returned
from ooc_chol.eigen.session import Session
from ooc_chol.eigen.shift_invert import FewError
from ooc_chol.eigen.state import LanczosCounts
from ooc_chol.eigen.wanted import AskedWhich, Wanted
from ooc_chol.eigen.whole import whole_pairs
from ooc_chol.errors import PrecisionWarning
from ooc_chol.files.inputs import check_name
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.sparse.elsewhere import refuse_on_cluster
from ooc_chol.sparse.key import products_key
from ooc_chol.sparse.pack import file_of
from ooc_chol.sparse.planning import Devices, check_host_budget
from ooc_chol.tracing.trace import Trace

#: Digits are asked for by a tol up to the first; zero is what is below the second times the roundoff of the largest.
_FINE, _ZERO = 1e-9, 64.0
#: What to give where pairs have not converged, by method; Lanczos has another.
_MORE = {
    "lobpcg": "a better preconditioner, or a larger block, tol or max_passes",
    "shift-invert": "another sigma, a more accurate OPinv, or a larger ncv, tol or max_passes",
}


@dataclass(frozen=True, eq=False)
class EigshCall:
    """The arguments of :func:`ooc_chol.eigsh`, as they were given."""

    A: Any
    k: int = 6
    which: AskedWhich = "LM"
    precision: Precision | str | None = None
    method: str = "auto"
    tol: float | None = None
    ncv: int | None = None
    block: int | None = None
    degree: int | None = 1
    v0: ArrayLike | None = None
    max_passes: int | None = None
    check: bool = True
    preconditioner: Any = None
    null: ArrayLike | None = None
    sigma: float | None = None
    OPinv: Any = None
    M: Any = None
    packed: str | os.PathLike[str] | None = None
    replace: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    devices: Devices = None
    memory_budget: int | str | None = None
    host_budget: int | str | None = None
    progress: Progress = None
    trace: bool = False
    plan: EigshPlan | None = None
    elsewhere: AbstractElsewhere | None = None  #: Where products are made, if not on devices of this process

    @property
    def near_zero(self) -> EigshCall:
        """The same call, of those nearest 0 where those of smallest magnitude are wanted by the inverse."""
        others = self.sigma, self.preconditioner, self.null
        if self.which != "SM" or self.method == "lobpcg" or any(each is not None for each in others):
            return self
        return replace(self, which="LM", sigma=0.0)

    @property
    def is_open(self) -> bool:
        """True if no option of Lanczos or of another solver is given."""
        names = ("ncv", "block", "v0", "max_passes", "preconditioner", "null", "sigma", "OPinv", "checkpoint")
        return self.method == "auto" and self.degree == 1 and all(getattr(self, name) is None for name in names)

    @property
    def budget_bytes(self) -> int | None:
        """Bytes of ``memory_budget``; None where none is given."""
        return None if self.memory_budget is None else parse_bytes(self.memory_budget, "memory_budget")

    @property
    def where(self) -> Where:
        """Where it computes, and where A is kept."""
        return Where(self.devices, self.memory_budget, self.packed, self.replace, self.trace, self.elsewhere)

    @property
    def solver(self) -> str:
        """The solver that is meant; ``ValueError`` where options contradict each other."""
        names = ("preconditioner", "null", "sigma", "OPinv", "ncv", "checkpoint")
        return solver_of(self.method, self.which, self.degree, **{name: getattr(self, name) for name in names})

    def validate(self) -> None:
        """Raise for what makes no sense whatever the matrix is."""
        names = ("packed", "replace", "checkpoint", "memory_budget", "host_budget", "progress", "trace")
        checked(**{name: getattr(self, name) for name in names})
        if self.elsewhere is not None:
            given = {name: getattr(self, name) is not None for name in ("sigma", "OPinv", "M")}
            refuse_on_cluster(**{"which='SM'": self.which == "SM", **given, "trace": self.trace})
        if self.checkpoint is not None:
            check_name(self.checkpoint, "checkpoint")
        if self.plan is not None and not isinstance(self.plan, EigshPlan):
            raise TypeError(f"plan is a {type(self.plan).__name__}; give what oc.plan_eigsh(A, k) makes, or leave it out")


class _Problem(NamedTuple):
    """Arguments of a call, checked for a matrix."""

    solver: str
    wanted: Wanted
    request: Request
    degree: int | None
    null: NDArray[np.float64] | None
    preconditioner: Preconditioner | None
    sigma: float | None


def _problem(call: EigshCall, posed: Posed) -> _Problem:
    """The arguments, checked."""
    solver, n = call.solver, posed.n
    degree = degree_of(call.degree, call.which, solver)
    usual = np.dtype(np.float64) if call.sigma is not None else posed.dtype
    if call.precision is None and call.plan is not None:
        precision = call.plan.problem.precision
    else:
        precision = precision_for(call.precision, usual)
    wanted = wanted_of(call.k, call.which, call.tol, precision, n)
    sigma = None if call.sigma is None else sigma_of(call.sigma, precision)
    preconditioner = None if call.preconditioner is None else Preconditioner(call.preconditioner, n)
    null = null_of(call.null, n)
    request = Request(
        solver, wanted.k, wanted.which, precision, call.ncv, call.block, check=call.check, is_open=call.is_open, trace=call.trace
    )
    is_diagonal = preconditioner is not None and preconditioner.diagonal is not None
    is_weak = is_diagonal or preconditioner is None
    is_open = call.method == "auto" and all(each is None for each in (call.ncv, call.block, call.max_passes))
    request = request._replace(
        null=0 if null is None else null.shape[1],
        is_diagonal=is_diagonal,
        factors=solver == "sigma" and call.OPinv is None,
        may_invert=null is not None and is_weak and is_open and wanted.which == "SA" and precision == Precision.DDD,
        sigma=sigma,
    )
    return _Problem(solver, wanted, request, degree, null, preconditioner, sigma)


def planned_call(call: EigshCall) -> EigshPlan:
    """Plan that :func:`ooc_chol.plan_eigsh` returns for such a call."""
    call.validate()
    call = call.near_zero
    if call.M is not None:
        call = reduced_call(call, only_planned=True).call
    if is_complex(call.A):
        call = real_call(call)
    passes_of(call.max_passes)
    posed = posed_of(call.A, call.where)
    request = _problem(call, posed).request
    posed = _placed(call, posed, request, lambda: _matrix_of(call))
    plan = plan_of(posed, request)
    start_of(call.v0, posed.n, _width(plan))
    check_host_budget(plan.host_bytes, call.host_budget, "eigenpairs and what devices do not keep")
    known = posed.known
    if call.elsewhere is None or known is None or plan.is_small:
        return plan
    if plan.basis is not None:
        return replace(plan, cluster=plan.basis.products)
    return replace(plan, cluster=call.elsewhere.planned(known, PANEL_COLUMNS[-1], Precision.DDD))


def _placed(call: EigshCall, posed: Posed, request: Request, matrix: Callable[[], csc_array | None]) -> Posed:
    """The problem where it is solved: where a plan says, where A lies, or where it is solved soonest."""
    if call.plan is not None and posed.known is not None and call.devices is None:
        return posed._replace(machine=Machine(call.plan.devices, call.memory_budget), why=call.plan.problem.why)
    if lies_on_gpu(call.A):
        return posed
    return placed(posed, request, has_light_factor=lambda: has_light_factor(matrix(), call.budget_bytes))


def _matrix_of(call: EigshCall) -> csc_array | None:
    """A, of which only a plan is made; None where it is not there."""
    if isinstance(call.A, tuple):
        return None
    with ExitStack() as stack:
        return problem_of(call.A, Where(), stack).csc()


def eigenpairs(call: EigshCall) -> Eigenpairs:
    """Eigenpairs that :func:`ooc_chol.eigsh` returns for such a call."""
    began = time.perf_counter()
    call.validate()
    call = call.near_zero
    if call.M is not None:
        reduced = reduced_call(call)
        return generalized_pairs(reduced, eigenpairs(reduced.call))
    if is_complex(call.A):
        try:
            return complex_pairs(call, eigenpairs(real_call(call)))
        except NoConvergenceError as told:
            raise complex_error(call, told) from None
        except FewError as told:
            raise few_error(told) from None
    asked = Asked(passes_of(call.max_passes), call.check, trace=call.trace)
    blas_buffers.ensure(numpys=True)
    with ExitStack() as stack:
        call.solver  # noqa: B018 - raises before anything is packed
        problem = problem_of(call.A, call.where, stack)
        packed = time.perf_counter()
        of = _problem(call, problem.posed)
        problem.posed = _placed(call, problem.posed, of.request, problem.csc)
        plan = plan_of(problem.posed, of.request) if call.plan is None else replace(call.plan, sigma=of.sigma)
        check_plan(plan, problem.posed, of.request, call.devices if call.elsewhere is None else None)
        check_host_budget(plan.host_bytes, call.host_budget, "eigenpairs and what devices do not keep")
        problem.keep_blocks(plan, call.host_budget, stack)
        planned = time.perf_counter()
        show = stack.enter_context(open_reporter(call.progress, asked.max_passes, "eigsh", "pass"))

        def solve(posed: AbstractProblem, stack: ExitStack) -> Eigenpairs:
            mine = plan
            if posed.power:  # of another matrix, with the same basis where the plan is the caller's
                mine = plan_of(posed.posed, of.request if call.plan is None else _like(plan, of.request))
            start = start_of(call.v0, posed.n, _width(mine))
            return _solved(call, posed, of, mine, asked._replace(start=start), show, stack)

        pairs = _in_range(solve, problem, of.request.precision, call.checkpoint)
    seconds = pairs.report.seconds
    parts = {"pack": packed - began, "plan": planned - packed, **seconds.parts}
    pairs.report = replace(pairs.report, seconds=replace(seconds, total=time.perf_counter() - began, parts=parts))
    return pairs


def _like(plan: EigshPlan, request: Request) -> Request:
    """A request of the basis that a plan has."""
    if plan.method == "dense":
        return request
    return request._replace(block=plan.block, ncv=None if plan.method == "lobpcg" else plan.ncv)


def _width(plan: EigshPlan) -> int:
    """Columns of a starting panel."""
    return plan.ncv // 3 if plan.method == "lobpcg" else BLOCKS[0] if plan.method == "dense" else plan.block


def _in_range(
    solve: Callable[[AbstractProblem, ExitStack], Eigenpairs],
    problem: AbstractProblem,
    precision: Precision,
    checkpoint: str | os.PathLike[str] | None,
) -> Eigenpairs:
    """Pairs of A, by way of a power of two times A where squares of its numbers underflow or overflow."""
    error: RangeError | None = None
    try:
        with ExitStack() as stack:
            pairs = solve(problem, stack)
        if pairs.report.scale:
            return pairs
    except RangeError as raised:
        error = raised
    with ExitStack() as stack:
        power = power_of(problem.exact(stack), problem.n)
    if error is None and (power is None or is_ordinary(float(np.ldexp(1.0, -power)), precision)):
        return pairs  # zeros indeed
    if power is None:
        raise error or AssertionError
    if checkpoint is not None:
        raise RangeError(
            f"A has products of about 2^{-power} with vectors of about 1, of which checkpoints are not kept: give A times "
            f"2^{power}, as numpy.ldexp makes it, and multiply eigenvalues by 2^{-power}"
        ) from error
    with ExitStack() as stack:
        try:
            pairs = solve(problem.scaled(power, stack), stack)
        except NoConvergenceError as told:
            told.eigenvalues = unscaled(told.eigenvalues, power)
            raise
    values, report = unscaled(pairs.eigenvalues, power), pairs.report
    sigma = None if report.sigma is None else float(np.ldexp(report.sigma, -power))
    report = replace(report, eigenvalues=values, scale=float(unscaled(np.array(report.scale), power)), sigma=sigma)
    return Eigenpairs(values, pairs.eigenvectors, pairs.residuals, report, pairs.trace)


def _solved(
    call: EigshCall, problem: AbstractProblem, of: _Problem, plan: EigshPlan, asked: Asked, show: OpenReporter, stack: ExitStack
) -> Eigenpairs:
    """Pairs as planned, or by the inverse where Lanczos leads nowhere and the method is open."""
    wanted, bare = of.wanted, problem.bare_key()
    key = _key(call, problem, of, plan, asked, bare)
    checkpoint = None
    if call.checkpoint is not None and plan.method == "lanczos":
        files = [("A", file_of(call.A)), *problem.files]
        KIND.check(call.checkpoint, files, replace=call.replace)
        whole = {**key, "A": problem.key()}
        checkpoint = Checkpoint(call.checkpoint, whole, KIND, files, replace=call.replace)
    session = Session(checkpoint=checkpoint, show=show)
    if of.solver == "lobpcg":
        how: dict[str, Any] = {"preconditioner": of.preconditioner, "null": of.null}
        near = _beside_null(call, problem, of, asked, stack)
        solved = near or solved_by_lobpcg(problem, plan, wanted, asked, stack, at_step=session.at_step, **how)
    elif of.solver == "sigma":
        assert of.sigma is not None
        how = {"sigma": of.sigma, "OPinv": call.OPinv, "memory_budget": call.budget_bytes}
        solved = solved_near(problem, plan, wanted, asked, stack, at_restart=session.at_restart, **how)
    elif plan.method == "dense":
        solved = _all_of_it(problem, plan, wanted, stack)
        if call.method == "auto" and of.request.precision == Precision.DDD and not has_digits(solved.found):
            solved = solved_from_zero(problem, wanted, asked, stack) or solved._replace(notes=(_lost(solved.found),))
    else:
        solved = _by_lanczos(problem, plan, wanted, asked, of.degree, session, stack)
        if solved.found.is_hopeless and call.method == "auto" and of.request.precision == Precision.DDD:
            near = solved_from_zero(problem, wanted, _left(call, asked, solved), stack)
            if near is not None:
                near.found.counts.add(solved.found.counts)
                solved = near._replace(space=solved.space)
        left = _left(call, asked, solved)
        if solved.found.why_not and plan.is_small and left.max_passes > 0:  # a larger basis of wider panels gets further
            note, before = grown_note(plan.ncv, solved.found.counts.passes), solved.found.counts
            plan = plan_of(problem.posed, of.request._replace(is_open=False))
            solved = _by_lanczos(problem, plan, wanted, left, of.degree, session, stack)
            solved.found.counts.add(before)
            solved = solved._replace(notes=(*solved.notes, note))
    found, vectors = ascending(solved.found, solved.vectors)
    space = solved.space
    report = session.report(solved._replace(found=found), plan, wanted, problem, key)
    if call.elsewhere is not None:
        report = replace(report, cluster=call.elsewhere.done())
    records = space.trace if isinstance(space, DeviceSpace) else problem.trace()
    return _checked(found, vectors, wanted, of.request.precision, report, report.traced(records) if records else None)


def _left(call: EigshCall, asked: Asked, solved: Solved) -> Asked:
    """The request to a second run: what is left of the caller's ``max_passes``; the default anew where there are none."""
    return asked if call.max_passes is None else asked._replace(max_passes=asked.max_passes - solved.found.counts.passes)


def _beside_null(call: EigshCall, problem: AbstractProblem, of: _Problem, asked: Asked, stack: ExitStack) -> Solved | None:
    """Pairs by the inverse where LOBPCG would have null vectors and a diagonal at most, on the host, and its ways are open."""
    if of.null is None or not of.request.may_invert or not all(name.startswith("host") for name in problem.devices):
        return None
    return solved_beside_null(problem, of.wanted, asked, of.null, call.budget_bytes, stack)


def _key(
    call: EigshCall, problem: AbstractProblem, of: _Problem, plan: EigshPlan, asked: Asked, matrix: dict[str, Any]
) -> dict[str, Any]:
    """Arithmetic key of a call, with that of its matrix."""
    more: dict[str, Any] = {}
    if of.solver == "lobpcg":
        kind = None if of.preconditioner is None else "diagonal" if of.request.is_diagonal else "function"
        more = {"preconditioner": kind, "null": of.request.null}
    elif of.sigma is not None:
        more = {"sigma": of.sigma.hex(), "inverse": "SuperLU" if call.OPinv is None else "OPinv"}
    elif plan.is_small:
        more = {"vectors": "host"}
    if call.elsewhere is not None and plan.basis is None:
        more |= products_key(call.elsewhere.arithmetic)
    sizes = Sizes(1, problem.n) if plan.method == "dense" else plan.sizes
    how: dict[str, Any] = {"method": plan.method, "check": asked.check, "degree": of.degree, "start": asked.start}
    key = arithmetic_key(matrix, of.wanted, of.request.precision, sizes, **how, devices=problem.devices, **more)
    return key if call.elsewhere is None or plan.basis is None else {**key, "devices": call.elsewhere.arithmetic}


def _by_lanczos(
    problem: AbstractProblem,
    plan: EigshPlan,
    wanted: Wanted,
    asked: Asked,
    degree: int | None,
    session: Session,
    stack: ExitStack,
) -> Solved:
    """Pairs by block Lanczos on A."""
    space = problem.space(plan, stack, trace=asked.trace)
    run = Lanczos(space, wanted, max_passes=asked.max_passes, check=asked.check, degree=degree, at_restart=session.at_restart)
    session.begin(run)
    space.expect_to_take(wanted.k, space.precision.storage)
    with session.watching():
        found = run.run(asked.start)
    return Solved(*returned(space, found), "lanczos", plan.block, plan.ncv, space)


def _all_of_it(problem: AbstractProblem, plan: EigshPlan, wanted: Wanted, stack: ExitStack) -> Solved:
    """All eigenpairs by LAPACK, of which the wanted ones are taken."""
    whole = whole_pairs(problem.exact(stack, plan.products), problem.n, wanted, plan.problem.precision)
    counts = LanczosCounts(passes=whole.products, asymmetry=whole.asymmetry)
    stuck = bool((whole.residuals > wanted.tol * whole.scale).any())
    why = "LAPACK's eigenvectors are no better" if stuck else ""
    return Solved(Found(whole.values, whole.residuals, whole.scale, why, counts), whole.vectors, "dense", 1, problem.n)


def _lost(found: Found) -> str:
    """That small values are roundoff of the largest."""
    floor = float(np.finfo(np.float64).eps) * len(found.values) * found.scale
    return f"values below {max(floor, float(found.residuals.max())):.1g} are roundoff beside the largest, {found.scale:.3g}"


def _checked(
    found: Found, vectors: NDArray[Any], wanted: Wanted, precision: Precision, report: EigshReport, records: Trace | None
) -> Eigenpairs:
    """The pairs, if all have converged."""
    scale = found.scale
    residuals = found.residuals / scale if scale else found.residuals
    if found.why_not:
        if not scale and residuals.max() > 0:
            raise RangeError(f"A has values of about {residuals.max():.2g}, which are zero in products of {precision.value}")
        raise _not_converged(found, vectors, residuals, wanted, precision, report.method)
    _warn_of_few_digits(found, wanted, report)
    return Eigenpairs(found.values, vectors, residuals, report, records)


def _warn_of_few_digits(found: Found, wanted: Wanted, report: EigshReport) -> None:
    """Warn where digits were asked for, and values that are no zeros are so small beside the largest that few are known."""
    sizes, roundoff = np.abs(found.values), float(np.finfo(np.float64).eps) * found.scale
    few = (found.residuals > FEW * sizes) & (found.residuals < sizes) & (sizes > _ZERO * roundoff)
    if report.method == "shift-invert":
        few |= (found.residuals > FEW * sizes) & (found.residuals > _ZERO * roundoff)
    if wanted.tol > _FINE or not few.any():
        return
    at = int(np.argmax(few * found.residuals / np.maximum(sizes, roundoff)))
    more = (
        f"values below {_ZERO * roundoff:.1g} are roundoff in this matrix"
        if report.method == "shift-invert"
        else "a smaller tol gives some more, and sigma=0 or another sigma near them, where A can be factored, gives all"
    )
    warnings.warn(
        f"tol = {wanted.tol:g} is relative to the largest eigenvalue, {found.scale:.3g}, beside which {int(few.sum())} of these "
        f"are so small that few of their digits are known, such as {found.values[at]:.6g} +- {found.residuals[at]:.1g}: {more}",
        PrecisionWarning,
        stacklevel=9,  # of eigsh
    )


def _not_converged(
    found: Found, vectors: NDArray[Any], residuals: NDArray[np.float64], wanted: Wanted, precision: Precision, method: str
) -> NoConvergenceError:
    """The error, with the pairs that have converged."""
    converged = residuals <= wanted.tol
    more = _MORE.get(method, "a larger ncv, block, tol or max_passes")
    if found.is_hopeless and method == "lanczos" and wanted.which != "LM":
        side, which = ("below", "LA") if wanted.which == "SA" else ("above", "SA")
        more = f"sigma=0, or another sigma {side} them, and which={which!r} (with OPinv where A is a LinearOperator), or {more}"
    advice = f"give {more}"
    if precision != Precision.DDD:
        advice += ", or precision='DDD'"
    return NoConvergenceError(
        wanted.k,
        found.values[converged],
        np.ascontiguousarray(vectors[:, converged]),
        residuals[converged],
        float(residuals[residuals > wanted.tol].max(initial=0.0)),
        wanted.tol,
        found.why_not,
        advice,
    )
