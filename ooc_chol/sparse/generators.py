"""Random graphs as sources of sparse matrices: R-MAT and uniform, each edge a function of the seed and its number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import parse_bytes, whole_number
from ooc_chol.display.prints import one_line
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.registry import CUDA, HOST, device_kind, resolve_devices
from ooc_chol.sparse.host_graphs import Numbering, host_runs
from ooc_chol.sparse.order import check_order
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.tasks.random_graphs import DRAW_BITS, LARGEST_SCALE, EdgeDraw

#: Edges from which on a GPU is taken unless devices are named: fewer are drawn and sorted by the host in less than two seconds,
#: which is about what a GPU's context and compiled code take when first asked for.
_EDGES_FOR_A_GPU = 1 << 24
#: Most bytes of host memory that drawn edges take where nothing is said, and which share of what is free.
_MOST_HOST_BYTES, _SHARE = 16 << 30, 4
#: More entries than any memory holds; numbers of edges stay far below the 64 bits in which they are counted.
_MOST_DRAWN = 1 << 48


@final
class RandomGraph(AbstractRows):
    """The adjacency matrix of a random graph, made by :func:`rmat` or :func:`urand` and drawn when its rows are asked for.

    Every entry is 1: loops are left out, and edges that were drawn more than once are one. Undirected graphs have symmetric
    matrices. The entries depend on the arguments of the call alone, not on devices, memory or threads.

    Parameters
    ----------
    name : str
        The call that makes it.
    draw : EdgeDraw
        Which edges there are.
    devices : tuple of str
        Devices that draw them.
    memory_bytes : int or None
        Bytes for drawn edges on each; None for a part of what is free.
    numbering : callable or None
        Function that numbers the vertices anew, by degree; None where they keep the numbers of the draw.

    Attributes
    ----------
    name : str
        The call that makes it.
    shape : (int, int)
        Vertices, twice.
    expected_entries : int
        Entries that are drawn, of which loops and duplicates are left out.
    counts : RowCounts
        Once all rows were made: loops (edges), and duplicates (entries of the matrix: two for an undirected edge).
    """

    def __init__(
        self, name: str, draw: EdgeDraw, devices: tuple[str, ...], memory_bytes: int | None, numbering: Numbering = None
    ) -> None:
        self.name = name
        self.draw = draw
        self.devices = devices
        self.shape = (draw.n_vertices, draw.n_vertices)
        self.expected_entries = draw.n_drawn
        self.counts = RowCounts()
        self._memory_bytes, self._numbering = memory_bytes, numbering

    def numbered(self, numbers: NDArray[np.int32]) -> RandomGraph:
        """The same graph with other numbers of its vertices.

        Parameters
        ----------
        numbers : (n,) int32 array
            A permutation: vertex i, as it is drawn, becomes ``numbers[i]``.

        Returns
        -------
        RandomGraph
            The source; edges are those of this one.

        Raises
        ------
        ValueError
            This one is numbered by degree, or by other numbers.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> graph, backwards = (
        ...     oc.testing.urand(3),
        ...     np.arange(8, dtype=np.int32)[::-1].copy(),
        ... )
        >>> a, b = (
        ...     oc.block_csr(each).tocsr().toarray()
        ...     for each in (graph, graph.numbered(backwards))
        ... )
        >>> bool((b[::-1, ::-1] == a).all())
        True
        """
        self.check_unnumbered()
        return RandomGraph(self.name, self.draw, self.devices, self._memory_bytes, numbers)

    def check_unnumbered(self) -> None:
        """Refuse to number vertices that have other numbers already.

        Raises
        ------
        ValueError
            They are numbered by degree, or by :meth:`numbered`.
        """
        if self._numbering is not None:
            raise ValueError(f"{self.name} is numbered by degree already: pack it without order=")

    def __repr__(self) -> str:
        facts = {"shape": self.shape, "expected_entries": self.expected_entries, "devices": self.devices}
        return one_line(self, {"name": self.name, **facts})

    def runs(self) -> Iterator[Rows]:
        """Runs of some ten million entries, in order; on GPUs the next ones are made while one is in use."""
        self.counts = RowCounts()
        if device_kind(self.devices[0]) is CUDA:
            from ooc_chol.sparse.device_graphs import device_runs

            return device_runs(self.draw, self.counts, self.devices, self._memory_bytes, numbering=self._numbering)
        return host_runs(self.draw, self.counts, self._memory_bytes or _default_bytes(), numbering=self._numbering)


def rmat(
    scale: int,
    degree: int = 16,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    seed: int = 0,
    *,
    directed: bool = False,
    order: Literal["degree"] | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> RandomGraph:
    """Make a source of an R-MAT graph of ``2**scale`` vertices, whose degrees follow a power law: ``block_csr(rmat(20))``.

    Parameters
    ----------
    scale : int
        Base-2 logarithm of the number of vertices, 1 to 30.
    degree : int
        Edges drawn for each vertex.
    a, b, c : float
        Probabilities of the quadrants (0, 0), (0, 1) and (1, 0) at each of ``scale`` levels; (1, 1) has what is left. They are
        rounded to multiples of ``2**-16``.
    seed : int
        Seed of 64 bits; each gives another graph, with other labels of its vertices.
    directed : bool
        True if an edge from u to v is the entry (u, v) alone; else (v, u) is one too, and the matrix is symmetric.
    order : {"degree"}, optional
        Number vertices by descending degree, edges that were drawn more than once counted as often: products are faster where
        hubs are adjacent. None leaves them in the order of the bijection. See the notes.
    devices : str, sequence of str, int or None
        Where edges are drawn and sorted, as for ``cholesky``. None: on a GPU from 16 million edges on, where there is one; else
        on the host. The entries are the same.
    memory_budget : int, str or None
        Bytes for drawn edges on each of the devices. None: half of what is free on a GPU; on the host a quarter, at most 16 GiB.
        An order takes 4 bytes a vertex beside these, and up to 24 while it is found.

    Returns
    -------
    RandomGraph
        The source. Nothing is drawn before its rows are asked for.

    Raises
    ------
    TypeError, ValueError
        A parameter is of another type or out of its range, or there is no such device.
    BudgetError
        When rows are made: the budget does not hold the drawn entries of a 4,096th of the rows.

    Notes
    -----
    The defaults are those of the GAP benchmark suite's Kron (Beamer, Asanović and Patterson, 2015). Vertices are relabelled by a
    bijection, loops left out, and duplicates are one entry. All arithmetic is on whole numbers, so that every device makes the
    same graph. The host draws and sorts about 10 million edges a second and core. Where memory does not hold all
    edges (16 bytes for each entry), they are drawn once for each group of rows that it holds.

    With ``order="degree"`` edges are drawn once more beforehand, and the ends of each counted: of an edge from u to v both, or v
    alone where the graph is directed. Vertices in the order of their degrees, those of the same degree in their own, are dealt
    to 24 stripes of rows in turn, so that several devices have equal shares. The graph *is* the one numbered so: nothing is
    permuted when it is multiplied.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> graph = oc.testing.rmat(10)
    >>> sum(len(rows.columns) for rows in graph.runs()), graph.counts.loops
    (21092, 152)
    """
    draw = EdgeDraw(*_sizes(scale, degree), _seed(seed), _thresholds(a, b, c), directed=bool(directed))
    name = f"rmat({draw.scale}, {degree}, {a:g}, {b:g}, {c:g}, seed={draw.seed}{_options(directed, order)})"
    return RandomGraph(name, draw, _devices(draw, devices), _bytes(memory_budget), check_order(order))


def urand(
    scale: int,
    degree: int = 16,
    seed: int = 0,
    *,
    directed: bool = False,
    order: Literal["degree"] | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> RandomGraph:
    """Make a source of a uniform random graph of ``2**scale`` vertices (Erdős and Rényi): ``block_csr(urand(20))``.

    Parameters
    ----------
    scale : int
        Base-2 logarithm of the number of vertices, 1 to 30.
    degree : int
        Edges drawn for each vertex; degrees are about Poisson distributed with mean ``2 * degree``, or ``degree`` if directed.
    seed : int
        Seed of 64 bits; each gives another graph.
    directed, order, devices, memory_budget
        As for :func:`rmat`.

    Returns
    -------
    RandomGraph
        The source. Nothing is drawn before its rows are asked for.

    Raises
    ------
    TypeError, ValueError
        A parameter is of another type or out of its range, or there is no such device.
    BudgetError
        When rows are made: the budget does not hold the drawn entries of a 4,096th of the rows.

    Notes
    -----
    The defaults are those of the GAP benchmark suite's Urand. Loops are left out, and duplicates are one entry.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> graph = oc.testing.urand(10)
    >>> sum(len(rows.columns) for rows in graph.runs())
    32232
    """
    draw = EdgeDraw(*_sizes(scale, degree), _seed(seed), None, directed=bool(directed))
    name = f"urand({draw.scale}, {degree}, seed={draw.seed}{_options(directed, order)})"
    return RandomGraph(name, draw, _devices(draw, devices), _bytes(memory_budget), check_order(order))


def _options(directed: bool, order: object) -> str:
    """Options of a call, as they are written."""
    return f"{', directed=True' if directed else ''}{', order=' + repr(order) if order is not None else ''}"


def _sizes(scale: int, degree: int) -> tuple[int, int]:
    """Scale and number of edges."""
    levels, each = whole_number(scale, "scale"), whole_number(degree, "degree")
    if not 1 <= levels <= LARGEST_SCALE:
        raise ValueError(f"scale is {levels}, which means 2**{levels} vertices; give 1 to {LARGEST_SCALE}")
    if not 1 <= each <= _MOST_DRAWN >> levels + 1:
        raise ValueError(f"degree is {each}; give 1 to {_MOST_DRAWN >> levels + 1} edges for each of 2**{levels} vertices")
    return levels, each << levels


def _seed(seed: int) -> int:
    number = whole_number(seed, "seed")
    if not 0 <= number < 1 << 64:
        raise ValueError(f"seed is {number}; give 0 to 2**64 - 1")
    return number


def _thresholds(a: float, b: float, c: float) -> tuple[int, int, int]:
    """The quadrants' probabilities, summed, in multiples of those of a draw."""
    if not all(isinstance(each, Real) and math.isfinite(each) and each >= 0 for each in (a, b, c)):
        raise ValueError(f"a, b, c are {a!r}, {b!r}, {c!r}; give probabilities, finite numbers from 0 on")
    if a + b + c > 1 + 1e-9:
        raise ValueError(f"a + b + c is {a + b + c:g}, but the four quadrants' probabilities add to 1; give less for them")
    first, second, third = (min(1 << DRAW_BITS, round(total * (1 << DRAW_BITS))) for total in (a, a + b, a + b + c))
    return first, second, third


def _bytes(memory_budget: int | str | None) -> int | None:
    return None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")


def _devices(draw: EdgeDraw, devices: str | Sequence[str] | int | None) -> tuple[str, ...]:
    """Devices that make the graph."""
    if devices is None and draw.n_edges < _EDGES_FOR_A_GPU:
        return HOST.default_names()
    return resolve_devices(devices)[: 1 if devices is None else None]


def _default_bytes() -> int:
    return min(_MOST_HOST_BYTES, free_host_bytes() // _SHARE)
