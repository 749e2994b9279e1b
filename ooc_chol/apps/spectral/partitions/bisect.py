"""``bisect``: two parts of half the weight each, with as few edges between them as are found."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.habits import OF_BISECTIONS
from ooc_chol.apps.spectral.partitions.bisection import give_each_a_vertex, split
from ooc_chol.apps.spectral.partitions.call import CutCall, size_to_cut
from ooc_chol.apps.spectral.partitions.refinement import refined
from ooc_chol.apps.spectral.partitions.settings import settings_of
from ooc_chol.apps.spectral.partitions.shares import Shares, shares_of, text_of_least
from ooc_chol.apps.spectral.plans import PartitionPlan, plan_cut, size_of
from ooc_chol.apps.spectral.results import Partition
from ooc_chol.apps.spectral.solving.lowest import Devices


@tb.answering(OF_BISECTIONS)
@tb.documented(
    progress="Passes of all runs of the eigensolver are counted; ``total`` is the most there may be until the end of the run.",
    trace="It is of the first eigenvectors; LAPACK leaves none.",
    plan="As :func:`plan_bisect` makes it.",
)
def bisect(
    A: Any,
    *,
    balance: float = 0.0,
    vectors: int = 3,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
    vertex_weights: ArrayLike | None = None,
    tol: float = 1e-7,
    preconditioner: str = "auto",
    precision: str | oc.Precision | None = None,
    max_passes: int | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: tb.Progress = None,
    trace: bool = False,
    plan: PartitionPlan | None = None,
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
        Eigenvectors in whose span cuts are looked for. One is the classical spectral bisection. Of two or more that all belong
        to a multiple eigenvalue as many are computed as it has copies, at most 15.
    search : int
        Random directions in the span, beside axes, angles and a local search.
    refine : bool
        True if moves of single vertices (Fiduccia and Mattheyses) refine the cuts that the search starts and ends with. Graphs
        of very uneven degrees are also cut on coarser graphs then, whose passes count.
    seed : int
        Seed of all that is random. One seed, one answer.
    vertex_weights : (n,) array_like, optional
        Positive weights of the vertices; by default those of the file or graph, else ones.
    tol : float
        Largest residual of an eigenpair, relative to the norm of the Laplacian.
    preconditioner : {"auto", "amg", "diagonal"}
        Smoothed aggregation by PyAMG, the diagonal, or the first where it is installed and pays, else the inverse where
        degrees are even and its factor is small, or the diagonal.
    precision : Precision or str, optional
        Types of vectors, products and sums, as of :func:`ooc_chol.eigsh`; by default ``"DDD"``.
    max_passes : int, optional
        Most products of the Laplacian with a block for the eigenvectors of one bisection.

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
    >>> path = scipy.sparse.diags_array(
    ...     [1.0, 1.0], offsets=[-1, 1], shape=(10, 10)
    ... )
    >>> halves = spectral.bisect(path)
    >>> halves.cut, halves.sizes.tolist()
    (1.0, [5.0, 5.0])
    """
    since = perf_counter()
    settings = settings_of(locals())
    call = CutCall("bisect", settings, since, host_budget, progress)
    with call.begun(A, vertex_weights, plan, partial(_halves, balance=settings.balance)) as (counted, counts, tally, settings):
        target = counts.target(counted.vertex_weights, 1)
        if not settings.balance and (told := text_of_least(counted.vertex_weights, target.total / 2)) is not None:
            tally.note(told)
        sides = split(counted, target, settings, tally)
        give_each_a_vertex(counted, sides, 1, 1)
        labels = refined(counted, sides.astype(np.int32), counts, settings, tally)
    return call.partition(labels, tally)


@tb.answering(OF_BISECTIONS)
@tb.documented(like=bisect)
def plan_bisect(
    A: Any,
    *,
    balance: float = 0.0,
    vectors: int = 3,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
    vertex_weights: ArrayLike | None = None,
    tol: float = 1e-7,
    preconditioner: str = "auto",
    precision: str | oc.Precision | None = None,
    max_passes: int | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: tb.Progress = None,
    trace: bool = False,
) -> PartitionPlan:
    """Plan :func:`bisect`: how eigenvectors are found, memory, bytes over links, and seconds of a pass; nothing is computed.

    Parameters
    ----------
    A : Graph, sparse or dense matrix, BlockCSR, path, NetworkX graph, or ((int, int), int, str)
        As for :func:`bisect`; or the shape and entries of the adjacency of a connected graph, and a kind of values.

    Returns
    -------
    PartitionPlan
        The plan; ``print`` shows it as a page. How many passes it takes is not known beforehand.

    Raises
    ------
    ValueError, TypeError
        As of :func:`bisect`. With a ``memory_budget`` devices need not be on this machine.
    BudgetError
        A budget does not hold the vectors; it says how many bytes would do.

    Examples
    --------
    >>> from ooc_chol.apps import spectral
    >>> plan = spectral.plan_bisect(
    ...     ((1_000_000, 1_000_000), 6_000_000, "pattern"),
    ...     devices="host:0",
    ...     memory_budget="4 GiB",
    ... )
    >>> plan.unit, plan.peak_bytes <= 4 << 30
    ('pass', True)
    """
    settings = settings_of(locals())
    size = size_of(A, partial(size_to_cut, vertex_weights=vertex_weights, shares=partial(_halves, balance=settings.balance)))
    return plan_cut("bisect", size, settings.vectors, settings.solver, host_budget)


def _halves(graph: Graph, balance: float) -> Shares:
    """Shares of two parts."""
    return shares_of(graph.vertex_weights, 2, None, balance)
