"""What a user waits for in a new process: importing, the first factorization, the second one.

A process imports NumPy, then ooc_chol, and factors a matrix
twice: a NumPy array on the host and, with --devices, a CuPy array and a device function there. It does so with warm caches on
disk, which the first process of each case fills and is not counted, and with cold ones: no bytecode of Python's modules, no
kernels of CuPy and the driver, no rates. Pages of files stay in the system's cache in both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process that is measured imports what it measures and no more
    from benchmarks.running import Options

FOLDER = "wall"

#: Cases by name, and whether they need a GPU.
CASES = {"numpy-array": False, "cupy-array": True, "device-function": True}
#: Variables that name folders of caches: Python's bytecode, CuPy's kernels, the driver's, our rates.
CACHES = ("PYTHONPYCACHEPREFIX", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "OOC_CHOL_CACHE")
#: Nugget of the covariance of sites on a line.
NUGGET = 1e-2


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a step, and what it gives."""
    began = time.perf_counter()
    result = step()
    return time.perf_counter() - began, result


def import_numpy() -> Any:
    """NumPy, and a first product, which starts the threads of its BLAS."""
    import numpy as np

    return np.ones((2, 2)) @ np.ones((2, 2))


def import_package() -> Any:
    """The package; its modules are imported by the first call."""
    import ooc_chol

    return ooc_chol


def matrix(case: str, n: int) -> Any:
    """An exponential covariance of sites on a line: an array of NumPy or CuPy, or a function that makes it on the GPU."""
    if case == "device-function":
        from ooc_chol.bench.problem import CovarianceProblem

        import_package()
        problem = CovarianceProblem(n)
        return import_package().from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    import numpy as np

    if case == "cupy-array":
        import cupy as cp

        at = cp.arange(n, dtype=cp.float64)
        a = cp.exp(-cp.abs(at[:, None] - at[None, :]) / 50) + NUGGET * cp.eye(n)
        cp.cuda.Device().synchronize()
        return a
    at = np.arange(n)
    return np.exp(-np.abs(np.subtract.outer(at, at)) / 50) + NUGGET * np.eye(n)


def measure(case: str, n: int, devices: str) -> dict[str, Any]:
    """Everything in this process, which must be new; making the matrix is not counted, but where it imports CuPy said."""
    numpy_seconds, _ = timed(import_numpy)
    import_seconds, oc = timed(import_package)
    matrix_seconds, a = timed(lambda: matrix(case, n))
    calls, report = [], {}
    for _ in range(2):
        seconds, factor = timed(lambda: oc.cholesky(a, devices=devices))
        calls.append(seconds)
        report = factor.report.to_dict()
        factor.close()
    return {
        "import_numpy_seconds": numpy_seconds,
        "import_seconds": import_seconds,
        "matrix_seconds": matrix_seconds,
        "first_call_seconds": calls[0],
        "second_call_seconds": calls[1],
        "run_seconds": report["inside_seconds"],
        "engine": report["engine"],
        "tile_size": report["tile_size"],
        "modules": len(sys.modules),
    }


def in_a_new_process(case: str, n: int, devices: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What :func:`measure` finds there, and the seconds of the whole process."""
    from benchmarks.running import environment_apart, words_apart

    words, own = words_apart(measure, case, n, devices), {**environment_apart(), **environment}
    seconds, done = timed(lambda: subprocess.run(words, env=own, capture_output=True, text=True, check=False))
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return {**json.loads(done.stdout), "process_seconds": seconds}


def runs(case: str, n: int, devices: str, repeats: int) -> Iterator[dict[str, Any]]:
    """All processes of a case: with warm caches in a folder that one more process fills, then each with an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats + 1):
            found = in_a_new_process(case, n, devices, caches_in(Path(folder)))
            if number > 0:
                yield {"caches": "warm", **found}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            yield {"caches": "cold", **in_a_new_process(case, n, devices, caches_in(Path(folder)))}


def caches_in(folder: Path) -> dict[str, str]:
    """Variables that place every cache in a folder; bytecode is written whatever the shell says."""
    return {name: str(folder / name.lower()) for name in CACHES} | {"PYTHONDONTWRITEBYTECODE": ""}


TAKES = {"n": 1000, "devices": None, "repeats": 5}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Measure every case, each process after the other."""
    options.about = {"n": options.n}
    for case, needs_gpu in CASES.items():
        if not needs_gpu or options.devices:
            devices = options.device if needs_gpu else "host:0"
            for found in runs(case, options.n, devices, options.repeats):
                yield {"case": case, "devices": devices, "n": options.n, **found}
