"""``partition``: any number of parts, by bisections of bisections, and moves between all parts and then neighbours in the end."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from numpy.typing import ArrayLike

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.components import components
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.habits import OF_PARTITIONS
from ooc_chol.apps.spectral.partitions.bisect import bisect
from ooc_chol.apps.spectral.partitions.call import CutCall, size_to_cut
from ooc_chol.apps.spectral.partitions.refinement import divided, refined
from ooc_chol.apps.spectral.partitions.settings import settings_of
from ooc_chol.apps.spectral.partitions.shares import Shares, checked_sizes, shares_of
from ooc_chol.apps.spectral.plans import PartitionPlan, plan_cut, size_of
from ooc_chol.apps.spectral.results import Partition
from ooc_chol.apps.spectral.solving.lowest import Devices


@tb.answering(OF_PARTITIONS)
@tb.documented(like=bisect, plan="As :func:`plan_partition` makes it.")
def partition(
    A: Any,
    n_parts: int,
    *,
    target_sizes: ArrayLike | None = None,
    vertex_weights: ArrayLike | None = None,
    balance: float = 0.0,
    vectors: int = 3,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
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
    """Cut a graph into parts of given weights, by bisections of bisections.

    Parameters
    ----------
    A : Graph, sparse or dense matrix, BlockCSR, path, or NetworkX graph
        Adjacency of an undirected graph, whatever :func:`as_graph` takes.
    n_parts : int
        Parts, 1 to n.
    target_sizes : (n_parts,) array_like, optional
        Wanted weights of the parts, positive: shares that sum up to 1, or weights that sum up to that of all vertices. By default
        all the same.
    vertex_weights : (n,) array_like, optional
        Positive weights of the vertices; by default those of the file or graph, else ones.
    balance : float
        By how much a part may weigh more than its target. With 0, the size of every part is next to its target where vertices
        weigh the same, above or below by less than one vertex.
    refine : bool
        True if moves of single vertices refine the cuts that each search starts and ends with. In the end clusters of vertices
        and single ones move between all parts at once where vertices weigh the same, and then between two neighbours. Parts may
        be in pieces; a note of the report says so.

    Returns
    -------
    Partition
        Labels from 0 to ``n_parts - 1``. Eigenvalues, residuals and candidates are those of the first bisection; passes and
        seconds of the report are those of all.

    Raises
    ------
    ValueError
        ``n_parts`` is more than n, or target sizes do not sum up; and all that :func:`bisect` raises.
    TypeError
        As of :func:`bisect`.

    Notes
    -----
    Cost: ``log2(n_parts)`` times that of a bisection of the whole graph, about.

    Examples
    --------
    >>> import scipy.sparse
    >>> from ooc_chol.apps import spectral
    >>> path = scipy.sparse.diags_array(
    ...     [1.0, 1.0], offsets=[-1, 1], shape=(10, 10)
    ... )
    >>> parts = spectral.partition(path, 3, target_sizes=[0.5, 0.3, 0.2])
    >>> parts.cut, parts.sizes.tolist()
    (2.0, [5.0, 3.0, 2.0])
    """
    since = perf_counter()
    settings = settings_of(locals())
    n_parts = tb.whole_number(n_parts, "n_parts", least=1)
    call = CutCall("partition", settings, since, host_budget, progress, {"n_parts": n_parts})
    shares = partial(_shares, n_parts=n_parts, target_sizes=target_sizes, balance=settings.balance)
    with call.begun(A, vertex_weights, plan, shares) as (counted, counts, tally, settings):
        if n_parts == 1:  # no bisection looks at them
            tally.components = int(components(counted).max(initial=-1)) + 1
        labels = refined(counted, divided(counted, counts, settings, tally), counts, settings, tally)
    return call.partition(labels, tally)


@tb.answering(OF_PARTITIONS)
@tb.documented(like=partition)
def plan_partition(
    A: Any,
    n_parts: int,
    *,
    target_sizes: ArrayLike | None = None,
    vertex_weights: ArrayLike | None = None,
    balance: float = 0.0,
    vectors: int = 3,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
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
    """Plan :func:`partition`: of its first bisection how eigenvectors are found, memory, bytes and seconds; nothing is computed.

    Parameters
    ----------
    A : Graph, sparse or dense matrix, BlockCSR, path, NetworkX graph, or ((int, int), int, str)
        As for :func:`partition`; or the shape and entries of the adjacency of a connected graph, and a kind of values.

    Returns
    -------
    PartitionPlan
        The plan; later bisections are of smaller graphs.

    Raises
    ------
    ValueError, TypeError
        As of :func:`partition`.
    BudgetError
        A budget does not hold the vectors; it says how many bytes would do.

    Examples
    --------
    >>> from ooc_chol.apps import spectral
    >>> spectral.plan_partition(
    ...     ((500, 500), 2000, "pattern"), 4, devices="host:0"
    ... ).method
    'LAPACK'
    """
    settings = settings_of(locals())
    n_parts = tb.whole_number(n_parts, "n_parts", least=1)
    if target_sizes is not None:
        checked_sizes(target_sizes, n_parts)
    shares = partial(_shares, n_parts=n_parts, target_sizes=target_sizes, balance=settings.balance)
    size = size_of(A, partial(size_to_cut, vertex_weights=vertex_weights, shares=shares))
    if n_parts > size.n and isinstance(A, tuple):
        raise ValueError(f"n_parts is {n_parts}, but A has {size.n} vertices; give 1 to {size.n}")
    return plan_cut("partition", size, settings.vectors, settings.solver, host_budget)


def _shares(graph: Graph, n_parts: int, target_sizes: ArrayLike | None, balance: float) -> Shares:
    """Shares of parts, of which there are at most as many as vertices."""
    if n_parts > graph.n:
        raise ValueError(f"n_parts is {n_parts}, but {graph.name} has {graph.n} vertices; give 1 to {graph.n}")
    return shares_of(graph.vertex_weights, n_parts, target_sizes, balance)
