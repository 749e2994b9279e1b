"""A matrix many times larger than memory, from a file to a file, beside one in memory on the same machine.

FOLDER is on the disk that is measured and has room for A and L. A is an exponential covariance of places on a line, written to
``FOLDER/line-N-float64.npy`` band by band and left there for the next time. The factorization runs in a process of its own that
may take ``--memory`` in all: the resident maximum of the process is measured, and where a memory control group (version 1) can
be made, its limit holds, pages of the system's cache included. The reference is the least time of three calls in memory, in a
process of its own, once before and once after.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, Parser, apart, both_seconds, seconds_of
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.bench.results import run_figures
from ooc_chol.config import parse_bytes

FOLDER = "disk"
GROUPS = Path("/sys/fs/cgroup/memory")
#: Bytes of the process beside the arena: Python, NumPy, the BLAS and its buffers, the plan, threads, one tile of A in the cache.
BESIDE = 128 << 20
#: Bytes of host memory for L beside the arena: on the host the arena is the better place.
HOST_BUDGET = 1 << 20
RANGE = 1000.0
#: What is told of a call as its report has it.
TOLD = ("seconds", "tile_size", "bytes", "file_bytes", "exposed_copy_share")


@contextmanager
def control_group(limit: int) -> Iterator[Path | None]:
    """A memory control group with this limit; None where none can be made."""
    folder = GROUPS / f"ooc_chol_{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        yield None
        return
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def reference(n: int) -> dict[str, Any]:
    """Seconds of whole calls in memory, of matrices that are there."""
    a = Line(n, RANGE).rows()
    calls = [both_seconds(lambda: oc.cholesky(a, devices="host").close())[0] for _ in range(4)][1:]
    walls, processor = ([call[name] for call in calls] for name in ("seconds", "processor_seconds"))
    return {"n": n, "wall_seconds": walls, "cpu_seconds": processor, "tflops": n**3 / 3e12 / min(walls)}


def out_of_memory(options: dict[str, Any]) -> dict[str, Any]:
    """One call from file to file, and what it took."""
    group = options["group"]
    if group is not None:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    n, path = options["n"], Path(options["a"])
    store = path.with_suffix(".ooc")
    how = {"memory_budget": options["memory"] - BESIDE, "host_budget": HOST_BUDGET, "tile_size": options["tile_size"]}
    wall, factor = seconds_of(lambda: oc.cholesky(path, store=store, devices="host", **how))
    used, report = resource.getrusage(resource.RUSAGE_SELF), factor.report
    found = {
        "wall_seconds": wall,
        **{name: run_figures(report)[name] for name in TOLD},
        "tflops": n**3 / 3e12 / wall,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "resident_maximum_bytes": memory_of_process("VmHWM"),
        "group": None if group is None else figures_of(Path(group)),
        "disk": io_of_process(),
        "budget_bytes": report.plan.budgets[0].budget_bytes,
        "logdet": factor.logdet(),
        "residual": asdict(factor.residual(path, blocks=options["blocks"])),
    }
    factor.close()
    store.unlink()
    return found


def io_of_process() -> dict[str, int]:
    """Bytes that this process had read from disks and written to them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return {name: int(fields[name]) for name in ("read_bytes", "write_bytes")}


def figures_of(group: Path) -> dict[str, int]:
    """What a control group has counted, of which the cache is a part."""
    names = {"limit_bytes": "limit_in_bytes", "maximum_bytes": "max_usage_in_bytes", "times_at_limit": "failcnt"}
    found = {name: int((group / f"memory.{file}").read_text()) for name, file in names.items()}
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return found | {"cache_bytes_at_end": int(stat["cache"]), "anonymous_bytes_at_end": int(stat["rss"])}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("folder", type=Path)
    parser.takes(n=40_000, memory="1 GiB", reference_n=8192, tile_size=int, blocks=8)


def run(options: Options) -> dict[str, Any]:
    """The reference, the run, and the reference again."""
    memory, line = parse_bytes(options.memory, "memory"), Line(options.n, RANGE)
    path = line.write(options.folder / f"line-{options.n}-float64.npy")
    before = apart(reference, options.reference_n, must=True)
    with control_group(memory) as group:
        how = {"n": options.n, "a": str(path), "memory": memory, "group": None if group is None else str(group)}
        found = apart(out_of_memory, how | {"blocks": options.blocks, "tile_size": options.tile_size}, must=True)
    after = apart(reference, options.reference_n, must=True)
    best = max(before["tflops"], after["tflops"])
    return {
        "devices": ["host:0"],
        "n": options.n,
        "engine": "native",
        "source": "file",
        "covariance": line.name,
        "memory_bytes": memory,
        **found,
        "reference": {"before": before, "after": after, "tflops": best},
        "rate_beside_reference": found["tflops"] / best,
    }
