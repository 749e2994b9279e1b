"""Differentiable sparse operations beside torch, JAX's BCOO, torch-sla and torchsparsegradutils, on the host.

The six operations of Nytko et al. (2022) on Poisson's matrix on a line and on a square, float64, one thread: A x, A X of 16
columns, A A, A + tril(A), tril(A)^-1 x and A^-1 x. The gradient is that of the sum of squares of the result, in the values of
A, and in x where there is one. Each peer, operation and matrix has a process of its own, with a limit of memory; where one
cannot, the file has its message. Forward results are compared with SciPy's, gradients with differences of the sum along a
random direction. Seconds are the least, middle and most of up to five calls after a first one, whose seconds stand beside them:
what compiles, or makes a structure that is kept, does it there. Values change between calls, so that each solve factors.
"""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array, kron, tril
from scipy.sparse.linalg import spsolve, spsolve_triangular

from benchmarks.running import Options, Parser, apart, seconds_of, versions

FOLDER = "diff"
OPERATIONS = ("spmv", "spmm", "spgemm", "add", "triangular", "solve")
COLUMNS = 16
#: Calls after the first one, and seconds after which no further one is made.
REPEATS, ENOUGH_SECONDS = 5, 1.0
#: Rows of the square above which no system is solved: SuperLU's factor of 10^6 rows takes minutes and gigabytes.
MOST_ROWS_OF_SQUARE_SOLVES = 200_000
_WITHOUT = "it has no function for this"


class Case(NamedTuple):
    """One operation on one matrix."""

    operation: str
    a: csr_array
    x: NDArray[Any] | None  #: dense operand

    @property
    def lower(self) -> csr_array:
        """``tril(A)``."""
        return csr_array(tril(self.a, format="csr"))

    @property
    def matrix(self) -> csr_array:
        """The matrix whose values are differentiated in."""
        return self.lower if self.operation == "triangular" else self.a

    def expected(self, values: NDArray[Any]) -> NDArray[Any]:
        """SciPy's result for some values: an array, or the sum of squares where the result is sparse."""
        m = csr_array((values, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)
        if self.operation in ("spgemm", "add"):
            found = m @ m if self.operation == "spgemm" else m + self.lower
            return np.array([np.sum(found.data**2)])
        if self.operation == "triangular":
            return np.asarray(spsolve_triangular(m, self.x, lower=True))
        return np.asarray(spsolve(m.tocsc(), self.x) if self.operation == "solve" else m @ self.x)


def matrices(sizes: list[int]) -> Iterator[tuple[str, csr_array]]:
    """Poisson's matrix on lines and squares, diagonally dominant by a hundredth, so that no solve is ill-conditioned."""

    def line(n: int) -> Any:
        return diags_array([-1.0, 2.005, -1.0], offsets=[-1, 0, 1], shape=(n, n))

    for n in sizes:
        yield "line", csr_array(line(n))
        side = round(n**0.5)
        yield "square", csr_array(kron(line(side), eye_array(side)) + kron(eye_array(side), line(side)))


def cases(operation: str, sizes: list[int]) -> Iterator[tuple[str, Case]]:
    """All cases of an operation; the smaller ones first."""
    random = np.random.default_rng(0)
    for name, a in matrices(sizes):
        n = a.shape[0]
        x = None if operation in ("spgemm", "add") else random.normal(size=(n, COLUMNS) if operation == "spmm" else n)
        yield name, Case(operation, a, x)


# what each library does: a function of a case that gives a function of values and x; its result is an array or values


def ours_torch(case: Case) -> Callable[..., Any]:
    """``ooc_chol.diff.torch``."""
    import ooc_chol.diff.torch as sparse

    return _ours(sparse, case, sparse.CSR.of(case.lower))


def ours_jax(case: Case) -> Callable[..., Any]:
    """``ooc_chol.diff.jax``."""
    import ooc_chol.diff.jax as sparse

    return _ours(sparse, case, sparse.CSR.of(case.lower))


def _ours(sparse: Any, case: Case, lower: Any) -> Callable[..., Any]:
    import ooc_chol as oc

    pattern, _ = oc.diff.Pattern.of(case.matrix)
    return {
        "spmv": lambda v, x: sparse.CSR(v, pattern) @ x,
        "spmm": lambda v, x: sparse.CSR(v, pattern) @ x,
        "spgemm": lambda v: (sparse.CSR(v, pattern) @ sparse.CSR(v, pattern)).values,
        "add": lambda v: (sparse.CSR(v, pattern) + lower).values,
        "triangular": lambda v, x: sparse.triangular_solve(sparse.CSR(v, pattern), x),
        "solve": lambda v, x: sparse.solve(sparse.CSR(v, pattern), x),
    }[case.operation]


def torch_csr(case: Case) -> Callable[..., Any]:
    """CSR tensors of torch, by ``torch.sparse.mm`` where there is a choice."""
    import torch

    lower = _torch_csr(case.lower)(torch.from_numpy(case.lower.data))
    operations = {
        "spmv": lambda A, x: torch.sparse.mm(A, x[:, None])[:, 0],
        "spmm": lambda A, x: torch.sparse.mm(A, x),
        "spgemm": lambda A: torch.sparse.mm(A, A).values(),
        "add": lambda A: (A + lower).values(),
        "triangular": lambda A, x: torch.triangular_solve(x[:, None], A, upper=False)[0][:, 0],
        "solve": lambda A, x: torch.sparse.spsolve(A, x),
    }
    return OfMatrix(operations[case.operation], _torch_csr(case.matrix))


def torch_at(case: Case) -> Callable[..., Any]:
    """CSR tensors of torch by ``A @ x``."""
    return OfMatrix(lambda A, x: A @ x, _torch_csr(case.matrix))


class OfMatrix(NamedTuple):
    """A function of a tensor in CSR layout, whose gradient is asked for as such."""

    function: Callable[..., Any]
    made: Callable[[Any], Any]  #: the matrix of some values

    def __call__(self, A: Any, *x: Any) -> Any:
        """What the function gives."""
        return self.function(A, *x)


def _torch_csr(matrix: csr_array) -> Callable[[Any], Any]:
    """A CSR tensor of values."""
    import torch

    places = [torch.from_numpy(each.astype(np.int64)) for each in (matrix.indptr, matrix.indices)]
    return lambda v: torch.sparse_csr_tensor(*places, v, matrix.shape, check_invariants=False)


def torch_sla(case: Case) -> Callable[..., Any]:
    """torch-sla's ``SparseTensor``."""
    import torch
    from torch_sla import SparseTensor

    def made(matrix: csr_array) -> Callable[[Any], Any]:
        coo = matrix.tocoo()
        places = [torch.from_numpy(each.astype(np.int64)) for each in (coo.row, coo.col)]
        return lambda v: SparseTensor(v, *places, matrix.shape)

    tensor = made(case.matrix)
    operations = {
        "spmv": lambda v, x: tensor(v) @ x,
        "spmm": lambda v, x: tensor(v) @ x,
        "spgemm": lambda v: (tensor(v) @ tensor(v)).values,
        "add": lambda v: (tensor(v) + made(case.lower)(torch.from_numpy(case.lower.data))).values,
        "solve": lambda v, x: tensor(v).solve(x),
    }
    return _one(operations, case)


def torchsparsegradutils(case: Case) -> Callable[..., Any]:
    """torchsparsegradutils: its solve is iterative."""
    from torchsparsegradutils import sparse_generic_solve, sparse_mm, sparse_triangular_solve

    operations = {
        "spmv": lambda A, x: sparse_mm(A, x[:, None])[:, 0],
        "spmm": sparse_mm,
        "triangular": lambda A, x: sparse_triangular_solve(A, x[:, None], upper=False)[:, 0],
        "solve": lambda A, x: sparse_generic_solve(A, x[:, None])[:, 0],
    }
    return OfMatrix(_one(operations, case), _torch_csr(case.matrix))


def jax_bcoo(case: Case) -> Callable[..., Any]:
    """JAX's BCOO."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    def made(matrix: csr_array) -> Callable[[Any], Any]:
        coo = matrix.tocoo()
        places = jnp.asarray(np.stack([coo.row, coo.col], axis=1))
        return lambda v: sparse.BCOO((v, places), shape=matrix.shape, indices_sorted=True, unique_indices=True)

    bcoo = made(case.matrix)
    indptr, indices = jnp.asarray(case.matrix.indptr), jnp.asarray(case.matrix.indices)
    operations = {
        "spmv": lambda v, x: bcoo(v) @ x,
        "spmm": lambda v, x: bcoo(v) @ x,
        "spgemm": lambda v: (bcoo(v) @ bcoo(v)).data,
        "add": lambda v: (bcoo(v) + made(case.lower)(jnp.asarray(case.lower.data))).sum_duplicates(nse=case.a.nnz).data,
        "solve": lambda v, x: sparse.linalg.spsolve(v, indices, indptr, x),
    }
    return _one(operations, case)


def _one(operations: dict[str, Callable[..., Any]], case: Case) -> Callable[..., Any]:
    if case.operation not in operations:
        raise NotImplementedError(_WITHOUT)
    return operations[case.operation]


PEERS = {
    "ours-torch": ours_torch,
    "ours-jax": ours_jax,
    "torch": torch_csr,
    "torch-at": torch_at,
    "torch-sla": torch_sla,
    "torchsparsegradutils": torchsparsegradutils,
    "jax-bcoo": jax_bcoo,
}


# measuring, in a process of its own


def with_torch(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward, and forward with gradients of the sum of squares, of NumPy's arrays."""
    import torch

    torch.set_num_threads(1)

    made = function.made if isinstance(function, OfMatrix) else lambda values: values

    def forward(values: NDArray[Any], *x: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return np.asarray(function(made(torch.from_numpy(values)), *map(torch.from_numpy, x)))

    def both(values: NDArray[Any], *x: NDArray[Any]) -> Any:
        first, *others = made(torch.from_numpy(values)).requires_grad_(), *(torch.from_numpy(each).requires_grad_() for each in x)
        (function(first, *others) ** 2).sum().backward()
        return first.grad

    return forward, both


def entries(gradient: Any, matrix: csr_array) -> NDArray[Any]:
    """The numbers of a gradient on the pattern of the matrix."""
    if getattr(gradient, "ndim", 1) == 1:
        return np.asarray(gradient)
    if gradient.is_sparse_csr:
        if gradient.values().numel() != matrix.nnz:
            raise ValueError(f"the gradient has {gradient.values().numel()} entries, the matrix {matrix.nnz}")
        return np.asarray(gradient.values())
    rows, columns = matrix.tocoo().coords
    return np.asarray(gradient.to_dense())[rows, columns]


def with_jax(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same, compiled."""
    import jax

    forward = jax.jit(function)
    both = jax.jit(jax.grad(lambda *given: (function(*given) ** 2).sum(), argnums=(0, 1)[: function.__code__.co_argcount]))
    return lambda *given: np.asarray(forward(*given)), lambda *given: np.asarray(jax.block_until_ready(both(*given))[0])


def timed(function: Callable[..., Any], values: NDArray[Any], *x: NDArray[Any]) -> tuple[Any, dict[str, Any]]:
    """The first result, and seconds; values are scaled a little between calls, so that nothing is kept of a factor."""
    taken, first = seconds_of(lambda: function(values, *x))
    seconds: list[float] = []
    while len(seconds) < REPEATS and sum(seconds) < ENOUGH_SECONDS:
        other = values * (1 + 1e-9 * (len(seconds) + 1))
        seconds.append(seconds_of(lambda other=other: function(other, *x))[0])
    return first, {"first": taken, "seconds": [min(seconds), float(np.median(seconds)), max(seconds)], "calls": len(seconds)}


def measure(peer: str, case: Case) -> dict[str, Any]:
    """Seconds and errors of one case."""
    forward, both = (with_jax if "jax" in peer else with_torch)(PEERS[peer](case))
    values = case.matrix.data
    given = () if case.x is None else (case.x,)
    facts: dict[str, Any] = {}
    expected = case.expected(values)

    def of_result() -> dict[str, Any]:
        found, told = timed(forward, values, *given)
        found = np.array([np.sum(found**2)]) if case.x is None else found
        return told | {"error": float(np.linalg.norm(found - expected) / np.linalg.norm(expected))}

    def of_gradient() -> dict[str, Any]:
        gradient, told = timed(both, values, *given)
        about = {"gradient_bytes": nbytes(gradient), "error": slope_error(case, values, entries(gradient, case.matrix))}
        return told | about

    for name, measured in (("forward", of_result), ("forward_backward", of_gradient)):
        try:
            facts[name] = measured()
        except _FAILURES as error:
            facts[name] = {"failed": message(error)}
    return facts


_FAILURES = (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError, ImportError, MemoryError)


def slope_error(case: Case, values: NDArray[Any], gradient: NDArray[Any]) -> float:
    """The gradient along a random direction beside a central difference of SciPy's results, relative."""
    if gradient.shape != values.shape:
        raise ValueError(f"the gradient has shape {gradient.shape}, the values {values.shape}")
    direction = np.random.default_rng(1).normal(size=values.size)
    step = 1e-5
    found = [case.expected(values + sign * step * direction) for sign in (1, -1)]
    above, below = (np.sum(each if case.x is None else each**2) for each in found)
    slope = (above - below) / (2 * step)
    scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
    return float(abs(gradient @ direction - slope) / max(scale, np.finfo(float).tiny))


def nbytes(gradient: Any) -> int:
    """Bytes of the numbers of a gradient of the matrix."""
    held = gradient.values() if getattr(gradient, "is_sparse_csr", False) else gradient
    return int(held.size * 8 if isinstance(held, np.ndarray) else held.numel() * held.element_size())


def message(error: Exception) -> str:
    """What a library says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.set_defaults(name="host-peers")
    parser.takes(sizes=[10_000, 100_000, 1_000_000], only=tuple(PEERS))
    parser.add_argument("--seconds", type=float, default=90, help="that a process may take")
    parser.add_argument("--memory", type=int, default=12, help="GiB of address space of a process")


def one(peer: str, operation: str, matrix: str, n: int, memory_gib: int) -> dict[str, Any]:
    """Measure one case in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_gib << 30, memory_gib << 30))
    warnings.simplefilter("ignore")
    if "jax" in peer:
        import jax

        jax.config.update("jax_enable_x64", True)
    return measure(peer, dict(cases(operation, [n]))[matrix])


def run(options: Options) -> dict[str, Any]:
    """Measure all peers, one process after the other."""
    rows = []
    for operation, peer in product(OPERATIONS, options.only):
        if peer == "torch-at" and operation not in ("spmv", "spmm"):
            continue
        for name, case in cases(operation, options.sizes):
            n = case.a.shape[0]
            row: dict[str, Any] = {"matrix": name, "n": n, "nnz": case.a.nnz, "operation": operation, "peer": peer}
            if operation == "solve" and name == "square" and n > MOST_ROWS_OF_SQUARE_SOLVES:
                row["left_out"] = "a factor of this takes minutes and gigabytes"
            else:
                row |= apart(one, peer, operation, name, n, options.memory, seconds=options.seconds)
            rows.append(row)
            print(row, flush=True)
    return {
        "case": "diff-host-peers",
        "versions": versions("torch", "jax", "torch-sla", "torchsparsegradutils"),
        "dtype": "float64",
        "columns": COLUMNS,
        "memory_gib": options.memory,
        "rows": rows,
    }
