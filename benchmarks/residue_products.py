"""Products through residues on Hopper: reduced in registers beside sums in int32, alone and in whole calls.

    python -m benchmarks residue_products --name h200-registers

A line of products is one shape of 13 planes: TFLOP/s of the FP64 product that they stand for, and picoseconds an entry of
reconstruction. A line of calls is the wall clock of each call but the first, joules and the log-determinant, whose bits must be
those of the other form. DGEMM stands beside, measured before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from statistics import median
from types import SimpleNamespace
from typing import Any

import ooc_chol as oc
from benchmarks.matrices import Line
from benchmarks.matrix_types import RANGE, dgemm
from benchmarks.mixed_families import FAMILIES, source
from benchmarks.running import Later, Options, seconds_of
from ooc_chol.bench.meters import meter_for
from ooc_chol.dense.planner.kept_plans import KEPT_PLANS
from ooc_chol.kernels.cuda import CUBLAS_WORKSPACE_BYTES

FOLDER = "residue_rates"
cp, handles, residues = map(Later, ("cupy", "ooc_chol.kernels.cuda.handles", "ooc_chol.kernels.cuda.residues"))
PLANES = 13
SHAPES = [
    (2048, 16384, 32768),
    (2048, 8192, 32768),
    (2048, 16384, 8192),
    (2048, 8192, 4096),
    (2048, 2048, 8192),
    (2048, 2048, 2048),
]
#: Order, options and what A is, by case.
CALLS: dict[str, tuple[int, dict[str, Any], Callable[[int], Any]]] = {
    "residue 131,072": (131072, {"fp64": "residue", "memory_budget": "32 GiB"}, lambda n: source(n, *FAMILIES["rq 30"])),
    "residue 163,840": (163840, {"fp64": "residue", "memory_budget": "48 GiB"}, lambda n: source(n, *FAMILIES["rq 30"])),
    "strong 1e-8": (131072, {"precision_threshold": 1e-8}, lambda n: source(n, *FAMILIES["ex 10"])),
    "complex128": (65536, {"fp64": "residue", "dtype": "complex128"}, lambda n: Line(n, RANGE, dtype="complex128").source()),
    "float32": (131072, {"fp64": "residue", "dtype": "float32"}, lambda n: Line(n, RANGE, dtype="float32").source()),
}
#: Seconds of the products of one shape before they are timed, and while they are.
_WARM, _TIMED = 0.5, 1.0
TAKES = {"devices": "cuda:0", "cases": ("products", *CALLS), "n": int, "repeats": 3}
FORMS = ("int32", "int8")


@contextmanager
def form_of(form: str) -> Iterator[None]:
    """Plans whose products leave sums in int32, as on GPUs before and after Hopper, or residues in int8."""
    places = [import_module(f"ooc_chol.dense.planner.{name}") for name in ("residues", "residue_tiles")]
    before = [place.folds_products for place in places]
    try:
        for place in places if form == "int32" else ():
            place.folds_products = lambda names: False
        yield
    finally:
        for place, function in zip(places, before, strict=True):
            place.folds_products = function


def products(shape: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Both forms of the products of one shape, on the current device."""
    rows, cols, inner = shape
    workspace, stream = cp.cuda.Memory(CUBLAS_WORKSPACE_BYTES), SimpleNamespace(name="products", stream=cp.cuda.Stream())
    kernels = residues.CudaResidueKernels(PLANES)
    with closing(handles.BlasHandle([workspace.ptr])) as blas, closing(kernels):
        kernels.bind(blas)
        kernels.open(rows + cols)
        left, right = (cp.random.randint(-127, 128, (PLANES, order, inner), dtype=cp.int8) for order in (rows, cols))
        tile = cp.zeros((rows, rows))
        for form in FORMS:
            sums = cp.zeros((PLANES, rows, cols), dtype=form)
            cp.cuda.Device().synchronize()
            multiply = partial(kernels.product, stream, sums, left, right, accumulates=True, lower=False)
            build = partial(kernels.reconstruct, stream, sums[:, :, :rows], tile, range(rows), range(rows, 2 * rows))
            one = _seconds(stream, multiply, 2)
            _seconds(stream, multiply, max(1, round(_WARM / one)))
            each = _seconds(stream, multiply, max(2, round(_TIMED / one)))
            built = 1e12 * _seconds(stream, build, 50) / rows**2
            rate = 2e-12 * rows * cols * inner / each
            yield {"measured": "products", "shape": shape, "form": form, "tflops": rate, "reconstruct_ps": built}


def _seconds(stream: Any, call: Callable[[], None], times: int) -> float:
    """Seconds of each of several calls on a stream."""
    call()
    stream.stream.synchronize()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record(stream.stream)
    for _ in range(times):
        call()
    end.record(stream.stream)
    end.synchronize()
    return 1e-3 * float(cp.cuda.get_elapsed_time(start, end)) / times


def calls(options: Options, name: str) -> Iterator[dict[str, Any]]:
    """Both forms of one case of whole calls."""
    n, how, matrix = CALLS[name]
    n = options.n or n
    a, flops = matrix(n), (4 if "complex" in how.get("dtype", "") else 1) * n**3 / 3
    for form in FORMS:
        with form_of(form):
            KEPT_PLANS.clear()
            walls, joules, bits = [], [], ""
            for _ in range(options.repeats + 1):
                with meter_for([options.device]) as meter:
                    wall, factor = seconds_of(lambda: oc.cholesky(a, devices=options.device, progress=meter.sample, **how))
                with factor:
                    plan, bits = factor.report.plan, factor.logdet().hex()
                walls.append(wall)
                joules.append(meter.figures().get("joules"))
        walls, joules = walls[1:], [each for each in joules[1:] if each is not None]
        yield {
            "measured": name,
            "n": n,
            "form": form,
            "engine": plan.engine,
            "folds": bool(getattr(plan.layout, "folds", False)),
            "walls": walls,
            "tflops": 1e-12 * flops / median(walls),
            "joules": median(joules) if joules else None,
            "bits": bits,
        }


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Products by shape, and whole calls."""
    options.about = {"devices": list(options.devices)}
    yield {"measured": "DGEMM", "tflops": dgemm(options.device)}
    wrong = []
    for name in options.cases:
        if name == "products":
            for shape in SHAPES if options.on_gpu else []:
                yield from products(shape)
            continue
        found = list(calls(options, name))
        yield from found
        wrong += [] if len({each["bits"] for each in found}) == 1 else [name]
    yield {"measured": "DGEMM", "tflops": dgemm(options.device)}
    if wrong:
        sys.exit(f"other bits by one form than by the other: {', '.join(wrong)}")
