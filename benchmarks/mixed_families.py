"""Mixed precision beside FP64 over covariances that no test has: whole calls, first and second, and what was decided.

    python -m benchmarks mixed_families --name h100-65536 --n 65536 --thresholds 1e-3 1e-5 1e-8

Per family and threshold the wall clock of each call, its ratio to FP64's in the same run (medians of the calls behind the
first, and first over first), the certified bound, formats, moduli and the share of products in FP16. Rates are measured first,
quickly. Families are exponential (``ex``) and rational quadratic (``rq``) covariances of random sites of the unit cube in
Morton order, made on the GPU.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from benchmarks.running import Options, Parser, event_seconds, seconds_of

FOLDER = "mixed_families"
FAMILIES = {
    "ex 200": ("ex", 200.0, 1e-6),
    "ex 50": ("ex", 50.0, 1e-4),
    "ex 10": ("ex", 10.0, 1e-6),
    "rq 30": ("rq", 30.0, 1e-4),
    "rq 3000": ("rq", 3000.0, 1e-3),
}
_KERNEL = r"""
extern "C" __global__ void %s(double* out, int rows, int cols, long long row0, long long col0,
                              const double* __restrict__ x, double s, double nugget) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    double d = 0.0;
    for (int k = 0; k < 3; ++k) { const double e = x[3 * i + k] - x[3 * j + k]; d += e * e; }
    out[(long long)r * cols + c] = %s + (i == j ? nugget : 0.0);
}
"""
_VALUES = {"ex": "exp(-s * sqrt(d))", "rq": "1.0 / ((1.0 + s * d) * (1.0 + s * d))"}


def sites(n: int, seed: int = 17) -> NDArray[np.float64]:
    """Random sites of the unit cube in Morton order."""
    points = np.random.default_rng(seed).random((n, 3))
    cells, key = (points * 1023).astype(np.int64), np.zeros(n, np.int64)
    for bit in range(10):
        for axis in range(3):
            key |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.ascontiguousarray(points[np.argsort(key)])


def source(n: int, kind: str, s: float, nugget: float) -> Any:
    """The covariance as a function of the package."""
    x = sites(n)

    def host(rows: range, cols: range, out: Any, stream: Any = None) -> None:
        d = np.square(x[rows.start : rows.stop, None] - x[None, cols.start : cols.stop]).sum(-1)
        out[...] = 1.0 / np.square(1.0 + s * d) if kind == "rq" else np.exp(-s * np.sqrt(d))
        both = np.arange(max(rows.start, cols.start), min(rows.stop, cols.stop))
        out[both - rows.start, both - cols.start] += nugget

    return oc.from_function(n, host, cuda=tb.cuda_source(_KERNEL % (kind, _VALUES[kind]), kind, x, s, nugget))


def measured(a: Any, threshold: float | None, calls: int, options: dict[str, Any], rest: float = 0.0) -> dict[str, Any]:
    """Some calls, one after the other, and what the last one reports; ``rest`` seconds before the first."""
    walls, inner = [], []
    time.sleep(rest)
    for _ in range(calls):
        wall, factor = seconds_of(lambda: oc.cholesky(a, threshold, **options))
        walls.append(wall)
        with factor:
            report, formats, key = factor.report, dict(factor.formats), factor.arithmetic_key
        inner.append(report.inside_seconds)
    bound = report.certified_bound
    return {
        "device_model": key["device_model"],
        "walls": walls,
        "inner": inner,
        "wall": statistics.median(walls[1:] or walls),
        "predicted": report.seconds.predicted,
        "moduli": report.plan.moduli,
        "half_share": report.half_share,
        "formats": formats,
        "escalations": [str(step) for step in report.escalations],
        "bound": None if bound is None else float(bound),
        "bound_by": None if bound is None else "random vectors" if bound.probes else "FP64's model",
        "candidates": [str(each) for each in report.plan.candidates],
    }


def dgemm_tflops(n: int = 8192, times: int = 5) -> float:
    """CuBLAS's DGEMM on the first GPU, beside which the seconds are to be read."""
    import cupy as cp

    with cp.cuda.Device(0):
        a, out = cp.random.random((n, n)), cp.empty((n, n))
        (seconds,) = event_seconds(lambda: cp.matmul(a, a, out=out), 1, times)
        a = out = None
        cp.get_default_memory_pool().free_all_blocks()
    return 2e-12 * n**3 / seconds


def quick_rates() -> None:
    """Measure rates for plans in a second or two."""
    subprocess.run([sys.executable, "-m", "ooc_chol", "bench", "rates", "--quick"], stdout=subprocess.DEVNULL, check=False)


def warm(devices: Any) -> None:
    """Load the kernels of every number of moduli, which a process does once."""
    a = source(8192, *FAMILIES["ex 200"])
    for moduli in range(4, 15):
        options = {"moduli": moduli, "fp64": "residue", "half_products": True, "tile_size": 1024, "devices": devices}
        oc.cholesky(a, 1e-2, **options).close()
    oc.cholesky(source(8192, *FAMILIES["rq 30"]), devices=devices).close()


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(n=65536, memory_budget="8 GiB", thresholds=[10.0**-e for e in range(3, 14)], devices="cuda:0", store=None)
    parser.takes(families=list(FAMILIES), keep_rates=False, no_fp64=False)
    parser.add_argument("--calls", type=int, default=4, help="calls of each, of which the first is told apart")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds before a first call: after 3 no host memory is kept")


def run(options: Options) -> None:
    """Measure every family at every threshold; the file is written after each."""
    warm(options.devices)
    if not options.keep_rates:
        quick_rates()
    how = {"memory_budget": options.memory_budget or None, "devices": options.devices, "store": options.store}
    found: dict[str, Any] = {name: getattr(options, name) for name in ("n", "devices", "store", "calls", "rest")}
    found |= {"budget": options.memory_budget, "dgemm_tflops": dgemm_tflops(), "families": {}}
    for name in options.families:
        a = source(options.n, *FAMILIES[name])
        rows: dict[str, Any] = {} if options.no_fp64 else {"fp64": measured(a, None, options.calls, how, options.rest)}
        found["families"][name] = rows
        for threshold in options.thresholds:
            try:
                row = measured(a, threshold, options.calls, how, options.rest)
                if "fp64" in rows:
                    row["over_fp64"] = row["wall"] / rows["fp64"]["wall"]
                    row["first_over_fp64"] = row["walls"][0] / rows["fp64"]["walls"][0]
            except oc.OocCholError as error:
                row = {"error": repr(error)}
            rows[f"{threshold:g}"] = row
            options.write(found)
            print(name, threshold, {key: row.get(key) for key in ("over_fp64", "first_over_fp64", "bound", "error")}, flush=True)
