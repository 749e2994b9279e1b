"""``oc.impute``: missing slices, or entries, of matrices at the vertices of a graph."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import ExitStack
from typing import Any

from ooc_chol.calls.habits import answering
from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import checked, documented
from ooc_chol.calls.progress import Progress, open_reporter
from ooc_chol.errors import ImputationWarning
from ooc_chol.kernels.interfaces.tensors import Shrinkage, Svt, resolve_svt
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.planning import Devices
from ooc_chol.tensors.checkpoint import KIND, Checkpoint, arithmetic_key
from ooc_chol.tensors.fourier import fourier_of
from ooc_chol.tensors.imputation import Begun, Callback, ImputationRun, as_it_is, check_beside, space_of, start_of
from ooc_chol.tensors.plan import TensorPlan, check_host_budget, plan_tensor, plan_that_fits
from ooc_chol.tensors.problem import Center, check_center, check_order, given_of, problem_of
from ooc_chol.tensors.report import Imputed
from ooc_chol.tensors.schedule import schedule_of
from ooc_chol.tensors.share import TensorProblem

#: What to do without an argument that other calls have.
_ELSEWHERE = {"client": "each step needs the whole tensor beside all eigenvectors, in one process: leave it out"}


@answering(_ELSEWHERE)
@documented(
    devices="Bits do not depend on their number.",
    memory_budget="What does not fit passes through in each step; the bits do not depend on it.",
    checkpoint="Each value of lambda replaces it, by custom ``.oocimp``; it stays in the end.",
    progress="Steps are counted, and ``total`` is the most that there may be.",
    plan="As :func:`plan_impute` makes it.",
)
def impute(
    X: Any,
    mask: Any,
    graph: Any,
    *,
    n_lambdas: int = 20,
    decay: float = 0.5,
    max_inner: int = 10,
    tol: float = 1e-8,
    svt: Svt = "auto",
    precision: Precision | str | None = None,
    momentum: float = 0.7,
    shrinkage: Shrinkage = "garrote",
    center: Center = "auto",
    start: Any = None,
    first_lambda: float | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: TensorPlan | None = None,
) -> Imputed:
    """Missing slices, or entries, of a graph-tensor: of low rank, slice by slice, in the Fourier domain of the graph.

    Parameters
    ----------
    X : (N, m, n) array
        An m x n matrix at each vertex, float32, float64 or whole numbers, in memory or a memory-mapped file. What is missing may
        hold anything, NaN too.
    mask : (N,) or (N, m, n) bool array, or None
        True where a slice, or an entry, is observed; None takes NaN for what is missing.
    graph : GraphFourier or graph
        The transform, or a graph as :class:`GraphFourier` takes it, all of whose eigenvectors are then computed.
    n_lambdas : int
        Values of lambda. The first is s_1, the largest singular value of any slice of the transform of what is observed.
    decay : float
        Each value is this share of the last one.
    max_inner : int
        Most steps for each value.
    tol : float
        A value has had enough steps when missing entries change by at most this share of all entries, in mean squares.
    svt : {"auto", "gram64", "subspace", "svd"}
        How singular values are found: Gram matrices in float64, subspaces with a certificate, or SVD. "auto" takes subspaces for
        slices of 48 rows and columns and more.
    precision : Precision or str, optional
        ``"FFF"``, ``"FDF"`` or ``"DDD"``: types in which the tensor is stored, transformed, and summed. By default FDF for an X
        of float32, DDD for float64.
    momentum : float
        How far each step goes beyond its estimate, from 0 to less than 1. It needs no memory.
    shrinkage : {"garrote", "soft"}
        Value that a singular value s above lambda becomes: ``s - lambda**2 / s``, or ``s - lambda``, as in the paper.
    center : bool or "auto"
        Take the mean of all that is observed off before, and add it to the result. By default where it is more than four times
        its standard error.
    start : Imputed or (N, m, n) array, optional
        Estimates to start from where nothing is observed, instead of zero.
    first_lambda : float, optional
        First value of lambda instead of s_1. By default the last one of an ``Imputed`` as start; with an array it must be given.
    work_folder : str or PathLike, optional
        Folder for files that hold what devices do not keep in place of main memory, gone when the process ends.
    callback : callable, optional
        ``callback(row, estimate)`` after each value of lambda: its row of the history, and a function that copies the tensor as
        it is. The run ends when it returns True.

    Returns
    -------
    Imputed
        With ``tensor``, what was observed as it was; ``history``, ``last_lambda``, ``report`` and ``trace``.

    Raises
    ------
    ValueError, TypeError
        The graph is of another order than X, nothing is observed, mask is not bool, or an argument makes no sense. As
        ``NonFiniteTensorError``: NaN or infinity where X is observed.
    BudgetError
        A budget does not hold what it must, or the system does not grant the memory; the message says what would do.
    CheckpointError
        The checkpoint is of another problem; the message says what differs.
    ImputationInterrupted
        Ctrl-C, after the step: the error's ``imputed`` is what the run had come to. A second one ends the step, too.

    Warns
    -----
    ImputationWarning
        Nothing is missing; or something becomes zero, or the mean, because nothing observed tells of it. Also where the mask
        seems to be the other way round.

    Notes
    -----
    With "soft" the model is ``1/2 ||P(Y - U Z)||**2 + lambda sum_k ||Z_k||_*`` over the slices Z_k of the transform Z, P keeping
    what is observed: Algorithm 1 of Zhou and Zhang (2021), after Sun, Yan, Boyd and Donoho (2018). The garrote takes less from
    values that are far above lambda; its model is not convex, and depends on lambda falling slowly. With noise it needs
    ``n_lambdas`` that end above the noise. The run ends at ``lambda <= 8 u sqrt(max(m, n)) s_1``, u the unit roundoff of storage.

    Slices that share a multiple eigenvalue are thresholded as one matrix, so that results do not depend on the choice of its
    eigenvectors. With fewer components than vertices, what is observed outside of the span of U takes no part in the fit but as
    a constant.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> step = np.roll(np.eye(60), 1, axis=1)
    >>> ring = step + step.T
    >>> fourier = oc.GraphFourier(ring)
    >>> x = oc.testing.low_rank_tensor(fourier, 20, 20, 1)
    >>> mask = oc.testing.random_mask(x.shape, 0.8)
    >>> imputed = oc.impute(x, mask, fourier)
    >>> bool(np.linalg.norm(imputed.tensor - x) < 1e-3 * np.linalg.norm(x))
    True
    """
    since = time.perf_counter()
    schedule = schedule_of(n_lambdas, decay, max_inner, tol, momentum, shrinkage)
    how = checked(replace=replace, checkpoint=checkpoint, host_budget=host_budget, progress=progress, trace=trace)
    machine = Machine(devices, memory_budget)
    check_beside(start, first_lambda, callback, work_folder)
    if checkpoint is not None:
        KIND.check(checkpoint, replace=how["replace"])
    given = given_of(X, mask, precision, center)
    route = resolve_svt(svt, *given.observed.shape[1:])
    first, before = start_of(start, first_lambda, given)
    parts, began = {}, time.perf_counter()
    fourier = fourier_of(graph, devices)
    parts["fourier"] = 0.0 if fourier is graph else time.perf_counter() - began
    check_order(fourier.n_vertices, given.observed.shape)
    began = time.perf_counter()
    problem = TensorProblem(given.shape_over(fourier.n_components), given.precision, route, given.mask_kind).beside(
        fourier.eigenspaces
    )
    planned = plan_tensor(problem, machine, work_folder) if plan is None else plan_that_fits(plan, problem, machine, work_folder)
    check_host_budget(planned, how["host_budget"], machine)
    parts["plan"] = time.perf_counter() - began
    facts = (given, fourier, schedule, route, first, before, planned.devices[0])
    key = arithmetic_key(*facts, entries=False)
    if given.mask.all():
        return as_it_is(X, planned, key, parts).ended(since)
    for text in given.untold(fourier):
        estimate = "the mean of what is observed" if given.center else "zero"
        warnings.warn(f"{text}, so that the estimate is {estimate}", ImputationWarning, stacklevel=3)
    with ExitStack() as stack:
        show = stack.enter_context(open_reporter(progress, schedule.n_lambdas * schedule.max_inner, "impute", "step"))
        kept, began = None, time.perf_counter()
        if checkpoint is not None:
            kept = Checkpoint(checkpoint, arithmetic_key(*facts, entries=True), given.incomplete, replace=how["replace"])
        parts["checkpoints"] = time.perf_counter() - began
        begun = Begun(planned, key, len(given.unreached(fourier)), since, time.perf_counter(), parts)
        space = stack.enter_context(space_of(planned, given, fourier, work_folder, trace=how["trace"]))
        found = ImputationRun(space, given, schedule, kept, callback, show, begun).run(first, before)
    return found.ended(since)


@answering(_ELSEWHERE)
@documented(like=impute)
def plan_impute(
    X: Any,
    mask: Any,
    graph: Any,
    *,
    n_lambdas: int = 20,
    decay: float = 0.5,
    max_inner: int = 10,
    tol: float = 1e-8,
    svt: Svt = "auto",
    precision: Precision | str | None = None,
    momentum: float = 0.7,
    shrinkage: Shrinkage = "garrote",
    center: Center = "auto",
    start: Any = None,
    first_lambda: float | None = None,
    work_folder: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
) -> TensorPlan:
    """Plan an imputation without computing anything: what each device keeps, and bytes over each link and step.

    Parameters
    ----------
    X : (N, m, n) array or (int, int, int)
        The tensor, or its shape: N slices, and rows m and columns n of each. A shape is taken for that of float32.
    mask : (N,) or (N, m, n) bool array, {"slices", "entries"} or None
        True where a slice, or an entry, is observed, or a word for which of both is. None looks for NaN in X, and takes slices
        for a shape.
    graph : GraphFourier, graph, int or None
        The transform, a graph of N vertices, or a number of eigenvectors, at most N; None for all of them.

    Returns
    -------
    TensorPlan
        The plan; ``print`` shows it as a page.

    Raises
    ------
    BudgetError
        ``memory_budget`` does not hold the eigenvectors and one panel, or ``host_budget`` not what devices do not keep; it says
        how many bytes would do.
    TypeError, ValueError
        An argument makes no sense, or there is no such device. With a ``memory_budget`` devices need not be on this machine.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan_impute(
    ...     (2600, 512, 512),
    ...     None,
    ...     None,
    ...     precision="FFF",
    ...     devices="cuda:0",
    ...     memory_budget="4 GiB",
    ... )
    >>> plan.is_in_core, plan.peak_bytes <= 4 << 30
    (False, True)
    """
    schedule_of(n_lambdas, decay, max_inner, tol, momentum, shrinkage)
    check_center(center)
    checked(replace=replace, checkpoint=checkpoint, host_budget=host_budget, progress=progress, trace=trace)
    check_beside(start, first_lambda, callback, work_folder)
    machine = Machine(devices, memory_budget, must_exist=memory_budget is None)
    plan = plan_tensor(problem_of(X, mask, graph, precision, svt), machine, work_folder)
    check_host_budget(plan, host_budget)
    return plan
