"""Whole runs of a tier of tests, alone on the machine and beside busy loops: seconds, processor, and what failed.

Runs are in turn: one alone, one beside six loops.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.running import ROOT, Options, Parser, head

FOLDER = "house"


def measured(tier: str, processes: int, load: int, options: list[str]) -> dict[str, object]:
    """One run beside ``load`` processes that compute for ever."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for _ in range(load):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        told = Path(folder) / "run.json"
        words = ["--tier", tier, "--processes", str(processes), "--json", str(told), *options]
        command = [sys.executable, "-m", "tests.run", *words]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        return {"load": load, "status": status, **json.loads(told.read_text(encoding="utf-8"))}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(tier="commit", runs=5, processes=(os.cpu_count() or 1) + 1)
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 6], help="busy processes beside a run, in turn")
    parser.add_argument("--append", action="store_true", help="keep the runs that the file has")
    parser.add_argument("--words", nargs="+", default=[], help="files of tests, in place of all")


def usual_name(options: Options) -> str:
    """By the tests."""
    return f"tests-{options.tier}"


def files(options: Options) -> list[str]:
    """None that is begun, where it is gone on with."""
    return [] if options.append else [str(options.name)]


def run(options: Options) -> None:
    """Run, and write the file after each run."""
    options.force = options.force or options.append
    file = options.output / f"{options.name}.json"
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if options.append and file.exists() else []
    for _ in range(options.runs):
        for load in options.loads:
            found = measured(options.tier, options.processes, load, options.words)
            runs.append({"commit": head("")["commit"], **found})
            options.write({"cores": os.cpu_count(), "runs": runs})
