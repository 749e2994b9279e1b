"""Kill, or pause, workers of a cluster of this machine at random moments of runs, and compare the bits with one machine's.

Each case is run in peace once, which tells its seconds; then, in turn, a worker is killed at a random time of it, or both are, or
one stands still for a second. The result must have the bits of one machine, or there must be an error of ours. Prints a line for
each case, with the most that was done again of a run's products or tasks.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ooc_chol as oc
from benchmarks.kills import adjacency, cauchy
from benchmarks.running import Options

FOLDER, NAME = "cluster", "kills"
#: Order of A for factorizations, tile size, and orders of graphs: of three chunks of rows for eigenpairs, so that both workers
#: have some.
N, NB, VERTICES, CHUNKS = 1200, 60, 3000, 140_000
#: What happens to workers, and how often each is drawn; seconds for which one stands still.
WAYS, WEIGHTS, PAUSE_SECONDS = ("kill one", "kill both", "pause one"), (6, 2, 2), 1.0
#: Seconds within which a run ends, whatever happens.
MOST_SECONDS = 120.0
#: A cluster gives up a worker that is not there so long after it was lost, be it lost once more by then.
PATIENT = {"distributed.deploy.lost-worker-timeout": "1 day"}


class Outcome(NamedTuple):
    """A result, and how much was done again."""

    sha256: str
    again: float  #: Products, or tasks, that were made again, beside those of the run


def digest(*parts: Any) -> str:
    """All bits of some arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def solved(call: Callable[..., Any], a: Any, client: Any, **how: Any) -> Outcome:
    """Eigenpairs or singular triplets."""
    found = call(a, 4, devices="host:0", client=client, **how)
    done = found.report.cluster
    return Outcome(digest(*found, found.residuals), 0.0 if done is None else done.repeated / done.products)


def factored(a: Any, client: Any, folder: Path | None) -> Outcome:
    """A factor in the workers' memory, or in a Zarr group."""
    store = None if folder is None else folder / "L.zarr"
    options = {} if client is None else {"client": client, "store": store, "replace": store is not None}
    with oc.cholesky(a, tile_size=NB, fp64="native", **options) as factor:
        report = factor.report
        again = 0.0 if client is None else report.repeated / report.tasks
        return Outcome(digest(np.asarray(factor)), again)


def cases(folder: Path) -> dict[str, Callable[[Any], Outcome]]:
    """Runs by name: functions of a client, or of None for one machine."""
    graph, a = oc.block_csr(adjacency(VERTICES), block_bytes="32 KiB"), cauchy(N, 0.05, 2, 1e-3)
    sent = oc.block_csr(adjacency(CHUNKS), block_bytes="1 MiB")
    stored = oc.block_csr(sent, store=folder / "graph.oocsr", block_bytes="1 MiB")
    return {
        "eigsh, rows sent": lambda client: solved(oc.eigsh, sent, client),
        "eigsh, rows of a file": lambda client: solved(oc.eigsh, stored, client),
        "svds": lambda client: solved(oc.svds, graph, client, ncv=40, block=2, tol=1e-4),
        "cholesky, memory": lambda client: factored(a, client, None),
        "cholesky, Zarr group": lambda client: factored(a, client, folder),
    }


def harm(way: str, pids: list[int]) -> None:
    """Do something to workers."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP if way == "pause one" else signal.SIGKILL)
    if way == "pause one":
        time.sleep(PAUSE_SECONDS)
        os.kill(pids[0], signal.SIGCONT)


def harmed(run: Callable[[Any], Outcome], client: Any, way: str, after: float, draw: random.Random) -> dict[str, Any]:
    """A run, in which something happens to workers after so many seconds."""
    client.wait_for_workers(2, timeout=MOST_SECONDS)
    there = client.run(os.getpid)
    victims = draw.sample(sorted(there), 2 if way == "kill both" else 1)
    timer = threading.Timer(after, harm, (way, [there[address] for address in victims]))
    timer.start()
    began, told = time.perf_counter(), dict[str, Any]()
    try:
        told = run(client)._asdict()
    except oc.OocCholError as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    told["seconds"] = time.perf_counter() - began
    timer.join()
    while way != "pause one" and set(victims) & set(client.nthreads()):
        time.sleep(0.05)  # until the scheduler knows
    return told


def harmed_all(kills: int, seed: int, folder: Path, client: Any) -> Iterator[dict[str, Any]]:
    """Outcomes of each case."""
    draw, table = random.Random(seed), cases(folder)
    right, calm, found = {}, {}, {}
    for name, run in table.items():
        right[name] = run(None).sha256
        run(client)
        began = time.perf_counter()
        assert run(client).sha256 == right[name], name
        calm[name] = time.perf_counter() - began
        found[name] = {
            "case": name,
            "points": 0,
            "same_bits": 0,
            "errors": [],
            "wrong": 0,
            "most_again": 0.0,
            "most_seconds": 0.0,
        }
        found[name] |= {"calm_seconds": calm[name], "ways": Counter[str]()}
    for point in range(kills):
        name = list(table)[point % len(table)]
        way = draw.choices(WAYS, WEIGHTS)[0]
        told, line = harmed(table[name], client, way, draw.uniform(0.0, calm[name]), draw), found[name]
        line["points"] += 1
        line["ways"][way] += 1
        line["errors"] += [told["error"]] if "error" in told else []
        line["same_bits"] += told.get("sha256") == right[name]
        line["wrong"] += "sha256" in told and told["sha256"] != right[name]
        line["most_again"] = max(line["most_again"], told.get("again", 0.0))
        line["most_seconds"] = max(line["most_seconds"], told["seconds"])
        if (point + 1) % 20 == 0:
            print(f"{point + 1} points", file=sys.stderr, flush=True)
    yield from found.values()


TAKES = {"kills": 200, "seed": 0}


def run(options: Options) -> int:
    """Harm workers, and tell; status 1 where a result had other bits, or memory stayed."""
    before, began = set(os.listdir("/dev/shm")), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with import_module("dask").config.set(PATIENT), oc.open_cluster("local:2") as client:
            lines = list(harmed_all(options.kills, options.seed, Path(folder), client))
    left = sorted(set(os.listdir("/dev/shm")) - before)
    for each in lines:
        bits = f"{each['points']} points, {each['same_bits']} results to the same bits, {len(each['errors'])} errors"
        took = f"{each['most_seconds']:.3g} s ({each['calm_seconds']:.3g} s in peace)"
        print(f"{each['case']}: {bits}, {each['wrong']} wrong; {each['most_again']:.0%} done again, {took}", *each["errors"][:1])
    seconds = round(time.perf_counter() - began, 1)
    options.write({"case": "cluster kills", "seconds": seconds, "left_in_shared_memory": left, "cases": lines})
    return int(bool(left) or any(each["wrong"] for each in lines))
