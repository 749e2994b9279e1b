"""Named lists of cases, run one after the other in one process: one that fails costs only itself."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from ooc_chol.bench.case import Fp64Case, Peer
from ooc_chol.bench.fp64 import Session, run_case
from ooc_chol.files.outputs import output_file, output_folder

_FOUR = tuple(f"cuda:{number}" for number in range(4))
_ONE_GPU_PEERS = tuple(map(Peer.parse, ("cusolver:122880", "cusolver:65536", "torch:65536", "magma:65536")))
_FOUR_GPU_PEERS = tuple(map(Peer.parse, ("cusolvermg:98304", "cusolvermg:163840")))


def _case(name: str, n: int, budget: str | None, **options: Any) -> Fp64Case:
    """One case of the GPU suites: tiles of 4096, of 2048 in residues."""
    return Fp64Case(name, n, 2048 if options.get("engine") == "residue" else 4096, budget, **options)


#: The suites. A budget of at most half of L's bytes is what "out of core" means: 18 GiB at 98,304, where the case with A as an
#: array in host memory stops, since 131,072 rows take 137 GB for A alone and L beside it, and hosts with one GPU have 128 GiB.
SUITES: dict[str, tuple[Fp64Case, ...]] = {
    "residue-1gpu": (
        _case("h200-residue-131072-32g", 131072, "32 GiB", engine="residue", peers=_ONE_GPU_PEERS),
        _case("h200-residue-163840-48g", 163840, "48 GiB", engine="residue", peers=_ONE_GPU_PEERS),
        _case("h200-residue-65536-8g", 65536, "8 GiB", engine="residue", peers=_ONE_GPU_PEERS),
    ),
    "native-1gpu": (
        _case("h200-native-131072-24g", 131072, "24 GiB", peers=_ONE_GPU_PEERS),
        _case("h200-native-98304-16g-array", 98304, "16 GiB", source="host-array", peers=_ONE_GPU_PEERS),
        _case("h200-native-65536-8g", 65536, "8 GiB", peers=_ONE_GPU_PEERS),
    ),
    "multi-gpu": (
        _case("h200x4-residue-163840", 163840, None, engine="residue", devices=_FOUR, peers=_FOUR_GPU_PEERS),
        _case("h200x4-native-163840", 163840, None, devices=_FOUR, peers=_FOUR_GPU_PEERS),
        _case("h200x4-native-163840-16g", 163840, "16 GiB", devices=_FOUR, peers=_FOUR_GPU_PEERS),
        _case("h200x4-residue-163840-16g", 163840, "16 GiB", engine="residue", devices=_FOUR, peers=_FOUR_GPU_PEERS),
    ),
    "large-1gpu": (_case("h200-residue-250000-112g", 250000, "112 GiB", engine="residue", repeats=1, warm_up=False),),
    "host": (
        Fp64Case("host-native-4096", 4096, 512, "24 MiB", devices=("host:0",), peers=(Peer("scipy", 4096),), dgemm_seconds=2.0),
        Fp64Case("host-native-4096-array", 4096, 512, "24 MiB", devices=("host:0",), source="host-array", dgemm_seconds=2.0),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The end of one case: its result, or why there is none."""

    case: Fp64Case
    result: dict[str, Any] | None  #: Its result file's content; None if it failed or did not start
    error: str  #: Why there is no result; empty if there is one
    seconds: float  #: Seconds that the case took, with all its measurements


def choose(name: str, only: Sequence[str] = (), **changes: Any) -> tuple[Fp64Case, ...]:
    """Cases of a suite, all of them or those named."""
    if name not in SUITES:
        raise ValueError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    by_name = {case.name: case for case in SUITES[name]}
    if unknown := set(only) - set(by_name):
        raise ValueError(f"suite {name} has no case {', '.join(sorted(unknown))}; it has {', '.join(by_name)}")
    given = {field: value for field, value in changes.items() if value is not None}
    return tuple(replace(by_name[chosen], **given) for chosen in only or by_name)


def run_suite(
    cases: Iterable[Fp64Case],
    session: Session,
    *,
    traces: Path | None = None,
    stop_after: float | None = None,
    run: Callable[[Fp64Case, Session, Path | None], dict[str, Any]] = run_case,
) -> list[Outcome]:
    """Run cases one after the other; each one's result file is written before the next begins."""
    began = time.monotonic()
    outcomes = []
    for case in cases:
        if stop_after is not None and time.monotonic() - began >= stop_after:
            outcomes.append(Outcome(case, None, f"not begun: {stop_after:g} s were over", 0.0))
            continue
        trace = None if traces is None else traces / f"{case.name}.pftrace"
        outcomes.append(_run_one(case, session, trace, run))
    return outcomes


def _run_one(case: Fp64Case, session: Session, trace: Path | None, run: Callable[..., dict[str, Any]]) -> Outcome:
    """One case, and what became of it."""
    began = time.monotonic()
    errors = session.output / "errors" / f"{case.name}.txt"
    try:
        if trace is not None:
            output_folder(trace.parent, option="--traces")
        result = run(case, session, trace)
    except Exception as error:  # recorded and shown: it must not lose the cases that follow
        output_folder(errors.parent)
        with output_file(errors, replace=True) as part:
            part.write_text(traceback.format_exc(), encoding="utf-8")
        text = f"{type(error).__name__}: {error}"
        print(f"{case.name}: {text}", flush=True)
        return Outcome(case, None, text, time.monotonic() - began)
    errors.unlink(missing_ok=True)
    return Outcome(case, result, "", time.monotonic() - began)


def summary(outcomes: Sequence[Outcome]) -> str:
    """A table of the outcomes, as text: a line for each case."""
    rows = [_HEADING, *(_row(outcome) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows if len(row) == len(_HEADING)) for column in range(len(_HEADING))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows)


_HEADING = ("case", "seconds", "predicted", "TFLOP/s", "of DGEMM", "best peer", "residual", "exposed", "J/TFLOP", "took")


def _row(outcome: Outcome) -> tuple[str, ...]:
    """One line of the summary."""
    if outcome.result is None:
        return outcome.case.name, outcome.error
    found = outcome.result
    seconds, dgemm = median(found["seconds"]), sum(found["dgemm_tflops"].values()) / 2
    peers = [peer["tflops"] for peer in found["peers"] if "tflops" in peer]
    predicted = found["predicted_seconds"]
    return (
        outcome.case.name,
        f"{seconds:.4g}",
        "unknown" if predicted is None else f"{predicted:.4g} ({100 * (predicted / seconds - 1):+.0f} %)",
        f"{found['tflops']:.4g}",
        f"{found['tflops'] / dgemm:.3f}",
        f"{found['tflops'] / max(peers):.2f} of {max(peers):.4g}" if peers else "",
        f"{found['residual']['max_scaled_over_sqrt_n']:.2g}",
        f"{100 * found['exposed_copy_share']:.1f} %",
        f"{3e12 * median(found['joules']) / found['n'] ** 3:.1f}" if "joules" in found else "",
        f"{outcome.seconds:.0f} s",
    )
