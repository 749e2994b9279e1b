"""FP64 on the host: n = 8192 in memory and n = 16384 from a file with a 256 MiB budget, beside LAPACK's dpotrf at n = 8192.

A JSON file for each. `ooc-chol bench suite host` measures neither from file to file nor in a process of its own, and has
another matrix, so that these two cases stay a script. The three are run in turn, so that a machine whose speed drifts treats
them alike. The file case runs in a child process, which samples its own anonymous memory; the source's pages are dropped from
the page cache before each repeat.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, apart, drop_pages, in_turn, seconds_of
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.bench.results import run_figures
from ooc_chol.kernels.host.blas import potrf

FOLDER = ""
TAKES = {"repeats": 5, "folder": Path}
RANGE, IN_MEMORY_N, FILE_N, FILE_BUDGET = 50.0, 8192, 16384, "256 MiB"


@contextmanager
def anonymous_memory() -> Iterator[dict[str, int]]:
    """Anonymous resident memory before the block, and the most inside it, of samples every 5 ms."""
    before = memory_of_process("RssAnon")
    found, ended = {"anonymous_before_bytes": before, "anonymous_peak_bytes": before}, threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            found["anonymous_peak_bytes"] = max(found["anonymous_peak_bytes"], memory_of_process("RssAnon"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def time_dpotrf(a: NDArray[np.float64]) -> float:
    """Seconds of one dpotrf on a warm copy, in place: LAPACK at its best."""
    work = a.copy()
    seconds, info = seconds_of(lambda: potrf(work))
    assert info == 0
    return seconds


def factored(a: Any, **options: Any) -> dict[str, Any]:
    """Figures of one whole call."""
    wall, factor = seconds_of(lambda: oc.cholesky(a, **options))
    with factor:
        return run_figures(factor.report) | {"wall_seconds": wall, "logdet": factor.logdet()}


def file_to_file(path: str, store: str) -> dict[str, Any]:
    """One factorization from a file to a file; in a child process."""
    oc.cholesky(np.eye(64)).close()  # BLAS allocates its buffers at the first call
    potrf(np.eye(1024))
    drop_pages(Path(path))
    with anonymous_memory() as memory:
        result = factored(path, store=store, memory_budget=FILE_BUDGET)
    Path(store).unlink()
    return result | memory


def result_file(case: str, runs: list[dict[str, Any]], lapack: list[float]) -> dict[str, Any]:
    """The result as docs and README cite it; seconds are the wall clock around the whole call."""
    first, n = runs[0], runs[0]["n"]
    seconds = [run["wall_seconds"] for run in runs]
    peer = IN_MEMORY_N**3 / 3e12 / float(np.median(lapack))
    tflops = n**3 / 3e12 / float(np.median(seconds))
    return {
        **{name: first[name] for name in ("devices", "n", "tile_size", "budget_bytes", "bytes", "logdet")},
        "engine": "native",
        "precision_threshold": None,
        "covariance": Line(n, RANGE).name,
        "source": "file" if case.endswith("file") else "host-array",
        "seconds": seconds,
        "factor_seconds": [run["seconds"] for run in runs],
        "tflops": tflops,
        "peers": [{"name": "LAPACK dpotrf", "n": IN_MEMORY_N, "tflops": peer, "seconds": lapack}],
        "ratio_to_dpotrf": tflops / peer,
        "exposed_copy_share": float(np.median([run["exposed_copy_share"] for run in runs])),
        **{name: [run[name] for run in runs] for name in ("anonymous_before_bytes", "anonymous_peak_bytes") if name in first},
    }


def files(_: Options) -> tuple[str, str]:
    """Those that are cited."""
    return "host-fp64-memory", "host-fp64-file"


def run(options: Options) -> None:
    """Measure and write the result files."""
    a = Line(IN_MEMORY_N, RANGE).rows()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Line(FILE_N, RANGE).write(Path(folder, "a.npy"))
        calls = {
            "lapack": lambda: time_dpotrf(a),
            "host-fp64-memory": lambda: factored(a),
            "host-fp64-file": lambda: apart(file_to_file, str(path), str(path.with_name("l.ooc")), must=True),
        }
        runs = in_turn(calls, options.repeats)
    lapack = runs.pop("lapack")
    for case, each in runs.items():
        result = result_file(case, each, lapack)
        options.write(result, case)
        print(f"{case}: {result['tflops'] * 1e3:.1f} GFLOP/s, {result['ratio_to_dpotrf']:.3f} of dpotrf at {IN_MEMORY_N}")
