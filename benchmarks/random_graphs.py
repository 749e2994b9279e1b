"""Seconds in which random graphs are made, and made and packed, on the host or on GPUs.

Rows are made once without a use, which loads and compiles all;
then in turn without a use and packed in host memory, as often as is asked for. ``peak_bytes`` is the largest resident memory of
the process until then, so that scales are best given in ascending order.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import ooc_chol as oc
from benchmarks.running import Options, Parser, both_seconds

FOLDER = "sparse"
MAKERS = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}


def timed(step: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of a step by the clock and of the processor, and what it gives."""
    found, result = both_seconds(step)
    return {"seconds": found["seconds"], "cpu_seconds": found["processor_seconds"]}, result


def made(source: oc.testing.RandomGraph) -> tuple[int, int]:
    """Runs and entries of a graph, which nobody uses."""
    sizes = [len(rows.columns) for rows in source.runs()]
    return len(sizes), sum(sizes)


def packed(source: oc.testing.RandomGraph) -> dict[str, Any]:
    """What the blocks of a graph are, which are dropped."""
    with oc.block_csr(source) as matrix:
        kinds = sorted({block.kind.value for block in matrix.blocks.blocks})
        return {"blocks": len(matrix.blocks.blocks), "kinds": kinds, "packed_bytes": matrix.nbytes}


def measured(name: str, scale: int, options: Options) -> dict[str, Any]:
    """The line about one graph."""
    source = MAKERS[name](scale, seed=1, devices=options.devices, memory_budget=options.memory_budget)
    first, (runs, entries) = timed(lambda: made(source))
    making, packing, blocks = [], [], {}
    for _ in range(options.repeats):
        making.append(timed(lambda: made(source))[0])
        seconds, blocks = timed(lambda: packed(source))
        packing.append(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "graph": source.name,
        "devices": source.devices,
        "memory_budget": options.memory_budget,
        "runs": runs,
        "entries": entries,
        "counts": asdict(source.counts),
        "first": first,
        "making": making,
        "packing": packing,
        **blocks,
        "peak_bytes": peak,
    }


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--graphs", choices=MAKERS, nargs="+", default=list(MAKERS), help="kinds (default: both)")
    parser.takes(scales=[20], devices="host:0", memory_budget=None, repeats=5)


def run(options: Options) -> dict[str, Any]:
    """Measure every graph, one after the other."""
    lines = []
    for scale in options.scales:
        for name in options.graphs:
            lines.append(measured(name, scale, options))
            print(json.dumps(lines[-1]), flush=True)
    return {"lines": lines}
