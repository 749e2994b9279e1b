"""Eigenpairs of a random graph on two workers of this machine, beside one process with as many threads, or with the same GPUs.

The graph is R-MAT, packed in a file that all read; on GPUs tol is 1e-6 and the precision FDF. Calls take turns, behind a first
one of each that does not count. A line has seconds of whole calls and seconds of processors, of the process that calls and of
workers together, which other load of the machine does not change; and of the cluster what a product took its slowest worker,
what it waited beside, and bytes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options

FOLDER, NAME = "cluster", "products"


def processor_seconds(client: Any = None) -> float:
    """Seconds of processors of this process, and of all workers."""
    return time.process_time() + (0.0 if client is None else sum(client.run(time.process_time).values()))


def timed(path: Path, options: Options, client: Any) -> tuple[oc.Eigenpairs, dict[str, float]]:
    """Pairs, and what they took."""
    began, used, k = time.perf_counter(), processor_seconds(client), options.k
    of_workers = "cuda" if options.on_gpu else "host"
    devices = options.devices if client is None else of_workers
    how: dict[str, Any] = {"tol": 1e-6, "precision": "FDF"} if options.on_gpu else {}
    block = min(8, 1 << k.bit_length() - 1)
    pairs = oc.eigsh(str(path), k, block=block, ncv=13 * block, client=client, devices=devices, **how)
    seconds, used = time.perf_counter() - began, processor_seconds(client) - used
    told = {"seconds": seconds, "processor_seconds": used}
    if (done := pairs.report.cluster) is not None:
        told |= {"products": done.products, "worker_ms": 1e3 * done.worker_seconds / done.products}
        told |= {"beside_ms": 1e3 * done.network_seconds / done.products}
        names = ("sent_bytes", "returned_bytes", "exchanged_bytes", "matrix_bytes")
        told |= {name: getattr(done, name) for name in names}
    return pairs, told


TAKES = {"scale": 18, "k": 4, "repeats": 3, "devices": ("host:0",)}


def run(options: Options) -> int:
    """Measure, and tell; status 1 where bits differ."""
    with tempfile.TemporaryDirectory() as folder, oc.open_cluster("local:2") as client:
        path = Path(folder, "graph.oocsr")
        with oc.block_csr(oc.testing.rmat(options.scale, devices=options.devices), store=path) as graph:
            facts = {"n": graph.shape[0], "entries": graph.nnz, "blocks": len(graph.blocks.blocks), "nbytes": graph.nbytes}
        calls: dict[str, list[dict[str, float]]] = {"one": [], "cluster": []}
        for number in range(options.repeats + 1):
            one, first = timed(path, options, None)
            there, second = timed(path, options, client)
            if number:
                calls["one"].append(first)
                calls["cluster"].append(second)
            same = all(np.array_equal(*each) for each in zip(one, there, strict=True))
    for name, lines in calls.items():
        middle = {key: statistics.median(each[key] for each in lines) for key in lines[0]}
        print(name, *(f"{key} {value:.4g}" for key, value in middle.items()))
    options.write({"case": "cluster products", **facts, "k": options.k, "passes": one.report.passes, "same_bits": same, **calls})
    return int(not same)
