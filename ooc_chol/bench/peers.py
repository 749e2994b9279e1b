"""Other libraries' factorizations of the same covariance: warm, best of two, generation apart. One that fails is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from ooc_chol.bench.case import Peer
from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.errors import NotPositiveDefiniteError

#: Runs of each peer, of which the best counts.
REPEATS = 2
#: Columns of cuSOLVERMg's blocks that are tried.
MG_BLOCKS = (1024, 2048)

#: Names of the peers in result files.
LABELS = {
    "cusolver": "cuSOLVER Xpotrf",
    "cusolvermg": "cuSOLVERMg potrf",
    "torch": "torch.linalg.cholesky",
    "magma": "torch.linalg.cholesky (MAGMA)",
    "scipy": "SciPy dpotrf",
}


def measure_peer(peer: Peer, problem: CovarianceProblem, devices: Sequence[str]) -> dict[str, Any]:
    """Measure another library's factorization of the same covariance; returns its seconds and rate, or its error."""
    same = CovarianceProblem(peer.n, problem.correlation_range, problem.nugget)
    used = _devices_of(peer.name, devices)
    about: dict[str, Any] = {"name": LABELS[peer.name], "n": peer.n, "devices": used}
    try:
        found = _MEASURES[peer.name](same, used)
    except Exception as error:  # whatever a library raises: it is the peer's result, and the case goes on
        found = {"error": f"{type(error).__name__}: {error}"}
    if "seconds" in found:
        found["tflops"] = peer.n**3 / 3e12 / min(found["seconds"])
    print(_line(about | found), flush=True)
    return about | found


def _devices_of(name: str, devices: Sequence[str]) -> list[str]:
    """Names of the devices that a peer computes on, of those of the case."""
    if name == "scipy":
        return ["host:0"]
    gpus = [device for device in devices if device.startswith("cuda:")] or ["cuda:0"]
    return gpus if name == "cusolvermg" else gpus[:1]


def _line(found: dict[str, Any]) -> str:
    """Describe a peer's result in a line for the terminal."""
    text = f"{found['tflops']:.2f} TFLOP/s" if "tflops" in found else found["error"]
    return f"{found['name']} n = {found['n']} on {', '.join(found['devices'])}: {text}"


def _cusolver(problem: CovarianceProblem, devices: Sequence[str]) -> dict[str, Any]:
    from ooc_chol.bench.cuda import libraries
    from ooc_chol.bench.cuda.devices import on_device

    return {"seconds": on_device(devices[0], lambda: libraries.xpotrf_seconds(problem.n, problem.cuda_tile(), REPEATS))}


def _cusolver_mg(problem: CovarianceProblem, devices: Sequence[str]) -> dict[str, Any]:
    """Measure cuSOLVERMg at two block sizes, and keep the better one."""
    from ooc_chol.bench.cuda import cusolver_mg

    function = problem.cuda_tile()
    tried = {block: cusolver_mg.potrf_seconds(problem.n, function, devices, block=block, repeats=REPEATS) for block in MG_BLOCKS}
    best = min(tried, key=lambda block: min(tried[block]))
    return {"seconds": tried[best], "block": best, "seconds_by_block": {str(block): tried[block] for block in tried}}


def _torch(problem: CovarianceProblem, devices: Sequence[str], library: str = "default") -> dict[str, Any]:
    from ooc_chol.bench.cuda import libraries
    from ooc_chol.bench.cuda.devices import on_device

    function = problem.cuda_tile()
    return {"seconds": on_device(devices[0], lambda: libraries.torch_seconds(problem.n, function, REPEATS, library))}


def _scipy(problem: CovarianceProblem, devices: Sequence[str]) -> dict[str, Any]:
    """LAPACK's dpotrf as SciPy calls it, in place, with the threads that its BLAS takes."""
    a = problem.block(slice(0, problem.n), slice(0, problem.n))
    return {"seconds": [_dpotrf_seconds(a.copy()) for _ in range(REPEATS + 1)][1:]}  # the first one warms up


def _dpotrf_seconds(a: np.ndarray[Any, Any]) -> float:
    """Seconds of one dpotrf; A is symmetric, so that its row-major rows are LAPACK's columns."""
    began = time.perf_counter()
    _, info = scipy.linalg.lapack.dpotrf(a.T, lower=1, clean=0, overwrite_a=1)
    seconds = time.perf_counter() - began
    if info:
        raise NotPositiveDefiniteError(int(info), (0, 0))
    return seconds


_MEASURES: dict[str, Callable[[CovarianceProblem, Sequence[str]], dict[str, Any]]] = {
    "cusolver": _cusolver,
    "cusolvermg": _cusolver_mg,
    "torch": _torch,
    "magma": partial(_torch, library="magma"),
    "scipy": _scipy,
}
