"""Seconds in which random graphs are made, and made and packed, on the host or on GPUs.

Rows are made once without a use, which loads and compiles all;
then in turn without a use and packed in host memory, as often as is asked for. ``peak_bytes`` is the largest resident memory of
the process until then, so that scales are best given in ascending order.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

import ooc_chol as oc
from benchmarks.running import Options, both_seconds, in_turn

FOLDER = "sparse"
MAKERS = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}


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
    first, (runs, entries) = both_seconds(lambda: made(source))
    steps = {"making": lambda: both_seconds(lambda: made(source)), "packing": lambda: both_seconds(lambda: packed(source))}
    found = in_turn(steps, options.repeats)
    return {
        "graph": source.name,
        "devices": source.devices,
        "memory_budget": options.memory_budget,
        "runs": runs,
        "entries": entries,
        "counts": asdict(source.counts),
        "first": first,
        **{step: [seconds for seconds, _ in each] for step, each in found.items()},
        **found["packing"][-1][1],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


TAKES = {"scales": [20], "graphs": tuple(MAKERS), "devices": "host:0", "memory_budget": None, "repeats": 5}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Measure every graph, one after the other."""
    for scale, name in product(options.scales, options.graphs):
        yield measured(name, scale, options)
