"""A matrix from a file to a file through a device, with little host memory: bytes and seconds beside the plan's, kills, resumes.

    python benchmarks/disk_tier.py FOLDER --case NAME [--n 110000] [--memory-budget "22 GiB"] [--host-budget "8 GiB"]
        [--device cuda:0] [--tile-size 4096] [--runs plain checkpoint kill] [--rates]

FOLDER is on the disk that is measured and has room for A, a ``.npy`` file of float32 that is made once, and L in float64. Every
call has a process of its own. ``plain`` gives a store, ``checkpoint`` the same as a checkpoint, and ``kill`` ends such a call by
SIGKILL after half of its time and goes on from what is left. ``--rates`` measures the device and the folder first, so that the
plan predicts seconds. The result goes to ``benchmarks/results/disk/NAME.json`` after each run. Factors are compared by the hash
of all their checksums.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.bench.results import commit, machine, write_json
from ooc_chol.dense.rates.folders import measure_folder
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.dense.stores.file import FileStore

RESULTS = Path(__file__).parent / "results" / "disk"
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
            "seconds": report.seconds,
            "predicted_seconds": report.predicted_seconds,
            "resumed_tiles": report.resumed_tiles,
            "engine": report.plan.layout.engine,
            "tile_size": report.plan.grid.nb,
            "budget_bytes": report.plan.budgets[0].budget_bytes,
            "bytes": report.to_dict()["bytes"],
            "file_bytes": report.to_dict()["file_bytes"],
            "host_bytes": report.plan.host_bytes,
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
    words = [sys.executable, __file__, "--options", json.dumps(options)]
    if kill_after is None:
        run = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        store = Path(options.get("store") or options["checkpoint"])
        return dict(json.loads(run.stdout)) | {"factor": hash_of(store)}
    process, partial = subprocess.Popen(words, stdout=subprocess.DEVNULL), Path(options["checkpoint"] + ".partial")
    while not partial.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(kill_after)
    process.kill()
    process.wait()
    return None


def runs(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, one after the other; printed as it comes."""
    common = {"a": str(path), "devices": arguments.device, "host_budget": arguments.host_budget}
    common |= {"memory_budget": arguments.memory_budget, "tile_size": arguments.tile_size}
    store, found = path.with_suffix(".ooc"), dict[str, Any]()
    last = 60.0
    for kind in arguments.runs:
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
        write(found, arguments)
    store.unlink(missing_ok=True)
    return found


def write(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    """The result file as far as it is known."""
    about = {
        "case": arguments.case,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(arguments.device.startswith("cuda")),
        "devices": [arguments.device],
        "n": arguments.n,
        "source": "file",
        "covariance": f"exponential on a line, range {RANGE:g}, nugget {NUGGET}, float32 widened",
        "memory_budget": arguments.memory_budget,
        "host_budget": arguments.host_budget,
        "disk": arguments.disk,
    }
    write_json(about | {"runs": found, "same_factor": len({run["factor"] for run in found.values()}) == 1}, arguments.path)


def main() -> None:
    """Measure, print, and write the result file."""
    if len(sys.argv) == 3 and sys.argv[1] == "--options":
        print(json.dumps(one_call(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", required=True)
    parser.add_argument("--n", type=int, default=110_000)
    parser.add_argument("--memory-budget", default="22 GiB")
    parser.add_argument("--host-budget", default="8 GiB")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tile-size", type=int)
    parser.add_argument("--runs", nargs="+", choices=("plain", "checkpoint", "kill"), default=["plain", "checkpoint", "kill"])
    parser.add_argument("--rates", action="store_true")
    arguments = parser.parse_args()
    arguments.path, arguments.disk = RESULTS / f"{arguments.case}.json", None
    began = time.perf_counter()
    if arguments.rates:
        measure_rates(arguments.tile_size or 4096, arguments.device, quick=True)
        disk = measure_folder(arguments.folder, arguments.tile_size or 4096, quick=True)
        arguments.disk = {name: getattr(disk, name) for name in ("read", "write", "together")}
        print(disk, f"{time.perf_counter() - began:.1f} s", flush=True)
    path = arguments.folder / f"line-{arguments.n}.npy"
    make_matrix(path, arguments.n)
    print(f"A made, {time.perf_counter() - began:.1f} s", flush=True)
    runs(path, arguments)


if __name__ == "__main__":
    main()
