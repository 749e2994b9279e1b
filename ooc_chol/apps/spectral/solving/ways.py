"""Ways to the lowest eigenpairs, and which is taken for which graph."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ooc_chol.apps.spectral.solving.lowest import SolverOptions
from ooc_chol.apps.spectral.solving.preconditioners import has_pyamg

LAPACK, AMG, DIAGONAL, LANCZOS = "LAPACK", "LOBPCG with smoothed aggregation", "LOBPCG with the diagonal", "block Lanczos"
#: What ``oc.eigsh`` takes in place of the diagonal, where the factor of a Laplacian is small.
INVERSE = "block Lanczos on the inverse"
#: Vertices up to which LAPACK is as fast as anything; of so many for each eigenpair it is, too, while the matrix stays small.
_DENSE, _DENSE_PER_PAIR, _MOST_DENSE = 600, 8, 4000
#: Without a cycle the host takes as long for so many times fewer entries: 0.17 s for 110,000 (Lanczos) beside 0.18 to 0.2 for
#: 300,000 to 450,000, of one core.
_WITHOUT_CYCLE = 4
#: Residuals, relative to the norm, that vectors in float32 reach with room to spare: of 1e-7.
_NARROW = 2e-7
#: The largest degree over the mean from which on the diagonal saves more passes than blocks of Lanczos do.
IRREGULAR = 8.0


class Size(NamedTuple):
    """Size of a connected graph."""

    n: int
    n_entries: int  #: Of its adjacency: two for each edge
    unevenness: float = 1.0  #: The largest degree over the mean


def unevenness(degrees: NDArray[Any]) -> float:
    """The largest degree over the mean."""
    return float(degrees.max() / degrees.mean())


def is_dense(n: int, count: int) -> bool:
    """Tell whether LAPACK finds ``count`` eigenpairs of a graph of n vertices."""
    return n <= max(_DENSE, min(_MOST_DENSE, _DENSE_PER_PAIR * count))


def is_for_host(n_entries: int, options: SolverOptions) -> bool:
    """Tell whether the host solves it, although GPUs are requested: a cycle saves most passes there, without it fewer pay."""
    has_cycle = options.preconditioner != "diagonal" and has_pyamg()
    least = options.gpu_entries if has_cycle else options.gpu_entries // _WITHOUT_CYCLE
    return n_entries < least and options.are_gpus


def lanczos_tol(tol: float, count: int) -> float:
    """The tolerance of Lanczos with the null vector, without which residuals are larger by at most that root."""
    return tol / math.sqrt(count + 1)


def precision_for(method: str, count: int, options: SolverOptions) -> str | None:
    """The precision that is asked for; else of segments on GPUs, where the tolerance allows it, that of half the bytes a pass.

    Lanczos certifies residuals in float64 whatever the precision.
    """
    is_open = options.precision is None and options.are_gpus and method == LANCZOS and not options.sharp
    return "FDF" if is_open and lanczos_tol(options.tol, count) >= _NARROW else options.precision


def eigsh_options(method: str, count: int, options: SolverOptions, null: NDArray[Any], preconditioner: Any) -> dict[str, Any]:
    """Options with which ``oc.eigsh`` is planned and called; Lanczos finds the null vector, too."""
    is_lanczos = method == LANCZOS
    how: dict[str, Any] = {"method": "lanczos", "degree": None} if is_lanczos else {"method": "lobpcg", "degree": 1, "null": null}
    same = ("max_passes", "devices", "memory_budget")
    how |= {"check": options.sharp, "preconditioner": preconditioner, **{name: getattr(options, name) for name in same}}
    how["precision"] = precision_for(method, count, options)
    return {"k": count + is_lanczos, "which": "SA", **how}


def expected_way(size: Size, count: int, options: SolverOptions, *, normalized: bool) -> str:
    """The way that is taken unless coarse levels turn out to be dense, which nobody knows before they are made."""
    is_gpu, wanted = options.are_gpus and not is_for_host(size.n_entries, options), options.preconditioner
    if is_dense(size.n, count):
        return LAPACK
    if wanted == "amg" or (wanted == "auto" and not is_gpu and has_pyamg()):
        return AMG
    return LANCZOS if normalized or (is_gpu and size.unevenness < IRREGULAR) else DIAGONAL
