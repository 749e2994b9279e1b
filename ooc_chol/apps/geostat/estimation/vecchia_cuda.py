"""Vecchia's approximation on GPUs: the kernel of ``vecchia.cu``, made for a covariance function and its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import least_pivot
from ooc_chol.apps.geostat.covariances.model import DeviceForm
from ooc_chol.apps.geostat.covariances.nested_device import c_type
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning
from ooc_chol.apps.geostat.estimation.vecchia_sums import Array, VecchiaParts, VecchiaProblem
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Threads of a block, which shares one small matrix, and values that it takes one after the other.
_THREADS = 32
_RUN = 8

#: Shared memory that a block takes at most, which GPUs of all generations have: enough for some 130 neighbours.
_SHARED_BYTES = 96 << 10

#: Makes of the kernels of matern.cu functions of two sites.
_AS_FUNCTIONS = """
#define KERNEL(name, ...) [[maybe_unused]] static __device__ double name(const double* a, const double* b, __VA_ARGS__)
#define ENTRY
#define PUT(value) return (value)
"""


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """A problem as GPUs compute it."""

    problem: VecchiaProblem
    forms: tuple[DeviceForm, ...]  #: Of the correlations, then of their derivatives by each parameter

    @property
    def sums(self) -> int:
        """Numbers that a block adds up."""
        d, q = self.problem.directions, int(self.problem.table.shape[1])
        return 1 + d * (1 + d + q * q)

    def shared_bytes(self, k: int) -> int:
        """Shared memory of a block for matrices of order ``k``."""
        d, q = self.problem.directions, int(self.problem.table.shape[1])
        return 8 * (k * (k + 1) // 2 + k * (q + d) + k + d * q + self.sums) + 4 * k

    @property
    def arguments(self) -> list[Any]:
        """Arguments of the kernel, as ``_parameters`` names them."""
        noise = np.zeros(1) if self.problem.noise is None else self.problem.noise
        found: list[Any] = [np.ascontiguousarray(self.problem.table), noise, float(self.problem.correlation.nugget)]
        for form in self.forms:
            found += [np.ascontiguousarray(form.points), np.ascontiguousarray(form.variances), *form.arguments]
        return found

    def code(self, k: int) -> str:
        """The text of the kernel for matrices of order ``k``."""
        numbers = {
            "K": k,
            "LEAST": repr(least_pivot(k)),
            "RUN": _RUN,
            "COLUMNS": self.problem.table.shape[1],
            "FORMS": len(self.forms),
            "DERIVED": int(self.problem.shape is not None),
            "HAS_NOISE": int(self.problem.noise is not None),
        }
        defines = "".join(f"#define {name} {value}\n" for name, value in numbers.items())
        return "".join([_AS_FUNCTIONS, *_spaces(self.forms), defines, _accessors(self.forms), _text("estimation", "vecchia.cu")])


def device_work(problem: VecchiaProblem) -> DeviceWork:
    """How GPUs compute a problem."""
    correlation, sites = problem.correlation, problem.coordinates
    derived = [correlation.derivative_form(name, sites) for name in problem.shape or ()]
    return DeviceWork(problem, (correlation.device_form(sites), *derived))


def parts_on_cuda(problem: VecchiaProblem, graph: Conditioning, settings: FactorSettings) -> VecchiaParts | None:
    """The approximation on all GPUs of the settings; None for more neighbours than a block has memory for."""
    k, work = graph.m + 1, device_work(problem)
    if work.shared_bytes(k) > _SHARED_BYTES:
        return None
    rows = graph.rows
    blocks = -(-len(rows) // _RUN)
    index = np.full((blocks * _RUN, k), -1, dtype=np.int32)
    index[: len(rows)] = rows
    columns, count = work.problem.table.shape[1], work.sums
    whitened, sums, failed = tb.run_cuda_blocks(
        work.code(k),
        "vecchia",
        [index.reshape(blocks, _RUN, k)],
        [((_RUN, columns), np.float64), ((count,), np.float64), ((), np.int32)],
        work.arguments,
        threads=_THREADS,
        shared_bytes=work.shared_bytes(k),
        **settings.here,
    )
    if failed.any():
        block = int(np.flatnonzero(failed)[0])
        raise _refusal(problem, rows[block * _RUN : (block + 1) * _RUN], int(failed[block]))
    return _gathered(work, whitened.reshape(-1, columns)[: len(rows)], sums)


def _refusal(problem: VecchiaProblem, rows: NDArray[np.intp], minor: int) -> oc.NotPositiveDefiniteError:
    """The error of a block of which a matrix has no minor of that order: that of the row whose last pivot is least."""
    able = rows[rows[:, minor - 1] >= 0][:, :minor]
    return problem.refusal(able[int(np.argmin([_pivot(problem, row) for row in able]))])


def _pivot(problem: VecchiaProblem, row: NDArray[np.intp]) -> float:
    """Variance of the last of some observations given the others."""
    matrix, places = np.empty((len(row), len(row))), np.ascontiguousarray(problem.coordinates[row].T)
    problem.correlation.fill(places, places, matrix)
    matrix[np.diag_indices(len(row))] += problem.correlation.nugget + (0.0 if problem.noise is None else problem.noise[row])
    known = np.linalg.lstsq(matrix[:-1, :-1], matrix[:-1, -1], rcond=None)[0]
    return float(matrix[-1, -1] - known @ matrix[:-1, -1])


def _gathered(work: DeviceWork, whitened: Array, sums: Array) -> VecchiaParts:
    """Add up what the blocks give, in their order."""
    d, q = work.problem.directions, work.problem.table.shape[1]
    total = sums.sum(axis=0)
    traces, crossed, products = np.split(total[1:], [d, d + d * d])
    return VecchiaParts(whitened, float(total[0]), traces, crossed.reshape(d, d), products.reshape(d, q, q))


def _spaces(forms: Sequence[DeviceForm]) -> list[str]:
    """The functions of ``matern.cu`` for each number of coordinates, and those that a form brings, in namespaces."""
    texts: dict[int, list[str]] = {}
    for form in forms:
        own = texts.setdefault(form.points.shape[1], [_text("covariances", "matern.cu")])
        if form.code and form.code not in own:
            own.append(form.code)
    return [
        f"namespace sites{axes} {{\n#define DIMENSIONS {axes}\n{''.join(parts)}\n#undef DIMENSIONS\n}}\n"
        for axes, parts in texts.items()
    ]


def _accessors(forms: Sequence[DeviceForm]) -> str:
    """Names of the forms' arguments, and their entries by number."""
    types, names, entries, diagonals = "", "", "", ""
    for number, form in enumerate(forms):
        own = [f"p{number}_{place}" for place in range(len(form.arguments))]
        sites, variances = f"points{number}", f"variances{number}"
        types += f", const double* {sites}, const double* {variances}"
        types += "".join(f", {c_type(value)} {name}" for name, value in zip(own, form.arguments, strict=True))
        names += "".join(f", {name}" for name in (sites, variances, *own))
        axes = form.points.shape[1]
        pair = f"{sites} + {axes}LL * (i), {sites} + {axes}LL * (j)"
        entries += f"(form) == {number} ? sites{axes}::{form.kernel}({', '.join([pair, *own])}) : "
        diagonals += f"(form) == {number} ? {variances}[i] : "
    return (
        f"#define PARAMETERS {types}\n#define NAMES {names}\n"
        f"#define ENTRY_OF(form, i, j) ({entries}0.0)\n#define DIAGONAL_OF(form, i) ({diagonals}0.0)\n"
    )


@lru_cache(maxsize=2)
def _text(folder: str, name: str) -> str:
    """A file of CUDA C of this application."""
    return files("ooc_chol.apps.geostat").joinpath(folder, name).read_text(encoding="utf-8")
