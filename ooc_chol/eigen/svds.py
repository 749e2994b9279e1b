"""The largest singular triplets by Lanczos on a square, with the residuals of both sides."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import checked
from ooc_chol.calls.progress import Progress, open_reporter
from ooc_chol.calls.report import CallBytes, CallSeconds
from ooc_chol.config import PAGE_BYTES, whole_number
from ooc_chol.eigen.asked import (
    DEFAULT_TOL,
    FLOORS,
    MOST_DENSE,
    Sizes,
    grown_note,
    passes_of,
    real_number,
    sizes_of,
    start_of,
)
from ooc_chol.eigen.checkpoint import TRIPLETS, Checkpoint
from ooc_chol.eigen.elsewhere import AbstractElsewhere
from ooc_chol.eigen.errors import NoConvergenceError
from ooc_chol.eigen.key import arithmetic_key, packed_key, product_key
from ooc_chol.eigen.lanczos import Lanczos
from ooc_chol.eigen.operator_space import OperatorSpace
from ooc_chol.eigen.placing import FEW, is_few, lies_on_gpu
from ooc_chol.eigen.planning import is_small
from ooc_chol.eigen.powers import RangeError, power_of, unscaled
from ooc_chol.eigen.session import Session
from ooc_chol.eigen.singular import SingularTriplets, SvdsReport
from ooc_chol.eigen.svds_plan import SvdsPlan, check_plan, plan_triplets
from ooc_chol.eigen.triplets import Triplets, dense_triplets, triplets_of
from ooc_chol.eigen.two_sided import NO_ADJOINT, AbstractTwoSided, OperatorTwoSided, PackedTwoSided, check_adjoint
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.errors import BudgetError, UnsupportedTypeError
from ooc_chol.files.inputs import check_name
from ooc_chol.files.outputs import AnyPath, Output, check_outputs
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.memory.block_files import PACKED_FILES, is_packed_file
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.elsewhere import refuse_on_cluster
from ooc_chol.sparse.keeping import host_room
from ooc_chol.sparse.key import blocks_key, products_key
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.pack import block_csr, facts_of_rows, file_of
from ooc_chol.sparse.plan import NO_DIAGONALS
from ooc_chol.sparse.planning import Devices, Known, check_host_budget, known_of, precision_of, refuse_packed
from ooc_chol.sparse.sources import rows_of
from ooc_chol.sparse.transpose import transposed_rows

#: Where residuals of ``B.T B`` end, relative to its largest eigenvalue: that of a value s is ``floor s_1 / s``.
FLOOR = {Precision.FFF: 5e-7, Precision.FDF: 6e-8, Precision.DDD: 1e-14}
#: Products with the square of a small matrix, after which its basis becomes larger.
_BRIEFLY = 2000


@dataclass(frozen=True, eq=False)
class SvdsCall:
    """The arguments of :func:`ooc_chol.svds`, as they were given."""

    A: Any
    k: int = 6
    which: str = "LM"
    precision: Precision | str | None = None
    tol: float | None = None
    ncv: int | None = None
    block: int | None = None
    v0: ArrayLike | None = None
    max_passes: int | None = None
    check: bool = True
    return_singular_vectors: bool | str = True
    packed: AnyPath | None = None
    replace: bool = False
    checkpoint: AnyPath | None = None
    devices: Devices = None
    memory_budget: int | str | None = None
    host_budget: int | str | None = None
    progress: Progress = None
    trace: bool = False
    plan: SvdsPlan | None = None
    elsewhere: AbstractElsewhere | None = None  #: Where products are made, if not on devices of this process

    def is_for_scipy(self, known: Known, precision: Precision, machine: Machine) -> bool:
        """Tell whether SciPy multiplies A and its transpose, which is not packed then."""
        if not self.is_open or self.trace or (self.plan is not None and self.plan.sides is not None):
            return False
        return is_small(known, machine, precision)

    def place(self, known: Known, k: int, precision: Precision, *, must_exist: bool = True) -> _Place:
        """Where it computes: where the caller or a plan says, where A lies, or where it ends soonest."""
        if self.plan is not None and self.devices is None:
            return _Place(Machine(self.plan.devices, self.memory_budget, must_exist=must_exist), self.plan.why)
        machine = Machine(self.devices, self.memory_budget, must_exist=must_exist)
        there = machine.on_host()
        if not machine.has_default_devices or lies_on_gpu(self.A) or not self.is_for_scipy(known, precision, there):
            return _Place(machine)
        with suppress(BudgetError):
            plan = plan_triplets(known.blocks.shape, k, precision, there, None, is_open=True, small=known)
            if is_few(known.blocks.n_entries, plan.basis_numbers):
                return _Place(there, FEW)
        return _Place(machine)

    @property
    def is_open(self) -> bool:
        """True if no option of Lanczos is given."""
        return all(each is None for each in (self.ncv, self.block, self.v0, self.max_passes, self.checkpoint))

    def asked(self) -> _Asked:
        """The request, checked as far as that can be without A's shape."""
        names = ("packed", "replace", "checkpoint", "memory_budget", "host_budget", "progress", "trace")
        checked(**{name: getattr(self, name) for name in names})
        if self.elsewhere is not None:
            refuse_on_cluster(trace=self.trace)
        if not (self.return_singular_vectors in ("u", "vh") or type(self.return_singular_vectors).__name__ in ("bool", "bool_")):
            raise ValueError(f"return_singular_vectors is {self.return_singular_vectors!r:.40}; give True, False, 'u' or 'vh'")
        if self.checkpoint is not None:
            check_name(self.checkpoint, "checkpoint")
        if self.plan is not None and not isinstance(self.plan, SvdsPlan):
            raise TypeError(f"plan is a {type(self.plan).__name__}; give what oc.plan_svds(A, k) makes, or leave it out")
        is_planned = self.precision is None and self.plan is not None
        precision = self.plan.precision if is_planned and self.plan is not None else self.precision
        return _asked_of(self.A, self.k, self.which, precision, self.tol, self.max_passes)


class _Place(NamedTuple):
    """Where a call computes."""

    machine: Machine
    why: str = ""  #: Why it is the host, where no device was named


class _Asked(NamedTuple):
    """Request of a call."""

    k: int
    precision: Precision
    tol: float
    most: int  #: Products with the square


class _Run(NamedTuple):
    """Outcome of a call."""

    triplets: Triplets
    passes: int = 0
    restarts: int = 0
    missed: int = 0
    why_not: str = ""
    is_whole: bool = False
    is_lost: bool = False  #: Whether squares lose the small values
    sizes: Sizes | None = None  #: Of the basis where it became larger than planned
    notes: tuple[str, ...] = ()  #: Sentences on the run with the planned one, before


def _asked_of(A: Any, k: int, which: str, precision: Precision | str | None, tol: float | None, max_passes: int | None) -> _Asked:
    """The arguments, checked."""
    if which != "LM":
        advice = "for the smallest take oc.eigsh of A.T @ A with which='SA' or sigma=0" if which == "SM" else "give 'LM'"
        raise ValueError(f"which is {which!r:.20}, but svds finds the largest singular values, 'LM': {advice}")
    if whole_number(k, "k") < 1:
        raise ValueError(f"k is {k}, but at least one triplet is found")
    is_single = getattr(A, "dtype", None) == np.float32 or (isinstance(A, tuple) and A[2:] == ("fp32",))
    wanted = precision_of(precision, Precision.FDF if is_single else Precision.DDD)
    goal = DEFAULT_TOL[wanted] if tol is None else real_number(tol, "tol") or FLOORS[wanted]
    if not FLOORS[wanted] <= goal < 1:
        advice = "" if wanted is Precision.DDD else ", or take precision='DDD'"
        raise ValueError(
            f"tol is {goal:g}, but in {wanted.value} residuals reach {FLOORS[wanted]:g} of the largest singular value: give at "
            f"least that, and less than 1{advice}"
        )
    return _Asked(k, wanted, goal, passes_of(max_passes))


# the matrix


def _refuse_operator(A: Any, call: SvdsCall) -> Machine | None:
    """Raise for what is no matrix; the host for a ``LinearOperator``, which multiplies there, and None for what is packed."""
    if isinstance(A, Operator):
        raise TypeError("A is an Operator, whose transpose is not packed: give svds the matrix with its diagonals multiplied in")
    refuse_packed(A, call.packed)
    if not isinstance(A, LinearOperator):
        return None
    if call.elsewhere is not None:
        raise TypeError("client shares out sparse matrices, but a LinearOperator multiplies in this process: leave client out")
    if A.dtype is not None and np.dtype(A.dtype).kind == "c":
        raise UnsupportedTypeError("svds", np.dtype(A.dtype).name, "give real numbers")
    machine = Machine("host:0" if call.devices is None else call.devices, call.memory_budget)
    if not machine.kind.is_in_host_memory:
        raise TypeError("a LinearOperator multiplies on the host by itself: leave devices out, or give a sparse matrix")
    if call.packed is not None:
        raise ValueError("packed is the file for a sparse matrix, but A is a LinearOperator: leave it out")
    return Machine("host:0", call.memory_budget)


def _sides(a: Known, at: Known) -> tuple[Known, Known]:
    """B and its transpose: B has no fewer rows than columns."""
    return (a, at) if a.blocks.shape[0] >= a.blocks.shape[1] else (at, a)


def _block_bytes(a: Known) -> int:
    """Bytes of a block of the transpose: as many as the largest of A has."""
    return max(PAGE_BYTES, a.blocks.largest_bytes)


def _known_sides(call: SvdsCall, a: Known) -> tuple[Known, Known]:
    """Facts of A and of its transpose, for a plan: A is read as packing would read it, and nothing is kept."""
    source = call.A
    if isinstance(source, tuple):
        shape, entries, kind = source
        return _sides(a, known_of((tuple(shape)[::-1], entries, kind)))
    with ExitStack() as stack:
        if isinstance(source, str | os.PathLike) and is_packed_file(source):
            source = stack.enter_context(block_csr(source))
        rows = transposed_rows(source if isinstance(source, BlockCSR) else rows_of(source))
        facts = facts_of_rows(rows, _block_bytes(a))
    tier = "memory" if call.packed is None else "file"
    nbytes = 0 if tier == "file" else facts.blocks.nbytes
    return _sides(a, Known(facts.blocks, tier, NO_DIAGONALS, facts.dtype, nbytes))


def _beside(packed: AnyPath | None) -> Path | None:
    """The name of the transpose's file."""
    if packed is None:
        return None
    path = Path(packed)
    return path.with_name(f"{path.stem}.transposed{path.suffix}")


class _Packed(NamedTuple):
    """A and its transpose, packed."""

    a: BlockCSR
    at: BlockCSR
    known: tuple[Known, Known]  #: Of B, and of its transpose
    place: _Place


class _Small(NamedTuple):
    """A as SciPy multiplies it, and its transpose."""

    a: LinearOperator
    known: Known  #: As it was packed
    place: _Place


def _packed_sides(call: SvdsCall, asked: _Asked, stack: ExitStack) -> _Packed | _Small:
    """Pack A where it is not, and its transpose unless SciPy multiplies it."""
    how: dict[str, Any]
    if call.packed is not None:
        check_name(call.packed, "packed")
        outputs = [
            Output("packed", call.packed, PACKED_FILES),
            Output("packed (the transpose)", _beside(call.packed), PACKED_FILES),
        ]
        check_outputs(outputs, [("A", file_of(call.A))], replace=call.replace)
    if isinstance(call.A, BlockCSR):
        a, known = call.A, known_of(call.A)
    else:
        a = stack.enter_context(block_csr(call.A, store=call.packed, replace=call.replace))
        known = known_of(a)
        known = known._replace(packed_bytes=a.nbytes if known.tier == "memory" else 0)
    place = call.place(known, asked.k, asked.precision)
    if call.is_for_scipy(known, asked.precision, place.machine):
        times = csr_array(a.tocsr(), dtype=np.float64)
        adjoint = csr_array(times.T)
        how = {"matmat": times.__matmul__, "rmatmat": adjoint.__matmul__, "rmatvec": adjoint.__matmul__}
        return _Small(LinearOperator(times.shape, times.__matmul__, dtype=times.dtype, **how), known, place)
    how = {"store": _beside(call.packed), "block_bytes": _block_bytes(known), "replace": call.replace}
    at = stack.enter_context(block_csr(transposed_rows(a), **how))
    beside = known_of(at)
    sides = _sides(known, beside._replace(packed_bytes=at.nbytes if beside.tier == "memory" else 0))
    return _Packed(a, at, sides, place)


# plan and call


def planned_triplets(call: SvdsCall) -> SvdsPlan:
    """Plan that :func:`ooc_chol.plan_svds` returns for such a call."""
    asked = call.asked()
    how: dict[str, Any] = {"ncv": call.ncv, "block": call.block, "is_open": call.is_open}
    host = _refuse_operator(call.A, call)
    if host is not None:
        plan = plan_triplets(_shape_of(call.A), asked.k, asked.precision, host, None, **how)
    else:
        known = known_of(call.A, call.packed)
        machine, why = call.place(known, asked.k, asked.precision, must_exist=False)
        small = known if call.is_for_scipy(known, asked.precision, machine) else None
        sides = None if small else _known_sides(call, known)
        plan = plan_triplets(known.blocks.shape, asked.k, asked.precision, machine, sides, **how, small=small, why=why)
        if call.elsewhere is not None and sides is not None:
            plan = replace(plan, cluster=tuple(call.elsewhere.planned(each, plan.block, plan.precision) for each in sides))
    start_of(call.v0, min(plan.shape), plan.block)
    check_host_budget(plan.host_bytes, call.host_budget, "the basis and the triplets")
    return plan


def _shape_of(A: Any) -> tuple[int, int]:
    return int(A.shape[0]), int(A.shape[1])


def triplets(call: SvdsCall) -> SingularTriplets:
    """Triplets that :func:`ooc_chol.svds` returns for such a call."""
    began = time.perf_counter()
    asked = call.asked()
    blas_buffers.ensure(numpys=True)
    with ExitStack() as stack:
        host, both = _refuse_operator(call.A, call), None
        if host is None:
            both = _packed_sides(call, asked, stack)
            place = both.place
        else:
            place = _Place(host)
        ended = {"pack": time.perf_counter()}
        plan = _plan_of(call, asked, both, place)
        ended["plan"] = time.perf_counter()
        start = start_of(call.v0, min(plan.shape), plan.block)
        if not isinstance(both, _Packed):
            if both is None:
                check_adjoint(call.A)
            sides: AbstractTwoSided = OperatorTwoSided(call.A if both is None else both.a, trace=call.trace)
        else:
            b, bt = (both.a, both.at) if plan.shape[0] >= plan.shape[1] else (both.at, both.a)
            kept_in = stack.enter_context(ExitStack())  # closed behind the multipliers
            sides = stack.enter_context(PackedTwoSided(b, bt, plan, trace=call.trace, elsewhere=call.elsewhere))
            sides.keep_blocks(host_room(call.host_budget, plan.host_bytes, Machine(plan.devices, must_exist=False)), kept_in)
        packed = both if isinstance(both, _Packed) else None
        key = _key(call, asked, plan, packed, start)
        checkpoint = None if call.checkpoint is None else _checkpoint(call, key, packed, sides)
        show = stack.enter_context(open_reporter(call.progress, asked.most, "svds", "pass"))
        session = Session(checkpoint=checkpoint, show=show)
        run = _in_range(sides, lambda: _run_of(sides, asked, plan, start, call, session), call.checkpoint)
        plan = replace(plan, method="dense" if run.is_whole else plan.method, sizes=run.sizes or plan.sizes)
        sides.close()
        ended["run"] = time.perf_counter()
        starts = [began, *ended.values()]
        parts = {name: end - since for (name, end), since in zip(ended.items(), starts, strict=False)}
        parts["checkpoints"] = session.checkpoint_seconds
        found = _given_back(run, sides, asked, plan, key, session, call.return_singular_vectors, parts)
        done = None if call.elsewhere is None else call.elsewhere.done()
    return replace(found, report=replace(found.report, seconds=CallSeconds(time.perf_counter() - began, parts), cluster=done))


def _plan_of(call: SvdsCall, asked: _Asked, both: _Packed | _Small | None, place: _Place) -> SvdsPlan:
    """The caller's plan, where it is of this call; or one that is made now."""
    shape, known = _shape_of(call.A if both is None else both.a), both.known if isinstance(both, _Packed) else None
    sizes: dict[str, Any] = {"ncv": call.ncv, "block": call.block}
    if call.plan is not None:
        check_plan(call.plan, shape, asked.k, asked.precision, known, **sizes, devices=call.devices)
        plan = call.plan
    else:
        small = both.known if isinstance(both, _Small) else None
        how: dict[str, Any] = {**sizes, "is_open": call.is_open, "small": small, "why": place.why}
        plan = plan_triplets(shape, asked.k, asked.precision, place.machine, known, **how)
    check_host_budget(plan.host_bytes, call.host_budget, "the basis and the triplets")
    return plan


def _key(
    call: SvdsCall, asked: _Asked, plan: SvdsPlan, both: _Packed | None, start: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Arithmetic key of a call, without contents of A."""
    matrix: dict[str, Any] = {"shape": list(plan.shape)} if both is None else blocks_key(both.a.blocks, NO_DIAGONALS)
    how: dict[str, Any] = {"method": f"{plan.method} on {plan.squared}", "check": call.check, "degree": 1, "start": start}
    how |= {} if call.elsewhere is None else products_key(call.elsewhere.arithmetic)
    return arithmetic_key(matrix, Wanted(asked.k, "LM", asked.tol), asked.precision, plan.sizes, **how, devices=plan.devices)


def _checkpoint(call: SvdsCall, key: dict[str, Any], both: _Packed | None, sides: AbstractTwoSided) -> Checkpoint:
    """Where restarts are kept, and what they belong to."""
    assert call.checkpoint is not None
    files = [("A", file_of(call.A)), *([] if both is None else [("A", both.a.path), ("packed", both.at.path)])]
    TRIPLETS.check(call.checkpoint, files, replace=call.replace)
    if both is None:
        contents = product_key(lambda x: sides.times(x, exact=True), sides.n, np.dtype(np.float64))
    else:
        contents = packed_key(Operator(both.a))
    whole = {**key, "A": {**key["A"], **contents, "shape": key["A"]["shape"]}}
    return Checkpoint(call.checkpoint, whole, TRIPLETS, files, replace=call.replace)


def _in_range(sides: AbstractTwoSided, solve: Callable[[], _Run], checkpoint: AnyPath | None) -> _Run:
    """Triplets of A, or of a power of two times A where squares of its values underflow or overflow: ``sides.power``."""
    error: RangeError | None = None
    try:
        run = solve()
        if run.triplets.s[0]:
            return run
    except RangeError as raised:
        error = raised
    power = power_of(lambda x: sides.times(x, exact=True), sides.n)
    if power is None:
        if error is not None:
            raise error
        return run  # zeros indeed
    if checkpoint is not None:
        raise RangeError(
            f"A has products of about 2^{-power} with vectors of about 1, of which checkpoints are not kept: give A times "
            f"2^{power}, as numpy.ldexp makes it, and multiply singular values by 2^{-power}"
        ) from error
    sides.power = power
    return solve()


def _run_of(
    sides: AbstractTwoSided, asked: _Asked, plan: SvdsPlan, start: NDArray[np.float64] | None, call: SvdsCall, session: Session
) -> _Run:
    """Triplets by LAPACK as planned, or where squares lose them and A is small; by Lanczos elsewhere."""
    if plan.method == "dense":
        check_room(plan.basis_bytes, f"a dense {sides.m} x {sides.n} matrix", "ask for fewer triplets (k), or a smaller ncv")
        return _whole(sides, asked, plan)
    if plan.is_small:
        with blas_threads(1):  # of so few numbers several threads wait for each other, and go on spinning
            brief = asked._replace(most=min(asked.most, _BRIEFLY))
            run = _iterated(sides, brief, plan, start, call.check, session)
            if run.why_not and run.passes >= brief.most:  # a larger basis gets further
                larger = replace(plan, sizes=sizes_of(None, plan.block, asked.k, sides.n))
                again, before = _iterated(sides, asked, larger, start, call.check, session), run
                run = again._replace(passes=again.passes + before.passes, restarts=again.restarts + before.restarts)
                notes = (grown_note(plan.ncv, before.passes),)
                run = run._replace(missed=again.missed + before.missed, sizes=larger.sizes, notes=notes)
    else:
        run = _iterated(sides, asked, plan, start, call.check, session)
    if run.is_lost and call.is_open and call.plan is None and 8 * sides.m * sides.n <= MOST_DENSE:
        whole = _whole(sides, asked, plan)
        return run._replace(triplets=whole.triplets, why_not=whole.why_not, is_whole=True)
    return run


def _whole(sides: AbstractTwoSided, asked: _Asked, plan: SvdsPlan) -> _Run:
    """Triplets by LAPACK."""
    found = dense_triplets(sides, asked.k, plan.block)
    is_good = found.residuals.max() <= asked.tol * found.s[0]
    return _Run(found, why_not="" if is_good else "LAPACK's vectors are no better", is_whole=True)


def _iterated(
    sides: AbstractTwoSided, asked: _Asked, plan: SvdsPlan, start: NDArray[np.float64] | None, check: bool, session: Session
) -> _Run:
    """Lanczos on the square, until residuals of both sides are small.

    The residual of a value s is that of its square over s: what is asked of the square gets the smaller, the smaller the least
    of the wanted values turns out to be.
    """
    block, capacity = plan.block, plan.sizes.panels + 1
    space = OperatorSpace(sides.gram, sides.n, block=block, capacity=capacity, precision=asked.precision, exact=sides.exact_gram)
    goal, least = asked.tol / 2, FLOOR[asked.precision]
    run = Lanczos(
        space, Wanted(asked.k, "LA", max(goal, least)), max_passes=asked.most, check=check, at_restart=session.at_restart
    )
    session.begin(run)
    while True:
        try:
            with session.watching():
                found = run.run(start)
        except ValueError as error:
            if not run.refused or not isinstance(sides, OperatorTwoSided):
                raise
            told = f"A.T A is not symmetric, by {run.refused:.2g} of its largest entry"
            raise ValueError(NO_ADJOINT.format(told)) from error
        vectors = space.take(range(-(-asked.k // block)), asked.k)
        triplets = triplets_of(sides, vectors)
        largest, smallest = float(triplets.s[0]), float(triplets.s[-1])
        if largest and not found.scale:
            raise RangeError(f"A has values of about {largest:.2g}, whose squares are zero in {asked.precision.value}")
        counts = run.counts
        reached = _Run(triplets, counts.passes, counts.restarts, sum(each.missed for each in counts.checks), found.why_not)
        if largest == 0.0 or triplets.residuals.max() <= asked.tol * largest:
            space.close()
            return reached._replace(why_not="")
        tighter = max(least, min(run.wanted.tol / 2, goal * smallest / largest))
        if found.why_not or tighter >= run.wanted.tol:
            space.close()
            return reached._replace(why_not=found.why_not or _lost(triplets, asked), is_lost=True)
        run.wanted = replace(run.wanted, tol=tighter)


def _lost(triplets: Triplets, asked: _Asked) -> str:
    """Why small values have no small residuals."""
    floor = FLOOR[asked.precision] / asked.tol
    return (
        f"singular values are found as roots of eigenvalues of a square, in which {asked.precision.value} loses those below "
        f"{floor:.1g} of the largest at this tol, and the smallest of these is {triplets.s[-1] / triplets.s[0]:.1g} of it"
    )


def _given_back(
    run: _Run,
    sides: AbstractTwoSided,
    asked: _Asked,
    plan: SvdsPlan,
    key: dict[str, Any],
    session: Session,
    which_vectors: bool | str,
    parts: dict[str, float],
) -> SingularTriplets:
    """Triplets of A, ascending, or an error that has those that have converged."""
    found = run.triplets
    u, s, v = found.u[:, ::-1], found.s[::-1], found.v[:, ::-1]
    largest = float(s[-1])
    left, right = (side[::-1] / largest if largest else side[::-1] for side in (found.forward, found.backward))
    if plan.shape[0] < plan.shape[1]:
        u, v, left, right = v, u, right, left
    residuals, s = np.maximum(left, right), unscaled(s, sides.power)
    if run.why_not:
        good = residuals <= asked.tol
        is_double = asked.precision is Precision.DDD
        advice = "give a larger max_passes, ncv or tol, or a smaller k" + ("" if is_double else ", or precision='DDD'")
        facts = float(residuals[~good].max()), asked.tol, run.why_not, advice
        raise NoConvergenceError(asked.k, s[good], v[:, good], residuals[good], *facts, what="singular triplets")
    packed, checkpoint = sides if isinstance(sides, PackedTwoSided) else None, session.checkpoint
    report = SvdsReport(
        plan=plan,
        tol=asked.tol,
        passes=run.passes,
        scans=sides.passes,
        restarts=run.restarts,
        missed=run.missed,
        floor=_floor(found.s, asked.precision, run.is_whole),
        key=key,
        seconds=CallSeconds(0.0, parts),
        bytes=packed.moved if packed else CallBytes(),
        resumed=0 if checkpoint is None else checkpoint.resumed,
        checkpoints=0 if checkpoint is None else checkpoint.written,
        notes=run.notes,
    )
    kept_u = None if which_vectors in ("vh", False) else np.ascontiguousarray(u)
    kept_vt = None if which_vectors in ("u", False) else np.ascontiguousarray(v.T)
    return SingularTriplets(kept_u, s.copy(), kept_vt, left, right, report, sides.trace())


def _floor(s: NDArray[np.float64], precision: Precision, is_whole: bool) -> float:
    """Smallest residual to be expected of the smallest nonzero value, relative to the largest."""
    roundoff = float(np.finfo(np.float64).eps)
    beyond = s[s > len(s) * roundoff * s[0]]
    if is_whole or not len(beyond):
        return roundoff
    return max(roundoff, FLOOR[precision] * float(s[0] / beyond[-1]))
