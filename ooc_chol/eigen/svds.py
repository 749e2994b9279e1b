"""The largest singular triplets by Lanczos on a square, with the residuals of both sides."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from ooc_chol.config import PAGE_BYTES, whole_number
from ooc_chol.eigen.asked import DEFAULT_TOL, FLOORS, Sizes, passes_of, real_number, sizes_of
from ooc_chol.eigen.errors import NoConvergenceError
from ooc_chol.eigen.lanczos import AtRestart, Lanczos
from ooc_chol.eigen.operator_space import OperatorSpace
from ooc_chol.eigen.powers import RangeError, power_of, unscaled
from ooc_chol.eigen.singular import SingularTriplets, SvdsReport
from ooc_chol.eigen.triplets import Triplets, dense_triplets, triplets_of
from ooc_chol.eigen.two_sided import AbstractTwoSided, OperatorTwoSided, PackedTwoSided, Where
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.errors import UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.canonical import check_value_type
from ooc_chol.sparse.multiplier import Store
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.pack import block_csr
from ooc_chol.sparse.planning import Devices, precision_of
from ooc_chol.sparse.transpose import transposed_rows

#: Where residuals of ``B.T B`` end, relative to its largest eigenvalue: that of a value s is ``floor s_1 / s``.
FLOOR = {Precision.FFF: 5e-7, Precision.FDF: 6e-8, Precision.DDD: 1e-14}


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


def asked_of(A: Any, k: int, which: str, precision: Precision | str | None, tol: float | None, max_passes: int | None) -> _Asked:
    """The arguments, checked."""
    if which != "LM":
        advice = "for the smallest take oc.eigsh of A.T @ A with which='SA' or sigma=0" if which == "SM" else "give 'LM'"
        raise ValueError(f"which is {which!r:.20}, but svds finds the largest singular values, 'LM': {advice}")
    if whole_number(k, "k") < 1:
        raise ValueError(f"k is {k}, but at least one triplet is found")
    is_single = getattr(A, "dtype", None) == np.float32
    wanted = precision_of(precision, Precision.FDF if is_single else Precision.DDD)
    goal = DEFAULT_TOL[wanted] if tol is None else real_number(tol, "tol")
    if not FLOORS[wanted] <= goal < 1:
        advice = "" if wanted is Precision.DDD else ", or take precision='DDD'"
        raise ValueError(
            f"tol is {goal:g}, but in {wanted.value} residuals reach {FLOORS[wanted]:g} of the largest singular value: give at "
            f"least that, and less than 1{advice}"
        )
    return _Asked(k, wanted, goal, passes_of(max_passes))


def matrix_of(A: Any, store: Store, stack: ExitStack) -> BlockCSR | LinearOperator:
    """A packed, unless it is a ``LinearOperator``."""
    if isinstance(A, Operator):
        raise TypeError("A is an Operator, whose transpose is not packed: give svds the matrix with its diagonals multiplied in")
    if isinstance(A, LinearOperator):
        if A.dtype is not None and np.dtype(A.dtype).kind == "c":
            raise UnsupportedTypeError("svds", np.dtype(A.dtype).name, "give real numbers")
        return A
    if isinstance(A, BlockCSR):
        return A
    return stack.enter_context(block_csr(_packable(A) if isinstance(A, np.ndarray | list | tuple) else A, store=store))


def _packable(A: Any) -> csr_array:
    """A dense array as a sparse one; of types that SciPy does not have there, as one that holds the same numbers."""
    dense = plain_array("A", A)
    if dense.ndim != 2:
        raise ValueError(f"A has {dense.ndim} dimensions, but a matrix has two")
    check_value_type(dense.dtype, "an array")
    is_half = dense.dtype.kind == "f" and dense.dtype.itemsize == 2
    return csr_array(dense.astype(np.float32 if is_half else dense.dtype.newbyteorder("="), copy=False))


def sizes_for(n: int, k: int, block: int | None, ncv: int | None, widest: int) -> Sizes:
    """Columns of a panel, and panels of the basis."""
    if k > n:
        raise ValueError(f"k is {k}, but the smaller side of A is {n}: ask for at most {n}")
    sizes = sizes_of(ncv, block, k, n)
    return sizes if block is not None or sizes.block <= widest else sizes_of(ncv, widest, k, n)


def widest_panel(matrix: BlockCSR | LinearOperator, devices: Devices) -> int:
    """Columns of a panel where passes over A cost more than columns: from files, and on GPUs."""
    if isinstance(matrix, LinearOperator):
        return 2
    is_host = device_kind(resolve_devices(devices)[0]).is_in_host_memory
    return 2 if is_host and matrix.path is None else 8


def two_sided_of(
    matrix: BlockCSR | LinearOperator, precision: Precision, where: Where, store: Store, stack: ExitStack
) -> AbstractTwoSided:
    """Products with the tall one of A and its transpose."""
    if isinstance(matrix, LinearOperator):
        if where.devices is not None and not device_kind(resolve_devices(where.devices)[0]).is_in_host_memory:
            raise TypeError("a LinearOperator multiplies on the host by itself: leave devices out, or give a sparse matrix")
        return OperatorTwoSided(matrix)
    block_bytes = max(PAGE_BYTES, matrix.blocks.largest_bytes)
    at = stack.enter_context(block_csr(transposed_rows(matrix), store=_beside(store), block_bytes=block_bytes))
    b, bt = (matrix, at) if matrix.shape[0] >= matrix.shape[1] else (at, matrix)
    return stack.enter_context(PackedTwoSided(b, bt, precision, where))


def _beside(store: Store) -> Path | None:
    """The name of the transpose's file."""
    if store is None:
        return None
    path = Path(store)
    return path.with_name(f"{path.stem}.transposed{path.suffix}")


def in_range(sides: AbstractTwoSided, solve: Callable[[], _Run]) -> _Run:
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
    sides.power = power
    return solve()


def run_of(
    sides: AbstractTwoSided,
    asked: _Asked,
    sizes: Sizes,
    start: NDArray[np.float64] | None,
    check: bool,
    tell: AtRestart | None,
) -> _Run:
    """Triplets by LAPACK where a basis would be as large as A, by Lanczos elsewhere."""
    if sizes.columns + sizes.block > sides.n:
        return _whole(sides, asked, sizes)
    return _iterated(sides, asked, sizes, start, check, tell)


def _whole(sides: AbstractTwoSided, asked: _Asked, sizes: Sizes) -> _Run:
    """LAPACK's triplets, where a basis would be as large as A."""
    check_room(3 * 8 * sides.m * sides.n, f"a dense {sides.m} x {sides.n} matrix", "ask for fewer triplets (k), or a smaller ncv")
    return _Run(dense_triplets(sides, asked.k, sizes.block), is_whole=True)


def _iterated(
    sides: AbstractTwoSided,
    asked: _Asked,
    sizes: Sizes,
    start: NDArray[np.float64] | None,
    check: bool,
    tell: AtRestart | None,
) -> _Run:
    """Lanczos on the square, until residuals of both sides are small.

    The residual of a value s is that of its square over s: what is asked of the square gets the smaller, the smaller the least
    of the wanted values turns out to be.
    """
    block, capacity = sizes.block, sizes.panels + 1
    space = OperatorSpace(sides.gram, sides.n, block=block, capacity=capacity, precision=asked.precision, exact=sides.exact_gram)
    goal, least = asked.tol / 2, FLOOR[asked.precision]
    run = Lanczos(space, Wanted(asked.k, "LA", max(goal, least)), max_passes=asked.most, check=check, at_restart=tell)
    while True:
        found = run.run(start)
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
            return reached._replace(why_not=found.why_not or _lost(triplets, asked))
        run.wanted = replace(run.wanted, tol=tighter)


def _lost(triplets: Triplets, asked: _Asked) -> str:
    """Why small values have no small residuals."""
    floor = FLOOR[asked.precision] / asked.tol
    return (
        f"singular values are found as roots of eigenvalues of a square, in which {asked.precision.value} loses those below "
        f"{floor:.1g} of the largest at this tol, and the smallest of these is {triplets.s[-1] / triplets.s[0]:.1g} of it"
    )


def given_back(
    run: _Run,
    sides: AbstractTwoSided,
    asked: _Asked,
    shape: tuple[int, int],
    sizes: Sizes,
    began: float,
    with_vectors: bool,
) -> SingularTriplets:
    """Triplets of A, ascending, or an error that has those that have converged."""
    found = run.triplets
    u, s, v = found.u[:, ::-1], found.s[::-1], found.v[:, ::-1]
    largest = float(s[-1])
    left, right = (side[::-1] / largest if largest else side[::-1] for side in (found.forward, found.backward))
    if shape[0] < shape[1]:
        u, v, left, right = v, u, right, left
    residuals, s = np.maximum(left, right), unscaled(s, sides.power)
    if run.why_not:
        good = residuals <= asked.tol
        is_double = asked.precision is Precision.DDD
        advice = "give a larger max_passes, ncv or tol, or a smaller k" + ("" if is_double else ", or precision='DDD'")
        facts = float(residuals[~good].max()), asked.tol, run.why_not, advice
        raise NoConvergenceError(asked.k, s[good], v[:, good], residuals[good], *facts, what="singular triplets")
    packed = sides if isinstance(sides, PackedTwoSided) else None
    report = SvdsReport(
        shape=shape,
        squared="none" if run.is_whole else "A.T A" if shape[0] >= shape[1] else "A A.T",
        precision=asked.precision.value,
        block=sizes.block,
        ncv=sizes.columns,
        passes=run.passes,
        scans=sides.passes,
        restarts=run.restarts,
        missed=run.missed,
        floor=_floor(found.s, asked.precision, run.is_whole),
        bytes_executed=packed.copied_bytes if packed else {},
        seconds=time.perf_counter() - began,
    )
    vectors = (np.ascontiguousarray(u), np.ascontiguousarray(v.T)) if with_vectors else (None, None)
    return SingularTriplets(vectors[0], s.copy(), vectors[1], left, right, report, packed.trace() if packed else None)


def _floor(s: NDArray[np.float64], precision: Precision, is_whole: bool) -> float:
    """Smallest residual to be expected of the smallest nonzero value, relative to the largest."""
    roundoff = float(np.finfo(np.float64).eps)
    beyond = s[s > len(s) * roundoff * s[0]]
    if is_whole or not len(beyond):
        return roundoff
    return max(roundoff, FLOOR[precision] * float(s[0] / beyond[-1]))
