"""A matrix from a file to a file through a device, with little host memory: bytes and seconds beside the plan's, and kills.

FOLDER is on the disk that is measured and has room for A, a ``.npy`` file of float32 that is made once, and L in float64. Every
call has a process of its own. ``plain`` gives a store, ``checkpoint`` the same as a checkpoint, and ``kill`` ends such a call
by SIGKILL after half of its time and goes on from what is left. ``--rates`` measures the device and the folder first, so that
the plan predicts seconds. Factors are compared by the hash of all their checksums.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, Parser, apart, environment_apart, words_apart
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.dense.rates.folders import measure_folder
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.dense.stores.file import FileStore

FOLDER = "disk"
NUGGET, RANGE = 1e-2, 64.0
#: Rows of A that are written at once.
BAND = 512


def make_matrix(path: Path, n: int) -> None:
    """Write an exponential covariance of places on a line to ``path``, whose pages do not stay in the cache."""
    if path.exists():
        return
    distances = np.abs(np.arange(-(n - 1), n, dtype=np.float64))
    values = np.exp(-distances / RANGE).astype(np.float32)
    values[n - 1] += NUGGET
    rows = np.lib.stride_tricks.sliding_window_view(values, n)[::-1]  # row i begins at distance -i
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, n)})
        for start in range(0, n, BAND):
            file.write(np.ascontiguousarray(rows[start : start + BAND]).data)
            if start % (16 * BAND) == 0:
                os.fdatasync(file.fileno())
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def one_call(options: dict[str, Any]) -> dict[str, Any]:
    """One call from file to file, and what it took."""
    began = time.perf_counter()
    with oc.cholesky(**options) as factor:
        wall, report = time.perf_counter() - began, factor.report
        return {
            "wall_seconds": wall,
            "seconds": report.inside_seconds,
            "predicted_seconds": report.seconds.predicted,
            "resumed_tiles": report.resumed,
            "engine": report.plan.layout.engine,
            "tile_size": report.plan.grid.nb,
            "budget_bytes": report.plan.budgets[0].budget_bytes,
            "bytes": report.to_dict()["bytes"],
            "file_bytes": report.to_dict()["file_bytes"],
            "host_bytes": report.plan.host_tile_bytes,
            "exposed_copy_share": report.exposed_copy_share,
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
    common = {"a": str(path), "devices": options.device, "host_budget": options.host_budget}
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
    path = options.folder / f"line-{options.n}.npy"
    make_matrix(path, options.n)
    print(f"A made, {time.perf_counter() - began:.1f} s", flush=True)
    about = {
        "devices": [options.device],
        "n": options.n,
        "source": "file",
        "covariance": f"exponential on a line, range {RANGE:g}, nugget {NUGGET}, float32 widened",
        "memory_budget": options.memory_budget,
        "host_budget": options.host_budget,
        "disk": disk,
    }
    for runs in measured(path, options):
        options.write(about | {"runs": runs, "same_factor": len({run["factor"] for run in runs.values()}) == 1})
