"""Runs for the paper's figures: what varies, one measured configuration, and the file that keeps them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.running import head, seconds_of
from ooc_chol.api.cholesky import cholesky
from ooc_chol.bench import ceilings
from ooc_chol.bench.meters import meter_for
from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.bench.results import RESULT_FILES, run_figures, write_json
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.errors import OocCholError
from ooc_chol.files.outputs import Output, check_outputs, output_folder
from ooc_chol.memory.sources import from_function

#: The paper's correlations by the range that it gives them.
CORRELATIONS = {0.02627: "weak", 0.078809: "medium", 0.210158: "strong"}
#: Largest order of a tile where the order of the matrix decides: what the host's kernels take.
LARGEST_TILE = 256
#: Tile rows of the run that loads libraries and compiles kernels, and counts for nothing.
_WARM_ROWS = 8
#: Sampled blocks of a residual.
_RESIDUAL_BLOCKS = 40
#: Seconds of DGEMM behind each configuration's last run.
_DGEMM_SECONDS = 2.0


@dataclass(frozen=True)
class Sweep:
    """What a command varies, and what is the same for all its runs."""

    case: str  #: Name of the result file, without its suffix
    orders: tuple[int, ...]  #: Orders of the matrix
    devices: tuple[str, ...]  #: Device names, all of one kind
    #: Memory per device; None takes what :func:`ooc_chol.cholesky` takes, ``"quarter"`` a quarter of the bytes of L
    budget: str | int | None
    #: Order of a tile; None leaves it to the planner, ``"eighth"`` takes at least eight rows of at most :data:`LARGEST_TILE`
    tile_size: int | str | None
    output: Path  #: Folder of the result file
    thresholds: tuple[float, ...] = (1e-5, 1e-6, 1e-7, 1e-8)  #: Precision thresholds
    ranges: tuple[float, ...] = tuple(CORRELATIONS)  #: Ranges of the covariance, in the unit square
    smoothness: tuple[float, ...] = (0.5,)  #: Values of nu of the covariance
    repeats: int = 1  #: Runs that count, for each configuration
    nugget: float = 1e-6  #: Added to the diagonal
    fp64: str = "auto"  #: How FP64 is computed, or ``"none"``
    #: Whether mixed precision through residues may use products in FP16; None: where rates favour it
    half_products: bool | None = None
    fp64_once: bool = False  #: Whether FP64 runs in the last repeat only, where it is there for the log-determinants
    warm_up: bool = True  #: Whether small runs come first, that count for nothing
    #: Settings of the small runs that have been done
    warmed: set[tuple[Any, ...]] = field(default_factory=set, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("orders", "thresholds", "ranges", "smoothness"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty, but there is nothing to measure without")
        if self.repeats < 1 or min(self.orders) < 1:
            raise ValueError(f"orders are {self.orders} and repeats {self.repeats}, but both are at least 1")

    @property
    def on_gpu(self) -> bool:
        """Whether its devices are GPUs."""
        return self.devices[0].startswith("cuda:")

    @property
    def threads(self) -> int:
        """Number of threads that make A where it is held as an array."""
        return os.cpu_count() or 1

    def problems(self) -> Iterator[CovarianceProblem]:
        """Every matrix: by order, then nu, then range."""
        for n, nu, correlation_range in itertools.product(self.orders, self.smoothness, self.ranges):
            yield CovarianceProblem(n, correlation_range, self.nugget, nu)

    def budget_of(self, n: int) -> str | int | None:
        """Memory per device for a matrix of order n."""
        return n * (n + 1) if self.budget == "quarter" else self.budget

    def tile_size_of(self, n: int) -> int | None:
        """Order of a tile of a matrix of order n: of eighths, powers of two, so that a quarter of L holds several."""
        if not isinstance(self.tile_size, str):
            return self.tile_size
        return min(LARGEST_TILE, 1 << max(4, (n // 8).bit_length() - 1))


@dataclass(frozen=True)
class Run:
    """One configuration that is measured, or fails, and has a record in the result file."""

    problem: CovarianceProblem  #: The matrix
    threshold: float | None = None  #: Precision threshold; None for FP64
    policy: str = "planned"  #: Eviction policy of the plan
    fp64: str = "auto"  #: How FP64 is computed; with a threshold the planner's choice

    @property
    def about(self) -> dict[str, Any]:
        """What identifies the configuration in a file."""
        problem, reach = self.problem, self.problem.correlation_range
        of_matrix = {"n": problem.n, "covariance": problem.name, "correlation": correlation_name(reach), "range": reach}
        return of_matrix | {"nu": problem.smoothness, "precision_threshold": self.threshold, "policy": self.policy}

    @property
    def name(self) -> str:
        """The configuration as a part of a file name."""
        problem = self.problem
        nu = str(Fraction(problem.smoothness).limit_denominator(1000)).replace("/", "_")
        formats = "fp64" if self.threshold is None else f"{self.threshold:g}".replace("e-0", "e-")
        return f"{problem.n}-nu{nu}-{correlation_name(problem.correlation_range)}-{self.policy}-{formats}"


def correlation_name(correlation_range: float) -> str:
    """The paper's word for a range, else the range itself."""
    return CORRELATIONS.get(correlation_range, f"{correlation_range:g}")


def failed(run: Run, error: Exception) -> dict[str, Any]:
    """The record of a configuration that has no result."""
    text = f"{type(error).__name__}: {error}"
    print(f"{run.name}: {text}", flush=True)
    return run.about | {"error": text}


def once(run: Run, sweep: Sweep, a: Any = None, *, trace: bool = False) -> tuple[dict[str, Any], CholeskyFactor]:
    """Factor A once with the options of the configuration, and meter it."""
    _warm(run, sweep)
    with meter_for(sweep.devices) as meter:
        wall, factor = seconds_of(lambda: _factor(run, sweep, a, trace=trace, progress=meter.sample))
    inside = f"{factor.report.inside_seconds:.4g} inside ({factor.report.tflops:.4g} TFLOP/s)"
    print(f"{run.name}: {wall:.4g} s for the whole call, {inside}", flush=True)
    return run_figures(factor.report) | meter.figures() | {"wall_seconds": wall}, factor


def measure(run: Run, sweep: Sweep, a: Any = None) -> tuple[dict[str, Any], CholeskyFactor]:
    """Factor A as often as the sweep wants."""
    found, factor = once(run, sweep, a)
    figures = [found]
    for _ in range(sweep.repeats - 1):
        factor.close()
        found, factor = once(run, sweep, a)
        figures.append(found)
    return record_of(run, figures, factor.logdet(), "host-array" if a is not None else "device-function"), factor


def in_turn(runs: Sequence[Run], sweep: Sweep, *, traces: Path | None = None) -> list[dict[str, Any]]:
    """Factor in turn, all configurations once before any a second time: a machine whose speed drifts treats them alike."""
    figures: dict[Run, list[dict[str, Any]]] = {run: [] for run in runs}
    records: dict[Run, dict[str, Any]] = {}
    for repeat in range(1, sweep.repeats + 1):
        is_last = repeat == sweep.repeats
        for run in [run for run in runs if run not in records]:
            if sweep.fp64_once and run.threshold is None and not is_last:
                continue
            try:
                found, factor = once(run, sweep, trace=is_last and traces is not None)
            except OocCholError as error:
                records[run] = failed(run, error)
                continue
            figures[run].append(found)
            with factor:
                if is_last:
                    beside = _residual(run, factor) | _dgemm(sweep, factor)
                    records[run] = record_of(run, figures[run], factor.logdet(), "device-function") | beside
                    _save(factor, run, sweep, traces)
    return [records[run] for run in runs]


def _residual(run: Run, factor: CholeskyFactor) -> dict[str, Any]:
    """The sampled residual of an FP64 factor, in its units; of one in mixed precision the norm of a sample, beside its bound."""
    if run.threshold is not None:
        return {"sampled_error": _sampled_error(run, factor)}
    sample = factor.residual(run.problem.block, blocks=_RESIDUAL_BLOCKS)
    return {"residual": {"max_scaled_over_sqrt_n": sample.max_scaled_over_sqrt_n, "floor": sample.floor}}


def _sampled_error(run: Run, factor: CholeskyFactor) -> float | None:
    """``||A - L L.T||_F / ||A||_F`` by square sub-blocks anywhere, whose squares stand for all; None where all became FP64."""
    precision, n = factor.report.plan.precision, factor.n
    if precision is None or n < _SAMPLED_ORDER:
        return None
    rng, squares = np.random.default_rng(0), []
    for _ in range(_SAMPLED_BLOCKS):
        top, left = (range(start, start + _SAMPLED_ORDER) for start in sorted(rng.integers(0, n - _SAMPLED_ORDER + 1, 2))[::-1])
        a = run.problem.block(slice(top.start, top.stop), slice(left.start, left.stop))
        squares.append(np.square(a - factor.rows(top, left.stop) @ factor.rows(left, left.stop).T).mean())
    return float(n * np.sqrt(np.mean(squares)) / precision.norms.total)


def _dgemm(sweep: Sweep, factor: CholeskyFactor) -> dict[str, Any]:
    """On GPUs the rate of DGEMM just after the run, on tiles of its factor: the card slows down when it is hot."""
    if not sweep.on_gpu:
        return {}
    each = ceilings.dgemm_tflops(factor, sweep.devices, _DGEMM_SECONDS)
    return {"dgemm_tflops": {"after": sum(each)}}


def _save(factor: CholeskyFactor, run: Run, sweep: Sweep, traces: Path | None) -> None:
    """Write the trace, where one is wanted."""
    if traces is not None:
        assert factor.trace is not None
        factor.trace.save(output_folder(traces, option="--traces") / f"{sweep.case}-{run.name}.pftrace")


def _warm(run: Run, sweep: Sweep) -> None:
    """Factor the leading part of a matrix once for each engine, so that libraries are loaded and kernels compiled."""
    key = run.threshold is None, run.problem.smoothness == 0.5
    if not sweep.warm_up or key in sweep.warmed:
        return
    sweep.warmed.add(key)
    problem = run.problem
    order = min(problem.n, _WARM_ROWS * (sweep.tile_size_of(problem.n) or (2048 if sweep.on_gpu else 256)))
    small = CovarianceProblem(order, problem.correlation_range, problem.nugget, problem.smoothness)
    _factor(Run(small, run.threshold, "planned", run.fp64), sweep, None).close()


def _factor(run: Run, sweep: Sweep, a: Any, *, trace: bool = False, progress: Any = None) -> CholeskyFactor:
    """Call ``cholesky`` once with the options of the configuration."""
    problem = run.problem
    half_products = sweep.half_products if run.threshold is not None else None
    words: dict[str, Any] = {"policy": run.policy, "fp64": run.fp64, "half_products": half_products}  # of a command line
    return cholesky(
        from_function(problem.n, problem.host_tile, cuda=problem.cuda_tile()) if a is None else a,
        precision_threshold=run.threshold,
        tile_size=sweep.tile_size_of(problem.n),
        memory_budget=sweep.budget_of(problem.n),
        devices=list(sweep.devices),
        trace=trace,
        progress=progress,
        **words,
    )


#: Sub-blocks in which the error of mixed precision is sampled, and their order.
_SAMPLED_BLOCKS, _SAMPLED_ORDER = 24, 64
#: What a record takes from the report of the last repeat.
_LAST = (
    "tile_size", "engine", "moduli", "half_share", "budget_bytes", "predicted_seconds", "bytes", "formats", "certified_bound",
    "certified_measured", "estimated_error", "escalations", "peak_bytes",
)  # fmt: skip
#: What a record takes from the report of each repeat.
_EACH = (
    "seconds", "wall_seconds", "setup_seconds", "norms_seconds", "certify_seconds", "joules", "joules_each", "device_bytes",
    "device_bytes_each", "clock_mhz",
)  # fmt: skip


def record_of(run: Run, runs: Sequence[dict[str, Any]], logdet: float, source: str) -> dict[str, Any]:
    """One configuration as a result file holds it."""
    last, n = runs[-1], run.problem.n
    return {
        **run.about,
        "devices": last["devices"],
        "source": source,
        **{name: last[name] for name in _LAST},
        "engine": last["engine"] if run.threshold is None else "mixed",
        "out_of_core": 2 * last["budget_bytes"] * len(last["devices"]) <= 4 * n * (n + 1),
        **{name: [each[name] for each in runs] for name in _EACH if name in last},
        "tflops": n**3 / 3e12 / float(np.median([each["seconds"] for each in runs])),
        "logdet": logdet,
        "exposed_copy_share": float(np.median([each["exposed_copy_share"] for each in runs])),
    }


@final
class ResultFile:
    """The file of a command, written again after each matrix or configuration, so that one that fails loses nothing before it."""

    def __init__(self, sweep: Sweep, figures: str, beside: Mapping[str, Any]) -> None:
        self._path = output_folder(sweep.output, option="--output") / f"{sweep.case}.json"
        check_outputs([Output("--case", self._path, RESULT_FILES)], ask="")
        about = {"figures": figures, "devices": list(sweep.devices), "warm_up": sweep.warm_up}
        #: What the file holds; ``runs`` has one entry for each configuration.
        self.content: dict[str, Any] = head(sweep.case, sweep.on_gpu) | about | {**beside, "runs": []}

    def add(self, *records: dict[str, Any]) -> None:
        """Append configurations and write the file."""
        self.content["runs"].extend(records)
        write_json(self.content, self._path)

    def set(self, name: str, value: object) -> None:
        """Set a field beside the runs and write the file."""
        self.content[name] = value
        write_json(self.content, self._path)
