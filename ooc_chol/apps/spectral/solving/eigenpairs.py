"""The lowest nontrivial eigenpairs of the Laplacian of a connected graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.subgraph import Subgraph
from ooc_chol.apps.spectral.solving.lowest import PRECONDITIONERS, Lowest, PassCount, SolverOptions
from ooc_chol.apps.spectral.solving.near import Cycle, Near
from ooc_chol.apps.spectral.solving.preconditioners import TooDenseError, aggregated, has_pyamg
from ooc_chol.apps.spectral.solving.ways import (
    AMG,
    DIAGONAL,
    INVERSE,
    IRREGULAR,
    LANCZOS,
    LAPACK,
    eigsh_options,
    is_dense,
    is_for_host,
    lanczos_tol,
    unevenness,
)

Vectors: TypeAlias = NDArray[np.float64]

#: Residuals beside the smallest eigenvalue, from which on its vector is no better than a guess; and what is then asked for.
_BLURRED, _SHARP = 0.05, 0.01
#: Smallest ``tol`` that is taken unasked, ten times what float64 reaches; and eigenvalues, relative to the largest, that are 0.
_LEAST_TOL, _ZERO = 1e-11, 1e-14
#: An error of an eigenvalue is the square of its residual over the gap to the next, each relative: this is one over a small gap.
_GAPS = 1e3
#: Pairs beside those of a segment that are looked for at once, for segments that are most of it.
_AHEAD = 2
#: Calls for whose matrices GPUs have room where none waits for another.
_CALLS = 4
#: Weights beyond this power of two, or below its reciprocal, are scaled first: their squares are not of float64.
_MOST_EXPONENT = 200


class _Way(NamedTuple):
    """How eigenpairs are computed."""

    method: str
    reason: str
    preconditioner: Vectors | Callable[[Vectors], Vectors] | None = None


class Within(NamedTuple):
    """A packed adjacency of a graph that another one is part of: products with it serve both."""

    matrix: oc.BlockCSR
    rows: NDArray[np.integer]  #: Row of each vertex of the part

    def laplacian(self, degrees: Vectors) -> oc.Operator:
        """The normalized Laplacian of the part, and ones for all other vertices, amid its eigenvalues.

        Shapes: ``degrees`` (m,) of the part.
        """
        scaling = np.zeros(self.matrix.shape[0])
        scaling[self.rows] = 1 / np.sqrt(degrees)
        return oc.Operator(self.matrix, left=-scaling, right=scaling, shift=1.0)


def lowest_eigenpairs(
    graph: Graph | Subgraph,
    count: int,
    options: SolverOptions,
    *,
    normalized: bool = False,
    within: Callable[[], Within] | None = None,
    near: Near | None = None,
) -> Lowest:
    """The lowest nontrivial eigenpairs of ``D - W``, or of ``(D - W) v = w D v``, with W the adjacency and D its row sums.

    Small graphs are solved by LAPACK, others by LOBPCG (Knyazev 2001) with the known null vector left out. Where there is no
    cycle, block Lanczos takes the place of LOBPCG for normalized problems, and on GPUs where degrees are even: it took 0.2 to 0.8
    of the passes on graphs of 2,000 to 22,000 vertices, and 2 to 15 times as many on irregular ones (add20, memplus). A residual
    of ``tol`` may be large beside a very small eigenvalue, as those of long paths are: with smoothed aggregation, which makes
    that cheap, the run then goes on until residuals are small beside it. Lanczos multiplies by what ``within`` returns, for
    normalized problems; with a cycle it starts with what is ``near``, and looks for more pairs where that is not enough, so that
    parts of the graph start with them. Raises ``ValueError``, ``ImportError`` and ``oc.errors.NoConvergenceError``.
    """
    began = time.perf_counter()
    _check(graph, count, options)
    exponent = int(np.frexp(graph.degrees.max())[1])
    if abs(exponent) > _MOST_EXPONENT:
        small = Graph(_scaled(graph.adjacency, -exponent), np.ones(graph.n), graph.name)
        found = lowest_eigenpairs(small, count, options, normalized=normalized)
        return found if normalized else found._replace(eigenvalues=np.ldexp(found.eigenvalues, exponent))
    count = min(count, graph.n - 1)
    if is_dense(graph.n, count):
        return _by_lapack(graph, count, began, normalized=normalized)
    if is_small := is_for_host(_entries(graph), options):
        options = options.on_host()
    if near is None or near.cycle is None:
        way = chosen_way(graph, options, normalized=normalized)
    else:
        way = _Way(AMG, "the cycle of the segment before serves, of which it is most", near.cycle)
    null = np.sqrt(graph.degrees) if normalized else np.ones(graph.n)
    turn = _Turn(is_needed=options.are_gpus and not _fit_together(_entries(graph), graph.n, options))
    if within is not None and normalized and way.method == LANCZOS:
        whole = within()
        found = _solved(_Call(graph, whole.laplacian(graph.degrees), count, options, way, null, turn, whole.rows))
    else:
        begin, ahead = None, count
        if near is not None and way.method == AMG and options.memory_budget is None:
            begin, close = near.ritz(graph)
            ahead = count if close >= count else min(count + _AHEAD, graph.n // 8)
        with oc.block_csr(graph.adjacency) as packed:
            found = _solved(_Call(graph, oc.laplacian(packed, normalized), ahead, options, way, null, turn, begin=begin))
        if begin is not None:
            known = np.concatenate([found.vectors, begin[:, ahead:]], axis=1) / null[:, None]
            found = found.first(count)._replace(near=Near(known, _cycle_of(way, graph.n)))
    vectors = found.vectors / null[:, None] if normalized else found.vectors
    return found._replace(vectors=vectors, seconds=time.perf_counter() - began - turn.waited, is_small=is_small)


def _cycle_of(way: _Way, n: int) -> Cycle:
    """The cycle of a graph of n vertices, whichever it was made for."""
    cycle = way.preconditioner
    assert callable(cycle)
    return cycle if isinstance(cycle, Cycle) else Cycle(cycle, n)


def _entries(graph: Graph | Subgraph) -> int:
    """Entries of the adjacency, of which no copy is made."""
    return graph.n_entries if isinstance(graph, Subgraph) else int(graph.adjacency.nnz)


def _scaled(adjacency: csr_array, exponent: int) -> csr_array:
    """A matrix times a power of two."""
    scaled = csr_array((np.ldexp(adjacency.data, exponent), adjacency.indices, adjacency.indptr), shape=adjacency.shape)
    scaled.has_canonical_format = True
    return scaled


def _check(graph: Graph | Subgraph, count: int, options: SolverOptions) -> None:
    """Refuse graphs without nontrivial eigenpairs, and options that make no sense."""
    if graph.n < 2:
        raise ValueError(f"{graph.name} has {graph.n} vertices: only of two or more are there nontrivial eigenpairs")
    if count < 1:
        raise ValueError(f"count is {count}; ask for one eigenpair or more")
    if options.preconditioner not in PRECONDITIONERS:
        known = ", ".join(map(repr, PRECONDITIONERS))
        raise ValueError(f"preconditioner is {options.preconditioner!r:.40}; give one of {known}")
    lonely = np.flatnonzero(graph.degrees == 0)
    if lonely.size:
        raise ValueError(f"vertex {lonely[0]} of {graph.name} has no edges: solve for each component by itself")


# small graphs


def _by_lapack(graph: Graph | Subgraph, count: int, began: float, *, normalized: bool) -> Lowest:
    """Eigenpairs of a dense matrix."""
    scaling = 1 / np.sqrt(graph.degrees) if normalized else np.ones(graph.n)
    laplacian = graph.laplacian().toarray() * scaling * scaling[:, None]
    null = 1 / scaling / np.linalg.norm(1 / scaling)
    size = float(np.abs(laplacian).sum(axis=1).max())
    # The null vector is moved to the upper end, so that rounding does not mix it with the lowest.
    moved = laplacian + 2 * size * np.outer(null, null)
    with tb.blas_threads(1):  # whatever other threads let BLAS do at the time: bits depend on it
        try:
            values, vectors = eigh(moved, subset_by_index=(0, count - 1), driver="evr")
        except np.linalg.LinAlgError:  # "Internal Error.", of some matrices with many copies of one eigenvalue
            whole = eigh(moved, driver="evd")
            values, vectors = whole[0][:count], whole[1][:, :count]
    off = np.linalg.norm(laplacian @ vectors - vectors * values, axis=0)
    reason = f"{graph.n} vertices are few enough for a dense matrix"
    reason += f" where {count} eigenpairs are wanted" if not is_dense(graph.n, 1) else ""
    seconds = time.perf_counter() - began
    return Lowest(values, vectors * scaling[:, None], off / size, LAPACK, reason, 0, seconds)


# others


def chosen_way(graph: Graph | Subgraph, options: SolverOptions, *, normalized: bool) -> _Way:
    """The preconditioner that is asked for, or the best that there is."""
    is_gpu, wanted = options.are_gpus, options.preconditioner
    if wanted == "diagonal":
        return _without_cycle(graph, "the diagonal was asked for", is_gpu=is_gpu, normalized=normalized)
    if wanted == "auto" and is_gpu:
        return _without_cycle(graph, "on GPUs a pass costs less than a cycle on the host", is_gpu=True, normalized=normalized)
    if not has_pyamg():
        gain = f"PyAMG is not installed, whose aggregates often save nine passes in ten: {tb.install_hint('spectral')}"
        if wanted == "amg":
            raise ImportError(f"preconditioner='amg': {gain}")
        return _without_cycle(graph, gain, is_gpu=is_gpu, normalized=normalized)
    try:
        cycle = aggregated(graph.laplacian(), np.sqrt(graph.degrees) if normalized else None)
    except TooDenseError as error:
        seen = f"coarse levels are dense: an operator complexity of {error.complexity:.3g}, and at most {error.most:g} pays"
        if wanted == "amg":
            raise ValueError(f"preconditioner='amg' does not suit {graph.name}: {seen}; take 'diagonal' or 'auto'") from None
        return _without_cycle(graph, seen, is_gpu=is_gpu, normalized=normalized)
    reason = (
        f"its operator complexity is {cycle.complexity:.3g}, and up to {cycle.most_complexity:g} a cycle saves most of the passes"
    )
    return _Way(AMG, reason, cycle)


def _without_cycle(graph: Graph | Subgraph, reason: str, *, is_gpu: bool, normalized: bool) -> _Way:
    """The diagonal, or Lanczos where that takes fewer passes."""
    if normalized:
        return _Way(LANCZOS, f"{reason}; the diagonal of a normalized Laplacian is 1 and saves nothing")
    if is_gpu and unevenness(graph.degrees) < IRREGULAR:
        return _Way(LANCZOS, f"{reason}; degrees are even, so that the diagonal saves little")
    return _Way(DIAGONAL, reason, 1 / graph.degrees)


def _solved(call: _Call) -> Lowest:
    """Pairs by LOBPCG; once more with a smaller tolerance where the first one blurs the lowest and a cycle makes that cheap."""
    options, way = call.options, call.way
    pairs = call.pairs(call.start, options.tol)
    moved = _moved(pairs, {}, {})
    passes, reason, scale = pairs.report.passes, way.reason, pairs.report.scale
    if pairs.report.method == "shift-invert":
        way, reason = way._replace(method=INVERSE), f"{reason}; the factor of the Laplacian is small"
    values, vectors, residuals = pairs.eigenvalues, call.vectors_of(pairs), pairs.residuals
    if way.method == LANCZOS:
        values, vectors, residuals = _without_null(pairs, vectors, call.null)
    goal = max(_LEAST_TOL, _SHARP * float(values[0]) / scale)
    is_blurred = options.sharp and residuals.max() * scale > _BLURRED * values[0]
    if is_blurred and way.method == AMG and pairs.report.precision == oc.Precision.DDD and goal < options.tol:
        pairs = call.pairs(vectors, goal)
        moved = _moved(pairs, *moved)
        passes += pairs.report.passes
        values, vectors, residuals = pairs.eigenvalues, call.vectors_of(pairs), pairs.residuals
        reason += f"; residuals of {options.tol:g} are not small beside the lowest eigenvalue, and were made {goal:.1g}"
    elif is_blurred:
        reason += f"; residuals of {options.tol:g} are not small beside the lowest eigenvalue: a smaller tol may cut better"
    if values[0] <= scale * max(_ZERO, _GAPS * float(residuals[0]) ** 2):
        reason += "; it cannot be told from 0: parts are hardly joined, or paths are very long"
    return Lowest(values, vectors, residuals, way.method, reason, passes, 0.0, pairs.trace, planned=moved[0], executed=moved[1])


def _moved(
    pairs: oc.Eigenpairs, planned: Mapping[str, int], executed: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes over each link, as planned and as copied, with those of a run more."""
    moved = pairs.report.bytes
    return added(planned, moved.planned), added(executed, moved.executed)


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Sums by links."""
    return {link: one.get(link, 0) + other.get(link, 0) for link in {**one, **other}}


def _without_null(pairs: oc.Eigenpairs, vectors: Vectors, null: Vectors) -> tuple[Vectors, Vectors, Vectors]:
    """Eigenpairs in the span of those of a run, but for the null vector, which is in it.

    Values, vectors that are orthogonal to the null vector, and bounds of their residuals over the scale, which follow from the
    residuals of the run: with ``A V = V W + R``, those of ``V S`` are ``V (W S - S values) + R S``. No product with A is needed.
    """
    w, scale = pairs.eigenvalues, pairs.report.scale
    gram = vectors.T @ vectors
    orthonormal = np.linalg.inv(np.linalg.cholesky(gram)).T  # V times it is so to float64, whatever the precision of the run
    of_null = orthonormal.T @ (null @ vectors)
    beside = orthonormal @ np.linalg.qr(of_null[:, None], mode="complete")[0][:, 1:]
    projected = beside.T @ gram @ (w[:, None] * beside)
    values, turned = eigh((projected + projected.T) / 2)
    s = beside @ turned
    off = w[:, None] * s - s * values
    within = np.sqrt(np.maximum(0.0, np.einsum("ij,ij->j", off, gram @ off))) / scale
    return values, vectors @ s, within + np.abs(s).T @ (pairs.residuals * np.sqrt(np.diag(gram)))


#: Held by the call that GPUs work for: a plan counts on the memory that is free on them.
_gpus = Lock()


def _fit_together(n_entries: int, n: int, options: SolverOptions) -> bool:
    """Tell whether GPUs have room for several such calls at once, which then need not take turns."""
    names = options.machine.names
    is_open = options.memory_budget is None and all(name.startswith("cuda") for name in names)
    return is_open and all(tb.SweepCuts.fits(name, _CALLS * n, _CALLS * n_entries) for name in names)


@final
class _Turn:
    """A block that one thread enters at a time, where it needs GPUs, and the seconds that were waited for it."""

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed, self.waited = is_needed, 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for it, and let the next one have it after the block."""
        since = time.perf_counter()
        with _gpus if self._is_needed else nullcontext():
            self.waited += time.perf_counter() - since
            yield


class _Call(NamedTuple):
    """Arguments common to all calls of ``oc.eigsh`` for a graph."""

    graph: Graph | Subgraph
    operator: oc.Operator
    k: int
    options: SolverOptions
    way: _Way
    null: Vectors
    turn: _Turn
    rows: NDArray[np.integer] | None = None  #: Rows of the graph's vertices in the operator; None where it has no others
    begin: Vectors | None = None  #: Vectors to start with, beside random ones

    @property
    def start(self) -> Vectors | None:
        """Random vectors to start from; None for those of Lanczos itself, which devices make where they are, with seed 0."""
        columns = 1 if self.way.method == LANCZOS else 4 if self.k < 4 else -(-self.k // 8) * 8
        if columns == 1 and not self.options.seed:
            return None
        start = np.random.default_rng(self.options.seed).uniform(-1.0, 1.0, (self.operator.shape[0], columns))
        if self.begin is not None:
            some = self.begin[:, :columns]
            start[:, : some.shape[1]] = some
        return start

    def vectors_of(self, pairs: oc.Eigenpairs) -> Vectors:
        """Rows of the graph's vertices, in float64."""
        vectors = np.asarray(pairs.eigenvectors, np.float64)
        return vectors if self.rows is None else vectors[self.rows]

    def pairs(self, start: Vectors | None, tol: float) -> oc.Eigenpairs:
        """Eigenpairs to a tolerance; the error names the graph."""
        options, way = self.options, self.way
        if way.method == LANCZOS:
            tol = lanczos_tol(tol, self.k)
        how = eigsh_options(way.method, self.k, options, self.null, way.preconditioner)
        is_open = way.method == DIAGONAL and options.preconditioner == "auto"
        if is_open and unevenness(np.diff(self.graph.adjacency.indptr)) < IRREGULAR:
            how["method"] = "auto"  # on the host the inverse, where its factor is small
        try:
            with self.turn.taken():
                found: oc.Eigenpairs = oc.eigsh(
                    self.operator,
                    **how,
                    tol=tol,
                    v0=start,
                    progress=options.progress,
                    trace=options.trace,
                )
            if isinstance(options.progress, PassCount):
                options.progress.over()
            return found
        except oc.errors.NoConvergenceError as error:
            raise self._named(error) from error

    def _named(self, error: oc.errors.NoConvergenceError) -> oc.errors.NoConvergenceError:
        """The error for one who asked for a partition and not for eigenpairs."""
        advice = "give more max_passes, or a larger tol: 1e-5 is enough for most cuts"
        if self.way.method != AMG:
            advice += ", or install PyAMG" * (not has_pyamg()) + ", or preconditioner='amg'" * has_pyamg()
        pairs = error.eigenvalues, error.eigenvectors, error.residuals
        what = f"lowest eigenpairs of {self.graph.name} ({self.graph.n} vertices, {self.way.method})"
        return oc.errors.NoConvergenceError(error.wanted, *pairs, error.worst, error.tol, error.reason, advice, what)
