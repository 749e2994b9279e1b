"""FP64 on the host: n = 8192 in memory and n = 16384 from a file with a 256 MiB budget, beside LAPACK's dpotrf at n = 8192.

A JSON file for each. `ooc-chol bench suite host` measures neither from file to file nor in a process of its own, and has
another matrix, so that these two cases stay a script. The three are run in turn, so that a machine whose speed drifts treats
them alike. The file case runs in a child process, which samples its own anonymous memory; the source's pages are dropped from
the page cache before each repeat.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.running import Options, Parser, apart
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.bench.results import run_figures
from ooc_chol.kernels.host.blas import potrf

FOLDER = ""
IN_MEMORY_N = 8192
FILE_N = 16384
FILE_BUDGET = "256 MiB"


def covariance_rows(n: int, rows: range) -> NDArray[np.float64]:
    """Rows of an exponential covariance of n points on a jittered line, nugget 1e-2: symmetric positive definite at any n."""
    points = np.arange(n) + np.random.default_rng(0).uniform(-0.4, 0.4, n)
    block = np.exp(-np.abs(points[rows.start : rows.stop, None] - points[None, :]) / 50)
    block[np.arange(len(rows)), np.arange(rows.start, rows.stop)] += 1e-2
    return block


def write_matrix(path: Path, n: int) -> None:
    """The matrix as a .npy file, written by blocks of rows."""
    target = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, n))
    for start in range(0, n, 512):
        target[start : start + 512] = covariance_rows(n, range(start, min(n, start + 512)))
    target.flush()


def drop_pages(path: Path) -> None:
    """Ask the system to forget the file's pages, once they are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class AnonymousPeak:
    """Samples anonymous resident memory every 5 ms."""

    def __init__(self) -> None:
        self.before_bytes = memory_of_process("RssAnon")
        self.peak_bytes = self.before_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> AnonymousPeak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.005):
            self.peak_bytes = max(self.peak_bytes, memory_of_process("RssAnon"))


def time_dpotrf(a: NDArray[np.float64]) -> float:
    """Seconds of one dpotrf on a warm copy, in place: LAPACK at its best."""
    work = a.copy()
    began = time.perf_counter()
    info = potrf(work)
    seconds = time.perf_counter() - began
    assert info == 0
    return seconds


def run_in_memory(a: NDArray[np.float64]) -> dict[str, Any]:
    """One factorization from an array to host memory."""
    began = time.perf_counter()
    with oc.cholesky(a) as factor:
        return outcome(factor, time.perf_counter() - began)


def run_from_file(path: str, store: str) -> dict[str, Any]:
    """One factorization from a file to a file; in a child process."""
    oc.cholesky(np.eye(64)).close()  # BLAS allocates its buffers at the first call
    potrf(np.eye(1024))
    drop_pages(Path(path))
    with AnonymousPeak() as memory:
        began = time.perf_counter()
        with oc.cholesky(path, store=store, memory_budget=FILE_BUDGET) as factor:
            result = outcome(factor, time.perf_counter() - began)
    return result | {"anonymous_before_bytes": memory.before_bytes, "anonymous_peak_bytes": memory.peak_bytes}


def outcome(factor: oc.CholeskyFactor, wall: float) -> dict[str, Any]:
    """Figures of one run."""
    return run_figures(factor.report) | {"wall_seconds": wall, "logdet": factor.logdet()}


def child(path: Path, store: Path) -> dict[str, Any]:
    """Run the file case in a process of its own."""
    return apart(run_from_file, str(path), str(store), must=True)


def measure(repeats: int, folder: Path) -> tuple[list[float], list[dict[str, Any]], list[dict[str, Any]]]:
    """Repeats of dpotrf, of the case in memory and of the file case, in turn."""
    a = covariance_rows(IN_MEMORY_N, range(IN_MEMORY_N))
    write_matrix(folder / "a.npy", FILE_N)
    lapack, memory, file = [], [], []
    for repeat in range(repeats + 1):
        lapack.append(time_dpotrf(a))
        memory.append(run_in_memory(a))
        file.append(child(folder / "a.npy", folder / "l.ooc"))
        (folder / "l.ooc").unlink()
        if repeat == 0:  # the first of each warms up
            lapack, memory, file = [], [], []
            continue
        rates = (IN_MEMORY_N**3 / 3e9 / lapack[-1], memory[-1]["tflops"] * 1e3, file[-1]["tflops"] * 1e3)
        print("dpotrf {:.1f}, in memory {:.1f}, file {:.1f} GFLOP/s".format(*rates), flush=True)
    return lapack, memory, file


def result_file(case: str, runs: list[dict[str, Any]], lapack: list[float]) -> dict[str, Any]:
    """The result as docs and README cite it; seconds are the wall clock around the whole call."""
    n = runs[0]["n"]
    seconds = [run["wall_seconds"] for run in runs]
    peer = IN_MEMORY_N**3 / 3e12 / float(np.median(lapack))
    tflops = n**3 / 3e12 / float(np.median(seconds))
    return {
        "devices": runs[0]["devices"],
        "n": n,
        "tile_size": runs[0]["tile_size"],
        "engine": "native",
        "precision_threshold": None,
        "covariance": "exponential on a line, range 50 spacings, nugget 1e-2",
        "source": "file" if case.endswith("file") else "host-array",
        "budget_bytes": runs[0]["budget_bytes"],
        "seconds": seconds,
        "factor_seconds": [run["seconds"] for run in runs],
        "tflops": tflops,
        "peers": [{"name": "LAPACK dpotrf", "n": IN_MEMORY_N, "tflops": peer, "seconds": lapack}],
        "ratio_to_dpotrf": tflops / peer,
        "bytes": runs[0]["bytes"],
        "logdet": runs[0]["logdet"],
        "exposed_copy_share": float(np.median([run["exposed_copy_share"] for run in runs])),
        **{key: [run[key] for run in runs] for key in ("anonymous_before_bytes", "anonymous_peak_bytes") if key in runs[0]},
    }


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(repeats=5, folder=Path)


def run(options: Options) -> None:
    """Measure and write the result files."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        lapack, memory, file = measure(options.repeats, Path(folder))
    for case, runs in (("host-fp64-memory", memory), ("host-fp64-file", file)):
        result = result_file(case, runs, lapack)
        options.write(result, case)
        print(f"{case}: {result['tflops'] * 1e3:.1f} GFLOP/s, {result['ratio_to_dpotrf']:.3f} of dpotrf at {IN_MEMORY_N}")
