"""A factorization by workers with GPUs of this machine, beside one process on them: workers that share one, or one for each.

All take the same matrix, an exponential covariance on a line that is made on the GPU. With several devices one process has all
of them, and workers, a process each, are dealt out over them as ``oc.open_cluster("local")`` does it: each sees one GPU. All
have the same memory on each device: workers of one an even part of it. L stays in the workers' memory, or that of the process.
Before the runs that count each way has one of a small matrix, and one of the large one. With several devices, and if time is
left, one run of one process on the first of them alone comes last, for its bits.

Every way prints JSON lines: seconds of whole calls, TFLOP/s as ``n**3 / 3 / seconds``, of workers tasks, bytes and seconds
beside the plan's, the rates that this goes by, and the seconds of one process over theirs; whether the diagonal of L has the
bits of the first way, and the most memory of each device that was taken. Ways share --seconds: one that has had its part ends
with the runs that it has, two at least, and none begins that would end later; a run that has begun is not cut short.

``--devices host:0,host:1`` tries it all without a GPU, at a small --n.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb
from benchmarks.running import Options, Parser
from ooc_chol.cluster.facts import Sharing
from ooc_chol.cluster.plan import ClusterPlan
from ooc_chol.cluster.speeds import speed_here
from ooc_chol.config import parse_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import device_kind, memory_info, resolve_devices
from ooc_chol.tasks.tiling import TileGrid

FOLDER = "cluster"
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
#: Most seconds for which workers are given time to let go of the L of the run before.
RELEASE_SECONDS = 20.0


def on_host(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """The same covariances on the host."""
    i, j = np.arange(rows.start, rows.stop)[:, None], np.arange(cols.start, cols.stop)[None, :]
    out[...] = np.exp(-np.abs(i - j) / RANGE) + NUGGET * (i == j)


def source(n: int) -> Any:
    """A, which whoever factors makes."""
    return oc.from_function(n, on_host, cuda=tb.cuda_source(CODE, "exponential", RANGE, NUGGET))


@contextmanager
def most_taken(devices: Sequence[str]) -> Iterator[list[int]]:
    """The most bytes of each device's memory that were taken inside the block, by all processes."""
    found, is_over = [0] * len(devices), threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            for number, device in enumerate(devices):
                free, total = memory_info(device)
                found[number] = max(found[number], total - free)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def kept_here(dask_worker: Any) -> int:
    """Values that a worker keeps for Dask."""
    return len(dask_worker.data)


def spilled_here(dask_worker: Any) -> int:
    """Bytes that a worker has on disk now, since its memory was short; 0 where it writes none there."""
    spilled = getattr(dask_worker.data, "spilled_total", None)
    return 0 if spilled is None else int(spilled.disk)


def released(client: Any) -> bool:
    """Wait until no worker keeps anything of a factor that was closed: its memory is for the next run; whether that came."""
    last = time.perf_counter() + RELEASE_SECONDS
    while any(client.run(kept_here).values()):
        if time.perf_counter() > last:
            return False
        time.sleep(0.05)
    return True


def told_by_plan(plan: ClusterPlan) -> dict[str, Any]:
    """What a plan of a cluster goes by, and what it says."""
    figures = plan.to_dict()
    names = ("tasks", "bytes", "peak_bytes", "seconds", "bounds", "efficiency")
    rates = {"workers": [dataclasses.asdict(each) for each in plan.case.workers], **dataclasses.asdict(plan.case.rates)}
    return {**{name: figures[name] for name in names}, "received_bytes": list(plan.received_bytes), "rates": rates}


class Lines:
    """What was measured until now, which is in the file after each line."""

    def __init__(self, options: Options) -> None:
        self._options, self._lines = options, list[dict[str, Any]]()

    def add(self, line: dict[str, Any]) -> None:
        """Print a line, and write all."""
        print(json.dumps(line), flush=True)
        self._lines.append(line)
        about = {"devices": list(self._options.devices), "budget_of_a_device": self._options.memory_budget}
        self._options.write(about | {"lines": self._lines})


class Way(NamedTuple):
    """One way to factor."""

    name: str
    devices: tuple[str, ...]  #: Of the process, or of each worker as it names them itself
    workers: int = 0  #: 0 for one process
    on_each: int = 1  #: Workers that share a device
    client: Any = None


class Bench:
    """The ways, on one matrix."""

    def __init__(self, asked: Options, lines: Lines) -> None:
        self.asked, self.lines = asked, lines
        self.ends = time.perf_counter() + asked.seconds
        self.ways_left = len(asked.engines) * (1 + len(asked.workers))
        self.diagonals: dict[str, bytes] = {}
        self.longest: dict[tuple[str, int], float] = {}  # seconds of a run, by engine and number of workers
        self.of_one_process: dict[str, float] = {}

    def call(self, n: int, engine: str, way: Way) -> dict[str, Any]:
        """One whole call: what it tells, and the diagonal of L."""
        asked, client = self.asked, way.client
        budget = parse_bytes(asked.memory_budget, "--memory-budget") // way.on_each
        options = {"tile_size": asked.tile_size, "devices": way.devices, "fp64": engine, "memory_budget": budget, "lower": True}
        with most_taken(asked.devices) as taken:
            began = time.perf_counter()
            with oc.cholesky(source(n), client=client, **options) as factor:
                seconds = time.perf_counter() - began
                report, diagonal = factor.report.to_dict(), np.asarray(factor.diagonal()).tobytes()
                told = {"seconds": seconds, "device_bytes": taken, "budget_bytes": budget, "report": report, "diagonal": diagonal}
                if client is not None:
                    told |= {"plan": told_by_plan(factor.report.plan), "spilled_bytes": client.run(spilled_here)}
        if client is not None:
            told["is_released"] = released(client)
        return told

    def way(self, engine: str, way: Way) -> None:
        """All repeats of one way, after one that warms up."""
        n, runs = self.asked.n, []
        now = time.perf_counter()
        share, self.ways_left = now + (self.ends - now) / max(1, self.ways_left), self.ways_left - 1
        name = {"n": n, "way": way.name, "engine": engine, "workers": way.workers}
        try:
            self.call(min(n, WARM_TILES * self.asked.tile_size), engine, way)
            for _ in range(1 + self.asked.repeats):
                if not self.has_time(engine, way.workers, self.ends if len(runs) < 2 else share):
                    break
                runs.append(self.timed_call(engine, way))
                if len(runs) == 1:
                    self.lines.add({**name, "is_counted": False, **self.figures(engine, runs)})
        except oc.OocCholError as error:
            self.lines.add({**name, "failed": f"{type(error).__name__}: {error}"})
            return
        if len(runs) < 2:
            self.lines.add({**name, "failed": f"no time for a run that counts: {len(runs)} ran"})
            return
        figures = self.figures(engine, runs[1:])
        if not way.workers:
            self.of_one_process[engine] = figures["seconds"]
        elif engine in self.of_one_process:
            figures["one_process_over_this"] = self.of_one_process[engine] / figures["seconds"]
        self.lines.add({**name, "is_counted": True, "first_seconds": runs[0]["seconds"], **figures})

    def on_one_device(self, engine: str) -> None:
        """One run on the first device alone, for its bits."""
        way = Way("one process on one device", self.asked.devices[:1])
        name = {"n": self.asked.n, "way": way.name, "engine": engine, "workers": 0}
        if not self.has_time(engine, 0, self.ends, len(self.asked.devices)):
            self.lines.add({**name, "failed": "no time"})
            return
        try:
            self.lines.add({**name, "is_counted": False, **self.figures(engine, [self.timed_call(engine, way)])})
        except oc.OocCholError as error:
            self.lines.add({**name, "failed": f"{type(error).__name__}: {error}"})

    def has_time(self, engine: str, workers: int, last: float, times: int = 1) -> bool:
        """Whether a run would end in time that takes so many ``times`` the longest yet of so many workers."""
        alike = [seconds for (other, count), seconds in self.longest.items() if count == workers]
        if not alike:
            alike = [seconds for (other, count), seconds in self.longest.items() if other == engine]
        return time.perf_counter() + times * max(alike, default=0.0) <= last

    def timed_call(self, engine: str, way: Way) -> dict[str, Any]:
        """One call of the large matrix; what it takes in all is noted."""
        began = time.perf_counter()
        told = self.call(self.asked.n, engine, way)
        key = engine, way.workers
        self.longest[key] = max(self.longest.get(key, 0.0), time.perf_counter() - began)
        return told

    def figures(self, engine: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What is told of runs: their seconds, and the rest of the last one."""
        seconds, last = [run["seconds"] for run in runs], runs[-1]
        median = statistics.median(seconds)
        first = self.diagonals.setdefault(engine, last["diagonal"])
        return {
            "seconds": median,
            "range": [min(seconds), max(seconds)],
            "all": seconds,
            "tflops": self.asked.n**3 / 3e12 / median,
            "diagonal_has_the_bits_of_the_first_way": last["diagonal"] == first,
            **{each: value for each, value in last.items() if each not in ("seconds", "diagonal")},
        }

    def empty_run(self) -> None:
        """What planning, opening and closing of the device take for a block that has hardly any flops."""
        options = FactorOptions(devices=self.asked.devices[0], fp64="native", tile_size=self.asked.tile_size)
        speed = speed_here(options, TileGrid(self.asked.n, self.asked.tile_size), FP64, Sharing(1))
        self.lines.add({"way": "a task without flops", "seconds": None if speed is None else speed.run_seconds})


@contextmanager
def client_of(asked: Options, count: int) -> Iterator[Any]:
    """A client of so many workers: of one device, or each of one of several, which it alone sees."""
    import psutil
    from distributed import Client, LocalCluster

    with ExitStack() as opened:
        if len(asked.devices) > 1:
            client = opened.enter_context(oc.open_cluster(f"local:{count}"))
        else:
            cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                resources={"GPU": 1},
                dashboard_address="127.0.0.1:0",
                security=True,
                # Dask's own "auto" goes by threads: of 16 cores a worker with one thread would get a sixteenth.
                memory_limit=psutil.virtual_memory().total // count if asked.memory_limit == "auto" else asked.memory_limit,
            )
            client = opened.enter_context(Client(opened.enter_context(cluster)))
        yield client


def way_of(asked: Options, count: int, client: Any) -> Way:
    """The way of so many workers."""
    devices = len(asked.devices)
    seen = asked.devices if devices == 1 else (f"{device_kind(asked.devices[0]).name}:0",)
    return Way(f"{count} worker{'s' * (count > 1)}", seen, count, count // devices, client)


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(n=65536, tile_size=2048, engines=("native", "residue"), repeats=2, devices="cuda:0")
    parser.add_argument(
        "--workers", type=int, nargs="+", help="numbers of them (default: 1 2, or one for each of several devices)"
    )
    parser.add_argument("--memory-budget", default="40 GB", help="of each device, for all workers on it together")
    parser.add_argument("--memory-limit", default="auto", help="of each worker's process, on one device (default: an even part)")
    parser.add_argument("--seconds", type=float, default=280.0, help="after which nothing is begun")


def check(options: Options) -> None:
    """Refuse options that do not go together."""
    options.devices = resolve_devices(options.devices)
    count, kind = len(options.devices), device_kind(options.device).name
    options.workers = options.workers or ([1, 2] if count == 1 else [count])
    if count == 1:
        return
    if options.devices != tuple(f"{kind}:{number}" for number in range(count)):
        raise ValueError(f"several devices are {kind}:0 and those that follow; for other GPUs set CUDA_VISIBLE_DEVICES")
    if wrong := [each for each in options.workers if each < 1 or each % count]:
        raise ValueError(f"{wrong[0]} workers cannot be dealt out evenly over {count} devices")
    if options.memory_limit != "auto":
        raise ValueError("workers of several devices have even parts of the machine's memory: leave --memory-limit out")


def run(options: Options) -> None:
    """Run all."""
    check(options)
    bench = Bench(options, Lines(options))
    bench.empty_run()
    for engine in options.engines:
        bench.way(engine, Way("one process", options.devices))
    for count in options.workers:
        with client_of(options, count) as client:
            for engine in options.engines:
                bench.way(engine, way_of(options, count, client))
    if len(options.devices) > 1:
        for engine in options.engines:
            bench.on_one_device(engine)
