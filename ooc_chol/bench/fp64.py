"""FP64 out of core on a GPU, beside DGEMM on tiles of the same factor and cuSOLVER in core, in one run."""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.config import commit_override, emulation_variables, parse_bytes
from ooc_chol.driver import cholesky
from ooc_chol.factor import CholeskyFactor
from ooc_chol.listing import devices as list_devices
from ooc_chol.memory.sources import from_function


@dataclass(frozen=True)
class Fp64Case:
    """One case to measure.

    Parameters
    ----------
    name : str
        Name of the case and of its file.
    n, tile_size : int
        Orders of the matrix and of a tile.
    budget : str
        Device memory.
    source : str
        ``"device-function"`` or ``"host-array"``.
    policy : str
        How tiles move.
    repeats : int
        Runs, after none that warms up: the libraries are loaded by the DGEMM before.
    peer_orders : tuple of int
        Orders at which cuSOLVER is measured.
    dgemm_seconds : float
        Seconds of DGEMM before, and again after; ten in all, so that the clock settles.
    device : str
        The GPU.
    """

    name: str
    n: int
    tile_size: int
    budget: str
    source: str = "device-function"
    policy: str = "planned"
    repeats: int = 3
    peer_orders: tuple[int, ...] = ()
    dgemm_seconds: float = 5.0
    device: str = "cuda:0"


def run_case(case: Fp64Case, folder: Path, trace: Path | None = None) -> dict[str, Any]:
    """Measure a case and write its JSON file.

    Parameters
    ----------
    case : Fp64Case
        What to measure.
    folder : Path
        Where the file goes.
    trace : Path or None
        Where the trace of the last repeat goes.

    Returns
    -------
    dict
        What was written.

    Raises
    ------
    ValueError
        cuBLAS emulation is switched on by the environment: native rates would not be native.
    """
    if emulation_variables():
        raise ValueError(f"{', '.join(emulation_variables())} would switch emulation on; unset before measuring native FP64")
    problem = CovarianceProblem(case.n)
    a: Any = _matrix(problem, case.source)
    warm = cholesky(
        from_function(4 * case.tile_size, problem.host_tile, cuda=problem.cuda_tile()),
        tile_size=case.tile_size,
        devices=case.device,
    )
    before = _dgemm(warm, case.dgemm_seconds)
    runs, factor = _repeat(case, a, trace is not None)
    after = _dgemm(factor, case.dgemm_seconds)
    result = _result(case, problem, runs, factor, (before, after))
    if trace is not None:
        factor.trace.save(trace)
    factor.close()
    result["peers"] = [_cusolver(problem, n) for n in case.peer_orders]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{case.name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _matrix(problem: CovarianceProblem, source: str) -> Any:
    """A as the case wants it."""
    if source == "host-array":
        return problem.array(os.cpu_count() or 1)
    if source == "device-function":
        return from_function(problem.n, problem.host_tile, cuda=problem.cuda_tile())
    raise ValueError(f"source is {source!r}; there are 'device-function' and 'host-array'")


def _dgemm(factor: CholeskyFactor, seconds: float) -> float:
    """DGEMM on two tiles of a factor, away from the diagonal."""
    measure = importlib.import_module("ooc_chol.kernels.cuda.measure")
    nb, rows = factor.tile_size, factor.n // factor.tile_size
    left, right = (factor.rows(range((rows - 1 - at) * nb, (rows - at) * nb), nb) for at in range(2))
    return float(measure.dgemm_tflops(left, right, seconds))


def _repeat(case: Fp64Case, a: Any, trace: bool) -> tuple[list[dict[str, Any]], CholeskyFactor]:
    """All repeats, and the factor of the last."""
    runs: list[dict[str, Any]] = []
    factor: CholeskyFactor | None = None
    for _ in range(case.repeats):
        if factor is not None:
            factor.close()
        with _energy(case.device) as joules, _device_memory(case.device) as (used, sample):
            began = time.perf_counter()
            factor = cholesky(
                a,
                tile_size=case.tile_size,
                memory_budget=case.budget,
                devices=case.device,
                policy=case.policy,
                trace=trace,
                progress=sample,
            )
            wall = time.perf_counter() - began
        runs.append({"wall_seconds": wall, "joules": joules[0], "device_bytes": max(used) - used[0]} | factor.report.to_dict())
        print(f"{case.name}: {factor.report.seconds:.2f} s, {factor.report.tflops:.2f} TFLOP/s", flush=True)
    assert factor is not None
    return runs, factor


@contextmanager
def _energy(device: str) -> Iterator[list[float]]:
    """Joules between begin and end, by NVML."""
    nvml, handle = _nvml(device)
    began = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    joules = [0.0]
    yield joules
    joules[0] = (nvml.nvmlDeviceGetTotalEnergyConsumption(handle) - began) / 1e3


@contextmanager
def _device_memory(device: str) -> Iterator[tuple[list[int], Any]]:
    """Device bytes used, by NVML: before, and whenever progress is reported."""
    nvml, handle = _nvml(device)
    used = [int(nvml.nvmlDeviceGetMemoryInfo(handle).used)]
    yield used, lambda *_: used.append(int(nvml.nvmlDeviceGetMemoryInfo(handle).used))


def _nvml(device: str) -> tuple[Any, Any]:
    """NVML and the handle of a device."""
    cuda = importlib.import_module("ooc_chol.devices.cuda")
    return cuda.nvml_handle(device)  # type: ignore[no-any-return]


def _cusolver(problem: CovarianceProblem, n: int) -> dict[str, Any]:
    """CuSOLVER in core at order ``n``, on the same covariance."""
    measure = importlib.import_module("ooc_chol.kernels.cuda.measure")
    seconds = measure.xpotrf_seconds(n, CovarianceProblem(n, problem.correlation_range, problem.nugget).cuda_tile(), 2)
    tflops = n**3 / 3e12 / float(np.median(seconds))
    print(f"cuSOLVER Xpotrf n = {n}: {tflops:.2f} TFLOP/s", flush=True)
    return {"name": "cuSOLVER Xpotrf", "n": n, "tflops": tflops, "seconds": seconds}


def _result(
    case: Fp64Case, problem: CovarianceProblem, runs: list[dict[str, Any]], factor: CholeskyFactor, dgemm: tuple[float, float]
) -> dict[str, Any]:
    """The result file's content."""
    seconds = [run["seconds"] for run in runs]
    sample = factor.residual(problem.block)
    return {
        "case": case.name,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "devices": [case.device],
        "n": case.n,
        "tile_size": case.tile_size,
        "engine": "native",
        "precision_threshold": None,
        "policy": case.policy,
        "covariance": problem.name,
        "source": case.source,
        "budget_bytes": parse_bytes(case.budget),
        "seconds": seconds,
        "wall_seconds": [run["wall_seconds"] for run in runs],
        "setup_seconds": [run["setup_seconds"] for run in runs],
        "predicted_seconds": runs[-1]["predicted_seconds"],
        "tflops": case.n**3 / 3e12 / float(np.median(seconds)),
        "dgemm_tflops": {"before": dgemm[0], "after": dgemm[1]},
        "bytes": runs[-1]["bytes"],
        "device_bytes": [run["device_bytes"] for run in runs],
        "residual": {"max_scaled_over_sqrt_n": sample.max_scaled_over_sqrt_n, "floor": sample.floor, "blocks": sample.blocks},
        "logdet": factor.logdet(),
        "fallback_share": 0.0,
        "exposed_copy_share": float(np.median([run["exposed_copy_share"] for run in runs])),
        "joules": [run["joules"] for run in runs],
    }


def commit() -> str:
    """Commit of the checkout, ``OOC_CHOL_COMMIT`` where there is no git, else "unknown"."""
    if (named := commit_override()) is not None:
        return named
    try:
        words = ["git", "rev-parse", "HEAD"]
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """Devices and versions."""
    measure = importlib.import_module("ooc_chol.kernels.cuda.measure")
    packages = ("numpy", "scipy", "nvmath-python")
    return {
        "devices": [str(device) for device in list_devices().devices],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        **measure.versions(),
    }
