"""Whole commands of `geostat fit` in FP64 and at a precision threshold, on one simulated field of each range.

    python -m benchmarks fit_commands --name NAME --devices cuda:0

Each command is a process of its own: seconds are those that a user waits for, imports and the file of values included. The first
command of a run warms nothing for the others but the system's caches.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.running import ROOT, Options, Parser, environment_apart, seconds_of

FOLDER, LINES = "geostat", "fields"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(n=60_000, devices=None, repeats=2)
    parser.add_argument("--range", type=float, nargs="+", default=[0.02627, 0.078809, 0.210158], help="ranges of the fields")
    parser.add_argument("--thresholds", type=float, nargs="*", default=[1e-5], help="precision thresholds besides FP64")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """All commands of a field, one after the other, then those of the next one."""
    options.about = {"n": options.n, "devices": options.devices}
    devices = [] if options.devices is None else ["--devices", ",".join(options.devices)]
    for reach in options.range:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "field.csv")
            theta = ["--theta", f"1,{reach:g},0.5"]
            _seconds("-m", "benchmarks", "synth", "--n", str(options.n), *theta, "--output", str(data), *devices)
            rows = {}
            for threshold in (None, *options.thresholds):
                asked = [] if threshold is None else ["--precision-threshold", f"{threshold:g}"]
                rows[str(threshold)] = _fitted(data, Path(folder, "fit.json"), [*devices, *asked], options.repeats)
        yield {"range": reach, "fits": rows}


def _fitted(data: Path, result: Path, words: list[str], repeats: int) -> dict[str, Any]:
    """A command, some times: its seconds, and what the last one found."""
    columns = ["--x", "x", "--y", "y", "--value", "value", "--smoothness", "0.5"]
    command = ["-m", "ooc_chol", "geostat", "fit", str(data), *columns, "--output", str(result), "--force", *words]
    seconds = [_seconds(*command) for _ in range(repeats)]
    fit = json.loads(result.read_text(encoding="utf-8"))["fit"]
    return {
        "seconds": seconds,
        "evaluations": [each["seconds"] for each in fit["evaluations"]],
        "range": fit["model"]["range"],
        "loglik": fit["loglik"],
        "interval": fit["interval"],
        "end": fit["end"],
    }


def _seconds(*words: str) -> float:
    """Seconds of a command of this interpreter, which must end well."""
    how = {"cwd": ROOT, "env": environment_apart(), "capture_output": True, "text": True}
    seconds, done = seconds_of(lambda: subprocess.run([sys.executable, *words], check=False, **how))
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds
