"""A factorization by workers that share one GPU of this machine, beside one process on it.

    python benchmarks/cluster_gpu.py [--n 65536] [--tile-size 2048] [--workers 1 2] [--engines native residue] [--repeats 2]
        [--memory-budget "40 GB"] [--memory-limit auto] [--seconds 280] [--case NAME] [--folder DIR] [--device cuda:0]

All take the same matrix, an exponential covariance on a line that is made on the GPU, and have the same memory there: workers an
even part of it each. L stays in the workers' memory, or that of the process. One run of a small matrix comes first, and one of
the large one, which are not counted. Each way prints a JSON line, and with --case all lines until then are in
``benchmarks/results/cluster/NAME.json``: seconds of whole calls, TFLOP/s as ``n**3 / 3 / seconds``, of workers tasks, bytes and
seconds beside the plan's, whether the diagonal of L has the bits of one process, and the most memory of the GPU that was taken.
Ways share --seconds: one that has had its part ends with the runs that it has, two at least, and none begins that would
end later.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from ooc_chol.bench.results import commit, machine, write_json
from ooc_chol.config import parse_bytes
from ooc_chol.dense.cluster.facts import Sharing
from ooc_chol.dense.cluster.speeds import speed_here
from ooc_chol.dense.options import FactorOptions
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import memory_info
from ooc_chol.tasks.tiling import TileGrid

RESULTS = Path(__file__).parent / "results" / "cluster"
#: Distance at which covariances have fallen to 1/e, in places of the line, and what is added at distance 0.
RANGE, NUGGET = 2000.0, 0.01
CODE = r"""
extern "C" __global__ void exponential(double* out, int rows, int cols, long long row0, long long col0, double range,
                                       double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    out[(long long)r * cols + c] = exp(-fabs((double)(i - j)) / range) + (i == j ? nugget : 0.0);
}
"""
#: Seconds between two looks at the GPU's memory.
LOOK_SECONDS = 0.005
#: Order of the matrix that warms a cluster up, in tiles.
WARM_TILES = 4


def on_host(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """The same covariances on the host."""
    i, j = np.arange(rows.start, rows.stop)[:, None], np.arange(cols.start, cols.stop)[None, :]
    out[...] = np.exp(-np.abs(i - j) / RANGE) + NUGGET * (i == j)


def source(n: int) -> Any:
    """A, which whoever factors makes."""
    return oc.from_function(n, on_host, cuda=oc.cuda_source(CODE, "exponential", RANGE, NUGGET))


@contextmanager
def most_taken(device: str) -> Iterator[list[int]]:
    """The most bytes of a device's memory that were taken inside the block, by all processes."""
    found, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            free, total = memory_info(device)
            found[0] = max(found[0], total - free)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


class Lines:
    """What was measured until now, which is in the file after each line."""

    def __init__(self, head: Mapping[str, Any], path: Path | None) -> None:
        self._head, self._path = dict(head), path
        self._lines: list[dict[str, Any]] = []

    def add(self, line: dict[str, Any]) -> None:
        """Print a line, and write all."""
        print(json.dumps(line), flush=True)
        self._lines.append(line)
        if self._path is not None:
            write_json({**self._head, "lines": self._lines}, self._path)


class Bench:
    """The ways, on one matrix."""

    def __init__(self, asked: argparse.Namespace, lines: Lines) -> None:
        self.asked, self.lines = asked, lines
        self.ends = time.perf_counter() + asked.seconds
        self.ways_left = len(asked.engines) * (1 + len(asked.workers))
        self.diagonals: dict[str, bytes] = {}

    def call(self, n: int, engine: str, workers: int, client: Any) -> dict[str, Any]:
        """One whole call: what it tells, and the diagonal of L."""
        asked, budget = self.asked, parse_bytes(self.asked.memory_budget, "--memory-budget") // max(1, workers)
        options = {"tile_size": asked.tile_size, "devices": asked.device, "fp64": engine, "memory_budget": budget, "lower": True}
        with most_taken(asked.device) as taken:
            began = time.perf_counter()
            with oc.cholesky(source(n), client=client, **options) as factor:
                seconds = time.perf_counter() - began
                report, diagonal = factor.report.to_dict(), np.asarray(factor.diagonal()).tobytes()
        return {"seconds": seconds, "gpu_bytes": taken[0], "budget_bytes": budget, "report": report, "diagonal": diagonal}

    def way(self, engine: str, workers: int, client: Any = None) -> None:
        """All repeats of one way, after one that warms up."""
        n, runs, longest = self.asked.n, [], 0.0
        now = time.perf_counter()
        share, self.ways_left = now + (self.ends - now) / self.ways_left, self.ways_left - 1
        name = {
            "n": n,
            "way": f"{workers} worker{'s' * (workers > 1)}" if workers else "one process",
            "engine": engine,
            "workers": workers,
        }
        try:
            self.call(min(n, WARM_TILES * self.asked.tile_size), engine, workers, client)
            for _ in range(1 + self.asked.repeats):
                if time.perf_counter() + longest > (self.ends if len(runs) < 2 else share):
                    break
                began = time.perf_counter()
                runs.append(self.call(n, engine, workers, client))
                longest = max(longest, time.perf_counter() - began)
        except oc.OocCholError as error:
            self.lines.add({**name, "failed": f"{type(error).__name__}: {error}"})
            return
        if len(runs) < 2:
            self.lines.add({**name, "failed": f"no time for a run that counts: {len(runs)} ran, in {longest:.1f} s"})
            return
        diagonal, seconds = runs[-1].pop("diagonal"), [run["seconds"] for run in runs[1:]]
        first = self.diagonals.setdefault(engine, diagonal)
        median = statistics.median(seconds)
        self.lines.add(
            {
                **name,
                "seconds": median,
                "range": [min(seconds), max(seconds)],
                "all": seconds,
                "first_seconds": runs[0]["seconds"],
                "tflops": n**3 / 3e12 / median,
                "diagonal_has_the_bits_of_the_first_way": diagonal == first,
                **{each: value for each, value in runs[-1].items() if each != "seconds"},
            }
        )

    def empty_run(self) -> None:
        """What planning, opening and closing of the device take for a block that has hardly any flops."""
        options = FactorOptions(devices=self.asked.device, fp64="native", tile_size=self.asked.tile_size)
        speed = speed_here(options, TileGrid(self.asked.n, self.asked.tile_size), FP64, Sharing(1))
        self.lines.add({"way": "a task without flops", "seconds": None if speed is None else speed.run_seconds})


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=65536)
    parser.add_argument("--tile-size", type=int, default=2048)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engines", nargs="+", choices=("native", "residue"), default=["native", "residue"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory-budget", default="40 GB", help="of the GPU, for all workers together")
    parser.add_argument("--memory-limit", default="auto", help="of each worker's process (default: an even part of the machine)")
    parser.add_argument("--seconds", type=float, default=280.0, help="after which nothing is begun")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--case")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    asked = parser.parse_args()
    import psutil
    from distributed import Client, LocalCluster

    head = {
        "case": asked.case,
        "commit": commit(),
        "machine": machine(with_gpus=asked.device.startswith("cuda:")),
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu_budget": asked.memory_budget,
    }
    bench = Bench(asked, Lines(head, asked.folder / f"{asked.case}.json" if asked.case else None))
    bench.empty_run()
    for engine in asked.engines:
        bench.way(engine, 0)
    for count in asked.workers:
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            resources={"GPU": 1},
            dashboard_address=":0",
            # Dask's own "auto" goes by threads: of 16 cores a worker with one thread would get a sixteenth.
            memory_limit=psutil.virtual_memory().total // count if asked.memory_limit == "auto" else asked.memory_limit,
        )
        with cluster, Client(cluster) as client:
            for engine in asked.engines:
                bench.way(engine, count, client)


if __name__ == "__main__":
    main()
