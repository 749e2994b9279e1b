"""A factorization on a cluster of processes of this machine: ours, Dask's own, SciPy's, and one process of ours.

All take the same matrix, an exponential covariance on a line made by a function; Dask's own and SciPy's get it as an array,
made before the clock runs, SciPy's in a process of its own. Dask's own takes chunks of an n-th by several n, of which the
quickest counts. Ways take turns. A line has seconds of whole calls (median and range), GFLOP/s as ``n**3 / 3 / seconds``, and
of ours tasks and bytes beside the plan's.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, Parser, apart, in_turn, seconds_of
from ooc_chol.cluster.facts import Sharing
from ooc_chol.cluster.plan import ClusterPlan
from ooc_chol.cluster.speeds import speed_here
from ooc_chol.config import parse_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.formats import FP64
from ooc_chol.hardware.registry import device_kind, memory_info, resolve_devices
from ooc_chol.tasks.tiling import TileGrid

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
            return {"seconds_inside": factor.report.inside_seconds}

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
        """Figures of one way, with its seconds."""
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


#: Seconds between two looks at the GPU's memory, and most for which workers are given time to let go of the L of the run before.
LOOK_SECONDS, RELEASE_SECONDS = 0.005, 20.0
#: Order of the matrix that warms a cluster up, in tiles.
WARM_TILES = 4
Told = dict[str, Any]


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


def told_by_plan(plan: ClusterPlan) -> Told:
    """What a plan of a cluster goes by, and what it says."""
    figures = plan.to_dict()
    names = ("tasks", "bytes", "peak_bytes", "seconds", "bounds", "efficiency")
    rates = {"workers": [dataclasses.asdict(each) for each in plan.case.workers], **dataclasses.asdict(plan.case.rates)}
    return {**{name: figures[name] for name in names}, "received_bytes": list(plan.received_bytes), "rates": rates}


class Way(NamedTuple):
    """One way to factor."""

    name: str
    devices: tuple[str, ...]  #: Of the process, or of each worker as it names them itself
    workers: int = 0  #: 0 for one process
    on_each: int = 1  #: Workers that share a device
    client: Any = None


class Bench:
    """The ways, on one matrix."""

    def __init__(self, n: int, asked: Options, ends: float) -> None:
        self.n, self.asked, self.ends = n, asked, ends
        self.source = Line(n, 2000.0).source()
        self.small = Line(min(n, WARM_TILES * asked.tile_size), 2000.0).source()
        self.diagonals: dict[str, bytes] = {}
        self.longest: dict[int, float] = {}  # seconds of a run, by number of workers
        self.of_one_process: dict[str, float] = {}

    def call(self, a: Any, engine: str, way: Way) -> Told:
        """One whole call: what it tells, and the diagonal of L."""
        asked, client = self.asked, way.client
        budget = parse_bytes(asked.memory_budget, "--memory-budget") // way.on_each
        options = {"tile_size": asked.tile_size, "devices": way.devices, "fp64": engine, "memory_budget": budget, "lower": True}
        with most_taken(asked.devices) as taken:
            seconds, factor = seconds_of(lambda: oc.cholesky(a, client=client, **options))
            with factor:
                told = {"seconds": seconds, "device_bytes": taken, "budget_bytes": budget, "report": factor.report.to_dict()}
                told["diagonal"] = np.asarray(factor.diagonal()).tobytes()
                if client is not None:
                    told |= {"plan": told_by_plan(factor.report.plan), "spilled_bytes": client.run(spilled_here)}
        if client is not None:
            told["is_released"] = released(client)
        return told

    def runs(self, engine: str, way: Way, count: int) -> Iterator[Told]:
        """So many calls of the large matrix, as far as there is time."""
        for _ in range(count):
            if time.perf_counter() + self.longest.get(way.workers, 0.0) > self.ends:
                return
            taken, told = seconds_of(lambda: self.call(self.source, engine, way))
            self.longest[way.workers] = max(self.longest.get(way.workers, 0.0), taken)
            yield told

    def lines(self, engine: str, way: Way) -> Iterator[Told]:
        """All repeats of one way, after one that warms up; of one device of several that one alone."""
        name = {"n": self.n, "way": way.name, "engine": engine, "workers": way.workers}
        is_alone, runs = not way.workers and len(way.devices) < len(self.asked.devices), []
        try:
            self.call(self.small, engine, way)
            for run in self.runs(engine, way, 1 if is_alone else 1 + self.asked.repeats):
                runs.append(run)
                if len(runs) == 1:
                    yield {**name, "is_counted": False, **self.figures(engine, runs)}
        except oc.OocCholError as error:
            yield {**name, "failed": f"{type(error).__name__}: {error}"}
            return
        if len(runs) < 2:
            if not is_alone:
                yield {**name, "failed": f"no time for a run that counts: {len(runs)} ran"}
            return
        figures = self.figures(engine, runs[1:])
        if not way.workers:
            self.of_one_process[engine] = figures["seconds"]
        elif engine in self.of_one_process:
            figures["one_process_over_this"] = self.of_one_process[engine] / figures["seconds"]
        yield {**name, "is_counted": True, "first_seconds": runs[0]["seconds"], **figures}

    def figures(self, engine: str, runs: Sequence[Told]) -> Told:
        """What is told of runs: their seconds, and the rest of the last one."""
        seconds, last = [run["seconds"] for run in runs], dict(runs[-1])
        median, diagonal = statistics.median(seconds), last.pop("diagonal")
        return {
            **last,
            "seconds": median,
            "range": [min(seconds), max(seconds)],
            "all": seconds,
            "tflops": self.n**3 / 3e12 / median,
            "diagonal_has_the_bits_of_the_first_way": diagonal == self.diagonals.setdefault(engine, diagonal),
        }

    def empty_run(self) -> Told:
        """What planning, opening and closing of the device take for a block that has hardly any flops."""
        options = FactorOptions(devices=self.asked.devices[0], fp64="native", tile_size=self.asked.tile_size)
        speed = speed_here(options, TileGrid(self.n, self.asked.tile_size), FP64, Sharing(1))
        return {"way": "a task without flops", "seconds": None if speed is None else speed.run_seconds}


@contextmanager
def workers(asked: Options, count: int) -> Iterator[Way]:
    """The way of so many workers: of one device, or of several that are dealt out among them, each of which sees its own."""
    import psutil
    from distributed import Client, LocalCluster

    devices, seen = len(asked.devices), asked.devices
    with ExitStack() as opened:
        if devices > 1:
            seen = tuple(asked.devices[: max(1, devices // count)])
            client = opened.enter_context(oc.open_cluster(f"local:{count}"))
        else:
            # Dask's own "auto" goes by threads: of 16 cores a worker with one thread would get a sixteenth.
            memory = psutil.virtual_memory().total // count if asked.memory_limit == "auto" else asked.memory_limit
            how = {"threads_per_worker": 1, "resources": {"GPU": 1}, "dashboard_address": "127.0.0.1:0", "memory_limit": memory}
            client = opened.enter_context(Client(opened.enter_context(LocalCluster(n_workers=count, security=True, **how))))
        yield Way(f"{count} worker{'s' * (count > 1)}", seen, count, max(1, count // devices), client)


def all_lines(benches: Sequence[Bench], way: Way) -> Iterator[Told]:
    """The lines of one way on all matrices, by each engine."""
    for bench in benches:
        for engine in bench.asked.engines:
            yield from bench.lines(engine, way)


TAKES_gpu = {"n": [65536], "tile_size": 2048, "engines": ("native", "residue"), "repeats": 2, "devices": "cuda:0"}


def options_gpu(parser: Parser) -> None:
    """Add what the case takes."""
    words = "numbers of them (default: 1 2, or one with all of several devices, and one for each)"
    parser.add_argument("--workers", type=int, nargs="+", help=words)
    parser.add_argument("--memory-budget", default="40 GB", help="of each device, for all workers on it together")
    parser.add_argument("--memory-limit", default="auto", help="of each worker's process, on one device (default: an even part)")
    parser.add_argument("--seconds", type=float, default=280.0, help="after which nothing is begun")


def check(options: Options) -> None:
    """Refuse options that do not go together."""
    options.devices = resolve_devices(options.devices)
    count, kind = len(options.devices), device_kind(options.device).name
    options.workers = options.workers or ([1, 2] if count == 1 else [1, count])
    if count == 1:
        return
    if options.devices != tuple(f"{kind}:{number}" for number in range(count)):
        raise ValueError(f"several devices are {kind}:0 and those that follow; for other GPUs set CUDA_VISIBLE_DEVICES")
    if wrong := [each for each in options.workers if each < 1 or (each % count and count % each)]:
        raise ValueError(f"{wrong[0]} workers cannot be dealt out evenly over {count} devices")
    if options.memory_limit != "auto":
        raise ValueError("workers of several devices have even parts of the machine's memory: leave --memory-limit out")


def run_gpu(options: Options) -> Iterator[Told]:
    """A factorization by workers with GPUs of this machine, beside one process on them.

    All take the same matrix, an exponential covariance on a line that is made on the GPU. With several devices one process has
    all of them, and so has one worker; they are dealt out to several, a process each, as ``oc.open_cluster("local:2")`` does it.
    All have the same memory on each device: workers of one an even part of it. L stays in the workers' memory, or that of
    the process. Before the runs that count each way has one of a small matrix, and one of the large one. With several devices,
    and if time is left, one run of one process on the first of them alone comes last, for its bits.

    Every way prints JSON lines: seconds of whole calls, TFLOP/s as ``n**3 / 3 / seconds``, of workers tasks, bytes and seconds
    beside the plan's, the rates that this goes by, and the seconds of one process over theirs; whether the diagonal of L has
    the bits of the first way, and the most memory of each device that was taken. None begins that would end after --seconds, if
    it took as long as the longest of its kind; a run that has begun is not cut short.

    ``--n 65536 98304 --workers 1 --engines residue`` is one worker beside one process on the same GPU, which the worker should
    reach at least 0.9 of (``one_process_over_this``). ``--devices host:0,host:1`` tries it all without a GPU, at a small --n.
    """
    check(options)
    options.about = {"devices": list(options.devices), "budget_of_a_device": options.memory_budget}
    ends = time.perf_counter() + options.seconds
    benches = [Bench(n, options, ends) for n in options.n]
    yield benches[0].empty_run()
    yield from all_lines(benches, Way("one process", options.devices))
    for count in options.workers:
        with workers(options, count) as way:
            yield from all_lines(benches, way)
    if len(options.devices) > 1:
        yield from all_lines(benches, Way("one process on one device", options.devices[:1]))
