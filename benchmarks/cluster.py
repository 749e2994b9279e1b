"""A factorization on a cluster of processes of this machine: ours, Dask's own, SciPy's, and one process of ours.

All take the same matrix, an exponential covariance on a line made by a function; Dask's own and SciPy's get it as an array,
made before the clock runs, SciPy's in a process of its own. Dask's own takes chunks of an n-th by several n, of which the
quickest counts. Ways take turns. A line has seconds of whole calls (median and range), GFLOP/s as ``n**3 / 3 / seconds``, and
of ours tasks and bytes beside the plan's.
"""

from __future__ import annotations

import faulthandler
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, Parser, apart, in_turn, seconds_of
from ooc_chol.config import parse_bytes

FOLDER = "cluster"
WAYS = ("ours", "zarr", "one", "dask", "scipy")


@cache
def matrix(n: int) -> Line:
    """The matrix, whose entries by distance a worker makes once."""
    return Line(n, 2000.0)


def fill(n: int, rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """Its tile function."""
    matrix(n).fill(rows, cols, out)


def _chunk(n: int, block_info: Any = None) -> np.ndarray:
    """A chunk of the matrix, made on its worker."""
    return np.ascontiguousarray(matrix(n).block(*(range(*ends) for ends in block_info[None]["array-location"])))


def touch(nbytes: int) -> None:
    """Let a process fill so much memory and end: a virtual machine takes long to get back what it has given away."""
    subprocess.run([sys.executable, "-c", f"bytearray({nbytes})[::4096] = b'1' * len(range(0, {nbytes}, 4096))"], check=True)


class Runs:
    """The ways, on one matrix."""

    def __init__(self, n: int, client: Any, asked: Options) -> None:
        self.n, self.client, self.asked = n, client, asked
        self.source = oc.from_function(n, partial(fill, n))

    def ours(self, store: Path | None = None) -> dict[str, Any]:
        """On the cluster, L in the workers' memory or in a group."""
        how = {"tile_size": self.asked.tile_size, "memory_budget": self.asked.memory_budget}
        with oc.cholesky(self.source, client=self.client, store=store, **how) as factor:
            report = factor.report.to_dict()
        return {"report": report | {"store": Path(report["store"]).name}}

    def zarr(self) -> dict[str, Any]:
        """The same into a Zarr group in a folder of this machine."""
        with tempfile.TemporaryDirectory() as folder:
            return self.ours(Path(folder, "L.zarr"))

    def one(self) -> dict[str, Any]:
        """One process, as many threads as there are workers."""
        with oc.cholesky(self.source, tile_size=self.asked.tile_size) as factor:
            return {"seconds_inside": factor.report.seconds}

    def dask(self) -> dict[str, Any]:
        """Dask's own; the matrix is on the workers before the clock runs."""
        import dask.array as da
        from distributed import wait

        taken = {}
        for parts in self.asked.parts:
            chunks = da.core.normalize_chunks(-(-self.n // parts), (self.n, self.n))
            ahead = da.map_blocks(partial(_chunk, self.n), chunks=chunks, dtype=np.float64, meta=np.empty((0, 0))).persist()
            wait(ahead)
            taken[parts], _ = seconds_of(lambda ahead=ahead: wait(da.linalg.cholesky(ahead, lower=True).persist()) and None)
            del ahead
        return {"seconds": min(taken.values()), "by_parts": taken}

    def scipy(self) -> dict[str, Any]:
        """LAPACK in a process of its own, which OpenBLAS 0.3.30 on two threads has ended at orders from 16,000 on."""
        return {"seconds": math.nan} | apart(lapack, self.n)

    def timed(self, way: str) -> dict[str, Any]:
        """What one way tells, with its seconds."""
        if self.asked.touch:
            touch(parse_bytes(self.asked.touch, "touch"))
        seconds, told = seconds_of(getattr(self, way))
        return {"seconds": seconds, **told}


def lapack(n: int) -> dict[str, float]:
    """Seconds of a warm call."""
    from scipy.linalg import cholesky

    a = matrix(n).rows()
    faulthandler.enable()
    cholesky(a[:500, :500], lower=True, check_finite=False)
    seconds, _ = seconds_of(lambda: {"first": float(cholesky(a, lower=True, check_finite=False)[0, 0])})
    return {"seconds": seconds}


def line(n: int, way: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one way."""
    seconds, told = [run["seconds"] for run in runs], runs[-1]
    if any(map(math.isnan, seconds)):
        return {"n": n, "way": way, "failed": told["failed"]}
    median = statistics.median(seconds)
    figures = {"n": n, "way": way, "seconds": median, "range": [min(seconds), max(seconds)], "all": seconds}
    return {**figures, "gflops": n**3 / 3 / median / 1e9, **{name: each for name, each in told.items() if name != "seconds"}}


TAKES = {"n": [8192, 16384], "workers": 2, "repeats": 5, "tile_size": 512, "memory_budget": "1 GB", "memory_limit": "auto"}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(ways=WAYS)
    parser.add_argument("--parts", type=int, nargs="+", default=[8, 16, 32], help="chunks along each axis of Dask's own")
    parser.add_argument("--touch", help="memory that a process fills and frees before each run (default: none)")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Run all."""
    from distributed import Client, LocalCluster

    options.about = {"workers": options.workers, "touched_before": options.touch}
    of_workers = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": options.memory_limit}
    with LocalCluster(n_workers=options.workers, security=True, **of_workers) as cluster, Client(cluster) as client:
        for n in options.n:
            runs = Runs(n, client, options)
            found = in_turn({way: partial(runs.timed, way) for way in options.ways}, options.repeats)
            for way, each in found.items():
                yield line(n, way, each)
