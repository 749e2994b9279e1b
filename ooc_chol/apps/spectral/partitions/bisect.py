"""``bisect``: two parts of half the weight each, with as few edges between them as are found."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.apps.spectral.arguments import SolverWords
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.sources import as_graph
from ooc_chol.apps.spectral.partitions.bisection import give_each_a_vertex, in_units, split
from ooc_chol.apps.spectral.partitions.settings import Tally, settings_of
from ooc_chol.apps.spectral.partitions.shares import Shares, shares_of, text_of_least
from ooc_chol.apps.spectral.results import Partition, PartitionReport

#: By how much sums of weights may differ by rounding, relative to them.
_ROUNDING = 1e-9


def bisect(
    A: Any,
    *,
    balance: float = 0.0,
    vectors: int = 3,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
    vertex_weights: ArrayLike | None = None,
    **solver: Unpack[SolverWords],
) -> Partition:
    """Cut a graph into two parts of half the weight each, in the span of the lowest eigenvectors of its Laplacian.

    Parameters
    ----------
    A : Graph, sparse or dense matrix, BlockCSR, path, or NetworkX graph
        Adjacency of an undirected graph, whatever :func:`as_graph` takes. Its entries are weights of edges.
    balance : float
        By how much a part may weigh more than half: 0.05 lets parts weigh up to 1.05 of it. 0 is exact balance: sizes of
        vertices that weigh the same differ by 1 at most; of others by the least that is possible, or that light ones allow.
    vectors : int
        Eigenvectors in whose span cuts are looked for. One is the classical spectral bisection.
    search : int
        Random directions in the span, beside axes, angles and a local search.
    refine : bool
        Whether moves of single vertices (Fiduccia and Mattheyses) refine the cuts that the search starts and ends with.
    seed : int
        Of all that is random. One seed, one answer.
    vertex_weights : (n,) array_like, optional
        Positive weights of the vertices; by default those of the file or graph, else ones.
    **solver
        Of the eigenvectors. ``tol``: residual relative to the norm of the Laplacian, 1e-7. ``preconditioner``: "auto" (smoothed
        aggregation by PyAMG where it is installed and pays, else the diagonal), "amg" or "diagonal". ``precision``, ``devices``,
        ``memory_budget``, ``max_passes`` and ``progress``: as of ``oc.eigsh``. ``trace``: whether every copy and computation for
        the first eigenvectors is recorded.

    Returns
    -------
    Partition
        Labels, cut, sizes, eigenvalues with residuals, candidates, report; ``str(partition.report)`` is a page.

    Raises
    ------
    ValueError
        The matrix is not square, not symmetric, or has negative or no finite weights; or an argument makes no sense.
    TypeError
        A is no graph, or an argument has another type.
    oc.errors.SparseInputError
        A file is wrong; the message names the line.
    oc.errors.NoConvergenceError
        Eigenvectors have not converged in ``max_passes``.

    Notes
    -----
    A disconnected graph is packed: whole components are put on sides by weight, and one of them at most is cut. Cost: 10-40
    products of the Laplacian with a block for the eigenvectors, then sorts and counts of O(n log n + edges) for each of about a
    hundred directions, then moves of single vertices near the cut.

    Examples
    --------
    >>> import scipy.sparse
    >>> from ooc_chol.apps import spectral
    >>> path = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(10, 10))
    >>> halves = spectral.bisect(path)
    >>> halves.cut, halves.sizes.tolist()
    (1.0, [5.0, 5.0])
    """
    settings = settings_of(balance, vectors, search, refine, seed, solver)
    graph = as_graph(A, vertex_weights=vertex_weights)
    start = perf_counter()
    shares = shares_of(graph.vertex_weights, 2, None, settings.balance)
    counted, tally = in_units(graph), Tally()
    target = shares.in_units().target(counted.vertex_weights, 1)
    if not settings.balance and (told := text_of_least(counted.vertex_weights, target.total / 2)) is not None:
        tally.note(told)
    sides = split(counted, target, settings, tally)
    give_each_a_vertex(counted, sides, 1, 1)
    return partition_of(graph, sides.astype(np.int32), shares, tally, perf_counter() - start)


def partition_of(graph: Graph, labels: NDArray[np.int32], shares: Shares, tally: Tally, seconds: float) -> Partition:
    """Partition made of the labels found, with its report and notes."""
    sizes = graph.part_weights(labels, len(shares))
    _tell_of_sizes(graph, sizes, shares, tally)
    first = tally.first
    none = np.zeros(0)
    report = PartitionReport(
        n=graph.n,
        n_edges=graph.n_edges,
        components=tally.components,
        loops=graph.loops,
        bisections=tally.bisections,
        method="packing" if first is None else first.method,
        reason="no component had to be cut" if first is None else first.reason,
        passes=tally.passes,
        solve_seconds=tally.solve_seconds,
        search_seconds=tally.search_seconds,
        refine_seconds=tally.refine_seconds,
        seconds=seconds,
        notes=tally.notes,
    )
    return Partition(
        labels=labels,
        cut=graph.cut(labels),
        sizes=sizes,
        target_sizes=shares.targets,
        eigenvalues=none if first is None else first.eigenvalues,
        residuals=none if first is None else first.residuals,
        candidates=tally.candidates,
        report=report,
        trace=None if first is None else first.trace,
    )


def _tell_of_sizes(graph: Graph, sizes: NDArray[np.float64], shares: Shares, tally: Tally) -> None:
    """Parts that are empty, and those that weigh more than they may."""
    if empty := np.flatnonzero(sizes == 0).tolist():
        vertices = "one vertex" if graph.n == 1 else f"{graph.n} vertices"
        parts = f"part {empty[0]} is" if len(empty) == 1 else f"{len(empty)} parts are"
        tally.note(f"The graph has {vertices}, so that {parts} empty.")
        return
    beyond = sizes / np.maximum(shares.most, (1 + shares.balance) * shares.targets) - 1
    worst = int(np.argmax(beyond))
    if beyond[worst] > _ROUNDING:
        over = 100 * (sizes[worst] / shares.targets[worst] - 1)
        tally.note(
            f"Part {worst} weighs {sizes[worst]:.6g}, which is {over:.3g} % more than its target of {shares.targets[worst]:.6g}: "
            "vertices that come nearer to it were not found, or would have cut more."
        )
