"""Largest eigenpairs of R-MAT and uniform graphs, beside SciPy on the host and CuPy on a GPU, with true residuals of all.

``host``: k = 8 and 24 at tol 1e-6, in memory beside SciPy's ``eigsh`` and PRIMME where it is; ``file``: from a file of which an
eighth is kept, beside the rate of the disk. ``in-core``: the same beside CuPy's ``eigsh`` in float32 and float64, whose vectors
stay on the GPU, where ours come to the host: ``return_seconds`` is what that takes with CuPy's. ``streamed``: larger than the
budget, beside the rate of the link. ``several``: one GPU and several. ``small``: six pairs or triplets of 1,000 to 5,000 rows
on the host, beside SciPy in turns, each at its own ``tol``. Residuals are ``||A v - w v|| / ||v||`` in float64, made anew
from what was returned, relative to the largest magnitude. What fails leaves its error in its line.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

import ooc_chol as oc
from benchmarks.k_steps import k_step_pairs
from benchmarks.running import Options, Parser, attempt, both_seconds, drop_pages, seconds_of, versions
from ooc_chol.config import parse_bytes

FOLDER = "eigen"
TOL = 1e-6
Line = dict[str, Any]
#: Facts of a line, and what measures the rest.
Measured = Iterator[tuple[Line, Callable[[], Line]]]


def true_residuals(a: oc.BlockCSR, w: NDArray[Any], v: NDArray[Any], devices: Any) -> float:
    """The largest residual, with products in float64, 8 columns at a time."""
    worst = 0.0
    with oc.multiplier(a, min(8, v.shape[1]), devices=devices) as product:
        for first in range(0, v.shape[1], 8):
            part = np.array(v[:, first : first + 8], np.float64, order="C")
            r = product(part)
            r -= part * w[first : first + 8]
            worst = max(worst, float((squares(r) / squares(part)).max()))
    return worst**0.5 / float(np.abs(w).max())


def squares(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared norms of columns, without temporary arrays."""
    return np.einsum("ij,ij->j", x, x)


def said(passes: int, most: int, seconds: float) -> None:
    """One line of progress, for runs of minutes."""
    print(f"  {passes} passes in {seconds:.1f} s", file=sys.stderr, flush=True)


def solved(a: oc.BlockCSR, solve: Callable[[], Any], repeats: int = 1, devices: Any = "host:0") -> tuple[Line, Any]:
    """Seconds and the residual of pairs that were found so, and these."""
    seconds: dict[str, list[float]] = {"seconds": [], "processor_seconds": []}
    for _ in range(repeats):
        taken, pairs = both_seconds(solve)
        for name, each in taken.items():
            seconds[name].append(each)
    w, v = pairs
    return {**seconds, "residual": true_residuals(a, w, v, devices), "values": sorted(map(float, w))}, pairs


def ours(a: oc.BlockCSR, k: int, repeats: int = 1, **options: Any) -> Line:
    """Our pairs."""
    solve = partial(oc.eigsh, a, k, **{"tol": TOL, "progress": said, **options})
    line, pairs = solved(a, solve, repeats, options.get("devices"))
    return line | {"report": pairs.report.to_dict()}


def scipys(a: oc.BlockCSR, k: int, dtype: str) -> Line:
    """SciPy's pairs, at the tolerance that gives the same residuals."""
    from scipy.sparse.linalg import eigsh

    matrix = a.tocsr().astype(dtype)
    start = np.random.default_rng(0).standard_normal(matrix.shape[0]).astype(dtype)
    return solved(a, lambda: eigsh(matrix, k, which="LM", tol=TOL, v0=start))[0]


def primmes(a: oc.BlockCSR, k: int, dtype: str, **options: Any) -> Line:
    """PRIMME's pairs, at the same tolerance relative to the norm of the matrix."""
    import primme

    matrix, count = a.tocsr().astype(dtype), 0

    def product(x: NDArray[Any]) -> NDArray[Any]:
        nonlocal count
        count += 1
        return matrix @ x

    operator = LinearOperator(matrix.shape, matvec=product, matmat=product, dtype=matrix.dtype)
    line, _ = solved(a, lambda: primme.eigsh(operator, k, which="LM", tol=TOL, **options))
    return line | {"version": versions("primme")["primme"], "products": count}


def cupys(a: oc.BlockCSR, k: int, dtype: str, repeats: int = 2) -> Line:
    """CuPy's pairs on the first GPU."""
    import cupy as cp
    from cupyx.scipy.sparse import csr_matrix
    from cupyx.scipy.sparse.linalg import eigsh

    host = a.tocsr()
    matrix = csr_matrix(tuple(map(cp.asarray, (host.data.astype(dtype), host.indices, host.indptr))), shape=host.shape)
    del host

    def solve() -> Any:
        found = eigsh(matrix, k, which="LM", tol=TOL)
        cp.cuda.Device().synchronize()
        return found

    seconds = []
    for _ in range(repeats):
        taken, pairs = seconds_of(solve)
        seconds.append(taken)
    returned, (w, v) = seconds_of(lambda: tuple(map(cp.asnumpy, pairs)))
    matrix = pairs = None  # the memory of residuals
    cp.get_default_memory_pool().free_all_blocks()
    residual = true_residuals(a, w, v, "cuda:0")
    return {"seconds": seconds, "return_seconds": returned, "residual": residual, "values": sorted(map(float, w))}


def paper(a: oc.BlockCSR, k: int, **where: Any) -> Line:
    """K steps for K pairs."""
    seconds, pairs = seconds_of(lambda: k_step_pairs(a, k, precision="FDF", **where))
    return {"seconds": [seconds], "residuals": list(pairs.residuals), "report": pairs.report.to_dict()}


def product_of(a: oc.BlockCSR, precision: str, columns: int, **where: Any) -> Line:
    """The yardstick: a product of some columns, the best of 5 behind one that warms up."""
    with oc.multiplier(a, columns, precision=precision, **where) as product:
        product.apply(np.ones((a.shape[1], columns), oc.Precision(precision).storage), times=6)
        report = product.report
        return {"seconds": list(report.scan_seconds[1:]), "bytes": sum(report.bytes.executed.values()) // max(1, report.scans)}


@contextmanager
def graph(kind: str, scale: int, devices: Any, order: Any = None, **pack: Any) -> Iterator[tuple[oc.BlockCSR, Line]]:
    """A packed graph, and what is said of it in every line."""
    made = oc.testing.urand(scale, devices=devices) if kind == "urand" else oc.testing.rmat(scale, devices=devices, order=order)
    with oc.block_csr(made, **pack) as a:
        yield a, {"graph": made.name, "n": a.shape[0], "entries": a.nnz, "bytes": a.nbytes}


def disk_rate(path: Path) -> float:
    """Bytes per second of reading a file from the disk, past the cache of the system."""
    drop_pages(path)

    def read() -> None:
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass

    return path.stat().st_size / seconds_of(read)[0]


def host(options: Options) -> Measured:
    """R-MAT on the host, in memory."""
    with graph("rmat", options.scale or 18, "host:0") as (a, facts):
        for k in (8, 24):
            for precision, block in (("DDD", 2), ("DDD", 8), ("FDF", 2)):
                how = {"precision": precision, "block": block}
                yield facts | {"what": "ours", "k": k} | how, partial(ours, a, k, **how, devices="host:0")
            for dtype in ("float64", "float32"):
                yield facts | {"what": "scipy", "k": k, "precision": dtype}, partial(scipys, a, k, dtype)
            for block in (1, 8):
                line = facts | {"what": "primme", "k": k, "precision": "float64", "block": block}
                yield line, partial(primmes, a, k, "float64", maxBlockSize=block)


def from_file(options: Options) -> Measured:
    """R-MAT on the host from a file, seven eighths of which are read in every pass."""
    k, how = 8, {"precision": "FDF", "block": 8}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "graph.oocsr"
        with graph("rmat", options.scale or 18, "host:0", store=path, block_bytes="512 KiB") as (a, facts):
            facts = facts | {"what": "from a file", "k": k, **how, "disk_bytes_per_second": disk_rate(path)}
            plan = oc.plan_eigsh(a, k, **how, devices="host:0", memory_budget="1 TiB")
            budget = plan.peak_bytes - 7 * a.nbytes // 8 + 4 * a.blocks.largest_bytes  # the ring in place of what was kept
            yield facts | {"budget": budget}, partial(ours, a, k, **how, devices="host:0", memory_budget=budget)


def in_core(options: Options) -> Measured:
    """In one GPU's memory, beside CuPy."""
    for scale in options.scales or (22, 24, 25):
        with graph("rmat", scale, options.devices, options.order) as (a, facts):
            for precision, columns in (("FDF", 1), ("FDF", 8), *((("DDD", 4),) if "DDD" in options.precisions else ())):
                line = facts | {"what": "product", "precision": precision, "columns": columns}
                yield line, partial(product_of, a, precision, columns, devices=options.devices)
            for k in options.k:
                for precision in options.precisions:
                    line = facts | {"what": "ours", "k": k, "precision": precision}
                    yield line, partial(ours, a, k, 2, precision=precision, devices=options.devices)
                if options.scipy:
                    yield facts | {"what": "scipy", "k": k, "precision": "float64"}, partial(scipys, a, k, "float64")
                for dtype in ("float32", "float64") if options.peers else ():
                    yield facts | {"what": "cupy", "k": k, "precision": dtype}, partial(cupys, a, k, dtype)


def streamed(options: Options) -> Measured:
    """Larger than the budget."""
    for kind in options.graphs:
        with graph(kind, options.scale or 27, options.devices, options.order) as (a, facts):
            for budget in options.budgets:
                where = {"devices": options.devices, "memory_budget": parse_bytes(budget, "--budgets")}
                facts = facts | {"budget": budget, "precision": "FDF"}
                yield facts | {"what": "product", "columns": 1}, partial(product_of, a, "FDF", 1, **where)
                k, tol = (8, 1e-3) if kind == "urand" else (8 if where["memory_budget"] < 30 << 30 else 24, TOL)
                yield facts | {"what": "ours", "k": k, "tol": tol}, partial(ours, a, k, precision="FDF", tol=tol, **where)
                if kind == "rmat":
                    yield facts | {"what": "paper", "k": 24}, partial(paper, a, 24, **where)


def several(options: Options) -> Measured:
    """One GPU and several: in core, and streamed the paper's K steps, whose passes are those of a run that converges."""
    all_of_them = list(options.devices if len(options.devices) > 1 else ("cuda:0", "cuda:1"))
    for scale in options.scales or (25, 27):
        with graph("rmat", scale, "cuda", options.order) as (a, facts):
            for devices, budget in (("cuda:0", options.budgets[0]), (all_of_them, options.budgets[-1])):
                line = facts | {"k": 24, "precision": "FDF", "devices": devices}
                if scale == 25:
                    whole = {"precision": "FDF", "devices": devices, "ncv": 120, "block": 8}
                    yield line | {"what": "ours"}, partial(ours, a, 24, 2, **whole)
                where = {"devices": devices, "memory_budget": parse_bytes(budget, "--budgets")}
                for _ in range(2):  # the first one compiles and page-locks
                    yield line | {"what": "paper"} | where, partial(paper, a, 24, **where)


def small_matrices() -> dict[str, Any]:
    """SciPy's sparse matrices of 1,000 to 5,000 rows, by name; the last are not square."""
    import scipy.sparse as sp

    found = {}
    for n in (1000, 3000, 5000):
        half = sp.random_array((n, n), density=5 / n, rng=np.random.default_rng(n), format="csr")
        found[f"random {n}"] = half + half.T
    path = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50))
    found["grid 50 x 50"] = sp.kronsum(path, path, format="csr")
    found["rmat 12"] = oc.block_csr(oc.testing.rmat(12)).tocsr().astype(float)
    for m, n in ((3000, 1000), (5000, 2000)):
        found[f"random {m} x {n}"] = sp.random_array((m, n), density=10 / n, rng=np.random.default_rng(m), format="csr")
    return found


def small(options: Options) -> Measured:
    """Small matrices on the host, in turns with SciPy."""
    from scipy.sparse.linalg import eigsh, svds

    for name, a in small_matrices().items():
        kinds: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            which: (partial(oc.eigsh, a, 6, which=which, devices="host:0"), partial(eigsh, a, 6, which=which))
            for which in ("LA", "LM", "SA")
        }
        kinds = kinds if a.shape[0] == a.shape[1] else {}
        kinds["svds"] = partial(oc.svds, a, 6, devices="host:0"), partial(svds, a, 6, rng=np.random.default_rng(0))
        for what, (mine, theirs) in kinds.items():
            facts = {"matrix": name, "shape": a.shape, "entries": a.nnz, "what": what}
            yield facts, partial(in_turns, mine, theirs, options.repeats)


def in_turns(mine: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> Line:
    """Seconds of both, one after the other, behind a call of each that warms up."""
    found: Line = {"residual": float(mine().residuals.max()), "seconds": {}, "processor_seconds": {}}
    theirs()
    for _ in range(repeats):
        for name, solve in (("ours", mine), ("scipy", theirs)):
            for kind, each in both_seconds(solve)[0].items():
                found[kind].setdefault(name, []).append(each)
    medians = {name: float(np.median(each)) for name, each in found["seconds"].items()}
    return found | {"medians": medians, "ours_over_scipy": medians["ours"] / medians["scipy"]}


CASES = {"small": small, "host": host, "file": from_file, "in-core": in_core, "streamed": streamed, "several": several}
TAKES = {"scale": int, "graphs": ("rmat", "urand"), "devices": "cuda:0", "scipy": False, "folder": Path, "repeats": 9}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("what", choices=CASES)
    parser.add_argument("--scales", type=int, nargs="+", help="base-2 logarithms of numbers of vertices")
    parser.add_argument("--k", type=int, nargs="+", default=[8, 24], help="pairs, in core")
    budgets = "of each GPU; of 'several' that of one, and of each of all, which have parts of the basis (default: 16 and 32 GiB)"
    parser.add_argument("--budgets", nargs="+", default=["16 GiB", "32 GiB"], help=budgets)
    parser.add_argument("--order", choices=("degree",), help="numbers of an R-MAT graph's vertices, for all solvers")
    parser.add_argument("--precisions", nargs="+", choices=("FFF", "FDF", "DDD"), default=["FDF", "DDD"], help="ours, in core")
    parser.add_argument("--no-peers", dest="peers", action="store_false")


def run(options: Options) -> Iterator[Line]:
    """Measure line by line."""
    if options.what in ("host", "file", "small"):
        options.devices = ("host:0",)
    options.about = {"case": f"eigen-{options.name}", "what": options.what, "tol": TOL}
    for facts, measure in CASES[options.what](options):
        yield facts | attempt(measure)
