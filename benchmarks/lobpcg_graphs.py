"""Lowest eigenpairs of graph Laplacians: LOBPCG and shift-invert, SciPy's lobpcg and eigsh(sigma) beside.

GRAPH.graph is a connected graph in METIS format, such as those of Walshaw's archive. Preconditioners are
SuperLU's factor of L + 1e-6 I, an incomplete factor of it, the diagonal, and PyAMG's smoothed aggregation where that is
installed. Seconds are those of the processor, set-up of the preconditioner included; residuals are relative to the largest
eigenvalue.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, spilu, splu

import ooc_chol as oc
from benchmarks.running import Options, Parser, both_seconds

FOLDER = "sparse"
#: What is added to the diagonal, so that there is an inverse.
SHIFT = 1e-6
#: Passes after which Jacobi's preconditioner is given up.
MOST_PASSES = 3000
SYMMETRIC: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}, "diag_pivot_thresh": 0.0}


def laplacian_of(path: Path) -> csr_array:
    """``D - A`` of a graph in METIS format."""
    with oc.block_csr(path) as packed:
        a = csr_array(packed.tocsr(), dtype=np.float64)
    return csr_array(diags_array(np.asarray(a.sum(axis=1)).reshape(-1)) - a)


def preconditioners(a: csr_array) -> dict[str, Callable[[], Any]]:
    """By name what makes each."""
    shifted = (a + SHIFT * eye_array(a.shape[0])).tocsc()
    made: dict[str, Callable[[], Any]] = {
        "superlu": lambda: splu(shifted, **SYMMETRIC).solve,
        "ilu": lambda: spilu(shifted, drop_tol=1e-3, fill_factor=10, **SYMMETRIC).solve,
        "jacobi": lambda: 1 / np.maximum(a.diagonal(), 1.0),
    }
    if importlib.util.find_spec("pyamg") is not None:
        import pyamg

        made["amg"] = lambda: pyamg.smoothed_aggregation_solver(shifted.tocsr()).aspreconditioner()
    return made


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and processor seconds."""
    seconds, found = both_seconds(work)
    return found, seconds["processor_seconds"]


def ours(a: csr_array, make: Callable[[], Any], k: int, tol: float, device: str) -> dict[str, Any]:
    """LOBPCG of this package."""
    options = {"which": "SA", "null": np.ones(a.shape[0]), "tol": tol, "devices": device, "max_passes": MOST_PASSES}
    with oc.block_csr(a) as packed:
        try:
            pairs, seconds = timed(lambda: oc.eigsh(packed, k, preconditioner=make(), **options))
        except oc.errors.NoConvergenceError as error:
            return {"failed": str(error)[:200]}
    checks = sum(each.passes for each in pairs.report.counts.checks)
    facts = {"passes": pairs.report.passes, "check_passes": checks, "residual": float(pairs.residuals.max())}
    return {"seconds": seconds, **facts, "eigenvalues": pairs.eigenvalues.tolist()}


def scipys(a: csr_array, make: Callable[[], Any], k: int, goal: float) -> dict[str, Any]:
    """LOBPCG of SciPy, with as many vectors and the same start of its own generator."""
    n = a.shape[0]
    x = np.random.default_rng(0).uniform(-1, 1, (n, k + 1))
    counted = 0

    def product(v: NDArray[Any]) -> NDArray[Any]:
        nonlocal counted
        counted += 1
        return np.asarray(a @ v)

    def run() -> Any:
        m = make()
        apply = (lambda v: m[:, None] * v) if isinstance(m, np.ndarray) else m if callable(m) else m.matmat
        operator = LinearOperator((n, n), matvec=product, matmat=product, dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lobpcg(operator, x, M=apply, Y=np.ones((n, 1)), tol=goal, maxiter=MOST_PASSES, largest=False)

    (values, vectors), seconds = timed(run)
    order = np.argsort(values)[:k]
    return {"seconds": seconds, "passes": counted, **_quality(a, values[order], vectors[:, order], goal)}


def near(a: csr_array, k: int, tol: float, device: str, goal: float) -> dict[str, Any]:
    """Shift-invert, ours and SciPy's: the lowest eigenvalue, 0, is among what is found."""
    sigma = -1e-3
    pairs, seconds = timed(lambda: oc.eigsh(a, k + 1, sigma=sigma, tol=tol, devices=device))
    own = {"seconds": seconds, "passes": pairs.report.passes, "residual": float(pairs.residuals.max())}
    (values, vectors), seconds = timed(lambda: eigsh(a.tocsc(), k + 1, sigma=sigma))
    return {"ours": own, "scipy": {"seconds": seconds, **_quality(a, values, vectors, goal)}}


def _quality(a: csr_array, values: NDArray[Any], vectors: NDArray[Any], goal: float) -> dict[str, Any]:
    """Largest residual, and whether it is as small as was asked."""
    worst = float((np.linalg.norm(a @ vectors - vectors * values, axis=0) / np.linalg.norm(vectors, axis=0)).max())
    return {"absolute_residual": worst, "is_converged": worst <= goal, "eigenvalues": values.tolist()}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--without", nargs="*", default=[], help="preconditioners that are left out")
    parser.takes(k=3, tol=1e-7, devices="host:0")


def run(options: Options) -> dict[str, Any]:
    """Measure all graphs."""
    found: dict[str, Any] = {}
    for path in options.graphs:
        a = laplacian_of(path)
        largest = float(eigsh(a, 1, which="LA", return_eigenvectors=False, tol=1e-3)[0])
        goal = options.tol * largest
        rows: dict[str, Any] = {"n": a.shape[0], "entries": a.nnz, "largest": largest}
        for name, make in preconditioners(a).items():
            if name not in options.without:
                own = ours(a, make, options.k, options.tol, options.device)
                rows[name] = {"ours": own, "scipy": scipys(a, make, options.k, goal)}
                print(path.name, name, rows[name], flush=True)
        rows["sigma"] = near(a, options.k, options.tol, options.device, goal)
        print(path.name, "sigma", rows["sigma"], flush=True)
        found[path.name.split(".")[0]] = rows
    return {"k": options.k, "tol": options.tol, "device": options.device, "graphs": found}
