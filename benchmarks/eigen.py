"""Largest eigenpairs of R-MAT and uniform graphs, beside SciPy on the host and CuPy on a GPU, with true residuals of all.

``host``: k = 8 and 24 at tol 1e-6, in memory beside SciPy's ``eigsh`` and PRIMME where it is; ``file``: from a file of which an
eighth is kept, beside the rate of the disk. ``in-core``: the same beside CuPy's ``eigsh`` in float32 and float64, whose vectors
stay on the GPU, where ours come to the host: ``return_seconds`` is what that takes with CuPy's. ``streamed``: larger than the
budget, beside the rate of the link. ``two``: one GPU and two. Residuals are ``||A v - w v|| / ||v||`` in float64, made anew
from what was returned, relative to the largest magnitude. What fails leaves its error in its line.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

import ooc_chol as oc
from benchmarks.k_steps import k_step_pairs
from benchmarks.running import Options, Parser
from ooc_chol.config import parse_bytes

FOLDER = "eigen"
TOL = 1e-6
Line = dict[str, Any]


def true_residuals(a: oc.BlockCSR, w: NDArray[Any], v: NDArray[Any], devices: Any) -> float:
    """The largest residual, with products in float64, 8 columns at a time."""
    x, worst = v.astype(np.float64), 0.0
    with oc.multiplier(a, min(8, x.shape[1]), devices=devices) as product:
        for first in range(0, x.shape[1], 8):
            part = x[:, first : first + 8]
            r = product(part) - part * w[first : first + 8]
            worst = max(worst, float((np.linalg.norm(r, axis=0) / np.linalg.norm(part, axis=0)).max()))
    return worst / float(np.abs(w).max())


def attempt(line: Line, run: Callable[[], Line]) -> Line:
    """A line with its figures, or with the error that it ended in."""
    try:
        return line | run()
    except Exception as error:  # recorded in the result: another library's failure is a finding
        return line | {"error": f"{type(error).__name__}: {error!s:.300}"}


def said(passes: int, most: int, seconds: float) -> None:
    """One line of progress, for runs of minutes."""
    print(f"  {passes} passes in {seconds:.1f} s", file=sys.stderr, flush=True)


def ours(a: oc.BlockCSR, k: int, repeats: int = 1, **options: Any) -> Callable[[], Line]:
    """Our pairs."""

    def run() -> Line:
        seconds, processor = [], []
        for _ in range(repeats):
            began, busy = time.perf_counter(), time.process_time()
            pairs = oc.eigsh(a, k, **{"tol": TOL, "progress": said, **options})
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - busy)
        report = pairs.report.to_dict()
        residual = true_residuals(a, *pairs, options.get("devices"))
        found = {"seconds": seconds, "processor_seconds": processor, "residual": residual, "values": list(pairs.eigenvalues)}
        return found | {"report": report}

    return run


def scipys(a: oc.BlockCSR, k: int, dtype: str) -> Callable[[], Line]:
    """SciPy's pairs, at the tolerance that gives the same residuals."""

    def run() -> Line:
        from scipy.sparse.linalg import eigsh

        matrix = a.tocsr().astype(dtype)
        began, busy = time.perf_counter(), time.process_time()
        w, v = eigsh(matrix, k, which="LM", tol=TOL, v0=np.random.default_rng(0).standard_normal(matrix.shape[0]).astype(dtype))
        found = {"seconds": [time.perf_counter() - began], "processor_seconds": [time.process_time() - busy]}
        return found | {"residual": true_residuals(a, w, v, "host:0"), "values": sorted(map(float, w))}

    return run


def primmes(a: oc.BlockCSR, k: int, dtype: str, **options: Any) -> Callable[[], Line]:
    """PRIMME's pairs, at the same tolerance relative to the norm of the matrix."""

    def run() -> Line:
        import primme

        matrix, count = a.tocsr().astype(dtype), 0

        def product(x: NDArray[Any]) -> NDArray[Any]:
            nonlocal count
            count += 1
            return matrix @ x

        operator = LinearOperator(matrix.shape, matvec=product, matmat=product, dtype=matrix.dtype)
        began, busy = time.perf_counter(), time.process_time()
        w, v = primme.eigsh(operator, k, which="LM", tol=TOL, **options)
        found = {"seconds": [time.perf_counter() - began], "processor_seconds": [time.process_time() - busy]}
        found |= {"version": importlib.metadata.version("primme"), "products": count}
        return found | {"residual": true_residuals(a, w, v, "host:0"), "values": sorted(map(float, w))}

    return run


def cupys(a: oc.BlockCSR, k: int, dtype: str, repeats: int = 2) -> Callable[[], Line]:
    """CuPy's pairs on the first GPU."""

    def run() -> Line:
        import cupy as cp
        from cupyx.scipy.sparse import csr_matrix
        from cupyx.scipy.sparse.linalg import eigsh

        host = a.tocsr()
        matrix = csr_matrix(tuple(map(cp.asarray, (host.data.astype(dtype), host.indices, host.indptr))), shape=host.shape)
        del host
        seconds = []
        for _ in range(repeats):
            cp.cuda.Device().synchronize()
            began = time.perf_counter()
            w, v = eigsh(matrix, k, which="LM", tol=TOL)
            cp.cuda.Device().synchronize()
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        w, v = cp.asnumpy(w), cp.asnumpy(v)
        returned = time.perf_counter() - began
        del matrix
        cp.get_default_memory_pool().free_all_blocks()
        return {
            "seconds": seconds,
            "return_seconds": returned,
            "residual": true_residuals(a, w, v, "cuda:0"),
            "values": sorted(map(float, w)),
        }

    return run


@contextmanager
def graph(
    kind: str,
    scale: int,
    devices: Any,
    store: Path | None = None,
    block_bytes: str | None = None,
    order: Literal["degree"] | None = None,
) -> Iterator[tuple[oc.BlockCSR, Line]]:
    """A packed graph, and what is said of it in every line."""
    made = oc.testing.urand(scale, devices=devices) if kind == "urand" else oc.testing.rmat(scale, devices=devices, order=order)
    with oc.block_csr(made, store=store, block_bytes=block_bytes) as a:
        yield a, {"graph": made.name, "n": a.shape[0], "entries": a.nnz, "bytes": a.nbytes}


def disk_rate(path: Path) -> float:
    """Bytes per second of reading a file from the disk, past the cache of the system."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began, count = time.perf_counter(), 0
        while chunk := file.read(1 << 24):
            count += len(chunk)
    return count / (time.perf_counter() - began)


def product_line(a: oc.BlockCSR, facts: Line, precision: str, columns: int, **where: Any) -> Line:
    """The yardstick: a product of some columns, the best of 5 behind one that warms up."""

    def run() -> Line:
        with oc.multiplier(a, columns, precision=precision, **where) as product:
            product.apply(np.ones((a.shape[1], columns), oc.Precision(precision).storage), times=6)
            report = product.report
            moved = sum(report.bytes.executed.values())
            return {"seconds": list(report.scan_seconds[1:]), "bytes": moved // max(1, report.scans)}

    return attempt(facts | {"what": "product", "precision": precision, "columns": columns}, run)


def host(options: Options) -> Iterator[Line]:
    """R-MAT on the host, in memory and from a file."""
    scale = options.scale or 18
    with graph("rmat", scale, "host:0") as (a, facts):
        for k in (8, 24):
            for precision, block in (("DDD", 2), ("DDD", 8), ("FDF", 2)):
                line = facts | {"what": "ours", "k": k, "precision": precision, "block": block}
                yield attempt(line, ours(a, k, precision=precision, block=block, devices="host:0"))
            for dtype in ("float64", "float32"):
                yield attempt(facts | {"what": "scipy", "k": k, "precision": dtype}, scipys(a, k, dtype))
            for block in (1, 8):
                line = facts | {"what": "primme", "k": k, "precision": "float64", "block": block}
                yield attempt(line, primmes(a, k, "float64", maxBlockSize=block))


def from_file(options: Options) -> Iterator[Line]:
    """R-MAT on the host from a file, seven eighths of which are read in every pass."""
    scale, k = options.scale or 18, 8
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "graph.oocsr"
        with graph("rmat", scale, "host:0", path, block_bytes="512 KiB") as (a, facts):
            facts = facts | {
                "what": "from a file",
                "k": k,
                "precision": "FDF",
                "block": 8,
                "disk_bytes_per_second": disk_rate(path),
            }
            plan = oc.plan_eigsh(a, k, precision="FDF", block=8, devices="host:0", memory_budget="1 TiB")
            budget = plan.peak_bytes - 7 * a.nbytes // 8 + 4 * a.blocks.largest_bytes  # the ring in place of what was kept
            yield attempt(
                facts | {"budget": budget}, ours(a, k, precision="FDF", block=8, devices="host:0", memory_budget=budget)
            )


def in_core(options: Options) -> Iterator[Line]:
    """In one GPU's memory, beside CuPy."""
    for scale in options.scales or (22, 24, 25):
        with graph("rmat", scale, options.devices, order=options.order) as (a, facts):
            for precision, columns in (("FDF", 1), ("FDF", 8), *((("DDD", 4),) if "DDD" in options.precisions else ())):
                yield product_line(a, facts, precision, columns, devices=options.devices)
            for k in options.k:
                for precision in options.precisions:
                    line = facts | {"what": "ours", "k": k, "precision": precision}
                    yield attempt(line, ours(a, k, 2, precision=precision, devices=options.devices))
                if options.scipy:
                    yield attempt(facts | {"what": "scipy", "k": k, "precision": "float64"}, scipys(a, k, "float64"))
                for dtype in ("float32", "float64") if options.peers else ():
                    yield attempt(facts | {"what": "cupy", "k": k, "precision": dtype}, cupys(a, k, dtype))


def streamed(options: Options) -> Iterator[Line]:
    """Larger than the budget."""
    for kind in options.graphs:
        with graph(kind, options.scale or 27, options.devices, order=options.order) as (a, facts):
            for budget in options.budgets:
                where = {"devices": options.devices, "memory_budget": parse_bytes(budget, "--budgets")}
                facts = facts | {"budget": budget}
                yield product_line(a, facts, "FDF", 1, **where)
                k, tol = (8, 1e-3) if kind == "urand" else (8 if where["memory_budget"] < 30 << 30 else 24, TOL)
                line = facts | {"what": "ours", "k": k, "precision": "FDF", "tol": tol}
                yield attempt(line, ours(a, k, precision="FDF", tol=tol, **where))
                if kind == "rmat":
                    line = facts | {"what": "paper", "k": 24, "precision": "FDF"}
                    yield attempt(line, paper(a, 24, **where))


def paper(a: oc.BlockCSR, k: int, **where: Any) -> Callable[[], Line]:
    """K steps for K pairs."""

    def run() -> Line:
        began = time.perf_counter()
        pairs = k_step_pairs(a, k, precision="FDF", **where)
        return {"seconds": [time.perf_counter() - began], "residuals": list(pairs.residuals), "report": pairs.report.to_dict()}

    return run


def two(options: Options) -> Iterator[Line]:
    """One GPU and two: in core, and streamed the paper's K steps, whose passes are those of a run that converges."""
    for scale in options.scales or (25, 27):
        with graph("rmat", scale, "cuda", order=options.order) as (a, facts):
            for devices, budget in (("cuda:0", options.budgets[0]), (["cuda:0", "cuda:1"], options.budgets[-1])):
                line = facts | {"k": 24, "precision": "FDF", "devices": devices}
                if scale == 25:
                    whole = {"precision": "FDF", "devices": devices, "ncv": 120, "block": 8}
                    yield attempt(line | {"what": "ours"}, ours(a, 24, 2, **whole))
                where = {"devices": devices, "memory_budget": parse_bytes(budget, "--budgets")}
                for _ in range(2):  # the first one compiles and page-locks
                    yield attempt(line | {"what": "paper"} | where, paper(a, 24, **where))


CASES = {"host": host, "file": from_file, "in-core": in_core, "streamed": streamed, "two": two}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("what", choices=CASES)
    parser.takes(scale=int, scales=[22, 24, 25], graphs=("rmat", "urand"), devices="cuda:0", scipy=False, folder=Path)
    parser.set_defaults(scales=None)
    parser.add_argument("--k", type=int, nargs="+", default=[8, 24], help="pairs, in core")
    budgets = "of each GPU; of 'two' that of one, and that of each of two, which have half of the basis (default: 16 and 32 GiB)"
    parser.add_argument("--budgets", nargs="+", default=["16 GiB", "32 GiB"], help=budgets)
    parser.add_argument("--order", choices=("degree",), help="numbers of an R-MAT graph's vertices, for all solvers")
    parser.add_argument("--precisions", nargs="+", choices=("FFF", "FDF", "DDD"), default=["FDF", "DDD"], help="ours, in core")
    parser.add_argument("--no-peers", dest="peers", action="store_false")


def run(options: Options) -> None:
    """Measure, and write the result after every line."""
    if options.what in ("host", "file"):
        options.devices = ("host:0",)
    lines: list[Line] = []
    for line in CASES[options.what](options):
        lines.append(line)
        told = {name: line.get(name) for name in ("graph", "what", "k", "precision", "block", "columns", "devices", "budget")}
        told |= {name: line[name] for name in ("seconds", "processor_seconds", "residual", "error") if name in line}
        print(
            {name: value for name, value in told.items() if value is not None}, line.get("report", {}).get("passes"), flush=True
        )
        options.write({"case": f"eigen-{options.name}", "what": options.what, "tol": TOL, "lines": lines})
