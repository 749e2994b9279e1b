"""Kernels on panels of vectors: inner products, updates and rotations of a basis, beside a copy and, on a GPU, cuBLAS.

For each precision and width of panels a basis of so many columns and 2**scale rows is filled with random numbers; then are
timed ``gram``, ``add_partials``, ``subtract``, and ``combine`` in place to 0.6 of the columns, and once for each width what
works on one panel. Bytes are those of the basis and W, each counted once (W twice where it is written too). Peers are cuBLAS's
DGEMM of the same shapes in float64. On the host the device is ``host:0``, its threads those of ``--threads``, and scales of 18
to 20 are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.places import Place, place_of
from benchmarks.running import Options
from ooc_chol.kernels.registry import panel_kernels
from ooc_chol.precision.triples import Precision

FOLDER = "sparse"
CASES = [
    *((Precision.FDF, block) for block in (8, 4, 2, 1)),
    (Precision.DDD, 8),
    (Precision.DDD, 1),
    (Precision.FFF, 8),
    (Precision.FFF, 1),
]
COPY_BYTES = 1 << 30
#: Share of the columns that a restart keeps, about.
KEPT = 0.6


def copy_seconds(of: Place, repeats: int) -> float:
    """Least seconds of a copy on the device."""
    a, b = (of.xp.ones(COPY_BYTES, np.uint8) for _ in range(2))
    return min(of.seconds(lambda: of.xp.copyto(b, a), repeats))


def timed(of: Place, kernels: Any, basis: Any, w: Any, repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds of the kernels that read the basis, and of the sum over chunks."""
    p, n, b = basis.shape
    xp, stream, compute = of.xp, of.stream, kernels.precision.compute
    partial = xp.zeros((-(-n // kernels.chunk_rows), p * b, b), compute)
    sums, coefficients = xp.zeros((p * b, b), compute), xp.full((p * b, b), 1e-9, compute)
    q = max(1, int(KEPT * p))
    rotation = xp.full((p * b, q * b), 1e-2, compute)
    calls = {
        "gram": (lambda: kernels.gram(stream, basis, w, partial), basis.nbytes + w.nbytes),
        "add_partials": (lambda: kernels.add_partials(stream, [partial], sums), partial.nbytes),
        "subtract": (lambda: kernels.subtract(stream, basis, coefficients, w), basis.nbytes + 2 * w.nbytes),
        "combine": (lambda: kernels.combine(stream, basis, rotation, basis[:q]), basis.nbytes + q * w.nbytes),
    }
    for name, (run, nbytes) in calls.items():
        found = of.seconds(run, repeats)
        flops = 2 * n * p * b * b * (q if name == "combine" else 1)
        print(f"    {name:12} {1e3 * min(found):9.3f} ms {1e-9 * nbytes / min(found):8.0f} GB/s", flush=True)
        yield {"kernel": name, "seconds": found, "bytes": nbytes, "flops": 0 if name == "add_partials" else flops}


def one_panel(of: Place, kernels: Any, w: Any, repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds of what is done with one panel and with small matrices."""
    xp, stream, b = of.xp, of.stream, kernels.block
    unit, small = xp.eye(b, dtype=kernels.precision.compute), xp.zeros((2, b, b), kernels.precision.compute)
    dependent = xp.zeros(b, np.uint32)
    calls = {
        "fill_random": lambda: kernels.fill_random(stream, w, 0, 3),
        "multiply_right": lambda: kernels.multiply_right(stream, w, unit, w),
        "factor": lambda: kernels.factor(stream, unit, small[0], small[1], dependent, tolerance=1e-12),
    }
    for name, run in calls.items():
        found = of.seconds(run, repeats)
        print(f"    {name:12} {1e3 * min(found):9.3f} ms", flush=True)
        yield {"kernel": name, "seconds": found}


def peers(of: Place, basis: Any, repeats: int) -> Iterator[dict[str, Any]]:
    """Products by cuBLAS of a matrix of the basis' shape: V.T W with the columns of V side by side, and V C."""
    cp = of.xp
    p, n, b = basis.shape
    v = basis.reshape(p * b, n)  # other numbers of the same memory: columns one after the other
    w, c = cp.ones((n, b)), cp.full((p * b, b), 1e-9)
    for name, run in (("V.T @ W", lambda: v @ w), ("V @ C", lambda: v.T @ c)):
        found = of.seconds(run, repeats)
        print(f"    cuBLAS {name:8} {1e3 * min(found):6.3f} ms", flush=True)
        yield {"peer": "cuBLAS", "product": name, "seconds": found}


def cases(of: Place, given: Options) -> Iterator[dict[str, Any]]:
    """Every precision, width, height and number of columns."""
    for precision, block in CASES:
        kernels = panel_kernels(given.device, precision, block, given.threads)
        for scale in given.scales:
            w = of.xp.zeros((1 << scale, block), precision.storage)
            for columns in given.columns:
                print(f"  {precision.value} b = {block}, {columns} columns, 2**{scale} rows", flush=True)
                basis = of.xp.empty((columns // block, *w.shape), precision.storage)
                for panel in range(len(basis)):
                    kernels.fill_random(of.stream, basis[panel], 0, panel)
                about = {"precision": precision.value, "block": block, "columns": columns, "rows": len(w)}
                found = [*timed(of, kernels, basis, w, given.repeats)]
                if columns == given.columns[0]:
                    found += one_panel(of, kernels, w, given.repeats)
                if of.on_gpu and precision is Precision.DDD and block == 8:
                    found += peers(of, basis, given.repeats)
                yield {**about, "kernels": found}
                del basis
        kernels.close()


TAKES = {"devices": "cuda:0", "threads": 1, "scales": [22, 25], "columns": [24, 56, 120, 144], "repeats": 5}


def run(options: Options) -> dict[str, Any]:
    """Time all kernels."""
    of = place_of(options.device)
    copy = copy_seconds(of, options.repeats)
    print(f"copy: {2e-9 * COPY_BYTES / copy:.0f} GB/s, both ways counted", flush=True)
    about = {"device": options.device, "threads": options.threads, "copy_bytes_per_second": 2 * COPY_BYTES / copy}
    return about | {"cases": list(cases(of, options))}
