"""Whole calls, from the matrix as the user has it to the factor where the user wants it, beside what others take for the same.

Cases: ``cupy``, a CuPy array whose L stays on the GPU, beside ``cupy.linalg.cholesky``, and from 46,341 on cuSOLVER's 64-bit
call on a copy; ``numpy``, a NumPy array whose L comes back to the host, beside CuPy's round trip and LAPACK; ``host``, the same
on the host alone, beside LAPACK; ``function``, a tile function whose L stays on the GPU, beside the same matrix made whole and
factored by cuSOLVER. Ours and the others take turns, and everything is warm but for the first call, which is told apart. Each
case prints a JSON line a size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, Parser, chosen
from ooc_chol.bench.problem import CovarianceProblem

FOLDER = "wall"
SIZES = {
    "cupy": (64, 512, 2048, 4096, 8192, 16384, 32768, 65536),
    "numpy": (64, 512, 2048, 4096, 8192, 16384, 32768),
    "host": (10, 30, 100, 300, 1000, 2000, 4000, 8000),
    "function": (65536,),
}
#: Largest orders that CuPy's binding of cuSOLVER takes, and at which LAPACK on the host is waited for.
MOST_CUPY, MOST_LAPACK = 46340, 8192
#: Seconds that are spent on the small sizes: more repeats than are asked for.
LEAST_SECONDS = 0.5
#: Pause before each call from that order on: OpenBLAS's threads spin for 2^26 cycles after a call, on cores of the next one.
PAUSE_SECONDS, THREADED = 0.05, 256


def covariance(n: int) -> CovarianceProblem:
    """An exponential covariance of sites in the plane."""
    return CovarianceProblem(n, 0.1, 1e-4)


def whole(a: Any) -> Any:
    """Both triangles of a matrix of which the lower one is given, in place."""
    for start in range(0, len(a), 1024):
        stop = min(len(a), start + 1024)
        a[start:stop, stop:] = a[stop:, start:stop].T
        block = a[start:stop, start:stop]
        block[np.triu_indices(len(block), 1)] = block.T[np.triu_indices(len(block), 1)]
    return a


def in_turns(
    calls: dict[str, Callable[[], Any]], repeats: int, after: Callable[[], None], *, pause: float, note: Callable[[Any], None]
) -> dict[str, list[float]]:
    """Seconds of each call, one after the other in turns, ``after`` each of which nothing is under way; ``note`` sees ours."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    turns = 0
    while turns < repeats or (turns < 200 and time.perf_counter() - began < LEAST_SECONDS):
        for name, call in calls.items():
            after()
            time.sleep(pause)
            start = time.perf_counter()
            result = call()
            after()
            seconds[name].append(time.perf_counter() - start)
            if name == "ours":
                note(result)
            del result
        turns += 1
    return seconds


def measured(case: str, n: int, calls: dict[str, Callable[[], Any]], repeats: int, after: Callable[[], None]) -> dict[str, Any]:
    """One line: the first call, medians of the others, and seconds inside ours."""
    start = time.perf_counter()
    with calls["ours"]() as factor:
        after()
        first, engine, tile = time.perf_counter() - start, factor.report.plan.engine, factor.tile_size
        inner = [factor.report.inside_seconds]

    def note(found: Any) -> None:
        with found:
            inner.append(found.report.inside_seconds if n > 1024 else 0.0)

    for name, call in calls.items():
        if name != "ours":
            call()
    seconds = in_turns(calls, repeats, after, pause=0.0 if n < THREADED else PAUSE_SECONDS, note=note)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    others = [value for name, value in medians.items() if name != "ours"]
    ratio = medians["ours"] / min(others) if others else None
    inside = inner[1:] if n > 1024 else None
    return {
        "measured": case,
        **{"n": n, "engine": engine, "tile_size": tile, "first_call": first, "wall_seconds": seconds, "inner_seconds": inside},
        **{"medians": medians, "ours_over_fastest": ratio},
        "wall_over_inner": medians["ours"] / float(np.median(inside)) if inside else None,
    }


def cupy_case(n: int, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """A CuPy array whose L stays."""
    import cupy as cp

    a: Any = cp.empty((n, n))
    covariance(n).cuda_tile()(range(n), range(n), a, cp.cuda.get_current_stream())
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: oc.cholesky(a, **options)}
    if n <= MOST_CUPY:
        calls["cupy.linalg.cholesky"] = lambda: cp.linalg.cholesky(a)
    else:
        calls["cuSOLVER, 64 bits, on a copy"] = lambda: copied_and_factored(a)
    try:
        return measured("cupy", n, calls, repeats, cp.cuda.Device().synchronize)
    finally:
        calls.clear()
        a = None
        cp.get_default_memory_pool().free_all_blocks()


def copied_and_factored(a: Any) -> Any:
    """CuSOLVER's Xpotrf, lower and column-major, in place of a copy of ``a``."""
    import cupy as cp
    from nvmath.bindings import cusolverDn

    n, stream = len(a), cp.cuda.get_current_stream()
    memory = cp.cuda.Memory(8 * n * n)
    copy = cp.ndarray((n, n), cp.float64, cp.cuda.MemoryPointer(memory, 0))
    cp.copyto(copy, a)
    solver, params = cusolverDn.create(), cusolverDn.create_params()
    on_device, on_host = cusolverDn.xpotrf_buffer_size(solver, params, 0, n, 1, copy.data.ptr, n, 1)
    buffer, host, info = cp.empty(max(1, on_device), cp.uint8), np.empty(max(1, on_host), np.uint8), cp.zeros(1, cp.int32)
    cusolverDn.set_stream(solver, stream.ptr)
    cusolverDn.xpotrf(
        solver, params, 0, n, 1, copy.data.ptr, n, 1, buffer.data.ptr, on_device, host.ctypes.data, on_host, info.data.ptr
    )
    stream.synchronize()
    cusolverDn.destroy_params(params)
    cusolverDn.destroy(solver)
    return copy


def numpy_case(n: int, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """A NumPy array whose L is in host memory afterwards."""
    import cupy as cp

    a = whole(covariance(n).array(8))
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: oc.cholesky(a, **options, store="host")}
    calls["CuPy and back"] = lambda: cp.asnumpy(cp.linalg.cholesky(cp.asarray(a)))
    if n <= MOST_LAPACK:
        calls["numpy.linalg.cholesky"] = lambda: np.linalg.cholesky(a)
    line = measured("numpy", n, calls, repeats, cp.cuda.Device().synchronize)
    cp.get_default_memory_pool().free_all_blocks()
    return line


def host_case(n: int, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """A NumPy array on the host alone."""
    import scipy.linalg

    a = whole(covariance(n).array(2))
    calls = {
        "ours": lambda: oc.cholesky(a, **{**options, "devices": "host:0"}),
        "numpy.linalg.cholesky": lambda: np.linalg.cholesky(a),
        "scipy.linalg.cholesky": lambda: scipy.linalg.cholesky(a, lower=True),
    }
    return measured("host", n, calls, repeats, lambda: None)


def function_case(n: int, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """A tile function, L on the GPU; the peer makes the matrix whole and leaves L on the GPU."""
    import cupy as cp

    def made() -> Any:
        problem = covariance(n)
        return oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())

    calls: dict[str, Callable[[], Any]] = {"ours": lambda: oc.cholesky(made(), **options)}
    if n <= 122_880:
        from ooc_chol.bench.cuda.libraries import xpotrf_seconds

        calls["made whole, cuSOLVER in place"] = lambda: xpotrf_seconds(n, covariance(n).cuda_tile(), 1)
    return measured("function", n, calls, repeats, cp.cuda.Device().synchronize)


CASES = {"cupy": cupy_case, "numpy": numpy_case, "host": host_case, "function": function_case}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("cases", nargs="+", choices=tuple(CASES))
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.takes(repeats=5)
    oc.FactorOptions.add_arguments(parser)


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Measure the cases that are named."""
    how = chosen(options)
    options.devices = ("host:0",) if options.cases == ["host"] else ("cuda:0",)
    options.about = {"options": {name: str(value) for name, value in how.items()}}
    for case in options.cases:
        for n in options.sizes or SIZES[case]:
            yield CASES[case](n, options.repeats, how)
