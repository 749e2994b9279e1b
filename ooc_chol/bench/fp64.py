"""FP64 out of core beside its ceilings and other libraries, all in one process: the runs of one case and their result file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from ooc_chol.api.cholesky import cholesky
from ooc_chol.bench import ceilings
from ooc_chol.bench.case import Fp64Case, Peer
from ooc_chol.bench.meters import meter_for
from ooc_chol.bench.peers import measure_peer
from ooc_chol.bench.problem import CovarianceProblem
from ooc_chol.bench.results import RESULT_FILES, Measured, engine_of, run_figures, write_json
from ooc_chol.config import emulation_variables
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.files.outputs import Output, check_outputs, output_folder
from ooc_chol.memory.sources import from_function
from ooc_chol.tracing.records import TRACE_FILES


@final
class Session:
    """State shared by the cases of one process: where results go, and what need not be measured twice."""

    def __init__(self, output: Path, *, measures_rates: bool) -> None:
        self.output = output
        self._measures_rates = measures_rates
        self._rates: set[tuple[tuple[str, ...], int]] = set()
        self._peers: dict[tuple[Peer, tuple[str, ...]], dict[str, Any]] = {}

    def prepare_rates(self, case: Fp64Case) -> None:
        """Measure the rates that the case's plan needs, unless that was done."""
        devices = case.devices if case.on_gpu else case.devices[:1]
        key = devices, case.tile_size
        if self._measures_rates and key not in self._rates:
            measure_rates(case.tile_size, devices)
            self._rates.add(key)

    def peers(self, case: Fp64Case, problem: CovarianceProblem) -> list[dict[str, Any]]:
        """The case's peers; one that was measured on the same devices before is not measured again."""
        for peer in case.peers:
            if (peer, case.devices) not in self._peers:
                self._peers[peer, case.devices] = measure_peer(peer, problem, case.devices)
        return [self._peers[peer, case.devices] for peer in case.peers]


def run_case(case: Fp64Case, session: Session, trace: Path | None = None) -> dict[str, Any]:
    """Measure a case and write its JSON file."""
    if emulation_variables():
        raise ValueError(f"{', '.join(emulation_variables())} would switch emulation on; unset before measuring native FP64")
    case.check_machine()
    file = output_folder(session.output, option="--output") / f"{case.name}.json"
    check_outputs([Output("--case", file, RESULT_FILES), Output("--trace", trace, TRACE_FILES)], ask="")
    problem = CovarianceProblem(case.n)
    rates = {"before": _warm(case, problem)}
    session.prepare_rates(case)
    runs, factor = _repeat(case, _matrix(problem, case.source), trace is not None)
    with factor:
        rates["after"] = ceilings.dgemm_tflops(factor, case.devices, case.dgemm_seconds)
        if trace is not None:
            assert factor.trace is not None
            factor.trace.save(trace)
        measured = _measured(case, problem, runs, factor, rates=rates)
    write_json(measured.to_dict(), file)  # also if a peer ends the process
    result = measured.to_dict(session.peers(case, problem))
    write_json(result, file)
    return result


def _matrix(problem: CovarianceProblem, source: str) -> Any:
    """A where the case wants it: in host memory, or as a function of the device that makes its tiles."""
    if source == "host-array":
        return problem.array(os.cpu_count() or 1)
    return from_function(problem.n, problem.host_tile, cuda=problem.cuda_tile())


def _factor(case: Fp64Case, a: Any, *, trace: bool = False, progress: Any = None) -> CholeskyFactor:
    """Factor A once with the options of the case."""
    # Native results must be comparable with those of versions that knew no moduli: then the option is not given.
    moduli = {} if case.engine == "native" else {"moduli": case.moduli}
    words: dict[str, Any] = {"policy": case.policy, "fp64": case.engine, **moduli}  # of a command line
    return cholesky(
        a,
        tile_size=case.tile_size,
        memory_budget=case.budget,
        devices=list(case.devices),
        trace=trace,
        progress=progress,
        **words,
    )


def _warm(case: Fp64Case, problem: CovarianceProblem) -> list[float]:
    """DGEMM on tiles of the leading part of the same factor: libraries are loaded, kernels compiled, the clock settles."""
    order = min(case.n, max(4, 2 * len(case.devices)) * case.tile_size)
    source = from_function(order, problem.host_tile, cuda=problem.cuda_tile())
    with _factor(case, source) as factor:
        return ceilings.dgemm_tflops(factor, case.devices, case.dgemm_seconds)


def _repeat(case: Fp64Case, a: Any, trace: bool) -> tuple[list[dict[str, Any]], CholeskyFactor]:
    """All repeats that count, and the factor of the last."""
    runs: list[dict[str, Any]] = []
    if case.warms_up:
        with _factor(case, a) as factor:
            print(f"{case.name}: {factor.report.inside_seconds:.4g} s, not counted", flush=True)
    for repeat in range(case.repeats):
        is_last = repeat == case.repeats - 1
        with meter_for(case.devices) as meter:
            began = time.perf_counter()
            factor = _factor(case, a, trace=trace and is_last, progress=meter.sample)
            wall = time.perf_counter() - began
        runs.append(run_figures(factor.report) | meter.figures() | {"wall_seconds": wall})
        inside = f"{factor.report.inside_seconds:.4g} inside ({factor.report.tflops:.4g} TFLOP/s)"
        print(f"{case.name}: {wall:.4g} s for the whole call, {inside}", flush=True)
        if not is_last:
            factor.close()
    return runs, factor


def _measured(
    case: Fp64Case,
    problem: CovarianceProblem,
    runs: Sequence[dict[str, Any]],
    factor: CholeskyFactor,
    *,
    rates: dict[str, list[float]],
) -> Measured:
    """Everything but the peers, for which the factor's memory is given back first."""
    engine = engine_of(case, factor)
    sample = factor.residual(problem.block, blocks=200)
    return Measured(
        case=case,
        covariance=problem.name,
        runs=runs,
        engine=engine,
        residual={"max_scaled_over_sqrt_n": sample.max_scaled_over_sqrt_n, "floor": sample.floor, "blocks": sample.blocks},
        logdet=factor.logdet(),
        ceilings=_ceilings(case, engine, rates),
    )


def _ceilings(case: Fp64Case, engine: str, rates: dict[str, list[float]]) -> dict[str, Any]:
    """DGEMM of all devices together, before and after, and of each; for residues on GPUs their products' rate."""
    found: dict[str, Any] = {
        "dgemm_tflops": {when: sum(each) for when, each in rates.items()},
        "dgemm_tflops_each": rates,
    }
    if engine == "residue" and case.on_gpu:
        each = ceilings.product_tflops(case.tile_size, case.moduli, case.devices, case.dgemm_seconds)
        found |= {"product_tflops": sum(each), "product_tflops_each": each}
    return found
