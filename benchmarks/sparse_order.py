"""Products with R-MAT graphs whose vertices are numbered by degree, in one run of rows or in stripes, beside those as drawn.

Every graph is packed in host memory and multiplied in core, by ``oc.multiplier``: seconds of a product are those between
events, the least of all; beside them seconds of the processor, for hosts that others use, too. Then there are seconds of
packing; of a call with X and Y on the host, which a matrix that keeps an order (``block_csr(order="degree")``) permutes; and
the largest of the shares of 2 to 8 devices, times their number. Each scale is a result file, ``NAME-SCALE.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, both_seconds, in_turn
from ooc_chol.sparse.order import by_degree, count_into, inverse

FOLDER = "sparse"
#: Precision and columns.
CASES = [("FDF", 1), ("FDF", 8), ("DDD", 1), ("DDD", 4)]


def products(matrix: oc.BlockCSR, devices: Any, repeats: int) -> Iterator[dict[str, Any]]:
    """Least seconds of products and of whole calls; of the processor, what three more products take in one call."""
    for precision, columns in CASES:
        x = np.random.default_rng(1).random((matrix.shape[1], columns))
        with oc.multiplier(matrix, columns, precision=precision, devices=devices) as m:
            calls = {times: lambda times=times, m=m, x=x: both_seconds(lambda: m.apply(x, times=times))[0] for times in (1, 4)}
            taken = in_turn(calls, repeats)
            used = {times: min(each["processor_seconds"] for each in runs) for times, runs in taken.items()}
            found = {"seconds": min(m.report.scan_seconds[1:]), "call_seconds": min(each["seconds"] for each in taken[1])}
            found["processor_seconds"] = (used[4] - used[1]) / 3
        told = ", ".join(f"{name} {1e3 * seconds:.4g} ms" for name, seconds in found.items())
        print(f"  {precision} b = {columns}: {told}", flush=True)
        yield {"precision": precision, "columns": columns, **found}


def shares(matrix: oc.BlockCSR) -> dict[str, float]:
    """The largest share of so many devices, times their number: 1 is even."""
    blocks = matrix.blocks
    most = {
        count: max(sum(block.n_entries for block in blocks.blocks[span.start : span.stop]) for span in blocks.shares(count))
        for count in range(2, 9)
    }
    return {str(count): round(count * entries / matrix.nnz, 4) for count, entries in most.items()}


def numbered(graph: oc.testing.RandomGraph, stripes: Sequence[int]) -> Iterator[tuple[str, Callable[[], oc.BlockCSR]]]:
    """The graph as it is drawn, then numbered by degree in so many stripes, then packed with an order."""
    yield "as drawn", lambda: oc.block_csr(graph)
    degrees = np.zeros(graph.shape[0], np.int64)
    for run in graph.runs():
        count_into(degrees, run.columns)
    for count in stripes:
        table = inverse(by_degree(degrees.copy(), count))
        yield f"{count} stripes", lambda table=table: oc.block_csr(graph.numbered(table))
    yield 'rmat(order="degree")', lambda: oc.block_csr(oc.testing.rmat(graph.draw.scale, seed=graph.draw.seed, order="degree"))
    yield 'block_csr(order="degree")', lambda: oc.block_csr(graph, order="degree")


def cases(graph: oc.testing.RandomGraph, given: Options) -> Iterator[dict[str, Any]]:
    """All numberings of a graph."""
    for name, make in numbered(graph, given.stripes):
        seconds, matrix = both_seconds(make)
        print(f"{name}: packed, {seconds}, {len(matrix.blocks.blocks)} blocks", flush=True)
        with matrix:
            about = {**{f"packing_{what}": each for what, each in seconds.items()}, "shares": shares(matrix)}
            yield {"numbering": name, **about, "products": list(products(matrix, given.devices, given.repeats))}


TAKES = {"devices": "cuda:0", "scales": [22, 25], "stripes": [1, 8, 24, 512], "repeats": 5}


def files(options: Options) -> list[str]:
    """One for each scale."""
    return [f"{options.name or 'order'}-{scale}" for scale in options.scales]


def run(options: Options) -> None:
    """Measure every scale, a file each."""
    for scale, name in zip(options.scales, files(options), strict=True):
        graph = oc.testing.rmat(scale, seed=1)
        content = {"matrix": graph.name, "devices": ",".join(options.devices), "cases": list(cases(graph, options))}
        options.write(content, name)
