"""A factorization on a cluster of processes of this machine: ours, Dask's own, SciPy's, and one process of ours.

All take the same matrix, an exponential covariance on a line made by a function; Dask's own and SciPy's get it as an array,
made before the clock runs, SciPy's in a process of its own. Dask's own takes chunks of an n-th by several n, of which the
quickest counts. Ways take turns. A line has seconds of whole calls (median and range), GFLOP/s as ``n**3 / 3 / seconds``, and
of ours tasks and bytes beside the plan's.
"""

from __future__ import annotations

import faulthandler
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import ooc_chol as oc
from benchmarks.running import Options, Parser, apart, seconds_of
from ooc_chol.config import parse_bytes

FOLDER = "cluster"
WAYS = ("ours", "zarr", "one", "dask", "scipy")


@cache
def table(n: int) -> np.ndarray:
    """Covariances by distance on a line, of n - 1 steps down to 0 and up again; a nugget at 0."""
    far = np.exp(-np.arange(n) / 2000.0)  # nothing underflows: subnormal numbers take five times as long
    far[0] += 0.01
    return np.concatenate([far[:0:-1], far])


def exponential(n: int, rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """Covariances of places in a row: entry (i, j) is that of distance ``|i - j|``; as quick as a copy."""
    reversed_rows = sliding_window_view(table(n), len(cols))  # row k is of distances k - n + 1 on
    first = n - 1 + cols.start - rows.start
    out[...] = reversed_rows[first - len(rows) + 1 : first + 1][::-1]


def _chunk(n: int, block_info: Any = None) -> np.ndarray:
    """A chunk of the matrix, made on its worker."""
    rows, cols = (range(*ends) for ends in block_info[None]["array-location"])
    out = np.empty((len(rows), len(cols)))
    exponential(n, rows, cols, out, None)
    return out


def touch(nbytes: int) -> None:
    """Let a process fill so much memory and end: a virtual machine takes long to get back what it has given away."""
    subprocess.run([sys.executable, "-c", f"bytearray({nbytes})[::4096] = b'1' * len(range(0, {nbytes}, 4096))"], check=True)


class Runs:
    """The ways, on one matrix."""

    def __init__(self, n: int, client: Any, options: dict[str, Any], parts: list[int]) -> None:
        self.n, self.client, self.options, self.parts = n, client, options, parts

    def ours(self, store: Path | None = None) -> dict[str, Any]:
        """On the cluster, L in the workers' memory or in a group."""
        source = oc.from_function(self.n, partial(exponential, self.n))
        with oc.cholesky(source, client=self.client, store=store, **self.options) as factor:
            report = factor.report.to_dict()
        return {"report": report | {"store": Path(report["store"]).name}}

    def zarr(self) -> dict[str, Any]:
        """The same into a Zarr group in a folder of this machine."""
        folder = Path(tempfile.mkdtemp())
        try:
            return self.ours(folder / "L.zarr")
        finally:
            shutil.rmtree(folder)

    def one(self) -> dict[str, Any]:
        """One process, as many threads as there are workers."""
        with oc.cholesky(oc.from_function(self.n, partial(exponential, self.n)), tile_size=self.options["tile_size"]) as factor:
            return {"seconds_inside": factor.report.inside_seconds}

    def dask(self) -> dict[str, Any]:
        """Dask's own; the matrix is on the workers before the clock runs."""
        import dask.array as da
        from distributed import wait

        taken = {}
        for parts in self.parts:
            chunk = -(-self.n // parts)
            chunks = da.core.normalize_chunks(chunk, (self.n, self.n))
            ahead = da.map_blocks(partial(_chunk, self.n), chunks=chunks, dtype=np.float64, meta=np.empty((0, 0))).persist()
            wait(ahead)
            taken[parts], _ = seconds_of(lambda ahead=ahead: wait(da.linalg.cholesky(ahead, lower=True).persist()) and None)
            del ahead
        return {"seconds": min(taken.values()), "by_parts": taken}

    def scipy(self) -> dict[str, Any]:
        """LAPACK in a process of its own, which OpenBLAS 0.3.30 on two threads has ended at orders from 16,000 on."""
        return {"seconds": math.nan} | apart(lapack, self.n)


def lapack(n: int) -> dict[str, float]:
    """Seconds of a warm call."""
    from scipy.linalg import cholesky

    a = np.empty((n, n))
    exponential(n, range(n), range(n), a, None)
    faulthandler.enable()
    cholesky(a[:500, :500], lower=True, check_finite=False)
    seconds, _ = seconds_of(lambda: {"first": float(cholesky(a, lower=True, check_finite=False)[0, 0])})
    return {"seconds": seconds}


def line(n: int, way: str, seconds: list[float], told: dict[str, Any]) -> dict[str, Any]:
    """The figures of one way."""
    if any(map(math.isnan, seconds)):
        return {"n": n, "way": way, "failed": told["failed"]}
    median = statistics.median(seconds)
    figures = {"n": n, "way": way, "seconds": median, "range": [min(seconds), max(seconds)], "all": seconds}
    return {**figures, "gflops": n**3 / 3 / median / 1e9, **{name: each for name, each in told.items() if name != "seconds"}}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(n=[8192, 16384], workers=2, repeats=5, tile_size=512, memory_budget="1 GB", memory_limit="auto", ways=WAYS)
    parser.add_argument("--parts", type=int, nargs="+", default=[8, 16, 32], help="chunks along each axis of Dask's own")
    parser.add_argument("--touch", help="memory that a process fills and frees before each run (default: none)")


def run(options: Options) -> None:
    """Run all."""
    from distributed import Client, LocalCluster

    lines: list[dict[str, Any]] = []
    of_workers = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": options.memory_limit}
    with LocalCluster(n_workers=options.workers, security=True, **of_workers) as cluster, Client(cluster) as client:
        for n in options.n:
            how = {"tile_size": options.tile_size, "memory_budget": options.memory_budget}
            runs = Runs(n, client, how, options.parts)
            seconds: dict[str, list[float]] = {way: [] for way in options.ways}
            told: dict[str, dict[str, Any]] = {}
            for repeat in range(options.repeats + 1):
                for way in options.ways:
                    if options.touch:
                        touch(parse_bytes(options.touch, "touch"))
                    taken, told[way] = seconds_of(getattr(runs, way))
                    if repeat:  # the first imports and plans
                        seconds[way].append(told[way].get("seconds", taken))
            lines += [line(n, way, seconds[way], told[way]) for way in options.ways]
            for each in lines[-len(options.ways) :]:
                print(json.dumps(each), flush=True)
    options.write({"workers": options.workers, "touched_before": options.touch, "lines": lines})
