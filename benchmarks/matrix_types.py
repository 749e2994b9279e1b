"""Factors of complex128 and float32 matrices, through residues and in the GPU's own arithmetic, beside cuSOLVER's Xpotrf.

The matrix is made by a tile function: an exponential covariance of places on a line, with phases where it is complex. L goes to
host memory or stays on the device. Each type, engine and place is a result file, ``NAME-TYPE-ENGINE-PLACE.json``, written as
soon as it is measured: DGEMM before and after, one call that is not counted, the repeats, the INT8 products behind residues at
the same number of planes, and the sampled residual. cuSOLVER factors the same matrix in place, generation apart, once a type. A
type's flops are those of real numbers: n**3 / 3, and four times as many of complex ones.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.running import Options, Parser, chosen, seconds_of
from ooc_chol.bench.meters import meter_for
from ooc_chol.bench.results import run_figures
from ooc_chol.formats import TYPES

FOLDER = "types"
#: Orders at which a square of the type takes half of an H200's memory.
ORDERS = {"complex128": 65536, "float32": 131072, "complex64": 92672, "float64": 92672}
#: Where L goes, in the words of ``store=``.
PLACES = ("host", "device")
RANGE = 64.0
#: Order and K of the products that are the yardstick, and seconds of each.
TILE, INNER, YARDSTICK_SECONDS = 2048, 16384, 3.0


def dgemm(device: str) -> float:
    """TFLOP/s of DGEMM on the device."""
    left, right = (np.random.default_rng(seed).standard_normal((TILE, TILE)) for seed in range(2))
    if device.startswith("cuda"):
        from ooc_chol.bench.cuda.product_rates import dgemm_tflops

        return dgemm_tflops(left, right, YARDSTICK_SECONDS, [device])[0]
    return 2e-12 * TILE**3 / seconds_of(lambda: left @ right.T)[0]


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
        seconds = with_device(device, lambda: xpotrf_seconds(n, Line(n, RANGE, dtype=dtype).on_device(), repeats, dtype))
    except (RuntimeError, MemoryError, oc.OocCholError) as error:  # too little memory for the whole matrix
        return [found | {"error": f"{type(error).__name__}: {error}"}]
    return [found | {"seconds": seconds, "tflops": TYPES[dtype].flops_factor * n**3 / 3e12 / min(seconds)}]


def one_call(a: Any, device: str, options: dict[str, Any]) -> tuple[oc.CholeskyFactor, dict[str, Any]]:
    """A factor, and the figures of its call."""
    with meter_for([device]) as meter:
        wall, factor = seconds_of(lambda: oc.cholesky(a, devices=device, progress=meter.sample, **options))
    return factor, run_figures(factor.report) | meter.figures() | {"wall_seconds": wall}


def measured(name: str, n: int, dtype: str, engine: str, place: str, *, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """The content of one result file but for its peers."""
    device, line, fmt = options.pop("devices"), Line(n, RANGE, dtype=dtype), TYPES[dtype]
    a = line.source()
    options = {"dtype": dtype, "fp64": engine, "store": place, **options}
    rates = {"before": dgemm(device)}
    one_call(a, device, options)[0].close()
    runs = []
    for repeat in range(repeats):
        factor, run = one_call(a, device, options)
        runs.append(run)
        rate = fmt.flops_factor * n**3 / 3e12 / run["seconds"]
        inside = f"{run['seconds']:.4g} inside ({rate:.4g} TFLOP/s)"
        print(f"{name}: {run['wall_seconds']:.4g} s for the whole call, {inside}", flush=True)
        if repeat < repeats - 1:
            factor.close()
    rates["after"] = dgemm(device)
    with factor:
        plan, sample = factor.report.plan, factor.residual(line.block, blocks=200)
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
        "covariance": line.name,
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
    parser.takes(engines=("residue", "native", "auto"), places=PLACES, repeats=3)
    parser.set_defaults(engines=["residue", "native"])
    parser.add_argument("--types", nargs="+", choices=tuple(ORDERS), default=["complex128", "float32"])
    parser.add_argument("--n", type=int, help="order of every matrix; by default half of an H200's memory as a square")
    parser.add_argument("--peer-repeats", type=int, default=2, help="calls of cuSOLVER; 0 leaves it out")
    oc.FactorOptions.add_arguments(parser, without=("dtype", "fp64"))


def files(options: Options) -> list[str]:
    """One for each type, engine and place."""
    kinds = itertools.product([options.name or "types"], options.types, options.engines, options.places)
    return ["-".join(kind) for kind in kinds]


def run(options: Options) -> None:
    """Measure every type, engine and place, a file each."""
    how = chosen(options)
    device = how["devices"] = (how.get("devices") or ["cuda:0"])[0]
    options.devices = (device,)
    names = iter(files(options))
    for dtype in options.types:
        n = options.n or ORDERS[dtype]
        beside = peers(n, dtype, device, options.peer_repeats) if options.peer_repeats else []
        print(f"{dtype}, n = {n}: {beside}", flush=True)
        for engine, place in itertools.product(options.engines, options.places):
            name = next(names)
            content = measured(name, n, dtype, engine, place, repeats=options.repeats, options=dict(how))
            options.write(content | {"peers": beside}, name)
