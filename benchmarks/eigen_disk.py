"""Eigenpairs of an R-MAT graph in a file that memory does not hold: made and packed on the disk, read, multiplied, solved.

``pack`` draws the graph and packs it in ``--folder``, unless it is there from an earlier run. ``solve`` opens the file in a
process of its own. It reads all blocks from the disk, with the check that a first reading makes, and again as the system has them
cached; multiplies; and looks for the largest eigenpairs, the pages of the file forgotten before (unless ``--cached``), so that
its first pass comes from the disk. Later passes come from the system's cache as far as that goes: it is memory that the system
lends, and no part of ``--host-budget``, to which ``resident_maximum_bytes`` is to be held. ``rate`` is entries times pairs a
second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.eigen import Line, said
from benchmarks.running import Options, Parser, brief, drop_pages, environment_apart, seconds_of, words_apart
from ooc_chol.bench.meters import memory_of_process
from ooc_chol.config import parse_bytes
from ooc_chol.hardware.registry import memory_info

FOLDER = "eigen"
STEPS = ("pack", "solve")
#: Columns of the product that is measured, and how many of them.
_COLUMNS, _PRODUCTS = 8, 3
TAKES = {"devices": "cuda:0", "memory_budget": "16 GiB", "steps": STEPS}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    folder = "folder of the packed graph, which stays there (default: build)"
    parser.add_argument("--folder", type=Path, default=Path("build"), help=folder)
    parser.add_argument("--scale", type=int, default=25, help="base-2 logarithm of the number of vertices (default: 25)")
    parser.add_argument("--degree", type=int, default=136, help="edges drawn for each vertex (default: 136)")
    parser.add_argument("--order", choices=("degree",), help="numbers of vertices (default: those of the draw)")
    parser.add_argument("--block-bytes", default="256 MiB", help="bytes of a block of the file (default: 256 MiB)")
    parser.add_argument("--k", type=int, default=8, help="eigenpairs (default: 8)")
    parser.add_argument("--tol", type=float, default=1e-6, help="largest residual, of the largest value (default: 1e-6)")
    parser.add_argument("--block", type=int, help="columns of a panel (default: chosen by the planner)")
    parser.add_argument("--ncv", type=int, help="vectors of the basis (default: chosen by the planner)")
    parser.add_argument("--host-budget", default="16 GiB", help="memory of the host (default: 16 GiB)")
    parser.add_argument("--cached", action="store_true", help="keep the pages of the file before pairs are looked for")


def pack(path: str, graph: dict[str, Any], block_bytes: str) -> Line:
    """Draw a graph and pack it on the disk."""
    name = Path(path)
    tenths = [0]

    def progress(done: int, total: int, taken: float) -> None:
        if done * 10 // total > tenths[0]:
            tenths[0] = done * 10 // total
            print(f"  {done} of up to {total} entries in {taken:.1f} s", file=sys.stderr, flush=True)

    how: dict[str, Any] = {"store": name, "block_bytes": block_bytes, "progress": progress}
    seconds, a = seconds_of(lambda: oc.block_csr(oc.testing.rmat(**graph), **how))
    with a:
        facts = {"seconds": seconds, "entries": a.nnz, "bytes": a.nbytes, "blocks": len(a.blocks.blocks)}
        return facts | {"bytes_an_entry": a.nbytes / a.nnz, "resident_maximum_bytes": memory_of_process("VmHWM")}


def read_all(a: oc.BlockCSR) -> Line:
    """Seconds in which the host reads all blocks, and the rate."""
    data = np.empty(a.blocks.largest_bytes, np.uint8)

    def read() -> None:
        for number in range(len(a.blocks.blocks)):
            a.tier.read_stored((number, 0), data)

    seconds, _ = seconds_of(read)
    return {"seconds": seconds, "bytes_per_second": a.nbytes / seconds}


def multiplied(a: oc.BlockCSR, where: dict[str, Any]) -> Line:
    """Products with some columns: seconds of each, and bytes that all of them copied to the device."""
    with oc.multiplier(a, _COLUMNS, precision="FDF", **where) as product:
        product.apply(np.ones((a.shape[1], _COLUMNS), np.float32), times=_PRODUCTS)
        report = product.report
        return {"seconds": list(report.scan_seconds), "copied_bytes": sum(report.bytes.executed.values())}


def solved(path: str, call: dict[str, Any], where: dict[str, Any], *, is_cached: bool) -> Iterator[tuple[str, Line]]:
    """Measurements of a file that is there, step by step."""
    device = where["devices"][0]
    seconds, a = seconds_of(lambda: oc.block_csr(path))
    with a:
        yield "open", {"seconds": seconds, "entries": a.nnz, "bytes": a.nbytes}
        drop_pages(Path(path))
        yield "read from the disk, and checked", read_all(a)
        yield "read from the cache", read_all(a)
        yield "products", multiplied(a, where)
        if not is_cached:
            drop_pages(Path(path))
        before = [memory_info(device)[0]]

        def told(*facts: Any) -> None:
            before.append(memory_info(device)[0])
            said(*facts)

        seconds, pairs = seconds_of(lambda: oc.eigsh(a, **call, **where, progress=told))
        yield (
            "solve",
            {
                "seconds": seconds,
                "rate": a.nnz * call["k"] / seconds,
                "device_bytes": before[0] - min(before),
                "resident_maximum_bytes": memory_of_process("VmHWM"),
                "values": pairs.eigenvalues.tolist(),
                "residuals": pairs.residuals.tolist(),
                "report": pairs.report.to_dict(),
                "page": str(pairs.report),
            },
        )


def solve(path: str, call: dict[str, Any], where: dict[str, Any], is_cached: bool) -> Line:
    """All of it, each line told as it comes."""
    found: Line = {}
    for name, line in solved(path, call, where, is_cached=is_cached):
        found[name] = json.loads(json.dumps(line, default=str))
        print(f"{name}: {json.dumps(brief(line), default=str)}", file=sys.stderr, flush=True)
    return found


def told_apart(function: Callable[..., Line], *given: Any) -> Line:
    """Result of a function in a process of its own, which tells how far it is."""
    done = subprocess.run(words_apart(function, *given), stdout=subprocess.PIPE, text=True, check=False, env=environment_apart())
    if done.returncode:
        raise OSError(f"{function.__name__} ended with {done.returncode}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(options: Options) -> Iterator[Line]:
    """Each step in its turn."""
    graph = {"scale": options.scale, "degree": options.degree, "order": options.order, "devices": list(options.devices)}
    path = options.folder.resolve() / f"rmat-{options.scale}-{options.degree}{'-degree' if options.order else ''}.oocsr"
    note = Path(f"{path}.json")
    where = {"devices": list(options.devices), "memory_budget": parse_bytes(options.memory_budget, "--memory-budget")}
    call = {name: getattr(options, name) for name in ("k", "tol", "block", "ncv", "host_budget")} | {"precision": "FDF"}
    options.about = {"graph": graph, "call": call, "memory_budget": options.memory_budget, "is_cached": options.cached}
    if "pack" in options.steps and not path.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(told_apart(pack, str(path), graph, options.block_bytes)), encoding="utf-8")
    if note.exists():
        yield {"what": "pack", **json.loads(note.read_text(encoding="utf-8"))}
    if "solve" in options.steps:
        for name, line in told_apart(solve, str(path), call, where, options.cached).items():
            yield {"what": name, **line}
