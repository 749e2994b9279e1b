"""Plans of cuts: how the first eigenvectors are found, with memory, bytes over links, and seconds of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.components import components
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.solving.lowest import SolverOptions
from ooc_chol.apps.spectral.solving.ways import AMG, DIAGONAL, LAPACK, Size, eigsh_options, expected_way, is_for_host, unevenness

#: Bytes of an entry of a packed adjacency with weights, about, and of a number of float64.
_ENTRY_BYTES, _NUMBER_BYTES = 12, 8
#: Sizes on devices are multiples of so many bytes.
_PAGE_BYTES = 4096
#: Dense matrices that LAPACK needs: the Laplacian, a copy, and work.
_DENSE_MATRICES = 3


@final
@dataclass(frozen=True, repr=False)
class PartitionPlan(tb.AbstractPlan):
    """Plan of :func:`bisect`, :func:`partition` or :func:`normalized_cut`: of the largest graph that is cut, the first one.

    Parameters
    ----------
    call : str
        ``"bisect"``, ``"partition"`` or ``"normalized_cut"``.
    n, n_entries : int
        Vertices of the largest connected component, and entries of its adjacency, two for each edge; 1 and 0 where all components
        are only packed.
    vectors : int
        Eigenvectors.
    method : str
        How they are found, unless coarse levels of smoothed aggregation turn out to be dense, or the factor that takes the place
        of the diagonal small; ``"none"`` where nothing is cut.
    devices : tuple of str
        Where.
    budget_bytes : int
        Most bytes on each device.
    eigsh : EigshPlan or None
        Plan of the eigensolver; None for LAPACK, and where nothing is cut.
    diagonal_bytes : int
        Bytes of the diagonals that make a Laplacian of the packed adjacency, on each device.
    """

    call: str  # type: ignore[misc]
    n: int
    n_entries: int
    vectors: int
    method: str
    devices: tuple[str, ...]
    budget_bytes: int
    eigsh: tb.EigshPlan | None = None
    diagonal_bytes: int = 0
    unit = "pass"

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates; of LAPACK those of dense matrices."""
        if self.eigsh is not None:
            return self.eigsh.peak_bytes + self.diagonal_bytes
        return _NUMBER_BYTES * (_DENSE_MATRICES * self.n**2 if self.method == LAPACK else max(1, self.n))

    @property
    def host_bytes(self) -> int:
        """Bytes of the packed adjacency, and of the vectors that are searched."""
        vectors = _NUMBER_BYTES * self.n * self.vectors
        return vectors if self.eigsh is None else _ENTRY_BYTES * self.n_entries + vectors

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes of blocks over each link in the first pass."""
        return {} if self.eigsh is None else self.eigsh.bytes

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of a pass of block Lanczos; None where no rates are known, and of other methods."""
        return None if self.eigsh is None else self.eigsh.seconds

    def figures(self) -> Mapping[str, object]:
        """Size, method and the plan of the eigensolver."""
        eigsh = None if self.eigsh is None else self.eigsh.to_dict()
        return {"n": self.n, "n_entries": self.n_entries, "vectors": self.vectors, "method": self.method, "eigsh": eigsh}

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"call": self.call, "n": self.n, "n_entries": self.n_entries, "method": self.method}
        return facts | {"devices": self.devices, "peak": tb.format_bytes(self.peak_bytes)}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of the page."""
        largest = f"whose largest component has {self.n} vertices and {self.n_entries // 2} edges"
        yield "", f"Plan: {self.call} of a graph {largest if self.method != 'none' else 'whose components stay whole'}"
        yield "eigenpairs", f"{self.vectors} by {self.method} on {', '.join(self.devices)}"
        yield "memory", f"peak {tb.format_bytes(self.peak_bytes)} of {tb.format_bytes(self.budget_bytes)}"
        yield "host", tb.format_bytes(self.host_bytes)
        for link, nbytes in self.bytes.items():
            yield "moves", f"{link}: {tb.format_bytes(nbytes)} the first pass"
        yield "seconds", "unknown" if self.seconds is None else f"{self.seconds:.3g} a pass, by measured rates"


def size_of(A: Any, measured: Callable[[Any], Size]) -> Size:
    """Size of what is cut, as measured, or what ``((n, n), entries, kind)`` says of a connected graph."""
    if isinstance(A, tuple) and len(A) == 3 and isinstance(A[0], Sequence):
        shape = tuple(tb.whole_number(each, "A", least=1) for each in A[0])
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"A has shape {shape}; the adjacency of a graph is square")
        return Size(shape[0], tb.whole_number(A[1], "A", least=0))
    return measured(A)


def largest_size(graph: Graph) -> Size:
    """Size of the largest component."""
    of_vertex = components(graph)
    counts = np.bincount(of_vertex)
    if len(counts) <= 1:
        return Size(graph.n, int(graph.adjacency.nnz), unevenness(graph.degrees) if graph.adjacency.nnz else 1.0)
    inside = of_vertex == counts.argmax()
    entries = np.diff(graph.adjacency.indptr)[inside].sum()
    return Size(int(counts.max()), int(entries), unevenness(graph.degrees[inside]) if entries else 1.0)


def plan_cut(
    call: str, size: Size, vectors: int, options: SolverOptions, host_budget: int | str | None, *, normalized: bool = False
) -> PartitionPlan:
    """Plan the first, and largest, cut; ``BudgetError`` where a budget does not hold it."""
    count = max(0, min(vectors, size.n - 1))
    method = expected_way(size, count, options, normalized=normalized) if count else "none"
    is_on_host = method in (LAPACK, "none") or is_for_host(size.n_entries, options)
    options = options.on_host() if is_on_host and options.are_gpus else options
    machine = options.machine
    devices = machine.names[:1] if method in (LAPACK, "none") else machine.names
    eigsh, diagonals = None, 0
    if method not in (LAPACK, "none"):
        diagonals = (1 + normalized) * -(-_NUMBER_BYTES * size.n // _PAGE_BYTES) * _PAGE_BYTES
        eigsh = _eigsh_plan(size, count, method, options, diagonals)
    plan = PartitionPlan(call, size.n, size.n_entries, vectors, method, devices, machine.budget_bytes, eigsh, diagonals)
    if plan.peak_bytes > plan.budget_bytes:
        advice = "give a larger one, or fewer vectors"
        raise oc.BudgetError(f"memory_budget of {devices[0]}", plan.peak_bytes, plan.budget_bytes, advice)
    check_host_budget(plan, host_budget)
    return plan


def _eigsh_plan(size: Size, count: int, method: str, options: SolverOptions, diagonals: int) -> tb.EigshPlan:
    """The plan of the eigensolver, beside the diagonals of a Laplacian."""
    machine, ones = options.machine, np.ones(size.n)
    given = eigsh_options(method, count, options, ones, {AMG: np.asarray, DIAGONAL: ones}.get(method))
    given["memory_budget"] = max(1, machine.budget_bytes - diagonals)
    try:
        return oc.plan_eigsh(((size.n, size.n), size.n_entries, "fp64"), **given)
    except oc.BudgetError as error:
        what = f"memory_budget of {machine.names[0]}"
        raise oc.BudgetError(what, error.needed_bytes + diagonals, machine.budget_bytes, error.advice) from error


def check_host_budget(plan: PartitionPlan, host_budget: int | str | None) -> None:
    """Raise ``BudgetError`` where a plan takes more of the host than that."""
    if host_budget is not None and plan.host_bytes > (most := tb.parse_bytes(host_budget, "host_budget")):
        raise oc.BudgetError("host_budget", plan.host_bytes, most, "give a larger one, or fewer vectors")


def planned_cut(
    plan: Any,
    call: str,
    size: Size,
    vectors: int,
    options: SolverOptions,
    host_budget: int | str | None,
    *,
    normalized: bool = False,
) -> PartitionPlan:
    """A caller's plan, which must be of this problem, or a new one: ``TypeError``, ``ValueError`` or ``BudgetError``."""
    if plan is None:
        return plan_cut(call, size, vectors, options, host_budget, normalized=normalized)
    if not isinstance(plan, PartitionPlan) or plan.call != call:
        what = f"one of {plan.call}" if isinstance(plan, PartitionPlan) else f"a {type(plan).__name__}"
        raise TypeError(f"plan is {what}; give what plan_{call} returns, or report.plan of {call}")
    machine = options.machine
    asked: dict[str, tuple[object, object]] = {"n": (plan.n, size.n), "entries": (plan.n_entries, size.n_entries)}
    asked["vectors"] = plan.vectors, vectors
    if not machine.has_default_budget:
        asked["memory_budget"] = plan.budget_bytes, machine.budget_bytes
    if options.devices is not None and plan.eigsh is not None and not is_for_host(size.n_entries, options):
        asked["devices"] = plan.devices, machine.names
    for name, (planned, here) in asked.items():
        if planned != here:
            raise ValueError(f"plan is of another graph or call: its {name} is {planned!s:.80}, here {here!s:.80}; plan this one")
    check_host_budget(plan, host_budget)
    return plan


def arithmetic_key(
    call: str, size: tuple[int, int], options: SolverOptions, plan: PartitionPlan, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """All that the bits of a result depend on, but for weights and where the edges are; plain data."""
    precision = options.precision if plan.eigsh is None else plan.eigsh.problem.precision
    solver = {"tol": options.tol.hex(), "preconditioner": options.preconditioner, "max_passes": options.max_passes}
    return {
        "call": call,
        "graph": {"n": size[0], "entries": size[1]},
        **settings,
        "solver": solver | {"precision": "DDD" if precision is None else str(oc.Precision(precision).value)},
        "method": plan.method,
        "devices": tb.Machine(plan.devices[:1]).identity,
        "versions": f"ooc_chol {oc.__version__}, numpy {np.__version__}",
    }
