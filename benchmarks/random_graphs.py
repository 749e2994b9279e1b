"""Seconds in which random graphs are made, and made and packed, on the host or on GPUs.

    python benchmarks/random_graphs.py --scales 20 22 [--devices host:0] [--repeats 5] [--output FILE]
    python benchmarks/random_graphs.py --scales 22 25 27 --devices cuda:0 --repeats 3 --output FILE

Writes JSON lines: one about the machine, then one for each graph. Rows are made once without a use, which loads and compiles all;
then in turn without a use and packed in host memory, as often as is asked for. ``peak_bytes`` is the largest resident memory of
the process until then, so that scales are best given in ascending order.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ooc_chol as oc
from ooc_chol.bench.results import commit, machine

MAKERS = {"rmat": oc.rmat, "urand": oc.urand}


def timed(step: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of a step by the clock and of the processor, and what it gives."""
    began, used = time.perf_counter(), time.process_time()
    result = step()
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}, result


def made(source: oc.RandomGraph) -> tuple[int, int]:
    """Runs and entries of a graph, which nobody uses."""
    sizes = [len(rows.columns) for rows in source.runs()]
    return len(sizes), sum(sizes)


def packed(source: oc.RandomGraph) -> dict[str, Any]:
    """What the blocks of a graph are, which are dropped."""
    with oc.block_csr(source) as matrix:
        kinds = sorted({block.kind.value for block in matrix.blocks.blocks})
        return {"blocks": len(matrix.blocks.blocks), "kinds": kinds, "packed_bytes": matrix.nbytes}


def measured(name: str, scale: int, options: argparse.Namespace) -> dict[str, Any]:
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


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Everything that is written."""
    yield {"commit": commit(), "machine": machine(options.devices.startswith("cuda"))}
    for scale in options.scales:
        for name in options.graphs:
            yield measured(name, scale, options)


def main() -> None:
    """Measure every graph, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=int, nargs="+", default=[20], help="base-2 logarithms of vertices (default: 20)")
    parser.add_argument("--graphs", choices=MAKERS, nargs="+", default=list(MAKERS), help="kinds (default: both)")
    parser.add_argument("--devices", default="host:0", help="where graphs are made (default: host:0)")
    parser.add_argument("--memory-budget", help="bytes for drawn edges, such as '4 GiB'")
    parser.add_argument("--repeats", type=int, default=5, help="repeats (default: 5)")
    parser.add_argument("--output", type=Path, help="file for the lines (default: the standard output)")
    options = parser.parse_args()
    target = options.output.open("w", encoding="utf-8") if options.output else sys.stdout
    for line in lines(options):
        print(json.dumps(line), file=target, flush=True)


if __name__ == "__main__":
    main()
