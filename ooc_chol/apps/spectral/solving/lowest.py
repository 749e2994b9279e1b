"""Options and results of the lowest eigenpairs of a Laplacian."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: The device of graphs that are too small for GPUs.
HOST = "host:0"
#: The option ``devices``.
Devices = str | Sequence[str] | int | None


@final
@dataclass(frozen=True)
class SolverOptions:
    """How eigenvectors are computed: passed on to ``oc.eigsh``.

    ``preconditioner`` is "auto" (smoothed aggregation by PyAMG where it is installed and its levels are not too dense,
    else the diagonal), "amg" or "diagonal". ``tol`` is relative to the norm of the matrix. ``seed`` starts vectors.
    ``sharp`` says whether residuals shall be small beside a very small lowest eigenvalue, too, and not only below ``tol``, and
    whether a check looks for eigenvalues that were missed, which takes as long as finding them: of segments, which are cut again
    and again, neither is worth it. Graphs of fewer than ``gpu_entries`` entries are solved on the host, also where GPUs are
    named; without smoothed aggregation those of a quarter.
    """

    tol: float = 1e-7
    preconditioner: str = "auto"
    precision: str | None = None
    devices: Devices = None
    memory_budget: int | str | None = None
    max_passes: int | None = None
    seed: int = 0
    trace: bool = False
    progress: Any = None
    sharp: bool = True
    gpu_entries: int = 0
    machine: tb.Machine = None  # type: ignore[assignment]  # made of devices and memory_budget, where none is handed down

    def __post_init__(self) -> None:
        made = self.machine or tb.Machine(self.devices, self.memory_budget, must_exist=False)
        object.__setattr__(self, "machine", made)

    @property
    def are_gpus(self) -> bool:
        """True if the devices that are asked for are GPUs."""
        return any(name.startswith("cuda") for name in self.machine.names)

    def on_host(self) -> SolverOptions:
        """The same on the host, for graphs that are too small for GPUs."""
        return replace(self, devices=HOST, machine=tb.Machine(HOST, self.memory_budget))


#: Values of the option ``preconditioner``.
PRECONDITIONERS = ("auto", "amg", "diagonal")


class Lowest(NamedTuple):
    """The lowest nontrivial eigenpairs of a connected graph, ascending."""

    eigenvalues: NDArray[np.float64]  #: (k,)
    vectors: NDArray[np.float64]  #: (n, k), orthonormal; of normalized problems in the D-norm: ``v.T D v = 1``
    residuals: NDArray[np.float64]  #: (k,), ``||L v - w v||`` relative to the norm of L
    method: str  #: "LOBPCG with smoothed aggregation", "LOBPCG with the diagonal", "block Lanczos", "LAPACK" ...
    reason: str  #: A clause: why this method; what would be gained by installing PyAMG where it is missing
    passes: int  #: Products of the matrix with a block
    seconds: float
    trace: Any = None  #: ``oc.Trace`` where one was asked for
    is_small: bool = False  #: Whether the host solved it, although GPUs were asked for
    planned: Mapping[str, int] = {}  #: Bytes over each link, as planned and as copied
    executed: Mapping[str, int] = {}
    near: Any = None  #: ``Near`` for parts of the graph, where that was asked for

    def first(self, count: int) -> Lowest:
        """The lowest of these pairs."""
        return self._replace(
            eigenvalues=self.eigenvalues[:count], vectors=self.vectors[:, :count], residuals=self.residuals[:count]
        )


def solver_options(given: Mapping[str, Any], seed: int, **more: Any) -> SolverOptions:
    """Options by the arguments of a call, by name, checked also where LAPACK or nobody is to need them."""
    how = tb.checked(**{name: given[name] for name in ("memory_budget", "host_budget", "progress", "trace")})
    precision, preconditioner, max_passes = given["precision"], given["preconditioner"], given["max_passes"]
    if not 0 < (least := tb.real_number(given["tol"], "tol")) < 1:
        raise ValueError(f"tol is {least:g}; give a number between 0 and 1, such as 1e-7")
    if precision is not None and precision not in (known := [each.value for each in oc.Precision]):
        raise ValueError(f"precision is {precision!r:.40}; give one of {', '.join(map(repr, known))}")
    if preconditioner not in PRECONDITIONERS:
        raise ValueError(f"preconditioner is {preconditioner!r:.40}; give one of {', '.join(map(repr, PRECONDITIONERS))}")
    most = None if max_passes is None else tb.whole_number(max_passes, "max_passes", least=1)
    where = given["devices"], given["memory_budget"]
    return SolverOptions(least, preconditioner, precision, *where, most, seed=seed, trace=how["trace"], **more)


@final
@dataclass
class PassCount:
    """Passes of one run of the eigensolver after another, told as those of one call."""

    show: Any
    since: float = field(default_factory=time.perf_counter)
    before: int = 0
    now: int = 0

    def __call__(self, done: int, total: int, seconds: float) -> None:
        """Tell of a run."""
        self.now = done
        self.show(self.before + done, self.before + total, time.perf_counter() - self.since)

    def over(self) -> None:
        """Count what comes behind the passes until now."""
        self.before, self.now = self.before + self.now, 0


@contextmanager
def passes_shown(progress: tb.Progress, call: str) -> Iterator[PassCount | None]:
    """The function that runs of the eigensolver report to inside a block: the caller's, or a bar without an end."""
    callers = None if progress is True else progress
    with tb.progress_reporter(callers, call, "pass") as told, tb.open_reporter(progress is True, 0, call, "pass") as bar:
        if bar is not None:
            yield PassCount(lambda done, total, seconds: bar(done, "", seconds))
        else:
            yield None if told is None else PassCount(told)
