"""A matrix from a file to a file through a device, with little host memory: bytes and seconds beside the plan's, and kills.

FOLDER is on the disk that is measured and has room for A, a ``.npy`` file of float32 that is made once, and L in float64. Every
call has a process of its own. ``plain`` gives a store, ``checkpoint`` the same as a checkpoint, and ``kill`` ends such a call
by SIGKILL after half of its time and goes on from what is left. ``--rates`` measures the device and the folder first, so that
the plan predicts seconds. Factors are compared by the hash of all their checksums.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, Parser, apart, environment_apart, seconds_of, words_apart
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.bench.results import run_figures
from ooc_chol.dense.rates.folders import measure_folder
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.dense.stores.file import FileStore

FOLDER = "disk"
RANGE = 64.0
#: What is told of a call as its report has it.
TOLD = ("seconds", "predicted_seconds", "engine", "tile_size", "bytes", "file_bytes", "exposed_copy_share")


def one_call(options: dict[str, Any]) -> dict[str, Any]:
    """One call from file to file, and what it took."""
    wall, factor = seconds_of(lambda: oc.cholesky(**options))
    with factor:
        report, figures = factor.report, run_figures(factor.report)
        return {
            "wall_seconds": wall,
            **{name: figures[name] for name in TOLD},
            "budget_bytes": report.plan.budgets[0].budget_bytes,
            "resumed_tiles": report.resumed,
            "host_bytes": report.plan.host_tile_bytes,
            "resident_maximum_bytes": memory_of_process("VmHWM"),
            "logdet": factor.logdet(),
            "page": str(report),
        }


def hash_of(path: Path) -> str:
    """The hash of all checksums of a finished factor."""
    store = FileStore.open(path)
    found = store.header.index_hash
    store.close()
    return f"{found:016x}"


def in_child(options: dict[str, Any], kill_after: float | None = None) -> dict[str, Any] | None:
    """What a call in a process of its own tells; None where it is killed after so many seconds behind its first tile."""
    if kill_after is None:
        return apart(one_call, options, must=True) | {"factor": hash_of(Path(options.get("store") or options["checkpoint"]))}
    process = subprocess.Popen(words_apart(one_call, options), stdout=subprocess.DEVNULL, env=environment_apart())
    partial = Path(options["checkpoint"] + ".partial")
    while not partial.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(kill_after)
    process.kill()
    process.wait()
    return None


def measured(path: Path, options: Options) -> Iterator[dict[str, Any]]:
    """Files that are there after each run."""
    common = {"A": str(path), "devices": options.device, "host_budget": options.host_budget}
    common |= {"memory_budget": options.memory_budget, "tile_size": options.tile_size}
    store, found = path.with_suffix(".ooc"), dict[str, Any]()
    last = 60.0
    for kind in options.runs:
        store.unlink(missing_ok=True)
        if kind == "plain":
            found[kind] = in_child(common | {"store": str(store)})
        else:
            call = common | {"checkpoint": str(store)}
            if kind == "kill":
                in_child(call, kill_after=last / 2)
            found[kind] = in_child(call)
        last = found[kind]["wall_seconds"]
        print(kind, found[kind].pop("page"), json.dumps(found[kind]), sep="\n", flush=True)
        yield found
    store.unlink(missing_ok=True)


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("folder", type=Path)
    parser.takes(n=110_000, memory_budget="22 GiB", host_budget="8 GiB", devices="cuda:0", tile_size=int)
    parser.takes(runs=("plain", "checkpoint", "kill"), rates=False)


def run(options: Options) -> None:
    """Make A, and run what is wanted, one after the other; printed and written as it comes."""
    disk, began = None, time.perf_counter()
    if options.rates:
        measure_rates(options.tile_size or 4096, options.device, quick=True)
        found = measure_folder(options.folder, options.tile_size or 4096, quick=True)
        disk = {name: getattr(found, name) for name in ("read", "write", "together")}
        print(found, f"{time.perf_counter() - began:.1f} s", flush=True)
    line = Line(options.n, RANGE, dtype="float32")
    path = line.write(options.folder / f"line-{options.n}.npy")
    print(f"A made, {time.perf_counter() - began:.1f} s", flush=True)
    about = {
        "devices": [options.device],
        "n": options.n,
        "source": "file",
        "covariance": f"{line.name}, float32 widened",
        **{name: getattr(options, name) for name in ("memory_budget", "host_budget")},
        "disk": disk,
    }
    for runs in measured(path, options):
        options.write(about | {"runs": runs, "same_factor": len({run["factor"] for run in runs.values()}) == 1})
