"""The wiring behind :func:`cholesky` and :func:`plan`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ooc_chol import blas_buffers
from ooc_chol.dense import running
from ooc_chol.dense.execution.executor import Execution, Salvage
from ooc_chol.dense.execution.records import predicted_records
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.mixed import MixedRequest, doubts, factor_mixed, plan_mixed
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.passes import Passes
from ooc_chol.dense.planner import Problem, RatesAt, make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.progress_bar import progress_reporter
from ooc_chol.dense.rates import rates_for, stored_rates
from ooc_chol.dense.report import FactorReport
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import PrecisionWarning
from ooc_chol.formats import FP64
from ooc_chol.kernels.machine import HOST, host_threads, kind_of, resolve_devices
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import as_source
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.precision.certified import CertifiedBound
from ooc_chol.precision.norms import MatrixNorms, Probes
from ooc_chol.room import memory_errors_typed
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tracing.records import Trace

Progress: TypeAlias = bool | Callable[[int, int, float], None] | None


def cholesky(
    a: Any,
    precision_threshold: float | None = None,
    *,
    tile_size: int | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    policy: str = "planned",
    objective: str = "seconds",
    fp64: str = "auto",
    moduli: int | None = None,
    precision_rule: str = "unit-roundoff",
    half_products: bool | str | None = None,
    strict: bool = True,
    store: str | os.PathLike[str] | HostMemory | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    replace_store: bool = False,
    overwrite: bool = False,
    plan: Plan | None = None,
    progress: Progress = None,
    trace: bool = False,
) -> CholeskyFactor:
    """Factor a symmetric positive definite matrix, ``A = L @ L.T``, in as little device memory as it is given.

    Parameters
    ----------
    a : (n, n) array, path, or source
        The matrix; only its lower triangle is read. A NumPy array of any stride order, a memmap, the path of a ``.npy`` file,
        anything with ``shape``, ``dtype`` and slicing, a CuPy or DLPack array, or :func:`from_function`. float64 is taken as it
        is and float32 widened.
    precision_threshold : float or None
        Mixed precision: most of ``||A - L L.T||_F / ||A||_F``. Each tile below the diagonal is stored in the narrowest of FP64,
        FP32, FP16 and FP8 that this allows, and computed accordingly; the error of the factor is then measured with random
        vectors and certified (``L.report.certified_bound``). None factors in FP64.
    strict : bool
        Whether the certified bound must be at most the threshold: what exceeds it is computed again in wider formats, at last in
        FP64. False gives the first factor with whatever bound it has, and a :class:`PrecisionWarning` where that is more.
    precision_rule : {"unit-roundoff", "paper"}
        What a format's error is taken to be: its unit roundoff, or as in the paper its machine epsilon, twice that.
    half_products : bool, "fp8" or None
        In mixed precision through residues: whether products that are small by their expected norms run in FP16, and with "fp8"
        the smallest ones in FP8. None lets them run in FP16 where measured rates say that this is faster.
    tile_size : int or None
        Order of a tile; None chooses by size and budget, larger ones than run best where these would be too many to plan.
    devices : str, sequence of str, int or None
        Device names such as ``"cuda:0"`` or ``"host:0"``, a count, or None for every visible GPU, else the host.
    memory_budget : int, str or None
        Bytes of memory per device, or text such as ``"256 MiB"``; None takes up to half of what is free
        on the host, and all but 2 GiB of what is free on a GPU.
    host_budget : int, str or None
        Most bytes of host memory for L when it is kept in memory; None takes what is free.
    policy : {"planned", "sync", "async", "v1", "v2", "v3"}
        How tiles move; it never changes the result. All but the first are those of the paper, for comparison.
    objective : {"seconds", "bytes"}
        What the plan makes least. Without measured rates seconds are unknown, and bytes are made least.
    fp64 : {"auto", "native", "residue"}
        How FP64 products are computed: in the device's own arithmetic, or as exact integers through residues on int8 units, as
        accurate and on an H200 about twice as fast. "auto" takes residues where measured rates predict fewer seconds.
    moduli : int or None
        Moduli of products through residues, from 4 to 16. None takes 14 (54 bits of each row's norm) up to order 32768 and 13
        (50 bits) above, which is as accurate as native FP64; fewer are faster and less accurate.
    store : path, HostMemory or None
        File for L, named ``path + ".partial"`` until the factor is complete; a factor that is there is replaced then, any other
        file only with ``replace_store=True``, and the file of ``a`` never. A run that fails or is interrupted removes the partial
        file; what a killed one leaves there, the next replaces. None keeps L in memory, a :class:`HostMemory` in memory that one
        factorization after the other uses.
    checkpoint : None
        Not there yet.
    replace_store : bool
        Let L replace whatever file ``store`` names.
    overwrite : bool
        Keep L in the lower triangle of ``a``, a writable float64 array; ``a`` is lost then, also when the factorization fails.
    plan : Plan or None
        A plan in FP64 for such a matrix of this order and kind of source, from :func:`plan` or ``L.report.plan``, in place of
        the options of planning: of many factorizations of one shape only the first is then planned.
    progress : bool or callable
        True shows a bar on the standard error stream; a callable receives ``(flops_done, flops_total, seconds)``.
    trace : bool
        Keep every operation for ``L.trace``.

    Returns
    -------
    CholeskyFactor
        The factor, with :attr:`report` and, if asked for, :attr:`trace`.

    Raises
    ------
    NotPositiveDefiniteError
        A leading minor is not positive definite; ``minor`` is its order. In mixed precision only where FP64 says so, too: a pivot
        that fails there is computed again in wider formats (``report.escalations``).
    NonFiniteError
        The lower triangle holds a NaN or an infinity; ``row`` and ``col`` say where.
    PrecisionError
        With a threshold: the factor in FP64 is not certified to be within it, either. The certificate itself errs by 1e-12 to
        2e-9, more at large orders, and smaller thresholds are refused before anything runs.
    BudgetError
        ``memory_budget`` or ``host_budget`` is too small; ``needed_bytes`` says what would do.
    PlanSizeError
        The tiles are so many that the plan would have millions of steps; ``tile_size`` and ``memory_budget`` say what can be
        planned. A :class:`BudgetError`, told before A is read.
    TierError
        A file cannot be read or written, or that of A changes during the call. As :class:`OutputError`: ``store`` is the file of
        ``a`` by whatever name, as far as that is known, or exists and is no factor.
    ValueError, TypeError
        The matrix is not square, of another dtype, or an option is wrong; or ``plan`` is for another matrix, or comes beside
        options of planning.
    NotImplementedError
        ``checkpoint``, which this version does not have.

    Notes
    -----
    ``n³/3`` flops. One arithmetic key (``L.arithmetic_key``) gives one factor to the bit, whatever the budget, policy or number
    of workers at equal threads per BLAS call. Method: Ren, Ltaief, Abdulah, Keyes (2024), arXiv 2410.09819, with panels and
    next-use eviction planned ahead.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> a = np.array([[4.0, 0.0], [2.0, 5.0]])
    >>> oc.cholesky(a).solve(np.array([8.0, 12.0]))
    array([1., 2.])
    """
    _refuse_what_is_not_there(checkpoint)
    names = _device_option(devices)
    options = FactorOptions(
        tile_size=tile_size,
        devices=names,
        memory_budget=memory_budget,
        host_budget=host_budget,
        policy=policy,
        objective=objective,
        fp64=fp64,
        moduli=moduli,
        precision_threshold=precision_threshold,
        precision_rule=precision_rule,
        half_products=half_products,
    )
    if overwrite and store is not None:
        raise ValueError("store and overwrite=True are two places for L; give one of them")
    if overwrite and precision_threshold is not None:
        raise ValueError("overwrite=True keeps L in FP64 over A, which a failed pivot needs again; leave it or the threshold out")
    began = time.perf_counter()
    with memory_errors_typed("factorization"), closing(as_source(a)) as source:
        blas_buffers.ensure(numpys=True)  # planning in mixed precision factors a sample
        running.check_store(source, store, replace=replace_store)
        if plan is not None:
            _check_plan(plan, source, options)
        rates_at = _rates_finder(options, source, store)
        call = _Call(
            a,
            source,
            options,
            rates_at,
            plan,
            progress,
            store,
            replace_store,
            overwrite,
            strict,
            trace,
            began,
            Passes(is_traced=trace),
        )
        return _factor(call) if precision_threshold is None else _factor_mixed(call)


class _Call(NamedTuple):
    """One call of :func:`cholesky`: its arguments, checked, and when it began."""

    a: Any
    source: AbstractSource
    options: FactorOptions
    rates_at: RatesAt
    plan: Plan | None
    progress: Progress
    store: str | os.PathLike[str] | HostMemory | None
    replace_store: bool
    overwrite: bool
    strict: bool
    trace: bool
    began: float
    passes: Passes


@contextmanager
def _stores_of(call: _Call) -> Iterator[Callable[[Plan], AbstractStore]]:
    """What makes stores for L, and owns them until the block ends with a factor: else each is discarded."""
    with ExitStack() as stack:

        def make_store(the_plan: Plan) -> AbstractStore:
            store = running.create_store(
                call.a, the_plan, call.store, call.options, overwrite=call.overwrite, replace=call.replace_store
            )
            stack.callback(store.discard)  # of no effect on one that was discarded before
            return store

        yield make_store
        stack.pop_all()


def _factor(call: _Call) -> CholeskyFactor:
    """Plan and run in FP64."""
    the_plan = call.plan or make_plan(Problem.of(call.source), call.options, call.rates_at)
    threads = host_threads(len(the_plan.devices))
    with _stores_of(call) as make_store:
        with progress_reporter(call.progress) as reporter, running.one_thread_per_call(the_plan.devices):
            store = make_store(the_plan)
            execution = running.run(the_plan, call.source, store, threads=threads, report=reporter)
            setup = time.perf_counter() - call.began - execution.seconds
            store.complete()
        return _factor_of(call, store, FactorReport(the_plan, execution, setup, passes=call.passes))


def _factor_mixed(call: _Call) -> CholeskyFactor:
    """Measure, plan and run with a precision threshold."""
    names = resolve_devices(call.options.devices)
    threads, spent, certified = host_threads(len(names)), 0.0, 0.0

    def run(the_plan: Plan, store: AbstractStore, salvage: Salvage) -> Execution:
        nonlocal spent
        with progress_reporter(call.progress) as reporter, running.one_thread_per_call(names):
            execution = running.run(the_plan, call.source, store, threads=threads, report=reporter, salvage=salvage)
        spent += execution.seconds
        return execution

    def measure(grid: TileGrid, samples: bool, probes: Probes | None) -> MatrixNorms:
        with call.passes.running("norms of A", 0 if probes is None else probes.vectors.shape[1]) as one:
            return running.measure(call.source, grid, names, threads=threads, samples=samples, probes=probes, one=one)

    def certify(the_plan: Plan, store: AbstractStore, norms: MatrixNorms) -> CertifiedBound:
        nonlocal certified
        since = time.perf_counter()
        with call.passes.running("certificate", 0 if norms.probes is None else norms.probes.vectors.shape[1]) as one:
            bound = running.certify(the_plan, store, norms, threads=threads, one=one)
        certified += time.perf_counter() - since
        return bound

    with _stores_of(call) as make_store:
        parts = Problem.of(call.source), call.options, call.rates_at, measure, make_store, run, certify, call.strict
        result = factor_mixed(MixedRequest(*parts))
        result.store.describe(running.arithmetic_key(result.plan).to_dict())  # formats may be wider than those it was made for
        setup = time.perf_counter() - call.began - spent - certified
        result.store.complete()
        report = FactorReport(
            result.plan, result.execution, setup, tuple(result.escalations), result.bound, certified, call.passes
        )
        factor = _factor_of(call, result.store, report)
        assert call.options.precision_threshold is not None
        for doubt in doubts(result, call.options.precision_threshold, factor.diagonal()):
            warnings.warn(doubt, PrecisionWarning, stacklevel=3)
        return factor


def _factor_of(call: _Call, store: AbstractStore, report: FactorReport) -> CholeskyFactor:
    """What the user gets."""
    key = running.arithmetic_key(report.plan).to_dict()
    trace, kept = _trace_of(report) if call.trace else None, None if call.overwrite else call.a
    solver = running.device_solver(report.plan)
    return CholeskyFactor(report.plan.grid, store, key, report, trace, kept, solver, call.source.files)


def plan(
    n_or_a: Any,
    *,
    tile_size: int | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    policy: str = "planned",
    objective: str = "seconds",
    fp64: str = "auto",
    moduli: int | None = None,
    precision_threshold: float | None = None,
    precision_rule: str = "unit-roundoff",
    half_products: bool | str | None = None,
    store: str | os.PathLike[str] | HostMemory | None = None,
) -> Plan:
    """Plan a factorization without running it; ``print(plan)`` is a page that a person understands.

    Parameters
    ----------
    n_or_a : int, or as for :func:`cholesky`
        The order of a float64 matrix, or the matrix itself.
    tile_size, devices, memory_budget, policy, objective, fp64, moduli, precision_threshold, precision_rule, half_products, store
        As for :func:`cholesky`. With a threshold the matrix itself is needed: its norms decide on the formats.

    Returns
    -------
    Plan
        Bytes per link, peak memory, flops and, with measured rates, seconds; checked in a simulator.

    Raises
    ------
    BudgetError
        The budget does not hold three tiles.
    PlanSizeError
        As for :func:`cholesky`.
    ValueError, TypeError
        An option is wrong.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan(160_000, tile_size=4096, memory_budget="80 GB")
    >>> plan.loaded_bytes == plan.compulsory_bytes  # every tile of A read once, none of L fetched again
    True
    """
    names = _device_option(devices)
    options = FactorOptions(
        tile_size=tile_size,
        devices=names,
        memory_budget=memory_budget,
        policy=policy,
        objective=objective,
        fp64=fp64,
        moduli=moduli,
        precision_threshold=precision_threshold,
        precision_rule=precision_rule,
        half_products=half_products,
    )
    if isinstance(n_or_a, int | np.integer) and not isinstance(n_or_a, bool):
        if precision_threshold is not None:
            raise ValueError(f"formats follow from the norms of A's tiles: give the matrix instead of its order {n_or_a}")
        problem = Problem(int(n_or_a), FP64.itemsize, "array")
        devices = _measured_devices(options)
        kind = _store_kind(store)
        return make_plan(problem, options, lambda grid: None if devices is None else stored_rates(grid, "array", kind, devices))
    source = as_source(n_or_a)
    try:
        rates_at = _rates_finder(options, source, store)
        if precision_threshold is not None:
            there = resolve_devices(options.devices)
            return plan_mixed(
                Problem.of(source),
                options,
                rates_at,
                lambda grid, samples, _: running.measure(source, grid, there, threads=host_threads(len(there)), samples=samples),
            )
        return make_plan(Problem.of(source), options, rates_at)
    finally:
        source.close()


def _check_plan(plan: Plan, source: AbstractSource, options: FactorOptions) -> None:
    """Raise ``ValueError`` unless ``plan`` is of such a matrix, here, and no option asks for another one."""
    if plan.precision is not None or options.precision_threshold is not None:
        raise ValueError("a plan in mixed precision is made for the norms of one matrix: leave plan out, and give the options")
    others = replace(options, host_budget=None)
    given = [field.name for field in fields(others) if getattr(others, field.name) != field.default]
    if given:
        raise ValueError(f"plan is given, and beside it {', '.join(given)}, which it decides: leave them out, or plan with them")
    if plan.grid.n != source.n or plan.source != source.name:
        raise ValueError(
            f"the plan is of order {plan.grid.n} from a source of kind {plan.source!r}, but the matrix has order {source.n} and "
            f"comes from one of kind {source.name!r}: plan it with oc.plan(A)"
        )
    resolve_devices(plan.devices)


def _device_option(devices: str | Sequence[str] | int | None) -> str | tuple[str, ...] | int | None:
    """Devices as options hold them."""
    return tuple(devices) if isinstance(devices, Sequence) and not isinstance(devices, str) else devices


def _refuse_what_is_not_there(checkpoint: object) -> None:
    """Raise for the parts of the interface that this version does not have."""
    if checkpoint is not None:
        raise NotImplementedError("checkpoint is not there yet; leave it out, and give store= to keep L in a file")


def _measured_devices(options: FactorOptions) -> tuple[str, ...] | None:
    """The devices whose rates are known; None for several host devices, which share the cores that were measured for one."""
    names = resolve_devices(options.devices, must_exist=False)
    return None if len(names) > 1 and kind_of(names[0]) is HOST else names


def _rates_finder(options: FactorOptions, source: AbstractSource, store: object) -> Callable[[TileGrid], Rates | None]:
    """Measured rates for any grid, on the devices that were asked for; these are looked up where a plan is made."""

    def rates_at(grid: TileGrid) -> Rates | None:
        devices = _measured_devices(options)
        return None if devices is None else rates_for(source, grid, _store_kind(store), devices)

    return rates_at


def _store_kind(store: object) -> str:
    """Kind of the store, for its rates; L over A's own triangle moves as in memory."""
    return "memory" if store is None or isinstance(store, HostMemory) else "file"


def _trace_of(report: FactorReport) -> Trace:
    """The run as a trace, its prediction beside it."""
    plan = report.plan
    metadata: dict[str, str | int | float] = {
        "n": plan.grid.n,
        "tile_size": plan.grid.nb,
        "policy": plan.policy.name,
        "devices": ", ".join(plan.devices),
        "budget_bytes": plan.budgets[0].budget_bytes,
        "source": plan.source,
        "seconds": report.seconds,
        "gflops_per_second": report.tflops * 1e3,
    }
    return Trace(report.execution.records, predicted_records(plan), metadata)
