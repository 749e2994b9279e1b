"""Certified eigenpairs of symmetric matrices, for the record of a call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.calls.progress import OpenReporter, open_reporter
from ooc_chol.eigen.asked import BLOCKS, Sizes, degree_of, passes_of, precision_for, start_of, wanted_of
from ooc_chol.eigen.checkpoint import KIND, Checkpoint
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.errors import NoConvergenceError
from ooc_chol.eigen.key import arithmetic_key
from ooc_chol.eigen.lanczos import Found, Lanczos
from ooc_chol.eigen.methods import Asked, method_of, solved_by_lobpcg, solved_from_zero, solved_near
from ooc_chol.eigen.pairs import Eigenpairs
from ooc_chol.eigen.paper import Reorthogonalization, check_reorthogonalization, paper_eigenpairs, refuse_in_paper_mode
from ooc_chol.eigen.powers import RangeError, is_ordinary, power_of, unscaled
from ooc_chol.eigen.problem import AbstractProblem, problem_of
from ooc_chol.eigen.report import EigshReport
from ooc_chol.eigen.returned import ascending, returned
from ooc_chol.eigen.session import Session
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import LanczosCounts
from ooc_chol.eigen.wanted import Wanted, Which
from ooc_chol.eigen.whole import whole_pairs
from ooc_chol.errors import PrecisionWarning
from ooc_chol.files.inputs import check_name
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.sparse.multiplier import Progress, Store
from ooc_chol.sparse.planning import Devices
from ooc_chol.tracing.trace import Trace

#: Methods and modes by name.
_METHODS, _MODES = ("auto", "lanczos", "lobpcg"), ("restart", "paper")
#: Digits are asked for by a tol up to the first; few are known of a value whose residual is more than the second times its size,
#: and zero is what is below the third times the roundoff of the largest.
_FINE, _FEW, _ZERO = 1e-9, 5e-3, 64.0
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
    which: Which = "LM"
    precision: Precision | str | None = None
    method: str = "auto"
    tol: float | None = None
    ncv: int | None = None
    block: int | None = None
    degree: int | None = 1
    v0: ArrayLike | None = None
    max_passes: int | None = None
    mode: str = "restart"
    reorthogonalize: Reorthogonalization = "full"
    check: bool = True
    preconditioner: Any = None
    null: ArrayLike | None = None
    sigma: float | None = None
    OPinv: Any = None
    M: None = None
    devices: Devices = None
    memory_budget: int | str | None = None
    store: Store = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: Progress = None
    trace: bool = False


def eigenpairs(call: EigshCall) -> Eigenpairs:
    """Eigenpairs that :func:`ooc_chol.eigsh` returns for such a call."""
    _refuse_what_is_not_there(call.method, call.mode, call.M)
    solver = method_of(
        call.method,
        preconditioner=call.preconditioner,
        null=call.null,
        sigma=call.sigma,
        OPinv=call.OPinv,
        checkpoint=call.checkpoint,
    )
    degree = degree_of(call.degree, call.which, solver)
    if call.mode == "paper":
        options: dict[str, Any] = {
            "which": call.which,
            "block": call.block,
            "ncv": call.ncv,
            "tol": call.tol,
            "max_passes": call.max_passes,
        }
        options |= {
            "preconditioner": call.preconditioner,
            "null": call.null,
            "sigma": call.sigma,
            "OPinv": call.OPinv,
            "checkpoint": call.checkpoint,
        }
        options |= {"degree": None if degree == 1 else degree, "method": None if solver == "lanczos" else call.method}
        refuse_in_paper_mode(**options)
    check_reorthogonalization(call.reorthogonalize)
    if call.checkpoint is not None:
        check_name(call.checkpoint, "checkpoint")
    asked = Asked(call.block, call.ncv, call.v0, passes_of(call.max_passes), call.check, call.trace)
    blas_buffers.ensure(numpys=True)
    with ExitStack() as stack:
        problem = problem_of(call.A, call.devices, call.memory_budget, call.store, stack)
        triple = precision_for(call.precision, np.dtype(np.float64) if call.sigma is not None else problem.dtype)
        wanted = wanted_of(call.k, call.which, call.tol, triple, problem.n)
        show = None
        if call.mode != "paper":
            show = stack.enter_context(open_reporter(call.progress, asked.max_passes, "eigsh", "pass"))

        def solve(posed: AbstractProblem, stack: ExitStack) -> Eigenpairs:
            if call.mode == "paper":
                start = start_of(call.v0, posed.n, 1)
                return paper_eigenpairs(posed, wanted.k, triple, call.reorthogonalize, start, stack, trace=call.trace)
            if solver == "lanczos":
                return _by_lanczos(
                    posed, wanted, triple, asked, degree, call.checkpoint, show, stack, is_open=call.method == "auto"
                )
            lobpcg = {"preconditioner": call.preconditioner, "null": call.null}
            given = (
                lobpcg if solver == "lobpcg" else {"sigma": call.sigma, "OPinv": call.OPinv, "memory_budget": call.memory_budget}
            )
            return _otherwise(solver, posed, wanted, triple, asked, show, stack, given)

        return _in_range(solve, problem, triple, call.checkpoint)


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
        if getattr(pairs.report, "scale", bool(pairs.eigenvalues.any())):
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
    if isinstance(report, EigshReport):
        sigma = None if report.sigma is None else float(np.ldexp(report.sigma, -power))
        report = replace(report, eigenvalues=values, scale=float(unscaled(np.array(report.scale), power)), sigma=sigma)
    return Eigenpairs(values, pairs.eigenvectors, pairs.residuals, report, pairs.trace)


def _by_lanczos(
    problem: AbstractProblem,
    wanted: Wanted,
    precision: Precision,
    asked: Asked,
    degree: int | None,
    checkpoint: str | os.PathLike[str] | None,
    show: OpenReporter,
    stack: ExitStack,
    *,
    is_open: bool,
) -> Eigenpairs:
    """Pairs by block Lanczos, by LAPACK where its basis would be the whole space, or by the inverse if the method ``is_open``."""
    layout = problem.layout(wanted, precision, asked.ncv, asked.block)
    if layout is None:
        start_of(asked.v0, problem.n, BLOCKS[0])
        session = Session(wanted, precision, show=show)
        found, vectors, records = *_all_of_it(problem, wanted, precision, stack), None
        report = session.report(found, None, n=problem.n)
    else:
        start, sizes = start_of(asked.v0, problem.n, layout.sizes.block), layout.sizes
        plan = None if layout.plan is None else layout.plan.space
        kept = None
        if checkpoint is not None:
            kept = _kept(checkpoint, problem, wanted, precision, sizes, asked.check, degree, start)
        space = problem.space(sizes.block, sizes.panels + 1, precision, stack, plan=plan, trace=asked.trace)
        session = Session(wanted, precision, plan=layout.plan, checkpoint=kept, show=show)
        found, vectors = _restarted(space, wanted, start, asked.max_passes, asked.check, degree, session)
        report = session.report(found, space, n=problem.n)
        if found.is_hopeless and is_open and precision == Precision.DDD:
            near = solved_from_zero(problem, wanted, asked, stack)
            if near is not None:
                near.found.counts.add(found.counts)
                found, vectors = ascending(near.found, near.vectors)
                report = session.report(found, space, n=problem.n, method=near.method, ncv=near.columns, sigma=near.sigma)
        records = report.traced(space.trace) if isinstance(space, DeviceSpace) and space.trace else None
    return _checked(found, vectors, wanted, precision, report, records)


def _refuse_what_is_not_there(method: str, mode: str, mass: object) -> None:
    """Raise for methods and modes that do not exist, and for generalized problems."""
    if mass is not None:
        raise TypeError(
            "generalized problems A v = w M v are not solved: give the LinearOperator of L^-1 A L^-T, M = L L^T, whose "
            "eigenvalues they have. A preconditioner of LOBPCG is preconditioner=..."
        )
    if method not in _METHODS:
        raise ValueError(f"method is {method!r:.40}; give one of {', '.join(repr(each) for each in _METHODS)}")
    if mode not in _MODES:
        raise ValueError(f"mode is {mode!r:.40}; give one of {', '.join(repr(each) for each in _MODES)}")


def _otherwise(
    solver: str,
    problem: AbstractProblem,
    wanted: Wanted,
    precision: Precision,
    asked: Asked,
    show: OpenReporter,
    stack: ExitStack,
    given: dict[str, Any],
) -> Eigenpairs:
    """Pairs by LOBPCG, or near a shift."""
    session = Session(wanted, precision, show=show)
    if solver == "lobpcg":
        solved = solved_by_lobpcg(problem, wanted, precision, asked, stack, at_step=session.at_step, **given)
    else:
        solved = solved_near(problem, wanted, precision, asked, stack, at_restart=session.at_restart, **given)
    found, vectors = ascending(solved.found, solved.vectors)
    space = solved.space
    report = session.report(
        solved.found, space, n=problem.n, method=solved.method, block=solved.block, ncv=solved.columns, sigma=solved.sigma
    )
    records = report.traced(space.trace) if isinstance(space, DeviceSpace) and space.trace else None
    return _checked(found, vectors, wanted, precision, report, records)


def _kept(
    path: str | os.PathLike[str],
    problem: AbstractProblem,
    wanted: Wanted,
    precision: Precision,
    sizes: Sizes,
    check: bool,
    degree: int | None,
    start: NDArray[np.float64] | None,
) -> Checkpoint:
    """Where restarts are kept, looked at before anything is computed, and what they belong to."""
    KIND.check(path, problem.files)
    key = arithmetic_key(
        problem.key(), wanted, precision, sizes, check=check, degree=degree, start=start, devices=problem.devices
    )
    return Checkpoint(path, key, KIND, problem.files)


def _restarted(
    space: AbstractSpace,
    wanted: Wanted,
    start: NDArray[np.float64] | None,
    max_passes: int,
    check: bool,
    degree: int | None,
    session: Session,
) -> tuple[Found, NDArray[Any]]:
    """Block Lanczos, and the pairs it ended with, ascending."""
    run = Lanczos(space, wanted, max_passes=max_passes, check=check, degree=degree, at_restart=session.at_restart)
    session.begin(run)
    if isinstance(space, DeviceSpace):
        space.expect_to_take(wanted.k, space.precision.storage)
    with session.watching():
        found = run.run(start)
    return returned(space, found)


def _all_of_it(problem: AbstractProblem, wanted: Wanted, precision: Precision, stack: ExitStack) -> tuple[Found, NDArray[Any]]:
    """All eigenpairs by LAPACK, of which the wanted ones are taken, ascending."""
    whole = whole_pairs(problem.exact(stack), problem.n, wanted, precision)
    counts = LanczosCounts(passes=whole.products, asymmetry=whole.asymmetry)
    stuck = bool((whole.residuals > wanted.tol * whole.scale).any())
    why = "LAPACK's eigenvectors are no better" if stuck else ""
    return ascending(Found(whole.values, whole.residuals, whole.scale, why, counts), whole.vectors)


def _checked(
    found: Found,
    vectors: NDArray[Any],
    wanted: Wanted,
    precision: Precision,
    report: EigshReport,
    records: Trace | None,
) -> Eigenpairs:
    """The pairs, if all have converged."""
    scale = found.scale
    residuals = found.residuals / scale if scale else found.residuals
    if found.why_not:
        raise _not_converged(found, vectors, residuals, wanted, precision, report.method)
    if report.method != "shift-invert":  # whose values are better than residuals in A
        _warn_of_few_digits(found, wanted)
    return Eigenpairs(found.values, vectors, residuals, report, records)


def _warn_of_few_digits(found: Found, wanted: Wanted) -> None:
    """Warn where digits were asked for, and values that are no zeros are so small beside the largest that few are known."""
    sizes, roundoff = np.abs(found.values), float(np.finfo(np.float64).eps) * found.scale
    few = (found.residuals > _FEW * sizes) & (found.residuals < sizes) & (sizes > _ZERO * roundoff)
    if wanted.tol > _FINE or not few.any():
        return
    at = int(np.argmax(few * found.residuals / np.maximum(sizes, roundoff)))
    warnings.warn(
        f"tol = {wanted.tol:g} is relative to the largest eigenvalue, {found.scale:.3g}, beside which {int(few.sum())} of these "
        f"are so small that few of their digits are known, such as {found.values[at]:.6g} +- {found.residuals[at]:.1g}: a "
        "smaller tol gives some more, and sigma=0 or another sigma near them, where A can be factored, gives all",
        PrecisionWarning,
        stacklevel=8,  # of eigsh
    )


def _not_converged(
    found: Found,
    vectors: NDArray[Any],
    residuals: NDArray[np.float64],
    wanted: Wanted,
    precision: Precision,
    method: str,
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
