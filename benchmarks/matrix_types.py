"""Factors of complex128 and float32 matrices, through residues and in the GPU's own arithmetic, beside cuSOLVER's Xpotrf.

The matrix is made by a tile function: an exponential covariance of places on a line, with phases where it is complex. L goes to
host memory or stays on the device. Each type, engine and place is a result file, ``NAME-TYPE-ENGINE-PLACE.json``, written as
soon as it is measured: DGEMM before and after, one call that is not counted, the repeats, the INT8 products behind residues at
the same number of planes, and the sampled residual. cuSOLVER factors the same matrix in place, generation apart, once a type. A
type's flops are those of real numbers: n**3 / 3, and four times as many of complex ones.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb
from benchmarks.running import Options, Parser
from ooc_chol.bench.meters import meter_for
from ooc_chol.bench.results import run_figures
from ooc_chol.formats import TYPES

FOLDER = "types"
#: Orders at which a square of the type takes half of an H200's memory.
ORDERS = {"complex128": 65536, "float32": 131072, "complex64": 92672, "float64": 92672}
#: Where L goes, by the word of the command line.
PLACES = {"host": None, "device": "device"}
#: Range of the correlation in columns, nugget, and phase from one column to the next.
RANGE, NUGGET, PHASE = 64.0, 1e-2, 0.3
#: Order and K of the products that are the yardstick, and seconds of each.
TILE, INNER, YARDSTICK_SECONDS = 2048, 16384, 3.0
_ENTRY = {
    "float32": ("float", "value"),
    "float64": ("double", "value"),
    "complex64": ("float2", "make_float2(value * cos(phase), value * sin(phase))"),
    "complex128": ("double2", "make_double2(value * cos(phase), value * sin(phase))"),
}
_CODE = r"""
extern "C" __global__ void line(TYPE* out, int rows, int cols, long long row0, long long col0, double range, double nugget,
                                double step)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols) {
        const double apart = (double)(row0 + r - col0 - c), phase = step * apart;
        const double value = exp(-fabs(apart) / range) + (apart == 0.0 ? nugget : 0.0);
        out[(long long)r * cols + c] = ENTRY;
    }
}
"""


def block(dtype: str, rows: slice, cols: slice) -> Any:
    """Rows and columns of the matrix, on the host."""
    apart = np.subtract.outer(np.arange(rows.start, rows.stop), np.arange(cols.start, cols.stop)).astype(float)
    value = np.exp(-np.abs(apart) / RANGE) + NUGGET * (apart == 0.0)
    return (value * np.exp(1j * PHASE * apart) if dtype.startswith("complex") else value).astype(dtype)


def on_device(dtype: str) -> Any:
    """The tile function in CUDA C."""
    kind, entry = _ENTRY[dtype]
    code = _CODE.replace("TYPE", kind).replace("ENTRY", entry)
    return tb.cuda_source(code, "line", RANGE, NUGGET, PHASE)


def source(n: int, dtype: str) -> Any:
    """The matrix as tile functions of host and device."""

    def fill(rows: range, cols: range, out: Any, stream: Any) -> None:
        out[...] = block(dtype, slice(rows.start, rows.stop), slice(cols.start, cols.stop))

    return oc.from_function(n, fill, cuda=on_device(dtype), dtype=dtype)


def dgemm(device: str) -> float:
    """TFLOP/s of DGEMM on the device."""
    left, right = (np.random.default_rng(seed).standard_normal((TILE, TILE)) for seed in range(2))
    if device.startswith("cuda"):
        from ooc_chol.bench.cuda.product_rates import dgemm_tflops

        return dgemm_tflops(left, right, YARDSTICK_SECONDS, [device])[0]
    began = time.perf_counter()
    left @ right.T
    return 2e-12 * TILE**3 / (time.perf_counter() - began)


def products(device: str, planes: int, flops_factor: int) -> float | None:
    """TFLOP/s of real numbers that INT8 products of so many planes stand for; None on the host, which has no such units."""
    if not device.startswith("cuda"):
        return None
    from ooc_chol.bench.cuda.product_rates import product_tflops

    return flops_factor * product_tflops(TILE, INNER, planes, seconds=YARDSTICK_SECONDS, devices=[device])[0]


def peers(n: int, dtype: str, device: str, repeats: int) -> list[dict[str, Any]]:
    """CuSOLVER's Xpotrf in place, on a GPU; the error where it fails."""
    if not device.startswith("cuda"):
        return []
    from ooc_chol.bench.cuda.devices import on_device as with_device
    from ooc_chol.bench.cuda.libraries import xpotrf_seconds

    found: dict[str, Any] = {"name": "cuSOLVER Xpotrf in place", "n": n, "devices": [device]}
    try:
        seconds = with_device(device, lambda: xpotrf_seconds(n, on_device(dtype), repeats, dtype))
    except (RuntimeError, MemoryError, oc.OocCholError) as error:  # too little memory for the whole matrix
        return [found | {"error": f"{type(error).__name__}: {error}"}]
    return [found | {"seconds": seconds, "tflops": TYPES[dtype].flops_factor * n**3 / 3e12 / min(seconds)}]


def one_call(a: Any, device: str, options: dict[str, Any]) -> tuple[oc.CholeskyFactor, dict[str, Any]]:
    """A factor, and the figures of its call."""
    with meter_for([device]) as meter:
        began = time.perf_counter()
        factor = oc.cholesky(a, devices=device, progress=meter.sample, **options)
        wall = time.perf_counter() - began
    return factor, run_figures(factor.report) | meter.figures() | {"wall_seconds": wall}


def measured(name: str, n: int, dtype: str, engine: str, place: str, *, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """The content of one result file but for its peers."""
    device, a, fmt = options.pop("devices"), source(n, dtype), TYPES[dtype]
    options = {"dtype": dtype, "fp64": engine, "store": PLACES[place], **options}
    rates = {"before": dgemm(device)}
    one_call(a, device, options)[0].close()
    runs = []
    for repeat in range(repeats):
        factor, run = one_call(a, device, options)
        runs.append(run)
        rate = fmt.flops_factor * n**3 / 3e12 / run["seconds"]
        print(
            f"{name}: {run['wall_seconds']:.4g} s for the whole call, {run['seconds']:.4g} inside ({rate:.4g} TFLOP/s)",
            flush=True,
        )
        if repeat < repeats - 1:
            factor.close()
    rates["after"] = dgemm(device)
    with factor:
        plan, sample = factor.report.plan, factor.residual(lambda rows, cols: block(dtype, rows, cols), blocks=200)
        logdet, planes = factor.logdet(), getattr(plan.layout, "planes", None)
    seconds, last = [run["seconds"] for run in runs], runs[-1]
    metered = [each for each in ("joules", "device_bytes", "clock_mhz") if each in last]
    return {
        "devices": [device],
        "n": n,
        "dtype": dtype,
        "tile_size": plan.grid.nb,
        "engine": plan.engine,
        "moduli": plan.moduli,
        "planes": planes,
        "precision_threshold": None,
        "policy": plan.policy.name,
        "covariance": f"exponential of places on a line, range {RANGE:g}, nugget {NUGGET:g}",
        "source": "device-function",
        "keeps_on_device": place == "device",
        "budget_bytes": int(last["budget_bytes"]),
        "warm_up": True,
        "seconds": seconds,
        "wall_seconds": [run["wall_seconds"] for run in runs],
        "predicted_seconds": last["predicted_seconds"],
        "tflops": fmt.flops_factor * n**3 / 3e12 / float(np.median(seconds)),
        "dgemm_tflops": rates,
        "product_tflops": None if planes is None else products(device, planes, fmt.flops_factor),
        "bytes": last["bytes"],
        "residual": {
            "max_scaled_over_sqrt_n": sample.max_scaled_over_sqrt_n, "floor": sample.floor, "blocks": sample.blocks
        },
        "certified_bound": None,
        "logdet": logdet,
        "exposed_copy_share": float(np.median([run["exposed_copy_share"] for run in runs])),
        **{each: [run[each] for run in runs] for each in metered},
    }  # fmt: skip


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(engines=("residue", "native", "auto"), places=tuple(PLACES), repeats=3)
    parser.set_defaults(engines=["residue", "native"])
    parser.add_argument("--types", nargs="+", choices=tuple(ORDERS), default=["complex128", "float32"])
    parser.add_argument("--n", type=int, help="order of every matrix; by default half of an H200's memory as a square")
    parser.add_argument("--peer-repeats", type=int, default=2, help="calls of cuSOLVER; 0 leaves it out")
    oc.FactorOptions.add_arguments(parser, without=("dtype", "fp64"))


def run(options: Options) -> None:
    """Measure every type, engine and place, a file each."""
    asked, defaults = oc.FactorOptions.from_arguments(options).keywords(), oc.FactorOptions().keywords()
    chosen = {name: value for name, value in asked.items() if value != defaults[name]}
    device = chosen["devices"] = (chosen.get("devices") or ["cuda:0"])[0]
    options.devices = (device,)
    for dtype in options.types:
        n = options.n or ORDERS[dtype]
        beside = peers(n, dtype, device, options.peer_repeats) if options.peer_repeats else []
        print(f"{dtype}, n = {n}: {beside}", flush=True)
        for engine, place in itertools.product(options.engines, options.places):
            name = f"{options.name or 'types'}-{dtype}-{engine}-{place}"
            content = measured(name, n, dtype, engine, place, repeats=options.repeats, options=dict(chosen))
            options.write(content | {"peers": beside}, name)
